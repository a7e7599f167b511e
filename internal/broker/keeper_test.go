package broker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"
)

// advance moves the clock in steps until cond holds.
func (r *rig) advance(step time.Duration, cond func() bool, what string) {
	r.t.Helper()
	testutil.Eventually(r.t, 10*time.Second, func() bool {
		if cond() {
			return true
		}
		r.clk.Advance(step)
		return false
	}, what)
}

func TestIdleLogsAreEvicted(t *testing.T) {
	r := newRig(t)
	v := r.create(view("orders", 2))
	r.commit("orders", 0, "a", "b")
	r.commit("orders", 1, "c")
	r.ack(r.one("orders"))
	leased := r.one("orders")
	r.advance(time.Minute, func() bool { return r.b.openLogs.Load() == 0 }, "idle logs to close")
	if idle := r.clk.Now().Sub(start); idle < DefaultIdleEviction {
		t.Errorf("closed after %v, want at least %v", idle, DefaultIdleEviction)
	}
	if got := promtest.ToFloat64(r.b.metrics.evicted); got != 2 {
		t.Errorf("counted %v evictions, want 2", got)
	}
	st, err := r.b.Describe(v, 0)
	if err != nil || st.HighWatermark != 2 {
		t.Errorf("describe of the closed partition: %+v %v", st, err)
	}
	if r.b.openLogs.Load() != 0 {
		t.Error("describe opened a log")
	}
	wantErr(t, r.settle(leased, model.Ack), model.ErrNoLease)
	if ds := r.consume("orders", 10); len(ds) != 2 {
		t.Fatalf("%d messages after the eviction, want the 2 that were not acked", len(ds))
	}
}

func TestEvictionSparesLogsWithLeases(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1, func(v *model.TopicView) { v.VisibilityTimeoutMS = 6 * 3_600_000 }))
	r.commit("orders", 0, "a")
	d := r.one("orders")
	for range 8 {
		r.clk.Advance(10 * time.Minute)
		testutil.Eventually(t, 10*time.Second, func() bool { return r.clk.Timers() >= 2 }, "the keeper to go round")
	}
	if n := r.b.openLogs.Load(); n != 1 {
		t.Fatalf("%d logs open, want the one with a lease out", n)
	}
	r.ack(d)
}

func TestEvictionWithoutColdWalkKeepsWhatRetentionMustSee(t *testing.T) {
	r := newRig(t, func(o *Options) { o.ColdWalk = 0 })
	r.create(view("expiring", 1, func(v *model.TopicView) { v.RetentionMS = 100 * 3_600_000 }))
	r.create(view("forever", 1))
	r.commit("expiring", 0, "a")
	r.commit("forever", 0, "a")
	r.advance(time.Minute, func() bool { return r.b.entry("forever").slot(0).part.Load() == nil }, "the log without retention to close")
	if r.b.entry("expiring").slot(0).part.Load() == nil {
		t.Fatal("closed a log that only the reaper can sweep")
	}
}

func TestReaperSweepsOpenLogs(t *testing.T) {
	r := newRig(t)
	v := r.create(view("orders", 1, func(v *model.TopicView) { v.RetentionMS = 3_600_000 }))
	r.commit("orders", 0, "a", "b")
	r.advance(10*time.Minute, func() bool {
		st, err := r.b.Describe(v, 0)
		return err == nil && st.OldestOffset == 2
	}, "retention to delete the idle segment")
}

func TestRetentionChangeReachesTheOpenLog(t *testing.T) {
	r := newRig(t, func(o *Options) { o.IdleEviction = 0 })
	v := r.create(view("orders", 1))
	r.commit("orders", 0, "a", "b")
	pt := r.b.entry("orders").slot(0).part.Load()
	r.clk.Advance(2 * time.Hour)
	if _, err := pt.Sweep(r.clk.Now()); err != nil || pt.Log().OldestOffset() != 0 {
		t.Fatalf("swept a log kept forever: oldest %d, %v", pt.Log().OldestOffset(), err)
	}
	changed := *v
	changed.RetentionMS = 3_600_000
	r.create(&changed)
	r.advance(time.Minute, func() bool { return pt.Log().OldestOffset() == 2 }, "the changed retention to be applied")
}

func TestColdWalkSweepsClosedPartitions(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 2, func(v *model.TopicView) { v.RetentionMS = 3_600_000; v.Owners[1] = "n2" }))
	r.create(view("forever", 1))
	r.commit("orders", 0, "a", "b")
	r.commit("forever", 0, "a")
	r.reopen()
	caught := false
	r.b.Close()
	r.open(func(o *Options) { o.CaughtUp = func() bool { return caught } })
	r.clk.Advance(3 * time.Hour)
	k := r.b.keeper
	k.coldWalk(r.clk.Now())
	v, _ := r.topic.Topic("orders")
	if st, _ := r.b.Describe(v, 0); st.OldestOffset != 0 {
		t.Fatal("swept on a replica that has not caught up")
	}
	caught = true
	k.coldWalk(r.clk.Now())
	if st, err := r.b.Describe(v, 0); err != nil || st.OldestOffset != 2 || st.HighWatermark != 2 {
		t.Fatalf("after the walk: %+v %v", st, err)
	}
	if n := r.b.openLogs.Load(); n != 0 {
		t.Errorf("%d logs left open by the walk", n)
	}
	if got := promtest.ToFloat64(r.b.metrics.coldSwept); got != 1 {
		t.Errorf("counted %v, want 1", got)
	}
}

