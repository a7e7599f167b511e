package wal

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// The fixture of the corruption table: records of 1,000 bytes, ids equal to seqs.
// First segment: seqs 1..8 in groups of 1, 1, 3 and 3 (numbers 0 to 3). Second and
// newest segment, if there: seqs 9..14 in groups of 1, 2 and 3.
const (
	fixtureFrame = 1000 + frameHeaderSize
	firstName    = "00000000000000000001.wal"
	secondName   = "00000000000000000009.wal"
)

// posOf is where the i-th frame of a fixture segment starts.
func posOf(i int) int { return headerSize + i*fixtureFrame }

// fixture makes the log's directory and closes it as a crash would: nothing is
// sealed or removed. Segments is 1 or 2.
func fixture(t *testing.T, fsys disk.FS, dir string, segments int) {
	t.Helper()
	o := options(fsys, dir)
	o.SegmentBytes = headerSize + 8*fixtureFrame + 10
	l := mustOpen(t, o)
	id := 1
	for _, n := range [][]int{{1, 1, 3, 3}, {1, 2, 3}}[:segments] {
		for _, count := range n {
			var es []Entry
			for range count {
				es = append(es, rec(id, 1000))
				id++
			}
			mustAppend(t, l, es...)
		}
	}
	l.latch(errors.New("killed")) // Close then seals nothing
	mustClose(t, l)
}

// damageCase is one row: what happens to a file of the closed fixture, and what the
// next start makes of it.
type damageCase struct {
	name     string
	segments int // of the fixture
	file     string
	damage   func([]byte) []byte // nil = the file is removed
	next     uint64              // of the log that opens; 0 = it refuses
	position string              // in the refusal
}

func at(i int, delta int) int { return posOf(i) + delta }

func flip(pos int) func([]byte) []byte {
	return func(b []byte) []byte { b[pos] ^= 0x10; return b }
}

func zero(from, to int) func([]byte) []byte {
	return func(b []byte) []byte { clear(b[from:min(to, len(b))]); return b }
}

func cut(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:n] } }

func both(f ...func([]byte) []byte) func([]byte) []byte {
	return func(b []byte) []byte {
		for _, f := range f {
			b = f(b)
		}
		return b
	}
}

// withHeader replaces the header.
func withHeader(h segmentHeader) func([]byte) []byte {
	return func(b []byte) []byte { e := h.encode(); copy(b, e[:]); return b }
}

// copyFrame copies the i-th frame over the place of the j-th.
func copyFrame(i, j int) func([]byte) []byte {
	return func(b []byte) []byte { copy(b[posOf(j):], b[posOf(i):posOf(i+1)]); return b }
}

