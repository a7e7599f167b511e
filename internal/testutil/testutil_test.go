package testutil

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/disk"
)

func TestEventuallyWaits(t *testing.T) {
	n := 0
	Eventually(t, 5*time.Second, func() bool { n++; return n == 4 }, "fourth look")
	if n != 4 {
		t.Fatalf("looked %d times, want 4", n)
	}
}

func newSim() *disk.Sim { return disk.NewSim(1) }

func writeTwice(s *disk.Sim) error {
	if err := disk.WriteFileAtomic(s, "f", []byte("old")); err != nil {
		return err
	}
	return disk.WriteFileAtomic(s, "f", []byte("newer"))
}

// WriteFileAtomic leaves nothing, the old content or the new one, wherever it crashes.
func TestCrashPointsCoverEveryCall(t *testing.T) {
	seen := map[string]int{}
	last := 0
	CrashPoints(t, newSim, writeTwice, func(s *disk.Sim, k int) {
		b, err := disk.ReadFile(s, "f", 100)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if v := string(b); v != "" && v != "old" && v != "newer" {
			t.Fatalf("found %q", v)
		}
		seen[string(b)]++
		last = k
	})
	whole := newSim()
	if err := writeTwice(whole); err != nil {
		t.Fatal(err)
	}
	if last != whole.Calls()+1 {
		t.Errorf("last crash point %d, want one past the %d calls", last, whole.Calls())
	}
	for _, v := range []string{"", "old", "newer"} {
		if seen[v] == 0 {
			t.Errorf("outcome %q never occurred", v)
		}
	}
}

func TestFailPointsCoverEveryCall(t *testing.T) {
	failures, last := 0, 0
	FailPoints(t, newSim, disk.Rule{Op: disk.OpSync}, writeTwice, func(s *disk.Sim, k int, failed error) {
		last = k
		if failed != nil {
			failures++
			if _, err := s.Stat("f.tmp"); err == nil {
				t.Error("temporary file left behind")
			}
		}
	})
	if failures != 2 || last != 3 {
		t.Errorf("%d failures, last run %d; want 2 and 3", failures, last)
	}
}
