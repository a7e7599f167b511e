package ingress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	self = "n0"
	idA  = model.Incarnation("00112233aabbccdd")
	idB  = model.Incarnation("ffeeddcc00112233")
)

// world is the cluster as a test sees it: topics, owners, membership, leader. It
// implements Directory, Schemas, Placement and Confirmer.
type world struct {
	version atomic.Uint64
	mu      sync.Mutex
	topics  map[string]*model.TopicView
	nodes   map[string]*node  // by member id
	owners  map[string]string // "topic/partition" -> member id; absent = self
	noOwner map[string]bool   // "topic/partition"
	leader  bool              // whether ConfirmGone gets an answer
	asked   int
}

func newWorld() *world {
	w := &world{
		topics: map[string]*model.TopicView{}, nodes: map[string]*node{}, owners: map[string]string{},
		noOwner: map[string]bool{}, leader: true,
	}
	w.node(self)
	return w
}

func (w *world) create(name string, id model.Incarnation, partitions int) *model.TopicView {
	v := &model.TopicView{Topic: model.Topic{Name: name, ID: id, Partitions: partitions}}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.topics[name] = v
	w.version.Add(1)
	return v
}

// Check refuses payloads that hold "bad", on topics with a schema, and is asked for no
// other.
func (w *world) Check(ctx context.Context, view *model.TopicView, payload []byte) error {
	switch {
	case view.SchemaVersion == 0:
		return errors.New("asked for a topic without schema")
	case ctx.Err() != nil:
		return ctx.Err()
	case bytes.Contains(payload, []byte("bad")):
		return fmt.Errorf("%w: schema: no", model.ErrInvalid)
	case bytes.Contains(payload, []byte("busy")):
		return model.ErrSchemaBusy
	}
	return nil
}

func (w *world) remove(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.topics, name)
	w.version.Add(1)
}

func (w *world) own(topic string, partition int, node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owners[fmt.Sprint(topic, "/", partition)] = node
}

func (w *world) setUnowned(topic string, partition int, unowned bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noOwner[fmt.Sprint(topic, "/", partition)] = unowned
}

func (w *world) setLeader(up bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leader = up
}

func (w *world) node(id string) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[id]
	if n == nil {
		n = &node{world: w, id: id, alive: true, logs: map[string][]model.Record{}}
		w.nodes[id] = n
	}
	return n
}

func (w *world) Topic(name string) (*model.TopicView, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, ok := w.topics[name]
	return v, ok
}

func (w *world) TopicsVersion() uint64 { return w.version.Load() }

func (w *world) Owner(topic string, partition int) (Owner, string, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := fmt.Sprint(topic, "/", partition)
	if w.noOwner[at] {
		return nil, "", false, model.ErrUnavailable
	}
	id := self
	if o, ok := w.owners[at]; ok {
		id = o
	}
	n := w.nodes[id]
	return n, id, n.isAlive(), nil
}

func (w *world) ConfirmGone(_ context.Context, name string, id model.Incarnation) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if !w.leader {
		return false, model.ErrUnavailable
	}
	v, ok := w.topics[name]
	return !ok || id.Differs(v.ID), nil
}

// node is an owner that keeps what it commits in memory.
type node struct {
	world *world
	id    string

	mu      sync.Mutex
	alive   bool
	logs    map[string][]model.Record // by "topic/partition"
	commits int
	silent  bool                                                         // no commit is answered before its context ends
	foreign int                                                          // batches refused for their incarnation
	refuse  func(topic string, partition int, recs []model.Record) error // before anything is stored
	block   func(ctx context.Context, topic string, partition int)
}

func (n *node) isAlive() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.alive
}

func (n *node) set(f func(n *node)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n)
}

// Commit refuses records of another incarnation, as the broker does.
func (n *node) Commit(ctx context.Context, topic string, partition int, recs []model.Record) (int64, error) {
	n.mu.Lock()
	block, refuse, silent := n.block, n.refuse, n.silent
	n.mu.Unlock()
	if silent {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if block != nil {
		block(ctx, topic, partition)
	}
	if refuse != nil {
		if err := refuse(topic, partition, recs); err != nil {
			return 0, err
		}
	}
	v, ok := n.world.Topic(topic)
	if !ok {
		return 0, model.ErrTopicNotFound
	}
	for _, r := range recs {
		if r.Incarnation.Differs(v.ID) {
			n.set(func(n *node) { n.foreign++ })
			return 0, model.ErrIncarnation
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	at := fmt.Sprint(topic, "/", partition)
	first := int64(len(n.logs[at]))
	n.logs[at] = append(n.logs[at], recs...)
	n.commits++
	return first, nil
}

// stored returns the payloads of a partition in order.
func (n *node) stored(topic string, partition int) (payloads []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.logs[fmt.Sprint(topic, "/", partition)] {
		payloads = append(payloads, string(r.Payload))
	}
	return payloads
}

// all counts every payload stored anywhere.
func (w *world) all() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := map[string]int{}
	for _, n := range w.nodes {
		n.mu.Lock()
		for _, log := range n.logs {
			for _, r := range log {
				count[string(r.Payload)]++
			}
		}
		n.mu.Unlock()
	}
	return count
}

func (w *world) options(fs disk.FS, clk clock.Clock) Options {
	return Options{
		FS: fs, Dir: "data/ingress/produce", Node: self, Clock: clk, Logger: slog.New(slog.DiscardHandler),
		Directory: w, Schemas: w, Placement: w, Confirmer: w,
	}
}

func mustOpen(t testing.TB, o Options) *Ingress {
	t.Helper()
	in, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func mustClose(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustAccept(t testing.TB, in *Ingress, topic string, m Message) {
	t.Helper()
	if err := in.Accept(t.Context(), topic, m); err != nil {
		t.Fatal(err)
	}
}

func text(format string, args ...any) []byte { return fmt.Appendf(nil, format, args...) }

func newRegistry() *prometheus.Registry { return prometheus.NewRegistry() }

var epoch = time.Unix(1_700_000_000, 0)
