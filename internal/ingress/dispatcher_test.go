package ingress

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// run gives f an ingress on a simulated disk inside a bubble whose time moves
// only when everything waits, and closes it at the end.
func run(t *testing.T, w *world, f func(t *testing.T, in *Ingress)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		in := mustOpen(t, w.options(disk.NewSim(1), clock.Real()))
		defer mustClose(t, in)
		f(t, in)
	})
}

// after lets d pass, and everything that happens in it happen.
func after(d time.Duration) {
	time.Sleep(d) // inside a bubble: fake time
	synctest.Wait()
}

func TestDispatchCommitsAndAdvances(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3)
	run(t, w, func(t *testing.T, in *Ingress) {
		for i := range 10 {
			mustAccept(t, in, "t", Message{Payload: text("m%d", i), Partition: 1})
		}
		after(lingerMax)
		if got := w.node(self).stored("t", 1); len(got) != 10 || !slices.IsSorted(got) {
			t.Fatalf("stored %q, want m0 to m9 in order", got)
		}
		if in.Backlog() != 0 {
			t.Fatalf("backlog %d after all was committed", in.Backlog())
		}
	})
}

func TestLowLoadCommitsAtOnce(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3)
	run(t, w, func(t *testing.T, in *Ingress) {
		for i := range 5 {
			mustAccept(t, in, "t", Message{Payload: text("m%d", i), Partition: i % 3})
			synctest.Wait() // no time passes
			if in.Backlog() != 0 {
				t.Fatalf("message %d waits although nothing is in flight", i)
			}
			after(time.Second)
		}
	})
}

// P5: one dead, frozen or hung owner delays no other destination.
func TestP5StuckOwnerDelaysNoOther(t *testing.T) {
	stuck := map[string]func(w *world, n *node){
		"hung": func(_ *world, n *node) {
			n.block = func(ctx context.Context, topic string, p int) {
				<-ctx.Done()
			}
			n.refuse = func(string, int, []model.Record) error { return context.Canceled }
		},
		"failing": func(_ *world, n *node) {
			n.refuse = func(string, int, []model.Record) error { return model.ErrNotOwner }
		},
		"dead":       func(_ *world, n *node) { n.alive = false; n.refuse = refuseAll },
		"unresolved": func(w *world, _ *node) { w.setUnowned("bad", 0, true) },
	}
	for name, breakIt := range stuck {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.create("good", idA, 3)
			w.create("bad", idB, 1)
			w.own("bad", 0, "n1")
			bad := w.node("n1")
			bad.set(func(n *node) { breakIt(w, n) })
			run(t, w, func(t *testing.T, in *Ingress) {
				for i := range 200 {
					mustAccept(t, in, "bad", Message{Payload: text("b%d", i), Partition: 0})
					mustAccept(t, in, "good", Message{Payload: text("g%d", i), Partition: i % 3})
					after(20 * time.Millisecond)
					if got := w.all()[fmt.Sprintf("g%d", i)]; got != 1 {
						t.Fatalf("g%d stored %d times 20 ms after its 202", i, got)
					}
				}
				bad.set(func(n *node) { n.alive, n.refuse, n.block = true, nil, nil })
				w.setUnowned("bad", 0, false)
				after(2*commitBudget + 5*time.Second)
				all := w.all()
				for i := range 200 {
					if all[fmt.Sprintf("b%d", i)] == 0 {
						t.Fatalf("b%d was lost", i)
					}
				}
				if in.Backlog() != 0 {
					t.Fatalf("backlog %d after the owner came back", in.Backlog())
				}
			})
		})
	}
}

func refuseAll(string, int, []model.Record) error { return errors.New("connection refused") }

