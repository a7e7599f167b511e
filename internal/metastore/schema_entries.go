package metastore

import (
	"bytes"
	"encoding/json"

	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/model"
)

// Budgets of schema histories (spec/http-api LIM-14). Every child's copy counts
// against the child. They are part of the entries' meaning and never change.
const (
	schemaVersionsMax           = 1000
	SchemaTopicBytesMax   int64 = 4 << 20   // of one topic's versions
	SchemaClusterBytesMax int64 = 256 << 20 // of all versions of all topics
)

// PutSchema (type 4) appends a schema version to a topic and to each of its
// children. Applied only when Version is exactly the latest plus one, there and on
// every child; refused with ErrConflict and ErrVersionExists otherwise.
type PutSchema struct {
	Topic   string          `json:"topic"`
	Version int             `json:"version"`
	Schema  json.RawMessage `json:"schema"`
}

// Type implements Command.
func (PutSchema) Type() EntryType { return TypePutSchema }

func (c PutSchema) apply(t *txn) error {
	rec, err := t.topic(c.Topic)
	if err != nil {
		return err
	}
	names, err := t.nextVersion(&rec, c.Version, c.Schema)
	if err != nil {
		return err
	}
	return t.appendVersion(names, c.Version, c.Schema)
}

// PutSchemaVersion (type 26) is PutSchema for the incarnation it was checked
// against, within the byte budgets. Refused with ErrTopicChanged, ErrConflict, and
// as PutSchema.
type PutSchemaVersion struct {
	Topic   string            `json:"topic"`
	ID      model.Incarnation `json:"id"`
	Version int               `json:"version"`
	Schema  json.RawMessage   `json:"schema"`
}

// Type implements Command.
func (PutSchemaVersion) Type() EntryType { return TypePutSchemaVersion }

func (c PutSchemaVersion) apply(t *txn) error {
	rec, err := t.topicOf(c.Topic, c.ID)
	if err != nil {
		return err
	}
	names, err := t.nextVersion(&rec, c.Version, c.Schema)
	if err != nil {
		return err
	}
	if err := t.checkBudgets(names, int64(len(c.Schema))); err != nil {
		return err
	}
	return t.appendVersion(names, c.Version, c.Schema)
}

// nextVersion refuses a version that does not follow, and returns the topics that
// get a copy: the topic and its children.
func (t *txn) nextVersion(rec *model.Topic, version int, doc []byte) ([]string, error) {
	if len(doc) == 0 || string(doc) == "null" {
		return nil, refusef(model.ErrInvalid, "schema of %q is empty", rec.Name)
	}
	if version > schemaVersionsMax {
		return nil, refusef(model.ErrConflict, "schema version %d of %q, at most %d", version, rec.Name, schemaVersionsMax)
	}
	names, err := t.withLocalChildren(rec)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if latest := latestSchema(t.tx, name); version != latest+1 {
			return nil, refusef(model.ErrConflict, "%w: version %d of %q does not follow %d", model.ErrVersionExists, version, name, latest)
		}
	}
	return names, nil
}

