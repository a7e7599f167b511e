package commitlog

import (
	"errors"
	"math/rand/v2"
	"path"
	"runtime"
	"testing"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// frames lists the frames of a segment's bytes.
func frames(t testing.TB, b []byte) (fs []framed) {
	t.Helper()
	for at := int64(0); at < int64(len(b)); {
		h, reason := parseFrameHeader(b[at:])
		if reason != "" {
			t.Fatalf("frame at %d: %s", at, reason)
		}
		fs = append(fs, framed{h, at})
		at += h.size()
	}
	return fs
}

const damageRecordBytes = 200

// damaged builds a log of three segments, ten commits of four records each, closed
// cleanly, and damages one segment of it: which is 0, 1 or 2.
func damaged(t testing.TB, which int, damage func(b []byte, fs []framed) []byte) (fsys *disk.Sim, hwm int64) {
	t.Helper()
	fsys = disk.NewSim(1)
	l := openTest(t, fsys, func(o *Options) { o.SegmentBytes = 3500 })
	for range 10 {
		commit(t, l, 4, damageRecordBytes)
	}
	hwm = l.HighWatermark()
	closeLog(t, l)
	segs, err := listSegments(fsys, testDir)
	if err != nil || len(segs) != 3 {
		t.Fatalf("%d segments, %v", len(segs), err)
	}
	err = fsys.Corrupt(path.Join(testDir, segmentName(segs[which].base)), func(b []byte) []byte {
		return damage(b, frames(t, b))
	})
	if err != nil {
		t.Fatal(err)
	}
	return fsys, hwm
}

// survey opens the log and reads every offset: each is right, unreadable, or past
// H. It returns the offsets that could not be read, and leaves the log usable.
func survey(t testing.TB, fsys disk.FS, hwm int64) (lost []int64) {
	t.Helper()
	l := openTest(t, fsys, func(o *Options) { o.SegmentBytes = 3500 })
	if l.HighWatermark() > hwm {
		t.Fatalf("H=%d above the %d that was committed", l.HighWatermark(), hwm)
	}
	if l.NextOffset() < hwm {
		t.Fatalf("T=%d: offsets below %d would be given out again", l.NextOffset(), hwm)
	}
	for o := range hwm {
		s, err := l.Read(o)
		var d *DamageError
		var aged *model.AgedOutError
		switch {
		case err == nil:
			checkStored(t, s, o, damageRecordBytes)
			continue
		case errors.As(err, &d):
			if d.Next <= o || !errors.Is(err, model.ErrUnreadable) {
				t.Fatalf("offset %d: %v", o, err)
			}
		case errors.As(err, &aged), errors.Is(err, ErrPastEnd):
		default:
			t.Fatalf("offset %d: %v", o, err)
		}
		lost = append(lost, o)
	}
	slab, err := l.Slab(nil, l.OldestOffset(), SlabLimit{MaxRecords: 1000, MaxBytes: 1 << 20})
	if err != nil || int64(len(slab.Records)) != hwm-int64(len(lost)) {
		t.Fatalf("slab of %d records, %v; %d of %d lost", len(slab.Records), err, len(lost), hwm)
	}
	next := l.NextOffset()
	commit(t, l, 4, damageRecordBytes)
	checkRange(t, l, next, next+4, damageRecordBytes)
	closeLog(t, l)
	return lost
}

func equalRange(lost []int64, from, to int64) bool {
	if int64(len(lost)) != to-from {
		return false
	}
	for i := range lost {
		if lost[i] != from+int64(i) {
			return false
		}
	}
	return true
}

// F20, F22: one bit flipped in each byte of a frame's header and here and there in
// its payload. The frame is never served, its neighbours are.
func TestBitFlips_F20_F22(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, which := range []int{0, 1, 2} {
		for at := range frameHeaderSize + 40 {
			bit := byte(1) << rng.UintN(8)
			fsys, hwm := damaged(t, which, func(b []byte, fs []framed) []byte {
				p := fs[1].at + int64(at)
				if at >= frameHeaderSize {
					p = fs[1].at + frameHeaderSize + rng.Int64N(fs[1].compressed)
				}
				b[p] ^= bit
				return b
			})
			// Four records a frame, four frames a segment: the second frame is lost.
			from := int64(which)*16 + 4
			if which == 2 {
				from = 36 // the last segment has two frames: its last one is cut as torn
			}
			if lost := survey(t, fsys, hwm); !equalRange(lost, from, from+4) {
				t.Fatalf("segment %d byte %d bit %08b: lost %v, want [%d,%d)", which, at, bit, lost, from, from+4)
			}
		}
	}
}

// F20 to F24 and F19: damage at rest by table.
func TestDamageAtRest_F20_F21_F22_F23_F24(t *testing.T) {
	type hit struct {
		name     string
		which    int
		damage   func(b []byte, fs []framed) []byte
		from, to int64 // offsets lost
	}
	huge := func(field int) func([]byte, []framed) []byte {
		return func(b []byte, fs []framed) []byte {
			copy(b[fs[1].at+int64(field):], []byte{0xff, 0xff, 0xff, 0xf0})
			return b
		}
	}
	for _, tc := range []hit{
		{"huge uncompressed", 0, huge(15), 4, 8},
		{"huge compressed", 0, huge(19), 4, 8},
		{"negative count", 1, huge(3), 20, 24},
		{"page zeroed", 0, func(b []byte, fs []framed) []byte { clear(b[fs[1].at : fs[1].at+700]); return b }, 4, 8},
		{"page duplicated", 0, func(b []byte, fs []framed) []byte {
			copy(b[fs[2].at:fs[3].at], b[fs[1].at:fs[2].at])
			return b
		}, 8, 12},
		{"page rolled back to zeros at the tail", 1, func(b []byte, fs []framed) []byte { clear(b[fs[3].at:]); return b }, 28, 32},
		{"oldest truncated", 0, func(b []byte, fs []framed) []byte { return b[:fs[2].at+9] }, 8, 16},
		{"middle truncated", 1, func(b []byte, fs []framed) []byte { return b[:fs[1].at] }, 20, 32},
		{"newest truncated", 2, func(b []byte, fs []framed) []byte { return b[:fs[1].at+100] }, 36, 40},
		{"newest empty", 2, func(b []byte, fs []framed) []byte { return nil }, 32, 40},
		{"oldest empty", 0, func(b []byte, fs []framed) []byte { return nil }, 0, 16},
		{"newest extended with zeros", 2, func(b []byte, fs []framed) []byte { return append(b, make([]byte, 5000)...) }, 0, 0},
		{"newest extended with garbage", 2, func(b []byte, fs []framed) []byte { return append(b, b[10:700]...) }, 0, 0},
		{"newest: first frame gone, second kept", 2, func(b []byte, fs []framed) []byte { clear(b[:fs[1].at]); return b }, 32, 36},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fsys, hwm := damaged(t, tc.which, tc.damage)
			if lost := survey(t, fsys, hwm); !equalRange(lost, tc.from, tc.to) {
				t.Fatalf("lost %v, want [%d,%d)", lost, tc.from, tc.to)
			}
		})
	}
}

