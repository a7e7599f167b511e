package metastore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/narad-mq/narad/internal/model"
	narad "github.com/narad-mq/narad/internal/testutil"
)

// mixedLoad changes metadata through whichever node runs, while nodes are upgraded.
type mixedLoad struct {
	mu     sync.Mutex        // guards stores
	stores map[string]*Store // of the nodes that run

	acked    []string // topics whose create was answered; none is deleted
	heldBack int      // writes without fallback that were refused
	remotes  int      // remotes created
	failed   []error  // answers nobody should get
	wg       sync.WaitGroup
	stop     chan struct{}
	done     atomic.Int64 // writes that were answered, whatever with
}

// round waits until the load went through each kind of write once more.
func (l *mixedLoad) round(t testing.TB) {
	t.Helper()
	want := l.done.Load() + int64(len(round(0)))
	narad.Eventually(t, clusterWait, func() bool { return l.done.Load() > want }, "a round of the load")
}

func (l *mixedLoad) set(id string, s *Store) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stores[id] = s
}

func (l *mixedLoad) get(id string) *Store {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stores[id]
}

// mixedPeers carries a node's writes to the leader.
type mixedPeers struct{ l *mixedLoad }

// Propose implements Forwarder over the wire's form.
func (p mixedPeers) Propose(ctx context.Context, leader string, c Command) (Result, error) {
	s := p.l.get(leader)
	if s == nil {
		return Result{}, fmt.Errorf("%w: %s is down", model.ErrUnavailable, leader)
	}
	b, err := encodeEntry(c)
	if err != nil {
		return Result{}, err
	}
	if c, err = decodeEntry(b, NewestType); err != nil {
		return Result{}, err
	}
	return s.Accept(ctx, c)
}

// AppliedIndex implements Forwarder.
func (p mixedPeers) AppliedIndex(_ context.Context, leader string) (uint64, error) {
	s := p.l.get(leader)
	if s == nil {
		return 0, fmt.Errorf("%w: %s is down", model.ErrUnavailable, leader)
	}
	return s.LeaderApplied()
}

// round is one life of a topic: every type that has a newer form, and two that have
// nothing to fall back to.
func round(n int) []Command {
	t, c, user := fmt.Sprintf("t%d", n), fmt.Sprintf("c%d", n), fmt.Sprintf("u%d", n)
	rec := remoteNamed("dr")
	return []Command{
		linked(t, idA, schema(1), nil),
		AlterTopic{Name: t, ID: idA, MaxInFlight: ptr(7)},
		PutSchemaVersion{Topic: t, ID: idA, Version: 2, Schema: schema(2)},
		linked(c, idB, nil, &ParentLink{Name: t, ID: idA, Epoch: "e"}),
		UnlinkChild{Parent: t, ParentID: idA, Child: c, ChildID: idB},
		LinkChild{Parent: t, ParentID: idA, Child: c, ChildID: idB, Epoch: "f"},
		InsertPlacement{Topic: t, ID: idA, First: 2, Owners: []string{"c"}},
		CreateUser{Username: user, At: 1},
		UpdateTopic{Name: t, Owner: &user},
		RemoveUser{Username: user},
		RemoveTopic{Name: c, ID: idB},
		MarkSilent{ID: node, HeartbeatAt: 1},
		PrunePlacement{Topic: t, Partition: 9},
		CreateRemote{Remote: rec, Salt: salt(1)},
		DeleteRemote{Name: rec.Name, ID: rec.ID},
	}
}

// run proposes rounds through one node after the other until it is stopped.
func (l *mixedLoad) run() {
	for n := 0; ; n++ {
		for i, c := range round(n) {
			select {
			case <-l.stop:
				return
			default:
			}
			s := l.get(fmt.Sprintf("narad-%d", (n+i)%3))
			if s == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			_, err := s.Propose(ctx, c)
			cancel()
			l.note(c, err)
			l.done.Add(1)
		}
	}
}

func (l *mixedLoad) note(c Command, err error) {
	var r *refusal
	_, base := c.(fallback)
	switch {
	case err == nil && c.Type() == TypeCreateRemote:
		l.remotes++
	case err == nil:
		if created, ok := c.(CreateLinkedTopic); ok && created.Parent == nil {
			l.acked = append(l.acked, created.Topic.Name)
		}
	case errors.Is(err, model.ErrHeldBack) && !base && c.Type() > newest30:
		l.heldBack++
	case errors.Is(err, model.ErrUnavailable), errors.As(err, &r):
		// an election, or what an answer that got lost in one left behind
	default:
		l.failed = append(l.failed, fmt.Errorf("%s: %w", c.Type(), err))
	}
}

// earlyEntries walks a whole log and names each entry of a newer type that was
// proposed before every server's newest record on the log allowed it.
func earlyEntries(t testing.TB, s *Store) (early []string, used map[EntryType]bool) {
	t.Helper()
	last, err := s.logs.LastIndex()
	must(t, err)
	reports, used := map[string]EntryType{}, map[EntryType]bool{}
	for i := uint64(1); i <= last; i++ {
		c := commandAt(t, s, i)
		if c == nil {
			continue
		}
		if r, ok := c.(RegisterMember); ok {
			reports[r.ID] = reported(model.Member{EntryTypes: r.EntryTypes})
		}
		used[c.Type()] = true
		for _, id := range []string{"narad-0", "narad-1", "narad-2"} {
			if c.Type() > max(reports[id], newest30) {
				early = append(early, fmt.Sprintf("%s at index %d, %s applies up to %d", c.Type(), i, id, reports[id]))
			}
		}
	}
	return early, used
}

