package metastore

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	narad "github.com/narad-mq/narad/internal/testutil"
)

const testWait = 10 * time.Second

// refusingMachine is a machine on a fake clock whose disk refuses while told to.
func refusingMachine(t *testing.T) (*machine, *clock.Fake, *atomic.Bool, *bytes.Buffer) {
	t.Helper()
	m := newMachine(t, t.TempDir())
	clk := clock.NewFake(time.Unix(1000, 0))
	var log bytes.Buffer
	var refuse atomic.Bool
	m.clock = clk
	m.log = slog.New(slog.NewTextHandler(&log, nil))
	m.update = func(fn func(*bbolt.Tx) error) error {
		if !refuse.Load() {
			return m.commit(fn)
		}
		// As bbolt does it: the entries run, the commit fails, nothing stays.
		return m.db.Update(func(tx *bbolt.Tx) error { return errors.Join(fn(tx), syscall.ENOSPC) })
	}
	return m, clk, &refuse, &log
}

func TestRefusedWriteIsRetriedUntilItFits(t *testing.T) {
	m, clk, refuse, log := refusingMachine(t)
	refuse.Store(true)
	done := make(chan error)
	l := m.logOf(create("t"))
	go func() { done <- m.Apply(l).(outcome).err }()
	for range 3 {
		narad.Eventually(t, testWait, func() bool { return clk.Timers() == 1 }, "the retry's pause")
		if !m.metrics.applyStalled.Load() {
			t.Error("not reported as stalled")
		}
		if _, ok := m.catalog.topic("t"); ok {
			t.Error("visible before it is durable")
		}
		clk.Advance(writeRetryFirst)
		clk.Advance(writeRetryFirst)
		clk.Advance(2 * writeRetryFirst)
	}
	refuse.Store(false)
	stop := time.After(testWait)
	for {
		select {
		case err := <-done:
			must(t, err)
			if _, ok := m.catalog.topic("t"); !ok || m.metrics.applyStalled.Load() {
				t.Error("applied, but not visible, or still stalled")
			}
			if n := strings.Count(log.String(), "metastore: could not write raft entry; retrying"); n != 1 {
				t.Errorf("%d lines for one stall", n)
			}
			return
		case <-stop:
			t.Fatal("still retrying")
		default:
			if clk.Timers() == 1 {
				clk.Advance(writeRetryFirst)
			}
		}
	}
}

// After 30 s of refusals the node stops: the entry and everything behind it is not
// applied, not even once the disk has room again, and a restart applies it.
func TestRefusedWriteStopsAfterItsBudget(t *testing.T) {
	m, clk, refuse, log := refusingMachine(t)
	m.ok(create("before"))
	refuse.Store(true)
	start := clk.Now()
	logs := []*raft.Log{m.logOf(create("t")), m.logOf(create("u"))}
	done := make(chan []any)
	go func() { done <- m.ApplyBatch(logs) }()
	var out []any
	for out == nil {
		select {
		case out = <-done:
		default:
			if clk.Timers() == 1 {
				clk.Advance(writeRetryFirst)
			}
		}
	}
	if took := clk.Now().Sub(start); took < 20*time.Second || took > writeRetryBudget {
		t.Errorf("gave up after %s", took)
	}
	for _, o := range out {
		if err := o.(outcome).err; !errors.Is(err, ErrStopped) || !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("answered %v", err)
		}
	}
	refuse.Store(false)
	if err := m.do(create("later")); !errors.Is(err, ErrStopped) {
		t.Errorf("a stopped machine applied the next entry: %v", err)
	}
	if _, err := m.Snapshot(); !errors.Is(err, ErrStopped) {
		t.Errorf("a stopped machine made a snapshot: %v", err)
	}
	for _, want := range []string{"metastore: stopped applying raft entries", "entry_type=1", "build=test", "no space left"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log lacks %q: %s", want, log.String())
		}
	}
	if testutil.ToFloat64(m.metrics.applyErrors.WithLabelValues("storage")) < 5 || !m.metrics.applyStopped.Load() {
		t.Error("metrics do not show the stop")
	}
	must(t, m.close())
	again := newMachine(t, m.dir)
	if _, ok := again.catalog.topic("t"); ok || again.applied.Load() != 1 {
		t.Fatalf("a refused entry counts as applied: index %d", again.applied.Load())
	}
	for _, o := range again.ApplyBatch(logs) {
		must(t, o.(outcome).err)
	}
}

