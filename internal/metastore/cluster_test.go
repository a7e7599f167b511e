package metastore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/narad-mq/narad/internal/model"
	narad "github.com/narad-mq/narad/internal/testutil"
)

// The harness of tests with several stores: real stores over real TCP in one
// process, on addresses of the harness's own making, so that a node keeps its
// address over a restart and any link can be cut. What a node-RPC client would do
// (forwarding, the leader's word) calls the other store directly, unless the link
// is cut.

// clusterWait bounds every wait of the harness.
const clusterWait = 20 * time.Second

// cluster is n stores, narad-0 to narad-<n-1>.
type cluster struct {
	t     testing.TB
	edit  func(i int, o *Options) // nil = nothing; applied at every start
	nodes []*clusterNode

	mu    sync.Mutex          // guards all below
	real  map[string]string   // advertised address -> listener of the running store
	cuts  map[[2]int]bool     // links that are down, lower node first
	conns map[net.Conn][2]int // open Raft connections, by link
	owner map[string]int      // advertised address -> node
}

// clusterNode is one node; store is nil while it is down.
type clusterNode struct {
	id, dir string
	store   *Store
}

// newCluster bootstraps n voters together and registers them all.
func newCluster(t testing.TB, n int, edit func(i int, o *Options)) *cluster {
	t.Helper()
	c := emptyCluster(t, n, edit)
	for i := range n {
		c.start(i, func(o *Options) { o.Initial = c.servers(n) })
	}
	c.waitLeader()
	for i := range n {
		c.register(i)
	}
	return c
}

// emptyCluster has directories for n nodes, and starts none.
func emptyCluster(t testing.TB, n int, edit func(i int, o *Options)) *cluster {
	t.Helper()
	c := &cluster{
		t: t, edit: edit, real: map[string]string{}, cuts: map[[2]int]bool{}, conns: map[net.Conn][2]int{}, owner: map[string]int{},
	}
	for range n {
		c.grow()
	}
	return c
}

// grow adds a node that is not started, and returns its number.
func (c *cluster) grow() int {
	i := len(c.nodes)
	c.nodes = append(c.nodes, &clusterNode{id: fmt.Sprintf("narad-%d", i), dir: c.t.TempDir()})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner[c.addr(i)] = i
	return i
}

func (c *cluster) addr(i int) string { return fmt.Sprintf("narad-%d:7943", i) }

// servers is the first n nodes as an initial configuration.
func (c *cluster) servers(n int) (out []Server) {
	for i := range n {
		out = append(out, Server{ID: c.nodes[i].id, Addr: c.addr(i), Voter: true})
	}
	return out
}

func (c *cluster) options(i int) Options {
	o := Options{
		Dir: c.nodes[i].dir, NodeID: c.nodes[i].id, BindAddr: "127.0.0.1:0", Advertise: c.addr(i), APIAddr: c.nodes[i].id + ":7942",
		Build: "v3.2.0", TrailingLogs: DefaultTrailingLogs,
		Forwarder: clusterPeers{c, i}, Reader: clusterPeers{c, i},
		Dial: func(addr string, timeout time.Duration) (net.Conn, error) { return c.dial(i, addr, timeout) },
		Tune: func(conf *raft.Config) {
			conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = 300*time.Millisecond, 300*time.Millisecond, 200*time.Millisecond
			conf.CommitTimeout = 10 * time.Millisecond
		},
	}
	if c.edit != nil {
		c.edit(i, &o)
	}
	return o
}

// tryStart opens a node's store.
func (c *cluster) tryStart(i int, edit ...func(*Options)) error {
	o := c.options(i)
	for _, f := range edit {
		f(&o)
	}
	s, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	c.t.Cleanup(func() { s.Close() })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[i].store = s
	c.real[c.addr(i)] = s.stream.Listener.Addr().String()
	return nil
}

