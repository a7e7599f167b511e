package crash

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// killAt is the injection that kills the process as a thread enters its n-th such call.
func killAt(call string, n int) []string {
	return []string{"-e", "trace=" + call, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", call, n)}
}

// exited waits for a node that is to die by itself, and notes when.
func (l *load) exited() {
	l.t.Helper()
	l.node.Wait(patience)
	l.ledger.Killed(time.Now())
}

// F1 F2 F8 with O1 O2 O3 O5: the node dies on entering a system call of each kind that
// matters, under load: before a sync, before a write, before the read-back, between the
// sync and the answer (a write to a socket), around renames.
func TestF1F2KilledAtASystemCall(t *testing.T) {
	testutil.NeedStrace(t)
	rng := random(t)
	l := newLoad(t, t.TempDir())
	l.boot()
	l.create(client.CreateTopic{})
	l.run(4)
	for _, call := range []string{"fdatasync", "pwrite64", "pread64", "write", "fdatasync", "pwrite64", "write"} {
		l.flow(50)
		n := 1 + rng.IntN(60)
		t.Logf("kill at %s, call %d of a thread", call, n)
		l.node.Trace(killAt(call, n)...)
		l.exited()
		l.boot()
	}
	l.halt()
	l.drain()
}

// F1 F5 F7 with O1 O2 O5 O13: the node dies on entering the calls that make, rename and
// remove files: topics are created, deleted and their data reclaimed, WAL segments
// rolled.
func TestF5F7KilledAmongRenamesAndRemovals(t *testing.T) {
	testutil.NeedStrace(t)
	rng := random(t)
	l := newLoad(t, t.TempDir())
	l.boot()
	l.create(client.CreateTopic{})
	l.run(2)
	churn := func(stop <-chan struct{}, done chan<- struct{}) {
		defer close(done)
		f := follower{l: l}
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := fmt.Sprintf("churn-%d", i%3)
			_, err := f.get().CreateTopic(t.Context(), client.CreateTopic{Name: name})
			for range 3 {
				_ = f.get().Produce(t.Context(), name, client.Message{Payload: []byte("1")})
			}
			if derr := f.get().DeleteTopic(t.Context(), name); err != nil && derr != nil {
				l.pause()
			}
		}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go churn(stop, done)
	for _, call := range []string{"renameat", "unlinkat", "fsync", "mkdirat", "renameat", "unlinkat"} {
		l.flow(20)
		n := 1 + rng.IntN(6)
		t.Logf("kill at %s, call %d of a thread", call, n)
		l.node.Trace(killAt(call, n)...)
		l.exited()
		l.boot()
	}
	close(stop)
	<-done
	l.halt()
	l.drain()
}

// recoveryCalls is how many calls of each kind a recovery is killed at.
const recoveryCalls = 6

// F6 with O1 O2 O5 O8: recovery itself is killed at its first call of each kind, its
// second, and so on, on the same directory; in the end it comes up as if nothing had
// happened.
func TestF6KilledInRecovery(t *testing.T) {
	testutil.NeedStrace(t)
	l := newLoad(t, t.TempDir())
	l.boot()
	l.create(client.CreateTopic{})
	l.run(4)
	l.flow(500)
	l.crash()
	deaths := 0
	for _, call := range []string{"openat", "pread64", "pwrite64", "fdatasync", "fsync", "renameat", "ftruncate", "unlinkat"} {
		for n := 1; n <= recoveryCalls; n++ {
			k := n
			if call == "openat" {
				k = 8 * n // the first ones are the runtime's
			}
			l.node.Wrap = testutil.Straced(filepath.Join(t.TempDir(), "trace"), killAt(call, k)...)
			if l.node.Launch() {
				l.node.Kill() // it makes fewer such calls
				break
			}
			deaths++
		}
	}
	l.node.Wrap = nil
	l.ledger.Killed(time.Now())
	l.boot()
	l.flow(100)
	l.halt()
	l.drain()
	t.Logf("recovery was killed %d times", deaths)
	if deaths < 10 {
		t.Errorf("recovery was killed %d times only: the run proves little", deaths)
	}
}
