package metastore

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// A crash between the two writes of a bootstrap, or a vote given before the first
// entry came, leaves a term and no log: the next start bootstraps all the same.
func TestBootstrapAfterATermAlone(t *testing.T) {
	for _, term := range []uint64{1, 7} {
		dir := t.TempDir()
		path := filepath.Join(dir, raftName)
		must(t, createDB(path, filepath.Join(dir, raftCreateName)))
		logs, err := raftboltdb.NewBoltStore(path)
		must(t, err)
		must(t, logs.SetUint64(keyTerm, term))
		must(t, logs.Close())
		s := openStore(t, dir)
		mustPropose(t, s, create("t"))
		if s.raft.CurrentTerm() <= term {
			t.Errorf("term %d after one of %d", s.raft.CurrentTerm(), term)
		}
		must(t, s.Close())
	}
}

// Only what is not there is written: a second start adds nothing to the log.
func TestBootstrapOnce(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	must(t, s.Close())
	logs, err := raftboltdb.NewBoltStore(filepath.Join(dir, raftName))
	must(t, err)
	before, err := logs.LastIndex()
	must(t, err)
	must(t, bootstrap(testOptions(dir), raftDisk{logs: logs, snaps: s.snapshots(t)}, "elsewhere:1"))
	if after, err := logs.LastIndex(); err != nil || after != before {
		t.Errorf("log ends at %d, %v; ended at %d", after, err, before)
	}
	must(t, logs.Close())
}

func TestInitialConfiguration(t *testing.T) {
	o := testOptions(t.TempDir())
	o.Initial = []Server{{ID: "narad-2", Addr: "c:1"}, {ID: node, Addr: "a:1"}, {ID: "narad-1", Addr: "b:1"}}
	conf, err := initialConfiguration(o, "ignored:1")
	must(t, err)
	var order []string
	for _, s := range conf.Servers {
		order = append(order, string(s.ID)+" "+string(s.Address))
	}
	if got := strings.Join(order, ", "); got != "narad-0 a:1, narad-1 b:1, narad-2 c:1" {
		t.Errorf("bootstraps %s", got)
	}
	o.Initial = o.Initial[:1]
	if s, err := Open(context.Background(), o); err == nil || !strings.Contains(err.Error(), "not among the 1 initial servers") {
		s.Close()
		t.Errorf("a node outside its own cluster: %v", err)
	}
}
