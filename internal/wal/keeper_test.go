package wal

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

func fakeOptions(s *disk.Sim) (Options, *clock.Fake) {
	clk := clock.NewFake(time.Unix(1_700_000_000, 0))
	o := options(s, testDir)
	o.Clock = clk
	return o, clk
}

// storedCheckpoint is what the file of a volume holds.
func storedCheckpoint(t *testing.T, s *disk.Sim) int64 {
	t.Helper()
	b, err := s.Dump(path.Join(testDir, checkpointName))
	if err != nil {
		t.Fatal(err)
	}
	v, state := disk.DecodeFact(checkpointMagic, b)
	if state != disk.FactValid {
		t.Fatalf("checkpoint file %x", b)
	}
	return v
}

// settle moves the clock until the log has nothing to do any more, and returns the
// number of I/O calls so far.
func settle(t *testing.T, s *disk.Sim, clk *clock.Fake) (calls int) {
	t.Helper()
	quiet := 0
	testutil.Eventually(t, waitMax, func() bool {
		clk.Advance(time.Second)
		if quiet++; clk.Timers() > 0 || s.Calls() != calls {
			calls, quiet = s.Calls(), 0
		}
		return quiet == 7
	}, "the log comes to rest")
	return calls
}

// TestIdleCostsNothing: with nothing staged and the checkpoint synced no timer is
// armed and no I/O happens, however long it lasts.
func TestIdleCostsNothing(t *testing.T) {
	s := disk.NewSim(1)
	o, clk := fakeOptions(s)
	o.ReserveBytes = 1
	l := mustOpen(t, o)
	appendRecs(t, l, 1, 10, 100)
	if err := l.Advance(10); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, waitMax, func() bool { return clk.Timers() == 1 }, "the sync of the checkpoint is due later")
	testutil.Eventually(t, waitMax, func() bool { clk.Advance(time.Second); return storedCheckpoint(t, s) == 10 }, "the checkpoint is written")
	calls := settle(t, s, clk)
	for range 100 {
		clk.Advance(time.Hour)
	}
	if clk.Timers() != 0 || s.Calls() != calls {
		t.Fatalf("idle log: %d timers, %d calls", clk.Timers(), s.Calls()-calls)
	}
}

// TestCheckpointIsDurableIn250ms: a moved checkpoint is in the page cache at once
// the first time and within 10 ms after that, and survives a power cut 250 ms after
// its move; moves in between share writes and the sync.
func TestCheckpointIsDurableIn250ms(t *testing.T) {
	s := disk.NewSim(1)
	o, clk := fakeOptions(s)
	l := mustOpen(t, o)
	appendRecs(t, l, 1, 100, 20)
	calls := s.Calls()
	move := func(to uint64) {
		if err := l.Advance(to); err != nil {
			t.Fatal(err)
		}
	}
	move(5)
	testutil.Eventually(t, waitMax, func() bool { return storedCheckpoint(t, s) == 5 && clk.Timers() == 1 }, "the first move is written")
	for to := uint64(6); to <= 80; to++ {
		move(to)
	}
	testutil.Eventually(t, waitMax, func() bool { return clk.Timers() == 1 }, "the keeper waits")
	if got := storedCheckpoint(t, s); got != 5 {
		t.Fatalf("checkpoint written %d within 10 ms of a write", got)
	}
	clk.Advance(checkpointWriteEvery)
	testutil.Eventually(t, waitMax, func() bool { return storedCheckpoint(t, s) == 80 }, "the moves are written together")
	testutil.Eventually(t, waitMax, func() bool { return clk.Timers() == 1 }, "the sync is due")
	clk.Advance(250*time.Millisecond - checkpointWriteEvery)
	testutil.Eventually(t, waitMax, func() bool { return clk.Timers() == 0 && s.Calls() == calls+3 }, "two writes and one sync")
	for seed := range int64(10) {
		if got := storedCheckpoint(t, s.Crash(seed)); got != 80 {
			t.Fatalf("after a power cut the checkpoint is %d, want 80", got)
		}
	}
}