// TestRerouteAfterGraceAndReturn: commits that fail for 3 s move the partition's
// records, pinned and keyed ones too, and they return once a probe succeeds.
func TestRerouteAfterGraceAndReturn(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3)
	w.own("t", 1, "n1")
	bad := w.node("n1")
	bad.set(func(n *node) { n.refuse = refuseAll })
	run(t, w, func(t *testing.T, in *Ingress) {
		mustAccept(t, in, "t", Message{Payload: text("a"), Partition: 1, Key: []byte("k")})
		after(2900 * time.Millisecond)
		mustAccept(t, in, "t", Message{Payload: text("b"), Partition: 1})
		if n := len(w.all()); n != 0 {
			t.Fatalf("%d records stored inside the grace", n)
		}
		after(2 * time.Second)
		if got := w.node(self).stored("t", 2); len(got) != 2 {
			t.Fatalf("partition 2 has %q after the grace, want both records", got)
		}
		if in.Backlog() != 0 {
			t.Fatalf("backlog %d: the probe holds the checkpoint", in.Backlog())
		}
		bad.set(func(n *node) { n.refuse = nil })
		after(time.Second)
		mustAccept(t, in, "t", Message{Payload: text("c"), Partition: 1})
		after(2 * time.Second)
		mustAccept(t, in, "t", Message{Payload: text("d"), Partition: 1})
		after(2 * time.Second)
		if got := bad.stored("t", 1); !slices.Contains(got, "d") {
			t.Fatalf("partition 1 has %q after its owner came back, want d", got)
		}
	})
}

func TestRerouteAtOnceWhenDead(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3)
	w.own("t", 0, "n1")
	bad := w.node("n1")
	bad.set(func(n *node) { n.refuse, n.alive = refuseAll, false })
	run(t, w, func(t *testing.T, in *Ingress) {
		for i := range 50 {
			mustAccept(t, in, "t", Message{Payload: text("m%d", i), Partition: 0})
		}
		after(100 * time.Millisecond)
		if got := w.node(self).stored("t", 1); len(got) != 50 {
			t.Fatalf("partition 1 has %d records, want 50", len(got))
		}
	})
}

// A failure shorter than the grace reroutes nothing (a handoff freeze).
func TestShortFreezeReroutesNothing(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3)
	n := w.node(self)
	n.set(func(n *node) {
		n.refuse = func(_ string, p int, _ []model.Record) error {
			if p == 0 {
				return fmt.Errorf("partition handoff in progress: %w", model.ErrNotOwner)
			}
			return nil
		}
	})
	run(t, w, func(t *testing.T, in *Ingress) {
		for i := range 20 {
			mustAccept(t, in, "t", Message{Payload: text("m%02d", i), Partition: 0})
		}
		after(1500 * time.Millisecond)
		n.set(func(n *node) { n.refuse = nil })
		after(time.Second)
		if got := n.stored("t", 0); len(got) != 20 || !slices.IsSorted(got) {
			t.Fatalf("partition 0 has %q, want m00 to m19 in order", got)
		}
		if in.Backlog() != 0 {
			t.Fatalf("backlog %d", in.Backlog())
		}
	})
}

// TestHungCommitIsNeverResent: while a commit hangs its records are sent nowhere
// else, and later ones wait in the WAL until it lands.
func TestHungCommitIsNeverResent(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 1)
	n := w.node(self)
	release := make(chan struct{})
	var once sync.Once
	run(t, w, func(t *testing.T, in *Ingress) {
		release = make(chan struct{})
		n.set(func(n *node) { n.block = func(context.Context, string, int) { <-release } })
		mustAccept(t, in, "t", Message{Payload: text("a"), Partition: 0})
		after(1500 * time.Millisecond)
		for i := range 100 {
			mustAccept(t, in, "t", Message{Payload: text("b%02d", i), Partition: 0})
		}
		after(10 * time.Second)
		if in.Backlog() != 101 || len(w.all()) != 0 {
			t.Fatalf("backlog %d, stored %d while the commit hangs", in.Backlog(), len(w.all()))
		}
		n.set(func(n *node) { n.block = nil })
		once.Do(func() { close(release) })
		after(100 * time.Millisecond)
		if got := n.stored("t", 0); len(got) != 101 || !slices.IsSorted(got) {
			t.Fatalf("stored %d records in order %v, want 101", len(got), slices.IsSorted(got))
		}
	})
}

