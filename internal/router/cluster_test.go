package router

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/telemetry"
)

// registryOfAll is the replicated state, which all nodes of a test see at the same time.
type registryOfAll struct {
	mu      sync.RWMutex // guards views and members
	views   map[string]*model.TopicView
	members []model.Member
	version [16]atomic.Uint64 // by domain
}

// replica is one node's view of it.
type replica struct {
	*registryOfAll
	behind atomic.Bool
	older  sync.Map // topic name -> *model.TopicView it still shows, nil = it shows none
}

// Topic implements Directory.
func (r *replica) Topic(name string) (*model.TopicView, bool) {
	if old, ok := r.older.Load(name); ok {
		v, _ := old.(*model.TopicView)
		return v, v != nil
	}
	return r.registryOfAll.Topic(name)
}

func (r *registryOfAll) Topic(name string) (*model.TopicView, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	v, ok := r.views[name]
	return v, ok
}

func (r *registryOfAll) Members() []model.Member {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.members
}

func (r *registryOfAll) Version(d metastore.Domain) uint64 { return r.version[d].Load() }

func (r *replica) CaughtUp() bool { return !r.behind.Load() }

// member is one node: a real broker on real files, and a router.
type member struct {
	id, addr string
	fs       disk.FS
	dir      string
	replica  *replica
	broker   *broker.Broker
	router   *Router
	down     bool // guarded by wire.mu
}

// fault is what a link does to a request.
type fault uint8

const (
	refuses   fault = iota + 1 // nothing arrives, and the sender knows
	swallows                   // nothing arrives, and the sender waits
	forgets                    // it arrives, the answer does not
	tokenless                  // the node knows no tokens
)

// wire carries requests between the nodes of a test.
type wire struct {
	mu     sync.Mutex // guards all below
	byAddr map[string]*member
	faults map[string]fault // by "from>to" or "from>to op"
	calls  map[string]int   // by op, and by "op to"
	took   func() time.Duration
	timers atomic.Int64
}

// counting counts the timers made on a clock: who waits makes one each time it wakes.
type counting struct {
	clock.Clock
	made *atomic.Int64
}

func (c counting) NewTimer(d time.Duration) clock.Timer {
	c.made.Add(1)
	return c.Clock.NewTimer(d)
}

type cluster struct {
	t     testing.TB
	all   *registryOfAll
	wire  *wire
	nodes []*member
}

// inCluster runs f with n nodes n0, n1... on fake time: nothing in it takes time but what
// waits, and each way between two nodes, which takes a millisecond.
func inCluster(t *testing.T, n int, f func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, n, func() (disk.FS, string) { return disk.OS{}, t.TempDir() })
		defer c.close()
		f(t, c)
	})
}

func newCluster(t testing.TB, n int, volume func() (disk.FS, string)) *cluster {
	c := &cluster{
		t: t, all: &registryOfAll{views: map[string]*model.TopicView{}},
		wire: &wire{byAddr: map[string]*member{}, faults: map[string]fault{}, calls: map[string]int{},
			took: func() time.Duration { return time.Millisecond }},
	}
	for i := range n {
		m := &member{id: fmt.Sprint("n", i), addr: fmt.Sprintf("host%d:7942", i), replica: &replica{registryOfAll: c.all}}
		m.fs, m.dir = volume()
		c.nodes = append(c.nodes, m)
		c.wire.byAddr[m.addr] = m
		c.all.members = append(c.all.members, model.Member{ID: m.id, Addr: m.addr, Status: model.MemberAlive})
		c.start(m)
	}
	return c
}

// simulated volumes spare a test that commits much the time of real syncs.
func simulated() (disk.FS, string) { return disk.NewSim(1), "/data" }