func TestAdvanceRules(t *testing.T) {
	l := mustOpen(t, options(disk.NewSim(1), testDir))
	appendRecs(t, l, 1, 10, 20)
	for _, c := range []struct {
		to   uint64
		want uint64
		err  error
	}{{4, 4, nil}, {4, 4, nil}, {2, 4, nil}, {11, 4, model.ErrInvalid}, {10, 10, nil}} {
		if err := l.Advance(c.to); !errors.Is(err, c.err) || l.Checkpoint() != c.want {
			t.Errorf("advance to %d: %v, checkpoint %d, want %v and %d", c.to, err, l.Checkpoint(), c.err, c.want)
		}
	}
}

// TestCheckpointFailure: while it cannot be stored Advance says so and nothing is
// retired; the failed file is replaced, never synced again; it recovers by itself.
func TestCheckpointFailure(t *testing.T) {
	for _, op := range []disk.Op{disk.OpWrite, disk.OpSync} {
		t.Run(op.String(), func(t *testing.T) {
			s := disk.NewSim(1)
			o, clk := fakeOptions(s)
			o.SegmentBytes = 1000
			l := mustOpen(t, o)
			appendRecs(t, l, 1, 10, 400)
			s.Fail(disk.Rule{Op: op, Path: checkpointName + "*", N: 1, Sticky: true})
			if err := l.Advance(9); err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, waitMax, func() bool { clk.Advance(250 * time.Millisecond); return l.Advance(9) != nil }, "Advance reports the failure")
			if l.Checkpoint() != 9 || l.catalog.oldest() != 1 || l.Failed() != nil {
				t.Fatalf("checkpoint %d, oldest %d, failed %v", l.Checkpoint(), l.catalog.oldest(), l.Failed())
			}
			mustAppend(t, l, rec(10, 400))
			s.ClearRules()
			testutil.Eventually(t, waitMax, func() bool { clk.Advance(time.Second); return l.Advance(10) == nil }, "stored again")
			testutil.Eventually(t, waitMax, func() bool { clk.Advance(250 * time.Millisecond); return l.catalog.oldest() == 9 }, "compacted behind it")
			wantRecs(t, l, 9, 11)
		})
	}
}

// TestFinalCheckpointFailure: a stop that cannot store the checkpoint says so.
func TestFinalCheckpointFailure(t *testing.T) {
	s := disk.NewSim(1)
	var lines logLines
	o, _ := fakeOptions(s)
	o.Logger = lines.logger()
	l := mustOpen(t, o)
	appendRecs(t, l, 1, 3, 20)
	s.Fail(disk.Rule{Op: disk.OpSync, Path: checkpointName, N: 1})
	if err := l.Advance(2); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err == nil || !lines.has(`msg="produce dispatcher: final checkpoint"`) {
		t.Fatalf("close: %v, logged %s", err, lines.buf.String())
	}
}

// names lists the log's files with a suffix.
func names(t *testing.T, s *disk.Sim, suffix string) (out []string) {
	t.Helper()
	infos, err := s.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		if strings.HasSuffix(info.Name, suffix) {
			out = append(out, info.Name)
		}
	}
	return out
}

// TestRecycle: retired segments are used again, two wait at most, the rest is
// removed, old frames never show, and a clean stop leaves no spare.
func TestRecycle(t *testing.T) {
	for mode, want := range map[SpareMode]int{SpareRecycle: 2, SpareZero: 0, SpareNone: 0} {
		s := disk.NewSim(1)
		o, clk := fakeOptions(s)
		o.SegmentBytes, o.Spare = 1000, mode
		l := mustOpen(t, o)
		next := 1
		for round := range 5 {
			appendRecs(t, l, next, next+8, 400-round)
			next += 8
			if err := l.Advance(uint64(next - 1)); err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, waitMax, func() bool {
				clk.Advance(250 * time.Millisecond)
				return l.catalog.second() > uint64(next-1) && len(names(t, s, ".wal")) == 1 && len(names(t, s, ".prep")) == want
			}, "the done segments are gone")
			wantRecs(t, l, uint64(next-1), uint64(next))
			if _, err := readAll(l, 1); !errors.Is(err, ErrCompacted) {
				t.Fatalf("read of a retired seq: %v, want ErrCompacted", err)
			}
		}
		c := s.Crash(int64(mode)) // keeps the spares for the next start
		l.Close()
		again := mustOpen(t, options(c, testDir))
		wantRecs(t, again, uint64(next-1), uint64(next))
		appendRecs(t, again, next, next+10, 400)
		wantRecs(t, again, uint64(next-1), uint64(next+10))
		mustClose(t, again)
		if left := append(names(t, c, ".prep"), names(t, c, ".tmp")...); len(left) != 0 {
			t.Errorf("mode %d: a clean stop left %v", mode, left)
		}
	}
}

