package metastore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/model"
)

// The restart table of the metastore design, with both sides of each border.
func TestDecideRestart(t *testing.T) {
	full := restartFacts{holds: true, index: 50, trusted: true, logFirst: 1, logLast: 60}
	with := func(edit func(*restartFacts)) restartFacts {
		f := full
		edit(&f)
		return f
	}
	for _, c := range []struct {
		name string
		f    restartFacts
		want restartAction
		err  error
	}{
		{"fresh node", restartFacts{}, resume, nil},
		{"fresh joiner", restartFacts{joins: true}, resume, nil},
		{"metadata without raft state", restartFacts{holds: true, index: 5, trusted: true}, 0, errNoRaftState},
		{"metadata without index or raft state", restartFacts{holds: true}, 0, errNoRaftState},
		{"the same, joining", restartFacts{holds: true, joins: true}, rebuild, nil},
		{"past log and snapshot", with(func(f *restartFacts) { f.logLast = 49 }), 0, errRaftStateOld},
		{"past log, at the snapshot", with(func(f *restartFacts) { f.logLast, f.snapshotIndex = 49, 50 }), resume, nil},
		{"past both", with(func(f *restartFacts) { f.logLast, f.snapshotIndex = 40, 49 }), 0, errRaftStateOld},
		{"past both, joining, whole log", with(func(f *restartFacts) { f.logLast, f.joins = 49, true }), rebuild, nil},
		{"past both, joining, snapshot", with(func(f *restartFacts) { f.logLast, f.snapshotIndex, f.joins = 49, 40, true }), restoreSnapshot, nil},
		{"past both, joining, log without its start", with(func(f *restartFacts) { f.logFirst, f.logLast, f.joins = 2, 49, true }), 0, errRaftStateOld},
		{"a vote and no log beside metadata", with(func(f *restartFacts) { f.logFirst, f.logLast = 0, 0 }), 0, errNoRaftState},
		{"joining, trusted within the log", with(func(f *restartFacts) { f.joins = true }), resume, nil},
		{"joining, behind the snapshot", with(func(f *restartFacts) { f.joins, f.snapshotIndex = true, 51 }), restoreSnapshot, nil},
		{"trusted, no snapshot", full, resume, nil},
		{"trusted, at the end of the log", with(func(f *restartFacts) { f.logLast = 50 }), resume, nil},
		{"trusted, past the snapshot", with(func(f *restartFacts) { f.snapshotIndex, f.logFirst = 40, 30 }), resume, nil},
		{"trusted, snapshot without log", with(func(f *restartFacts) { f.snapshotIndex, f.logFirst, f.logLast = 50, 0, 0 }), resume, nil},
		{"trusted, behind the snapshot", with(func(f *restartFacts) { f.snapshotIndex = 51 }), restoreSnapshot, nil},
		{"trusted, a gap before the log", with(func(f *restartFacts) { f.logFirst = 52 }), 0, errLogGap},
		{"trusted, a gap between snapshot and log", with(func(f *restartFacts) { f.snapshotIndex, f.logFirst = 40, 52 }), 0, errLogGap},
		{"trusted, log begins right after", with(func(f *restartFacts) { f.logFirst = 51 }), resumeOnBase, nil},
		{"trusted, the log's snapshot is gone", with(func(f *restartFacts) { f.logFirst = 30 }), resumeOnBase, nil},
		{"trusted, an older snapshot is left", with(func(f *restartFacts) { f.snapshotIndex, f.logFirst = 20, 30 }), resumeOnBase, nil},
		{"trusted, log begins right after the snapshot", with(func(f *restartFacts) { f.snapshotIndex, f.logFirst = 30, 31 }), resume, nil},
		{"untrusted, a gap between snapshot and log", with(func(f *restartFacts) { f.trusted, f.snapshotIndex, f.logFirst = false, 10, 30 }), 0, errLogGap},
		{"past both, joining, a gap before the log", with(func(f *restartFacts) { f.logLast, f.snapshotIndex, f.logFirst, f.joins = 49, 20, 30, true }), 0, errRaftStateOld},
		{"untrusted, snapshot", with(func(f *restartFacts) { f.trusted, f.snapshotIndex = false, 10 }), restoreSnapshot, nil},
		{"untrusted and past everything, snapshot", with(func(f *restartFacts) { f.trusted, f.snapshotIndex, f.logLast = false, 10, 20 }), restoreSnapshot, nil},
		{"untrusted, whole log", with(func(f *restartFacts) { f.trusted = false }), rebuild, nil},
		{"untrusted, compacted log", with(func(f *restartFacts) { f.trusted, f.logFirst = false, 2 }), replayOnto, nil},
		{"fsm.db lost, whole log", restartFacts{logFirst: 1, logLast: 9}, resume, nil},
		{"fsm.db lost, snapshot", restartFacts{snapshotIndex: 7, logFirst: 3, logLast: 9}, restoreSnapshot, nil},
		{"fsm.db lost, compacted log", restartFacts{logFirst: 3, logLast: 9}, 0, errLogGap},
	} {
		got, err := decideRestart(c.f)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: action %d, %v; want %d, %v", c.name, got, err, c.want, c.err)
		}
	}
	_, err := decideRestart(with(func(f *restartFacts) { f.logLast, f.snapshotIndex = 41, 42 }))
	for _, n := range []string{"50", "41", "42"} {
		if !strings.Contains(fmt.Sprint(err), n) {
			t.Errorf("%v does not name index %s", err, n)
		}
	}
}

