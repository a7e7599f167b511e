package metastore

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// compacted is a directory with a snapshot, a log that begins behind it, a topic
// from before the snapshot and one from after it; and fsm.db as it was before both.
func compacted(t *testing.T) (dir string, early []byte) {
	t.Helper()
	dir = t.TempDir()
	small := func(o *Options) { o.TrailingLogs = 1 }
	s := openStore(t, dir, small)
	must(t, s.Close())
	early, err := os.ReadFile(filepath.Join(dir, fsmName))
	must(t, err)
	s = openStore(t, dir, small)
	for _, name := range []string{"a", "before"} {
		mustPropose(t, s, create(name))
	}
	must(t, s.raft.Snapshot().Error())
	mustPropose(t, s, create("after"))
	must(t, s.Close())
	if first, err := firstLogIndex(dir); err != nil || first <= 2 {
		t.Fatalf("the log begins at %d, %v; want it compacted", first, err)
	}
	return dir, early
}

// The rows with a snapshot, on real files: it replaces an fsm.db that is behind it,
// or not trusted, and the tail behind it is applied.
func TestRestartRestoresTheSnapshot(t *testing.T) {
	for _, row := range []struct {
		name  string
		stage func(dir string, early []byte)
	}{
		{"trusted, behind the snapshot", func(dir string, early []byte) {
			must(t, os.WriteFile(filepath.Join(dir, fsmName), early, 0o600))
		}},
		{"untrusted", func(dir string, _ []byte) {
			editFSM(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(bucketTopics).Delete([]byte("before")) })
		}},
		{"missing", func(dir string, _ []byte) { must(t, os.Remove(filepath.Join(dir, fsmName))) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir, early := compacted(t)
			row.stage(dir, early)
			s := openStore(t, dir)
			for _, name := range []string{"a", "before", "after"} {
				if _, ok := s.Topic(name); !ok {
					t.Errorf("%s is missing", name)
				}
			}
			if n := stale(t, dir); n != 0 {
				t.Errorf("%d databases set aside; the snapshot replaces it", n)
			}
		})
	}
}

// The row without anything to rebuild from: fsm.db is kept as it is, and that is
// said at error.
func TestRestartReplaysOntoWhatIsThere(t *testing.T) {
	dir, _ := compacted(t)
	must(t, os.RemoveAll(filepath.Join(dir, snapshotsName)))
	editFSM(t, dir, func(*bbolt.Tx) error { return nil })
	var log syncBuffer
	o := testOptions(dir)
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s, err := Open(context.Background(), o)
	must(t, err)
	defer s.Close()
	waitReady(t, s)
	for _, name := range []string{"a", "before", "after"} {
		if _, ok := s.Topic(name); !ok {
			t.Errorf("%s is missing", name)
		}
	}
	mustPropose(t, s, create("more"))
	if !strings.Contains(log.String(), "level=ERROR msg=\"metastore: fsm.db has no trusted index and the raft log is compacted") {
		t.Errorf("said %s", log.String())
	}
	if n := stale(t, dir); n != 0 {
		t.Errorf("%d databases set aside", n)
	}
}

// A trusted fsm.db stands in for the snapshot its log has lost; without either the
// node refuses.
func TestRestartWithoutItsSnapshot(t *testing.T) {
	dir, early := compacted(t)
	must(t, os.RemoveAll(filepath.Join(dir, snapshotsName)))
	lost := copyDir(t, dir)
	must(t, os.WriteFile(filepath.Join(lost, fsmName), early, 0o600))
	refuses(t, lost, "raft entries are missing before the log")
	s := openStore(t, dir)
	for _, name := range []string{"a", "before", "after"} {
		if _, ok := s.Topic(name); !ok {
			t.Errorf("%s is missing", name)
		}
	}
	mustPropose(t, s, create("more"))
	must(t, s.Close())
	must(t, os.Remove(filepath.Join(dir, fsmName))) // the new snapshot is one to restore
	s = openStore(t, dir)
	if page, _ := s.ListTopics("", 10); len(page) != 4 {
		t.Errorf("%d topics", len(page))
	}
}
