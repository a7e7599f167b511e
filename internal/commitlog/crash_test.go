package commitlog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

const (
	scriptRecordBytes  = 100
	scriptSegmentBytes = 1 << 10
	scriptMaxAge       = time.Hour
)

// driver runs a scripted life of a log and knows what it was promised.
type driver struct {
	fsys     *disk.Sim
	clk      *clock.Fake
	l        *Log
	acked    int64 // every offset below was committed
	swept    int64 // every offset at or above must still be there
	stubborn bool  // a failed close does not end the script
}

func newDriver(fsys *disk.Sim) *driver {
	d := &driver{fsys: fsys, clk: clock.NewFake(start)}
	fsys.SetNow(d.clk.Now)
	return d
}

func (d *driver) open() (err error) {
	d.l, err = Open(Options{FS: d.fsys, Dir: testDir, Topic: "t", Clock: d.clk, Cache: testCache, SegmentBytes: scriptSegmentBytes, MaxAge: scriptMaxAge})
	return err
}

func (d *driver) commit(n int) error {
	first, err := d.l.Commit(records(d.l.NextOffset(), n, scriptRecordBytes))
	if err == nil {
		d.acked = first + int64(n)
	}
	return err
}

func (d *driver) sweep() error {
	_, err := d.l.Sweep(d.clk.Now())
	d.swept = max(d.swept, d.l.OldestOffset())
	return err
}

func (d *driver) closeLog() error {
	if err := d.l.Close(); !d.stubborn {
		return err
	}
	return nil // closed all the same; the next open finds what a crash would leave
}

// newVolume is a volume with a durable, empty data directory.
func newVolume(seed int64) *disk.Sim {
	s := disk.NewSim(seed)
	if err := disk.MkdirDurable(s, "data"); err != nil {
		panic(err)
	}
	return s
}

// script is the life of a log: first write, rolls, hidden from nothing, clean
// close, reopen, retention by age and by idleness, and a last close.
func (d *driver) script() []func() error {
	commits := func(ns ...int) func() error {
		return func() error {
			for _, n := range ns {
				if err := d.commit(n); err != nil {
					return err
				}
			}
			return nil
		}
	}
	later := func() error { d.clk.Advance(scriptMaxAge + time.Minute); return nil }
	return []func() error{
		d.open, commits(1, 3), commits(9), commits(2), d.closeLog,
		d.open, commits(4, 6), later, commits(3), d.sweep, commits(2), d.closeLog,
		d.open, later, d.sweep, commits(5), d.closeLog,
	}
}