func TestCloseEndsARetry(t *testing.T) {
	m, clk, refuse, log := refusingMachine(t)
	refuse.Store(true)
	done := make(chan struct{})
	l := m.logOf(create("t"))
	go func() { defer close(done); m.Apply(l) }()
	narad.Eventually(t, testWait, func() bool { return clk.Timers() == 1 }, "the retry's pause")
	close(m.quit)
	<-done
	if strings.Contains(log.String(), "stopped applying") {
		t.Error("a shutdown is reported as a failure")
	}
	if m.stopErr() == nil {
		t.Error("the next entry would have been applied over the gap")
	}
}

func TestUnknownTypeInABatch(t *testing.T) {
	m := newMachine(t, t.TempDir())
	logs := []*raft.Log{
		m.logOf(create("a")), m.logOf(create("a")), // applied, refused
		{Index: m.next, Type: raft.LogCommand, Data: []byte{99, '{', '}'}},
		{Index: m.next + 1, Type: raft.LogCommand, Data: m.logOf(create("b")).Data},
	}
	out := m.ApplyBatch(logs)
	must(t, out[0].(outcome).err)
	for i, want := range []error{nil, model.ErrTopicExists, ErrStopped, ErrStopped} {
		if err := out[i].(outcome).err; !errors.Is(err, want) {
			t.Errorf("entry %d: %v, want %v", i, err, want)
		}
	}
	if m.applied.Load() != logs[1].Index {
		t.Errorf("applied index %d", m.applied.Load())
	}
	if _, ok := m.catalog.topic("b"); ok {
		t.Error("an entry behind the unknown one was applied")
	}
	if n := testutil.ToFloat64(m.metrics.applyErrors.WithLabelValues("unknown_entry_type")); n != 1 {
		t.Errorf("counted %v", n)
	}
}

// Bytes that do not decode are refused by every node alike: counted as applied.
func TestUndecodableEntryIsRefused(t *testing.T) {
	m := newMachine(t, t.TempDir())
	l := &raft.Log{Index: m.next, Type: raft.LogCommand, Data: []byte("\x01{not json")}
	m.next++
	if err := m.Apply(l).(outcome).err; !errors.Is(err, model.ErrCorrupt) {
		t.Errorf("answered %v", err)
	}
	if m.applied.Load() != l.Index || m.stopErr() != nil {
		t.Errorf("applied index %d, stopped %v", m.applied.Load(), m.stopErr())
	}
	m.ok(create("next"))
}

func TestConfigurationEntriesAreNotCommands(t *testing.T) {
	m := newMachine(t, t.TempDir())
	out := m.ApplyBatch([]*raft.Log{{Index: 7, Type: raft.LogConfiguration, Data: []byte{200}}})
	if out[0] != nil || m.handed != 7 || m.applied.Load() != 0 || m.stopErr() != nil {
		t.Errorf("%v, handed %d, applied %d", out, m.handed, m.applied.Load())
	}
}

// sink is Raft's snapshot file in memory.
type sink struct {
	buf       bytes.Buffer
	cancelled bool
	fail      bool
}

func (s *sink) Write(b []byte) (int, error) {
	if s.fail {
		return 0, io.ErrShortWrite
	}
	return s.buf.Write(b)
}
func (s *sink) Close() error  { return nil }
func (s *sink) ID() string    { return "test" }
func (s *sink) Cancel() error { s.cancelled = true; return nil }

func TestSnapshotAndRestore(t *testing.T) {
	from := newMachine(t, t.TempDir())
	from.ok(create("a"), create("b"), RegisterMember{ID: "m", At: 1}, CreateUser{Username: "u"}, DeleteTopic{Name: "a"})
	snap, err := from.Snapshot()
	must(t, err)
	want := from.hash()
	from.ok(create("after")) // applying goes on while the copy streams
	var s sink
	must(t, snap.Persist(&s))
	snap.Release()
	snap.Release()
	if left, _ := filepath.Glob(filepath.Join(from.dir, fsmCopyPrefix+"*")); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	if from.metrics.snapshotBytes.Load() != int64(s.buf.Len()) {
		t.Errorf("reported %d bytes of %d", from.metrics.snapshotBytes.Load(), s.buf.Len())
	}

	to := newMachine(t, t.TempDir())
	to.ok(create("gone"), create("b"))
	must(t, to.Restore(io.NopCloser(&s.buf)))
	if to.hash() != want {
		t.Error("the restored database differs from the one copied")
	}
	to.sameViews()
	if _, ok := to.catalog.topic("gone"); ok {
		t.Error("a topic of the old database is still there")
	}
	if to.applied.Load() != 5 {
		t.Errorf("applied index %d, the image was cut at 5", to.applied.Load())
	}
	if _, err := os.Stat(filepath.Join(to.dir, fsmRestoreName)); !errors.Is(err, os.ErrNotExist) {
		t.Error("the image is still beside the database")
	}
	to.next = 6
	to.ok(create("after"))
	must(t, to.close())
	if facts, err := inspectFSM(filepath.Join(to.dir, fsmName), NewestType); err != nil || !facts.trusted || facts.meta.index != 6 {
		t.Errorf("%+v, %v", facts, err)
	}
}

