package metastore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/narad-mq/narad/internal/model"
)

const idA, idB model.Incarnation = "00000000000000aa", "00000000000000bb"

func topicOf(name string, id model.Incarnation, n int) model.Topic {
	rec := topicNamed(name, n)
	rec.ID = id
	return rec
}

func ptr[T any](v T) *T { return &v }

// step is a command and the refusal it must meet, nil = applied.
type step struct {
	do   Command
	want error
}

func schema(n int) []byte { return fmt.Appendf(nil, `{"title":"v%d"}`, n) }

func register(id string) step { return step{RegisterMember{ID: id, Addr: id + ":1", At: 5}, nil} }

func newTopic(name string, id model.Incarnation) step {
	return step{CreateTopic{Topic: topicOf(name, id, 3), Owners: []string{"a", "b", ""}}, nil}
}

// topicScripts scripts types 1 to 3.
func topicScripts() map[string][]step {
	return map[string][]step{
		"1 create topic": {
			newTopic("t", idA),
			{CreateTopic{Topic: topicOf("t", idB, 3)}, model.ErrTopicExists},
			{CreateTopic{Topic: topicOf("", idB, 3)}, model.ErrInvalid},
			{CreateTopic{Topic: topicOf("a/b", idB, 3)}, model.ErrInvalid},
			{CreateTopic{Topic: topicOf("x", "nope", 3)}, model.ErrInvalid},
			{CreateTopic{Topic: topicOf("x", idB, 0)}, model.ErrInvalid},
			{CreateTopic{Topic: topicOf("x", idB, partitionsStoredMax+1)}, model.ErrInvalid},
			{CreateTopic{Topic: topicOf("x", idB, 1), Owners: []string{"a", "b"}}, model.ErrInvalid},
			register("gone"), {RemoveMember{ID: "gone"}, nil},
			{CreateTopic{Topic: topicOf("x", idB, 3), Owners: []string{"a", "gone"}}, model.ErrMemberRemoved},
		},
		"2 update topic": {
			newTopic("t", idA),
			{UpdateTopic{Name: "t", ID: idA, RetentionMS: ptr(int64(0)), MaxInFlight: ptr(9)}, nil},
			{UpdateTopic{Name: "t", MaxAckedAhead: ptr(8), Owner: ptr("bob")}, nil},
			{UpdateTopic{Name: "t", ID: idB, MaxInFlight: ptr(1)}, model.ErrTopicChanged},
			{UpdateTopic{Name: "nope", MaxInFlight: ptr(1)}, model.ErrTopicNotFound},
			{UpdateTopic{Name: "t", ID: idA, Partitions: ptr(5), PartitionsFrom: 3, Owners: []string{"a", "b"}}, nil},
			{UpdateTopic{Name: "t", ID: idA, Partitions: ptr(6), PartitionsFrom: 3}, model.ErrTopicChanged},
			{UpdateTopic{Name: "t", ID: idA, Partitions: ptr(5), PartitionsFrom: 5}, model.ErrInvalid},
			{UpdateTopic{Name: "t", ID: idA, Partitions: ptr(4), PartitionsFrom: 5}, model.ErrInvalid},
			{UpdateTopic{Name: "t", ID: idA, Partitions: ptr(6), PartitionsFrom: 5, Owners: []string{"a", "b"}}, model.ErrInvalid},
			{UpdateTopic{Name: "t", ID: idA, Owners: []string{"a"}}, model.ErrInvalid},
		},
		"3 delete topic": {
			newTopic("p", idA), newTopic("c", idB),
			{AttachChild{Parent: "p", Child: "c", Epoch: "e"}, nil},
			{PutSchema{Topic: "p", Version: 1, Schema: schema(1)}, nil},
			{DeleteTopic{Name: "p", ID: idB}, model.ErrTopicChanged},
			{DeleteTopic{Name: "p", ID: idA}, nil},
			{DeleteTopic{Name: "p", ID: idA}, model.ErrTopicNotFound},
			{DetachChild{Parent: "p", Child: "c"}, model.ErrTopicNotFound},
			newTopic("p", idA), // starts without schema, or version 1 would not follow
			{PutSchema{Topic: "p", Version: 1, Schema: schema(1)}, nil},
			{DeleteTopic{Name: "c"}, nil},
		},
	}
}