// TestRotation: a fully dispatched segment past 1 MiB is rotated away, one below or
// with work left is not (spec/storage-and-produce section 14.4).
func TestRotation(t *testing.T) {
	s := disk.NewSim(1)
	o, clk := fakeOptions(s)
	reg := prometheus.NewRegistry()
	o.Registry, o.Spare = reg, SpareZero
	l := mustOpen(t, o)
	done := func(to uint64) {
		if err := l.Advance(to); err != nil {
			t.Fatal(err)
		}
		settle(t, s, clk)
	}
	mustAppend(t, l, rec(1, rotateBytes-headerSize-frameHeaderSize))
	done(2)
	if n := l.catalog.oldest(); n != 1 {
		t.Fatalf("1 MiB sharp was rotated: oldest %d", n)
	}
	appendRecs(t, l, 2, 4, 100)
	done(3)
	if n := l.catalog.oldest(); n != 1 {
		t.Fatalf("a segment with a record undone was rotated: oldest %d", n)
	}
	done(4)
	testutil.Eventually(t, waitMax, func() bool {
		clk.Advance(250 * time.Millisecond)
		return l.catalog.oldest() == 4 && len(names(t, s, ".wal")) == 1
	}, "the segment is rotated and removed")
	if got := gauge(t, reg, "narad_ingress_wal_bytes"); got != zeroStep {
		t.Errorf("bytes left: %v, want %d", got, zeroStep)
	}
	appendRecs(t, l, 4, 6, 100)
	wantRecs(t, l, 4, 6)
}

// TestFailedRemovalIsRetried: a segment that could not be removed goes later, before
// the ones behind it (F7).
func TestFailedRemovalIsRetried(t *testing.T) {
	s := disk.NewSim(1)
	o, clk := fakeOptions(s)
	o.SegmentBytes, o.Spare = 1000, SpareZero
	l := mustOpen(t, o)
	appendRecs(t, l, 1, 8, 400)
	s.Fail(disk.Rule{Op: disk.OpRemove, N: 1})
	s.Fail(disk.Rule{Op: disk.OpRemove, N: 2})
	if err := l.Advance(7); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, waitMax, func() bool { clk.Advance(250 * time.Millisecond); return s.Fired() > 0 }, "the removal fails")
	if n := names(t, s, ".wal"); n[0] != segmentName(1) || len(n) != 4 {
		t.Fatalf("files %v", n)
	}
	testutil.Eventually(t, waitMax, func() bool { clk.Advance(time.Second); return len(names(t, s, ".wal")) == 1 }, "it is removed later")
}