// copyDir is a crash: the directory as it stands while the process runs.
func copyDir(t testing.TB, from string) string {
	t.Helper()
	to := t.TempDir()
	must(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

func fsmFileState(t testing.TB, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, fsmName))
	must(t, err)
	info, err := os.Stat(filepath.Join(dir, fsmName))
	must(t, err)
	return fmt.Sprintf("%x %s", sha256.Sum256(b), info.ModTime())
}

func refuses(t *testing.T, dir, text string) {
	t.Helper()
	before := fsmFileState(t, dir)
	s, err := Open(context.Background(), testOptions(dir))
	if err == nil {
		s.Close()
		t.Fatalf("opened; want a refusal with %q", text)
	}
	if !strings.Contains(err.Error(), text) {
		t.Errorf("refused with %v, want %q", err, text)
	}
	if fsmFileState(t, dir) != before {
		t.Error("a refused start touched fsm.db")
	}
}

// A restart keeps everything and re-applies nothing.
func TestRestartSkipsWhatIsHeld(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	for i := range 20 {
		mustPropose(t, s, create(fmt.Sprintf("t%02d", i)))
	}
	mustPropose(t, s, DeleteTopic{Name: "t05"})
	kept, _ := s.Topic("t06")
	must(t, s.Close())
	must(t, s.Close()) // idempotent

	s = openStore(t, dir)
	if _, ok := s.Topic("t05"); ok {
		t.Error("the deleted topic is back")
	}
	if v, ok := s.Topic("t06"); !ok || !reflect.DeepEqual(v.Topic, kept.Topic) || !reflect.DeepEqual(v.Owners, kept.Owners) {
		t.Errorf("t06 is %+v, was %+v", v, kept)
	}
	if page, more := s.ListTopics("", 100); len(page) != 19 || more {
		t.Errorf("%d topics, more %t", len(page), more)
	}
	var writes int
	must(t, s.fsm.view(func(tx *bbolt.Tx) error { writes = tx.ID(); return nil }))
	must(t, s.Close())
	s = openStore(t, dir)
	defer s.Close()
	must(t, s.fsm.view(func(tx *bbolt.Tx) error {
		if n := tx.ID() - writes; n != 1 { // this start's registration
			t.Errorf("a restart wrote %d transactions, want 1", n)
		}
		return nil
	}))
}

