package metastore

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Directories staged as a crash, a failing disk or a backup leaves them: each start
// holds every topic of before, or refuses with its reason, twice alike, and leaves
// fsm.db and the snapshots as they are.

// staged is a node's directory with two snapshots, a log cut behind the newer one, a
// tail after it, and what fsm.db and raft.db were at moments before.
type staged struct {
	dir    string
	topics []string
	old    map[string]string // moment -> copy of the directory
}

// stagedOptions keep no log behind a snapshot: the newest one alone reaches the log.
func stagedOptions(o *Options) { o.TrailingLogs = 0 }

func stage(t *testing.T) staged {
	t.Helper()
	st := staged{dir: t.TempDir(), old: map[string]string{}}
	step := func(name string, snapshot bool) {
		s := openStore(t, st.dir, stagedOptions)
		for i := range 3 {
			st.topics = append(st.topics, fmt.Sprintf("%s%d", name, i))
			mustPropose(t, s, create(fmt.Sprintf("%s%d", name, i)))
		}
		if snapshot {
			must(t, s.raft.Snapshot().Error())
		}
		must(t, s.Close())
		st.old[name] = filepath.Join(t.TempDir(), name)
		copySparse(t, st.dir, st.old[name])
	}
	step("a", false)
	step("b", true)
	step("c", true)
	step("d", false)
	return st
}

// snapshotFiles is the named file of the nth newest snapshot.
func snapshotFile(t *testing.T, dir string, nth int, name string) string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(dir, snapshotsName, "*-*-*"))
	must(t, err)
	slices.SortFunc(dirs, func(a, b string) int { return strings.Compare(filepath.Base(b), filepath.Base(a)) })
	if len(dirs) <= nth {
		t.Fatalf("%d snapshots", len(dirs))
	}
	return filepath.Join(dirs[nth], name)
}

// tear leaves the first part of a file.
func tear(t *testing.T, path string, part float64) {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	must(t, os.Truncate(path, int64(float64(info.Size())*part)))
}

func flip(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	b[len(b)/2] ^= 4
	must(t, os.WriteFile(path, b, 0o600))
}

// sums is what every file a refusal must leave alone holds. raft.db is Raft's: opening
// it makes its buckets sure.
func sums(t *testing.T, dir string) string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == raftName {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		out = append(out, fmt.Sprintf("%s %x", rel, sha256.Sum256(b)))
		return err
	}))
	return strings.Join(out, "\n")
}

// mustEnd starts a staged directory twice: it holds every topic, or is refused with a
// reason, "" = not refused.
func (st staged) mustEnd(t *testing.T, dir, reason string) {
	t.Helper()
	for range 2 {
		before := sums(t, dir)
		o := testOptions(dir)
		stagedOptions(&o)
		s, err := Open(context.Background(), o)
		if err != nil {
			switch {
			case reason == "":
				t.Fatalf("refused: %v", err)
			case !strings.Contains(err.Error(), reason):
				t.Errorf("refused with %v, want %q", err, reason)
			case sums(t, dir) != before:
				t.Errorf("a refusal changed the directory from\n%s\nto\n%s", before, sums(t, dir))
			}
			continue
		}
		if reason != "" {
			s.Close()
			t.Fatalf("started, want a refusal with %q", reason)
		}
		waitReady(t, s)
		for _, name := range st.topics {
			if v, ok := s.Topic(name); !ok || v.OwnerOf(2) != node {
				t.Errorf("%s is %+v", name, v)
			}
		}
		must(t, s.Close())
	}
}

