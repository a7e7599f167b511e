package metastore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/model"
)

func linked(name string, id model.Incarnation, schema []byte, parent *ParentLink) CreateLinkedTopic {
	return CreateLinkedTopic{Topic: topicOf(name, id, 3), Owners: []string{"a", "b", ""}, Schema: schema, Parent: parent}
}

// checkedScripts scripts types 23 to 32.
func checkedScripts() map[string][]step {
	const idC model.Incarnation = "00000000000000cc"
	return map[string][]step{
		"23 create topic with schema and link": {
			{linked("p", idA, schema(1), nil), nil},
			{linked("p", idB, nil, nil), model.ErrTopicExists},
			{linked("P", idB, nil, nil), model.ErrNameTaken},
			{linked("a/b", idB, nil, nil), model.ErrInvalid},
			{linked("c", idB, nil, &ParentLink{Name: "nope", ID: idA}), model.ErrTopicNotFound},
			{linked("c", idB, nil, &ParentLink{Name: "p", ID: idB}), model.ErrTopicChanged},
			{linked("c", idB, schema(2), &ParentLink{Name: "p", ID: idA}), model.ErrConflict}, // TC-12
			{linked("c", idB, nil, &ParentLink{Name: "p", ID: idA, Epoch: "e"}), nil},
			{linked("d", idC, []byte(`{ "title" : "v1" }`), &ParentLink{Name: "p", ID: idA, Epoch: "f"}), nil},
			{linked("e", idC, nil, &ParentLink{Name: "c", ID: idB}), model.ErrConflict}, // a child cannot be a parent
			{PutSchemaVersion{Topic: "p", ID: idA, Version: 2, Schema: schema(2)}, nil}, // and both children's
			{DeleteTopic{Name: "d"}, nil},
			{linked("D", idB, schema(1), nil), nil}, // the other spelling is free now
		},
		"24 compare-and-set topic update": {
			newTopic("t", idA),
			{AlterTopic{Name: "nope", ID: idA}, model.ErrTopicNotFound},
			{AlterTopic{Name: "t", ID: idB, MaxInFlight: ptr(1)}, model.ErrTopicChanged},
			{AlterTopic{Name: "t", MaxInFlight: ptr(1)}, model.ErrTopicChanged}, // no incarnation is not any
			{AlterTopic{Name: "t", ID: idA, MaxInFlight: ptr(1), MaxAckedAhead: ptr(2), RetentionMS: ptr(int64(0))}, nil},
			{AlterTopic{Name: "t", ID: idA, Partitions: ptr(2), PartitionsFrom: 3}, model.ErrInvalid},
			{AlterTopic{Name: "t", ID: idA, Partitions: ptr(5), PartitionsFrom: 3, Owners: []string{"a", "b"}}, nil},
			{AlterTopic{Name: "t", ID: idA, Partitions: ptr(6), PartitionsFrom: 3}, model.ErrTopicChanged},
		},
		"25 compare-and-set topic delete": {
			newTopic("t", idA),
			{RemoveTopic{Name: "t", ID: idB}, model.ErrTopicChanged},
			{RemoveTopic{Name: "t"}, model.ErrTopicChanged},
			{RemoveTopic{Name: "t", ID: idA}, nil},
			{RemoveTopic{Name: "t", ID: idA}, model.ErrTopicNotFound},
		},
		"26 compare-and-set schema version": {
			newTopic("t", idA),
			{PutSchemaVersion{Topic: "nope", ID: idA, Version: 1, Schema: schema(1)}, model.ErrTopicNotFound},
			{PutSchemaVersion{Topic: "t", ID: idB, Version: 1, Schema: schema(1)}, model.ErrTopicChanged},
			{PutSchemaVersion{Topic: "t", ID: idA, Version: 2, Schema: schema(1)}, model.ErrVersionExists},
			{PutSchemaVersion{Topic: "t", ID: idA, Version: 1}, model.ErrInvalid},
			{PutSchemaVersion{Topic: "t", ID: idA, Version: 1, Schema: schema(1)}, nil},
			{PutSchemaVersion{Topic: "t", ID: idA, Version: 1, Schema: schema(1)}, model.ErrVersionExists},
			{PutSchemaVersion{Topic: "t", ID: idA, Version: schemaVersionsMax + 1, Schema: schema(1)}, model.ErrConflict},
		},
		"27 and 28 links": {
			newTopic("p", idA), newTopic("c", idB), newTopic("d", idC),
			{PutSchema{Topic: "p", Version: 1, Schema: []byte(`{"a":[1,20e1],"b":null}`)}, nil},
			{PutSchema{Topic: "d", Version: 1, Schema: []byte(`{"b": null, "a": [1.0, 200]}`)}, nil},
			{LinkChild{Parent: "p", ParentID: idB, Child: "c", ChildID: idB}, model.ErrTopicChanged},
			{LinkChild{Parent: "p", ParentID: idA, Child: "c", ChildID: idA}, model.ErrTopicChanged},
			{LinkChild{Parent: "p", ParentID: idA, Child: "nope", ChildID: idA}, model.ErrTopicNotFound},
			{LinkChild{Parent: "p", ParentID: idA, Child: "p", ChildID: idA}, model.ErrConflict},
			{AttachChild{Parent: "p", Child: "d"}, model.ErrConflict}, // type 6 compares bytes
			{LinkChild{Parent: "p", ParentID: idA, Child: "d", ChildID: idC, Epoch: "e"}, nil},
			{LinkChild{Parent: "p", ParentID: idA, Child: "c", ChildID: idB, Epoch: "f", DelayMS: 9, Offsets: []int64{1}}, nil},
			{UnlinkChild{Parent: "p", ParentID: idB, Child: "c", ChildID: idB}, model.ErrTopicChanged},
			{UnlinkChild{Parent: "p", ParentID: idA, Child: "c", ChildID: idC}, model.ErrTopicChanged},
			{UnlinkChild{Parent: "p", ParentID: idA, Child: "c", ChildID: idB}, nil},
			{UnlinkChild{Parent: "p", ParentID: idA, Child: "c", ChildID: idB}, model.ErrConflict},
			{PutSchema{Topic: "c", Version: 2, Schema: schema(2)}, nil},
			{LinkChild{Parent: "p", ParentID: idA, Child: "c", ChildID: idB}, model.ErrConflict}, // longer history
		},
		"29 and 30 placement": {
			newTopic("t", idA), register("gone"), {RemoveMember{ID: "gone"}, nil},
			{InsertPlacement{Topic: "nope", ID: idA, Owners: []string{"c"}}, model.ErrTopicNotFound},
			{InsertPlacement{Topic: "t", ID: idB, Owners: []string{"c"}}, model.ErrTopicChanged},
			{InsertPlacement{Topic: "t", ID: idA, Owners: []string{"c"}}, model.ErrConflict}, // has an owner
			{InsertPlacement{Topic: "t", ID: idA, First: 2}, model.ErrConflict},
			{InsertPlacement{Topic: "t", ID: idA, First: 3, Owners: []string{"c"}}, model.ErrInvalid},
			{InsertPlacement{Topic: "t", ID: idA, First: -1, Owners: []string{"c"}}, model.ErrInvalid},
			{InsertPlacement{Topic: "t", ID: idA, First: 2, Owners: []string{"c", "c"}}, model.ErrInvalid},
			{InsertPlacement{Topic: "t", ID: idA, First: 2, Owners: []string{"gone"}}, model.ErrMemberRemoved},
			{InsertPlacement{Topic: "t", ID: idA, First: 1, Owners: []string{"z", "c"}}, nil}, // keeps partition 1
			{PrunePlacement{Topic: "t", Partition: 2}, model.ErrConflict},
			{PrunePlacement{Topic: "t", Partition: 3}, nil},
			{PrunePlacement{Topic: "gone", Partition: 0}, nil},
			{PrunePlacement{Topic: "gone", Partition: -1}, model.ErrInvalid},
			{PrunePlacement{Topic: "", Partition: 1}, model.ErrInvalid},
		},
		"31 dead mark": {
			{MarkSilent{ID: "a", HeartbeatAt: 5}, model.ErrMemberNotFound},
			register("a"),
			{MarkSilent{ID: "a", HeartbeatAt: 4}, model.ErrConflict}, // heard again since
			{MarkSilent{ID: "a", HeartbeatAt: 5}, nil},
			{MarkSilent{ID: "a", HeartbeatAt: 5}, nil},
		},
		"32 user delete": {
			{CreateUser{Username: "u", At: 1}, nil},
			{CreateTopic{Topic: model.Topic{Name: "t", ID: idA, Partitions: 1, Owner: "u"}}, nil},
			{RemoveUser{Username: "nope"}, model.ErrUserNotFound},
			{RemoveUser{}, model.ErrUserNotFound},
			{RemoveUser{Username: "u"}, nil},
			{RemoveUser{Username: "u"}, model.ErrUserNotFound},
		},
	}
}

