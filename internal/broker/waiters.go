package broker

import (
	"sync"
	"sync/atomic"

	"github.com/narad-mq/narad/internal/lease"
	"github.com/narad-mq/narad/internal/partition"
)

// anyPartition is the partition of a consume that is not pinned.
const anyPartition = -1

// waiter is one parked consumer, or the token of another node's consumers. While it is
// in a queue its fields belong to that queue's lock; after its wake was received they
// belong to the consumer again.
type waiter struct {
	pin        int  // partition, or anyPartition
	max        int  // messages it can use
	roams      bool // it can be sent to other nodes
	prev, next *waiter
	list       *fifo // nil once it left or was served

	token *token // nil = a consumer of this node; else there is no wake

	part   *partition.Partition // set when it was handed reservations
	leases []lease.Lease
	word   *word // set when it was sent to look elsewhere
	end    error // why it was sent away without: nil = shutdown
	wake   chan struct{}
}

// word sends a parked consumer to other nodes: to the owner that announced a record, or,
// when owner is "", to all of them.
type word struct{ owner string }

func newWaiterPool() *sync.Pool {
	return &sync.Pool{New: func() any { return &waiter{wake: make(chan struct{}, 1)} }}
}

// newWaiter takes a waiter from the pool; it goes back once it is in no queue and its
// wake was received.
func (b *Broker) newWaiter(pin, limit int, roams bool) *waiter {
	w := b.waiters.Get().(*waiter)
	w.pin, w.max, w.roams = pin, limit, roams
	w.part, w.leases, w.word, w.end = nil, w.leases[:0], nil, nil
	return w
}

func (b *Broker) freeWaiter(w *waiter) {
	w.part = nil
	b.waiters.Put(w)
}

// fifo is a list of waiters in order of arrival; leaving is O(1).
type fifo struct {
	head, tail *waiter
}

func (f *fifo) push(w *waiter) {
	w.list, w.prev, w.next = f, f.tail, nil
	if f.tail != nil {
		f.tail.next = w
	} else {
		f.head = w
	}
	f.tail = w
}

func (f *fifo) pushFront(w *waiter) {
	w.list, w.prev, w.next = f, nil, f.head
	if f.head != nil {
		f.head.prev = w
	} else {
		f.tail = w
	}
	f.head = w
}

func (f *fifo) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		f.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		f.tail = w.prev
	}
	w.list, w.prev, w.next = nil, nil, nil
}

// waiters are the parked consumers of one topic: one shared FIFO and one for each
// pinned partition. They are apart because the pump stops a FIFO at the first waiter it
// cannot serve, which is right only when all of a FIFO wait for the same partitions
// (spec/consume section 6.2).
type waiters struct {
	parked atomic.Int64 // how many; read without the lock by every wake

	mu     sync.Mutex // guards all below and every queued waiter
	shared fifo
	pinned map[int]*fifo
	tokens map[string]*waiter // those in shared, by node
	holds  []*hold            // oldest first
	closed bool
	end    error // what a waiter gets after close; nil = nothing
}

// join queues w, at the front when it comes back from another node with nothing; false
// with the reason when the queue was closed.
func (q *waiters) join(w *waiter, back bool) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false, q.end
	}
	if f := q.fifo(w.pin); back {
		f.pushFront(w)
	} else {
		f.push(w)
	}
	q.parked.Add(1)
	return true, nil
}

func (q *waiters) fifo(pin int) *fifo {
	if pin == anyPartition {
		return &q.shared
	}
	f := q.pinned[pin]
	if f == nil {
		f = new(fifo)
		if q.pinned == nil {
			q.pinned = make(map[int]*fifo)
		}
		q.pinned[pin] = f
	}
	return f
}

// leave takes w out; false when it was served or sent away first, and then its wake
// is there to be received.
func (q *waiters) leave(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.list == nil {
		return false
	}
	q.takeOut(w)
	return true
}

// takeOut removes a queued waiter and a pinned FIFO it leaves empty. Caller holds mu.
func (q *waiters) takeOut(w *waiter) {
	f := w.list
	f.remove(w)
	if w.pin != anyPartition && f.head == nil {
		delete(q.pinned, w.pin)
	}
	if w.token != nil {
		delete(q.tokens, w.token.node)
	}
	q.parked.Add(-1)
}

// close sends every waiter away with end, and all who come later.
func (q *waiters) close(end error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.closed, q.end, q.holds = true, end, nil
	q.dismiss(&q.shared)
	for _, f := range q.pinned {
		q.dismiss(f)
	}
}

func (q *waiters) dismiss(f *fifo) {
	for w := f.head; w != nil; w = f.head {
		q.takeOut(w)
		if w.token == nil {
			w.end = q.end
			w.wake <- struct{}{}
		}
	}
}

// send sends the oldest consumer that can roam to other nodes; false when none is parked.
func (q *waiters) send(wd *word) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := q.shared.head; w != nil; w = w.next {
		if w.roams {
			q.takeOut(w)
			w.word = wd
			w.wake <- struct{}{}
			return true
		}
	}
	return false
}

// supply is what a topic has for those who wait: the pump's view of it.
type supply interface {
	// reserve fills w's part and leases with up to limit, and reports whether it got any.
	reserve(w *waiter, limit int) bool
	// available is how many records could be reserved now.
	available() int64
	// announce has a node told of a record, and answers the hold that this makes; nil when
	// nobody can be told.
	announce(tk *token) *hold
	// expired reports whether a token has lapsed.
	expired(tk *token) bool
}

// serve hands what s has to those who wait, pinned ones first, until it is dry or nobody
// waits. It calls s under the lock, so that a waiter cannot leave between being picked
// and being handed its reservations.
func (q *waiters) serve(s supply) {
	q.mu.Lock()
	pins := make([]int, 0, len(q.pinned))
	for p := range q.pinned {
		pins = append(pins, p)
	}
	q.mu.Unlock()
	for _, p := range pins {
		for q.servePinned(s, p) {
		}
	}
	for q.serveShared(s) {
	}
}

// servePinned serves the oldest waiter of one partition; the lock is let go between
// waiters so that arrivals are not held up by a long backlog.
func (q *waiters) servePinned(s supply, pin int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	f := q.pinned[pin]
	return f != nil && q.hand(s, f.head, f.head.max)
}

// serveShared serves the oldest of the shared FIFO. What was announced to other nodes is
// left for them: a token, and a consumer behind a fired one, get what is available beyond
// the holds (spec/consume section 7).
func (q *waiters) serveShared(s supply) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.shared.head
	if w == nil {
		return false
	}
	if w.token == nil && len(q.holds) == 0 {
		return q.hand(s, w, w.max)
	}
	if w.token != nil && s.expired(w.token) {
		q.takeOut(w)
		return true
	}
	spare := s.available() - int64(len(q.holds))
	if spare <= 0 {
		return false
	}
	if w.token == nil {
		return q.hand(s, w, int(min(spare, int64(w.max))))
	}
	q.takeOut(w)
	if h := s.announce(w.token); h != nil {
		q.holds = append(q.holds, h)
	}
	return true
}

// hand gives w its reservations and wakes it. Caller holds mu.
func (q *waiters) hand(s supply, w *waiter, limit int) bool {
	if !s.reserve(w, limit) {
		return false
	}
	q.takeOut(w)
	w.wake <- struct{}{}
	return true
}