func TestSnapshotIsRefusedWhileAheadOfTheReplay(t *testing.T) {
	dir := t.TempDir()
	m := newMachine(t, dir)
	logs := []*raft.Log{m.logOf(create("a")), m.logOf(create("b"))}
	m.ApplyBatch(logs)
	must(t, m.close())
	m = newMachine(t, dir)
	m.ApplyBatch(logs[:1])
	if _, err := m.Snapshot(); !errors.Is(err, errSnapshotEarly) {
		t.Fatalf("snapshot of index 2 under label 1: %v", err)
	}
	m.ApplyBatch(logs[1:])
	snap, err := m.Snapshot()
	must(t, err)
	snap.Release()
}

func TestFailedPersistIsCountedAndCancelled(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.ok(create("a"))
	snap, err := m.Snapshot()
	must(t, err)
	defer snap.Release()
	s := sink{fail: true}
	if err := snap.Persist(&s); err == nil || !s.cancelled {
		t.Errorf("persist: %v, cancelled %t", err, s.cancelled)
	}
	if n := testutil.ToFloat64(m.metrics.snapshotFailures); n != 1 {
		t.Errorf("counted %v", n)
	}
}

func TestRestoreRefusesBadImages(t *testing.T) {
	newer := newMachine(t, t.TempDir())
	newer.ok(create("x"))
	must(t, newer.db.Update(func(tx *bbolt.Tx) error {
		return writeFSMMeta(tx, fsmMeta{newest: NewestType + 1, index: 1})
	}))
	must(t, newer.close())
	image, err := os.ReadFile(filepath.Join(newer.dir, fsmName))
	must(t, err)
	for _, c := range []struct {
		name  string
		image []byte
		want  error
		stops bool
	}{
		{"of a newer release", image, errNewerDatabase, true},
		{"not a database", bytes.Repeat([]byte("x"), 64<<10), nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, t.TempDir())
			m.ok(create("mine"))
			before := m.hash()
			if err := m.Restore(io.NopCloser(bytes.NewReader(c.image))); err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("restore: %v", err)
			}
			if m.hash() != before {
				t.Error("the old database changed")
			}
			if stopped := m.stopErr() != nil; stopped != c.stops {
				t.Errorf("stopped %t", stopped)
			}
		})
	}
}

// The newest type ever applied is what an older release is refused by: it survives
// later entries of older types, and a restart.
func TestNewestTypeNeverFalls(t *testing.T) {
	dir := t.TempDir()
	m := newMachine(t, dir)
	for _, c := range []struct {
		do   Command
		want EntryType
	}{
		{create("t"), TypeCreateTopic}, {DeleteUser{Username: "nobody"}, TypeDeleteUser}, // refused counts: it is in the log
		{create("u"), TypeDeleteUser},
	} {
		m.do(c.do)
		facts, err := metaOf(m)
		if err != nil || facts.newest != c.want {
			t.Errorf("after %s: %d, %v; want %d", c.do.Type(), facts.newest, err, c.want)
		}
	}
	must(t, m.close())
	m = newMachine(t, dir)
	m.ok(create("v"))
	if meta, err := metaOf(m); err != nil || meta.newest != TypeDeleteUser || meta.index != 4 {
		t.Errorf("after a restart: %+v, %v", meta, err)
	}
}

func metaOf(m *machine) (meta fsmMeta, err error) {
	err = m.view(func(tx *bbolt.Tx) (err error) {
		meta, _, err = readFSMMeta(tx)
		return err
	})
	return meta, err
}