// checkedMakers draws commands of types 23 to 32 for script.
func checkedMakers(r *rand.Rand) []func() Command {
	name := func() string { return []string{"t0", "t1", "T1", "t2", "t3"}[r.IntN(5)] }
	member := func() string { return fmt.Sprintf("m%d", r.IntN(4)) }
	id := func() model.Incarnation { return []model.Incarnation{idA, idB}[r.IntN(2)] }
	doc := func() []byte { return schema(r.IntN(2)) }
	return []func() Command{
		func() Command {
			c := linked(name(), id(), nil, nil)
			c.Topic.Owner = fmt.Sprintf("u%d", r.IntN(3))
			if r.IntN(2) == 0 {
				c.Schema = doc()
			}
			if r.IntN(2) == 0 {
				c.Parent = &ParentLink{Name: name(), ID: id(), Epoch: "e"}
			}
			return c
		},
		func() Command { return AlterTopic{Name: name(), ID: id(), MaxInFlight: ptr(r.IntN(9))} },
		func() Command {
			return AlterTopic{Name: name(), ID: id(), Partitions: ptr(1 + r.IntN(6)), PartitionsFrom: 3}
		},
		func() Command { return RemoveTopic{Name: name(), ID: id()} },
		func() Command {
			return PutSchemaVersion{Topic: name(), ID: id(), Version: 1 + r.IntN(3), Schema: doc()}
		},
		func() Command {
			return LinkChild{Parent: name(), ParentID: id(), Child: name(), ChildID: id(), Epoch: "e"}
		},
		func() Command { return UnlinkChild{Parent: name(), ParentID: id(), Child: name(), ChildID: id()} },
		func() Command {
			return InsertPlacement{Topic: name(), ID: id(), First: r.IntN(3), Owners: []string{member()}}
		},
		func() Command { return PrunePlacement{Topic: name(), Partition: r.IntN(6)} },
		func() Command { return MarkSilent{ID: member(), HeartbeatAt: r.Int64N(100)} },
		func() Command { return RemoveUser{Username: fmt.Sprintf("u%d", r.IntN(3))} },
	}
}

