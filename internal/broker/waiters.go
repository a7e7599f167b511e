package broker

import (
	"sync"
	"sync/atomic"

	"github.com/narad-mq/narad/internal/lease"
	"github.com/narad-mq/narad/internal/partition"
)

// anyPartition is the partition of a consume that is not pinned.
const anyPartition = -1

// waiter is one parked consumer. While it is in a queue its fields belong to that
// queue's lock; after its wake was received they belong to the consumer again.
type waiter struct {
	pin        int // partition, or anyPartition
	max        int // messages it can use
	prev, next *waiter
	list       *fifo // nil once it left or was served

	part   *partition.Partition // set when it was handed reservations
	leases []lease.Lease
	end    error // why it was sent away without: nil = shutdown
	wake   chan struct{}
}

func newWaiterPool() *sync.Pool {
	return &sync.Pool{New: func() any { return &waiter{wake: make(chan struct{}, 1)} }}
}

// newWaiter takes a waiter from the pool; it goes back once it is in no queue and its
// wake was received.
func (b *Broker) newWaiter(pin, limit int) *waiter {
	w := b.waiters.Get().(*waiter)
	w.pin, w.max, w.part, w.leases, w.end = pin, limit, nil, w.leases[:0], nil
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
	closed bool
	end    error // what a waiter gets after close; nil = nothing
}

// join queues w; false with the reason when the queue was closed.
func (q *waiters) join(w *waiter) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false, q.end
	}
	q.fifo(w.pin).push(w)
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
	q.parked.Add(-1)
}

// close sends every waiter away with end, and all who come later.
func (q *waiters) close(end error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.closed, q.end = true, end
	q.dismiss(&q.shared)
	for _, f := range q.pinned {
		q.dismiss(f)
	}
}

func (q *waiters) dismiss(f *fifo) {
	for w := f.head; w != nil; w = f.head {
		q.takeOut(w)
		w.end = q.end
		w.wake <- struct{}{}
	}
}

// serve hands reservations to waiters, pinned ones first, until the partitions are dry
// or nobody waits. reserve fills a waiter's part and leases and reports whether it got
// any; it runs under the lock, so that a waiter cannot leave between being picked and
// being handed its reservations.
func (q *waiters) serve(reserve func(w *waiter) bool) {
	q.mu.Lock()
	pins := make([]int, 0, len(q.pinned))
	for p := range q.pinned {
		pins = append(pins, p)
	}
	q.mu.Unlock()
	for _, p := range pins {
		for q.serveOne(p, reserve) {
		}
	}
	for q.serveOne(anyPartition, reserve) {
	}
}

// serveOne serves the oldest waiter of one FIFO; the lock is let go between waiters so
// that arrivals are not held up by a long backlog.
func (q *waiters) serveOne(pin int, reserve func(w *waiter) bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	f := &q.shared
	if pin != anyPartition {
		if f = q.pinned[pin]; f == nil {
			return false
		}
	}
	w := f.head
	if w == nil || !reserve(w) {
		return false
	}
	q.takeOut(w)
	w.wake <- struct{}{}
	return true
}