// schemaScripts scripts types 4 to 7.
func schemaScripts() map[string][]step {
	return map[string][]step{
		"4 put schema": {
			newTopic("t", idA), newTopic("c", idB),
			{PutSchema{Topic: "nope", Version: 1, Schema: schema(1)}, model.ErrTopicNotFound},
			{PutSchema{Topic: "t", Version: 2, Schema: schema(2)}, model.ErrConflict},
			{PutSchema{Topic: "t", Version: 1, Schema: schema(1)}, nil},
			{PutSchema{Topic: "t", Version: 1, Schema: schema(1)}, model.ErrConflict},
			{AttachChild{Parent: "t", Child: "c", Epoch: "e"}, nil},
			{PutSchema{Topic: "t", Version: 2, Schema: schema(2)}, nil}, // and the child's copy
			{PutSchema{Topic: "c", Version: 3, Schema: schema(3)}, nil},
			{PutSchema{Topic: "t", Version: 3, Schema: schema(3)}, model.ErrConflict}, // the child is ahead
			{PutSchema{Topic: "t", Version: schemaVersionsMax + 1, Schema: schema(1)}, model.ErrConflict},
		},
		"5 drop schemas": {
			newTopic("t", idA),
			{PutSchema{Topic: "t", Version: 1, Schema: schema(1)}, nil},
			{DropSchemas{Topic: "t"}, nil},
			{DropSchemas{Topic: "never"}, nil},
			{PutSchema{Topic: "t", Version: 1, Schema: schema(1)}, nil},
		},
		"6 and 7 links": {
			newTopic("p", idA), newTopic("c", idB), newTopic("d", idA),
			{PutSchema{Topic: "p", Version: 1, Schema: schema(1)}, nil},
			{PutSchema{Topic: "d", Version: 1, Schema: schema(2)}, nil},
			{AttachChild{Parent: "nope", Child: "c"}, model.ErrTopicNotFound},
			{AttachChild{Parent: "p", Child: "nope"}, model.ErrTopicNotFound},
			{AttachChild{Parent: "p", Child: "p"}, model.ErrConflict},
			{AttachChild{Parent: "p", Child: "d"}, model.ErrConflict}, // other history
			{AttachChild{Parent: "p", Child: "c", Epoch: "e", DelayMS: 5, Offsets: []int64{1, 2, 3}}, nil},
			{AttachChild{Parent: "p", Child: "c"}, model.ErrConflict},
			{AttachChild{Parent: "c", Child: "d"}, model.ErrConflict}, // a child cannot be a parent
			{AttachChild{Parent: "d", Child: "p"}, model.ErrConflict}, // a parent cannot be a child
			{DetachChild{Parent: "d", Child: "c"}, model.ErrConflict},
			{DetachChild{Parent: "p", Child: "c"}, nil},
			{DetachChild{Parent: "p", Child: "c"}, model.ErrConflict},
			{AttachChild{Parent: "p", Child: "c", Epoch: "f"}, nil}, // equal history by now
		},
	}
}