func damageTable() []damageCase {
	oldHeader := segmentHeader{salt: [8]byte{9}, base: 3}
	return []damageCase{
		// R1..R6 in the newest of two segments, whose groups are frames 0 | 1 2 | 3 4 5.
		{"R1 nothing", 2, secondName, cut(posOf(6)), 15, ""},
		{"R1 zero rest", 2, secondName, zero(posOf(6), 1<<30), 15, ""},
		{"R1 garbage behind", 2, secondName, func(b []byte) []byte { return append(b[:posOf(6)], "NWF1 rubbish, longer than a header"...) }, 15, ""},
		{"R2 F20 last frame, seq", 2, secondName, flip(at(5, 7)), 14, ""},
		{"R2 F20 last frame, crc", 2, secondName, flip(at(5, 16)), 14, ""},
		{"R2 F20 last frame, body", 2, secondName, flip(at(5, 500)), 14, ""},
		{"R2 last group cut short", 2, secondName, cut(at(4, 17)), 13, ""},
		{"R2 last group zeroed", 2, secondName, zero(posOf(3), posOf(6)), 12, ""},
		{"R3 first frame of the last group", 2, secondName, flip(at(3, 500)), 12, ""},
		{"R3 middle frame of the last group", 2, secondName, flip(at(4, 0)), 13, ""},
		{"R3 sector zeroed in the last group", 2, secondName, zero(at(4, 100), at(4, 612)), 13, ""},
		{"R4 F20 first frame, magic", 2, secondName, flip(at(0, 0)), 0, "position 32"},
		{"R4 F20 first frame, seq", 2, secondName, flip(at(0, 11)), 0, "position 32"},
		{"R4 F22 first frame, length", 2, secondName, flip(at(0, 13)), 0, "position 32"},
		{"R4 F20 first frame, group", 2, secondName, flip(at(0, 12)), 0, "position 32"},
		{"R4 F20 first frame, crc", 2, secondName, flip(at(0, 19)), 0, "position 32"},
		{"R4 F20 first frame, body", 2, secondName, flip(at(0, 20)), 0, "position 32"},
		{"R4 second group, its first frame", 2, secondName, flip(at(1, 900)), 0, "position 1052"},
		{"R4 second group, its last frame", 2, secondName, flip(at(2, 900)), 0, "position 2072"},
		{"R4 second group, all of it", 2, secondName, zero(posOf(1), posOf(3)), 0, "position 1052"},
		{"R4 tail of the second group and head of the last", 2, secondName, zero(posOf(2), posOf(4)), 0, "position 2072"},
		{"R4 F23 page zeroed", 2, secondName, zero(0x200, 0x600), 0, "position 32"},
		{"R5 F23 frame duplicated over the next", 2, secondName, copyFrame(3, 4), 0, "position 4112"},
		{"R5 passed frame behind a bad one", 2, secondName, both(flip(at(3, 500)), copyFrame(2, 4)), 0, "position 3092"},
		{"R5 passed frame of the last group behind a bad one", 2, secondName, both(flip(at(4, 500)), copyFrame(3, 5)), 0, "position 4112"},
		{"R7 cut to nothing", 2, secondName, cut(0), 9, ""},
		{"R7 cut to half a header of zeros", 2, secondName, both(zero(0, 16), cut(16)), 9, ""},
		{"R7 all zeros", 2, secondName, zero(0, 1<<30), 9, ""},
		{"R8 header of a lower seq, no frames", 2, secondName, both(withHeader(oldHeader), zero(headerSize, 1<<30)), 9, ""},
		{"R8 header of a lower seq, lower frames", 2, secondName, func([]byte) []byte {
			h := oldHeader.encode()
			return append(h[:], frameBytes(rec(3, 100), 3, group{})...)
		}, 9, ""},
		{"R9 F21 zero header over frames", 2, secondName, zero(0, headerSize), 0, "position 0"},
		{"R9 F23 first page zero, frames behind", 2, secondName, zero(0, 4096), 0, "position 0"},
		{"R9 header of a lower seq over frames", 2, secondName, withHeader(oldHeader), 0, "position 0"},
		{"R10 F21 header, magic", 2, secondName, flip(3), 0, "position 0"},
		{"R10 F21 header, salt", 2, secondName, flip(9), 0, "position 0"},
		{"R10 F21 header, base", 2, secondName, flip(20), 0, "position 0"},
		{"R10 F21 header, reserved", 2, secondName, flip(25), 0, "position 0"},
		{"R10 F21 header, crc", 2, secondName, flip(30), 0, "position 0"},
		{"R10 F25 header of a higher seq", 2, secondName, withHeader(segmentHeader{base: 10}), 0, "position 0"},
		{"R10 cut inside the header", 2, secondName, cut(20), 0, "position 0"},

		// A sealed segment: everything must be there.
		{"sealed F21 header", 2, firstName, flip(9), 0, firstName + " at position 0"},
		{"sealed F21 zero header", 2, firstName, zero(0, headerSize), 0, firstName + " at position 0"},
		{"sealed F20 first frame", 2, firstName, flip(at(0, 30)), 0, "position 32"},
		{"sealed F20 last frame", 2, firstName, flip(at(7, 30)), 0, "position 7172"},
		{"sealed F24 cut in the last group", 2, firstName, cut(posOf(6)), 0, "position 6152"},
		{"sealed F24 cut to nothing", 2, firstName, cut(0), 0, "position 0"},
		{"sealed rest is free", 2, firstName, func(b []byte) []byte { return append(b[:posOf(8)], "anything at all"...) }, 15, ""},
		{"sealed F25 frame of the next segment's first seq", 2, firstName, func(b []byte) []byte {
			h, _ := decodeHeader(b)
			f := frameBytes(rec(9, 100), 9, group{number: 4})
			sealFrame(f, h.saltSum(), 9, group{number: 4})
			return append(b[:posOf(8)], f...)
		}, 0, "position 8192"},

		// Files missing.
		{"F24 newest gone", 2, secondName, nil, 9, ""},
		{"F24 oldest gone", 2, firstName, nil, 15, ""},
		{"F24 the only one gone", 1, firstName, nil, 1, ""},
	}
}