// F26 to F28 on the files of a node that is alone.
func TestStagedDirectories(t *testing.T) {
	t.Parallel()
	st := stage(t)
	lose := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { must(t, os.RemoveAll(filepath.Join(dir, name))) }
	}
	from := func(moment, name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			must(t, os.RemoveAll(filepath.Join(dir, name)))
			must(t, copyFile(filepath.Join(st.old[moment], name), filepath.Join(dir, name)))
		}
	}
	leave := func(name string, part float64) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			must(t, copyFile(filepath.Join(st.old["b"], fsmName), filepath.Join(dir, name)))
			tear(t, filepath.Join(dir, name), part)
		}
	}
	snap := func(nth int, name string, harm func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, dir string) { harm(t, snapshotFile(t, dir, nth, name)) }
	}
	half := func(t *testing.T, path string) { tear(t, path, 0.5) }
	gone := func(t *testing.T, path string) { must(t, os.Remove(path)) }
	distrust := func(t *testing.T, dir string) { editFSM(t, dir, nothing) }
	for _, c := range []struct {
		name   string
		reason string
		do     []func(*testing.T, string)
	}{
		{"as it was", "", nil},
		{"leftovers, empty", "", []func(*testing.T, string){leave(fsmRestoreName, 0), leave(fsmCopyPrefix+"A", 0), leave(raftCreateName, 0)}},
		{"leftovers, half", "", []func(*testing.T, string){leave(fsmRestoreName, 0.01), leave(fsmCopyPrefix+"A", 0.001)}},
		{"leftovers, whole, of another moment", "", []func(*testing.T, string){leave(fsmRestoreName, 1), leave(fsmCopyPrefix+"A", 1)}},
		{"fsm.db lost", "", []func(*testing.T, string){lose(fsmName)}},
		{"fsm.db emptied", "", []func(*testing.T, string){func(t *testing.T, dir string) { tear(t, filepath.Join(dir, fsmName), 0) }}},
		{"fsm.db lost, a leftover beside", "", []func(*testing.T, string){lose(fsmName), leave(fsmRestoreName, 1)}},
		{"fsm.db behind both snapshots", "", []func(*testing.T, string){from("a", fsmName)}},
		{"fsm.db behind the newer snapshot", "", []func(*testing.T, string){from("b", fsmName)}},
		{"fsm.db not trusted", "", []func(*testing.T, string){distrust}},
		{"raft.db lost", "older than fsm.db", []func(*testing.T, string){lose(raftName)}},
		{"raft.db and snapshots lost", "no raft state beside it", []func(*testing.T, string){lose(raftName), lose(snapshotsName)}},
		{"raft.db older", "older than fsm.db", []func(*testing.T, string){from("c", raftName)}},
		{"raft.db and snapshots older", "older than fsm.db", []func(*testing.T, string){from("a", raftName), lose(snapshotsName)}},
		{"the older snapshot is torn", "", []func(*testing.T, string){snap(1, "state.bin", half)}},
		{"the newer snapshot is torn", "", []func(*testing.T, string){snap(0, "state.bin", half)}},
		{"the newer snapshot's label is torn", "", []func(*testing.T, string){snap(0, "meta.json", half)}},
		{"the newer snapshot's label is gone", "", []func(*testing.T, string){snap(0, "meta.json", gone)}},
		{"fsm.db lost and the newer snapshot torn", "corrupt", []func(*testing.T, string){lose(fsmName), snap(0, "state.bin", half)}},
		{"fsm.db lost and the newer snapshot flipped", "corrupt", []func(*testing.T, string){lose(fsmName), snap(0, "state.bin", flip)}},
		{"fsm.db not trusted and the newer snapshot torn", "corrupt", []func(*testing.T, string){distrust, snap(0, "state.bin", half)}},
		{"fsm.db lost and both snapshots torn", "corrupt", []func(*testing.T, string){lose(fsmName), snap(0, "state.bin", half), snap(1, "state.bin", half)}},
		{"fsm.db lost and the older snapshot torn", "", []func(*testing.T, string){lose(fsmName), snap(1, "state.bin", half)}},
		{"fsm.db lost and the newer label gone", "raft entries are missing before the log", []func(*testing.T, string){lose(fsmName), snap(0, "meta.json", gone)}},
		{"fsm.db and all snapshots lost", "raft entries are missing before the log", []func(*testing.T, string){lose(fsmName), lose(snapshotsName)}},
		{"all snapshots lost", "", []func(*testing.T, string){lose(snapshotsName)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("the start panicked: %v", r)
				}
			}()
			dir := filepath.Join(t.TempDir(), "metastore")
			copySparse(t, st.dir, dir)
			for _, do := range c.do {
				do(t, dir)
			}
			st.mustEnd(t, dir, c.reason)
		})
	}
}
