package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const node = "n1"

// start is where every test's clock stands at first; the simulated volume stamps its
// files from about then on.
var start = time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)

// replica is the metastore's read side as the broker sees it.
type replica struct {
	mu    sync.RWMutex
	views map[string]*model.TopicView
}

func (r *replica) Topic(name string) (*model.TopicView, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	v, ok := r.views[name]
	return v, ok
}

func (r *replica) set(name string, v *model.TopicView) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v == nil {
		delete(r.views, name)
	} else {
		r.views[name] = v
	}
}

func (r *replica) all() iter.Seq[*model.TopicView] {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Values(slices.Collect(maps.Values(r.views)))
}

// rig is a broker over a simulated volume.
type rig struct {
	t     testing.TB
	b     *Broker
	sim   *disk.Sim
	topic *replica
	clk   *clock.Fake
	reg   *prometheus.Registry
	log   *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newRig(t testing.TB, tweak ...func(*Options)) *rig {
	t.Helper()
	r := &rig{
		t: t, sim: disk.NewSim(1), clk: clock.NewFake(start),
		topic: &replica{views: map[string]*model.TopicView{}},
	}
	r.open(tweak...)
	t.Cleanup(func() { r.b.Close() })
	return r
}

// open starts a broker on the rig's volume, in place of the last one.
func (r *rig) open(tweak ...func(*Options)) {
	r.t.Helper()
	r.reg, r.log = prometheus.NewRegistry(), new(syncBuffer)
	o := Options{
		FS: r.sim, DataDir: "/data", Node: node, Topics: r.topic, Clock: r.clk,
		Logger: slog.New(slog.NewTextHandler(r.log, nil)), Registry: r.reg,
		IdleEviction: DefaultIdleEviction, ColdWalk: DefaultColdWalk,
	}
	for _, f := range tweak {
		f(&o)
	}
	b, err := Open(o)
	if err != nil {
		r.t.Fatalf("open broker: %v", err)
	}
	r.b = b
}

// reopen closes the broker and starts the next one on the same volume.
func (r *rig) reopen() {
	r.t.Helper()
	if err := r.b.Close(); err != nil {
		r.t.Fatalf("close broker: %v", err)
	}
	r.open()
}

func view(name string, partitions int, tweak ...func(*model.TopicView)) *model.TopicView {
	v := &model.TopicView{Topic: model.Topic{
		Name: name, ID: model.NewIncarnation(), Partitions: partitions,
		VisibilityTimeoutMS: 30_000, MaxInFlight: 1024, MaxAckedAhead: 1024,
	}}
	for range partitions {
		v.Owners = append(v.Owners, node)
	}
	for _, f := range tweak {
		f(v)
	}
	return v
}

// create applies v as the replica does.
func (r *rig) create(v *model.TopicView) *model.TopicView {
	r.topic.set(v.Name, v)
	r.b.TopicChanged(v.Name, v)
	return v
}

func (r *rig) remove(name string) {
	r.topic.set(name, nil)
	r.b.TopicChanged(name, nil)
}

func rec(s string) model.Record { return model.Record{Payload: []byte(s)} }

func recs(from, n int) []model.Record {
	out := make([]model.Record, n)
	for i := range out {
		out[i] = rec(fmt.Sprintf("m%d", from+i))
	}
	return out
}

func (r *rig) commit(topic string, p int, payloads ...string) int64 {
	r.t.Helper()
	var rs []model.Record
	for _, s := range payloads {
		rs = append(rs, rec(s))
	}
	first, err := r.b.Commit(context.Background(), topic, p, rs)
	if err != nil {
		r.t.Fatalf("commit to %s/%d: %v", topic, p, err)
	}
	return first
}

func (r *rig) consume(topic string, limit int) []model.Delivery {
	r.t.Helper()
	ds, err := r.b.Consume(context.Background(), ConsumeRequest{Topic: topic, Partition: -1, Max: limit})
	if err != nil {
		r.t.Fatalf("consume %s: %v", topic, err)
	}
	return ds
}

func (r *rig) one(topic string) model.Delivery {
	r.t.Helper()
	ds := r.consume(topic, 1)
	if len(ds) != 1 {
		r.t.Fatalf("consume %s: %d messages, want 1", topic, len(ds))
	}
	return ds[0]
}

func (r *rig) none(topic string) {
	r.t.Helper()
	if ds := r.consume(topic, 1); len(ds) != 0 {
		r.t.Fatalf("consume %s: got %q, want nothing", topic, ds[0].Payload)
	}
}

func (r *rig) settle(d model.Delivery, op model.SettleOp) error {
	return r.b.Settle(context.Background(), d.Topic, d.Handle, op)
}

func (r *rig) ack(d model.Delivery) {
	r.t.Helper()
	if err := r.settle(d, model.Ack); err != nil {
		r.t.Fatalf("ack %s offset %d: %v", d.Topic, d.Offset, err)
	}
}

// parked consumers, run in the background.
type polled struct {
	ds  []model.Delivery
	err error
}

func (r *rig) poll(ctx context.Context, req ConsumeRequest) <-chan polled {
	ch := make(chan polled, 1)
	go func() {
		ds, err := r.b.Consume(ctx, req)
		ch <- polled{ds, err}
	}()
	return ch
}

// awaitParked waits until n consumers are parked on the topic.
func (r *rig) awaitParked(topic string, n int64) {
	r.t.Helper()
	testutil.Eventually(r.t, 10*time.Second, func() bool {
		t := r.b.entry(topic)
		return t != nil && t.waiters.parked.Load() == n
	}, fmt.Sprintf("%d consumers parked on %s", n, topic))
}

func receive(t testing.TB, ch <-chan polled) polled {
	t.Helper()
	select {
	case p := <-ch:
		return p
	case <-time.After(10 * time.Second):
		t.Fatal("parked consumer did not return")
		return polled{}
	}
}

func payloads(ds []model.Delivery) []string {
	out := make([]string, len(ds))
	for i := range ds {
		out[i] = string(ds[i].Payload)
	}
	return out
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}
