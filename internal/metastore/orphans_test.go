package metastore

import (
	"errors"
	"reflect"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/model"
)

// Rows of topics that are gone (before, between and after those that are there) and past
// a topic's count are orphans; no other row is. Pruned, they are gone.
func TestOrphanPlacements(t *testing.T) {
	m := newMachine(t, t.TempDir())
	s := &Store{fsm: m.fsm}
	for _, name := range []string{"b", "bb", "d"} {
		m.ok(CreateTopic{Topic: topicOf(name, idA, 3), Owners: []string{node, node, node}})
	}
	m.ok(CreateTopic{Topic: topicOf("unplaced", idA, 3)})
	orphans := []model.PartitionKey{
		{Topic: "a", Partition: 0}, {Topic: "b", Partition: 3}, {Topic: "b", Partition: 70_000}, {Topic: "b.", Partition: 1},
		{Topic: "c", Partition: 2}, {Topic: "e", Partition: 0}, {Topic: "z", Partition: 9},
	}
	if rows, err := s.OrphanPlacements(10); err != nil || len(rows) != 0 {
		t.Errorf("%v, %v", rows, err)
	}
	must(t, m.db.Update(func(tx *bbolt.Tx) (err error) {
		for _, k := range orphans {
			err = errors.Join(err, tx.Bucket(bucketAssignments).Put(numbered(k.Topic, k.Partition), []byte(`{"owner":"old"}`)))
		}
		return err
	}))
	must(t, m.load())
	for limit := range len(orphans) + 2 {
		rows, err := s.OrphanPlacements(limit)
		if want := orphans[:min(limit, len(orphans))]; err != nil || len(rows) != len(want) || len(rows) > 0 && !reflect.DeepEqual(rows, want) {
			t.Errorf("limit %d: %v, %v, want %v", limit, rows, err, want)
		}
	}
	for _, k := range orphans {
		m.ok(PrunePlacement(k))
	}
	if rows, err := s.OrphanPlacements(10); err != nil || len(rows) != 0 {
		t.Errorf("after the prune: %v, %v", rows, err)
	}
	if v, _ := m.catalog.topic("b"); !reflect.DeepEqual(v.Owners, []string{node, node, node}) {
		t.Errorf("live rows went: %v", v.Owners)
	}
	m.sameViews()
}

// A key that is no assignment row, and a record that does not decode, are damage, not
// orphans.
func TestOrphanPlacementsOverDamage(t *testing.T) {
	for name, damage := range map[string]func(tx *bbolt.Tx) error{
		"key":    func(tx *bbolt.Tx) error { return tx.Bucket(bucketAssignments).Put([]byte("t"), []byte(`{}`)) },
		"record": func(tx *bbolt.Tx) error { return tx.Bucket(bucketTopics).Put([]byte("t"), []byte(`{`)) },
	} {
		m := newMachine(t, t.TempDir())
		m.ok(CreateTopic{Topic: topicOf("t", idA, 1), Owners: []string{node}})
		err := m.db.Update(func(tx *bbolt.Tx) error {
			must(t, damage(tx))
			if _, err := orphanRows(tx, 10); !errors.Is(err, model.ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
			return errUndone
		})
		if !errors.Is(err, errUndone) {
			t.Error(err)
		}
	}
}

// errUndone rolls a transaction back.
var errUndone = errors.New("rolled back")
