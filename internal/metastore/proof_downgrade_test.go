package metastore

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/model"
)

// A release before remotes meets the directory of one that has used them. With its
// fsm.db it is refused; without, the snapshot says the same, and nothing is touched.
// The newer release then starts from it as if nothing had been tried.
func TestDowngradeIsRefused(t *testing.T) {
	t.Parallel()
	for _, lost := range []struct {
		name  string
		files []string
	}{
		{"all there", nil},
		{"fsm.db lost", []string{fsmName}},
		{"log lost", []string{raftName}},
		{"fsm.db and log lost", []string{fsmName, raftName}},
	} {
		t.Run(lost.name, func(t *testing.T) {
			dir := t.TempDir()
			s := openStore(t, dir, stagedOptions)
			mustPropose(t, s, create("t"))
			mustPropose(t, s, CreateRemote{Remote: remoteNamed("dr"), Salt: salt(1)})
			must(t, s.raft.Snapshot().Error())
			must(t, s.Close())
			for _, name := range lost.files {
				must(t, os.Remove(filepath.Join(dir, name)))
			}
			before := sums(t, dir)
			for range 2 {
				o := testOptions(dir)
				stagedOptions(&o)
				o.Level = model.Level31
				older, err := Open(context.Background(), o)
				if err == nil {
					older.Close()
					t.Fatal("the older release started")
				}
				if !strings.Contains(err.Error(), errNewerDatabase.Error()) || sums(t, dir) != before {
					t.Fatalf("%v, directory untouched: %v", err, sums(t, dir) == before)
				}
			}
			if lost.name != "all there" && lost.name != "fsm.db lost" {
				return // not for want of the release: the newer one refuses, or not, by other rows
			}
			s = openStore(t, dir, stagedOptions)
			defer s.Close()
			if _, ok := s.Topic("t"); !ok {
				t.Error("the topic is gone")
			}
			if _, ok, err := s.Remote("dr"); !ok || err != nil {
				t.Errorf("the remote is gone: %v", err)
			}
		})
	}
}
