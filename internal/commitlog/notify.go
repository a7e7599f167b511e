package commitlog

import (
	"sync"
	"sync/atomic"
)

// notifier wakes those who wait for records (spec/storage-and-produce section
// 9.4). Announcing costs one or two atomic loads while nobody waits.
type notifier struct {
	armed atomic.Bool // a channel was handed out since the last announcement
	wake  atomic.Pointer[func()]

	mu     sync.Mutex // guards ch and closed
	ch     chan struct{}
	closed bool
}

// channel returns a channel that the next announcement closes.
func (n *notifier) channel() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
		if n.closed {
			close(n.ch)
			return n.ch
		}
	}
	n.armed.Store(!n.closed)
	return n.ch
}

// announce wakes everyone who obtained a channel and calls the wake notifier.
func (n *notifier) announce() {
	if n.armed.Load() {
		n.mu.Lock()
		if n.armed.Swap(false) {
			close(n.ch)
			n.ch = nil
		}
		n.mu.Unlock()
	}
	if f := n.wake.Load(); f != nil {
		(*f)()
	}
}

// close announces for the last time; from now on every channel is closed already.
func (n *notifier) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.announce()
}
