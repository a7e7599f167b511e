package position

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
	"github.com/narad-mq/narad/internal/testutil"
)

const patience = 20 * time.Second

// TestGoroutine drives the real loop with the fake clock: no timer while idle, one
// while there is something to do, and none again when all is level.
func TestGoroutine(t *testing.T) {
	sim := durableDir(t)()
	clk := clock.NewFake(time.Unix(1_767_225_600, 0))
	c := NewCommitter(Options{FS: sim, Clock: clk, Logger: telemetry.Discard(), Interval: interval,
		Registry: prometheus.NewRegistry()})
	s := &shard{pos: model.NoPosition()}
	tr := c.Track(key, dir, testInc, s)
	if clk.Timers() != 0 {
		t.Fatal("an idle committer holds a timer")
	}
	s.ack(0)
	tr.Dirty()
	testutil.Eventually(t, patience, func() bool { return clk.Timers() == 1 }, "a timer after the first ack")
	clk.Advance(c.tick)
	testutil.Eventually(t, patience, func() bool { return equal(load(t, sim), settled(0)) }, "the window written")
	for range c.turns {
		testutil.Eventually(t, patience, func() bool { return clk.Timers() == 1 }, "a timer until it is durable")
		clk.Advance(c.tick)
	}
	testutil.Eventually(t, patience, func() bool { return clk.Timers() == 1 }, "a timer until it is level")
	clk.Advance(LevelInterval)
	testutil.Eventually(t, patience, func() bool { return tr.Level() && clk.Timers() == 0 }, "level, and no timer left")

	s.ack(1)
	tr.Dirty()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	tr.Dirty() // too late, and harmless
	tr.Forget()
	after := sim.Crash(1)
	if got := load(t, after); !equal(got, settled(1)) || offset(t, after, dir) != 1 {
		t.Errorf("after Close: %+v, consumer.offset %d", got, offset(t, after, dir))
	}
}

// TestCloseReportsWhatIsBehind.
func TestCloseReportsWhatIsBehind(t *testing.T) {
	sim := durableDir(t)()
	c := NewCommitter(Options{FS: sim, Clock: clock.Real(), Logger: telemetry.Discard()})
	s := &shard{pos: model.NoPosition()}
	tr := c.Track(key, dir, testInc, s)
	s.ack(0)
	sim.CrashAt(1)
	tr.Dirty()
	if err := c.Close(); err == nil || c.Close() == nil {
		t.Error("Close hides a failure")
	}
}

// TestConcurrentUse acks, forgets and tracks again from many goroutines beside the
// real loop; each life must find what it may and the race detector must be quiet.
func TestConcurrentUse(t *testing.T) {
	sim := disk.NewSim(1)
	c := NewCommitter(Options{FS: sim, Clock: clock.Real(), Logger: telemetry.Discard(),
		Interval: 10 * time.Millisecond, MaxFiles: 2})
	var wg sync.WaitGroup
	for i := range 6 {
		d := partDir(i)
		if err := disk.MkdirDurable(sim, d); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			k := model.PartitionKey{Topic: "jobs", Partition: i}
			for life := range int64(8) {
				pos, err := Load(sim, d, testInc)
				if err != nil {
					t.Error(err)
					return
				}
				s := &shard{pos: pos}
				tr := c.Track(k, d, testInc, s)
				for o := range int64(300) {
					s.ack(life*300 + o)
					tr.Dirty()
				}
				testutil.Eventually(t, patience, func() bool {
					got, err := Load(sim, d, testInc)
					return err == nil && covers(got, s.position())
				}, fmt.Sprintf("partition %d life %d written", i, life))
				tr.Forget()
				s.ack(1 << 40)
				tr.Dirty()
			}
		})
	}
	wg.Wait()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for i := range 6 {
		if got, err := Load(sim, partDir(i), testInc); err != nil || holds(got, 1<<40) {
			t.Errorf("partition %d: %+v %v: written after Forget", i, got, err)
		}
	}
}

