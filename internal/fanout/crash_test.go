package fanout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/testutil"
)

// crashKeys are committed to the parent, a few at a time, in the crash workload.
const crashRounds, crashEach = 4, 3

// The power is cut at every I/O call of a run that commits to a parent and copies to its
// child: commits, positions, anchors. Afterwards the child gets every record that is in
// the parent, each key's copies in order, and no record of a slab that was passed comes
// again; a position never stands past what the child has.
func TestCrashAtEveryCall(t *testing.T) {
	var rep *replica
	newSim := func() *disk.Sim {
		rep = newReplica()
		return disk.NewSim(1)
	}
	run := func(s *disk.Sim) error {
		r := &rig{t: t, fs: s}
		r.prepare(rep)
		if err := r.tryOpen(); err != nil {
			r.close()
			return err
		}
		defer r.close()
		r.topic("p", 1)
		r.topic("c", 2)
		r.link("p", "c", 0, []int64{0})
		for i := range crashRounds {
			if err := r.tryCommit("p", 0, numbered(fmt.Sprintf("r%d-", i), crashEach)...); err != nil {
				return err
			}
			want := int64((i + 1) * crashEach)
			for range 2000 {
				if c := r.e.set.get(place{"p", 0, "c"}); s.Crashed() || c != nil && c.next.Load() == want {
					break
				}
				<-time.After(pumpPace / 4)
				r.clk.Advance(pumpStep)
			}
		}
		return nil
	}
	testutil.CrashPoints(t, newSim, run, func(crashed *disk.Sim, k int) {
		r := &rig{t: t, fs: crashed}
		r.prepare(rep)
		if _, ok := rep.Topic("c"); !ok {
			return
		}
		must(t, r.tryOpen())
		defer r.close()
		stood, _ := r.position("p", 0, "c")
		had := len(r.keys("c"))
		parent := r.keys("p")
		if int(stood.next) > len(parent) {
			t.Fatalf("position %d, the parent holds %d records", stood.next, len(parent))
		}
		r.pump(func() bool { return r.caught("p", "c") }, "the child catches up")
		counts := map[string]int{}
		for _, key := range r.keys("c") {
			counts[key]++
		}
		for i, key := range parent {
			switch n := counts[key]; {
			case n == 0:
				t.Fatalf("%s is missing in the child (position %d, %d records there)", key, stood.next, had)
			case n > 2, int64(i) < stood.next && n > 1 && k > 0 && !slices.Contains(lastSlab(parent, stood.next), key):
				t.Fatalf("%s is in the child %d times", key, n)
			}
		}
		if len(counts) != len(parent) {
			t.Fatalf("the child holds %d keys, the parent %d", len(counts), len(parent))
		}
	})
}

// lastSlab are the records of the slab before a position: a crash between its commits
// and a position that was not durable yet repeats them.
func lastSlab(parent []string, next int64) []string {
	return parent[max(0, int(next)-crashEach):min(int(next), len(parent))]
}

// A failing call of every kind, once: the engine goes on, and nothing is missing.
func TestFailingCallsAreSurvived(t *testing.T) {
	for _, rule := range []disk.Rule{
		{Op: disk.OpSync, Path: "fanout-c.offset"}, {Op: disk.OpWrite, Path: "fanout-c.offset"},
		{Op: disk.OpSync, Path: "fanout-c.offset.tmp"}, {Op: disk.OpRename, Path: "fanout-c.offset"},
		{Op: disk.OpOpen, Path: "fanout-c.offset"}, {Op: disk.OpRead, Path: "fanout-c.offset"},
	} {
		for n := 1; n <= 3; n++ {
			t.Run(fmt.Sprintf("%s %s %d", rule.Op, rule.Path, n), func(t *testing.T) {
				r := newRig(t)
				r.topic("p", 1)
				r.topic("c", 2)
				rule.N = n
				r.fs.Fail(rule)
				r.link("p", "c", 0, []int64{0})
				var want []string
				for i := range 4 {
					keys := numbered(fmt.Sprintf("r%d-", i), 3)
					want = append(want, keys...)
					r.commit("p", 0, keys...)
					r.pass(200 * time.Millisecond)
				}
				r.pump(func() bool { return r.caught("p", "c") }, "the child catches up")
				r.reopen()
				r.commit("p", 0, "last")
				want = append(want, "last")
				r.pump(func() bool { return r.caught("p", "c") }, "and again after a restart")
				got := slices.Compact(r.sorted("c"))
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("%v, want %v", got, want)
				}
			})
		}
	}
}

// caught reports a complete lag of 0.
func (r *rig) caught(parent, child string) bool {
	v, _ := r.rep.Topic(parent)
	return slices.ContainsFunc(r.e.Children(r.t.Context(), v), func(c Child) bool { return c.Name == child && c.LagComplete && c.LagMessages == 0 })
}