// withLocalChildren is a topic and its children but the remote ones, which have no
// schema here.
func (t *txn) withLocalChildren(rec *model.Topic) ([]string, error) {
	names := []string{rec.Name}
	for _, name := range rec.Children {
		child, _, err := getJSON[model.Topic](t.tx, bucketTopics, []byte(name))
		if err != nil {
			return nil, err
		}
		if child.Remote == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

func (t *txn) appendVersion(names []string, version int, doc []byte) error {
	for _, name := range names {
		if err := t.putSchema(name, version, doc); err != nil {
			return err
		}
	}
	return nil
}

// putSchema stores a version that is not there yet.
func (t *txn) putSchema(topic string, version int, doc []byte) error {
	t.touch(topic, touchSchema)
	t.schemaBytes += int64(len(doc))
	return t.store(bucketSchemas, numbered(topic, version), doc)
}

// checkBudgets refuses versions of add bytes in all for each of the topics, when
// one of them or the cluster would hold too much.
func (t *txn) checkBudgets(names []string, add int64) error {
	for _, name := range names {
		size, err := schemaSize(t.tx, name)
		if err != nil {
			return err
		}
		if err := checkSchemaBudget("topic "+name, size, add, SchemaTopicBytesMax); err != nil {
			return err
		}
	}
	total := t.before.schemaBytes.Load() + t.schemaBytes
	return checkSchemaBudget("the cluster", total, add*int64(len(names)), SchemaClusterBytesMax)
}

// checkSchemaBudget refuses add bytes on top of held.
func checkSchemaBudget(whose string, held, add, limit int64) error {
	if held+add <= limit {
		return nil
	}
	return refusef(model.ErrConflict, "schema byte budget of %s: %d bytes are stored, %d more do not fit into %d", whose, held, add, limit)
}

// DropSchemas (type 5) deletes a topic's whole schema history.
type DropSchemas struct {
	Topic string `json:"topic"`
}

// Type implements Command.
func (DropSchemas) Type() EntryType { return TypeDropSchemas }

func (c DropSchemas) apply(t *txn) error { return t.dropSchemas(c.Topic) }

// dropSchemas deletes every version under a name.
func (t *txn) dropSchemas(topic string) error {
	size, err := schemaSize(t.tx, topic)
	if err != nil || size == 0 {
		return err
	}
	t.touch(topic, touchSchema)
	t.schemaBytes -= size
	return t.dropRows(bucketSchemas, topic)
}

// latestSchema is the newest stored version of a topic, 0 without schema: the last
// row under its name.
func latestSchema(tx *bbolt.Tx, topic string) int {
	c := tx.Bucket(bucketSchemas).Cursor()
	last := append([]byte(topic), 0, 0xff, 0xff, 0xff, 0xff)
	key, _ := c.Seek(last)
	if !bytes.Equal(key, last) {
		if key == nil {
			key, _ = c.Last()
		} else {
			key, _ = c.Prev()
		}
	}
	if name, n, ok := splitNumbered(key); ok && string(name) == topic {
		return n
	}
	return 0
}

// schemaSize is what a topic's versions add up to.
func schemaSize(tx *bbolt.Tx, topic string) (size int64, err error) {
	err = rows(tx, bucketSchemas, topic, func(_ int, _, v []byte) error {
		size += int64(len(v))
		return nil
	})
	return size, err
}

// readSchemas returns a topic's history in order, copied out of the transaction.
func readSchemas(tx *bbolt.Tx, topic string) (out [][]byte, err error) {
	err = rows(tx, bucketSchemas, topic, func(_ int, _, v []byte) error {
		out = append(out, bytes.Clone(v))
		return nil
	})
	return out, err
}

// adopt is what a child takes over of its parent's history: all of it when it has
// none, nothing when its own is the same; any other is refused.
func (t *txn) adopt(parent, child string, have [][]byte, same func(a, b []byte) bool) ([][]byte, error) {
	want, err := readSchemas(t.tx, parent)
	if err != nil {
		return nil, err
	}
	if len(have) == 0 {
		return want, nil
	}
	if len(have) != len(want) {
		return nil, refusef(model.ErrConflict, "%q has %d schema versions, its parent %q has %d", child, len(have), parent, len(want))
	}
	for i := range have {
		if !same(have[i], want[i]) {
			return nil, refusef(model.ErrConflict, "schema version %d of %q differs from that of its parent %q", i+1, child, parent)
		}
	}
	return nil, nil
}

// adoptHistory stores what adopt returned.
func (t *txn) adoptHistory(child string, history [][]byte) error {
	for i, doc := range history {
		if err := t.putSchema(child, i+1, doc); err != nil {
			return err
		}
	}
	return nil
}