// TestDiskReserve: below the reserve appends are refused before anything is staged,
// everything else goes on, and it ends by itself.
func TestDiskReserve(t *testing.T) {
	s := disk.NewSim(1)
	o, clk := fakeOptions(s)
	o.ReserveBytes = 1 << 20
	l := mustOpen(t, o)
	appendRecs(t, l, 1, 3, 100)
	s.SetCapacity(1 << 20)
	mustAppend(t, l, rec(3, 100)) // within 250 ms of the last look
	clk.Advance(spaceEvery)
	mustAppend(t, l, rec(4, 100)) // asks for a look
	testutil.Eventually(t, waitMax, func() bool {
		return errors.Is(l.Append(context.Background(), rec(int(l.Next()), 100)), model.ErrDiskReserve)
	}, "appends are refused")
	next := l.Next()
	if err := l.AppendMany(context.Background(), []Entry{rec(1, 9), rec(2, 9)}); !errors.Is(err, model.ErrDiskReserve) || l.Failed() != nil {
		t.Fatalf("batch: %v, failed %v", err, l.Failed())
	}
	wantRecs(t, l, 1, next)
	if err := l.Advance(3); err != nil {
		t.Fatal(err)
	}
	calls := s.Calls()
	testutil.Eventually(t, waitMax, func() bool { clk.Advance(spaceEvery); return s.Calls() > calls+3 }, "it keeps looking")
	s.SetCapacity(0)
	testutil.Eventually(t, waitMax, func() bool {
		clk.Advance(spaceEvery)
		return l.Append(context.Background(), rec(int(next), 100)) == nil
	}, "appends are accepted again")
	wantRecs(t, l, 3, next+1)
	testutil.Eventually(t, waitMax, func() bool { clk.Advance(time.Second); return clk.Timers() == 0 }, "it stops looking")
}

// TestDiskReserveAtStart: the first look is made by Open. A look that fails changes
// no verdict.
func TestDiskReserveAtStart(t *testing.T) {
	s := disk.NewSim(1)
	o, clk := fakeOptions(s)
	o.ReserveBytes = 1 << 51
	l := mustOpen(t, o)
	if err := l.Append(context.Background(), rec(1, 9)); !errors.Is(err, model.ErrDiskReserve) {
		t.Fatalf("first append: %v, want ErrDiskReserve", err)
	}
	s.Fail(disk.Rule{Op: disk.OpSpace})
	testutil.Eventually(t, waitMax, func() bool { clk.Advance(spaceEvery); return s.Fired() > 3 }, "looks fail")
	if err := l.Append(context.Background(), rec(1, 9)); !errors.Is(err, model.ErrDiskReserve) {
		t.Fatalf("append while the space cannot be read: %v, want ErrDiskReserve", err)
	}
}

// counted counts the bytes read from segments.
type counted struct {
	disk.FS
	read *atomic.Int64
}

type countedFile struct {
	disk.File
	read *atomic.Int64
}

func (c counted) Open(name string, flag int) (disk.File, error) {
	f, err := c.FS.Open(name, flag)
	return countedFile{f, c.read}, err
}

func (f countedFile) ReadAt(b []byte, off int64) (int, error) {
	f.read.Add(int64(len(b)))
	return f.File.ReadAt(b, off)
}

// TestRecoveryReadsOnce: the old frames in a reused segment cost recovery one pass
// over the file, and passing over records reads headers from what is buffered.
func TestRecoveryReadsOnce(t *testing.T) {
	s := disk.NewSim(1)
	o, clk := fakeOptions(s)
	o.SegmentBytes = 4 << 20
	l := mustOpen(t, o)
	for id := 1; id < 4200; id += 100 {
		var es []Entry
		for j := range 100 {
			es = append(es, rec(id+j, 1000))
		}
		mustAppend(t, l, es...)
	}
	if err := l.Advance(4201); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, waitMax, func() bool { clk.Advance(250 * time.Millisecond); return len(names(t, s, ".prep")) > 0 }, "the segment is retired")
	mustAppend(t, l, rec(4201, BodyMax))
	mustAppend(t, l, rec(4202, BodyMax)) // into the reused one, over half of its old frames
	clk.Advance(time.Second)
	crashed := s.Crash(1)
	l.Close()
	c := counted{crashed, new(atomic.Int64)}
	o = options(c, testDir)
	var size int64
	for _, b := range files(t, crashed, testDir) {
		size += int64(len(b))
	}
	l = mustOpen(t, o)
	if n := c.read.Load(); n > 2*size {
		t.Errorf("recovery read %d bytes of %d", n, size)
	}
	wantRecs(t, l, 4201, 4203)
}
