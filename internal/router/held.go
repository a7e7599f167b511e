package router

import (
	"context"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/metastore"
)

// routePoll is how often the placement is looked at while a consume waits for an owner
// (spec/consume-and-delivery section 6.1).
const routePoll = 50 * time.Millisecond

// held wakes the consumes that wait for an owner when placement or members have changed.
// However many wait, one goroutine looks, and only while any does.
type held struct {
	replica Directory
	clock   clock.Clock
	crew    *crew

	mu      sync.Mutex // guards all below
	n       int        // consumes that wait
	looking bool
	moved   chan struct{} // closed at the next change
}

func newHeld(r *Router) *held {
	return &held{replica: r.Directory, clock: r.Clock, crew: &r.crew, moved: make(chan struct{})}
}

// join counts a consume in; leave counts it out.
func (h *held) join() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n++
	if !h.looking {
		seen := h.versions()
		h.looking = h.crew.do(func(ctx context.Context) { h.look(ctx, seen) })
	}
}

func (h *held) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n--
}

// changed is closed by the next change. Obtain it, then look for an owner, then wait.
func (h *held) changed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.moved
}

// look runs while anybody waits.
func (h *held) look(ctx context.Context, seen [2]uint64) {
	timer := h.clock.NewTimer(routePoll)
	defer timer.Stop()
	for {
		select {
		case <-timer.C():
		case <-ctx.Done():
			return
		}
		now := h.versions()
		h.mu.Lock()
		if now != seen {
			seen = now
			close(h.moved)
			h.moved = make(chan struct{})
		}
		if h.n == 0 {
			h.looking = false
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		timer.Reset(routePoll)
	}
}

// versions are those of all that decides who can serve a consume.
func (h *held) versions() [2]uint64 {
	return [2]uint64{h.replica.Version(metastore.DomainTopics), h.replica.Version(metastore.DomainMembers)}
}
