package fanout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
	"github.com/narad-mq/narad/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	node    = "n1"
	dataDir = "data"
)

// epoch0 is where every test's clock stands at first.
var epoch0 = time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)

// replica is the metastore as the engine sees it: views that a test changes, and the
// leader's word, which a test may withhold or make another.
type replica struct {
	mu      sync.Mutex
	views   map[string]*model.TopicView
	version uint64
	behind  error
	silent  error                                     // why the leader cannot be asked
	leader  func(child string) (parent, epoch string) // nil = as the views
	asked   int
}

func newReplica() *replica { return &replica{views: map[string]*model.TopicView{}} }

func (r *replica) Topic(name string) (*model.TopicView, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.views[name]
	return v, ok
}

func (r *replica) Range(f func(*model.TopicView) bool) {
	r.mu.Lock()
	views := make([]*model.TopicView, 0, len(r.views))
	for _, v := range r.views {
		views = append(views, v)
	}
	r.mu.Unlock()
	for _, v := range views {
		if !f(v) {
			return
		}
	}
}

func (r *replica) Version(d metastore.Domain) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d == metastore.DomainTopics {
		return r.version
	}
	return 0
}

func (r *replica) AppliedCaughtUp() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.behind
}

func (r *replica) ConfirmLink(_ context.Context, parent, child, epoch string) (metastore.Confirmation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.silent != nil {
		return metastore.Unknown, r.silent
	}
	var under, now string
	if r.leader != nil {
		under, now = r.leader(child)
	} else if v := r.views[child]; v != nil {
		under, now = v.Parent, v.AttachEpoch
	}
	if under != parent || epoch != "" && epoch != now {
		return metastore.Gone, nil
	}
	return metastore.Live, nil
}

// change replaces views; nil deletes.
func (r *replica) change(views map[string]*model.TopicView) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, v := range views {
		if v == nil {
			delete(r.views, name)
		} else {
			r.views[name] = v
		}
	}
	r.version++
}

func (r *replica) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// rig is an engine over a real broker on a simulated volume.
type rig struct {
	t     testing.TB
	fs    *disk.Sim
	clk   *clock.Fake
	rep   *replica
	log   *slog.Logger
	b     *broker.Broker
	e     *Engine
	own   owners
	slabs atomic.Int64         // reads of parents
	reg   *prometheus.Registry // of the broker
	opt   Options              // what a test wants different
}

// owners lets commits fail: by partition of a topic.
type owners struct {
	mu    sync.Mutex
	b     *broker.Broker
	fail  map[model.PartitionKey]error
	calls map[model.PartitionKey]int
}

func (o *owners) Owner(string, int) (Owner, error) { return o, nil }

func (o *owners) Commit(ctx context.Context, topic string, p int, recs []model.Record) (int64, error) {
	k := model.PartitionKey{Topic: topic, Partition: p}
	o.mu.Lock()
	o.calls[k]++
	err, b := o.fail[k], o.b
	o.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return b.Commit(ctx, topic, p, recs)
}

func (o *owners) failing(k model.PartitionKey, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail[k] = err
}

// parents counts the reads of a broker's partitions.
type parents struct {
	*broker.Broker
	slabs *atomic.Int64
}

func (p parents) Slab(name string, id model.Incarnation, part int, dst []commitlog.Stored, from int64, lim commitlog.SlabLimit) (commitlog.Slab, error) {
	p.slabs.Add(1)
	return p.Broker.Slab(name, id, part, dst, from, lim)
}

func newRig(t testing.TB, tweak ...func(*rig)) *rig {
	t.Helper()
	r := &rig{t: t, fs: disk.NewSim(1)}
	r.prepare(newReplica())
	for _, f := range tweak {
		f(r)
	}
	r.open()
	t.Cleanup(r.close)
	return r
}

// prepare gives the rig everything but its engine and broker.
func (r *rig) prepare(rep *replica) {
	r.rep, r.clk, r.log = rep, clock.NewFake(epoch0), telemetry.Discard()
	r.own.fail, r.own.calls = map[model.PartitionKey]error{}, map[model.PartitionKey]int{}
	r.fs.SetNow(r.clk.Now)
}

func (r *rig) open() {
	r.t.Helper()
	must(r.t, r.tryOpen())
}