// F24: whole segments gone. The log opens, the rest is served, offsets are not
// used again, and nothing else goes.
func TestSegmentDeleted_F24(t *testing.T) {
	for which, want := range [][2]int64{{0, 16}, {16, 32}, {32, 40}} {
		fsys, hwm := damaged(t, which, func(b []byte, _ []framed) []byte { return b })
		segs, err := listSegments(fsys, testDir)
		if err != nil {
			t.Fatal(err)
		}
		if err := fsys.Remove(path.Join(testDir, segmentName(segs[which].base))); err != nil {
			t.Fatal(err)
		}
		if lost := survey(t, fsys, hwm); !equalRange(lost, want[0], want[1]) {
			t.Fatalf("segment %d deleted: lost %v, want %v", which, lost, want)
		}
		left, err := listSegments(fsys, testDir)
		if err != nil || len(left) < 2 {
			t.Fatalf("segment %d deleted: %d left, %v", which, len(left), err)
		}
	}
}

// F25 as far as the format goes: segments that swapped names serve none of their
// records, rather than records at the wrong offsets.
func TestSwappedSegments_F25(t *testing.T) {
	fsys, hwm := damaged(t, 0, func(b []byte, _ []framed) []byte { return b })
	segs, err := listSegments(fsys, testDir)
	if err != nil {
		t.Fatal(err)
	}
	a, b := path.Join(testDir, segmentName(segs[0].base)), path.Join(testDir, segmentName(segs[1].base))
	for _, r := range [][2]string{{a, "data/x"}, {b, a}, {"data/x", b}} {
		if err := fsys.Rename(r[0], r[1]); err != nil {
			t.Fatal(err)
		}
	}
	if lost := survey(t, fsys, hwm); !equalRange(lost, 0, 32) {
		t.Fatalf("lost %v", lost)
	}
}

