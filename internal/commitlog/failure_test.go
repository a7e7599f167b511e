package commitlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

func activeBytes(t testing.TB, fsys *disk.Sim, base int64) []byte {
	t.Helper()
	b, err := fsys.Dump(path.Join(testDir, segmentName(base)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Property 1, section 5.2, F14, F15: whatever step of a commit fails, nothing of it
// stays, and the retry lands one copy at the same offsets with no restart between.
func TestFailedCommitLeavesNothing_P1_F14_F15(t *testing.T) {
	for _, tc := range []struct {
		name string
		rule disk.Rule
	}{
		{"disk full", disk.Rule{Op: disk.OpWrite, N: 1, Err: syscall.ENOSPC}},
		{"short write", disk.Rule{Op: disk.OpWrite, N: 1, Short: 60, Err: syscall.ENOSPC}},
		{"hwm release open", disk.Rule{Op: disk.OpOpen, Path: hwmName, N: 1}},
		{"hwm release truncate", disk.Rule{Op: disk.OpTruncate, Path: hwmName, N: 1}},
		{"hwm release fsync", disk.Rule{Op: disk.OpSync, Path: hwmName, N: 1}},
		{"read back", disk.Rule{Op: disk.OpRead, N: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fsys := disk.NewSim(1)
			l := openTest(t, fsys)
			commit(t, l, 5, 50)
			closeLog(t, l)
			l = openTest(t, fsys) // so that hwm has a release to fail
			before := activeBytes(t, fsys, 0)
			fsys.Fail(tc.rule)
			if _, err := l.Commit(records(5, 3, 50)); err == nil {
				t.Fatal("commit succeeded")
			}
			if fsys.Fired() != 1 {
				t.Fatal("the rule hit nothing")
			}
			fsys.ClearRules()
			if l.HighWatermark() != 5 || l.NextOffset() != 5 {
				t.Fatalf("H=%d T=%d after the failure", l.HighWatermark(), l.NextOffset())
			}
			if got := activeBytes(t, fsys, 0); !bytes.Equal(got, before) {
				t.Fatalf("%d bytes in the file, %d before the commit", len(got), len(before))
			}
			commit(t, l, 3, 50)
			checkRange(t, l, 0, 8, 50)
			l2 := openTest(t, fsys.Crash(9))
			if l2.HighWatermark() != 8 {
				t.Fatalf("after a power cut H=%d, want 8", l2.HighWatermark())
			}
			checkRange(t, l2, 0, 8, 50)
			closeLog(t, l2)
		})
	}
}

// The cut of a failed commit is durable before the caller hears of the failure: a
// power cut right after it does not bring the refused records back.
func TestCutOfFailedCommitIsDurable(t *testing.T) {
	for seed := range int64(20) {
		fsys := disk.NewSim(seed)
		l := openTest(t, fsys)
		commit(t, l, 5, 50)
		fsys.Fail(disk.Rule{Op: disk.OpRead, N: 1}) // the frames are durable by then
		if _, err := l.Commit(records(5, 3, 500)); err == nil {
			t.Fatal("commit succeeded")
		}
		l = openTest(t, fsys.Crash(seed))
		if l.HighWatermark() != 5 {
			t.Fatalf("seed %d: H=%d, want 5", seed, l.HighWatermark())
		}
		closeLog(t, l)
	}
}

// A second try at something whose fsync failed gives the new fsync a change to
// write: the kernel may have dropped the first one.
func TestRetriesMakeTheirChangeAgain(t *testing.T) {
	fsys := disk.NewSim(1)
	l := openTest(t, fsys)
	commit(t, l, 1, 50)
	closeLog(t, l)
	l = openTest(t, fsys, func(o *Options) { o.SegmentBytes = 200 })
	fsys.Fail(disk.Rule{Op: disk.OpSync, Path: hwmName, N: 1})
	fsys.Fail(disk.Rule{Op: disk.OpWrite, Path: hwmName, N: 1})
	for _, op := range []string{"sync", "write"} {
		if _, err := l.Commit(records(1, 1, 50)); err == nil {
			t.Fatalf("commit over a failed %s of %s", op, hwmName)
		}
	}
	commit(t, l, 1, 50)
	fsys.ClearRules()
	fsys.Fail(disk.Rule{Op: disk.OpSyncDir, N: 1}) // of the roll that follows
	fsys.Fail(disk.Rule{Op: disk.OpRename, N: 1})
	commit(t, l, 1, 50)
	if _, err := l.Commit(records(3, 1, 50)); err == nil || fsys.Fired() != 4 {
		t.Fatalf("the roll's second try made no new entry: %v", err)
	}
	commit(t, l, 1, 50)
	checkRange(t, l, 0, 4, 50)
	closeLog(t, l)
}

// Section 5.3, F12: a failed fsync is final for the log, is logged and counted as
// the specification says, never retried, and reads below H go on.
func TestFailedFsyncPoisons_F12(t *testing.T) {
	fsys := disk.NewSim(1)
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	var lines bytes.Buffer
	l := openTest(t, fsys, func(o *Options) {
		o.Metrics = m
		o.Logger = slog.New(slog.NewJSONHandler(&lines, nil))
	})
	commit(t, l, 4, 50)
	fsys.Fail(disk.Rule{Op: disk.OpSync, Path: "*.log", N: 1})
	if _, err := l.Commit(records(4, 2, 50)); !errors.Is(err, model.ErrLogPoisoned) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("commit with a failed fsync: %v", err)
	}
	calls := fsys.Calls()
	if _, err := l.Commit(records(4, 2, 50)); !errors.Is(err, model.ErrLogPoisoned) {
		t.Fatalf("commit to a poisoned log: %v", err)
	}
	if fsys.Calls() != calls {
		t.Fatal("a poisoned log still touches the disk on commit")
	}
	checkRange(t, l, 0, 4, 50)
	var line map[string]any
	if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
		t.Fatalf("want exactly one line: %v\n%s", err, lines.String())
	}
	if line["level"] != "ERROR" || line["msg"] != "storage: fsync failed; log poisoned until reopened" ||
		line["dir"] != testDir || line["durable_tail"] != 4.0 || line["err"] == nil {
		t.Fatalf("log line %s", lines.String())
	}
	if n := promtest.ToFloat64(m.errors.WithLabelValues("storage", "fsync_poisoned")); n != 1 {
		t.Fatalf("fsync_poisoned counted %v", n)
	}
	closeLog(t, l)
	l = openTest(t, fsys)
	if l.HighWatermark() != 4 {
		t.Fatalf("reopened with H=%d, want the durable 4", l.HighWatermark())
	}
	commit(t, l, 2, 50)
	l = openTest(t, fsys.Crash(3))
	checkRange(t, l, 0, 6, 50)
	closeLog(t, l)
}

// Section 5.2: when the cut of a failed commit fails too, the log is poisoned and
// what stays is hidden, also from the next open after a clean close.
func TestFailedCutPoisonsAndHides(t *testing.T) {
	fsys := disk.NewSim(1)
	l := openTest(t, fsys)
	commit(t, l, 4, 50)
	fsys.Fail(disk.Rule{Op: disk.OpRead, N: 1})
	fsys.Fail(disk.Rule{Op: disk.OpTruncate, N: 1})
	if _, err := l.Commit(records(4, 2, 50)); err == nil || errors.Is(err, model.ErrLogPoisoned) {
		t.Fatalf("first commit: %v", err)
	}
	if _, err := l.Commit(records(4, 2, 50)); !errors.Is(err, model.ErrLogPoisoned) {
		t.Fatalf("second commit: %v", err)
	}
	fsys.ClearRules()
	closeLog(t, l)
	l = openTest(t, fsys)
	if l.HighWatermark() != 4 || l.NextOffset() != 6 {
		t.Fatalf("H=%d T=%d, want 4 and the hidden tail's end 6", l.HighWatermark(), l.NextOffset())
	}
	if _, err := l.Read(4); !errors.Is(err, ErrPastEnd) {
		t.Fatalf("hidden record: %v", err)
	}
	commit(t, l, 2, 50) // appends past the hidden records and so shows them
	checkRange(t, l, 0, 8, 50)
	closeLog(t, l)
}

// A failed commit over a hidden tail cuts the hidden tail as well: T = H.
func TestFailedCommitCutsHiddenTail(t *testing.T) {
	fsys := disk.NewSim(1)
	l := openTest(t, fsys)
	commit(t, l, 4, 50)
	commit(t, l, 2, 50)
	closeLog(t, l)
	lowerHWM(t, fsys, 4)
	l = openTest(t, fsys)
	if l.HighWatermark() != 4 || l.NextOffset() != 6 {
		t.Fatalf("H=%d T=%d", l.HighWatermark(), l.NextOffset())
	}
	fsys.Fail(disk.Rule{Op: disk.OpRead, N: 1})
	if _, err := l.Commit(records(6, 2, 50)); err == nil {
		t.Fatal("commit succeeded")
	}
	fsys.ClearRules()
	if l.HighWatermark() != 4 || l.NextOffset() != 4 {
		t.Fatalf("after the failure H=%d T=%d, want 4 and 4", l.HighWatermark(), l.NextOffset())
	}
	commit(t, l, 3, 50)
	checkRange(t, l, 0, 4, 50)
	for o := int64(4); o < 7; o++ { // times may be raised: the floor saw the hidden records
		if s, err := l.Read(o); err != nil || !bytes.Equal(s.Payload, record(o, 50).Payload) {
			t.Fatalf("offset %d: %.20q %v", o, s.Payload, err)
		}
	}
	closeLog(t, l)
}

func lowerHWM(t testing.TB, fsys *disk.Sim, v int64) {
	t.Helper()
	b := disk.EncodeFact(hwmMagic(), v)
	if err := fsys.Corrupt(path.Join(testDir, hwmName), func([]byte) []byte { return b[:] }); err != nil {
		t.Fatal(err)
	}
}

// lossyFS drops part of the next segment write and reports success (F19).
type lossyFS struct {
	disk.FS
	hole *bool
}

func (f lossyFS) Open(name string, flag int) (disk.File, error) {
	file, err := f.FS.Open(name, flag)
	if err != nil || !strings.HasSuffix(name, segmentSuffix) {
		return file, err
	}
	return lossyFile{file, f.hole}, nil
}

type lossyFile struct {
	disk.File
	hole *bool
}

func (f lossyFile) WriteAt(p []byte, at int64) (int, error) {
	if !*f.hole {
		return f.File.WriteAt(p, at)
	}
	*f.hole = false
	q := bytes.Clone(p)
	clear(q[len(q)/2 : len(q)/2+8])
	return f.File.WriteAt(q, at)
}

// F19: a write that claims success and left a hole is found by the read-back,
// before anything is acknowledged.
func TestHoleFoundBeforeAck_F19(t *testing.T) {
	var hole bool
	fsys := disk.NewSim(1)
	l := openTest(t, lossyFS{fsys, &hole})
	commit(t, l, 2, 200)
	hole = true
	if _, err := l.Commit(records(2, 3, 200)); !errors.Is(err, model.ErrCorrupt) {
		t.Fatalf("commit over a hole: %v", err)
	}
	commit(t, l, 3, 200)
	checkRange(t, l, 0, 5, 200)
	closeLog(t, l)
}

// Rolls: a failed one fails no commit that is durable already, latches nothing, and
// is tried again before the next frame is written.
func TestFailedRollIsRetried(t *testing.T) {
	for _, op := range []disk.Op{disk.OpOpen, disk.OpSyncDir, disk.OpOpenDir} {
		t.Run(op.String(), func(t *testing.T) {
			fsys := disk.NewSim(1)
			l := openTest(t, fsys, func(o *Options) { o.SegmentBytes = 300 })
			commit(t, l, 1, 50)
			rule := disk.Rule{Op: op, N: 1, Sticky: true, Err: syscall.EMFILE}
			fsys.Fail(rule)
			commit(t, l, 5, 50) // fills the segment
			if _, err := l.Commit(records(6, 1, 50)); !errors.Is(err, syscall.EMFILE) {
				t.Fatalf("commit while the roll cannot be made: %v", err)
			}
			fsys.ClearRules()
			commit(t, l, 1, 50)
			if s := l.Stats(); s.Segments != 2 {
				t.Fatalf("%+v", s)
			}
			l = openTest(t, fsys.Crash(5))
			checkRange(t, l, 0, 7, 50)
			closeLog(t, l)
		})
	}
}

// F16: an I/O error fails the reads that need it, and only them.
func TestReadErrorIsNotDamage_F16(t *testing.T) {
	fsys := disk.NewSim(1)
	l := openTest(t, fsys)
	commit(t, l, 4, 50)
	fsys.Fail(disk.Rule{Op: disk.OpRead, N: 1})
	_, err := l.Read(2)
	if !errors.Is(err, syscall.EIO) || errors.Is(err, model.ErrUnreadable) || errors.Is(err, io.EOF) {
		t.Fatalf("read with an I/O error: %v", err)
	}
	checkRange(t, l, 0, 4, 50)
	closeLog(t, l)
}

func TestCommitBounds(t *testing.T) {
	l := openTest(t, disk.NewSim(1))
	if first, err := l.Commit(nil); first != 0 || err != nil {
		t.Fatalf("empty commit: %d %v", first, err)
	}
	huge := make([]byte, maxFrameBytes)
	if _, err := l.Commit([]Record{{Payload: huge}}); !errors.Is(err, model.ErrInvalid) {
		t.Fatalf("record above the frame limit: %v", err)
	}
	// A record larger than a frame of several is a frame of its own.
	recs := []Record{{Payload: huge[:10]}, {Payload: huge[:framePayloadMax+1]}, {Payload: huge[:10]}}
	if _, err := l.Commit(recs); err != nil {
		t.Fatal(err)
	}
	for o, n := range []int{10, framePayloadMax + 1, 10} {
		if s, err := l.Read(int64(o)); err != nil || len(s.Payload) != n {
			t.Fatalf("offset %d: %d bytes, %v", o, len(s.Payload), err)
		}
	}
	closeLog(t, l)
}
