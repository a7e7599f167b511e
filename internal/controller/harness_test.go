package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	narad "github.com/narad-mq/narad/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clusterWait bounds every wait for Raft.
const clusterWait = 20 * time.Second

// rig is n nodes: real stores over real Raft on the real clock, and a controller each.
// The controllers share a clock that moves when the test says so.
type rig struct {
	t     testing.TB
	clk   *clock.Fake
	nodes []*rigNode
	stamp int64 // of the last heartbeat
	log   lines
}

// rigNode is one node; store and duties are nil while it is down.
type rigNode struct {
	id, dir, addr string
	store         *metastore.Store
	seam          *seam
	duties        *Controller
}

// seam is a store of which a test changes single answers.
type seam struct {
	*metastore.Store
	mu      sync.Mutex // guards the rest
	barrier func(ctx context.Context) error
	accept  func(ctx context.Context, c metastore.Command) (metastore.Result, error)
	orphans []model.PartitionKey
	applies error
	reads   int // of the member table
	scans   int // of the topics
}

func (s *seam) set(f func(*seam)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *seam) Members() []model.Member {
	s.set(func(s *seam) { s.reads++ })
	return s.Store.Members()
}

func (s *seam) Range(f func(*model.TopicView) bool) {
	s.set(func(s *seam) { s.scans++ })
	s.Store.Range(f)
}

func (s *seam) Barrier(ctx context.Context) error {
	s.mu.Lock()
	f := s.barrier
	s.mu.Unlock()
	if f == nil {
		f = s.Store.Barrier
	}
	return f(ctx)
}

func (s *seam) Accept(ctx context.Context, c metastore.Command) (metastore.Result, error) {
	s.mu.Lock()
	f := s.accept
	s.mu.Unlock()
	if f == nil {
		f = s.Store.Accept
	}
	return f(ctx, c)
}

func (s *seam) OrphanPlacements(limit int) ([]model.PartitionKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orphans[:min(limit, len(s.orphans))], nil
}

func (s *seam) Applies(e metastore.EntryType) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.applies != nil {
		return s.applies
	}
	return s.Store.Applies(e)
}

// lines is a log that is written while a test reads.
type lines struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newRig makes a cluster of voters of which the first running ones are up: narad-0
// bootstraps it, and leads. No node but the leader has a member record yet, and no
// controller runs.
func newRig(t testing.TB, voters, running int) *rig {
	t.Helper()
	r := &rig{t: t, clk: clock.NewFake(time.Unix(1_700_000_000, 0))}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	for i := range voters {
		n := &rigNode{id: fmt.Sprintf("narad-%d", i), dir: t.TempDir(), addr: "127.0.0.1:0"}
		r.nodes = append(r.nodes, n)
		if i < running {
			r.start(i)
			n.addr = n.store.Report().RaftAddr
		} else {
			n.addr = "127.0.0.1:1" // where nobody listens
		}
		if i == 0 {
			r.leader()
			continue
		}
		must(t, r.nodes[0].store.AddVoter(context.Background(), n.id, n.addr))
		if n.store != nil {
			ctx, cancel := context.WithTimeout(context.Background(), clusterWait)
			must(t, n.store.WaitReady(ctx))
			cancel()
		}
	}
	return r
}

// start opens a node's store. One that comes back needs its old address, which somebody
// else's connection may hold for a moment.
func (r *rig) start(i int) {
	r.t.Helper()
	n := r.nodes[i]
	narad.Eventually(r.t, clusterWait, func() bool {
		store, err := metastore.Open(context.Background(), metastore.Options{
			Dir: n.dir, NodeID: n.id, BindAddr: n.addr, APIAddr: n.id + ":7942", Build: "v3.2.0",
			Join: i > 0, TrailingLogs: metastore.DefaultTrailingLogs,
		})
		if errors.Is(err, syscall.EADDRINUSE) {
			return false
		}
		must(r.t, err)
		n.store, n.seam = store, &seam{Store: store}
		return true
	}, n.id+" to start")
	store := n.store
	r.t.Cleanup(func() { store.Close() })
}