// A sealed segment that reaches past its successor's base, as an old copy put back
// might, does not answer for the successor's offsets.
func TestSegmentReachingPastItsEnd(t *testing.T) {
	fsys := disk.NewSim(1)
	l := openTest(t, fsys, func(o *Options) { o.SegmentBytes = 1 << 20 })
	commit(t, l, 2, damageRecordBytes)
	commit(t, l, 2, damageRecordBytes)
	stale := activeBytes(t, fsys, 0)
	closeLog(t, l)
	fsys = disk.NewSim(2)
	l = openTest(t, fsys, func(o *Options) { o.SegmentBytes = 300 })
	commit(t, l, 2, damageRecordBytes)
	if _, err := l.Commit([]Record{{Payload: []byte("the successor's")}}); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	if err := fsys.Corrupt(path.Join(testDir, segmentName(0)), func([]byte) []byte { return stale }); err != nil {
		t.Fatal(err)
	}
	l = openTest(t, fsys)
	checkRange(t, l, 0, 2, damageRecordBytes)
	if s, err := l.Read(2); err != nil || string(s.Payload) != "the successor's" {
		t.Fatalf("%.20q %v", s.Payload, err)
	}
	closeLog(t, l)
	// One frame across the boundary answers for neither side.
	one := make([]byte, frameHeaderSize)
	one = appendRecords(one, records(0, 4, damageRecordBytes))
	n := int64(len(one) - frameHeaderSize)
	putFrameHeader(one, frameHeader{count: 4, uncompressed: n, compressed: n})
	if err := fsys.Corrupt(path.Join(testDir, segmentName(0)), func([]byte) []byte { return one }); err != nil {
		t.Fatal(err)
	}
	l = openTest(t, fsys)
	if _, err := l.Read(1); !errors.Is(err, model.ErrUnreadable) {
		t.Fatal(err)
	}
	if s, err := l.Read(2); err != nil || string(s.Payload) != "the successor's" {
		t.Fatalf("%.20q %v", s.Payload, err)
	}
	closeLog(t, l)
}

// Damage is looked for once: later reads of lost offsets touch no disk, and say
// where to go on.
func TestKnownDamageCostsNothing(t *testing.T) {
	fsys, _ := damaged(t, 0, func(b []byte, fs []framed) []byte { clear(b[fs[1].at : fs[1].at+30]); return b })
	l := openTest(t, fsys)
	for o := int64(4); o < 8; o++ {
		calls := fsys.Calls()
		var d *DamageError
		if _, err := l.Read(o); !errors.As(err, &d) || d.Offset != o || d.Next != 8 {
			t.Fatalf("offset %d: %v", o, err)
		}
		if n := fsys.Calls() - calls; o > 4 && n != 0 {
			t.Fatalf("offset %d: %d I/O calls", o, n)
		}
	}
	slab, err := l.Slab(nil, 0, SlabLimit{MaxRecords: 10, MaxBytes: 1 << 20})
	if err != nil || slab.Skipped != 4 || slab.Next != 14 || len(slab.Records) != 10 {
		t.Fatalf("%d records, next %d, skipped %d, %v", len(slab.Records), slab.Next, slab.Skipped, err)
	}
	closeLog(t, l)
}