func runScript(d *driver) error {
	for i, step := range d.script() {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// check opens the log and holds it to its promises: it opens, everything acked and
// not swept is there, nothing in the visible range is missing or wrong, and it
// takes new records that survive a clean close.
func (d *driver) check(t *testing.T, fsys *disk.Sim) {
	t.Helper()
	c := &driver{fsys: fsys, clk: d.clk}
	if err := c.open(); err != nil {
		t.Fatalf("reopen: %v", err)
	}
	h := c.l.HighWatermark()
	if h < d.acked {
		t.Fatalf("H=%d, acked up to %d", h, d.acked)
	}
	if o := c.l.OldestOffset(); o > d.swept {
		t.Fatalf("oldest %d, swept only to %d", o, d.swept)
	}
	checkRange(t, c.l, c.l.OldestOffset(), h, scriptRecordBytes)
	if err := c.commit(3); err != nil {
		t.Fatalf("commit after recovery: %v", err)
	}
	h = c.l.HighWatermark()
	closeLog(t, c.l)
	if s, trusted, err := Describe(fsys, testDir); err != nil || !trusted || s.HighWatermark != h {
		t.Fatalf("describe after close: H=%d trusted=%v err=%v, want %d", s.HighWatermark, trusted, err, h)
	}
	if err := c.open(); err != nil {
		t.Fatalf("second reopen: %v", err)
	}
	if c.l.HighWatermark() != h || c.l.NextOffset() != h {
		t.Fatalf("second reopen: H=%d T=%d, want %d", c.l.HighWatermark(), c.l.NextOffset(), h)
	}
	checkRange(t, c.l, c.l.OldestOffset(), h, scriptRecordBytes)
	closeLog(t, c.l)
}

// F1 to F5 and F7: power cut at every I/O call of the script.
func TestCrashAtEveryCall_F1_F2_F3_F4_F5_F7(t *testing.T) {
	var d *driver
	testutil.CrashPoints(t, func() *disk.Sim { return newVolume(7) },
		func(s *disk.Sim) error { d = newDriver(s); return runScript(d) },
		func(crashed *disk.Sim, _ int) { d.check(t, crashed) })
}

// F6: power cut at every I/O call of recovery and of the first commit after it, on
// what power cuts all over the script left behind.
func TestCrashDuringRecovery_F6(t *testing.T) {
	const strideCalls = 13
	for k := 3; ; k += strideCalls {
		s := newVolume(int64(k))
		s.CrashAt(k)
		d := newDriver(s)
		_ = runScript(d)
		complete := !s.Crashed()
		var again *driver
		testutil.CrashPoints(t, func() *disk.Sim { return s.Crash(int64(k)) },
			func(s *disk.Sim) error {
				again = &driver{fsys: s, clk: d.clk, acked: d.acked, swept: d.swept}
				if err := again.open(); err != nil {
					return err
				}
				return again.commit(2)
			},
			func(crashed *disk.Sim, _ int) { again.check(t, crashed) })
		if complete {
			return
		}
	}
}

// A process that dies takes no bytes with it: the next one finds what was not
// synced and must not take it for durable. Kill at every call, go on, cut power.
func TestKillThenPowerCut_F1_F3_F5(t *testing.T) {
	for k := 1; ; k++ {
		s := newVolume(int64(k))
		d := newDriver(s)
		killed := errors.New("killed")
		s.Fail(disk.Rule{Op: disk.OpAny, N: k, Sticky: true, Err: killed})
		err := runScript(d)
		if s.Fired() == 0 {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		s.ClearRules()
		next := &driver{fsys: s, clk: d.clk, acked: d.acked, swept: d.swept}
		if err := next.open(); err != nil {
			t.Fatalf("kill at call %d: %v", k, err)
		}
		if err := next.commit(2); err != nil {
			t.Fatalf("kill at call %d: %v", k, err)
		}
		for seed := range int64(8) {
			checkAckedOnly(t, next, s.Crash(seed), k)
		}
	}
}

// checkAckedOnly is check for a volume where an fsync failed and was forgotten:
// records nobody was promised may have left a gap.
func checkAckedOnly(t *testing.T, d *driver, fsys *disk.Sim, k int) {
	t.Helper()
	c := &driver{fsys: fsys, clk: d.clk}
	if err := c.open(); err != nil {
		t.Fatalf("call %d: reopen: %v", k, err)
	}
	defer closeLog(t, c.l)
	if h := c.l.HighWatermark(); h < d.acked {
		t.Fatalf("call %d: H=%d, acked up to %d", k, h, d.acked)
	}
	for o := c.l.OldestOffset(); o < c.l.HighWatermark(); o++ {
		s, err := c.l.Read(o)
		if errors.Is(err, model.ErrUnreadable) {
			continue
		}
		if err != nil {
			t.Fatalf("call %d: read %d: %v", k, o, err)
		}
		checkStored(t, s, o, scriptRecordBytes)
	}
	for o := d.acked - 2; o < d.acked; o++ {
		if _, err := c.l.Read(o); err != nil {
			t.Fatalf("call %d: acked %d: %v", k, o, err)
		}
	}
}

// stubborn runs the script the way a node does: what fails is tried again, on a
// reopened log when it has to be.
func stubborn(d *driver) error {
	const triesMax = 5
	d.stubborn = true
	for i, step := range d.script() {
		var err error
		for range triesMax {
			if err = step(); err == nil {
				break
			}
			if errors.Is(err, model.ErrLogPoisoned) {
				_ = d.l.Close()
			}
			if errors.Is(err, model.ErrLogPoisoned) || errors.Is(err, model.ErrLogClosed) {
				for range triesMax {
					if d.open() == nil {
						break
					}
				}
			}
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// F12, F14, F16 and property 1: fail every k-th call of each kind once. The script
// goes on, nothing acked is lost, and offsets stay dense.
func TestFailEveryCall_F12_F14_F15_F16(t *testing.T) {
	for _, rule := range []disk.Rule{
		{Op: disk.OpWrite}, {Op: disk.OpWrite, Short: 40}, {Op: disk.OpRead}, {Op: disk.OpTruncate}, {Op: disk.OpOpen},
		{Op: disk.OpSync}, {Op: disk.OpSyncDir}, {Op: disk.OpOpenDir}, {Op: disk.OpList}, {Op: disk.OpRemove}, {Op: disk.OpMkdir},
	} {
		t.Run(fmt.Sprintf("%s-%d", rule.Op, rule.Short), func(t *testing.T) {
			var d *driver
			testutil.FailPoints(t, func() *disk.Sim { return newVolume(3) }, rule,
				func(s *disk.Sim) error { d = newDriver(s); return stubborn(d) },
				func(s *disk.Sim, k int, failed error) {
					if failed != nil {
						t.Fatalf("the script did not recover: %v", failed)
					}
					d.check(t, s.Crash(int64(k)))
				})
		})
	}
}
