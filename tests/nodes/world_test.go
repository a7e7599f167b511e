package nodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/fanout"
	"github.com/narad-mq/narad/internal/ingress"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dataDir = "data"

// world is nodes that share one replica of the metadata, always current.
type world struct {
	t     *testing.T
	log   *slog.Logger
	nodes []*node

	mu      sync.Mutex // guards what follows
	views   map[string]*model.TopicView
	version uint64
	dead    map[string]bool // by membership
	links   map[[2]string]fault
	ids     int
}

// fault is what a link does to requests from one node to another.
type fault struct {
	refuse bool          // the request never arrives, and the sender knows
	lose   bool          // the request is carried out, the reply lost
	silent bool          // the request never arrives, and nobody answers
	delay  time.Duration // before the request arrives
}

// node is one node; its parts are nil while it is down.
type node struct {
	w     *world
	id    string
	fs    *disk.Sim
	b     *broker.Broker
	in    *ingress.Ingress
	e     *fanout.Engine
	calls atomic.Int64 // commits that arrived from other nodes
}

// bubble runs f over n nodes in fake time, and closes them at the end.
func bubble(t *testing.T, n int, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, log: slog.New(slog.DiscardHandler),
			views: map[string]*model.TopicView{}, dead: map[string]bool{}, links: map[[2]string]fault{},
		}
		for i := range n {
			sim := disk.NewSim(int64(i + 1))
			sim.SetNow(time.Now)
			w.nodes = append(w.nodes, &node{w: w, id: fmt.Sprintf("n%d", i), fs: sim})
			w.nodes[i].start()
		}
		defer func() {
			for _, n := range w.nodes {
				n.stop()
			}
		}()
		f(t, w)
	})
}

