package client

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// slots bound how many messages a consumer holds. A poller takes slots before it asks
// for messages; they are given back when a message is settled.
type slots struct {
	total   int
	waiting atomic.Int64 // messages no worker has begun

	mu   sync.Mutex // guards free
	cond sync.Cond  // free grew, or waiting reached zero
	free int
}

func newSlots(n int) *slots {
	s := &slots{total: n, free: n}
	s.cond.L = &s.mu
	return s
}

// take waits until a receive is worth its request: until a quarter of the slots are
// free, or some are and no message is waiting for the workers. It takes at most max;
// 0 means ctx ended.
func (s *slots) take(ctx context.Context, max int) int {
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cond.Broadcast()
	})()
	s.mu.Lock()
	defer s.mu.Unlock()
	worth := min(max, s.total/4)
	for ctx.Err() == nil && (s.free < 1 || s.free < worth && s.waiting.Load() > 0) {
		s.cond.Wait()
	}
	if ctx.Err() != nil {
		return 0
	}
	n := min(max, s.free)
	s.free -= n
	if s.free > 0 {
		s.cond.Signal() // enough for another poller, perhaps
	}
	return n
}

// give returns slots.
func (s *slots) give(n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	s.free += n
	s.mu.Unlock()
	s.cond.Signal()
}

// taken notes that a worker began a message.
func (s *slots) taken() {
	if s.waiting.Add(-1) > 0 {
		return
	}
	s.mu.Lock() // a poller that just looked is in Wait by now
	defer s.mu.Unlock()
	s.cond.Signal()
}

// panicked is what a handler's panic becomes.
func panicked(p any) error { return fmt.Errorf("handler panicked: %v\n%s", p, debug.Stack()) }