// placementScripts scripts types 8 to 11 and 22.
func placementScripts() map[string][]step {
	return map[string][]step{
		"8 to 11 placement": {
			newTopic("t", idA),
			{AssignPartition{Topic: "nope", Owner: "a"}, model.ErrTopicNotFound},
			{AssignPartition{Topic: "t", Partition: 3, Owner: "a"}, model.ErrInvalid},
			{AssignPartition{Topic: "t", Partition: -1, Owner: "a"}, model.ErrInvalid},
			{SetTarget{Topic: "t", Partition: 2, Target: "b"}, model.ErrConflict}, // unowned
			{AssignPartition{Topic: "t", Partition: 2, Owner: "b"}, nil},
			{SetTarget{Topic: "t", Partition: 2, Target: "b"}, model.ErrConflict},
			{SetTarget{Topic: "t", Partition: 2}, model.ErrInvalid},
			{SetTarget{Topic: "t", Partition: 2, Target: "c"}, nil},
			{ClearTarget{Topic: "t", Partition: 2, Target: "d"}, model.ErrConflict},
			{ClearTarget{Topic: "t", Partition: 2, Target: "c"}, nil},
			{ClearTarget{Topic: "t", Partition: 2}, model.ErrConflict},
			{SetTarget{Topic: "t", Partition: 2, Target: "c"}, nil},
			{FlipPartition{Topic: "t", Partition: 2, Target: "d"}, model.ErrConflict},
			{FlipPartition{Topic: "t", Partition: 1}, model.ErrConflict},
			{FlipPartition{Topic: "t", Partition: 2, Target: "c"}, nil},
			{FlipPartition{Topic: "t", Partition: 2, Target: "c"}, model.ErrConflict},
			{SetTarget{Topic: "t", Partition: 2, Target: "a"}, nil},
			{AssignPartition{Topic: "t", Partition: 2, Owner: "a"}, nil}, // ends the move
			{ClearTarget{Topic: "t", Partition: 2}, model.ErrConflict},
		},
		"22 place partitions": {
			{CreateTopic{Topic: topicOf("t", idA, 3)}, nil},
			{PlacePartitions{Topic: "nope", Owners: []string{"a"}}, model.ErrTopicNotFound},
			{PlacePartitions{Topic: "t", ID: idB, Owners: []string{"a"}}, model.ErrTopicChanged},
			{PlacePartitions{Topic: "t", ID: idA, First: 4}, model.ErrInvalid},
			{PlacePartitions{Topic: "t", ID: idA, First: -1}, model.ErrInvalid},
			{PlacePartitions{Topic: "t", ID: idA, First: 1, Owners: []string{"a", "b", "c"}}, model.ErrInvalid},
			{PlacePartitions{Topic: "t", ID: idA, First: 1, Owners: []string{"a", "b"}}, nil},
			{PlacePartitions{Topic: "t", ID: idA, Owners: []string{"z", "z", "z"}}, nil}, // keeps 1 and 2
		},
	}
}

// memberScripts scripts types 12 to 21.
func memberScripts() map[string][]step {
	return map[string][]step{
		"12 to 17 members": {
			{MarkDead{ID: "a"}, model.ErrMemberNotFound},
			{RegisterMember{ID: ""}, model.ErrInvalid},
			register("a"),
			{MarkDead{ID: "a"}, nil},
			{MarkDraining{ID: "a"}, nil},
			register("a"), // alive again, still draining
			{CancelDraining{ID: "a"}, nil},
			{CancelDraining{ID: "b"}, model.ErrMemberNotFound},
			newTopic("t", idA),
			{RemoveMember{ID: "a"}, model.ErrConflict}, // owns t/0
			{DeleteTopic{Name: "t"}, nil},
			{RemoveMember{ID: "a"}, nil},
			{RemoveMember{ID: "a"}, model.ErrMemberNotFound},
			{RegisterMember{ID: "a"}, model.ErrMemberRemoved},
			{ReadmitMember{ID: "a"}, nil},
			{ReadmitMember{ID: "a"}, model.ErrMemberNotFound},
			{ReadmitMember{ID: ""}, model.ErrInvalid},
			register("a"),
		},
		"18 to 21 users": {
			{SetPassword{Username: "u"}, model.ErrUserNotFound},
			{CreateUser{Username: ""}, model.ErrInvalid},
			{CreateUser{Username: "u", PasswordHash: "h", At: 1}, nil},
			{CreateUser{Username: "u"}, model.ErrUserExists},
			{SetPassword{Username: "u", PasswordHash: "h2", At: 2}, nil},
			{SetGrants{Username: "u", Grants: []model.Grant{{Action: "admin"}}, At: 3}, nil},
			{SetGrants{Username: "v"}, model.ErrUserNotFound},
			{DeleteUser{Username: "u"}, nil},
			{DeleteUser{Username: "u"}, model.ErrUserNotFound},
			{DeleteUser{}, model.ErrUserNotFound},
		},
	}
}

// TestApplyScripts runs each family through what it applies and what it refuses.
// After every step the views equal the database, and a refusal changed nothing.
func TestApplyScripts(t *testing.T) {
	for _, scripts := range []map[string][]step{topicScripts(), schemaScripts(), placementScripts(), memberScripts(), checkedScripts(), remoteScripts(), remoteRecordScripts()} {
		for name, steps := range scripts {
			t.Run(name, func(t *testing.T) { runScript(t, steps) })
		}
	}
}

