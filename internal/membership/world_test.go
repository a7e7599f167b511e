package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The harness of tests with several nodes: real metastores over real TCP and a real
// Membership each, in one process, hurried. What node RPC would carry calls the other
// node's server methods directly, unless the direction is cut. Addresses are the
// harness's own, so that a node keeps its address over a restart.

const waitMax = 20 * time.Second // of every wait of the harness

var hurried = pace{join: 50 * time.Millisecond, leaderless: 700 * time.Millisecond, led: 500 * time.Millisecond, beat: 200 * time.Millisecond, beatFirst: 30 * time.Millisecond}

// world is a number of nodes, n0 to n<n-1>, the first few of them initial members.
type world struct {
	t       testing.TB
	initial int
	nodes   []*worldNode

	mu     sync.Mutex // guards all below
	cuts   map[[2]int]fault
	conns  map[net.Conn][2]int      // open Raft connections, dialler first
	asked  []peer.JoinRequest       // every join that was sent
	onJoin func(r peer.JoinRequest) // nil = nothing; before it is delivered
}

// fault is what happens to what one node sends to another.
type fault uint8

const (
	refused fault = iota + 1 // fails at once
	dropped                  // fails after the timeout
	muted                    // Raft fails at once, node RPC passes
)

type worldNode struct {
	n         int
	id, dir   string
	api, raft string // advertised
	level     model.ReleaseLevel
	log       *syncBuffer

	store  *metastore.Store // nil while it is down; guarded by world.mu, like member
	member *Membership
}

func newWorld(t testing.TB, nodes, initial int) *world {
	t.Helper()
	w := &world{t: t, initial: initial, cuts: map[[2]int]fault{}, conns: map[net.Conn][2]int{}}
	for i := range nodes {
		w.nodes = append(w.nodes, &worldNode{
			n: i, id: fmt.Sprintf("n%d", i), dir: t.TempDir(), log: &syncBuffer{},
			api: fmt.Sprintf("n%d.test:7942", i), raft: fmt.Sprintf("n%d.test:7943", i),
		})
	}
	t.Cleanup(func() {
		for i := range w.nodes {
			w.stop(i)
		}
		if t.Failed() {
			for _, n := range w.nodes {
				t.Logf("%s:\n%s", n.id, n.log)
			}
		}
	})
	return w
}

// peers is the peer list that every node has: the initial members, pinned.
func (w *world) peers() (out []config.Peer) {
	for _, n := range w.nodes[:w.initial] {
		out = append(out, config.Peer{ID: n.id, RaftAddr: n.raft, APIAddr: n.api})
	}
	return out
}

// formed is a world whose initial members run, as voters that are all registered.
func formed(t testing.TB, nodes, initial int) *world {
	t.Helper()
	w := newWorld(t, nodes, initial)
	for i := range initial { // one cluster from the start: the probe has its own tests
		w.open(i, false)
	}
	w.settled(initial)
	return w
}

// start starts a node as the process does: probe, open, serve.
func (w *world) start(i int) {
	w.t.Helper()
	if err := w.tryStart(i); err != nil {
		w.t.Fatalf("start %s: %v", w.nodes[i].id, err)
	}
}

func (w *world) tryStart(i int) error {
	join, err := w.probe(i)
	if err != nil {
		return err
	}
	return w.tryOpen(i, join)
}

func (w *world) probe(i int) (join bool, err error) {
	n := w.nodes[i]
	state, err := metastore.HasState(n.dir)
	if err != nil {
		return false, err
	}
	return Probe(context.Background(), ProbeOptions{
		Self: n.id, APIAddr: n.api, RaftAddr: n.raft, Peers: w.peers(), Empty: !state, EntryTypes: int(metastore.NewestType),
		Client: courier{w, i}, Logger: n.logger(), pause: 20 * time.Millisecond,
	})
}

func (w *world) open(i int, join bool) {
	w.t.Helper()
	if err := w.tryOpen(i, join); err != nil {
		w.t.Fatalf("open %s: %v", w.nodes[i].id, err)
	}
}

