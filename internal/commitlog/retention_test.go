package commitlog

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// aged opens a log that keeps an hour, on a clock of its own.
func aged(t *testing.T, fsys *disk.Sim, clk *clock.Fake, change ...func(*Options)) *Log {
	fsys.SetNow(clk.Now)
	return openTest(t, fsys, append(change, func(o *Options) { o.Clock = clk; o.MaxAge = time.Hour; o.SegmentBytes = 400 })...)
}

func TestSweepDeletesExpiredSealedSegmentsOldestFirst(t *testing.T) {
	fsys, clk := disk.NewSim(1), clock.NewFake(start)
	m := NewMetrics(prometheus.NewRegistry())
	l := aged(t, fsys, clk, func(o *Options) { o.Metrics = m; o.Cache = NewCache(0) })
	var sizes []int64
	for range 3 {
		commit(t, l, 4, 100) // each fills a segment
		sizes = append(sizes, l.Stats().SizeBytes)
		clk.Advance(40 * time.Minute)
	}
	// Ages of the last writes: 120, 80 and 40 minutes; the active one is empty.
	checkRange(t, l, 0, 12, 100)
	sw, err := l.Sweep(clk.Now())
	if n := l.opt.Cache.Used(); n != 0 {
		t.Fatalf("%d bytes cached of segments that are gone", n)
	}
	if err != nil || sw.Segments != 2 || sw.Messages != 8 || sw.Bytes != sizes[1] || sw.Rolled {
		t.Fatalf("%+v %v", sw, err)
	}
	if n := promtest.ToFloat64(m.deletedMessages.WithLabelValues("t", "0", "age")); n != 8 {
		t.Fatalf("counted %v messages", n)
	}
	var gone *model.AgedOutError
	if _, err := l.Read(7); !errors.As(err, &gone) || gone.Oldest != 8 {
		t.Fatalf("swept offset: %v", err)
	}
	checkRange(t, l, 8, 12, 100)
	closeLog(t, l)
	l = aged(t, fsys, clk)
	if l.OldestOffset() != 8 || l.HighWatermark() != 12 {
		t.Fatalf("reopened: oldest %d H=%d", l.OldestOffset(), l.HighWatermark())
	}
	closeLog(t, l)
}

func TestSweepRotatesIdleLog(t *testing.T) {
	fsys, clk := disk.NewSim(1), clock.NewFake(start)
	l := aged(t, fsys, clk)
	commit(t, l, 2, 50)
	clk.Advance(time.Hour)
	if sw, err := l.Sweep(clk.Now()); err != nil || sw != (Swept{}) {
		t.Fatalf("at the age exactly: %+v %v", sw, err)
	}
	clk.Advance(time.Second)
	if sw, err := l.Sweep(clk.Now()); err != nil || !sw.Rolled || sw.Segments != 1 || sw.Messages != 2 {
		t.Fatalf("past it: %+v %v", sw, err)
	}
	if l.OldestOffset() != 2 || l.HighWatermark() != 2 || l.Stats().SizeBytes != 0 {
		t.Fatalf("%+v", l.Stats())
	}
	closeLog(t, l)
	l = aged(t, fsys, clk)
	commit(t, l, 1, 50) // offsets go on
	checkRange(t, l, 2, 3, 50)
	closeLog(t, l)
}

// What a cleanly closed log held may still be in the page cache alone, after a copy
// from a backup: a roll fsyncs it, and a failure of that is final.
func TestRollSyncsWhatWasFoundAtOpen(t *testing.T) {
	fsys, clk := disk.NewSim(1), clock.NewFake(start)
	l := aged(t, fsys, clk)
	commit(t, l, 1, 50)
	closeLog(t, l)
	l = aged(t, fsys, clk)
	clk.Advance(2 * time.Hour)
	fsys.Fail(disk.Rule{Op: disk.OpSync, Path: segmentName(0), N: 1})
	if sw, err := l.Sweep(clk.Now()); !errors.Is(err, model.ErrLogPoisoned) || sw.Rolled {
		t.Fatalf("%+v %v", sw, err)
	}
	closeLog(t, l)
}