func (c *cluster) start(m *member) {
	w := &client{wire: c.wire, from: m}
	clk := counting{clock.Real(), &c.wire.timers}
	b, err := broker.Open(broker.Options{
		FS: m.fs, DataDir: m.dir, Node: m.id, Topics: m.replica, Clock: clk, Logger: telemetry.Discard(),
		CaughtUp: m.replica.CaughtUp, Notifier: w,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	r := New(Options{
		Node: m.id, Directory: m.replica, Local: b, Stats: b, Peers: w, Clock: clk, Logger: telemetry.Discard(),
	})
	c.wire.mu.Lock()
	m.broker, m.router, m.down = b, r, false
	c.wire.mu.Unlock()
}

func (c *cluster) stop(m *member) {
	c.wire.mu.Lock()
	m.down = true
	c.wire.mu.Unlock()
	m.router.Close()
	if err := m.broker.Close(); err != nil {
		c.t.Error(err)
	}
}

func (c *cluster) close() {
	for _, m := range c.nodes {
		if !m.down {
			c.stop(m)
		}
	}
}

// create makes a topic, or moves its partitions, or with no owner deletes it.
func (c *cluster) create(name string, owners ...string) {
	c.all.mu.Lock()
	v := &model.TopicView{Owners: owners, Topic: model.Topic{
		Name: name, ID: model.NewIncarnation(), Partitions: len(owners),
		VisibilityTimeoutMS: 30_000, MaxInFlight: 1024, MaxAckedAhead: 1024,
	}}
	if old := c.all.views[name]; old != nil {
		v.ID = old.ID
	}
	if c.all.views[name] = v; len(owners) == 0 {
		delete(c.all.views, name)
		v = nil
	}
	c.all.mu.Unlock()
	c.all.version[metastore.DomainTopics].Add(1)
	for _, m := range c.nodes {
		m.broker.TopicChanged(name, v)
	}
}

// edit changes the record of a member.
func (c *cluster) edit(id string, f func(*model.Member)) {
	c.all.mu.Lock()
	next := slices.Clone(c.all.members)
	for i := range next {
		if next[i].ID == id {
			f(&next[i])
		}
	}
	c.all.members = next
	c.all.mu.Unlock()
	c.all.version[metastore.DomainMembers].Add(1)
}

func (c *cluster) mark(id string, s model.MemberStatus) {
	c.edit(id, func(m *model.Member) { m.Status = s })
}

// fault sets what happens on a way, 0 for nothing. way is "from>to" or "from>to op".
func (c *cluster) fault(way string, f fault) {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.wire.faults[way] = f
}

// calls is how many requests of an op were sent since the last reset, or "op to".
func (c *cluster) calls(op string) int {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	return c.wire.calls[op]
}

func (c *cluster) reset() {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	clear(c.wire.calls)
}

func (c *cluster) commit(node int, topic string, p int, payloads ...string) {
	c.t.Helper()
	var rs []model.Record
	for _, s := range payloads {
		rs = append(rs, model.Record{Payload: []byte(s)})
	}
	if _, err := c.nodes[node].broker.Commit(context.Background(), topic, p, rs); err != nil {
		c.t.Errorf("commit at n%d: %v", node, err)
	}
}

// answer is what a consume answered, and when.
type answer struct {
	got  []model.Delivery
	err  error
	took time.Duration
}

func (a answer) String() string {
	var s []string
	for _, d := range a.got {
		s = append(s, string(d.Payload))
	}
	return fmt.Sprintf("[%s] err %v after %s", strings.Join(s, " "), a.err, a.took)
}

func (c *cluster) consume(ctx context.Context, node int, req broker.ConsumeRequest) answer {
	if req.Max == 0 {
		req.Max = 1
	}
	began := time.Now()
	got, err := c.nodes[node].router.Consume(ctx, req)
	return answer{got, err, time.Since(began)}
}

// any asks for one record of any partition of t.
func (c *cluster) any(node int, wait time.Duration) answer {
	return c.consume(c.t.Context(), node, broker.ConsumeRequest{Topic: "t", Partition: -1, Wait: wait})
}

// poll is consume in the background.
func (c *cluster) poll(ctx context.Context, node int, req broker.ConsumeRequest) <-chan answer {
	out := make(chan answer, 1)
	go func() { out <- c.consume(ctx, node, req) }()
	return out
}

func (c *cluster) pollAny(node int, wait time.Duration) <-chan answer {
	return c.poll(c.t.Context(), node, broker.ConsumeRequest{Topic: "t", Partition: -1, Wait: wait})
}

func pause(d time.Duration) { <-time.After(d) }

// client is one node's way to the others.
type client struct {
	wire *wire
	from *member
}

// call runs f at the node behind addr, as the wire allows.
func call[T any](ctx context.Context, c *client, addr, op string, f func(context.Context, Here) (T, error)) (out T, err error) {
	w := c.wire
	w.mu.Lock()
	to := w.byAddr[addr]
	w.calls[op]++
	w.calls[op+" "+to.id]++
	way := c.from.id + ">" + to.id
	does := max(w.faults[way], w.faults[way+" "+op])
	took := w.took
	w.mu.Unlock()
	if does != swallows {
		err = travel(ctx, took())
	}
	w.mu.Lock()
	if to.down && does != swallows {
		does = refuses
	}
	here := to.router.Here()
	w.mu.Unlock()
	switch {
	case does == refuses:
		return out, fmt.Errorf("%w: %s", peer.ErrUnreached, addr)
	case does == swallows:
		<-ctx.Done()
		return out, ctx.Err()
	case does == tokenless && op == "tokens":
		return out, &peer.StatusError{Status: 400, Text: "unsupported rpc operation"}
	case err != nil:
		return out, err
	}
	out, err = f(ctx, here)
	if does == forgets {
		<-ctx.Done()
	}
	if late := travel(ctx, took()); late != nil {
		return out, late
	}
	return out, overWire(err)
}

func travel(ctx context.Context, d time.Duration) error {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// overWire is what the other side sees of an error.
func overWire(err error) error {
	if err == nil {
		return nil
	}
	for status, sentinels := range map[int][]error{
		421: {model.ErrNotOwner}, 410: {model.ErrNoLease}, 404: {model.ErrTopicNotFound}, 400: {model.ErrInvalid}, 503: {model.ErrUnavailable},
	} {
		for _, s := range sentinels {
			if errors.Is(err, s) {
				return &peer.StatusError{Status: status, Text: s.Error()}
			}
		}
	}
	return &peer.StatusError{Status: 500, Text: err.Error()}
}

func (c *client) Consume(ctx context.Context, addr string, r peer.ConsumeRequest) ([]model.Delivery, error) {
	op := "consume"
	if r.Claim {
		op, r.Claimer = "claim", c.from.id
	}
	var at Here
	got, err := call(ctx, c, addr, op, func(ctx context.Context, here Here) ([]model.Delivery, error) {
		at = here
		return here.Consume(ctx, r)
	})
	if err != nil {
		for i := range got { // the owner gives back what reaches nobody
			at.Release(r.Topic, got[i].Handle)
		}
		return nil, err
	}
	return got, nil
}

func (c *client) Read(ctx context.Context, addr, topic string, p int, offset int64) (model.Message, bool, error) {
	var found bool
	m, err := call(ctx, c, addr, "read", func(ctx context.Context, here Here) (msg model.Message, err error) {
		msg, found, err = here.Read(ctx, topic, p, offset)
		return msg, err
	})
	return m, found, err
}

func (c *client) Settle(ctx context.Context, addr, topic string, h model.Handle, op model.SettleOp) error {
	_, err := call(ctx, c, addr, op.String(), func(ctx context.Context, here Here) (struct{}, error) {
		return struct{}{}, here.Settle(ctx, topic, h, op)
	})
	return err
}

func (c *client) SettleMany(ctx context.Context, addr, topic string, hs []model.Handle, op model.SettleOp) ([]error, error) {
	return call(ctx, c, addr, "batch", func(ctx context.Context, here Here) ([]error, error) {
		errs := make([]error, len(hs))
		for i, h := range hs {
			errs[i] = overWire(here.Settle(ctx, topic, h, op))
		}
		return errs, nil
	})
}

func (c *client) RegisterTokens(ctx context.Context, addr, callback string, toks []peer.Token) error {
	_, err := call(ctx, c, addr, "tokens", func(_ context.Context, here Here) (struct{}, error) {
		here.RegisterTokens(c.from.id, callback, toks)
		return struct{}{}, nil
	})
	return err
}

func (c *client) NotifyToken(ctx context.Context, addr, topic string) (bool, error) {
	return call(ctx, c, addr, "notify", func(_ context.Context, here Here) (bool, error) {
		return here.Notify(topic, c.from.id), nil
	})
}

func (c *client) Stats(ctx context.Context, addr, topic string, p int) ([]model.PartitionStats, error) {
	return call(ctx, c, addr, "stats", func(ctx context.Context, here Here) ([]model.PartitionStats, error) {
		return here.PartitionStats(ctx, topic, p)
	})
}

// jitter makes ways take from nothing to most.
func (c *cluster) jitter(seed uint64, most time.Duration) {
	rng := rand.New(rand.NewPCG(seed, 1))
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	var mu sync.Mutex
	c.wire.took = func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rng.Int64N(int64(most)))
	}
}