func (w *world) tryOpen(i int, join bool) error {
	n := w.nodes[i]
	state, err := metastore.HasState(n.dir)
	if err != nil {
		return err
	}
	o := metastore.Options{
		Dir: n.dir, NodeID: n.id, BindAddr: "127.0.0.1:0", Advertise: n.raft, APIAddr: n.api, Build: "test", Logger: n.logger(),
		Join: join, Level: n.level, TrailingLogs: metastore.DefaultTrailingLogs, Forwarder: courier{w, i},
		Dial: func(addr string, timeout time.Duration) (net.Conn, error) { return w.dial(i, addr, timeout) },
		Tune: func(c *raft.Config) {
			c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 300*time.Millisecond, 300*time.Millisecond, 200*time.Millisecond
			c.CommitTimeout = 10 * time.Millisecond
		},
	}
	for _, p := range w.peers() {
		o.Initial = append(o.Initial, metastore.Server{ID: p.ID, Addr: p.RaftAddr, Voter: true})
	}
	store, err := metastore.Open(context.Background(), o)
	if err != nil {
		return err
	}
	member := New(Options{
		Self: Self{ID: n.id, APIAddr: n.api, RaftAddr: n.raft, Empty: !state}, Peers: w.peers(), Store: store,
		Client: courier{w, i}, Logger: n.logger(), pace: hurried,
	})
	w.mu.Lock()
	n.store, n.member = store, member
	w.mu.Unlock()
	member.Start()
	return nil
}

func (n *worldNode) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// running is a node's parts, nil while it is down.
func (w *world) running(i int) (*metastore.Store, *Membership) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[i].store, w.nodes[i].member
}

func (w *world) store(i int) *metastore.Store { s, _ := w.running(i); return s }

// stop takes a node down as a crash does: closing a store writes nothing.
func (w *world) stop(i int) {
	store, member := w.running(i)
	if store == nil {
		return
	}
	w.mu.Lock()
	w.nodes[i].store, w.nodes[i].member = nil, nil
	for conn, l := range w.conns {
		if l[0] == i || l[1] == i {
			conn.Close()
		}
	}
	w.mu.Unlock()
	if err := errors.Join(member.Close(), store.Close()); err != nil {
		w.t.Errorf("stop %s: %v", w.nodes[i].id, err)
	}
}

// wipe gives a node that is down an empty volume.
func (w *world) wipe(i int) { w.nodes[i].dir = w.t.TempDir() }

// cut makes what one node sends another fail, open connections included.
func (w *world) cut(from, to int, f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts[[2]int{from, to}] = f
	for conn, l := range w.conns {
		if l == [2]int{from, to} {
			conn.Close()
		}
	}
}

func (w *world) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.cuts)
}

var errCut = errors.New("no way there")

// readdress gives a node that is stopped another Raft address.
func (w *world) readdress(i int, raft string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[i].raft = raft
}

// dial is a node's way to the Raft of another.
func (w *world) dial(from int, addr string, timeout time.Duration) (net.Conn, error) {
	to, target := -1, ""
	w.mu.Lock()
	for i, n := range w.nodes {
		if n.raft == addr && n.store != nil {
			to, target = i, n.store.Listening()
		}
	}
	f := w.cuts[[2]int{from, to}]
	w.mu.Unlock()
	switch {
	case f == dropped:
		deadline := time.NewTimer(timeout)
		defer deadline.Stop()
		for w.still(from, to) {
			select {
			case <-deadline.C:
				return nil, errCut
			case <-time.After(20 * time.Millisecond):
			}
		}
		return nil, errCut
	case f != 0 || to < 0:
		return nil, errCut
	}
	conn, err := net.DialTimeout("tcp", target, timeout)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cuts[[2]int{from, to}] != 0 {
		return nil, errors.Join(errCut, conn.Close())
	}
	w.conns[conn] = [2]int{from, to}
	return conn, nil
}

// still is whether packets are dropped between two nodes that run.
func (w *world) still(from, to int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts[[2]int{from, to}] == dropped && w.nodes[from].store != nil
}

// courier is one node's client to the others, and its forwarder.
type courier struct {
	w    *world
	from int
}

// reach is the node that answers at an address or by an id.
func (c courier) reach(to string) (*worldNode, *Membership, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for i, n := range c.w.nodes {
		if f := c.w.cuts[[2]int{c.from, i}]; (n.api == to || n.id == to) && (f == 0 || f == muted) {
			if n.member == nil {
				return nil, nil, fmt.Errorf("%w: %s is down", model.ErrUnavailable, to)
			}
			return n, n.member, nil
		}
	}
	return nil, nil, fmt.Errorf("%w: %s", model.ErrUnavailable, to)
}

