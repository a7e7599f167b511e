// Package testutil holds what the tests of several packages share: waiting for a
// condition with a deadline, and running a workload once for every point at which
// the disk can fail under it.
package testutil

import (
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/disk"
)

// Polling interval of Eventually: it starts at the first and doubles to the second.
const (
	pollMin = time.Millisecond
	pollMax = 20 * time.Millisecond
)

// Eventually waits until cond holds, and fails the test with what after d.
func Eventually(t testing.TB, d time.Duration, cond func() bool, what string) {
	t.Helper()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	for wait := pollMin; !cond(); wait = min(2*wait, pollMax) {
		select {
		case <-deadline.C:
			if !cond() { // a last look: the machine may have been busy elsewhere
				t.Fatalf("not within %s: %s", d, what)
			}
			return
		case <-time.After(wait):
		}
	}
}

// Bounds of CrashPoints and FailPoints.
const (
	pointsMax  = 20_000 // I/O calls of one workload
	crashSeeds = 4      // outcomes tried per crash point
)

// CrashPoints runs a workload again and again on fresh volumes, cutting the power
// at its first I/O call, its second, and so on, until a run completes untouched. A
// run that crashes may return any error, or nil; a complete one must return nil.
// check gets several outcomes of every crash, and of a crash after the complete
// run; k is the call that crashed. run must have stopped its goroutines when it
// returns.
func CrashPoints(t *testing.T, newSim func() *disk.Sim, run func(*disk.Sim) error, check func(crashed *disk.Sim, k int)) {
	t.Helper()
	for k := 1; k <= pointsMax; k++ {
		s := newSim()
		s.CrashAt(k)
		err := run(s)
		complete := !s.Crashed()
		if complete && err != nil {
			t.Fatalf("run without a crash (call %d was not reached): %v", k, err)
		}
		for i := range int64(crashSeeds) {
			seed := int64(k)*crashSeeds + i
			checked(t, func() { check(s.Crash(seed), k) }, "crash at call %d, Crash(%d); the run said: %v", k, seed, err)
		}
		if complete {
			return
		}
	}
	t.Fatalf("the workload still crashed at call %d: it never ends", pointsMax)
}

// FailPoints runs a workload again and again on fresh volumes, letting the first
// call that rule matches fail, then the second, and so on, until a run meets no
// failure; rule.N is overwritten. check gets the volume, rules cleared, after each
// run; failed is what run returned. The complete run must return nil.
func FailPoints(t *testing.T, newSim func() *disk.Sim, rule disk.Rule, run func(*disk.Sim) error, check func(s *disk.Sim, k int, failed error)) {
	t.Helper()
	for k := 1; k <= pointsMax; k++ {
		s := newSim()
		rule.N = k
		s.Fail(rule)
		err := run(s)
		complete := s.Fired() == 0
		if complete && err != nil {
			t.Fatalf("run without a failure (only %d calls match): %v", k-1, err)
		}
		s.ClearRules()
		checked(t, func() { check(s, k, err) }, "failure of matching call %d (%s %s); the run said: %v", k, rule.Op, rule.Path, err)
		if complete {
			return
		}
	}
	t.Fatalf("the workload still failed at matching call %d: it never ends", pointsMax)
}

// checked runs check and, if the test has failed by then, says at which point and
// stops it; check may have stopped the test itself.
func checked(t *testing.T, check func(), format string, args ...any) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("at "+format, args...)
		}
	}()
	check()
	if t.Failed() {
		t.FailNow()
	}
}
