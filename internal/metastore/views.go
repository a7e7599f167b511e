package metastore

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/model"
)

// changes reads back what the transaction touched.
func (t *txn) changes() (changes, error) {
	ch := changes{schemaBytes: t.before.schemaBytes.Load() + t.schemaBytes, moved: t.moved}
	if len(t.touched) > 0 {
		ch.topics = make(topicMap, len(t.touched))
	}
	for name, what := range t.touched {
		v, err := t.readView(name, what)
		if err != nil {
			return changes{}, err
		}
		ch.topics[name] = v
		ch.moved[DomainTopics] = true
		ch.moved[DomainAssignments] = ch.moved[DomainAssignments] || what&touchPlacement != 0
		ch.moved[DomainSchemas] = ch.moved[DomainSchemas] || what&touchSchema != 0
	}
	if t.moved[DomainMembers] {
		var err error
		if ch.members, err = readMembers(t.tx); err != nil {
			return changes{}, err
		}
	}
	return ch, nil
}

// readView builds the view of one topic, nil when it does not exist.
func (t *txn) readView(name string, what touch) (*model.TopicView, error) {
	rec, ok, err := getJSON[model.Topic](t.tx, bucketTopics, []byte(name))
	if err != nil || !ok {
		return nil, err
	}
	v := newView(rec)
	v.SchemaVersion = latestSchema(t.tx, name)
	old, _ := t.before.topic(name)
	v.Versions = t.before.next(old, what)
	err = rows(t.tx, bucketAssignments, name, func(p int, key, value []byte) error {
		return setPlacement(v, p, key, value, t.before.intern)
	})
	return v, err
}

// next is the counters of a view that replaces old. They are those of the domains
// when the view is published, so that no later life of the name repeats one.
func (c *catalog) next(old *model.TopicView, what touch) model.ViewVersions {
	var v model.ViewVersions
	if old != nil {
		v = old.Versions
	} else {
		what = touchAll
	}
	if what&touchRecord != 0 {
		v.Topic = c.domains[DomainTopics].Load() + 1
	}
	if what&touchPlacement != 0 {
		v.Assignment = c.domains[DomainAssignments].Load() + 1
	}
	if what&touchSchema != 0 {
		v.Schema = c.domains[DomainSchemas].Load() + 1
	}
	return v
}

func newView(rec model.Topic) *model.TopicView {
	rec.Role = rec.LinkRole()
	return &model.TopicView{Topic: rec, Owners: make([]string, rec.Partitions)}
}

// setPlacement enters one assignment row; a row past the partition count belongs
// to no partition and is left out (spec/http-api TG-8).
func setPlacement(v *model.TopicView, p int, key, value []byte, intern func(string) string) error {
	var a placement
	if err := json.Unmarshal(value, &a); err != nil {
		return fmt.Errorf("fsm.db: assignment %q: %w: %w", key, model.ErrCorrupt, err)
	}
	if p >= len(v.Owners) {
		return nil
	}
	v.Owners[p] = intern(a.Owner)
	if a.Target != "" {
		if v.Targets == nil {
			v.Targets = make([]string, len(v.Owners))
		}
		v.Targets[p] = intern(a.Target)
	}
	return nil
}

func readMembers(tx *bbolt.Tx) ([]model.Member, error) {
	members := []model.Member{}
	err := tx.Bucket(bucketMembers).ForEach(func(k, v []byte) error {
		var m model.Member
		if err := json.Unmarshal(v, &m); err != nil {
			return fmt.Errorf("fsm.db: member %q: %w: %w", k, model.ErrCorrupt, err)
		}
		members = append(members, m)
		return nil
	})
	return members, err
}

// readAll builds every view in one pass over three cursors that run side by side:
// topics, assignments and schemas sort alike, since 0x00 sorts below every byte of
// a name.
func readAll(tx *bbolt.Tx, c *catalog) (changes, error) {
	ch := changes{topics: topicMap{}}
	for d := range ch.moved {
		ch.moved[d] = true
	}
	var err error
	if ch.members, err = readMembers(tx); err != nil {
		return changes{}, err
	}
	placements, schemas := newRowCursor(tx, bucketAssignments), newRowCursor(tx, bucketSchemas)
	err = tx.Bucket(bucketTopics).ForEach(func(k, v []byte) error {
		view, err := loadView(k, v)
		if err != nil {
			return err
		}
		view.Versions = c.next(nil, touchAll)
		ch.topics[view.Name] = view
		if err := placements.of(k, func(p int, key, value []byte) error {
			return setPlacement(view, p, key, value, c.intern)
		}); err != nil {
			return err
		}
		return schemas.of(k, func(n int, _, _ []byte) error {
			view.SchemaVersion = n
			return nil
		})
	})
	if err != nil {
		return changes{}, err
	}
	// Rows of no topic count too: they go, and are counted out, when the name is used.
	err = tx.Bucket(bucketSchemas).ForEach(func(_, doc []byte) error {
		ch.schemaBytes += int64(len(doc))
		return nil
	})
	return ch, err
}

// rowCursor walks the numbered rows of topics that are asked for in order.
type rowCursor struct {
	cursor     *bbolt.Cursor
	key, value []byte
}

func newRowCursor(tx *bbolt.Tx, bucket []byte) *rowCursor {
	r := &rowCursor{cursor: tx.Bucket(bucket).Cursor()}
	r.key, r.value = r.cursor.First()
	return r
}

// of calls f with every row of a topic, ascending; rows of no topic are passed over.
func (r *rowCursor) of(topic []byte, f func(n int, key, value []byte) error) error {
	for ; r.key != nil; r.key, r.value = r.cursor.Next() {
		name, n, ok := splitNumbered(r.key)
		switch order := bytes.Compare(name, topic); {
		case !ok || order < 0:
			continue
		case order > 0:
			return nil
		}
		if err := f(n, r.key, r.value); err != nil {
			return err
		}
	}
	return nil
}

// loadView decodes one stored topic and checks that the record is what its key says.
func loadView(k, v []byte) (*model.TopicView, error) {
	var rec model.Topic
	if err := json.Unmarshal(v, &rec); err != nil {
		return nil, fmt.Errorf("fsm.db: topic %q: %w: %w", k, model.ErrCorrupt, err)
	}
	if rec.Name != string(k) || rec.Partitions < 0 || rec.Partitions > partitionsStoredMax {
		return nil, fmt.Errorf("fsm.db: topic %q holds the record of %q with %d partitions: %w", k, rec.Name, rec.Partitions, model.ErrCorrupt)
	}
	return newView(rec), nil
}