// What a create with schema and link leaves: all of it, in one entry.
func TestCreateLinkedEffects(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.ok(
		linked("p", idA, schema(1), nil),
		PutSchema{Topic: "p", Version: 2, Schema: schema(2)},
		linked("c", idB, nil, &ParentLink{Name: "p", ID: idA, Epoch: "e", DelayMS: 5, Offsets: []int64{7, 8, 9}}),
	)
	p, _ := m.catalog.topic("p")
	c, _ := m.catalog.topic("c")
	if p.SchemaVersion != 2 || c.SchemaVersion != 2 || !reflect.DeepEqual(p.Children, []string{"c"}) {
		t.Errorf("parent %+v, child %+v", p, c)
	}
	if c.Parent != "p" || c.AttachEpoch != "e" || c.FanoutDelayMS != 5 || !reflect.DeepEqual(c.AttachOffsets, []int64{7, 8, 9}) ||
		!reflect.DeepEqual(c.Owners, []string{"a", "b", ""}) {
		t.Errorf("child %+v", c)
	}
	s := &Store{fsm: m.fsm}
	if doc, n, err := s.LatestSchema("c"); err != nil || n != 2 || !bytes.Equal(doc, schema(2)) {
		t.Errorf("latest schema %q, %d, %v", doc, n, err)
	}
	if doc, n, err := s.LatestSchema("absent"); err != nil || n != 0 || doc != nil {
		t.Errorf("latest schema of nothing %q, %d, %v", doc, n, err)
	}
	one, all, err := s.SchemaBytes("c")
	if want := int64(len(schema(1)) + len(schema(2))); err != nil || one != want || all != 2*want {
		t.Errorf("%d bytes of %d, %v; want %d of %d", one, all, err, want, 2*want)
	}
}

