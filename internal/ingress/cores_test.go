package ingress

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/wal"
)

// Vectors of spec/storage-and-produce section 15.3.
func TestKeyPartitionVectors(t *testing.T) {
	for _, c := range []struct {
		key       string
		of3, of12 int
	}{{"a", 1, 4}, {"k1", 0, 9}, {"customer-7", 0, 9}} {
		if got := model.KeyPartition([]byte(c.key), 3); got != c.of3 {
			t.Errorf("%q of 3: %d, want %d", c.key, got, c.of3)
		}
		if got := model.KeyPartition([]byte(c.key), 12); got != c.of12 {
			t.Errorf("%q of 12: %d, want %d", c.key, got, c.of12)
		}
	}
}

func TestRotationVisitsEachInTurn(t *testing.T) {
	r := newRotations(rotationsMax)
	first := r.next("t", 5)
	for i := 1; i < 20; i++ {
		if got := r.next("t", 5); got != (first+i)%5 {
			t.Fatalf("turn %d: partition %d, want %d", i, got, (first+i)%5)
		}
	}
	for range 20 {
		if got := r.next("t", 3); got > 2 {
			t.Fatalf("partition %d of 3", got)
		}
	}
}

func TestRotationsForgetTheIdle(t *testing.T) {
	r := newRotations(rotationsMax)
	hot := r.next("hot", 1<<20)
	for i := range 3 * rotationsMax {
		r.next(fmt.Sprint("idle", i), 3)
		if got := r.next("hot", 1<<20); got != (hot+1)%(1<<20) {
			t.Fatalf("the hot topic's place was forgotten after %d others", i)
		}
		hot = (hot + 1) % (1 << 20)
	}
	if n := len(r.topics.entries); n != rotationsMax {
		t.Fatalf("%d rotations kept, want %d", n, rotationsMax)
	}
	if n := testing.AllocsPerRun(100, func() { r.next("hot", 3) }); n != 0 {
		t.Fatalf("%v allocations for a known topic", n)
	}
}

// P4: the tracker against a naive model; the checkpoint is the first seq not
// done, whatever the order of completions.
func TestP4TrackerAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Uint64Range(1, 1<<40).Draw(t, "first")
		tr := newTracker(first)
		model := map[uint64]uint32{}
		frontier := first
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			seq := frontier
			if frontier > tr.base && rapid.IntRange(0, 2).Draw(t, "old") > 0 {
				seq = tr.base + rapid.Uint64Range(0, frontier-tr.base-1).Draw(t, "seq")
			}
			if model[seq] == slotDone+1<<31 {
				continue // done is final
			}
			switch rapid.IntRange(0, 2).Draw(t, "op") {
			case 0:
				tr.setHeld(seq)
				model[seq] = slotHeld
			case 1:
				lane := rapid.Uint32Range(0, 5).Draw(t, "lane")
				tr.setSkipped(seq, lane)
				model[seq] = laneBase + lane
			default:
				tr.setDone(seq)
				model[seq] = slotDone + 1<<31
			}
			if seq == frontier {
				frontier++
			}
			checkTracker(t, tr, model, first, frontier)
		}
	})
}

func checkTracker(t *rapid.T, tr *tracker, model map[uint64]uint32, first, frontier uint64) {
	want := first
	for want < frontier && model[want] == slotDone+1<<31 {
		want++
	}
	held, skipped := 0, 0
	for seq := want; seq < frontier; seq++ {
		switch v := model[seq]; {
		case v == slotHeld:
			held++
		case v >= laneBase && v < 1<<31:
			skipped++
		}
	}
	if tr.base != want || tr.frontier != frontier || tr.held != held || tr.skipped != skipped {
		t.Fatalf("base %d frontier %d held %d skipped %d, want %d %d %d %d",
			tr.base, tr.frontier, tr.held, tr.skipped, want, frontier, held, skipped)
	}
	even := func(lane uint32) bool { return lane%2 == 0 }
	got, ok := tr.nextSkipped(first, frontier, even)
	for seq := want; seq < frontier; seq++ {
		if v := model[seq]; v >= laneBase && v < 1<<31 && even(v-laneBase) {
			if !ok || got != seq {
				t.Fatalf("next skipped %d %v, want %d", got, ok, seq)
			}
			return
		}
	}
	if ok {
		t.Fatalf("next skipped %d, want none", got)
	}
}

