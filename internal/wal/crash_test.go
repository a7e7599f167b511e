package wal

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/testutil"
)

// script is a workload whose records have their seq as id, and the ledger of what
// it was promised.
type script struct {
	t        *testing.T
	spare    SpareMode
	segment  int64
	l        *Log
	sim      *disk.Sim
	clk      *clock.Fake
	tried    uint64 // last seq handed to the log
	acked    uint64 // last seq that was answered with success
	advanced uint64 // last checkpoint accepted
}

func (w *script) options(s *disk.Sim) Options {
	o := options(s, testDir)
	o.Spare, o.SegmentBytes, o.Clock = w.spare, w.segment, w.clk
	return o
}

func (w *script) open(s *disk.Sim) (err error) {
	w.sim = s
	w.clk = clock.NewFake(time.Unix(1_700_000_000, 0))
	w.l, err = Open(w.options(s))
	return err
}

// append writes n records of size bytes in one call.
func (w *script) append(n, size int) error {
	var es []Entry
	for range n {
		w.tried++
		es = append(es, rec(int(w.tried), size))
	}
	err := w.l.AppendMany(context.Background(), es)
	if err == nil {
		w.acked = w.tried
	}
	return err
}

// advance moves the checkpoint and waits until everything behind it is compacted.
func (w *script) advance(to uint64) error {
	if err := w.l.Advance(to); err != nil {
		return err
	}
	w.advanced = to
	testutil.Eventually(w.t, waitMax, func() bool {
		w.clk.Advance(250 * time.Millisecond)
		return w.sim.Crashed() || w.l.Failed() != nil || w.l.catalog.second() > to
	}, "segments below the checkpoint are retired")
	return nil
}

// second is the base of the second segment, or past everything if there is one only.
func (c *catalog) second() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) < 2 {
		return ^uint64(0)
	}
	return c.list[1].base
}

// run appends in groups of one and of many over several segments, compacts, and
// writes into what was retired.
func (w *script) run(s *disk.Sim) error {
	w.tried, w.acked, w.advanced = 0, 0, 1
	if err := w.open(s); err != nil {
		return err
	}
	err := w.steps()
	return errors.Join(err, w.l.Close())
}

func (w *script) steps() error {
	for range 4 {
		if err := w.append(1, 300); err != nil {
			return err
		}
	}
	if err := w.append(9, 250); err != nil {
		return err
	}
	if err := w.advance(w.acked - 2); err != nil {
		return err
	}
	for range 3 {
		if err := w.append(2, 700); err != nil {
			return err
		}
	}
	if err := w.append(1, 3000); err != nil { // larger than a segment
		return err
	}
	if err := w.advance(w.acked); err != nil {
		return err
	}
	return w.append(3, 200)
}

// check opens a volume after a fault: what was promised is there, in order, once
// (O1, O5), and nothing that was not handed in (O2); segments went only behind a
// synced checkpoint; then the log goes on, and the ledger with it.
func (w *script) check(s *disk.Sim) error {
	var lines logLines
	o := w.options(s)
	o.Clock, o.Logger = clock.Real(), lines.logger()
	l, err := Open(o)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if lines.has("below the oldest WAL segment") {
		err = errors.New("segments were retired behind a checkpoint that was not synced")
	}
	if err == nil {
		err = w.compare(l)
	}
	if err == nil {
		next := l.Next()
		if err = l.AppendMany(context.Background(), []Entry{rec(int(next), 50), rec(int(next)+1, 5000)}); err == nil {
			w.acked, w.tried = next+1, next+1
			err = w.compare(l)
		}
	}
	return errors.Join(err, l.Close())
}