func TestColdWalkContainsAPanic(t *testing.T) {
	r := newRig(t)
	v := r.create(view("orders", 1, func(v *model.TopicView) { v.RetentionMS = 3_600_000 }))
	bad := *v
	bad.Name = "orders"
	k := r.b.keeper
	fsys := k.b.opts.FS
	k.b.opts.FS = nil // the walk's first call panics
	now := r.clk.Now()
	k.coldVisit(&bad, 0, now)
	k.coldVisit(&bad, 0, now.Add(coldRest-time.Second)) // left alone
	if got := promtest.ToFloat64(r.b.metrics.coldPanics); got != 1 {
		t.Errorf("counted %v panics, want 1", got)
	}
	k.coldVisit(&bad, 0, now.Add(coldRest))
	if got := promtest.ToFloat64(r.b.metrics.coldPanics); got != 2 {
		t.Errorf("counted %v panics, want 2 after the rest", got)
	}
	k.b.opts.FS = fsys
	if !strings.Contains(r.log.String(), "cold retention sweep panicked") {
		t.Error("no error line")
	}
}

func TestHungReaperIsReplaced(t *testing.T) {
	r := newRig(t)
	k := r.b.keeper
	for i := range reaperRestartsMax + 2 {
		k.beat.Store(r.b.now() - int64(time.Hour))
		k.supervise()
		want := int64(min(i+1, reaperRestartsMax))
		if got := k.restarts.Load(); got != want {
			t.Fatalf("%d restarts, want %d", got, want)
		}
	}
	k.beat.Store(r.b.now())
	k.supervise()
	if n := strings.Count(r.log.String(), "retention loop does not tick"); n != reaperRestartsMax+2 {
		t.Errorf("%d error lines, want %d", n, reaperRestartsMax+2)
	}
}

func TestDeadTopicsAreForgottenOnceClosed(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	r.commit("orders", 0, "a")
	r.remove("orders")
	r.advance(time.Minute, func() bool { return r.b.entry("orders") == nil }, "the dead entry to go")
	if n := r.b.openLogs.Load(); n != 0 {
		t.Errorf("%d logs open", n)
	}
}

func TestPurgerSleepsWithoutLeases(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	testutil.Eventually(t, 10*time.Second, func() bool { return r.clk.Timers() == 2 }, "reaper and caretaker to be at rest")
	r.commit("orders", 0, "a")
	d := r.one("orders")
	testutil.Eventually(t, 10*time.Second, func() bool { return r.clk.Timers() == 3 }, "the purger to arm for the lease")
	r.ack(d)
	r.advance(time.Second, func() bool { _, ok := r.b.purger.next(); return !ok }, "the purger to find nothing")
	if d, err := r.b.Consume(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 1}); d != nil || err != nil {
		t.Fatal(d, err)
	}
}

func TestC7_ExpiredLeasesOfManyPartitionsComeBack(t *testing.T) {
	r := newRig(t)
	const topics = 50
	for i := range topics {
		name := fmt.Sprintf("t%d", i)
		r.create(view(name, 1, func(v *model.TopicView) { v.VisibilityTimeoutMS = int64(1000 + 100*i) }))
		r.commit(name, 0, "a")
		r.one(name)
	}
	chs := make([]<-chan polled, topics)
	for i := range topics {
		chs[i] = r.poll(context.Background(), ConsumeRequest{Topic: fmt.Sprintf("t%d", i), Partition: -1, Max: 1, Wait: time.Hour})
		r.awaitParked(fmt.Sprintf("t%d", i), 1)
	}
	for i := range topics {
		p := advanceUntil(r, chs[i], 100*time.Millisecond, 200)
		if len(p.ds) != 1 || p.ds[0].Count != 2 {
			t.Fatalf("topic %d: %+v", i, p)
		}
	}
}

func TestC7_EveryLeaseOfAPartitionExpires(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	r.commit("orders", 0, "a", "b")
	for range 2 {
		r.one("orders")
		r.clk.Advance(10 * time.Second)
	}
	for i, at := range []time.Duration{30 * time.Second, 40 * time.Second} {
		ch := r.poll(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour})
		r.awaitParked("orders", 1)
		p := advanceUntil(r, ch, 500*time.Millisecond, 200)
		if len(p.ds) != 1 || p.ds[0].Offset != int64(i) || p.ds[0].Count != 2 {
			t.Fatalf("lease %d: %+v", i, p)
		}
		if late := r.clk.Now().Sub(start) - at; late < 0 {
			t.Errorf("lease %d ended %v early", i, -late)
		}
	}
}