func (r *rig) tryOpen() error {
	r.reg = prometheus.NewRegistry()
	b, err := broker.Open(broker.Options{Registry: r.reg, FS: r.fs, DataDir: dataDir, Node: node, Topics: r.rep, Clock: r.clk, Logger: r.log})
	if err != nil {
		return err
	}
	r.b = b
	r.own.mu.Lock()
	r.own.b = b
	r.own.mu.Unlock()
	if err := b.Recover(context.Background(), func(yield func(*model.TopicView) bool) { r.rep.Range(yield) }); err != nil {
		return err
	}
	o := r.opt
	o.FS, o.DataDir, o.Node, o.Replica, o.Leader, o.Parents, o.Placement = r.fs, dataDir, node, r.rep, r.rep, parents{b, &r.slabs}, &r.own
	o.Clock, o.Logger = r.clk, r.log
	r.e, err = Open(o)
	return err
}

// close stops engine and broker. The clock stands meanwhile: no grace runs out.
func (r *rig) close() {
	if r.e != nil {
		r.e.Close()
		r.e = nil
	}
	if r.b != nil {
		_ = r.b.Close()
		r.b = nil
	}
}

func (r *rig) reopen() {
	r.t.Helper()
	r.close()
	r.open()
}

// Between two looks at a condition the clock moves by pumpStep, and the goroutines under
// test get pumpPace to act on it.
const (
	pumpStep = 20 * time.Millisecond
	pumpPace = 100 * time.Microsecond
)

// pump moves the clock until cond holds.
func (r *rig) pump(cond func() bool, what string) {
	r.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			r.t.Fatalf("never: %s", what)
		}
		<-time.After(pumpPace)
		r.clk.Advance(pumpStep)
	}
}