// TestForgetWaitsForTheTick that is at its partition.
func TestForgetWaitsForTheTick(t *testing.T) {
	r := newRig(t, durableDir(t)())
	tr, s := r.open(key, dir, testInc)
	inside, leave := make(chan struct{}), make(chan struct{})
	s.snapshot = func() { close(inside); <-leave }
	s.ack(0)
	tr.Dirty()
	stepped := make(chan struct{})
	go func() { defer close(stepped); r.tick() }()
	<-inside
	var forgotten atomic.Bool
	done := make(chan struct{})
	go func() { defer close(done); tr.Forget(); forgotten.Store(true) }()
	if tr.Level() || forgotten.Load() {
		t.Error("not waited for")
	}
	close(leave)
	<-stepped
	<-done
	before := contents(t, r.fs.(*disk.Sim))
	tr.Dirty()
	r.durably()
	if after := contents(t, r.fs.(*disk.Sim)); after != before {
		t.Errorf("files changed after Forget: %s, then %s", before, after)
	}
}

func TestDirtyAllocatesNothing(t *testing.T) {
	r := newRig(t, durableDir(t)())
	tr, _ := r.open(key, dir, testInc)
	if n := testing.AllocsPerRun(1000, tr.Dirty); n != 0 {
		t.Errorf("%v allocations", n)
	}
	r.durably()
	n := testing.AllocsPerRun(200, func() {
		tr.Dirty()
		r.c.takeQueue(false)
		tr.isDirty.Store(false)
	})
	if n != 0 {
		t.Errorf("%v allocations with a fresh queue each time", n)
	}
}

// BenchmarkDirty is one ack's share: all but the first of a tick take one load.
func BenchmarkDirty(b *testing.B) {
	c := NewCommitter(Options{FS: disk.OS{}, Clock: clock.Real(), Logger: telemetry.Discard()})
	defer c.Close()
	tr := c.Track(key, b.TempDir(), testInc, &shard{pos: model.NoPosition()})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			tr.Dirty()
		}
	})
}

// BenchmarkTick writes the windows of 1,000 dirty partitions, with full sets, without
// their syncs.
func BenchmarkTick(b *testing.B) {
	const partitions = 1000
	r := newRig(b, disk.OS{})
	opts := r.options()
	opts.Interval = time.Hour
	opts.Logger = telemetry.Discard()
	r.c = newCommitter(opts)
	root := b.TempDir()
	full := &shard{pos: model.NoPosition()}
	for i := range int64(1024) {
		full.pos.Ahead = append(full.pos.Ahead, model.Run{Start: 1 + 2*i, End: 2 + 2*i})
	}
	var trs []*Tracked
	for i := range partitions {
		d := fmt.Sprintf("%s/p%05d", root, i)
		if err := (disk.OS{}).Mkdir(d); err != nil {
			b.Fatal(err)
		}
		tr := r.c.Track(model.PartitionKey{Topic: "jobs", Partition: i}, d, testInc, full)
		tr.turn = -1
		trs = append(trs, tr)
	}
	tick := func() {
		for _, tr := range trs {
			tr.Dirty()
		}
		r.c.step()
	}
	tick() // primes
	b.ReportAllocs()
	for b.Loop() {
		tick()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/partitions, "µs/partition")
	r.c.releaseAll()
}

// BenchmarkEncodeSlot lays out a full set of the default caps.
func BenchmarkEncodeSlot(b *testing.B) {
	pos := model.NoPosition()
	for i := range int64(1024) {
		pos.Ahead = append(pos.Ahead, model.Run{Start: 1 + 2*i, End: 2 + 2*i})
	}
	var buf [slotSize]byte
	b.ReportAllocs()
	for b.Loop() {
		slot{seq: 1, pos: pos}.encode(&buf)
	}
}
