package position

import (
	"fmt"
	"os"
	"path"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

// script is a workload of acks in simulated time, and what it remembers of them.
type script struct {
	r       *rig
	sim     *disk.Sim
	shard   *shard
	ackedAt map[int64]time.Time // first resolved
	due     time.Time           // of the next tick; zero = none
}

// newScript opens the partition on whatever the volume holds.
func newScript(t testing.TB, sim *disk.Sim) (*script, *Tracked, error) {
	s := &script{r: newRig(t, sim), sim: sim, ackedAt: map[int64]time.Time{}}
	pos, err := Load(sim, dir, testInc)
	if err != nil {
		return nil, nil, err
	}
	s.shard = &shard{pos: pos}
	return s, s.r.c.Track(key, dir, testInc, s.shard), nil
}

// pass lets d go by in steps of 20 ms, ticking as the goroutine would. Time stops
// with the power.
func (s *script) pass(d time.Duration) {
	const step = 20 * time.Millisecond
	for ; d > 0 && !s.sim.Crashed(); d -= step {
		s.r.clk.Advance(min(step, d))
		if now := s.r.clk.Now(); !s.due.IsZero() && !now.Before(s.due) {
			s.due = time.Time{}
			if wait, more := s.r.c.step(); more {
				s.due = now.Add(wait)
			}
		}
	}
}

func (s *script) ack(tr *Tracked, o int64) {
	s.shard.ack(o)
	s.ackedAt[o] = s.r.clk.Now()
	tr.Dirty()
	if now := s.r.clk.Now(); s.due.IsZero() || s.due.Sub(now) > s.r.c.tick {
		s.due = now.Add(s.r.c.tick)
	}
}

// run acks out of order, pauses until consumer.offset is levelled, acks again, and
// ends gracefully or not. It stops when the power does.
func (s *script) run(tr *Tracked, graceful bool) error {
	first := s.shard.position().Committed + 1
	order := []int64{0, 2, 1, 5, 7, 3, 9, 4, 11, 6, 13, 8}
	for i, o := range order {
		if s.sim.Crashed() {
			return disk.ErrCrashed
		}
		s.ack(tr, first+o)
		s.pass(70 * time.Millisecond)
		if i == 8 {
			s.pass(LevelInterval + interval)
		}
	}
	if !graceful {
		return nil
	}
	return s.r.c.finish()
}

// older is what was resolved longer than d before now.
func (s *script) older(d time.Duration) (out []int64) {
	for o, at := range s.ackedAt {
		if s.r.clk.Now().Sub(at) > d {
			out = append(out, o)
		}
	}
	return out
}

// recovered checks what a crash leaves: nothing that was not resolved (C4), and all
// that was promised.
func (s *script) recovered(t testing.TB, fsys disk.FS, promised []int64) model.Position {
	t.Helper()
	got := load(t, fsys)
	if all := s.shard.position(); !covers(all, got) {
		t.Fatalf("C4: recovered %+v, resolved in memory %+v", got, all)
	}
	for _, o := range promised {
		if !holds(got, o) {
			t.Fatalf("offset %d is promised, recovered %+v at %v; acked %v", o, got, s.r.clk.Now(), s.ackedAt[o])
		}
	}
	return got
}

func durableDir(t testing.TB) func() *disk.Sim {
	return func() *disk.Sim {
		sim := disk.NewSim(1)
		if err := disk.MkdirDurable(sim, dir); err != nil {
			t.Fatal(err)
		}
		return sim
	}
}

// TestC4C6F8PowerLoss cuts the power at every call of the workload. What recovers was
// resolved, holds every ack older than D+T, and every ack after a graceful end.
func TestC4C6F8PowerLoss(t *testing.T) {
	var s *script
	var whole bool
	testutil.CrashPoints(t, durableDir(t), func(sim *disk.Sim) error {
		var tr *Tracked
		var err error
		if s, tr, err = newScript(t, sim); err != nil {
			whole = false
			s = nil
			return err
		}
		err = s.run(tr, true)
		whole = err == nil && !sim.Crashed()
		return err
	}, func(crashed *disk.Sim, k int) {
		if s == nil {
			return // it never got to a position
		}
		promise := interval + TickMax
		if whole {
			promise = -1
		}
		s.recovered(t, crashed, s.older(promise))
	})
}

// TestF8F6PowerLossAfterPowerLoss cuts the power in a run, recovers, and cuts it again
// at each of the first calls of the next run, priming included: what the first
// recovery found is never lost again.
func TestF8F6PowerLossAfterPowerLoss(t *testing.T) {
	for k := 1; k < 60; k += 3 {
		for k2 := 1; k2 <= 14; k2++ {
			sim := durableDir(t)()
			s, tr, err := newScript(t, sim)
			if err != nil {
				t.Fatal(err)
			}
			sim.CrashAt(k)
			_ = s.run(tr, false) // most end by the crash
			sim = sim.Crash(int64(k))
			found := s.recovered(t, sim, s.older(interval+TickMax))

			s2, tr2, err := newScript(t, sim)
			if err != nil {
				t.Fatal(err)
			}
			sim.CrashAt(k2)
			_ = s2.run(tr2, false)
			for seed := range int64(3) {
				got := s2.recovered(t, sim.Crash(seed), s2.older(interval+TickMax))
				if !covers(got, found) {
					t.Fatalf("k %d, k2 %d: first recovered %+v, then %+v", k, k2, found, got)
				}
			}
		}
	}
}

// TestF8ProcessCrash kills the process at every instant: the page cache stays, so all
// but the last T of acks is there. Then the power goes during the next process.
func TestF8ProcessCrash(t *testing.T) {
	for stop := 20 * time.Millisecond; stop < 900*time.Millisecond; stop += 20 * time.Millisecond {
		for k := 1; k <= 12; k++ {
			sim := durableDir(t)()
			s, tr, err := newScript(t, sim)
			if err != nil {
				t.Fatal(err)
			}
			for i := int64(0); s.r.clk.Now().Sub(s.r.c.epoch) < stop; i++ {
				s.ack(tr, i+i%2) // leaves holes
				s.pass(20 * time.Millisecond)
			}
			s.recovered(t, sim, s.older(TickMax))
			durable := s.older(interval + TickMax)

			next, tr2, err := newScript(t, sim)
			if err != nil {
				t.Fatal(err)
			}
			sim.CrashAt(k)
			next.ack(tr2, 1000)
			next.pass(3 * interval)
			got := load(t, sim.Crash(int64(k)))
			for _, o := range durable {
				if !holds(got, o) {
					t.Fatalf("stop %v, k %d: offset %d was durable, recovered %+v", stop, k, o, got)
				}
			}
			next.shard.ack(1000)
			if !covers(next.shard.position(), got) {
				t.Fatalf("C4: recovered %+v, resolved %+v", got, next.shard.position())
			}
		}
	}
}

// TestF23DamageAtRest flips a byte anywhere in the files of a running partition: what
// is recovered is never more than what was resolved, and at least consumer.offset or
// the other slot.
func TestF23DamageAtRest(t *testing.T) {
	build := func() (*disk.Sim, *script) {
		sim := durableDir(t)()
		s, tr, err := newScript(t, sim)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.run(tr, false); err != nil {
			t.Fatal(err)
		}
		return sim, s
	}
	sim, s := build()
	floor := settled(offset(t, sim, dir))
	for at := 0; at < aheadSize; at += 13 {
		damage := func(b []byte) []byte { return flip(b, at) }
		if err := sim.Corrupt(path.Join(dir, AheadName), damage); err != nil {
			t.Fatal(err)
		}
		if got := s.recovered(t, sim, nil); !covers(got, floor) || floor.Committed < 0 {
			t.Fatalf("byte %d: %+v, consumer.offset %+v", at, got, floor)
		}
		if err := sim.Corrupt(path.Join(dir, AheadName), damage); err != nil {
			t.Fatal(err)
		}
	}
	best := load(t, sim)
	for at := range disk.FactSize {
		if err := sim.Corrupt(path.Join(dir, OffsetName), func(b []byte) []byte { return flip(b, at) }); err != nil {
			t.Fatal(err)
		}
		if got := s.recovered(t, sim, nil); !equal(got, best) {
			t.Fatalf("consumer.offset byte %d: %+v, want %+v", at, got, best)
		}
	}
	for _, name := range []string{AheadName, OffsetName} {
		if err := sim.Remove(path.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		s.recovered(t, sim, nil)
	}
}

// TestRealFiles runs the workload on the real file system.
func TestRealFiles(t *testing.T) {
	root := t.TempDir()
	for i := range 3 {
		d := path.Join(root, fmt.Sprintf("p%05d", i))
		r := newRig(t, disk.OS{})
		tr, s := r.track(key, d)
		for o := range int64(20) {
			s.ack(o * 2)
			tr.Dirty()
			r.tick()
		}
		if i == 2 {
			tr.release() // as if evicted
		}
		s.ack(1)
		tr.Dirty()
		if i == 1 {
			if err := os.Rename(d, d+".stale"); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(d, 0o700); err != nil {
				t.Fatal(err)
			}
			r.durably()
			r.logged(strandedLine)
			if entries, err := os.ReadDir(d); err != nil || len(entries) != 0 {
				t.Errorf("%v in the new directory, %v", entries, err)
			}
			continue
		}
		if err := r.c.finish(); err != nil {
			t.Fatal(err)
		}
		got, err := Load(disk.OS{}, d, testInc)
		if err != nil {
			t.Fatal(err)
		}
		r.want(d, got, s.position())
		for name, size := range map[string]int64{OffsetName: disk.FactSize, AheadName: aheadSize} {
			if info, err := os.Stat(path.Join(d, name)); err != nil || info.Size() != size || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v %v", name, info, err)
			}
		}
	}
}