// Copies of the running directory are crashes between and within writes: each
// opens, holds every create answered before the copy began, and nothing half.
func TestCrashByCopy(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	for i := range 8 {
		mustPropose(t, s, create(fmt.Sprintf("t%02d", i)))
		crashed := openStore(t, copyDir(t, dir))
		for j := range i + 1 {
			if v, ok := crashed.Topic(fmt.Sprintf("t%02d", j)); !ok || v.OwnerOf(2) != node {
				t.Errorf("after %d creates, t%02d is %+v", i+1, j, v)
			}
		}
		must(t, crashed.Close())
	}
}

// fsm.db of an earlier moment beside the whole log: the replay brings the rest.
func TestRestartReplaysTheTail(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	mustPropose(t, s, create("early"))
	must(t, s.Close())
	old, err := os.ReadFile(filepath.Join(dir, fsmName))
	must(t, err)
	s = openStore(t, dir)
	mustPropose(t, s, create("late"))
	mustPropose(t, s, DeleteTopic{Name: "early"})
	must(t, s.Close())
	must(t, os.WriteFile(filepath.Join(dir, fsmName), old, 0o600))
	s = openStore(t, dir)
	if _, ok := s.Topic("late"); !ok {
		t.Error("late is missing")
	}
	if _, ok := s.Topic("early"); ok {
		t.Error("early is back")
	}
}

func TestRefuseMetadataWithoutRaftState(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	mustPropose(t, s, create("t"))
	must(t, s.Close())
	must(t, os.Remove(filepath.Join(dir, raftName)))
	refuses(t, dir, "holds metadata, but there is no raft state beside it")
	refuses(t, dir, "holds metadata, but there is no raft state beside it") // the refusal left no state either
}

func TestRefuseOlderRaftState(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	must(t, s.Close())
	old, err := os.ReadFile(filepath.Join(dir, raftName))
	must(t, err)
	s = openStore(t, dir)
	mustPropose(t, s, create("t"))
	must(t, s.Close())
	must(t, os.WriteFile(filepath.Join(dir, raftName), old, 0o600))
	refuses(t, dir, "raft state is older than fsm.db")
}

func editFSM(t testing.TB, dir string, f func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, fsmName), 0o600, boltOptions(false))
	must(t, err)
	must(t, db.Update(f))
	must(t, db.Close())
}

func TestRefuseNewerDatabase(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	must(t, s.Close())
	editFSM(t, dir, func(tx *bbolt.Tx) error {
		m, _, err := readFSMMeta(tx)
		m.newest = NewestType + 1
		return errors.Join(err, writeFSMMeta(tx, m))
	})
	refuses(t, dir, "written by a newer Narad release than this build")
}

func TestRefuseDamagedDatabase(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	must(t, s.Close())
	editFSM(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyApplied, []byte("short")) })
	refuses(t, dir, "corrupt")
	must(t, os.WriteFile(filepath.Join(dir, fsmName), []byte(strings.Repeat("not a database ", 4096)), 0o600))
	refuses(t, dir, "fsm.db")
}

// Another writer moves the file's transaction id: the index is not trusted, and the
// database is rebuilt from the log beside what was set aside.
func TestForeignWriteIsRebuilt(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	mustPropose(t, s, create("t"))
	must(t, s.Close())
	editFSM(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(bucketTopics).Delete([]byte("t")) })
	for range 2 {
		s = openStore(t, dir)
		if _, ok := s.Topic("t"); !ok {
			t.Fatal("the log did not rebuild the topic")
		}
		must(t, s.Close())
		editFSM(t, dir, func(*bbolt.Tx) error { return nil })
	}
	stale, err := filepath.Glob(filepath.Join(dir, fsmStaleName+"*"))
	if err != nil || len(stale) != 2 {
		t.Errorf("set aside: %v, %v; want two, none overwritten", stale, err)
	}
}