// pass moves the clock by d in steps, so that timers in between fire and are armed anew.
func (r *rig) pass(d time.Duration) {
	step := max(pumpStep, d/200)
	for ; d > 0; d -= step {
		<-time.After(pumpPace)
		r.clk.Advance(step)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// topic makes a topic.
func (r *rig) topic(name string, partitions int) *model.TopicView {
	v := &model.TopicView{Topic: model.Topic{
		Name: name, ID: model.NewIncarnation(), Partitions: partitions, VisibilityTimeoutMS: 30_000, MaxInFlight: 100, MaxAckedAhead: 100,
	}, Owners: slices.Repeat([]string{node}, partitions)}
	r.rep.change(map[string]*model.TopicView{name: v})
	return v
}

var epochs = struct {
	sync.Mutex
	n int
}{}

func newEpoch() string {
	epochs.Lock()
	defer epochs.Unlock()
	epochs.n++
	return fmt.Sprintf("%016x", epochs.n)
}

// attach links child under parent from the parent's present end on, and returns the
// epoch.
func (r *rig) attach(parent, child string, delay time.Duration) string {
	r.t.Helper()
	p, _ := r.rep.Topic(parent)
	var offsets []int64
	for i := range p.Partitions {
		h, err := r.b.HighWatermark(parent, p.ID, i)
		must(r.t, err)
		offsets = append(offsets, h)
	}
	return r.link(parent, child, delay, offsets)
}

func (r *rig) link(parent, child string, delay time.Duration, offsets []int64) string {
	p, _ := r.rep.Topic(parent)
	c, _ := r.rep.Topic(child)
	np, nc := *p, *c
	np.Children = append(slices.Clone(p.Children), child)
	nc.Parent, nc.AttachEpoch, nc.FanoutDelayMS, nc.AttachOffsets = parent, newEpoch(), delay.Milliseconds(), offsets
	r.rep.change(map[string]*model.TopicView{parent: &np, child: &nc})
	return nc.AttachEpoch
}

func (r *rig) detach(parent, child string) {
	p, _ := r.rep.Topic(parent)
	c, _ := r.rep.Topic(child)
	np, nc := *p, *c
	np.Children = slices.DeleteFunc(slices.Clone(p.Children), func(n string) bool { return n == child })
	nc.Parent, nc.AttachEpoch, nc.FanoutDelayMS, nc.AttachOffsets = "", "", 0, nil
	r.rep.change(map[string]*model.TopicView{parent: &np, child: &nc})
}

// commit stores payloads keyed by themselves in one partition.
func (r *rig) commit(topic string, p int, payloads ...string) {
	r.t.Helper()
	must(r.t, r.tryCommit(topic, p, payloads...))
}

func (r *rig) tryCommit(topic string, p int, payloads ...string) error {
	recs := make([]model.Record, len(payloads))
	for i, s := range payloads {
		recs[i] = model.Record{Key: []byte(s), Payload: []byte("payload of " + s)}
	}
	_, err := r.b.Commit(context.Background(), topic, p, recs)
	return err
}

// stored reads a whole partition.
func (r *rig) stored(topic string, p int) []commitlog.Stored {
	r.t.Helper()
	v, ok := r.rep.Topic(topic)
	if !ok {
		r.t.Fatalf("no topic %s", topic)
	}
	var out []commitlog.Stored
	for next := int64(0); ; {
		s, err := r.b.Slab(topic, v.ID, p, nil, next, commitlog.SlabLimit{MaxRecords: 1000, MaxBytes: 1 << 20})
		var aged *model.AgedOutError
		if errors.As(err, &aged) {
			next = aged.Oldest
			continue
		}
		must(r.t, err)
		if len(s.Records) == 0 {
			return out
		}
		out, next = append(out, s.Records...), s.Next
	}
}

// keys are the keys stored in all partitions of a topic, partition by partition.
func (r *rig) keys(topic string) []string {
	r.t.Helper()
	v, _ := r.rep.Topic(topic)
	var out []string
	for p := range v.Partitions {
		for _, s := range r.stored(topic, p) {
			if string(s.Payload) != "payload of "+string(s.Key) {
				r.t.Errorf("%s/%d: key %q with payload %q", topic, p, s.Key, s.Payload)
			}
			out = append(out, string(s.Key))
		}
	}
	return out
}

// sorted is keys in order, for comparing sets.
func (r *rig) sorted(topic string) []string {
	r.t.Helper()
	out := r.keys(topic)
	slices.Sort(out)
	return out
}

// has waits until the child holds exactly these keys.
func (r *rig) has(child string, want ...string) {
	r.t.Helper()
	want = slices.Clone(want)
	slices.Sort(want)
	r.pump(func() bool { return len(r.keys(child)) >= len(want) }, fmt.Sprintf("%s gets %d records", child, len(want)))
	got := r.sorted(child)
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			r.t.Fatalf("%s holds %d records, want %d; in order, number %d is %s, want %s", child, len(got), len(want), i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		r.t.Fatalf("%s holds %d records, want %d: %.200v", child, len(got), len(want), got)
	}
}

// caughtUp waits until a child's listing is complete and its lag 0.
func (r *rig) caughtUp(parent, child string) {
	r.t.Helper()
	r.pump(func() bool {
		v, _ := r.rep.Topic(parent)
		for _, c := range r.e.Children(context.Background(), v) {
			if c.Name == child {
				return c.LagComplete && c.LagMessages == 0
			}
		}
		return false
	}, child+" has no lag")
}

// file is the cursor file of a place.
func (r *rig) file(parent string, p int, child string) string {
	name, err := cursorPath(dataDir, place{parent, p, child})
	must(r.t, err)
	return name
}

// position is what a cursor file holds; false when there is none.
func (r *rig) position(parent string, p int, child string) (record, bool) {
	f := cursorFile{fs: r.fs, name: r.file(parent, p, child)}
	rec, err := f.read()
	return rec, err == nil
}

func (r *rig) exists(name string) bool {
	infos, err := r.fs.List(path.Dir(name))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(infos, func(i disk.Info) bool { return i.Name == path.Base(name) })
}

func numbered(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%04d", prefix, i)
	}
	return out
}

// crashPoints runs a workload on a volume with a partition directory, cutting the power
// at every call in turn; done says that the run was complete.
func crashPoints(t *testing.T, run func(*disk.Sim) error, check func(t *testing.T, s *disk.Sim, done bool)) {
	t.Helper()
	var last *disk.Sim
	testutil.CrashPoints(t, func() *disk.Sim {
		s := disk.NewSim(1)
		must(t, disk.MkdirDurable(s, "data/topics/p/p00000"))
		last = s
		return s
	}, run, func(crashed *disk.Sim, _ int) { check(t, crashed, !last.Crashed()) })
}