// replayed is the database a fresh machine makes of a store's whole log.
func replayed(t testing.TB, s *Store) string {
	t.Helper()
	m := newMachine(t, t.TempDir())
	m.db.NoSync = true
	for i := uint64(1); i <= s.fsm.applied.Load(); i++ {
		var l raft.Log
		must(t, s.logs.GetLog(i, &l))
		m.ApplyBatch([]*raft.Log{&l})
	}
	return m.hash()
}

// upgrade is one node's restart as another release.
type upgrade struct {
	i     int
	level model.ReleaseLevel
}

// Nodes of 3.0, 3.1 and 3.2 in one cluster, upgraded in each order under a load of
// changes: all of them hold the same at the end, no type was proposed before each
// server reported it, and from the first one on no older release is let in.
func TestMixedReleasesUpgradeInEveryOrder(t *testing.T) {
	t.Parallel()
	for _, o := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		t.Run(fmt.Sprint(o), func(t *testing.T) {
			t.Parallel()
			a, b, c := o[0], o[1], o[2]
			mixed(t, []upgrade{
				{a, model.Level31}, {a, model.Level32}, {b, model.Level31}, // one of each now
				{c, model.Level31}, {b, model.Level32}, {c, model.Level32},
			})
		})
	}
}

func mixed(t *testing.T, upgrades []upgrade) {
	t.Helper()
	levels := []model.ReleaseLevel{model.Level30, model.Level30, model.Level30}
	l := &mixedLoad{stores: map[string]*Store{}, stop: make(chan struct{})}
	c := emptyCluster(t, 3, func(i int, o *Options) { o.Level, o.Forwarder = levels[i], mixedPeers{l} })
	for i, n := range c.nodes {
		l.set(n.id, c.start(i, func(o *Options) { o.Initial = c.servers(3) }))
	}
	c.waitLeader()
	for i := range c.nodes {
		c.register(i)
	}
	stop := sync.OnceFunc(func() { close(l.stop); l.wg.Wait() })
	defer stop()
	l.wg.Go(l.run)
	l.round(t)
	c.mayJoin(22, true, "all of 3.0")
	for _, u := range upgrades {
		if err := c.nodes[u.i].store.Err(); err != nil {
			t.Fatalf("%s stopped: %v", c.nodes[u.i].id, err)
		}
		l.set(c.nodes[u.i].id, nil)
		levels[u.i] = u.level
		l.set(c.nodes[u.i].id, c.restart(u.i))
		c.waitCurrent(u.i)
		for i := range c.nodes {
			c.register(i)
		}
		l.round(t)
		oldest := min(newestOf(levels[0]), newestOf(levels[1]), newestOf(levels[2]))
		c.mayJoin(int(oldest), true, "as old as the oldest")
		if oldest > newest30 {
			c.mayJoin(int(oldest)-1, false, "older than every member")
		}
	}
	for _, cmd := range round(1_000_000) { // by the newest entries, each of them
		c.eventually(func() error {
			_, err := c.nodes[c.follower()].store.Propose(context.Background(), cmd)
			if r := (*refusal)(nil); errors.As(err, &r) {
				return nil // it is on the log all the same
			}
			return err
		}, cmd.Type().String())
	}
	stop()
	for _, err := range l.failed {
		t.Error(err)
	}
	c.converge()
	s := c.nodes[c.waitLeader()].store
	early, used := earlyEntries(t, s)
	for _, e := range early {
		t.Error("proposed early: ", e)
	}
	for _, cmd := range round(0) {
		if !used[cmd.Type()] {
			t.Errorf("type %d (%s) was never used", cmd.Type(), cmd.Type())
		}
	}
	if !used[TypeCreateTopic] || l.heldBack == 0 || len(l.acked) == 0 {
		t.Errorf("%d creates, %d writes held back: the load met no mixed cluster", len(l.acked), l.heldBack)
	}
	if replayed(t, s) != hashOf(t, s.fsm) {
		t.Error("the newest release makes another database of the log")
	}
	for _, n := range c.nodes {
		for _, name := range l.acked {
			if _, ok := n.store.Topic(name); !ok {
				t.Errorf("%s lost %s", n.id, name)
			}
		}
	}
	t.Logf("%d creates answered, %d writes held back, %d remotes, %d entries", len(l.acked), l.heldBack, l.remotes, s.fsm.applied.Load())
}

// mayJoin asks the leader whether a server that applies up to a type may join.
func (c *cluster) mayJoin(types int, want bool, what string) {
	c.t.Helper()
	c.eventually(func() error {
		s := c.nodes[c.waitLeader()].store
		err := s.CheckJoiner("joiner", types)
		if s.Writable() != nil {
			return ErrNotLeader // and its records may be old ones
		}
		if err != nil == want || !want && !errors.Is(err, model.ErrOlderRelease) {
			c.t.Errorf("a joiner of up to %d, %s: %v", types, what, err)
		}
		return nil
	}, "a leader's word")
}