// fsm.db lost as a whole comes back from the log.
func TestLostDatabaseIsRebuilt(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	mustPropose(t, s, create("t"))
	must(t, s.Close())
	must(t, os.Remove(filepath.Join(dir, fsmName)))
	s = openStore(t, dir)
	if _, ok := s.Topic("t"); !ok {
		t.Error("the topic is missing")
	}
}

func TestRefuseForeignNode(t *testing.T) {
	dir := t.TempDir()
	must(t, openStore(t, dir).Close())
	o := testOptions(dir)
	o.NodeID = "narad-9"
	if s, err := Open(context.Background(), o); err == nil {
		s.Close()
		t.Fatal("a node took over another one's state")
	} else if !strings.Contains(err.Error(), `belongs to node "narad-0", this node is "narad-9"`) {
		t.Error(err)
	}
}

func TestRefuseSecondProcess(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	defer s.Close()
	if other, err := Open(context.Background(), testOptions(dir)); err == nil {
		other.Close()
		t.Fatal("two stores on one directory")
	}
}

func TestLeftoversAreDeletedAtStart(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{fsmRestoreName, fsmCopyPrefix + "ABC", raftCreateName} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600))
	}
	unfinished := filepath.Join(dir, snapshotsName, "2-17-1700000000000.tmp")
	must(t, os.MkdirAll(unfinished, 0o700))
	must(t, os.WriteFile(filepath.Join(unfinished, "state.bin"), []byte("half"), 0o600))
	keep := filepath.Join(dir, fsmStaleName)
	must(t, os.WriteFile(keep, []byte("set aside"), 0o600))
	must(t, openStore(t, dir).Close())
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "fsm.db fsm.db.stale raft.db snapshots" {
		t.Errorf("directory holds %s", got)
	}
	if _, err := os.Stat(unfinished); !errors.Is(err, os.ErrNotExist) {
		t.Error("the unfinished snapshot is still there")
	}
}

// A log whose next entry is of an unknown type: the node stops there, keeps what
// came before, and stops again after a restart.
func TestUnknownEntryTypeStopsTheNode(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	mustPropose(t, s, create("before"))
	must(t, s.Close())
	logs, err := raftboltdb.NewBoltStore(filepath.Join(dir, raftName))
	must(t, err)
	last, err := logs.LastIndex()
	must(t, err)
	var l raft.Log
	must(t, logs.GetLog(last, &l))
	must(t, logs.StoreLog(&raft.Log{Index: last + 1, Term: l.Term, Type: raft.LogCommand, Data: []byte{200, '{', '}'}}))
	must(t, logs.Close())

	for range 2 {
		s, err := Open(context.Background(), testOptions(dir))
		must(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), testWait)
		if err := s.WaitReady(ctx); !errors.Is(err, ErrStopped) {
			t.Fatalf("ready: %v", err)
		}
		cancel()
		<-s.Done()
		if err := s.Err(); !errors.Is(err, ErrStopped) || !errors.Is(err, model.ErrUnavailable) || !errors.Is(err, errUnknownType) {
			t.Errorf("stopped with %v", err)
		}
		if err := s.Ready(); !errors.Is(err, ErrStopped) {
			t.Errorf("H-11: %v", err)
		}
		if _, err := s.Propose(context.Background(), create("after")); !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("propose: %v", err)
		}
		if err := s.Barrier(context.Background()); !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("barrier: %v", err)
		}
		if c, err := s.ConfirmGone(context.Background(), "nobody", idA); c != Unknown || err == nil {
			t.Errorf("a stopped node confirms %s, %v", c, err)
		}
		if _, ok := s.Topic("before"); !ok {
			t.Error("the entry before it is not applied")
		}
		if s.raft.State() != raft.Shutdown {
			t.Errorf("raft is %s", s.raft.State())
		}
		must(t, s.Close())
	}
}