// TestUnresolvedDoesNotFillTheWindow: far more records than the window wait for
// topics without owners, and another topic is not held up.
func TestUnresolvedDoesNotFillTheWindow(t *testing.T) {
	w := newWorld()
	w.create("lost", idA, 3)
	w.create("good", idB, 3)
	for p := range 3 {
		w.setUnowned("lost", p, true)
	}
	run(t, w, func(t *testing.T, in *Ingress) {
		total := 0
		for range 40 {
			batch := make([]Message, 1000)
			for i := range batch {
				batch[i] = Message{Payload: text("l%d", total), Partition: AnyPartition}
				total++
			}
			if err := in.AcceptMany(t.Context(), "lost", batch); err != nil {
				t.Fatal(err)
			}
		}
		mustAccept(t, in, "good", Message{Payload: text("g"), Partition: 0})
		after(100 * time.Millisecond)
		if w.all()["g"] != 1 {
			t.Fatal("a topic with an owner waits behind one without")
		}
		for p := range 3 {
			w.setUnowned("lost", p, false)
		}
		after(5 * time.Second)
		if got := len(w.all()); got != total+1 || in.Backlog() != 0 {
			t.Fatalf("stored %d of %d, backlog %d", got, total+1, in.Backlog())
		}
	})
}

// TestLaggingDispatcherReadsTheFile: more than the handover holds is accepted
// while every commit hangs, then everything arrives once and in order.
func TestLaggingDispatcherReadsTheFile(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3)
	n := w.node(self)
	run(t, w, func(t *testing.T, in *Ingress) {
		release := make(chan struct{})
		n.set(func(n *node) { n.block = func(context.Context, string, int) { <-release } })
		const batches, size = 80, 1000
		for b := range batches {
			batch := make([]Message, size)
			for i := range batch {
				batch[i] = Message{Payload: text("%06d", b*size+i), Partition: i % 3}
			}
			if err := in.AcceptMany(t.Context(), "t", batch); err != nil {
				t.Fatal(err)
			}
		}
		n.set(func(n *node) { n.block = nil })
		close(release)
		after(10 * time.Second)
		total := 0
		for p := range 3 {
			got := n.stored("t", p)
			if !slices.IsSorted(got) {
				t.Fatalf("partition %d is out of order", p)
			}
			total += len(got)
		}
		if total != batches*size || in.Backlog() != 0 {
			t.Fatalf("stored %d of %d, backlog %d", total, batches*size, in.Backlog())
		}
	})
}

// TestIdleHasNoTimer: with nothing held or left in the WAL the dispatcher sleeps
// on its channels alone.
func TestIdleHasNoTimer(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3)
	run(t, w, func(t *testing.T, in *Ingress) {
		mustAccept(t, in, "t", Message{Payload: text("m"), Partition: 0})
		after(time.Minute)
		in.StopDispatch()
		if at := in.disp.sched.wakeAt(); !at.IsZero() {
			t.Fatalf("idle, and yet due at %v", at)
		}
	})
}

// TestStopDispatchLeavesTheRest: nothing leaves after StopDispatch, accepting
// goes on, and a restart dispatches what was left.
func TestStopDispatchLeavesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.create("t", idA, 3)
		sim := disk.NewSim(1)
		in := mustOpen(t, w.options(sim, clock.Real()))
		in.StopDispatch()
		mustAccept(t, in, "t", Message{Payload: text("late"), Partition: 0})
		after(time.Second)
		if len(w.all()) != 0 || in.Backlog() != 1 {
			t.Fatalf("stored %v, backlog %d after StopDispatch", w.all(), in.Backlog())
		}
		mustClose(t, in)
		mustClose(t, in)
		in = mustOpen(t, w.options(sim, clock.Real()))
		after(time.Second)
		if w.all()["late"] != 1 {
			t.Fatal("a restart did not dispatch what was left")
		}
		mustClose(t, in)
	})
}

// A commit that ignores its context holds neither StopDispatch nor Close up for
// ever, and its record stays in the WAL.
func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.create("t", idA, 3)
		release := make(chan struct{})
		w.node(self).set(func(n *node) { n.block = func(context.Context, string, int) { <-release } })
		in := mustOpen(t, w.options(disk.NewSim(1), clock.Real()))
		mustAccept(t, in, "t", Message{Payload: text("m"), Partition: 0})
		synctest.Wait()
		start := time.Now()
		in.StopDispatch()
		if took := time.Since(start); took > stopGrace+stopAbandonAfter {
			t.Fatalf("StopDispatch took %v", took)
		}
		mustClose(t, in)
		if in.Backlog() != 1 {
			t.Fatalf("backlog %d, want the record of the abandoned commit", in.Backlog())
		}
		close(release)
		synctest.Wait()
	})
}