// pass lets d go by, and everything that happens in it happen.
func pass(d time.Duration) {
	time.Sleep(d) // inside a bubble: fake time
	synctest.Wait()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (n *node) start() {
	w := n.w
	b, err := broker.Open(broker.Options{FS: n.fs, DataDir: dataDir, Node: n.id, Topics: w, Clock: clock.Real(), Logger: w.log})
	must(w.t, err)
	must(w.t, b.Recover(w.t.Context(), func(yield func(*model.TopicView) bool) { w.Range(yield) }))
	e, err := fanout.Open(fanout.Options{
		FS: n.fs, DataDir: dataDir, Node: n.id, Replica: w, Leader: w, Parents: b, Placement: children{n}, Peers: wire{n},
		Clock: clock.Real(), Logger: w.log, Linger: fanout.DefaultLinger,
	})
	must(w.t, err)
	in, err := ingress.Open(ingress.Options{
		FS: n.fs, Dir: dataDir + "/ingress/produce", Node: n.id, Clock: clock.Real(), Logger: w.log,
		Directory: w, Schemas: w, Placement: placement{n}, Confirmer: w,
	})
	must(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	n.b, n.e, n.in = b, e, in
}

// stop closes the node gracefully.
func (n *node) stop() {
	n.w.mu.Lock()
	b, e, in := n.b, n.e, n.in
	n.b, n.e, n.in = nil, nil, nil
	n.w.mu.Unlock()
	if b == nil {
		return
	}
	in.StopDispatch()
	_ = e.Close()
	_ = b.Close()
	_ = in.Close()
}

// kill takes the node down as a power cut does: its volume keeps what was synced.
func (n *node) kill(seed int64) {
	after := n.fs.Crash(seed)
	n.stop() // what it writes now is on the volume that is gone
	n.fs = after
	n.fs.SetNow(time.Now)
}

// running is the node's broker, nil while it is down.
func (n *node) running() *broker.Broker {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.b
}

func (w *world) node(id string) *node {
	for _, n := range w.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

// create makes a topic whose partitions lie on the named nodes.
func (w *world) create(name string, owners ...string) *model.TopicView {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	v := &model.TopicView{Topic: model.Topic{
		Name: name, ID: model.Incarnation(fmt.Sprintf("%016x", w.ids)), Partitions: len(owners),
		VisibilityTimeoutMS: 30_000, MaxInFlight: 10_000, MaxAckedAhead: 10_000,
	}, Owners: owners}
	w.views[name] = v
	w.version++
	return v
}

func (w *world) change(f func(views map[string]*model.TopicView)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.views)
	w.version++
}

// link sets what happens between two nodes, in one direction.
func (w *world) link(from, to string, f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links[[2]string{from, to}] = f
}

// reach sets what happens to everything that is sent to a node.
func (w *world) reach(to string, f fault) {
	for _, n := range w.nodes {
		w.link(n.id, to, f)
	}
}

func (w *world) setDead(id string, dead bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[id] = dead
}

func (w *world) isDead(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead[id]
}

// The replica, and the leader's word, which is what the replica shows.

func (w *world) Topic(name string) (*model.TopicView, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, ok := w.views[name]
	return v, ok
}

func (w *world) Range(f func(*model.TopicView) bool) {
	w.mu.Lock()
	views := slices.Collect(maps.Values(w.views))
	w.mu.Unlock()
	for _, v := range views {
		if !f(v) {
			return
		}
	}
}

func (w *world) TopicsVersion() uint64 { return w.Version(metastore.DomainTopics) }

func (w *world) Version(metastore.Domain) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.version
}

func (w *world) AppliedCaughtUp() error { return nil }

func (w *world) Check(context.Context, *model.TopicView, []byte) error { return nil }

func (w *world) ConfirmGone(_ context.Context, name string, id model.Incarnation) (bool, error) {
	v, ok := w.Topic(name)
	return !ok || id.Differs(v.ID), nil
}

func (w *world) ConfirmLink(_ context.Context, parent, child, epoch string) (metastore.Confirmation, error) {
	v, ok := w.Topic(child)
	if !ok || v.Parent != parent || epoch != "" && epoch != v.AttachEpoch {
		return metastore.Gone, nil
	}
	return metastore.Live, nil
}

// placement is who owns a partition, as a node of a cluster sees it.
type placement struct{ n *node }

func (p placement) Owner(topic string, partition int) (ingress.Owner, string, bool, error) {
	v, ok := p.n.w.Topic(topic)
	if !ok {
		return nil, "", false, model.ErrTopicNotFound
	}
	id := v.OwnerOf(partition)
	switch {
	case id == "":
		return nil, "", false, model.ErrUnavailable
	case id == p.n.id:
		return local(p), id, true, nil
	}
	return remote{wire{p.n}, id}, id, !p.n.w.isDead(id), nil
}

type children struct{ n *node }

func (c children) Owner(topic string, partition int) (fanout.Owner, error) {
	o, _, _, err := placement(c).Owner(topic, partition)
	return o, err
}

// local commits to this node's broker, whichever runs.
type local struct{ n *node }

func (l local) Commit(ctx context.Context, topic string, partition int, recs []model.Record) (int64, error) {
	b := l.n.running()
	if b == nil {
		return 0, model.ErrShuttingDown
	}
	return b.Commit(ctx, topic, partition, recs)
}

// remote commits to another node.
type remote struct {
	wire
	to string
}

var errLost = errors.New("the connection was lost")

func (r remote) Commit(ctx context.Context, topic string, partition int, recs []model.Record) (first int64, err error) {
	size := 0
	copies := make([]model.Record, len(recs)) // what the wire carries is not the sender's
	for i, rec := range recs {
		copies[i] = rec
		size += peer.CommitSize(&rec)
		copies[i].Key, copies[i].Payload = slices.Clone(rec.Key), slices.Clone(rec.Payload)
	}
	if size > peer.CommitBytesMax {
		r.from.w.t.Errorf("a commit of %d bytes and %d records to another node, more than %d", size, len(recs), peer.CommitBytesMax)
	}
	err = r.send(ctx, r.to, func(n *node) error {
		n.calls.Add(1)
		first, err = local{n}.Commit(ctx, topic, partition, copies)
		return err
	})
	return first, err
}

// wire is a node's way to the others.
type wire struct{ from *node }

// send carries one request over a link.
func (l wire) send(ctx context.Context, to string, request func(*node) error) error {
	l.from.w.mu.Lock()
	f := l.from.w.links[[2]string{l.from.id, to}]
	l.from.w.mu.Unlock()
	if f.delay > 0 {
		select {
		case <-time.After(f.delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	n := l.from.w.node(to)
	switch {
	case f.silent:
		<-ctx.Done()
		return ctx.Err()
	case f.refuse || n == nil || n.running() == nil:
		return peer.ErrUnreached
	}
	if err := request(n); err != nil || !f.lose {
		return err
	}
	return errLost
}

// Cursors implements fanout.Peers.
func (l wire) Cursors(ctx context.Context, to, parent, child string) (out []peer.CursorLag, err error) {
	if l.from.w.isDead(to) {
		return nil, model.ErrUnavailable
	}
	err = l.send(ctx, to, func(n *node) error {
		out, err = n.e.Cursors(ctx, parent, child)
		return err
	})
	return out, err
}

// stored reads what a partition holds, on its owner.
func (w *world) stored(topic string, p int) (payloads []string) {
	w.t.Helper()
	v, ok := w.Topic(topic)
	if !ok {
		w.t.Fatalf("no topic %s", topic)
	}
	b := w.node(v.OwnerOf(p)).running()
	for next := int64(0); ; {
		s, err := b.Slab(topic, v.ID, p, nil, next, commitlog.SlabLimit{MaxRecords: 1000, MaxBytes: 1 << 20})
		must(w.t, err)
		if len(s.Records) == 0 {
			return payloads
		}
		for _, r := range s.Records {
			payloads = append(payloads, string(r.Payload))
		}
		next = s.Next
	}
}

// counts is how often each payload is stored in any partition of a topic.
func (w *world) counts(topic string) map[string]int {
	w.t.Helper()
	v, _ := w.Topic(topic)
	out := map[string]int{}
	for p := range v.Partitions {
		for _, s := range w.stored(topic, p) {
			out[s]++
		}
	}
	return out
}

// backlog is what the dispatchers of all nodes still hold.
func (w *world) backlog() (n uint64) {
	for _, node := range w.nodes {
		if node.in != nil {
			n += node.in.Backlog()
		}
	}
	return n
}

// firsts drops repetitions, keeping where each payload shows up first.
func firsts(payloads []string) (out []string) {
	seen := map[string]bool{}
	for _, p := range payloads {
		if !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	return out
}

func text(format string, args ...any) string { return fmt.Sprintf(format, args...) }