// Rows an earlier topic left under the name are dropped by a create.
func TestCreateLinkedDropsLeftoverRows(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.ok(linked("t", idA, schema(1), nil), RemoveTopic{Name: "t", ID: idA})
	must(t, m.db.Update(func(tx *bbolt.Tx) error {
		return errors.Join(tx.Bucket(bucketSchemas).Put(numbered("t", 1), schema(9)),
			tx.Bucket(bucketAssignments).Put(numbered("t", 2), []byte(`{"owner":"old"}`)))
	}))
	must(t, m.load())
	m.sameViews()
	m.ok(linked("t", idB, nil, nil))
	m.sameViews()
	if v, _ := m.catalog.topic("t"); v.SchemaVersion != 0 || v.OwnerOf(2) != "" {
		t.Errorf("%+v", v)
	}
}

// Two creates of one spelling each, in one batch: the second is refused as alone.
func TestCaseTwinInsideABatch(t *testing.T) {
	m := newMachine(t, t.TempDir())
	out := m.ApplyBatch([]*raft.Log{
		m.logOf(linked("Orders", idA, nil, nil)), m.logOf(linked("orders", idB, nil, nil)),
		m.logOf(RemoveTopic{Name: "Orders", ID: idA}), m.logOf(linked("ORDERS", idB, nil, nil)),
	})
	for i, want := range []error{nil, model.ErrNameTaken, nil, nil} {
		if err := out[i].(outcome).err; !errors.Is(err, want) {
			t.Errorf("entry %d: %v, want %v", i, err, want)
		}
	}
}

func TestRemoveUserReleasesItsTopics(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.ok(CreateUser{Username: "u", At: 1})
	for i, owner := range []string{"u", "other", "u"} {
		rec := topicOf(fmt.Sprintf("t%d", i), idA, 3)
		rec.Owner = owner
		m.ok(CreateTopic{Topic: rec})
	}
	m.ok(RemoveUser{Username: "u"})
	for i, want := range []string{"", "other", ""} {
		if v, _ := m.catalog.topic(fmt.Sprintf("t%d", i)); v.Owner != want {
			t.Errorf("t%d is owned by %q, want %q", i, v.Owner, want)
		}
	}
	m.sameViews()
}

// Type 24 keeps owner, creation time, visibility timeout and link as stored.
func TestAlterKeepsTheRest(t *testing.T) {
	m := newMachine(t, t.TempDir())
	rec := topicOf("t", idA, 3)
	rec.Owner = "alice"
	m.ok(CreateTopic{Topic: rec}, create("p"), AttachChild{Parent: "p", Child: "t", Epoch: "e", DelayMS: 4})
	before, _ := m.catalog.topic("t")
	m.ok(AlterTopic{Name: "t", ID: idA, MaxInFlight: ptr(7)})
	after, _ := m.catalog.topic("t")
	want := before.Topic
	want.MaxInFlight = 7
	if !reflect.DeepEqual(after.Topic, want) {
		t.Errorf("%+v, want %+v", after.Topic, want)
	}
}

// LIM-14 at the bounds: 4 MiB per topic, the child's copy against the child, 256 MiB
// for the cluster.
func TestSchemaBudgets(t *testing.T) {
	m := newMachine(t, t.TempDir())
	doc := func(n int64) []byte { return []byte(`"` + strings.Repeat("x", int(n)-2) + `"`) }
	m.ok(linked("p", idA, nil, nil), linked("c", idB, nil, &ParentLink{Name: "p", ID: idA}))
	put := func(topic string, id model.Incarnation, version int, size int64) error {
		return m.do(PutSchemaVersion{Topic: topic, ID: id, Version: version, Schema: doc(size)})
	}
	half := SchemaTopicBytesMax / 2
	must(t, put("p", idA, 1, half))
	must(t, m.do(PutSchema{Topic: "c", Version: 2, Schema: doc(half)})) // the child is full, the parent is not
	m.ok(DetachChild{Parent: "p", Child: "c"})
	if err := put("c", idB, 3, 2); !errors.Is(err, model.ErrConflict) || !strings.Contains(fmt.Sprint(err), "4194304 bytes are stored, 2 more do not fit into 4194304") {
		t.Errorf("past the topic's budget: %v", err)
	}
	must(t, put("p", idA, 2, half))
	if err := put("p", idA, 3, 2); !errors.Is(err, model.ErrConflict) {
		t.Errorf("past the topic's budget: %v", err)
	}
	m.catalog.schemaBytes.Store(SchemaClusterBytesMax - 10)
	m.ok(linked("small", idA, doc(10), nil))
	for _, c := range []Command{
		linked("more", idA, doc(2), nil),
		PutSchemaVersion{Topic: "small", ID: idA, Version: 2, Schema: doc(2)},
		linked("adopts", idA, nil, &ParentLink{Name: "small", ID: idA}),
	} {
		if err := m.do(c); !errors.Is(err, model.ErrConflict) || !strings.Contains(fmt.Sprint(err), "the cluster") {
			t.Errorf("%s past the cluster's budget: %v", c.Type(), err)
		}
	}
	m.ok(create("empty"))
	v, _ := m.catalog.topic("empty")
	if err := m.do(LinkChild{Parent: "small", ParentID: idA, Child: "empty", ChildID: v.ID}); !errors.Is(err, model.ErrConflict) {
		t.Errorf("adopting past the cluster's budget: %v", err)
	}
	m.ok(PutSchema{Topic: "small", Version: 2, Schema: doc(2)}) // type 4 knows no budgets
}

