package ingress

import "fmt"

// State of a seq between the checkpoint and the frontier, one uint32 each:
// done, held, or skipped on a lane (laneBase + lane).
const (
	slotDone uint32 = iota
	slotHeld
	laneBase
)

// trackerSlotsMin is the smallest ring, in seqs.
const trackerSlotsMin = 4096

// tracker knows the state of every seq between the checkpoint, the first seq
// not done, and the frontier, the first seq not read. It is a ring of four
// bytes a seq that doubles while commits complete far out of order and shrinks
// once they are done; steady state allocates nothing.
//
// Invariant: base <= frontier, frontier-base <= len(ring), and either base ==
// frontier or the slot of base is not slotDone.
type tracker struct {
	base, frontier uint64
	ring           []uint32 // length is a power of two; seq lives at seq & (len-1)
	held           int      // seqs in state held
	skipped        int      // seqs in state skipped
}

func newTracker(first uint64) *tracker {
	return &tracker{base: first, frontier: first, ring: make([]uint32, trackerSlotsMin)}
}

// span is how many seqs lie between the checkpoint and the frontier.
func (t *tracker) span() uint64 { return t.frontier - t.base }

func (t *tracker) slot(seq uint64) *uint32 { return &t.ring[seq&uint64(len(t.ring)-1)] }

// state returns the slot of a seq inside [base, frontier).
func (t *tracker) state(seq uint64) uint32 { return *t.slot(seq) }

// set moves seq to a new state. seq is inside [base, frontier], where being at
// the frontier means it is read now; anything else is a programmer's error.
func (t *tracker) set(seq uint64, to uint32) {
	if seq < t.base || seq > t.frontier {
		panic(fmt.Sprintf("ingress tracker: seq %d outside [%d,%d]", seq, t.base, t.frontier))
	}
	if seq == t.frontier {
		if t.span() == uint64(len(t.ring)) {
			t.resize(2 * len(t.ring))
		}
		t.frontier++
	} else {
		t.count(*t.slot(seq), -1)
	}
	*t.slot(seq) = to
	t.count(to, 1)
	if to == slotDone && seq == t.base {
		t.advance()
	}
}

func (t *tracker) count(state uint32, by int) {
	switch {
	case state == slotHeld:
		t.held += by
	case state >= laneBase:
		t.skipped += by
	}
}

func (t *tracker) setHeld(seq uint64)              { t.set(seq, slotHeld) }
func (t *tracker) setSkipped(seq uint64, l uint32) { t.set(seq, laneBase+l) }
func (t *tracker) setDone(seq uint64)              { t.set(seq, slotDone) }

// advance moves the checkpoint over everything done.
func (t *tracker) advance() {
	mask := uint64(len(t.ring) - 1)
	for t.base < t.frontier && t.ring[t.base&mask] == slotDone {
		t.base++
	}
	n := len(t.ring)
	for n > trackerSlotsMin && t.span() <= uint64(n/8) {
		n /= 4
	}
	if n < len(t.ring) {
		t.resize(n)
	}
}

func (t *tracker) resize(n int) {
	n = max(n, trackerSlotsMin)
	ring := make([]uint32, n)
	for s := t.base; s < t.frontier; s++ {
		ring[s&uint64(n-1)] = *t.slot(s)
	}
	t.ring = ring
}

// nextSkipped returns the first skipped seq in [from, end) whose lane is wanted.
func (t *tracker) nextSkipped(from, end uint64, wanted func(lane uint32) bool) (uint64, bool) {
	mask := uint64(len(t.ring) - 1)
	for s := max(from, t.base); s < min(end, t.frontier); s++ {
		if v := t.ring[s&mask]; v >= laneBase && wanted(v-laneBase) {
			return s, true
		}
	}
	return 0, false
}
