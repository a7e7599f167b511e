package metastore

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/clock"
)

// What the produce path asks of the metastore per message allocates nothing and
// touches no database: it is answered with the database closed.
func TestLookupsAllocateNothing(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.ok(linked("t", idA, schema(1), nil))
	must(t, m.db.Close())
	s := &Store{fsm: m.fsm}
	for name, ask := range map[string]func() bool{
		"topic":          func() bool { v, ok := s.Topic("t"); return ok && v.OwnerOf(0) == "a" && v.Versions.Schema > 0 },
		"absent topic":   func() bool { _, ok := s.Topic("nope"); return !ok },
		"topics version": func() bool { return s.TopicsVersion() > 0 },
		"domain version": func() bool { return s.Version(DomainSchemas) > 0 },
	} {
		if n := testing.AllocsPerRun(100, func() {
			if !ask() {
				t.Errorf("%s: wrong answer", name)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// A copy that cannot be made fails the snapshot alone: it is said, counted, leaves
// nothing behind, and the next attempt succeeds; applying goes on meanwhile.
func TestFailedCopyIsCountedAndTriedAgain(t *testing.T) {
	m := newMachine(t, t.TempDir())
	var log bytes.Buffer
	m.log = slog.New(slog.NewTextHandler(&log, nil))
	m.ok(create("a"))
	dir := m.dir
	m.dir = filepath.Join(dir, "full")
	if _, err := m.Snapshot(); err == nil {
		t.Fatal("a snapshot without a place for its copy")
	}
	if n := testutil.ToFloat64(m.metrics.snapshotFailures); n != 1 {
		t.Errorf("counted %v", n)
	}
	if !strings.Contains(log.String(), `level=ERROR msg="metastore: could not copy the database for a raft snapshot"`) {
		t.Errorf("said %s", log.String())
	}
	m.ok(create("b"))
	m.dir = dir
	snap, err := m.Snapshot()
	must(t, err)
	snap.Release()
}

// Of several changes while a wait is on, each waiter wakes for its own index.
func TestProgressWakesWhoWaits(t *testing.T) {
	m := newMachine(t, t.TempDir())
	done := make(chan uint64, 3)
	for _, index := range []uint64{1, 2, 3} {
		go func() {
			if err := m.progress.wait(short(t, testWait), m.stopped, index); err != nil {
				t.Error(err)
			}
			done <- index
		}()
	}
	for i := range uint64(3) {
		m.ok(create(string('a' + rune(i))))
	}
	for range 3 {
		<-done
	}
	m.stop("storage", 4, TypeCreateTopic, ErrStopped)
	if err := m.progress.wait(short(t, testWait), m.stopped, 9); err == nil {
		t.Error("a stopped replica reached an index")
	}
}

// watchedTransport is a transport that carries nothing, for what it notes.
func watchedTransport(clk clock.Clock) *transport {
	return &transport{
		clock: clk, failures: map[raft.ServerID]error{}, failedAt: map[raft.ServerID]time.Time{},
		answered: map[raft.ServerID]answer{},
	}
}

// A heartbeat that failed counts for 12 s, unless a later one succeeds.
func TestHeartbeatFailureCountsFor12Seconds(t *testing.T) {
	clk := clock.NewFake(time.Unix(1000, 0))
	w := watchedTransport(clk)
	w.heard("b", answer{}, ErrStopped)
	clk.Advance(heartbeatFailing - 1)
	if w.failing("b") == nil || w.failing("c") != nil {
		t.Error("within 12 s it counts, and for nobody else")
	}
	clk.Advance(1)
	if err := w.failing("b"); err != nil {
		t.Errorf("after 12 s: %v", err)
	}
	w.heard("b", answer{}, ErrStopped)
	w.heard("b", answer{}, nil)
	if err := w.failing("b"); err != nil {
		t.Errorf("after a success: %v", err)
	}
	w.heard("b", answer{}, ErrStopped)
	w.forget()
	if err := w.failing("b"); err != nil {
		t.Errorf("from an earlier term: %v", err)
	}
}
