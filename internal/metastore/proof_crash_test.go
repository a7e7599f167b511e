package metastore

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	narad "github.com/narad-mq/narad/internal/testutil"
)

// Crashes at system calls: the test binary runs itself as a node, and strace kills it
// as it enters its n-th call of a kind. What such a death leaves is what a real one
// does, without any copy that is torn by its own making.

const (
	crashDirEnv  = "METASTORE_CRASH_DIR"  // where the child's store is
	crashAcksEnv = "METASTORE_CRASH_ACKS" // the file it notes answered changes in
	crashRoleEnv = "METASTORE_CRASH_ROLE" // a role below; "" = alone, and it does work

	crashEachEnv = "METASTORE_CRASH_EACH" // set: die at each call of a kind, not at the first few

	joiner = "joiner" // starts join-only
	peer   = "peer"   // starts as one of three that bootstrap together

	// crashWait bounds one life of the child, strace included.
	crashWait = 60 * time.Second
	// crashCreates is how many topics one life creates, with a snapshot amid them.
	crashCreates = 6
)

// TestCrashChild is no test: it is the node of the tests below.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashDirEnv)
	if dir == "" {
		t.Skip("run by other tests only")
	}
	o := testOptions(dir)
	o.TrailingLogs = 2
	if role := os.Getenv(crashRoleEnv); role != "" {
		asRole(role, &o)
		s, err := Open(context.Background(), o)
		must(t, err)
		must(t, s.Close())
		return
	}
	s, err := Open(context.Background(), o)
	must(t, err)
	waitReady(t, s)
	acks, err := os.OpenFile(os.Getenv(crashAcksEnv), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	must(t, err)
	for i := range crashCreates {
		name := fmt.Sprintf("t%d-%d", os.Getpid(), i)
		mustPropose(t, s, create(name))
		_, err := acks.WriteString(name + "\n")
		must(t, err)
		if i%3 == 2 {
			must(t, s.raft.Snapshot().Error())
		}
	}
	must(t, acks.Close())
	must(t, s.Close())
}

// asRole makes options those of a node that is not a cluster of its own.
func asRole(role string, o *Options) {
	o.Join = role == joiner
	if role == peer {
		for i := range 3 { // nobody listens there
			o.Initial = append(o.Initial, Server{ID: fmt.Sprintf("narad-%d", i), Addr: fmt.Sprintf("127.0.0.1:%d", 1+i)})
		}
		o.Advertise = o.Initial[0].Addr
	}
}

// victim is a directory that one life after the other is killed on.
type victim struct {
	t         *testing.T
	dir, acks string
	role      string
	deaths    int
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	narad.NeedStrace(t)
	root := t.TempDir()
	return &victim{t: t, dir: filepath.Join(root, "metastore"), acks: filepath.Join(root, "acks")}
}

// live runs the child until it is done, or killed as one of its threads enters its
// n-th call of a kind; it reports which.
func (v *victim) live(call string, n int) (killed bool) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), crashWait)
	defer cancel()
	self, err := os.Executable()
	must(v.t, err)
	args := []string{self, "-test.run=^TestCrashChild$"}
	if call != "" {
		args = append([]string{
			"strace", "-f", "-qq", "-o", os.DevNull, "-e", "trace=" + call, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", call, n),
		}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), crashDirEnv+"="+v.dir, crashAcksEnv+"="+v.acks, crashRoleEnv+"="+v.role, "GOMAXPROCS=1")
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		v.t.Fatalf("%s %d: still running after %s: %s", call, n, crashWait, out)
	case err == nil:
		return false
	case cmd.ProcessState.ExitCode() > 0:
		v.t.Fatalf("%s %d: the node failed: %v: %s", call, n, err, out)
	}
	v.deaths++
	return true
}

// sweep kills a life at the first call of a kind, the next at the second and so on,
// each on what the one before left, until one is done before its turn.
func (v *victim) sweep(deaths int, check func(what string), calls ...string) {
	v.t.Helper()
	if os.Getenv(crashEachEnv) != "" {
		deaths = math.MaxInt
	}
	for _, call := range calls {
		for n := 1; n <= deaths && v.live(call, n); n++ {
			check(fmt.Sprintf("killed at %s %d", call, n))
		}
	}
}

func (v *victim) acked() []string {
	v.t.Helper()
	b, err := os.ReadFile(v.acks)
	if os.IsNotExist(err) {
		return nil
	}
	must(v.t, err)
	return strings.Fields(string(b))
}

// holdsAll starts a copy of the directory: it has every topic that was answered, is
// the cluster it was, takes writes, and has cleaned up.
func (v *victim) holdsAll(what string) {
	v.t.Helper()
	dir := v.t.TempDir()
	copySparse(v.t, v.dir, dir)
	s := openStore(v.t, dir)
	defer s.Close()
	for _, name := range v.acked() {
		if topic, ok := s.Topic(name); !ok || topic.OwnerOf(2) != node {
			v.t.Errorf("%s: %s is %+v", what, name, topic)
		}
	}
	if servers := s.Servers(); len(servers) != 1 || servers[0].ID != node {
		v.t.Errorf("%s: the cluster is %+v", what, servers)
	}
	mustPropose(v.t, s, create("after"))
	mustPropose(v.t, s, DeleteTopic{Name: "after"})
	for _, pattern := range []string{fsmRestoreName, raftCreateName, fsmCopyPrefix + "*", snapshotsName + "/*.tmp"} {
		if left, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(left) > 0 {
			v.t.Errorf("%s: left %v, %v", what, left, err)
		}
	}
}