func (w *script) compare(l *Log) error {
	next, from := l.Next(), l.Checkpoint()
	if next <= w.acked || next > w.tried+1 {
		return fmt.Errorf("next seq %d, acknowledged up to %d, handed in up to %d", next, w.acked, w.tried)
	}
	if from < 1 || from > max(w.advanced, 1) {
		return fmt.Errorf("checkpoint %d, advanced to %d", from, w.advanced)
	}
	recs, err := readAll(l, from)
	if err != nil {
		return err
	}
	if uint64(len(recs)) != next-from {
		return fmt.Errorf("%d records from %d to %d", len(recs), from, next)
	}
	for i, r := range recs {
		if r.seq != from+uint64(i) || uint64(r.id) != r.seq {
			return fmt.Errorf("record %d from %d: seq %d, id %d", i, from, r.seq, r.id)
		}
	}
	return nil
}

func spareModes(t *testing.T, f func(t *testing.T, w *script)) {
	for name, mode := range map[string]SpareMode{"recycle": SpareRecycle, "zero": SpareZero, "none": SpareNone} {
		t.Run(name, func(t *testing.T) { f(t, &script{t: t, spare: mode, segment: 2048}) })
	}
}

// TestCrashAtEveryCall: F1 F3 F4 F5 F7 F8, oracles O1 O2 O5.
func TestCrashAtEveryCall(t *testing.T) {
	spareModes(t, func(t *testing.T, w *script) {
		testutil.CrashPoints(t, newVolume(1), w.run, func(s *disk.Sim, _ int) {
			v := *w
			if err := v.check(s); err != nil {
				t.Error(err)
			}
		})
	})
}

// TestCrashDuringRecovery crashes recovery at every call, for crashes of the
// workload all over (F6).
func TestCrashDuringRecovery(t *testing.T) {
	w := &script{t: t, segment: 2048}
	testutil.CrashPoints(t, newVolume(1), w.run, func(s *disk.Sim, k int) {
		if k%31 != 0 {
			return
		}
		testutil.CrashPoints(t, func() *disk.Sim { return s.Crash(int64(k)) }, func(again *disk.Sim) error {
			o := w.options(again)
			o.Clock = clock.Real()
			l, err := Open(o)
			if err != nil {
				return err
			}
			return l.Close()
		}, func(twice *disk.Sim, _ int) {
			v := *w
			if err := v.check(twice); err != nil {
				t.Error(err)
			}
		})
	})
}

// TestFailAtEveryCall lets one call fail, of each kind: the log refuses or goes on,
// and everything acknowledged is there after a restart, and after a power cut right
// away or behind the restart (F12 F14 F15 F17).
func TestFailAtEveryCall(t *testing.T) {
	for _, op := range []disk.Op{disk.OpOpen, disk.OpRead, disk.OpWrite, disk.OpSync, disk.OpRename, disk.OpRemove, disk.OpSyncDir, disk.OpList} {
		t.Run(op.String(), func(t *testing.T) {
			w := &script{t: t, segment: 2048}
			testutil.FailPoints(t, newVolume(2), disk.Rule{Op: op, Short: 100}, w.run, func(s *disk.Sim, k int, _ error) {
				restarted := *w
				if err := restarted.check(s); err != nil {
					t.Errorf("restart: %v", err)
				}
				for seed := range int64(2) {
					v := restarted
					if err := v.check(s.Crash(seed)); err != nil {
						t.Errorf("power cut %d after a restart: %v", seed, err)
					}
				}
			})
		})
	}
}

// TestFailThenPowerCut is TestFailAtEveryCall without the restart between, for the
// calls that can leave bytes in an unknown state.
func TestFailThenPowerCut(t *testing.T) {
	for _, op := range []disk.Op{disk.OpWrite, disk.OpSync, disk.OpSyncDir} {
		t.Run(op.String(), func(t *testing.T) {
			w := &script{t: t, segment: 2048}
			testutil.FailPoints(t, newVolume(3), disk.Rule{Op: op, Short: 100}, w.run, func(s *disk.Sim, k int, _ error) {
				for seed := range int64(4) {
					v := *w
					if err := v.check(s.Crash(seed)); err != nil {
						t.Errorf("power cut %d: %v", seed, err)
					}
				}
			})
		})
	}
}
