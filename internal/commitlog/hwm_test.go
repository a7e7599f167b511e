package commitlog

import (
	"errors"
	"path"
	"testing"

	"github.com/narad-mq/narad/internal/disk"
)

// The open half of section 7, and offsets that were visible once (F13, F24).
func TestHighWatermarkAtOpen_F13(t *testing.T) {
	fact := func(v int64) []byte { b := disk.EncodeFact(hwmMagic(), v); return b[:] }
	flipped := fact(8)
	flipped[7] ^= 1
	for _, tc := range []struct {
		name    string
		content []byte // nil = remove the file
		h, next int64
		trusted bool
	}{
		{"exact", fact(12), 12, 12, true},
		{"hidden tail", fact(8), 8, 12, true},
		{"inside a frame", fact(9), 12, 12, true},
		{"above what survived", fact(20), 12, 20, true},
		{"empty", []byte{}, 12, 12, false},
		{"missing", nil, 12, 12, false},
		{"zero over records", fact(0), 12, 12, false},
		{"zero-filled", make([]byte, 16), 12, 12, false},
		{"bit flip", flipped, 12, 12, false},
		{"8 bytes", fact(8)[:8], 12, 12, false},
		{"longer", append(fact(8), 0), 12, 12, false},
		{"negative", fact(-1), 12, 12, false},
		{"absurd", fact(offsetMax + 1), 12, 12, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fsys := disk.NewSim(1)
			l := openTest(t, fsys)
			for range 3 {
				commit(t, l, 4, 50)
			}
			closeLog(t, l)
			name := path.Join(testDir, hwmName)
			if tc.content == nil {
				if err := fsys.Remove(name); err != nil {
					t.Fatal(err)
				}
			} else if err := fsys.Corrupt(name, func([]byte) []byte { return tc.content }); err != nil {
				t.Fatal(err)
			}
			if _, trusted, err := Describe(fsys, testDir); err != nil || trusted != tc.trusted {
				t.Fatalf("describe: trusted=%v err=%v", trusted, err)
			}
			for range 2 { // opening and closing changes nothing
				l = openTest(t, fsys)
				if l.HighWatermark() != tc.h || l.NextOffset() != tc.next {
					t.Fatalf("H=%d T=%d, want %d and %d", l.HighWatermark(), l.NextOffset(), tc.h, tc.next)
				}
				checkRange(t, l, 0, tc.h, 50)
				closeLog(t, l)
			}
			l = openTest(t, fsys)
			if tc.h == 12 { // a failed commit gives no offset out again either
				fsys.Fail(disk.Rule{Op: disk.OpRead, N: 1})
				if _, err := l.Commit(records(tc.next, 1, 50)); err == nil || l.NextOffset() != tc.next {
					t.Fatalf("failed commit: %v, T=%d, want %d", err, l.NextOffset(), tc.next)
				}
				fsys.ClearRules()
			}
			commit(t, l, 2, 50)
			checkRange(t, l, tc.next, tc.next+2, 50)
			l = openTest(t, fsys.Crash(4))
			if l.HighWatermark() != tc.next+2 {
				t.Fatalf("after a power cut H=%d, want %d", l.HighWatermark(), tc.next+2)
			}
			checkRange(t, l, tc.next, tc.next+2, 50)
			closeLog(t, l)
		})
	}
}

// An untrusted boundary costs one fsync at open; if that fails, so does the open.
func TestUntrustedBoundaryIsSyncedAtOpen(t *testing.T) {
	fsys := disk.NewSim(1)
	l := openTest(t, fsys)
	commit(t, l, 4, 50)
	fsys = fsys.Crash(1)
	fsys.Fail(disk.Rule{Op: disk.OpSync, Path: "*.log", N: 1})
	if _, err := Open(Options{FS: fsys, Dir: testDir}); err == nil {
		t.Fatal("open succeeded over a failed fsync")
	}
	fsys.ClearRules()
	l = openTest(t, fsys)
	checkRange(t, l, 0, 4, 50)
	closeLog(t, l)
}

// The hwm file is released once per open, whatever the number of commits, and
// stored once per close; a log nobody wrote to touches it not at all.
func TestHighWatermarkFileIsTouchedOncePerOpenAndClose(t *testing.T) {
	fsys := disk.NewSim(1)
	l := openTest(t, fsys)
	commit(t, l, 1, 50)
	closeLog(t, l)
	before := fsys.Calls()
	l = openTest(t, fsys)
	opened := fsys.Calls()
	closeLog(t, l)
	if n := fsys.Calls() - opened; n != 0 {
		t.Fatalf("%d I/O calls to close an untouched log (open took %d)", n, opened-before)
	}
	l = openTest(t, fsys)
	commit(t, l, 1, 50)
	first := fsys.Calls()
	commit(t, l, 1, 50)
	second := fsys.Calls()
	commit(t, l, 1, 50)
	third := fsys.Calls()
	// One write, one fsync, one read.
	if second-first != 3 || third-second != 3 {
		t.Fatalf("a commit takes %d and %d calls, want 3", second-first, third-second)
	}
	closeLog(t, l)
}

// A segment found empty may have a directory entry that was never synced: the next
// commit syncs it before it relies on it. The same for a log's whole path.
func TestEntryOfEmptySegmentIsSynced_F5(t *testing.T) {
	fsys := newVolume(1)
	fsys.Fail(disk.Rule{Op: disk.OpSyncDir, N: 1, Sticky: true})
	l := openTest(t, fsys)
	if _, err := l.Commit(records(0, 1, 50)); err == nil {
		t.Fatal("commit succeeded without a directory fsync")
	}
	fsys.ClearRules()
	commit(t, l, 1, 50)
	l2 := openTest(t, fsys.Crash(2))
	checkRange(t, l2, 0, 1, 50)
	closeLog(t, l2)
}

// N1 to N5 of section 6: with fsyncs that lie, a power cut may cost the records
// they covered and nothing else.
func TestLyingFsync_N1_N2_N3_N4_N5(t *testing.T) {
	for seed := range int64(300) {
		fsys := newVolume(seed)
		d := newDriver(fsys)
		lieFrom := int(seed%20) + 1
		fsys.Fail(disk.Rule{Op: disk.OpSync, N: lieFrom, Sticky: true, Lie: true})
		var real int64
		for _, step := range d.script()[:8] {
			if err := step(); err != nil {
				t.Fatal(err)
			}
			if fsys.Fired() == 0 {
				real = d.acked // every flush so far was real
			}
		}
		crashed := fsys.Crash(seed)
		c := &driver{fsys: crashed, clk: d.clk}
		if err := c.open(); err != nil { // N2
			t.Fatalf("seed %d: %v", seed, err)
		}
		h, next := c.l.HighWatermark(), c.l.NextOffset()
		if h > d.acked || next < real { // N5, and N4's end
			t.Fatalf("seed %d: H=%d T=%d, acked %d of which %d really durable", seed, h, next, d.acked, real)
		}
		if err := c.commit(2); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for o := range c.l.HighWatermark() {
			s, err := c.l.Read(o)
			if err == nil {
				checkStored(t, s, o, scriptRecordBytes) // N1, N3
			} else if o < real { // N4
				t.Fatalf("seed %d: offset %d of %d really durable: %v", seed, o, real, err)
			}
			var dmg *DamageError
			if err != nil && !errors.As(err, &dmg) {
				t.Fatalf("seed %d: offset %d: %v", seed, o, err)
			}
		}
		closeLog(t, c.l)
	}
}