// The per-name counters move with their own part only, and never repeat.
func TestViewVersions(t *testing.T) {
	m := newMachine(t, t.TempDir())
	s := &Store{fsm: m.fsm}
	seen := map[uint64]bool{}
	last := model.ViewVersions{}
	check := func(what string, topic, assignment, schema bool) {
		t.Helper()
		v, _ := m.catalog.topic("t")
		got := [3]bool{v.Versions.Topic != last.Topic, v.Versions.Assignment != last.Assignment, v.Versions.Schema != last.Schema}
		if got != [3]bool{topic, assignment, schema} {
			t.Errorf("%s moved %v", what, got)
		}
		if schema && seen[v.Versions.Schema] {
			t.Errorf("%s: schema counter %d repeats", what, v.Versions.Schema)
		}
		seen[v.Versions.Schema] = true
		last = v.Versions
	}
	m.ok(linked("t", idA, nil, nil))
	check("create", true, true, true)
	m.ok(PutSchema{Topic: "t", Version: 1, Schema: schema(1)})
	check("schema", false, false, true)
	m.ok(AssignPartition{Topic: "t", Partition: 0, Owner: "z"})
	check("assign", false, true, false)
	m.ok(AlterTopic{Name: "t", ID: idA, MaxInFlight: ptr(3)})
	check("alter", true, false, false)
	m.ok(DropSchemas{Topic: "t"})
	check("drop", false, false, true)
	m.ok(RemoveTopic{Name: "t", ID: idA}, linked("t", idA, schema(1), nil))
	check("recreate", true, true, true)

	moved := func(what string, c Command, want ...Domain) {
		t.Helper()
		var before [domainCount]uint64
		for d := range domainCount {
			before[d] = s.Version(d)
		}
		m.ok(c)
		for d := range domainCount {
			should := false
			for _, w := range want {
				should = should || w == d
			}
			if did := s.Version(d) != before[d]; did != should {
				t.Errorf("%s: domain %d moved %t", what, d, did)
			}
		}
	}
	moved("schema", PutSchema{Topic: "t", Version: 2, Schema: schema(2)}, DomainTopics, DomainSchemas)
	moved("member", RegisterMember{ID: "a"}, DomainMembers)
	moved("user", CreateUser{Username: "u"}, DomainUsers)
	moved("placement", AssignPartition{Topic: "t", Partition: 1, Owner: "q"}, DomainTopics, DomainAssignments)
	moved("nothing", PrunePlacement{Topic: "t", Partition: 9})
}

func TestSameJSON(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":2}`, ` { "b" : 2.0 , "a" : 1e0 } `, true},
		{`[1,2]`, `[2,1]`, false},
		{`[1]`, `[1,1]`, false},
		{`1e400`, `10e399`, true}, // past float64
		{`1e400`, `1e401`, false},
		{`0.1`, `0.10`, true},
		{`100`, `1E+2`, true},
		{`-0`, `0.0e7`, true},
		{`-1`, `1`, false},
		{`12345678901234567890123`, `12345678901234567890124`, false},
		{`1e99999999999999999999`, `1e99999999999999999999`, true},
		{`"1"`, `1`, false},
		{`null`, `false`, false},
		{`"\u0061"`, `"a"`, true},
		{`{`, `{`, true},
		{`1 2`, `1  2`, false},
	} {
		if got := sameJSON([]byte(c.a), []byte(c.b)); got != c.same {
			t.Errorf("%s and %s: %t", c.a, c.b, got)
		}
	}
}