func runScript(t *testing.T, steps []step) {
	m := newMachine(t, t.TempDir())
	for i, s := range steps {
		before := m.hash()
		err := m.do(s.do)
		if s.want == nil && err != nil || s.want != nil && !errors.Is(err, s.want) {
			t.Fatalf("step %d, %s %+v: %v, want %v", i, s.do.Type(), s.do, err, s.want)
		}
		if err != nil && m.hash() != before {
			t.Fatalf("step %d, %s: refused (%v), yet the database changed", i, s.do.Type(), err)
		}
		m.sameViews()
		if m.applied.Load() != m.next-1 {
			t.Fatalf("step %d: applied index %d, want %d", i, m.applied.Load(), m.next-1)
		}
	}
}

func TestApplyEffects(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.ok(
		CreateTopic{Topic: topicOf("p", idA, 3), Owners: []string{"a", "b", ""}},
		CreateTopic{Topic: topicOf("c", idB, 3)},
		PutSchema{Topic: "p", Version: 1, Schema: schema(1)},
		AttachChild{Parent: "p", Child: "c", Epoch: "e", DelayMS: 5, Offsets: []int64{1, 2, 3}},
		SetTarget{Topic: "p", Partition: 1, Target: "c"},
		PlacePartitions{Topic: "p", Owners: []string{"z", "z", "z"}},
	)
	p, _ := m.catalog.topic("p")
	if !reflect.DeepEqual(p.Owners, []string{"a", "b", "z"}) || !reflect.DeepEqual(p.Targets, []string{"", "c", ""}) {
		t.Errorf("placement %v, targets %v", p.Owners, p.Targets)
	}
	if p.Role != model.RoleParent || !reflect.DeepEqual(p.Children, []string{"c"}) {
		t.Errorf("parent %+v", p.Topic)
	}
	c, _ := m.catalog.topic("c")
	if c.Role != model.RoleChild || c.Parent != "p" || c.AttachEpoch != "e" || c.FanoutDelayMS != 5 || len(c.AttachOffsets) != 3 {
		t.Errorf("child %+v", c.Topic)
	}
	tx, err := m.db.Begin(false)
	must(t, err)
	history, err := readSchemas(tx, "c")
	must(t, err)
	must(t, tx.Rollback())
	if len(history) != 1 || string(history[0]) != string(schema(1)) {
		t.Errorf("the child adopted %q", history)
	}
	m.ok(DeleteTopic{Name: "p"})
	if c, _ = m.catalog.topic("c"); c.Role != model.RoleStandalone || c.Parent != "" || c.FanoutDelayMS != 0 || c.AttachOffsets != nil {
		t.Errorf("orphaned child %+v (TD-2)", c.Topic)
	}
}

func TestUpdateKeepsTheRest(t *testing.T) {
	m := newMachine(t, t.TempDir())
	rec := topicOf("t", idA, 3)
	rec.Owner = "alice"
	m.ok(CreateTopic{Topic: rec, Owners: []string{"a", "b", "c"}})
	m.ok(UpdateTopic{Name: "t", ID: idA, RetentionMS: ptr(int64(0)), Partitions: ptr(5), PartitionsFrom: 3, Owners: []string{"x", "y"}})
	v, _ := m.catalog.topic("t")
	want := rec
	want.RetentionMS, want.Partitions, want.Role = 0, 5, model.RoleStandalone
	if !reflect.DeepEqual(v.Topic, want) || !reflect.DeepEqual(v.Owners, []string{"a", "b", "c", "x", "y"}) {
		t.Errorf("%+v", v)
	}
}

// A topic may have 108 children and not one more (LIM-12).
func TestChildrenAtTheBound(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.ok(create("p"))
	logs := []*raft.Log{}
	for i := range childrenMax + 1 {
		name := fmt.Sprintf("c%d", i)
		logs = append(logs, m.logOf(create(name)), m.logOf(AttachChild{Parent: "p", Child: name}))
	}
	out := m.ApplyBatch(logs)
	for i := 0; i < len(out)-1; i++ {
		must(t, out[i].(outcome).err)
	}
	if err := out[len(out)-1].(outcome).err; !errors.Is(err, model.ErrConflict) {
		t.Errorf("child %d: %v", childrenMax+1, err)
	}
}

