package ingress

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
)

// twoOwners is a desk over a topic of 40 partitions at n1 and one of 4 here.
func twoOwners(t *testing.T) *desk {
	w := newWorld()
	w.create("there", "", 40)
	w.create("here", "", 4)
	w.node("n1")
	for p := range 40 {
		w.own("there", p, "n1")
	}
	return newDesk(t, w)
}

// P5: of the slots one other node gets a share, and few when a commit to it hangs; this
// node's own partitions find room at once.
func TestP5OneOwnerLeavesRoom(t *testing.T) {
	d := twoOwners(t)
	for p := range int32(40) {
		d.fresh("there", p, nil)
	}
	there := d.launchAll()
	if len(there) != ownerSlotsMax {
		t.Fatalf("%d commits to one node, want %d", len(there), ownerSlotsMax)
	}
	for p := range int32(4) {
		d.fresh("here", p, nil)
	}
	if here := d.launchAll(); len(here) != 4 {
		t.Fatalf("%d of 4 commits here left", len(here))
	}
	d.now = d.now.Add(hungAfter + 1)
	d.s.tick(d.now) // what is here hangs as well
	more := d.launchAll()
	if len(more) != stuckSlotsMax {
		t.Fatalf("%d commits to a node where some hang, want %d", len(more), stuckSlotsMax)
	}
	d.now = d.now.Add(hungAfter + 1)
	d.s.tick(d.now)
	if again := d.launchAll(); len(again) != stuckSlotsMax {
		t.Fatalf("%d more once those hang too, want %d", len(again), stuckSlotsMax)
	}
}

// What waited for its owner leaves as others land, first come first, and nothing is
// forgotten.
func TestCrowdDrains(t *testing.T) {
	d := twoOwners(t)
	for p := range int32(40) {
		d.fresh("there", p, nil)
	}
	var order []int32
	flights := d.launchAll()
	var waiting []int32
	for _, w := range d.s.crowds[0].crowd {
		waiting = append(waiting, w.partition)
	}
	for len(flights) > 0 {
		f := flights[0]
		order = append(order, f.dest.partition)
		d.land(f, nil)
		d.now = d.now.Add(time.Millisecond) // past the linger
		flights = append(flights[1:], d.launchAll()...)
		if n := d.s.load.slots; n != len(flights) || n > ownerSlotsMax {
			t.Fatalf("%d slots for %d commits", n, len(flights))
		}
	}
	if len(order) != 40 || !slices.Equal(order[ownerSlotsMax:], waiting) || d.s.track.base != 41 || len(d.s.crowds) != 0 {
		t.Fatalf("landed in the order %v, checkpoint %d, %d crowds", order, d.s.track.base, len(d.s.crowds))
	}
	d.now = d.now.Add(time.Minute)
	d.s.tick(d.now)
	if at := d.s.wakeAt(); !at.IsZero() {
		t.Errorf("nothing is left, and yet due at %v", at)
	}
}

// A node where the last commit failed gets few until one succeeds.
func TestFailingOwnerGetsFew(t *testing.T) {
	d := twoOwners(t)
	d.fresh("there", 0, nil)
	d.land(d.launchAll()[0], errors.New("connection refused"))
	for p := range int32(20) {
		d.fresh("there", p+1, nil)
	}
	fs := d.launchAll()
	if len(fs) != stuckSlotsMax {
		t.Fatalf("%d commits to a node that failed, want %d", len(fs), stuckSlotsMax)
	}
	d.land(fs[0], nil)
	d.now = d.now.Add(time.Millisecond) // past the linger
	if more := d.launchAll(); len(more) != ownerSlotsMax-stuckSlotsMax+1 {
		t.Fatalf("%d more after one succeeded, want %d", len(more), ownerSlotsMax-stuckSlotsMax+1)
	}
}

// A destination whose records went back to the WAL while it waited costs its owner no
// turn; one whose owner is another by now goes there.
func TestCrowdSkipsWhatIsNotDue(t *testing.T) {
	d := twoOwners(t)
	for p := range int32(40) {
		d.fresh("there", p, nil)
	}
	fs := d.launchAll()
	first, second := d.s.crowds[0].crowd[0], d.s.crowds[0].crowd[1]
	d.s.apply(first, returnQueue, d.now)
	d.s.where.(*world).node("n2")
	d.s.where.(*world).own("there", int(second.partition), "n2")
	d.land(fs[0], nil)
	d.now = d.now.Add(time.Millisecond) // past the linger
	next := d.launchAll()
	if len(next) < 2 || next[0].dest != second || next[0].owner.node != "n2" || next[1].owner.node != "n1" {
		t.Fatalf("%d commits left after one landed", len(next))
	}
}