func TestTrackerGrowsShrinksAndThenAllocatesNothing(t *testing.T) {
	tr := newTracker(1)
	const n = 300_000
	for seq := uint64(1); seq <= n; seq++ {
		tr.setHeld(seq)
	}
	for _, i := range rand.Perm(n) {
		tr.setDone(uint64(i) + 1)
	}
	if tr.base != n+1 || len(tr.ring) != trackerSlotsMin {
		t.Fatalf("base %d, ring of %d after all is done, want %d and %d", tr.base, len(tr.ring), n+1, trackerSlotsMin)
	}
	seq := tr.frontier
	if a := testing.AllocsPerRun(10_000, func() { tr.setHeld(seq); tr.setDone(seq); seq++ }); a != 0 {
		t.Fatalf("%v allocations a record", a)
	}
}

func TestWindowMaths(t *testing.T) {
	for _, c := range []struct{ destinations, w, q, held int }{
		{0, 4096, 4096, 16384}, {3, 4096, 4096, 16384}, {64, 4096, 4096, 16384}, {65, 4160, 4096, 16384},
		{300, 19200, 4800, 19200}, {1024, 65536, 16384, 65536}, {100000, 65536, 16384, 65536},
	} {
		if w, q, h := window(c.destinations), queueCap(c.destinations), heldMax(c.destinations); w != c.w || q != c.q || h != c.held {
			t.Errorf("%d destinations: W %d Q %d held %d, want %d %d %d", c.destinations, w, q, h, c.w, c.q, c.held)
		}
	}
	if lookaheadRecords < 16*window(1<<20) {
		t.Errorf("lookahead %d below 16 x W", lookaheadRecords)
	}
}

