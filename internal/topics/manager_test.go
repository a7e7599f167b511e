package topics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const node = "narad-0"

var defaults = Defaults{
	Partitions: 3, MaxPartitions: 108, RetentionMS: 604_800_000, VisibilityMS: 30_000, MaxInFlight: 1024, MaxAckedAhead: 1024,
}

// rig is a manager over a real metastore of one node.
type rig struct {
	*Manager
	store   *metastore.Store
	mu      sync.Mutex
	deleted []string
	log     bytes.Buffer
}

func newRig(t testing.TB) *rig {
	t.Helper()
	store, err := metastore.Open(context.Background(), metastore.Options{
		Dir: t.TempDir(), NodeID: node, BindAddr: "127.0.0.1:0", APIAddr: "127.0.0.1:7942",
	})
	must(t, err)
	t.Cleanup(func() { store.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	must(t, store.WaitReady(ctx))
	g := &rig{store: store}
	g.Manager = g.over(store)
	return g
}

// over is a manager like the rig's, over another view of the store.
func (g *rig) over(s Store) *Manager {
	return New(Options{
		Store: s, Placer: inTurn{g.store}, Defaults: defaults, Node: node, Clock: clock.NewFake(time.Unix(1_700_000_000, 0)),
		Logger: slog.New(slog.NewTextHandler(&g.log, nil)),
		OnDeleted: func(name string, id model.Incarnation) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.deleted = append(g.deleted, name+" "+string(id))
		},
	})
}

// inTurn deals partitions to the members that may receive them, off the parent's owner
// where another one is there: the least the manager asks of a Placer.
type inTurn struct{ store *metastore.Store }

func (d inTurn) Place(_ context.Context, n int, parents []string) (owners []string, done func(), err error) {
	var ids []string
	err = model.ErrNoMember
	for _, m := range d.store.Members() {
		switch {
		case m.Receives():
			ids = append(ids, m.ID)
		case m.Status == model.MemberAlive:
			err = model.ErrAllDraining
		}
	}
	if ids == nil {
		return nil, nil, err
	}
	for p := range n {
		id := ids[p%len(ids)]
		if p < len(parents) && parents[p] == id {
			id = ids[(p+1)%len(ids)]
		}
		owners = append(owners, id)
	}
	return owners, func() {}, nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ptr[T any](v T) *T { return &v }

func (g *rig) propose(t testing.TB, c metastore.Command) {
	t.Helper()
	_, err := g.store.Propose(context.Background(), c)
	must(t, err)
}

func TestCreateTC1(t *testing.T) {
	g := newRig(t)
	v, err := g.Create(context.Background(), CreateRequest{Name: "orders", Caller: "alice"})
	must(t, err)
	if _, err := model.ParseIncarnation(string(v.ID)); err != nil {
		t.Error(err)
	}
	want := model.Topic{
		Name: "orders", ID: v.ID, Partitions: 3, RetentionMS: 604_800_000, VisibilityTimeoutMS: 30_000,
		MaxInFlight: 1024, MaxAckedAhead: 1024, CreatedAt: 1_700_000_000, Owner: "alice",
	}
	if !reflect.DeepEqual(v.Topic, want) {
		t.Errorf("created %+v, want %+v (no role)", v.Topic, want)
	}
	kept, ok := g.store.Topic("orders")
	if !ok || kept.ID != v.ID || !reflect.DeepEqual(kept.Owners, []string{node, node, node}) {
		t.Fatalf("not consumable at once: %+v", kept)
	}
	if _, err := g.Create(context.Background(), CreateRequest{Name: "keep", RetentionMS: ptr(int64(0)), Partitions: 7}); err != nil {
		t.Fatal(err)
	}
	if v, _ := g.store.Topic("keep"); v.RetentionMS != 0 || v.Partitions != 7 {
		t.Errorf("%+v", v)
	}
}

func TestCreateTC3(t *testing.T) {
	g := newRig(t)
	for _, c := range []struct {
		r    CreateRequest
		want string // after "invalid argument: "
	}{
		{CreateRequest{}, "topic name: 0 bytes, want 1 to 200"},
		{CreateRequest{Name: "."}, `topic name "." is not allowed`},
		{CreateRequest{Name: "a b"}, `topic name "a b": byte 1 is not one of`},
		{CreateRequest{Name: strings.Repeat("x", 201)}, "topic name: 201 bytes"},
		{CreateRequest{Name: "t", Partitions: 1}, "partitions 1, want 3 to 108"},
		{CreateRequest{Name: "t", Partitions: 2}, "partitions 2, want 3 to 108"},
		{CreateRequest{Name: "t", Partitions: 109}, "partitions 109, want 3 to 108"},
		{CreateRequest{Name: "t", Partitions: -1}, "partitions -1, want 3 to 108"},
		{CreateRequest{Name: "t", RetentionMS: ptr(int64(1))}, "retention_ms 1, want 0 (forever) or 3600000 to 9223372036854"},
		{CreateRequest{Name: "t", RetentionMS: ptr(int64(3_599_999))}, "retention_ms 3599999, want"},
		{CreateRequest{Name: "t", RetentionMS: ptr(int64(-1))}, "retention_ms -1, want"},
		{CreateRequest{Name: "t", RetentionMS: ptr(int64(9_223_372_036_855))}, "retention_ms 9223372036855, want"},
		{CreateRequest{Name: "t", VisibilityTimeoutMS: -1}, "visibility_timeout_ms -1, want 1 to 31536000000"},
		{CreateRequest{Name: "t", VisibilityTimeoutMS: 31_536_000_001}, "visibility_timeout_ms 31536000001, want"},
		{CreateRequest{Name: "t", MaxInFlight: -1}, "max_in_flight_per_partition -1, want 1 to"},
		{CreateRequest{Name: "t", MaxAckedAhead: -1}, "max_acked_ahead_per_partition -1, want 1 to"},
	} {
		_, err := g.Create(context.Background(), c.r)
		if !errors.Is(err, model.ErrInvalid) || !strings.HasPrefix(err.Error(), "invalid argument: "+c.want) {
			t.Errorf("%+v: %v, want invalid argument: %s", c.r, err, c.want)
		}
	}
	for i, r := range []CreateRequest{ // the bounds themselves
		{Partitions: 108, RetentionMS: ptr(model.RetentionMSMin), VisibilityTimeoutMS: 1, MaxInFlight: 1, MaxAckedAhead: 1},
		{Partitions: 3, RetentionMS: ptr(model.RetentionMSMax), VisibilityTimeoutMS: model.VisibilityMSMax},
	} {
		r.Name = fmt.Sprintf("%0*d", model.TopicNameMax, i)
		if _, err := g.Create(context.Background(), r); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestCreateNameConflicts(t *testing.T) {
	g := newRig(t)
	_, err := g.Create(context.Background(), CreateRequest{Name: "Orders"})
	must(t, err)
	if _, err := g.Create(context.Background(), CreateRequest{Name: "Orders"}); !errors.Is(err, model.ErrTopicExists) || err.Error() != "topic already exists" {
		t.Errorf("TC-8: %v", err)
	}
	if _, err := g.Create(context.Background(), CreateRequest{Name: "oRDERS"}); !errors.Is(err, model.ErrNameTaken) || !strings.Contains(err.Error(), `"Orders"`) {
		t.Errorf("TC-9 names the existing topic: %v", err)
	}
}

// Creates of one name in any spelling: exactly one wins.
func TestConcurrentCreatesOfOneName(t *testing.T) {
	g := newRig(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 16 {
		wg.Go(func() {
			name := []string{"orders", "ORDERS", "Orders"}[i%3]
			_, err := g.Create(context.Background(), CreateRequest{Name: name})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, model.ErrTopicExists) && !errors.Is(err, model.ErrNameTaken) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if page, _ := g.store.ListTopics("", 10); won != 1 || len(page) != 1 {
		t.Errorf("%d creates won, %d topics", won, len(page))
	}
	if len(g.locks.held) != 0 {
		t.Errorf("%d locks are kept", len(g.locks.held))
	}
}

func TestCreateTC15WithoutLeader(t *testing.T) {
	g := newRig(t)
	must(t, g.store.Close())
	ctx := context.Background()
	if _, err := g.Create(ctx, CreateRequest{Name: "t"}); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("create: %v", err)
	}
	if _, err := g.Alter(ctx, "t", AlterRequest{RetentionMS: ptr(int64(0))}); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("alter: %v", err)
	}
	if err := g.Delete(ctx, "t", ""); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("TD-17: %v", err)
	}
}

func TestPlacementOfDrainingAndDeadMembers(t *testing.T) {
	g := newRig(t)
	ctx := context.Background()
	_, err := g.Create(ctx, CreateRequest{Name: "first"})
	must(t, err)
	g.propose(t, metastore.MarkDraining{ID: node})
	_, err = g.Create(ctx, CreateRequest{Name: "t"})
	if !errors.Is(err, model.ErrAllDraining) || !strings.HasPrefix(err.Error(), "every live member is being decommissioned") {
		t.Errorf("TC-16: %v", err)
	}
	if _, ok := g.store.Topic("t"); ok {
		t.Error("TC-16: written all the same")
	}
	if _, err := g.Alter(ctx, "first", AlterRequest{Partitions: ptr(4)}); !errors.Is(err, model.ErrAllDraining) {
		t.Errorf("TA-14: %v", err)
	}
	g.propose(t, metastore.MarkDead{ID: node})
	v, err := g.Create(ctx, CreateRequest{Name: "t"})
	must(t, err)
	if v.OwnerOf(0) != "" {
		t.Errorf("TC-17: placed on the dead %q", v.OwnerOf(0))
	}
	if !strings.Contains(g.log.String(), "topic created without immediate partition assignment") ||
		!strings.Contains(g.log.String(), "metastore: no alive member to own new partitions") {
		t.Errorf("TC-17: log %s", g.log.String())
	}
	if v, err := g.Alter(ctx, "first", AlterRequest{Partitions: ptr(4)}); err != nil || v.OwnerOf(3) != "" || v.OwnerOf(2) != node {
		t.Errorf("grown without members: %+v, %v", v, err)
	}
	if !strings.Contains(g.log.String(), "topic partitions increased without immediate assignment") {
		t.Error("no warning for the partitions")
	}
}

func TestAlterTA1(t *testing.T) {
	g := newRig(t)
	ctx := context.Background()
	created, err := g.Create(ctx, CreateRequest{Name: "t", MaxInFlight: 5, MaxAckedAhead: 6})
	must(t, err)
	v, err := g.Alter(ctx, "t", AlterRequest{RetentionMS: ptr(int64(7_200_000)), MaxInFlight: ptr(9), Partitions: ptr(5)})
	must(t, err)
	if v.RetentionMS != 7_200_000 || v.MaxInFlight != 9 || v.MaxAckedAhead != 6 || v.Partitions != 5 || v.OwnerOf(4) != node || v.ID != created.ID {
		t.Errorf("%+v", v)
	}
	if v, err = g.Alter(ctx, "t", AlterRequest{MaxInFlight: ptr(0), Partitions: ptr(0)}); err != nil || v.MaxInFlight != 1024 || v.Partitions != 5 {
		t.Errorf("0 sets the default cap and leaves the partitions: %+v, %v", v, err)
	}
	if v, err = g.Alter(ctx, "t", AlterRequest{RetentionMS: ptr(int64(0))}); err != nil || v.RetentionMS != 0 {
		t.Errorf("0 keeps forever: %+v, %v", v, err)
	}
}

func TestAlterRefusals(t *testing.T) {
	g := newRig(t)
	ctx := context.Background()
	_, err := g.Create(ctx, CreateRequest{Name: "t", Partitions: 4})
	must(t, err)
	for _, c := range []struct {
		id, name string
		r        AlterRequest
		want     error
		text     string
	}{
		{"TA-2", "t", AlterRequest{}, model.ErrInvalid, "no field to change"},
		{"TA-2 zero partitions", "t", AlterRequest{Partitions: ptr(0)}, model.ErrInvalid, "no field to change"},
		{"TA-3 equal", "t", AlterRequest{Partitions: ptr(4)}, model.ErrInvalid, "partitions 4, must be greater than the current 4"},
		{"TA-3 fewer", "t", AlterRequest{Partitions: ptr(3)}, model.ErrInvalid, "partitions 3, must be greater than the current 4"},
		{"TA-3 too many", "t", AlterRequest{Partitions: ptr(109)}, model.ErrInvalid, "partitions 109, want 3 to 108"},
		{"retention", "t", AlterRequest{RetentionMS: ptr(int64(5))}, model.ErrInvalid, "retention_ms 5"},
		{"cap", "t", AlterRequest{MaxInFlight: ptr(-1)}, model.ErrInvalid, "max_in_flight_per_partition -1"},
		{"other cap", "t", AlterRequest{MaxAckedAhead: ptr(-2)}, model.ErrInvalid, "max_acked_ahead_per_partition -2"},
		{"TA-13", "nope", AlterRequest{MaxInFlight: ptr(1)}, model.ErrTopicNotFound, "topic not found"},
		{"TA-13 empty", "nope", AlterRequest{}, model.ErrTopicNotFound, "topic not found"},
	} {
		if _, err := g.Alter(ctx, c.name, c.r); !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.text) {
			t.Errorf("%s: %v, want %q", c.id, err, c.text)
		}
	}
	// TA-15: the groups before the failing one stay applied.
	if _, err := g.Alter(ctx, "t", AlterRequest{RetentionMS: ptr(int64(7_200_000)), MaxInFlight: ptr(77), Partitions: ptr(2)}); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("TA-15: %v", err)
	}
	if v, _ := g.store.Topic("t"); v.RetentionMS != 7_200_000 || v.MaxInFlight != 77 || v.Partitions != 4 {
		t.Errorf("TA-15: %+v", v)
	}
}

func TestDelete(t *testing.T) {
	g := newRig(t)
	ctx := context.Background()
	v, err := g.Create(ctx, CreateRequest{Name: "t"})
	must(t, err)
	must(t, g.Delete(ctx, "t", ""))
	if _, ok := g.store.Topic("t"); ok {
		t.Error("TD-1: still there")
	}
	if want := []string{"t " + string(v.ID)}; !reflect.DeepEqual(g.deleted, want) {
		t.Errorf("TD-1: told %v, want %v", g.deleted, want)
	}
	if err := g.Delete(ctx, "t", ""); !errors.Is(err, model.ErrTopicNotFound) || err.Error() != "topic not found" {
		t.Errorf("TD-10: %v", err)
	}
	again, err := g.Create(ctx, CreateRequest{Name: "t"})
	if err != nil || again.ID == v.ID {
		t.Errorf("recreated as %v, %v", again, err)
	}
}

// racing runs a change of its own just before each proposal, as a second leader or
// an older release could.
type racing struct {
	*metastore.Store
	before func()
}

func (r *racing) Accept(ctx context.Context, c metastore.Command) (metastore.Result, error) {
	r.before()
	return r.Store.Accept(ctx, c)
}

func (g *rig) recreate(t testing.TB, times *int) func() {
	return func() {
		if *times == 0 {
			return
		}
		*times--
		v, ok := g.store.Topic("t")
		if !ok {
			return
		}
		rec := v.Topic
		rec.ID = model.NewIncarnation()
		g.propose(t, metastore.DeleteTopic{Name: "t"})
		g.propose(t, metastore.CreateTopic{Topic: rec})
	}
}

// RT-8: changed once, the request is checked and proposed again; twice, it answers.
func TestCompareAndSetRetriesOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(m *Manager) error
	}{
		{"alter TA-12", func(m *Manager) error {
			_, err := m.Alter(context.Background(), "t", AlterRequest{RetentionMS: ptr(int64(0))})
			return err
		}},
		{"partitions TA-12", func(m *Manager) error {
			_, err := m.Alter(context.Background(), "t", AlterRequest{Partitions: ptr(5)})
			return err
		}},
		{"delete TD-15", func(m *Manager) error { return m.Delete(context.Background(), "t", "") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			_, err := g.Create(context.Background(), CreateRequest{Name: "t"})
			must(t, err)
			times := 1
			m := g.over(&racing{g.store, g.recreate(t, &times)})
			if err := c.do(m); err != nil {
				t.Errorf("changed once: %v", err)
			}
			if _, ok := g.store.Topic("t"); !ok {
				_, err := g.Create(context.Background(), CreateRequest{Name: "t"})
				must(t, err)
			}
			before, _ := g.store.Topic("t")
			g.deleted = nil
			times = 2
			err = c.do(m)
			if strings.HasPrefix(c.name, "partitions") { // grown above: 5 is no longer an increase
				if !errors.Is(err, model.ErrInvalid) {
					t.Errorf("re-checked: %v", err)
				}
				return
			}
			if !errors.Is(err, model.ErrTopicChanged) || err.Error() != "topic changed since it was read" {
				t.Errorf("changed twice: %v", err)
			}
			if after, ok := g.store.Topic("t"); !ok || after.RetentionMS != before.RetentionMS || len(g.deleted) != 0 {
				t.Errorf("changed twice, yet applied: %+v, told %v", after, g.deleted)
			}
		})
	}
}