// govern starts the controller of every running node that has none.
func (r *rig) govern() {
	for _, n := range r.nodes {
		if n.store == nil || n.duties != nil {
			continue
		}
		duties := New(Options{Store: n.seam, Self: n.id, Clock: r.clk, Logger: slog.New(slog.NewTextHandler(&r.log, nil))})
		n.duties = duties
		duties.Start()
		r.t.Cleanup(func() { duties.Close() })
	}
	r.idle()
}

// kill takes a node down.
func (r *rig) kill(i int) {
	r.t.Helper()
	n := r.nodes[i]
	if n.duties != nil {
		must(r.t, n.duties.Close())
	}
	must(r.t, n.store.Close())
	n.store, n.seam, n.duties = nil, nil, nil
}

// leader waits until a node takes writes.
func (r *rig) leader() *rigNode {
	r.t.Helper()
	var leader *rigNode
	narad.Eventually(r.t, clusterWait, func() bool {
		for _, n := range r.nodes {
			if n.store != nil && n.store.LeaderTerm() != 0 {
				leader = n
				return true
			}
		}
		return false
	}, "a leader that takes writes")
	return leader
}

// others are the running nodes that are not n.
func (r *rig) others(n *rigNode) (out []*rigNode) {
	for _, o := range r.nodes {
		if o != n && o.store != nil {
			out = append(out, o)
		}
	}
	return out
}

// propose commits entries on the leader.
func (r *rig) propose(cs ...metastore.Command) {
	r.t.Helper()
	for _, c := range cs {
		narad.Eventually(r.t, clusterWait, func() bool {
			_, err := r.leader().store.Accept(context.Background(), c)
			return err == nil
		}, c.Type().String())
	}
}

// beat commits a heartbeat of each member named.
func (r *rig) beat(ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		r.stamp++
		r.propose(metastore.RegisterMember{ID: id, Addr: id + ":7942", At: r.stamp, Build: "v3.2.0", EntryTypes: int(metastore.NewestType)})
	}
}

// ids are the names of all nodes, running or not.
func (r *rig) ids() (out []string) {
	for _, n := range r.nodes {
		out = append(out, n.id)
	}
	return out
}

// loops is how many controllers run.
func (r *rig) loops() (n int) {
	for _, node := range r.nodes {
		if node.duties != nil {
			n++
		}
	}
	return n
}

// idle waits until every controller waits for the clock.
func (r *rig) idle() {
	r.t.Helper()
	narad.Eventually(r.t, clusterWait, func() bool { return r.clk.Timers() >= r.loops() }, "the controllers to look")
}

// pass moves the controllers' clock by d, one look after the other, and has the members
// named heartbeat every 5 s.
func (r *rig) pass(d time.Duration, beating ...string) {
	r.t.Helper()
	for at := watchEvery; at <= d; at += watchEvery {
		r.idle()
		r.clk.Advance(watchEvery)
		r.idle()
		if at%(5*time.Second) == 0 {
			r.beat(beating...)
		}
	}
}

// status is what the leader has on record about a member, "" for nothing.
func (r *rig) status(id string) model.MemberStatus {
	r.t.Helper()
	for _, m := range r.leader().store.Members() {
		if m.ID == id {
			return m.Status
		}
	}
	return ""
}

func (r *rig) wantStatus(want model.MemberStatus, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		if got := r.status(id); got != want {
			r.t.Errorf("%s is %q, want %q", id, got, want)
		}
	}
}

func (r *rig) wantLines(n int, text string) {
	r.t.Helper()
	if got := r.log.count(text); got != n {
		r.t.Errorf("%d lines %q, want %d", got, text, n)
	}
}

// owners are the owners of a topic as the leader has them.
func (r *rig) owners(topic string) []string {
	r.t.Helper()
	v, ok := r.leader().store.Topic(topic)
	if !ok {
		r.t.Fatalf("no topic %q", topic)
	}
	return v.Owners
}

func topicOf(name string, partitions int) model.Topic {
	return model.Topic{
		Name: name, ID: model.NewIncarnation(), Partitions: partitions, RetentionMS: 604_800_000,
		VisibilityTimeoutMS: 30_000, MaxInFlight: 1024, MaxAckedAhead: 1024, CreatedAt: 1_700_000_000,
	}
}

func refused(n *rigNode) float64   { return testutil.ToFloat64(n.duties.metrics.refused) }
func colocated(n *rigNode) float64 { return testutil.ToFloat64(n.duties.metrics.colocated) }