func TestLinger(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name    string
		queued  int
		latency time.Duration
		probing bool
		want    time.Duration
	}{
		{"no latency measured", 1, 0, false, 0},
		{"twice the latency", 1, 3 * ms, false, 6 * ms},
		{"63 records linger", 63, 3 * ms, false, 6 * ms},
		{"64 do not", 64, 3 * ms, false, 0},
		{"50 ms at most", 1, 40 * ms, false, 50 * ms},
		{"a probe does not", 1, 3 * ms, true, 0},
	} {
		if got := lingerUntil(epoch, c.queued, c.latency, c.probing).Sub(epoch); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestOwnerLatencyAndRest(t *testing.T) {
	o := owner{local: true}
	o.measured(8*time.Millisecond, epoch)
	if o.latency != 8*time.Millisecond || o.restUntil != epoch.Add(restMax) {
		t.Fatalf("after the first: latency %v, rest %v", o.latency, o.restUntil.Sub(epoch))
	}
	o.measured(0, epoch)
	if want := 7 * time.Millisecond; (o.latency - want).Abs() > time.Microsecond {
		t.Fatalf("average %v, want about %v: weight 1/8", o.latency, want)
	}
	r := owner{}
	r.measured(time.Millisecond, epoch)
	if !r.restUntil.IsZero() {
		t.Fatal("a remote owner is left alone")
	}
}

func TestRerouteChoice(t *testing.T) {
	able := func(ps ...int) func(int) bool {
		return func(p int) bool {
			for _, q := range ps {
				if p == q {
					return true
				}
			}
			return false
		}
	}
	for _, c := range []struct {
		from, of int
		able     func(int) bool
		to       int
		ok       bool
	}{
		{0, 3, able(0, 1, 2), 1, true},
		{2, 3, able(0, 1, 2), 0, true},
		{1, 3, able(0), 0, true},
		{1, 4, able(3, 0), 3, true},
		{1, 3, able(1), 0, false}, // never itself
		{0, 1, able(0), 0, false},
	} {
		if to, ok := rerouteChoice(c.from, c.of, c.able); to != c.to || ok != c.ok {
			t.Errorf("from %d of %d: %d %v, want %d %v", c.from, c.of, to, ok, c.to, c.ok)
		}
	}
}

func TestAges(t *testing.T) {
	var a ages
	if got := a.at(1, 1); got != 0 {
		t.Fatalf("nothing read: %d, want 0", got)
	}
	for seq := uint64(1); seq <= 1000; seq++ {
		a.add(seq, int64(seq)*10)
	}
	for _, seq := range []uint64{1, 500, 995} {
		if got, want := a.at(seq, 1001), int64(seq)*10; got > want || want-got > ageStepMS {
			t.Fatalf("seq %d: %d, want %d or up to %d ms before", seq, got, want, ageStepMS)
		}
	}
	if got := a.at(1001, 1001); got != 0 {
		t.Fatalf("all done: %d, want 0", got)
	}
	for seq := uint64(1001); seq < 100_000; seq++ {
		a.add(seq, int64(seq)*1000)
	}
	if len(a.samples) > ageSamplesMax {
		t.Fatalf("%d samples, at most %d", len(a.samples), ageSamplesMax)
	}
}

func TestConfirmations(t *testing.T) {
	c := newConfirmations()
	k := identity{"t", idA}
	for range 2 {
		if c.verdict(k, epoch) != wait {
			t.Fatal("gone before the leader said so")
		}
	}
	if got, ok := c.next(); !ok || got != k {
		t.Fatalf("question %v %v, want %v", got, ok, k)
	}
	if _, ok := c.next(); ok {
		t.Fatal("asked twice about one identity")
	}
	c.answered(k, false, epoch)
	c.verdict(k, epoch.Add(unconfirmedFor-1))
	if _, ok := c.next(); ok {
		t.Fatal("an unconfirmed answer is not remembered for a second")
	}
	c.verdict(k, epoch.Add(unconfirmedFor))
	if _, ok := c.next(); !ok {
		t.Fatal("not asked again after a second")
	}
	c.answered(k, true, epoch)
	if c.verdict(k, epoch.Add(time.Hour)) != gone {
		t.Fatal("a confirmed id was forgotten")
	}
	name := identity{"t", ""}
	c.confirmed(name, epoch)
	if c.verdict(name, epoch) != gone || c.verdict(name, epoch.Add(unconfirmedFor)) != wait {
		t.Fatal("a name without an id is believed gone for other than a moment")
	}
}

func TestConfirmationsAreBounded(t *testing.T) {
	c := newConfirmations()
	for i := range confirmedIDsMax + 500 {
		c.verdict(identity{fmt.Sprint(i), idA}, epoch)
	}
	if len(c.pending) > confirmedIDsMax || len(c.queue) > confirmedIDsMax {
		t.Fatalf("%d pending, %d queued, at most %d", len(c.pending), len(c.queue), confirmedIDsMax)
	}
	for range 2 * confirmsMax {
		c.next()
	}
	if c.asking != confirmsMax {
		t.Fatalf("%d asked at once, at most %d", c.asking, confirmsMax)
	}
	for i := range confirmedIDsMax + 500 {
		c.confirmed(identity{fmt.Sprint(i), idB}, epoch)
	}
	if n := len(c.dead.entries); n != confirmedIDsMax {
		t.Fatalf("%d confirmed ids remembered, want %d", n, confirmedIDsMax)
	}
}

// TestHandoverAgainstModel: whatever is pushed, dropped and taken, the consumer
// sees every seq exactly once and is told what to read from the file.
func TestHandoverAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHandover()
		h.start(1)
		end, frontier, fromFile := uint64(1), uint64(1), uint64(0)
		consume := func(limit int) {
			for range limit {
				g, file := h.take(frontier)
				if len(g.entries) > 0 {
					if g.first > frontier {
						t.Fatalf("group starts at %d, frontier %d", g.first, frontier)
					}
					frontier = g.first + uint64(len(g.entries))
					continue
				}
				if file <= frontier {
					return
				}
				if file > end {
					t.Fatalf("told to read up to %d, durable end %d", file, end)
				}
				n := min(file-frontier, rapid.Uint64Range(1, 20_000).Draw(t, "read"))
				frontier += n
				fromFile += n
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "push") {
				n := rapid.IntRange(1, 20_000).Draw(t, "n")
				h.push(end, someEntries[:n])
				end += uint64(n)
			} else {
				consume(rapid.IntRange(1, 5).Draw(t, "limit"))
			}
			if h.records > handoverRecordsMax || h.records < 0 {
				t.Fatalf("%d records held", h.records)
			}
		}
		consume(1 << 20)
		if frontier != end || h.records != 0 || h.bytes != 0 {
			t.Fatalf("consumed up to %d of %d, %d records %d bytes left", frontier, end, h.records, h.bytes)
		}
		before := fromFile
		h.push(end, someEntries[:10])
		end += 10
		if consume(10); frontier != end || fromFile != before {
			t.Fatal("a caught up consumer is sent to the file")
		}
	})
}

var someEntries = func() []wal.Entry {
	es := make([]wal.Entry, 20_000)
	for i := range es {
		es[i] = &record{topic: "t"}
	}
	return es
}()

func TestHandoverBytesBound(t *testing.T) {
	h := newHandover()
	h.start(1)
	big := &record{topic: "t"}
	big.Payload = make([]byte, 1<<20)
	for seq := uint64(1); seq <= 100; seq++ {
		h.push(seq, []wal.Entry{big})
	}
	if h.bytes > handoverBytesMax || h.records == 0 || h.records >= 100 {
		t.Fatalf("%d records, %d bytes held", h.records, h.bytes)
	}
	h.close()
	h.push(101, []wal.Entry{big})
	if h.records != 0 || h.bytes != 0 {
		t.Fatal("a closed handover holds records")
	}
}