// A hidden tail is never sealed.
func TestHiddenTailIsNotRotated(t *testing.T) {
	fsys, clk := disk.NewSim(1), clock.NewFake(start)
	l := aged(t, fsys, clk)
	commit(t, l, 1, 50)
	commit(t, l, 1, 50)
	closeLog(t, l)
	lowerHWM(t, fsys, 1)
	l = aged(t, fsys, clk)
	clk.Advance(3 * time.Hour)
	if sw, err := l.Sweep(clk.Now()); err != nil || sw != (Swept{}) {
		t.Fatalf("%+v %v", sw, err)
	}
	commit(t, l, 1, 50) // the age roll is put off too
	if s := l.Stats(); s.Segments != 1 || s.HighWatermark != 3 {
		t.Fatalf("%+v", s)
	}
	closeLog(t, l)
}

func TestRollByAge(t *testing.T) {
	fsys, clk := disk.NewSim(1), clock.NewFake(start)
	l := aged(t, fsys, clk)
	commit(t, l, 1, 50)
	clk.Advance(50 * time.Minute)
	commit(t, l, 1, 50)
	clk.Advance(11 * time.Minute)
	commit(t, l, 1, 50)
	if s := l.Stats(); s.Segments != 2 {
		t.Fatalf("%+v", s)
	}
	checkRange(t, l, 0, 3, 50)
	closeLog(t, l)
}

func TestRetentionOffAndChanged(t *testing.T) {
	fsys, clk := disk.NewSim(1), clock.NewFake(start)
	l := aged(t, fsys, clk)
	l.SetMaxAge(0)
	commit(t, l, 4, 100)
	clk.Advance(1000 * time.Hour)
	if sw, err := l.Sweep(clk.Now()); err != nil || sw != (Swept{}) {
		t.Fatalf("kept forever: %+v %v", sw, err)
	}
	if has, err := HasExpired(fsys, testDir, 0, clk.Now()); has || err != nil {
		t.Fatal("HasExpired without retention", err)
	}
	if has, err := HasExpired(fsys, testDir, time.Hour, clk.Now()); !has || err != nil {
		t.Fatal("HasExpired:", has, err)
	}
	if has, err := HasExpired(fsys, "data/topics/none/p00000", time.Hour, clk.Now()); has || err != nil {
		t.Fatal("HasExpired of a missing directory:", has, err)
	}
	l.SetMaxAge(time.Hour)
	if sw, err := l.Sweep(clk.Now()); err != nil || sw.Segments != 1 {
		t.Fatalf("%+v %v", sw, err)
	}
	closeLog(t, l)
	if has, err := HasExpired(fsys, testDir, time.Hour, clk.Now()); has || err != nil {
		t.Fatal("an empty active segment never expires:", has, err)
	}
	if _, err := l.Sweep(clk.Now()); !errors.Is(err, model.ErrLogClosed) {
		t.Fatal(err)
	}
}

// F7, O13: what cannot be unlinked is reported and found again by the next open.
func TestFailedUnlink_F7(t *testing.T) {
	fsys, clk := disk.NewSim(1), clock.NewFake(start)
	m := NewMetrics(nil)
	l := aged(t, fsys, clk, func(o *Options) { o.Metrics = m })
	commit(t, l, 4, 100)
	clk.Advance(2 * time.Hour)
	fsys.Fail(disk.Rule{Op: disk.OpRemove})
	if sw, err := l.Sweep(clk.Now()); err != nil || sw.Segments != 1 {
		t.Fatalf("%+v %v", sw, err)
	}
	if n := promtest.ToFloat64(m.errors.WithLabelValues("storage", "retention_unlink")); n != 1 {
		t.Fatalf("counted %v", n)
	}
	fsys.ClearRules()
	closeLog(t, l)
	l = aged(t, fsys, clk)
	if l.OldestOffset() != 0 {
		t.Fatalf("oldest %d", l.OldestOffset())
	}
	if sw, err := l.Sweep(clk.Now()); err != nil || sw.Segments != 1 {
		t.Fatalf("second sweep: %+v %v", sw, err)
	}
	closeLog(t, l)
}
