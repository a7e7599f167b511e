package noderpc

import "time"

const (
	cancelGrace = 2 * time.Second // in which a cancel may have crossed the reply
	graceMax    = inFlightMax     // answers of a stream kept for it; the oldest go first
)

// graceQueue holds what takes back the answers of the last moments, by request id. Adding
// and taking cost O(1): what is overdue leaves from the front. Its owner guards it.
type graceQueue struct {
	undo  map[uint64]func()
	order []graced // oldest first; those before head have left
	head  int
}

type graced struct {
	id  uint64
	due time.Time
}

func newGraceQueue() graceQueue { return graceQueue{undo: map[uint64]func(){}} }

func (q *graceQueue) add(id uint64, undo func(), now time.Time) {
	q.expire(now)
	if len(q.order)-q.head >= graceMax {
		q.pop()
	}
	q.undo[id] = undo
	q.order = append(q.order, graced{id, now.Add(cancelGrace)})
}

// take returns what takes back the answer to id, once; nil when there is none or it is
// too late.
func (q *graceQueue) take(id uint64, now time.Time) func() {
	q.expire(now)
	undo := q.undo[id]
	delete(q.undo, id)
	return undo
}

func (q *graceQueue) expire(now time.Time) {
	for q.head < len(q.order) && !now.Before(q.order[q.head].due) {
		q.pop()
	}
}

// pop drops the oldest, and moves the rest to the front once half of the slice is behind.
func (q *graceQueue) pop() {
	delete(q.undo, q.order[q.head].id)
	q.head++
	if q.head*2 >= len(q.order) {
		q.order = q.order[:copy(q.order, q.order[q.head:])]
		q.head = 0
	}
}