func TestPartitionsGrownUnderTheRequest(t *testing.T) {
	g := newRig(t)
	_, err := g.Create(context.Background(), CreateRequest{Name: "t"})
	must(t, err)
	v, _ := g.store.Topic("t")
	once := sync.OnceFunc(func() {
		g.propose(t, metastore.UpdateTopic{Name: "t", ID: v.ID, Partitions: ptr(4), PartitionsFrom: 3})
	})
	m := g.over(&racing{g.store, once})
	v, err = m.Alter(context.Background(), "t", AlterRequest{Partitions: ptr(6)})
	if err != nil || v.Partitions != 6 || v.OwnerOf(5) != node || v.OwnerOf(3) != "" {
		t.Errorf("%+v, %v", v, err)
	}
}

// A member removed between placement and commit: placed again.
func TestCreateIsPlacedAgainAfterARemoval(t *testing.T) {
	g := newRig(t)
	g.propose(t, metastore.RegisterMember{ID: "narad-1", At: 1})
	once := sync.OnceFunc(func() { g.propose(t, metastore.RemoveMember{ID: "narad-1"}) })
	m := g.over(&racing{g.store, once})
	v, err := m.Create(context.Background(), CreateRequest{Name: "t"})
	must(t, err)
	if !reflect.DeepEqual(v.Owners, []string{node, node, node}) {
		t.Errorf("placed on %v", v.Owners)
	}
}

func TestLockWaitsForContext(t *testing.T) {
	l := newNameLocks()
	unlock, err := l.lock(context.Background(), "t")
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.lock(ctx, "t"); !errors.Is(err, model.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	other, err := l.lock(context.Background(), "u")
	must(t, err)
	other()
	unlock()
	again, err := l.lock(context.Background(), "t")
	must(t, err)
	again()
	if len(l.held) != 0 {
		t.Errorf("%d locks are kept", len(l.held))
	}
}

func BenchmarkCreateConcurrent(b *testing.B) {
	g := newRig(b)
	var mu sync.Mutex
	n := 0
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			mu.Lock()
			n++
			name := fmt.Sprintf("topic-%07d", n)
			mu.Unlock()
			if _, err := g.Create(context.Background(), CreateRequest{Name: name}); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
}