// A crowd whose owner is reported dead does not wait for its turn: its records go to
// partitions of the living.
func TestCrowdOfTheDead(t *testing.T) {
	d := twoOwners(t)
	w := d.s.where.(*world)
	w.own("there", 39, self)
	for p := range int32(39) {
		for range 3 {
			d.fresh("there", p, nil)
		}
	}
	if n := len(d.launchAll()); n != ownerSlotsMax {
		t.Fatalf("%d commits", n)
	}
	d.now = d.now.Add(100 * time.Millisecond) // nothing hangs yet
	w.node("n1").set(func(n *node) { n.alive = false })
	if n := len(d.launchAll()); n != 0 {
		t.Fatalf("%d commits more to the dead", n)
	}
	left := 3*(39-ownerSlotsMax) - (39 - ownerSlotsMax) // each keeps a probe
	if d.s.track.skipped != left {
		t.Fatalf("%d records went back to the WAL, want %d", d.s.track.skipped, left)
	}
	for seq, ok := d.s.nextScan(d.now); ok; seq, ok = d.s.nextScan(d.now) {
		d.s.place(item{seq, &record{topic: "there", partition: int32(seq-1) / 3}}, true, d.now)
	}
	here := d.s.lane(d.s.topic("there"), 39)
	if len(here.queue) == 0 {
		t.Error("none of them went to the living")
	}
	crowd := len(d.s.owners["n1"].crowd)
	if crowd != 39-ownerSlotsMax {
		t.Errorf("%d wait to probe, want %d", crowd, 39-ownerSlotsMax)
	}
}

// A silent node with many partitions delays nothing that goes elsewhere, at any time.
func TestP5SilentNodeWithManyPartitions(t *testing.T) {
	const partitions = 200
	w := newWorld()
	w.create("good", idA, 3)
	w.create("bad", idB, partitions)
	bad := w.node("n1")
	for p := range partitions {
		w.own("bad", p, "n1")
	}
	bad.set(func(n *node) { n.silent = true })
	run(t, w, func(t *testing.T, in *Ingress) {
		for i := range 600 {
			for range 4 {
				mustAccept(t, in, "bad", Message{Payload: text("b"), Partition: AnyPartition})
			}
			mustAccept(t, in, "good", Message{Payload: text("g%d", i), Partition: i % 3})
			after(50 * time.Millisecond)
			if got := w.all()[fmt.Sprintf("g%d", i)]; got != 1 {
				t.Fatalf("g%d stored %d times 50 ms after its 202", i, got)
			}
		}
		bad.set(func(n *node) { n.silent = false })
		after(5 * time.Minute)
		if n := w.all()["b"]; n < 2400 || in.Backlog() != 0 {
			t.Fatalf("%d of 2400 records arrived, backlog %d", n, in.Backlog())
		}
	})
}

// BenchmarkCrowd is one commit and its landing while hundreds of destinations of the
// owner wait.
func BenchmarkCrowd(b *testing.B) {
	w := newWorld()
	w.create("there", "", 500)
	w.node("n1")
	for p := range 500 {
		w.own("there", p, "n1")
	}
	s := newScheduler(w, w, self, 1, newMetrics(), w.options(disk.NewSim(1), clock.Real()).Logger)
	now := epoch
	place := func(p int32) {
		s.place(item{s.track.frontier, &record{topic: "there", partition: p}}, false, now)
	}
	for p := range int32(500) {
		place(p)
	}
	var flights []*flight
	b.ReportAllocs()
	for b.Loop() {
		for f := s.launch(now); f != nil; f = s.launch(now) {
			flights = append(flights, f)
		}
		f := flights[0]
		flights = append(flights[:0], flights[1:]...)
		p := f.dest.partition
		s.landed(&result{flight: f, ended: now}, now)
		place(p)
		now = now.Add(time.Millisecond)
	}
}