func (c *cluster) start(i int, edit ...func(*Options)) *Store {
	c.t.Helper()
	if err := c.tryStart(i, edit...); err != nil {
		c.t.Fatalf("start %s: %v", c.nodes[i].id, err)
	}
	return c.nodes[i].store
}

// kill takes a node down as a crash does to the others: its links go first, so that
// nothing it would say on leaving is heard. Its files hold what was synced, as
// closing a store writes nothing.
func (c *cluster) kill(i int) {
	c.t.Helper()
	c.isolate(i)
	s := c.nodes[i].store
	c.mu.Lock()
	c.nodes[i].store = nil
	delete(c.real, c.addr(i))
	c.mu.Unlock()
	must(c.t, s.Close())
	c.heal(i)
}

// restart kills a node that runs, and starts it again on its files.
func (c *cluster) restart(i int, edit ...func(*Options)) *Store {
	c.t.Helper()
	if c.nodes[i].store != nil {
		c.kill(i)
	}
	return c.start(i, edit...)
}

func link(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// cut takes the link between two nodes down, open connections included.
func (c *cluster) cut(a, b int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cuts[link(a, b)] = true
	for conn, l := range c.conns {
		if l == link(a, b) {
			conn.Close()
		}
	}
}

// isolate cuts every link of a node.
func (c *cluster) isolate(i int) {
	for j := range c.nodes {
		if j != i {
			c.cut(i, j)
		}
	}
}

// heal brings every link of a node up.
func (c *cluster) heal(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.cuts {
		if l[0] == i || l[1] == i {
			delete(c.cuts, l)
		}
	}
}

// running is the store of a node, nil while it is down.
func (c *cluster) running(i int) *Store {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i].store
}

func (c *cluster) isCut(a, b int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts[link(a, b)]
}

// clusterConn is a connection that cut can close.
type clusterConn struct {
	net.Conn
	c *cluster
}

func (k *clusterConn) Close() error {
	k.c.mu.Lock()
	delete(k.c.conns, k.Conn)
	k.c.mu.Unlock()
	return k.Conn.Close()
}

var errCut = errors.New("link is cut")

// dial reaches a node by its advertised address.
func (c *cluster) dial(from int, addr string, timeout time.Duration) (net.Conn, error) {
	c.mu.Lock()
	to, known := c.owner[addr]
	listener, up := c.real[addr]
	down := known && c.cuts[link(from, to)]
	c.mu.Unlock()
	switch {
	case !known:
		return net.DialTimeout("tcp", addr, timeout) // a node calling itself
	case down || !up:
		return nil, errCut
	}
	conn, err := net.DialTimeout("tcp", listener, timeout)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cuts[link(from, to)] {
		return nil, errors.Join(errCut, conn.Close())
	}
	c.conns[conn] = link(from, to)
	return &clusterConn{Conn: conn, c: c}, nil
}

// clusterPeers is what a node asks of the leader.
type clusterPeers struct {
	c    *cluster
	from int
}

