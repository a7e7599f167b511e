package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/lease"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/position"
	"github.com/narad-mq/narad/internal/testutil"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dir = "/data/topics/orders/p00000"

// rig is one partition on a simulated volume.
type rig struct {
	*Partition
	t     testing.TB
	sim   *disk.Sim
	clk   *clock.Fake
	com   *position.Committer
	log   *bytes.Buffer
	live  atomic.Value // model.Incarnation
	gate  atomic.Pointer[error]
	wakes atomic.Int64
	due   atomic.Int64
}

func newRig(t testing.TB, tweak ...func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, sim: disk.NewSim(1), clk: clock.NewFake(time.Unix(1_700_000_000, 0)), log: new(bytes.Buffer)}
	r.live.Store(model.Incarnation(""))
	r.com = position.NewCommitter(position.Options{FS: r.sim, Clock: r.clk, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { r.com.Close() })
	r.open(tweak...)
	return r
}

func (r *rig) open(tweak ...func(*Options)) {
	r.t.Helper()
	epoch := r.clk.Now()
	o := Options{
		Log: commitlog.Options{
			FS: r.sim, Dir: dir, Topic: "orders", Clock: r.clk, Logger: slog.New(slog.NewTextHandler(r.log, nil)),
		},
		Caps:      lease.Caps{MaxInFlight: 1024, MaxAckedAhead: 1024, Visibility: 30 * time.Second},
		Committer: r.com,
		Counters:  NewMetrics(nil).For("orders", 0),
		Buffers:   NewBuffers(),
		Gate: func() (model.Incarnation, error) {
			if err := r.gate.Load(); err != nil {
				return "", *err
			}
			return r.live.Load().(model.Incarnation), nil
		},
		Wake: func() { r.wakes.Add(1) },
		Due:  func(_ *Partition, at int64) { r.due.Store(at) },
		Now:  func() int64 { return int64(r.clk.Now().Sub(epoch)) },
	}
	for _, f := range tweak {
		f(&o)
	}
	p, err := Open(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Partition = p
	r.t.Cleanup(func() { p.Close() })
}

func (r *rig) commit(payloads ...string) int64 {
	r.t.Helper()
	var recs []model.Record
	for _, s := range payloads {
		recs = append(recs, model.Record{Payload: []byte(s)})
	}
	first, err := r.Commit(context.Background(), recs)
	if err != nil {
		r.t.Fatal(err)
	}
	return first
}

func (r *rig) take(n int) []model.Delivery {
	r.t.Helper()
	ds, err := r.Take(nil, &Budget{Messages: n, Bytes: 4 << 20})
	if err != nil {
		r.t.Fatal(err)
	}
	return ds
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

func TestCombinerUnderContention(t *testing.T) {
	r := newRig(t)
	const callers, each = 32, 40
	var wg sync.WaitGroup
	var mu sync.Mutex
	at := map[int64]string{} // offset -> what its caller was told is there
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				recs := make([]model.Record, 1+i%3)
				for j := range recs {
					recs[j].Payload = fmt.Appendf(nil, "%d/%d/%d", c, i, j)
				}
				first, err := r.Commit(context.Background(), recs)
				if err != nil {
					t.Errorf("commit: %v", err)
					return
				}
				mu.Lock()
				for j := range recs {
					at[first+int64(j)] = string(recs[j].Payload)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if got := r.Log().HighWatermark(); got != int64(len(at)) {
		t.Fatalf("high watermark %d, %d records answered", got, len(at))
	}
	for off, want := range at {
		m, ok, err := r.Read(off)
		if err != nil || !ok || string(m.Payload) != want {
			t.Fatalf("offset %d holds %q (%v %v), its caller was told %q", off, m.Payload, ok, err, want)
		}
	}
	if got := promtest.ToFloat64(r.counters.MessagesProduced); got != float64(len(at)) {
		t.Errorf("counted %v produced, want %d", got, len(at))
	}
}

// hold blocks the produce lock so that batches queue up, and answers how to let go.
func hold(p *Partition) (release func()) {
	p.produce.Lock()
	return p.produce.Unlock
}

func queued(p *Partition) int {
	p.combiner.mu.Lock()
	defer p.combiner.mu.Unlock()
	return len(p.combiner.queue)
}

func TestCombinerSharesOneCycle(t *testing.T) {
	r := newRig(t)
	r.commit("first")
	release := hold(r.Partition)
	const callers = 20
	errs := make(chan error, callers)
	for i := range callers {
		go func() {
			_, err := r.Commit(context.Background(), []model.Record{{Payload: fmt.Append(nil, i)}})
			errs <- err
		}()
	}
	testutil.Eventually(t, 5*time.Second, func() bool { return queued(r.Partition) == callers }, "callers to queue")
	wakes := r.wakes.Load()
	release()
	for range callers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if n := r.wakes.Load() - wakes; n != 1 {
		t.Errorf("%d commits for %d queued batches, want 1", n, callers)
	}
}

func TestCombinerBoundsACycle(t *testing.T) {
	var c combiner
	c.produce = new(sync.Mutex)
	for range 3 {
		c.queue = append(c.queue, new(batch).set(context.Background(), make([]model.Record, CycleRecordsMax/2)))
	}
	c.take()
	if len(c.run) != 2 || len(c.queue) != 1 {
		t.Fatalf("took %d batches of half the record bound, left %d", len(c.run), len(c.queue))
	}
	c.queue = c.queue[:0]
	big := []model.Record{{Payload: make([]byte, CycleBytesMax+1)}}
	c.queue = append(c.queue, new(batch).set(context.Background(), big), new(batch).set(context.Background(), big))
	c.take()
	if len(c.run) != 1 || len(c.queue) != 1 {
		t.Fatalf("took %d batches above the byte bound, left %d; the first goes whatever its size", len(c.run), len(c.queue))
	}
}

func TestCombinerLeavesOutWhoGaveUp(t *testing.T) {
	r := newRig(t)
	release := hold(r.Partition)
	gone, cancel := context.WithCancel(context.Background())
	results := make(chan error, 3)
	submit := func(ctx context.Context, s string, n int) {
		go func() {
			_, err := r.Commit(ctx, []model.Record{{Payload: []byte(s)}})
			results <- err
		}()
		testutil.Eventually(t, 5*time.Second, func() bool { return queued(r.Partition) == n }, s+" to queue")
	}
	submit(gone, "leader", 1) // leads, so it cannot leave, but is left out
	submit(gone, "waiter", 2)
	submit(context.Background(), "stays", 3)
	cancel()
	wantErr(t, <-results, context.Canceled) // the waiter leaves at once
	testutil.Eventually(t, 5*time.Second, func() bool { return queued(r.Partition) == 2 }, "the waiter to leave")
	release()
	var kept int
	for range 2 {
		if err := <-results; err == nil {
			kept++
		} else {
			wantErr(t, err, context.Canceled)
		}
	}
	if m, ok, _ := r.Read(0); kept != 1 || !ok || string(m.Payload) != "stays" || r.Log().HighWatermark() != 1 {
		t.Fatalf("stored %q, high watermark %d", m.Payload, r.Log().HighWatermark())
	}
}

func TestCombinerCancelStorm(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	var stored atomic.Int64
	for range 16 {
		wg.Go(func() {
			for i := range 60 {
				ctx, cancel := context.WithCancel(context.Background())
				if i%2 == 0 {
					go cancel()
				}
				if _, err := r.Commit(ctx, []model.Record{{Payload: []byte("x")}}); err == nil {
					stored.Add(1)
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if got := r.Log().HighWatermark(); got != stored.Load() {
		t.Fatalf("high watermark %d, %d commits answered well", got, stored.Load())
	}
	r.commit("the combiner still works")
}

func TestCombinerSurvivesAPanic(t *testing.T) { // F32
	boom := true
	r := newRig(t, func(o *Options) {
		gate := o.Gate
		o.Gate = func() (model.Incarnation, error) {
			if boom {
				boom = false
				panic("boom")
			}
			return gate()
		}
	})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		r.Commit(context.Background(), []model.Record{{Payload: []byte("x")}})
	}()
	r.commit("locks were released")
}

func TestChecksUnderTheLock(t *testing.T) {
	id := model.NewIncarnation()
	r := newRig(t, func(o *Options) { o.Incarnation = id })
	r.live.Store(id)
	ctx := context.Background()
	batch := func(inc model.Incarnation) []model.Record {
		return []model.Record{{Payload: []byte("x")}, {Payload: []byte("y"), Incarnation: inc}}
	}
	_, err := r.Commit(ctx, batch(model.NewIncarnation()))
	wantErr(t, err, model.ErrIncarnation)
	if _, err = r.Commit(ctx, batch(id)); err != nil {
		t.Fatal(err)
	}
	r.live.Store(model.NewIncarnation()) // equal to the log's is not enough
	_, err = r.Commit(ctx, batch(id))
	wantErr(t, err, model.ErrIncarnation)
	refused := fmt.Errorf("%w: moved", model.ErrNotOwner)
	r.gate.Store(&refused)
	_, err = r.Commit(ctx, batch(""))
	wantErr(t, err, model.ErrNotOwner)
	if got := r.Log().HighWatermark(); got != 2 {
		t.Fatalf("high watermark %d, want 2", got)
	}
}

func TestFreezeStopsCommitsAndLeases(t *testing.T) {
	r := newRig(t)
	r.commit("a", "b")
	d := r.take(1)[0]
	hwm, err := r.Freeze(10 * time.Second)
	if err != nil || hwm != 2 {
		t.Fatalf("freeze: %d %v", hwm, err)
	}
	_, err = r.Commit(context.Background(), []model.Record{{Payload: []byte("c")}})
	wantErr(t, err, model.ErrNotOwner)
	if ds := r.take(1); len(ds) != 0 {
		t.Fatal("leased while frozen")
	}
	if err := r.Settle(d.Handle, model.Ack); err != nil {
		t.Fatalf("acks must go on: %v", err)
	}
	wakes := r.wakes.Load()
	r.Thaw()
	if r.wakes.Load() == wakes {
		t.Error("thaw woke nobody")
	}
	r.commit("c")
	if _, err := r.Freeze(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if at := r.due.Load(); at != int64(10*time.Second) {
		t.Errorf("asked to be expired at %v, want 10s", time.Duration(at))
	}
	r.clk.Advance(10 * time.Second)
	wakes = r.wakes.Load()
	r.Expire()
	if r.wakes.Load() == wakes {
		t.Error("a lapsed freeze woke nobody")
	}
	r.commit("d") // serves again by itself
	if ds := r.take(10); len(ds) != 3 {
		t.Fatalf("%d messages after the freeze lapsed, want 3", len(ds))
	}
}

func TestExpireArmsOnce(t *testing.T) {
	r := newRig(t)
	if _, ok := r.Expire(); ok {
		t.Fatal("expiry due on an untouched partition")
	}
	r.commit("a", "b", "c")
	r.take(1)
	if at := r.due.Swap(0); at != int64(30*time.Second) {
		t.Fatalf("due at %v", time.Duration(at))
	}
	r.clk.Advance(time.Second)
	r.take(1)
	if at := r.due.Load(); at != 0 {
		t.Fatalf("told a second time, for %v", time.Duration(at))
	}
	r.clk.Advance(29 * time.Second)
	next, ok := r.Expire()
	if !ok || next != int64(31*time.Second) {
		t.Fatalf("next %v %v, want the second lease's", time.Duration(next), ok)
	}
	r.clk.Advance(time.Second)
	if _, ok = r.Expire(); ok {
		t.Fatal("still due with no lease out")
	}
	r.take(1)
	if r.due.Load() == 0 {
		t.Fatal("not told of the first lease after an empty Expire")
	}
}

func TestC_24_CorruptRecordIsSkippedCountedAndLogged(t *testing.T) { // C8
	r := newRig(t)
	r.commit("aaaa")
	r.commit("bbbb")
	r.commit("cccc")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.sim.Corrupt(dir+"/00000000000000000000.log", func(b []byte) []byte {
		b[bytes.Index(b, []byte("bbbb"))] ^= 1
		return b
	}); err != nil {
		t.Fatal(err)
	}
	r.open()
	ds := r.take(10)
	if len(ds) != 2 || string(ds[0].Payload) != "aaaa" || string(ds[1].Payload) != "cccc" {
		t.Fatalf("delivered %d: %v", len(ds), ds)
	}
	if got := promtest.ToFloat64(r.counters.CorruptSkipped); got != 1 {
		t.Errorf("counted %v, want 1", got)
	}
	if n := strings.Count(r.log.String(), "skipped permanently-unreadable record"); n != 1 {
		t.Errorf("%d log lines, want 1: %s", n, r.log)
	}
	for _, d := range ds {
		if err := r.Settle(d.Handle, model.Ack); err != nil {
			t.Fatal(err)
		}
	}
	if g := r.Gauges(); g.Frontier != 3 || g.AckedAhead != 0 {
		t.Errorf("frontier %d with %d ahead, want 3 and none", g.Frontier, g.AckedAhead)
	}
}

// C8, F24: thousands of records of a sealed segment that is gone are one step, one line
// and exact counters; the take that meets them answers with what lies behind.
func TestC_24_LongDamageIsOneStep(t *testing.T) {
	const records = 10_000
	r := newRig(t, func(o *Options) { o.Log.SegmentBytes = 1 << 10 })
	r.commit("before")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.open(func(o *Options) { o.Log.SegmentBytes = 1 }) // seals at every commit
	r.commit("sealed")
	r.commit(make([]string, records)...)
	r.commit("behind")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.sim.Remove(dir + fmt.Sprintf("/%020d.log", 2)); err != nil {
		t.Fatal(err)
	}
	r.open()
	ds := r.take(10)
	if len(ds) != 3 || string(ds[1].Payload) != "sealed" || string(ds[2].Payload) != "behind" {
		t.Fatalf("delivered %d: %v", len(ds), ds)
	}
	if got := promtest.ToFloat64(r.counters.CorruptSkipped); got != records {
		t.Errorf("counted %v, want %d", got, records)
	}
	if n := strings.Count(r.log.String(), "skipped permanently-unreadable record"); n != 1 {
		t.Errorf("%d log lines, want 1", n)
	}
}

func TestC_26_RetentionGapIsJumpedInOneStep(t *testing.T) { // C8
	r := newRig(t, func(o *Options) { o.Log.SegmentBytes, o.Log.MaxAge = 200, time.Hour })
	for i := range 50 {
		r.commit(fmt.Sprintf("message %04d", i))
	}
	held := r.take(2)
	r.clk.Advance(2 * time.Hour)
	r.commit("fresh")
	if _, err := r.Sweep(r.clk.Now()); err != nil {
		t.Fatal(err)
	}
	oldest := r.Log().OldestOffset()
	if oldest < 10 {
		t.Fatalf("oldest is %d, the sweep did not delete", oldest)
	}
	ds := r.take(100)
	if len(ds) == 0 || ds[0].Offset != oldest || string(ds[len(ds)-1].Payload) != "fresh" {
		t.Fatalf("delivered %d from offset %d, want from %d", len(ds), ds[0].Offset, oldest)
	}
	if n := strings.Count(r.log.String(), "consumer frontier fell behind retention; skipped to oldest retained offset"); n != 1 {
		t.Errorf("%d log lines, want 1", n)
	}
	wantErr(t, r.Settle(held[0].Handle, model.Ack), model.ErrNoLease)
	_, _, err := r.Read(0)
	wantErr(t, err, model.ErrOffsetGone)
}

func TestC_16_ReadErrorGivesTheReservationBack(t *testing.T) {
	r := newRig(t)
	r.commit("a", "b")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.open() // with nothing in memory
	eio := errors.New("EIO")
	if err := r.WarmQueue(); err != nil {
		t.Fatal(err)
	}
	r.sim.Fail(disk.Rule{Op: disk.OpRead, Path: "*.log", Err: eio})
	ds, err := r.Take(nil, &Budget{Messages: 10, Bytes: 1 << 20})
	wantErr(t, err, eio)
	if len(ds) != 0 || r.Gauges().InFlight != 0 {
		t.Fatalf("%d delivered, %d leased after a failed read", len(ds), r.Gauges().InFlight)
	}
	r.sim.ClearRules()
	if ds := r.take(10); len(ds) != 2 || ds[0].Count != 1 {
		t.Fatalf("%d delivered, first count %d", len(ds), ds[0].Count)
	}
}

func TestClosedPartitionAnswersOnlyClosed(t *testing.T) {
	r := newRig(t)
	r.commit("a", "b")
	r.take(1)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatalf("second close: %v", err)
	}
	_, err := r.Take(nil, &Budget{Messages: 1, Bytes: 1})
	wantErr(t, err, model.ErrLogClosed)
	_, err = r.Commit(context.Background(), []model.Record{{Payload: []byte("x")}})
	wantErr(t, err, model.ErrLogClosed)
	_, _, err = r.Read(0)
	wantErr(t, err, model.ErrLogClosed)
}

func TestRestingNeedsLeasesBackAndAcksOnDisk(t *testing.T) {
	r := newRig(t)
	r.commit("a")
	if !r.Resting() {
		t.Fatal("a partition nobody consumes is not resting")
	}
	d := r.take(1)[0]
	if r.Resting() {
		t.Fatal("resting with a lease out")
	}
	if err := r.Settle(d.Handle, model.Ack); err != nil {
		t.Fatal(err)
	}
	if r.Resting() {
		t.Fatal("resting before the ack is on disk")
	}
	testutil.Eventually(t, 10*time.Second, func() bool {
		r.clk.Advance(time.Second)
		return r.Resting()
	}, "the ack to reach the disk")
}

func TestC14_HandleOfAnotherLeaseSettlesNothing(t *testing.T) {
	r := newRig(t)
	r.commit("a", "b")
	ds := r.take(2)
	h := ds[0].Handle
	h.Nonce = ds[1].Handle.Nonce
	wantErr(t, r.Settle(h, model.Ack), model.ErrNoLease)
	if r.Gauges().InFlight != 2 {
		t.Fatal("a forged handle ended a lease")
	}
}

func TestCombinerHandsTheLeadToTheOldestWaiter(t *testing.T) {
	inCycle, release := make(chan struct{}), make(chan struct{})
	var cycles atomic.Int64
	r := newRig(t, func(o *Options) {
		gate := o.Gate
		o.Gate = func() (model.Incarnation, error) {
			if cycles.Add(1) == 1 {
				close(inCycle)
				<-release
			}
			return gate()
		}
	})
	results := make(chan error, 3)
	submit := func() {
		_, err := r.Commit(context.Background(), []model.Record{{Payload: []byte("x")}})
		results <- err
	}
	go submit()
	<-inCycle
	for n := range 2 { // nobody else comes after these
		go submit()
		testutil.Eventually(t, 5*time.Second, func() bool { return queued(r.Partition) == n+1 }, "a waiter to queue")
	}
	close(release)
	for range 3 {
		select {
		case err := <-results:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a waiter was left behind without a leader")
		}
	}
	if n := cycles.Load(); n != 2 {
		t.Errorf("%d cycles, want 2", n)
	}
}