// TestDamageTable: F20 to F25 and the rows R1 to R10 of the package comment. A log
// that opens holds the undamaged records before its next seq; one that refuses names
// file and position and has changed nothing.
func TestDamageTable(t *testing.T) {
	for _, c := range damageTable() {
		t.Run(c.name, func(t *testing.T) {
			volumes(t, func(t *testing.T, fsys disk.FS, dir string) { c.run(t, fsys, dir) })
		})
	}
}

func (c *damageCase) run(t *testing.T, fsys disk.FS, dir string) {
	fixture(t, fsys, dir, c.segments)
	name := path.Join(dir, c.file)
	if c.damage == nil {
		if err := fsys.Remove(name); err != nil {
			t.Fatal(err)
		}
	} else {
		change(t, fsys, name, c.damage)
	}
	before := files(t, fsys, dir)
	l, err := Open(options(fsys, dir))
	if c.next == 0 {
		if err == nil {
			l.Close()
			t.Fatalf("opened with next seq %d, want a refusal", l.Next())
		}
		if !errors.Is(err, model.ErrCorrupt) || !strings.Contains(err.Error(), "corrupt frame") ||
			!strings.Contains(err.Error(), c.file) || !strings.Contains(err.Error(), c.position) {
			t.Errorf("refusal %q, want corrupt frame, %s and %s", err, c.file, c.position)
		}
		for name, b := range before {
			if files(t, fsys, dir)[name] != b {
				t.Errorf("the refused start changed %s", name)
			}
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	wantRecs(t, l, l.Checkpoint(), c.next)
	mustAppend(t, l, rec(int(c.next), 10))
	wantRecs(t, l, l.Checkpoint(), c.next+1)
	mustClose(t, l)
	again := mustOpen(t, options(fsys, dir))
	wantRecs(t, again, again.Checkpoint(), c.next+1)
}

// change rewrites a file.
func change(t *testing.T, fsys disk.FS, name string, f func([]byte) []byte) {
	t.Helper()
	b, err := disk.ReadFile(fsys, name, 1<<30)
	if err == nil {
		err = disk.WriteFileAtomic(fsys, name, f(b))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// files is the content of every file of a directory.
func files(t *testing.T, fsys disk.FS, dir string) map[string]string {
	t.Helper()
	infos, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, info := range infos {
		b, err := disk.ReadFile(fsys, path.Join(dir, info.Name), 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		out[info.Name] = string(b)
	}
	return out
}

// TestMissingMiddle: a segment missing between two others is refused (F24).
func TestMissingMiddle(t *testing.T) {
	volumes(t, func(t *testing.T, fsys disk.FS, dir string) {
		o := options(fsys, dir)
		o.SegmentBytes = 2000
		l := mustOpen(t, o)
		appendRecs(t, l, 1, 7, 900)
		mustClose(t, l)
		if err := fsys.Remove(path.Join(dir, segmentName(3))); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(o); !errors.Is(err, model.ErrCorrupt) || !strings.Contains(err.Error(), "seq 3 is due, the next segment starts at 5") {
			t.Fatalf("%v, want a refusal that names seqs 3 and 5", err)
		}
	})
}

// TestCleanCloseSeals: after a clean stop, damage to the very last records is told
// apart from a crash.
func TestCleanCloseSeals(t *testing.T) {
	s := disk.NewSim(1)
	l := mustOpen(t, options(s, testDir))
	appendRecs(t, l, 1, 4, 1000)
	mustClose(t, l)
	if err := s.Corrupt(path.Join(testDir, firstName), flip(at(2, 500))); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(options(s, testDir)); !errors.Is(err, model.ErrCorrupt) {
		t.Fatalf("%v, want a refusal", err)
	}
}

// TestPayloadOfFrames: bodies that contain frames and headers of this very log never
// change what recovery accepts (storage property 10).
func TestPayloadOfFrames(t *testing.T) {
	s := disk.NewSim(1)
	l := mustOpen(t, options(s, testDir))
	h := vectorHeader(1).encode()
	evil := blob(append(h[:], frameBytes(rec(3, 40), 3, group{number: 1})...))
	mustAppend(t, l, rec(1, 100), evil, evil)
	mustAppend(t, l, evil)
	l.latch(errors.New("killed"))
	mustClose(t, l)
	if err := s.Corrupt(path.Join(testDir, firstName), func(b []byte) []byte {
		b[headerSize+120+2*(20+len(evil))+20+40] ^= 1 // inside the last record
		return b
	}); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, options(s, testDir))
	if l.Next() != 4 {
		t.Fatalf("next seq %d, want 4: the last record alone is torn", l.Next())
	}
}

// TestLookalikes: R6. A payload of overlapping frame headers behind a bad frame costs
// bounded work and ends in a refusal.
func TestLookalikes(t *testing.T) {
	s := disk.NewSim(1)
	l := mustOpen(t, options(s, testDir))
	var evil blob
	for range 3000 {
		f := frameBytes(make([]byte, 4), 2, group{})
		setBodyLength(f, 60_000)
		evil = append(evil, f...)
	}
	mustAppend(t, l, evil, rec(2, 100), rec(3, BodyMax))
	l.latch(errors.New("killed"))
	mustClose(t, l)
	if err := s.Corrupt(path.Join(testDir, firstName), flip(40)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(options(s, testDir)); !errors.Is(err, errAmbiguous) || !errors.Is(err, model.ErrCorrupt) {
		t.Fatalf("%v, want errAmbiguous", err)
	}
}

// TestLyingSync: a device that reports syncs it never made loses records at a power
// cut; the start says so where a later segment or the checkpoint had built on them,
// and serves nothing made up in any case (F13).
func TestLyingSync(t *testing.T) {
	for seed := range int64(40) {
		s := newVolume(seed)()
		o := options(s, testDir)
		o.SegmentBytes = 2048
		l := mustOpen(t, o)
		appendRecs(t, l, 1, 4, 300)
		s.Fail(disk.Rule{Op: disk.OpSync, Path: "*.wal", Sticky: true, N: 1, Lie: true})
		appendRecs(t, l, 4, 20, 300)
		c := s.Crash(seed)
		l.Close()
		again, err := Open(options(c, testDir))
		if err != nil {
			if !errors.Is(err, model.ErrCorrupt) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			continue
		}
		recs, err := readAll(again, 1)
		if err != nil || len(recs) < 3 || len(recs) != int(again.Next()-1) {
			t.Fatalf("seed %d: %d records, next %d, %v", seed, len(recs), again.Next(), err)
		}
		mustClose(t, again)
	}
}

// TestCheckpointStates: checkpoint files of every wrong shape start dispatch at the
// oldest segment and are put right; one above the log is refused with both values.
func TestCheckpointStates(t *testing.T) {
	fact := func(v int64) string { b := disk.EncodeFact(checkpointMagic, v); return string(b[:]) }
	for name, c := range map[string]struct {
		content string
		want    uint64
		warns   string
	}{
		"valid":         {fact(6), 6, ""},
		"end":           {fact(9), 9, ""},
		"empty":         {"", 1, ""},
		"short":         {fact(6)[:9], 1, "damaged"},
		"long":          {fact(6) + "x", 1, "damaged"},
		"zeros":         {string(make([]byte, 16)), 1, "damaged"},
		"flipped":       {fact(6)[:11] + "\x07" + fact(6)[12:], 1, "damaged"},
		"value zero":    {fact(0), 1, "damaged"},
		"negative":      {fact(-5), 1, "damaged"},
		"foreign magic": {"NHW1" + fact(6)[4:], 1, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			volumes(t, func(t *testing.T, fsys disk.FS, dir string) {
				fixture(t, fsys, dir, 1)
				file := path.Join(dir, checkpointName)
				change(t, fsys, file, func([]byte) []byte { return []byte(c.content) })
				var lines logLines
				o := options(fsys, dir)
				o.Logger = lines.logger()
				l := mustOpen(t, o)
				if l.Checkpoint() != c.want {
					t.Fatalf("checkpoint %d, want %d", l.Checkpoint(), c.want)
				}
				if lines.has("checkpoint") != (c.warns != "") || !lines.has(c.warns) {
					t.Errorf("warned %q, want %q", lines.buf.String(), c.warns)
				}
				wantRecs(t, l, c.want, 9)
				mustClose(t, l)
				if got := files(t, fsys, dir)[checkpointName]; got != fact(int64(c.want)) {
					t.Errorf("file holds %x after the stop", got)
				}
			})
		})
	}
}

func TestCheckpointOutOfRange(t *testing.T) {
	volumes(t, func(t *testing.T, fsys disk.FS, dir string) {
		fixture(t, fsys, dir, 2)
		file := path.Join(dir, checkpointName)
		put := func(v int64) {
			change(t, fsys, file, func([]byte) []byte { b := disk.EncodeFact(checkpointMagic, v); return b[:] })
		}
		put(16)
		if _, err := Open(options(fsys, dir)); err == nil || !strings.Contains(err.Error(), "holds 16") || !strings.Contains(err.Error(), "next seq 15") {
			t.Fatalf("checkpoint above the log: %v, want a refusal naming 16 and 15", err)
		}
		put(3)
		if err := fsys.Remove(path.Join(dir, firstName)); err != nil {
			t.Fatal(err)
		}
		var lines logLines
		o := options(fsys, dir)
		o.Logger = lines.logger()
		l := mustOpen(t, o)
		if !lines.has(`msg="ingress dispatch checkpoint was below the oldest WAL segment; dispatch starts at that segment" checkpoint=3 oldest_segment=9`) {
			t.Errorf("logged %s", lines.buf.String())
		}
		wantRecs(t, l, 9, 15)
	})
}

// TestDoneSegmentsAreNotRead: damage that no undone record can feel does not stop
// the start.
func TestDoneSegmentsAreNotRead(t *testing.T) {
	volumes(t, func(t *testing.T, fsys disk.FS, dir string) {
		fixture(t, fsys, dir, 2)
		change(t, fsys, path.Join(dir, checkpointName), func([]byte) []byte { b := disk.EncodeFact(checkpointMagic, 9); return b[:] })
		change(t, fsys, path.Join(dir, firstName), zero(0, 1<<30))
		wantRecs(t, mustOpen(t, options(fsys, dir)), 9, 15)
	})
}

// TestNoSegments: without any segment the next seq is the checkpoint, so no seq is
// used twice.
func TestNoSegments(t *testing.T) {
	volumes(t, func(t *testing.T, fsys disk.FS, dir string) {
		fixture(t, fsys, dir, 1)
		change(t, fsys, path.Join(dir, checkpointName), func([]byte) []byte { b := disk.EncodeFact(checkpointMagic, 500); return b[:] })
		if err := fsys.Remove(path.Join(dir, firstName)); err != nil {
			t.Fatal(err)
		}
		l := mustOpen(t, options(fsys, dir))
		mustAppend(t, l, rec(500, 10))
		wantRecs(t, l, 500, 501)
	})
}

// TestUnknownFilesStay: what is not the log's is left alone.
func TestUnknownFilesStay(t *testing.T) {
	volumes(t, func(t *testing.T, fsys disk.FS, dir string) {
		fixture(t, fsys, dir, 1)
		for _, name := range []string{"README", "1.wal", newSegmentName, spareNames[1], "00000000000000000001.wal.bak"} {
			f, err := fsys.Open(path.Join(dir, name), os.O_RDWR|os.O_CREATE)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
		l := mustOpen(t, options(fsys, dir))
		wantRecs(t, l, 1, 9)
		if err := l.Append(context.Background(), rec(9, 10)); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
		for name, want := range map[string]bool{"README": true, "1.wal": true, "00000000000000000001.wal.bak": true, newSegmentName: false, spareNames[1]: false} {
			if _, err := fsys.Stat(path.Join(dir, name)); errors.Is(err, fs.ErrNotExist) == want {
				t.Errorf("%s there: %v, want %v", name, !want, want)
			}
		}
	})
}