// F9: a first start killed at any step is a first start again: one server, this one,
// and nothing that was answered is missing.
func TestF9KilledInTheFirstStart(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	for _, call := range []string{"renameat", "fsync", "fdatasync", "pwrite64", "ftruncate"} {
		for n := 1; n <= 4 || os.Getenv(crashEachEnv) != ""; n++ {
			must(t, os.RemoveAll(v.dir))
			must(t, os.RemoveAll(v.acks))
			if !v.live(call, n) {
				break
			}
			must(t, os.MkdirAll(v.dir, 0o700)) // it may have died before that
			v.holdsAll(fmt.Sprintf("killed at %s %d of the first start", call, n))
		}
	}
	t.Logf("killed %d times", v.deaths)
	if v.deaths < 10 {
		t.Errorf("killed %d times only", v.deaths)
	}
}

// F9: a joiner killed at any step of its first start never becomes a cluster of its
// own, not even when its next start is killed too.
func TestF9KilledInTheFirstStartOfAJoiner(t *testing.T) {
	t.Parallel()
	killedMember(t, joiner, 0)
}

// F9: nor does one of three that bootstrap together: it starts as one of three.
func TestF9KilledInTheFirstStartOfAPeer(t *testing.T) {
	t.Parallel()
	killedMember(t, peer, 3)
}

func killedMember(t *testing.T, role string, servers int) {
	t.Helper()
	v := newVictim(t)
	v.role = role
	v.sweep(3, func(what string) {
		dir := t.TempDir()
		copySparse(t, v.dir, dir)
		o := testOptions(dir)
		asRole(role, &o)
		s, err := Open(context.Background(), o)
		must(t, err)
		defer s.Close()
		if got := s.Servers(); len(got) != servers || s.IsLeader() || s.CaughtUp() {
			t.Errorf("%s: a %s is in the cluster %+v", what, role, got)
		}
	}, "renameat", "fsync", "fdatasync", "pwrite64")
	t.Logf("killed %d times", v.deaths)
	if v.deaths < 5 {
		t.Errorf("killed %d times only", v.deaths)
	}
}

// F26, F28: killed between and within applies, snapshots and compactions, and in the
// recovery of the death before.
func TestF28KilledApplyingAndSnapshotting(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	v.live("", 0)
	if os.Getenv(crashEachEnv) != "" {
		v.sweep(0, v.holdsAll, "renameat", "fsync", "fdatasync", "pwrite64", "ftruncate", "unlinkat")
		t.Logf("killed %d times", v.deaths)
		return
	}
	for call, ns := range map[string][]int{
		"pwrite64": {5, 12, 25, 40}, "fdatasync": {2, 7, 11, 16}, "fsync": {2, 5}, "renameat": {1, 2}, "unlinkat": {1, 2}, "ftruncate": {1},
	} {
		for _, n := range ns {
			if v.live(call, n) {
				v.holdsAll(fmt.Sprintf("killed at %s %d", call, n))
			}
		}
	}
	t.Logf("killed %d times", v.deaths)
	if v.deaths < 8 {
		t.Errorf("killed %d times only", v.deaths)
	}
}

// F26: fsm.db is gone, and the restore of the snapshot over it is killed at each step.
func TestF26KilledInTheRestore(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	v.live("", 0)
	must(t, os.Remove(filepath.Join(v.dir, fsmName)))
	v.sweep(3, func(what string) {
		v.holdsAll(what)
		must(t, os.RemoveAll(filepath.Join(v.dir, fsmName))) // and again
	}, "renameat", "unlinkat", "fsync", "pwrite64")
	t.Logf("killed %d times", v.deaths)
	if v.deaths < 6 {
		t.Errorf("killed %d times only", v.deaths)
	}
}

// F28: an index that is not trusted: the restore of the snapshot, or the rebuild from
// a whole log, is killed at each step, and the next start begins it again.
func TestF28KilledInTheRebuild(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	s := openStore(t, v.dir)
	for i := range 5 {
		name := fmt.Sprintf("t%d", i)
		mustPropose(t, s, create(name))
		must(t, os.WriteFile(v.acks, []byte(strings.Join(append(v.acked(), name), "\n")+"\n"), 0o600))
	}
	must(t, s.Close())
	distrust := func() { editFSM(t, v.dir, nothing) }
	distrust()
	v.sweep(3, func(what string) {
		v.holdsAll(what)
		if ok, err := exists(filepath.Join(v.dir, fsmName)); err == nil && ok {
			distrust()
		}
	}, "renameat", "fsync", "pwrite64")
	t.Logf("killed %d times", v.deaths)
	if v.deaths < 4 {
		t.Errorf("killed %d times only", v.deaths)
	}
}

// F28: the log is compacted and its snapshots are gone: making one of fsm.db is killed
// at each step, and the next start makes it again, or starts from what was finished.
func TestF28KilledInTheRebase(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	v.live("", 0)
	lose := func() { must(t, os.RemoveAll(filepath.Join(v.dir, snapshotsName))) }
	lose()
	unfinished := 0
	v.sweep(4, func(what string) {
		left, err := filepath.Glob(filepath.Join(v.dir, snapshotsName, "*.tmp"))
		must(t, err)
		unfinished += len(left)
		v.holdsAll(what)
		lose()
	}, "mkdirat", "renameat", "fsync", "fdatasync", "pwrite64", "write")
	t.Logf("killed %d times, %d of them within the snapshot", v.deaths, unfinished)
	if v.deaths < 10 || unfinished < 4 {
		t.Errorf("killed %d times, %d of them within the snapshot", v.deaths, unfinished)
	}
}
