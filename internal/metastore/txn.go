package metastore

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/model"
)

// The buckets of fsm.db; see the package comment. Read-only.
var (
	bucketTopics      = []byte("topics")
	bucketAssignments = []byte("assignments")
	bucketSchemas     = []byte("schemas")
	bucketMembers     = []byte("members")
	bucketRemoved     = []byte("removed_members")
	bucketUsers       = []byte("users")
	bucketRemotes     = []byte("remotes")
	bucketMeta        = []byte("fsm_meta")

	dataBuckets = [][]byte{bucketTopics, bucketAssignments, bucketSchemas, bucketMembers, bucketRemoved, bucketUsers, bucketRemotes}
)

// Limits the state machine itself holds, whatever the proposer checked. They are
// part of the entries' meaning and never change.
const (
	partitionsStoredMax = 100_000 // five digits in a partition directory's name
	idBytesMax          = 128     // member ids and usernames
)

// txn is one bbolt transaction being filled by a batch of entries, with what the
// in-memory values must follow afterwards.
type txn struct {
	tx          *bbolt.Tx
	before      *catalog         // as of the last transaction; read only
	touched     map[string]touch // topics, by what of them changed
	schemaBytes int64            // change of what all schema versions add up to
	rowSum      uint64           // change of what all rows add up to
	sums        summer
	moved       [domainCount]bool // domains besides those of the topics touched
}

func newTxn(tx *bbolt.Tx, before *catalog) *txn {
	return &txn{tx: tx, before: before, touched: map[string]touch{}}
}

// touch says which parts of a topic a transaction changed.
type touch uint8

const (
	touchRecord touch = 1 << iota
	touchPlacement
	touchSchema
	touchAll = touchRecord | touchPlacement | touchSchema
)

func (t *txn) touch(topic string, what touch) { t.touched[topic] |= what }

// refusal is the outcome of an entry that every node refuses alike.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// refuse makes a refusal whose text is the sentinel's alone, for the texts that
// reach clients as they are.
func refuse(sentinel error) error { return &refusal{sentinel} }

// refusef makes a refusal that names its cause after the sentinel.
func refusef(sentinel error, format string, args ...any) error {
	return &refusal{fmt.Errorf("%w: %w", sentinel, fmt.Errorf(format, args...))}
}

func (t *txn) put(bucket, key []byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.store(bucket, key, b)
}

// store and remove are the only writers of rows: they keep the sum of all rows.
func (t *txn) store(bucket, key, value []byte) error {
	b := t.tx.Bucket(bucket)
	t.rowSum += t.sums.rowSum(bucket, key, value) - t.sums.rowSum(bucket, key, b.Get(key))
	return b.Put(key, value)
}

func (t *txn) remove(bucket, key []byte) error {
	b := t.tx.Bucket(bucket)
	t.rowSum -= t.sums.rowSum(bucket, key, b.Get(key))
	return b.Delete(key)
}

// getJSON reads one value; a stored value that does not decode is damage, not a
// refusal.
func getJSON[T any](tx *bbolt.Tx, bucket, key []byte) (v T, ok bool, err error) {
	b := tx.Bucket(bucket).Get(key)
	if b == nil {
		return v, false, nil
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return v, false, fmt.Errorf("fsm.db: %s %q: %w: %w", bucket, key, model.ErrCorrupt, err)
	}
	return v, true, nil
}

// numbered is the key of a numbered row of a topic.
func numbered(topic string, n int) []byte {
	k := make([]byte, 0, len(topic)+5)
	k = append(k, topic...)
	k = append(k, 0)
	return binary.BigEndian.AppendUint32(k, uint32(n))
}

// splitNumbered is the inverse of numbered; topic aliases key.
func splitNumbered(key []byte) (topic []byte, n int, ok bool) {
	i := len(key) - 5
	if i < 1 || key[i] != 0 {
		return nil, 0, false
	}
	return key[:i], int(binary.BigEndian.Uint32(key[i+1:])), true
}

// rows calls f with every numbered row of a topic, ascending.
func rows(tx *bbolt.Tx, bucket []byte, topic string, f func(n int, key, value []byte) error) error {
	prefix := append([]byte(topic), 0)
	c := tx.Bucket(bucket).Cursor()
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		if name, n, ok := splitNumbered(k); ok && len(name) == len(topic) {
			if err := f(n, k, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropRows deletes every numbered row of a topic. Keys are collected first: a
// bbolt cursor does not survive deletes under it.
func (t *txn) dropRows(bucket []byte, topic string) error {
	var keys [][]byte
	err := rows(t.tx, bucket, topic, func(_ int, key, _ []byte) error {
		keys = append(keys, bytes.Clone(key))
		return nil
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := t.remove(bucket, k); err != nil {
			return err
		}
	}
	return nil
}

// topic reads a record, or refuses with ErrTopicNotFound.
func (t *txn) topic(name string) (model.Topic, error) {
	rec, ok, err := getJSON[model.Topic](t.tx, bucketTopics, []byte(name))
	if err == nil && !ok {
		err = refuse(model.ErrTopicNotFound)
	}
	return rec, err
}

// topicLife is topic with a compare-and-set: with id known, another life of the
// name is refused with ErrTopicChanged.
func (t *txn) topicLife(name string, id model.Incarnation) (model.Topic, error) {
	rec, err := t.topic(name)
	if err == nil && id.Differs(rec.ID) {
		err = refuse(model.ErrTopicChanged)
	}
	return rec, err
}

// topicOf is the record of exactly this life of a name, or a refusal with
// ErrTopicNotFound or ErrTopicChanged.
func (t *txn) topicOf(name string, id model.Incarnation) (model.Topic, error) {
	rec, err := t.topic(name)
	if err == nil && rec.ID != id {
		err = refuse(model.ErrTopicChanged)
	}
	return rec, err
}

func (t *txn) putTopic(rec model.Topic) error {
	rec.Role = "" // derived from the links, never stored
	t.touch(rec.Name, touchRecord)
	return t.put(bucketTopics, []byte(rec.Name), rec)
}

// placement is the stored value of one assignment row.
type placement struct {
	Owner  string `json:"owner,omitempty"`
	Target string `json:"target,omitempty"`
}

func (t *txn) placement(topic string, p int) (placement, error) {
	a, _, err := getJSON[placement](t.tx, bucketAssignments, numbered(topic, p))
	return a, err
}

func (t *txn) putPlacement(topic string, p int, a placement) error {
	t.touch(topic, touchPlacement)
	return t.put(bucketAssignments, numbered(topic, p), a)
}

// checkID refuses a member id or username no key can be made of.
func checkID(what, id string) error {
	if id == "" || len(id) > idBytesMax {
		return refusef(model.ErrInvalid, "%s of %d bytes, want 1 to %d", what, len(id), idBytesMax)
	}
	return nil
}

// checkOwner refuses a member that may not own partitions; "" (unassigned) may.
func (t *txn) checkOwner(id string) error {
	if id == "" {
		return nil
	}
	if err := checkID("member id", id); err != nil {
		return err
	}
	if t.tx.Bucket(bucketRemoved).Get([]byte(id)) != nil {
		return refusef(model.ErrMemberRemoved, "%q cannot own partitions", id)
	}
	return nil
}
