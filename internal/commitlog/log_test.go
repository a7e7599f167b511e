package commitlog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testDir = "data/topics/t/p00000"

// testCache saves each of thousands of opens its scratch buffers.
var testCache = NewCache(0)

// start is where test clocks begin.
var start = time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)

func openTest(t testing.TB, fsys disk.FS, change ...func(*Options)) *Log {
	t.Helper()
	opt := Options{FS: fsys, Dir: testDir, Topic: "t", Clock: clock.NewFake(start), Cache: testCache}
	for _, f := range change {
		f(&opt)
	}
	l, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// record makes a record that names its own offset, so that a mix-up shows.
func record(offset int64, size int) Record {
	p := []byte(fmt.Sprintf("payload of %d ", offset))
	for len(p) < size {
		p = append(p, byte(offset)+byte(len(p)))
	}
	r := Record{Payload: p, CommittedAt: start.UnixMilli() + offset}
	if offset%2 == 1 {
		r.Key = []byte(fmt.Sprintf("key %d", offset))
	}
	return r
}

func records(from int64, n, size int) []Record {
	recs := make([]Record, n)
	for i := range recs {
		recs[i] = record(from+int64(i), size)
	}
	return recs
}

func commit(t testing.TB, l *Log, n, size int) {
	t.Helper()
	want := l.NextOffset()
	first, err := l.Commit(records(want, n, size))
	if err != nil {
		t.Fatal(err)
	}
	if first != want || l.HighWatermark() != want+int64(n) {
		t.Fatalf("commit of %d landed at %d with H=%d, want offset %d", n, first, l.HighWatermark(), want)
	}
}

// checkStored fails unless s is record(s.Offset, size).
func checkStored(t testing.TB, s Stored, offset int64, size int) {
	t.Helper()
	want := record(offset, size)
	if s.Offset != offset || !bytes.Equal(s.Key, want.Key) || !bytes.Equal(s.Payload, want.Payload) || s.CommittedAt != want.CommittedAt {
		t.Fatalf("offset %d reads as offset %d key %q payload %.40q time %d", offset, s.Offset, s.Key, s.Payload, s.CommittedAt)
	}
}

func checkRange(t testing.TB, l *Log, from, to int64, size int) {
	t.Helper()
	for o := from; o < to; o++ {
		s, err := l.Read(o)
		if err != nil {
			t.Fatalf("read %d: %v", o, err)
		}
		checkStored(t, s, o, size)
	}
}

func closeLog(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCommitReadReopen(t *testing.T) {
	for _, tc := range []struct{ name, codec string }{{"none", "none"}, {"zstd", "zstd"}} {
		t.Run(tc.name, func(t *testing.T) {
			codec, err := NewCodec(tc.codec, "")
			if err != nil {
				t.Fatal(err)
			}
			fsys := disk.NewSim(1)
			set := func(o *Options) { o.Codec = codec; o.SegmentBytes = 1 << 10 }
			l := openTest(t, fsys, set)
			sizes := []int{1, 3, 40, 1, 200}
			for _, n := range sizes {
				commit(t, l, n, 100)
			}
			checkRange(t, l, 0, 245, 100)
			if l.Stats().Segments < 2 {
				t.Fatalf("no roll: %+v", l.Stats())
			}
			want := l.Stats()
			closeLog(t, l)
			d, trusted, err := Describe(fsys, testDir)
			if err != nil || !trusted || d.HighWatermark != 245 || d.Segments != want.Segments || d.SizeBytes != want.SizeBytes {
				t.Fatalf("describe: %+v trusted=%v err=%v, want %+v", d, trusted, err, want)
			}
			l = openTest(t, fsys, set)
			if l.HighWatermark() != 245 || l.NextOffset() != 245 {
				t.Fatalf("reopened with H=%d T=%d", l.HighWatermark(), l.NextOffset())
			}
			checkRange(t, l, 0, 245, 100)
			commit(t, l, 10, 100)
			checkRange(t, l, 240, 255, 100)
			closeLog(t, l)
		})
	}
}

// The test vector of spec/storage-and-produce section 4.3, and the worked example of
// DESIGN.md: the files of a real log, byte for byte.
func TestGoldenBytesAreTheDocumentedOnes(t *testing.T) {
	const frame = "cafe00000000010000000000000000000000170000001754bd194500000013" +
		"02026b310000018bcfe568007b226e223a317d"
	fsys := disk.NewSim(1)
	l := openTest(t, fsys)
	if _, err := l.Commit([]Record{{Key: []byte("k1"), Payload: []byte(`{"n":1}`), CommittedAt: 1700000000000}}); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	doc, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{segmentName(0), hwmName} {
		got, err := fsys.Dump(path.Join(testDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if name != hwmName && hex.EncodeToString(got) != frame {
			t.Fatalf("frame\n%x\nwant\n%s", got, frame)
		}
		if !bytes.Contains(doc, []byte(hex.Dump(got))) {
			t.Fatalf("DESIGN.md does not show %s as it is:\n%s", name, hex.Dump(got))
		}
	}
}

func TestReadErrors(t *testing.T) {
	l := openTest(t, disk.NewSim(1))
	if _, err := l.Read(0); !errors.Is(err, ErrPastEnd) {
		t.Fatalf("empty log: %v", err)
	}
	commit(t, l, 3, 10)
	if _, err := l.Read(3); !errors.Is(err, ErrPastEnd) {
		t.Fatalf("at H: %v", err)
	}
	var aged *model.AgedOutError
	if _, err := l.Read(-1); !errors.As(err, &aged) || aged.Oldest != 0 {
		t.Fatalf("below oldest: %v", err)
	}
	closeLog(t, l)
	for _, o := range []int64{-1, 0, 3} {
		if _, err := l.Read(o); !errors.Is(err, model.ErrLogClosed) {
			t.Fatalf("closed log, offset %d: %v", o, err)
		}
	}
	if _, err := l.Commit(records(3, 1, 1)); !errors.Is(err, model.ErrLogClosed) {
		t.Fatalf("commit to a closed log: %v", err)
	}
	if l.HighWatermark() != 3 || l.OldestOffset() != 0 {
		t.Fatal("watermarks of a closed log")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
