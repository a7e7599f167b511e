package metastore

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func stale(t testing.TB, dir string) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, fsmStaleName+"*"))
	must(t, err)
	return len(found)
}

func copyRaft(t testing.TB, from, to string) {
	t.Helper()
	must(t, os.RemoveAll(filepath.Join(to, snapshotsName)))
	b, err := os.ReadFile(filepath.Join(from, raftName))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(to, raftName), b, 0o600))
	must(t, os.CopyFS(filepath.Join(to, snapshotsName), os.DirFS(filepath.Join(from, snapshotsName))))
}

// Rows 1 and 2 of the restart table for a node that joins: what Raft no longer
// vouches for is set aside, or replaced by a snapshot, and the cluster brings the
// rest.
func TestClusterRestartsAJoiner(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	for n := range 5 {
		c.propose(0, create(fmt.Sprintf("early%d", n)))
	}
	c.converge()
	i := c.follower()
	join := func(o *Options) { o.Join = true }

	c.kill(i) // whole log, no snapshot
	whole := copyDir(t, c.nodes[i].dir)
	c.start(i)
	c.waitCurrent(i)
	c.snapshotNow(i)
	c.kill(i) // with a snapshot
	snapshot := copyDir(t, c.nodes[i].dir)
	c.start(i)
	c.propose(i, create("late"))
	c.converge()

	for _, row := range []struct {
		name  string
		stage func(dir string)
		stale int
	}{
		{"no raft state", func(dir string) {
			must(t, os.Remove(filepath.Join(dir, raftName)))
			must(t, os.RemoveAll(filepath.Join(dir, snapshotsName)))
		}, 1},
		{"raft state older than fsm.db, whole log", func(dir string) { copyRaft(t, whole, dir) }, 1},
		{"raft state older than fsm.db, with a snapshot", func(dir string) { copyRaft(t, snapshot, dir) }, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			c.kill(i)
			before := stale(t, c.nodes[i].dir)
			row.stage(c.nodes[i].dir)
			state := fsmFileState(t, c.nodes[i].dir)
			if err := c.tryStart(i); err == nil {
				t.Fatal("started without being told that it joins")
			}
			if fsmFileState(t, c.nodes[i].dir) != state {
				t.Error("the refusal touched fsm.db")
			}
			c.start(i, join)
			c.waitCurrent(i)
			if n := stale(t, c.nodes[i].dir) - before; n != row.stale {
				t.Errorf("%d databases set aside, want %d", n, row.stale)
			}
			c.converge()
			c.propose(i, create("after "+row.name))
		})
	}
}

// A node whose log the leader has compacted past gets the leader's snapshot.
func TestClusterInstallsASnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(_ int, o *Options) { o.TrailingLogs = 0 })
	i := c.follower()
	c.propose(i, create("kept"))
	c.propose(i, create("deleted"))
	c.converge()
	c.kill(i)
	leader := c.waitLeader()
	c.propose(leader, DeleteTopic{Name: "deleted"})
	c.propose(leader, linked("later", idA, schema(1), nil))
	c.snapshotNow(leader)
	s := c.start(i)
	c.waitCurrent(i)
	c.converge()
	if _, ok := s.Topic("deleted"); ok {
		t.Error("the deleted topic is still there")
	}
	if v, ok := s.Topic("later"); !ok || v.SchemaVersion != 1 {
		t.Errorf("later is %+v", v)
	}
	if err := s.AppliedCaughtUp(); err != nil {
		t.Errorf("restored from a snapshot, and not current: %v", err)
	}
}