func (p clusterPeers) reach(id string) (*Store, error) {
	for i, n := range p.c.nodes {
		if s := p.c.running(i); n.id == id && s != nil && !p.c.isCut(p.from, i) {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%w: %s cannot be reached", model.ErrUnavailable, id)
}

// Propose sends the entry over the wire's form, as a client would.
func (p clusterPeers) Propose(ctx context.Context, leader string, c Command) (Result, error) {
	s, err := p.reach(leader)
	if err != nil {
		return Result{}, err
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

func (p clusterPeers) AppliedIndex(_ context.Context, leader string) (uint64, error) {
	s, err := p.reach(leader)
	if err != nil {
		return 0, err
	}
	return s.LeaderApplied()
}

func (p clusterPeers) Topic(ctx context.Context, leader, name string) (model.Incarnation, bool, error) {
	s, err := p.reach(leader)
	if err != nil {
		return "", false, err
	}
	return s.LeaderTopic(ctx, name)
}

// waitLeader waits until one running node takes writes, and returns its number.
func (c *cluster) waitLeader() int {
	c.t.Helper()
	leader := -1
	narad.Eventually(c.t, clusterWait, func() bool {
		for i, n := range c.nodes {
			if n.store != nil && n.store.Writable() == nil {
				leader = i
				return true
			}
		}
		return false
	}, "a leader that takes writes")
	return leader
}

// follower is a running node that does not lead.
func (c *cluster) follower() int {
	c.t.Helper()
	leader := c.waitLeader()
	for i, n := range c.nodes {
		if i != leader && n.store != nil {
			return i
		}
	}
	c.t.Fatal("no follower runs")
	return -1
}

// register writes a node's member record through the leader.
func (c *cluster) register(i int) {
	c.t.Helper()
	c.eventually(func() error { return c.nodes[i].store.Heartbeat(context.Background()) }, "registration of "+c.nodes[i].id)
}

// admit has the leader stage a started node, and make it a voter once it is current.
func (c *cluster) admit(i int) {
	c.t.Helper()
	ctx := context.Background()
	c.eventually(func() error {
		return c.nodes[c.waitLeader()].store.AddNonvoter(ctx, c.nodes[i].id, c.addr(i), int(c.nodes[i].store.gate.newest))
	}, "staging of "+c.nodes[i].id)
	c.waitCurrent(i)
	c.register(i)
	c.eventually(func() error { return c.nodes[c.waitLeader()].store.AddVoter(ctx, c.nodes[i].id, c.addr(i)) }, "vote of "+c.nodes[i].id)
}

// waitCurrent waits until a node's replica was current once.
func (c *cluster) waitCurrent(i int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterWait)
	defer cancel()
	if err := c.nodes[i].store.WaitReady(ctx); err != nil {
		c.t.Fatalf("%s is not current: %v", c.nodes[i].id, err)
	}
}

// eventually repeats what an election may interrupt.
func (c *cluster) eventually(try func() error, what string) {
	c.t.Helper()
	var err error
	defer func() {
		if c.t.Failed() {
			c.t.Logf("%s: last answer %v", what, err)
		}
	}()
	narad.Eventually(c.t, clusterWait, func() bool { err = try(); return err == nil }, what)
}

// propose commits a command through a node, repeating what an election interrupted.
// A refusal after an unknown outcome is taken for the command having been applied.
func (c *cluster) propose(i int, cmd Command) {
	c.t.Helper()
	unsure := false
	c.eventually(func() error {
		_, err := c.nodes[i].store.Propose(context.Background(), cmd)
		unsure = unsure || errors.Is(err, model.ErrOutcomeUnknown)
		switch {
		case err == nil || errors.Is(err, model.ErrUnavailable):
			return err
		case !unsure:
			c.t.Fatalf("%s through %s: %v", cmd.Type(), c.nodes[i].id, err)
		}
		return nil
	}, cmd.Type().String())
}

// snapshotNow has a node take a snapshot of what it has applied.
func (c *cluster) snapshotNow(i int) {
	c.t.Helper()
	must(c.t, c.nodes[i].store.raft.Snapshot().Error())
}

// converge waits until every running node has applied the same entries, and fails
// unless their databases are the same.
func (c *cluster) converge() {
	c.t.Helper()
	var leader *Store
	c.eventually(func() error {
		leader = c.nodes[c.waitLeader()].store
		return leader.Barrier(context.Background())
	}, "a barrier")
	want := leader.fsm.applied.Load()
	hash := hashOf(c.t, leader.fsm)
	for _, n := range c.nodes {
		if n.store == nil {
			continue
		}
		narad.Eventually(c.t, clusterWait, func() bool { return n.store.fsm.applied.Load() >= want }, n.id+" to apply what the leader has")
		if got := hashOf(c.t, n.store.fsm); got != hash && n.store.fsm.applied.Load() == want {
			c.t.Errorf("the database of %s differs from the leader's at index %d", n.id, want)
		}
	}
}