func (c courier) Join(ctx context.Context, addr string, r peer.JoinRequest) (peer.JoinAnswer, error) {
	c.w.mu.Lock()
	c.w.asked = append(c.w.asked, r)
	hook := c.w.onJoin
	c.w.mu.Unlock()
	if hook != nil {
		hook(r)
	}
	_, m, err := c.reach(addr)
	if err != nil {
		return peer.JoinAnswer{}, err
	}
	return m.Join(ctx, r), nil
}

// Propose carries the heartbeats of a node to the leader.
func (c courier) Propose(ctx context.Context, leader string, cmd metastore.Command) (metastore.Result, error) {
	_, m, err := c.reach(leader)
	if err != nil {
		return metastore.Result{}, err
	}
	r := cmd.(metastore.RegisterMember)
	return metastore.Result{}, m.Register(ctx, peer.MemberReport{ID: r.ID, APIAddr: r.Addr, RaftAddr: r.RaftAddr, Build: r.Build, EntryTypes: r.EntryTypes})
}

func (c courier) AppliedIndex(_ context.Context, leader string) (uint64, error) {
	n, _, err := c.reach(leader)
	if err != nil {
		return 0, err
	}
	return c.w.store(n.n).LeaderApplied()
}

// leader is the node that takes writes, waiting for one.
func (w *world) leader() int {
	w.t.Helper()
	lead := -1
	testutil.Eventually(w.t, waitMax, func() bool {
		for i := range w.nodes {
			if s := w.store(i); s != nil && s.Writable() == nil {
				lead = i
				return true
			}
		}
		return false
	}, "a leader that takes writes")
	return lead
}

// eventually waits for something that an election may interrupt.
func (w *world) eventually(cond func() bool, what string) {
	w.t.Helper()
	testutil.Eventually(w.t, waitMax, cond, what)
}

// suffrage is what the leader's configuration says of a node: voter, non-voter, or "".
func (w *world) suffrage(i int) string {
	w.t.Helper()
	s := w.store(w.leader())
	if s == nil {
		return ""
	}
	switch server := find(s.Servers(), w.nodes[i].id); {
	case server == nil:
		return ""
	case server.Voter:
		return "voter"
	}
	return "non-voter"
}

// settled waits until the first n nodes run as voters, ready and registered.
func (w *world) settled(n int) {
	w.t.Helper()
	for i := range n {
		w.eventually(func() bool {
			s := w.store(i)
			if s.Ready() != nil || w.suffrage(i) != "voter" {
				return false
			}
			for _, m := range s.Members() {
				if m.ID == w.nodes[i].id && m.Status == model.MemberAlive {
					return true
				}
			}
			return false
		}, w.nodes[i].id+" to be a voter, ready and registered")
	}
}

// mark writes a topic through the leader; marked tells whether a node has it.
func (w *world) mark(name string) {
	w.t.Helper()
	topic := model.Topic{Name: name, ID: model.NewIncarnation(), Partitions: 1, RetentionMS: 1000, VisibilityTimeoutMS: 1000, MaxInFlight: 1, MaxAckedAhead: 1}
	w.eventually(func() bool {
		s := w.store(w.leader())
		_, err := s.Propose(context.Background(), metastore.CreateTopic{Topic: topic, Owners: []string{""}})
		return err == nil || errors.Is(err, model.ErrTopicExists)
	}, "topic "+name)
}

func (w *world) marked(i int, name string) bool {
	_, ok := w.store(i).Topic(name)
	return ok
}

// joins is every join a node has sent.
func (w *world) joins(i int) (out []peer.JoinRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.asked {
		if r.ID == w.nodes[i].id {
			out = append(out, r)
		}
	}
	return out
}

// join asks the leader on behalf of a node.
func (w *world) join(i int, empty bool) peer.JoinAnswer {
	w.t.Helper()
	n := w.nodes[i]
	r := peer.JoinRequest{ID: n.id, RaftAddr: n.raft, Empty: empty, EntryTypes: int(metastore.NewestType)}
	var a peer.JoinAnswer
	w.eventually(func() bool {
		_, m := w.running(w.leader())
		a = m.Join(context.Background(), r)
		return a.Status != http.StatusMisdirectedRequest && a.Status != http.StatusServiceUnavailable
	}, "a decision about "+n.id)
	return a
}

// logged is how many lines of a node's log hold a text.
func (w *world) logged(i int, text string) int {
	return strings.Count(w.nodes[i].log.String(), text)
}

// syncBuffer is a buffer a logger writes while a test reads.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
