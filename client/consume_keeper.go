package client

import (
	"context"
	"errors"
	"sync"
	"time"
)

// keepEvery is the least time between two rounds of extending leases.
const keepEvery = 10 * time.Millisecond

// lease is a message a consumer holds.
type lease struct {
	d Delivery

	// Guarded by the keeper's mutex.
	taken  time.Time // when the lease began, or was last extended, at the latest
	lost   bool
	cancel context.CancelCauseFunc // of the running handler; nil = none runs

	unsure bool // an attempt to settle it may have been applied; its settler's only
}

// keeper extends the leases of messages that wait or are worked on before a third of
// the visibility timeout is over, all that are due in one request, and ends the
// handlers of those that were lost.
type keeper struct {
	k     *consumer
	every time.Duration

	mu     sync.Mutex // guards below and the fields of leases
	leases map[*lease]struct{}
}

func newKeeper(k *consumer) *keeper {
	return &keeper{k: k, every: max(k.visibility/6, keepEvery), leases: map[*lease]struct{}{}}
}

// add keeps leases that were taken at now.
func (q *keeper) add(ds []Delivery, now time.Time) []*lease {
	ls := make([]*lease, len(ds))
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range ds {
		ls[i] = &lease{d: ds[i], taken: now}
		q.leases[ls[i]] = struct{}{}
	}
	return ls
}

// alive reports whether l may still hold, by this side's clock.
func (q *keeper) alive(l *lease) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Since(l.taken) < q.k.visibility
}

// begin returns the context of l's handler; false means the lease was lost already.
func (q *keeper) begin(base context.Context, l *lease) (context.Context, bool) {
	ctx, cancel := context.WithCancelCause(base)
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.lost {
		cancel(ErrLeaseLost)
		return nil, false
	}
	l.cancel = cancel
	return ctx, true
}

// drop stops keeping l: it is about to be settled.
func (q *keeper) drop(l *lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.leases, l)
	if l.cancel != nil {
		l.cancel(nil)
	}
}

// lose ends what goes on under a lease that is gone.
func (q *keeper) lose(l *lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, kept := q.leases[l]; !kept {
		return
	}
	delete(q.leases, l)
	l.lost = true
	if l.cancel != nil {
		l.cancel(ErrLeaseLost)
	}
	q.k.c.log.Warn("lease lost", "topic", q.k.topic, "partition", l.d.Partition, "offset", l.d.Offset)
}

// cancelAll ends the contexts of all running handlers.
func (q *keeper) cancelAll(cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l := range q.leases {
		if l.cancel != nil {
			l.cancel(cause)
		}
	}
}

// run keeps leases until ctx ends.
func (q *keeper) run(ctx context.Context) {
	tick := time.NewTicker(q.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due := q.due(time.Now()); len(due) > 0; {
			n := min(len(due), ReceiveMax)
			q.extend(ctx, due[:n])
			due = due[n:]
		}
	}
}

// due are the leases that would be older than a third of the visibility timeout at
// the next round. Those that ran out are lost.
func (q *keeper) due(now time.Time) []*lease {
	var out, over []*lease
	q.mu.Lock()
	for l := range q.leases {
		switch age := now.Sub(l.taken); {
		case age >= q.k.visibility:
			over = append(over, l)
		case age+q.every > q.k.visibility/3:
			out = append(out, l)
		}
	}
	q.mu.Unlock()
	for _, l := range over {
		q.lose(l)
	}
	return out
}

// extend extends leases in one request. What fails for now is tried in the next round.
func (q *keeper) extend(ctx context.Context, ls []*lease) {
	ctx, cancel := context.WithTimeout(ctx, max(q.k.visibility/3, keepEvery))
	defer cancel()
	now := time.Now()
	errs, err := q.k.c.ExtendBatch(ctx, q.k.topic, handlesOf(ls))
	if err != nil {
		q.k.c.log.Warn("cannot extend leases; trying again", "topic", q.k.topic, "leases", len(ls), "err", err)
		return
	}
	for i, l := range ls {
		switch {
		case errs[i] == nil:
			q.mu.Lock()
			l.taken = now
			q.mu.Unlock()
		case errors.Is(errs[i], ErrLeaseLost):
			q.lose(l)
		}
	}
}

func handlesOf(ls []*lease) []string {
	out := make([]string, len(ls))
	for i, l := range ls {
		out[i] = l.d.Handle
	}
	return out
}
