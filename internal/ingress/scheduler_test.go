package ingress

import (
	"log/slog"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

// desk is a scheduler without a dispatcher: the test feeds records and lands
// commits by hand, at times of its choosing.
type desk struct {
	t   *testing.T
	w   *world
	s   *scheduler
	now time.Time
}

func newDesk(t *testing.T, w *world) *desk {
	return &desk{t: t, w: w, s: newScheduler(w, w, self, 1, newMetrics(), slog.New(slog.DiscardHandler)), now: epoch}
}

func (d *desk) fresh(topic string, partition int32, payload []byte) {
	r := &record{topic: topic, partition: partition}
	r.Payload = payload
	d.s.place(item{d.s.track.frontier, r}, false, d.now)
}

// launchAll starts everything that is due.
func (d *desk) launchAll() (fs []*flight) {
	for f := d.s.launch(d.now); f != nil; f = d.s.launch(d.now) {
		f.cancel = func() {}
		fs = append(fs, f)
	}
	return fs
}

func (d *desk) land(f *flight, err error) {
	d.s.landed(&result{flight: f, err: err, ended: d.now}, d.now)
}

// pass runs a scan; every record reads as the given payload.
func (d *desk) pass(topic string, partition int32) (read int) {
	for {
		seq, ok := d.s.nextScan(d.now)
		if !ok {
			return read
		}
		read++
		r := &record{topic: topic, partition: partition}
		d.s.place(item{seq, r}, true, d.now)
	}
}

func TestOneCommitPerDestinationAndSixteenInAll(t *testing.T) {
	w := newWorld()
	w.create("t", "", 40)
	d := newDesk(t, w)
	for p := range int32(40) {
		d.fresh("t", p, nil)
		d.fresh("t", p, nil)
	}
	fs := d.launchAll()
	if len(fs) != slotsMax {
		t.Fatalf("%d commits in flight, want %d", len(fs), slotsMax)
	}
	seen := map[*destination]bool{}
	for _, f := range fs {
		if seen[f.dest] || len(f.recs) != 2 {
			t.Fatalf("%d records to %v, seen before: %v", len(f.recs), f.dest.partition, seen[f.dest])
		}
		seen[f.dest] = true
	}
	d.fresh("t", fs[0].dest.partition, nil)
	d.now = d.now.Add(hungAfter + 1)
	d.s.tick(d.now)
	if d.s.load.slots != 0 {
		t.Fatalf("hung commits hold %d slots", d.s.load.slots)
	}
	for _, f := range d.launchAll() {
		if seen[f.dest] {
			t.Fatal("a second commit left for a destination with one in flight")
		}
	}
}

// A record waits in the WAL behind an earlier one of its partition.
func TestFreshRecordsWaitBehindSkippedOnes(t *testing.T) {
	w := newWorld()
	w.create("t", "", 1)
	d := newDesk(t, w)
	d.fresh("t", 0, nil)
	f := d.launchAll()[0]
	d.now = d.now.Add(hungAfter + 1)
	d.s.tick(d.now)
	d.fresh("t", 0, nil)
	d.land(f, nil)
	d.fresh("t", 0, nil)
	if d.s.track.skipped != 2 || d.s.track.held != 0 {
		t.Fatalf("%d left in the WAL, %d held, want the later one left behind the earlier", d.s.track.skipped, d.s.track.held)
	}
	if n := d.pass("t", 0); n != 2 || d.s.track.held != 2 || len(d.s.parked) != 0 {
		t.Fatalf("the pass read %d, %d held, want both", n, d.s.track.held)
	}
}

func TestQueueCap(t *testing.T) {
	w := newWorld()
	w.create("t", "", 3)
	w.create("u", "", 3)
	d := newDesk(t, w)
	d.fresh("t", 0, nil)
	f := d.launchAll()[0]
	for range queueMin + 10 {
		d.fresh("t", 0, nil)
	}
	if d.s.track.held != queueMin+1 || d.s.track.skipped != 10 {
		t.Fatalf("%d held, %d left, want %d and 10", d.s.track.held, d.s.track.skipped, queueMin+1)
	}
	d.fresh("u", 0, nil)
	if d.s.track.held != queueMin+2 {
		t.Fatal("a full queue keeps another topic's record out")
	}
	d.land(f, nil)
	if got := d.pass("t", 0); got > 1 {
		t.Fatalf("a pass read %d records for a full queue", got)
	}
	d.now = d.now.Add(time.Second)
	d.launchAll()
	if got := d.pass("t", 0); got != 10 || d.s.track.skipped != 0 {
		t.Fatalf("the pass after the queue left read %d of 10", got)
	}
}

// Past 256 MiB a destination holds one record and no more.
func TestHeldBytesCap(t *testing.T) {
	w := newWorld()
	w.create("t", "", 3)
	d := newDesk(t, w)
	d.fresh("t", 0, nil)
	d.launchAll()
	big := make([]byte, 1<<20)
	for range 400 {
		d.fresh("t", 0, big)
	}
	if d.s.load.bytes < heldBytesMax || d.s.load.bytes > heldBytesMax+2<<20 {
		t.Fatalf("%d bytes held, the cap is %d", d.s.load.bytes, heldBytesMax)
	}
	d.fresh("t", 1, big)
	d.fresh("t", 1, big)
	if got := len(d.s.lane(d.s.topic("t"), 1).queue); got != 1 {
		t.Fatalf("another destination holds %d records past the cap, want 1", got)
	}
}

func TestRemoteCommitIsCut(t *testing.T) {
	w := newWorld()
	w.create("t", "", 1)
	w.node("n1")
	w.own("t", 0, "n1")
	d := newDesk(t, w)
	big := make([]byte, 1<<20)
	for range 20 {
		d.fresh("t", 0, big)
	}
	var sizes []int
	for range 3 {
		fs := d.launchAll()
		if len(fs) != 1 {
			t.Fatalf("%d commits", len(fs))
		}
		n := 0
		for _, it := range fs[0].items {
			n += peer.CommitSize(&it.rec.Record)
		}
		if n > peer.CommitBytesMax {
			t.Fatalf("remote commit of %d bytes, at most %d", n, peer.CommitBytesMax)
		}
		sizes = append(sizes, len(fs[0].recs))
		d.land(fs[0], nil)
		d.now = d.now.Add(time.Second)
	}
	if d.s.track.base != 21 {
		t.Fatalf("three commits of %v records, checkpoint %d", sizes, d.s.track.base)
	}
	d.fresh("t", 0, make([]byte, peer.CommitBytesMax+1))
	if fs := d.launchAll(); len(fs) != 1 {
		t.Fatal("a record larger than a remote commit never leaves")
	}
}

// The reader stops at the lookahead, and goes on when the checkpoint moves.
func TestLookaheadBound(t *testing.T) {
	w := newWorld()
	w.create("t", "", 1)
	w.setUnowned("t", 0, true)
	d := newDesk(t, w)
	d.fresh("t", 0, nil)
	d.launchAll()
	for seq := d.s.track.frontier; d.s.mayRead(); seq++ {
		d.s.track.setDone(seq) // whatever else is accepted goes through
	}
	if d.s.track.span() != lookaheadRecords {
		t.Fatalf("stopped %d past the checkpoint, want %d", d.s.track.span(), lookaheadRecords)
	}
	w.setUnowned("t", 0, false)
	d.now = d.now.Add(time.Second)
	for range 3 {
		for _, f := range d.launchAll() {
			d.land(f, nil)
		}
		d.now = d.now.Add(time.Second)
	}
	if !d.s.mayRead() {
		t.Fatalf("still stopped, %d past the checkpoint", d.s.track.span())
	}
}

// Budgets: a commit is cancelled after 30 s, a probe after 5 s, once each.
func TestBudgets(t *testing.T) {
	w := newWorld()
	w.create("t", "", 1)
	d := newDesk(t, w)
	d.fresh("t", 0, nil)
	for _, budget := range []time.Duration{commitBudget, probeBudget, probeBudget} {
		fs := d.launchAll()
		if len(fs) != 1 {
			t.Fatalf("%d commits in flight, want 1", len(fs))
		}
		cancelled := 0
		fs[0].cancel = func() { cancelled++ }
		start := d.now
		for !d.s.wakeAt().IsZero() && d.now.Sub(start) <= time.Minute {
			if at := d.s.wakeAt(); at.After(d.now) {
				d.now = at
			}
			d.s.tick(d.now)
			if cancelled > 0 {
				break
			}
		}
		if took := d.now.Sub(start); took != budget || cancelled != 1 {
			t.Fatalf("cancelled %d times after %v, want once after %v", cancelled, took, budget)
		}
		d.s.tick(d.now.Add(time.Hour))
		if cancelled != 1 {
			t.Fatal("cancelled twice")
		}
		d.land(fs[0], model.ErrUnavailable)
		d.now = d.now.Add(failureBackoff)
	}
}