// F22: a damaged length allocates nothing of its size.
func TestDamagedLengthAllocatesLittle_F22(t *testing.T) {
	fsys, _ := damaged(t, 0, func(b []byte, fs []framed) []byte {
		copy(b[fs[1].at+15:], []byte{0x0f, 0xff, 0xff, 0xff, 0x0f, 0xff, 0xff, 0xff}) // just within the bound
		return b
	})
	l := openTest(t, fsys)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := l.Read(5); !errors.Is(err, model.ErrUnreadable) {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Fatalf("%d bytes allocated for a damaged length", n)
	}
	closeLog(t, l)
}

// Property 10: a payload that holds the bytes of a valid frame cannot move T past
// the jump bound, and is not served as records, when the frame around it is damaged.
func TestPayloadHoldingFrames_P10(t *testing.T) {
	inner := func(base int64) []byte {
		b := make([]byte, frameHeaderSize)
		b = appendRecord(b, &Record{Payload: []byte("forged")})
		n := int64(len(b) - frameHeaderSize)
		putFrameHeader(b, frameHeader{count: 1, base: base, uncompressed: n, compressed: n})
		return b
	}
	fsys := disk.NewSim(1)
	l := openTest(t, fsys)
	commit(t, l, 2, 50)
	if _, err := l.Commit([]Record{{Payload: inner(offsetMax / 2)}}); err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	b := activeBytes(t, fsys, 0)
	for _, f := range frames(t, b) {
		at = f.at
	}
	fsys = fsys.Crash(1) // no clean close: T comes from the file alone
	if err := fsys.Corrupt(path.Join(testDir, segmentName(0)), func(b []byte) []byte { b[at+5] ^= 0x40; return b }); err != nil {
		t.Fatal(err)
	}
	l = openTest(t, fsys)
	if l.NextOffset() != 2 || l.HighWatermark() != 2 {
		t.Fatalf("T=%d H=%d, want 2: a forged base moved the end", l.NextOffset(), l.HighWatermark())
	}
	commit(t, l, 2, 50)
	checkRange(t, l, 0, 4, 50)
	closeLog(t, l)
}

// An envelope of an unknown version reads as damaged and hides no neighbour.
func TestUnknownEnvelopeVersion(t *testing.T) {
	fsys := disk.NewSim(1)
	l := openTest(t, fsys)
	commit(t, l, 3, 50)
	closeLog(t, l)
	err := fsys.Corrupt(path.Join(testDir, segmentName(0)), func(b []byte) []byte {
		h, _ := parseFrameHeader(b)
		first := int64(recordLenSize) + envelopeSize(&[]Record{record(0, 50)}[0])
		b[frameHeaderSize+first+recordLenSize] = 9
		putFrameHeader(b, h)
		return b
	})
	if err != nil {
		t.Fatal(err)
	}
	l = openTest(t, fsys)
	checkRange(t, l, 0, 1, 50)
	checkRange(t, l, 2, 3, 50)
	var d *DamageError
	if _, err := l.Read(1); !errors.As(err, &d) || d.Next != 2 {
		t.Fatalf("read: %v", err)
	}
	if recs, err := l.ReadRun(nil, 0, 10, 0); err != nil || len(recs) != 1 {
		t.Fatalf("run of %d, %v", len(recs), err)
	}
	closeLog(t, l)
}