// script is a seeded list of commands over few names, so that most meet state.
func script(seed uint64, n int) []Command {
	r := rand.New(rand.NewPCG(seed, 1))
	name := func() string { return fmt.Sprintf("t%d", r.IntN(6)) }
	member := func() string { return fmt.Sprintf("m%d", r.IntN(4)) }
	user := func() string { return fmt.Sprintf("u%d", r.IntN(3)) }
	id := func() model.Incarnation { return []model.Incarnation{"", idA, idB}[r.IntN(3)] }
	make := []func() Command{
		func() Command {
			return CreateTopic{Topic: topicOf(name(), []model.Incarnation{idA, idB}[r.IntN(2)], 1+r.IntN(3)), Owners: []string{member()}}
		},
		func() Command { return UpdateTopic{Name: name(), ID: id(), MaxInFlight: ptr(r.IntN(9))} },
		func() Command {
			return UpdateTopic{Name: name(), ID: id(), Partitions: ptr(1 + r.IntN(6)), PartitionsFrom: 1 + r.IntN(5)}
		},
		func() Command { return DeleteTopic{Name: name(), ID: id()} },
		func() Command { return PutSchema{Topic: name(), Version: 1 + r.IntN(3), Schema: schema(r.IntN(2))} },
		func() Command { return DropSchemas{Topic: name()} },
		func() Command {
			return AttachChild{Parent: name(), Child: name(), Epoch: "e", DelayMS: int64(r.IntN(3))}
		},
		func() Command { return DetachChild{Parent: name(), Child: name()} },
		func() Command { return AssignPartition{Topic: name(), Partition: r.IntN(4), Owner: member()} },
		func() Command { return SetTarget{Topic: name(), Partition: r.IntN(3), Target: member()} },
		func() Command { return ClearTarget{Topic: name(), Partition: r.IntN(3)} },
		func() Command { return FlipPartition{Topic: name(), Partition: r.IntN(3), Target: member()} },
		func() Command { return RegisterMember{ID: member(), At: r.Int64N(100)} },
		func() Command { return MarkDead{ID: member()} },
		func() Command { return MarkDraining{ID: member()} },
		func() Command { return CancelDraining{ID: member()} },
		func() Command { return RemoveMember{ID: member()} },
		func() Command { return ReadmitMember{ID: member()} },
		func() Command { return CreateUser{Username: user(), At: 1} },
		func() Command { return SetPassword{Username: user(), PasswordHash: "x", At: 2} },
		func() Command { return SetGrants{Username: user(), At: 3} },
		func() Command { return DeleteUser{Username: user()} },
		func() Command {
			return PlacePartitions{Topic: name(), ID: id(), First: r.IntN(3), Owners: []string{member()}}
		},
	}
	make = append(make, checkedMakers(r)...)
	make = append(make, remoteMakers(r)...)
	out := []Command{}
	for range n {
		out = append(out, make[r.IntN(len(make))]())
	}
	return out
}

// One entry at a time and in batches of any size: same outcomes, same database,
// same views; and a refusal never changes anything.
func TestBatchEqualsSingle(t *testing.T) {
	for seed := range uint64(3) {
		single, batched := newMachine(t, t.TempDir()), newMachine(t, t.TempDir())
		commands := script(seed, 300)
		var want []error
		for _, c := range commands {
			before := single.hash()
			err := single.do(c)
			if err != nil && single.hash() != before {
				t.Fatalf("seed %d: refused %s %+v (%v) changed the database", seed, c.Type(), c, err)
			}
			want = append(want, err)
		}
		r := rand.New(rand.NewPCG(seed, 2))
		for at := 0; at < len(commands); {
			n := min(1+r.IntN(64), len(commands)-at)
			var logs []*raft.Log
			for _, c := range commands[at : at+n] {
				logs = append(logs, batched.logOf(c))
			}
			for i, o := range batched.ApplyBatch(logs) {
				if got := fmt.Sprint(o.(outcome).err); got != fmt.Sprint(want[at+i]) {
					t.Fatalf("seed %d, entry %d, %s: %s in a batch, %v alone", seed, at+i, commands[at+i].Type(), got, want[at+i])
				}
			}
			at += n
		}
		if single.hash() != batched.hash() {
			t.Fatalf("seed %d: databases differ", seed)
		}
		single.sameViews()
		batched.sameViews()
	}
}
