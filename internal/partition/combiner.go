package partition

import (
	"context"
	"errors"
	"sync"

	"github.com/narad-mq/narad/internal/model"
)

// Bounds of one commit cycle; its first batch is taken whatever its size
// (spec/storage-and-produce section 18.1).
const (
	CycleRecordsMax = 65_536
	CycleBytesMax   = 64 << 20 // keys and payloads
)

var errCommitPanicked = errors.New("commit cycle panicked")

// batch is one caller's records on their way through a cycle. It belongs to the
// combiner from enqueue until its wake is received with done set.
type batch struct {
	ctx   context.Context
	recs  []model.Record
	bytes int // keys and payloads of recs
	first int64
	err   error

	taken bool          // guarded by combiner.mu: a cycle has it, it can no longer leave
	done  bool          // written by the leader before wake
	wake  chan struct{} // one slot: the outcome is there, or this caller leads now
}

// set makes b carry recs.
func (b *batch) set(ctx context.Context, recs []model.Record) *batch {
	b.ctx, b.recs, b.bytes, b.first, b.err = ctx, recs, 0, 0, nil
	b.taken, b.done = false, false
	for i := range recs {
		b.bytes += len(recs[i].Key) + len(recs[i].Payload)
	}
	return b
}

// combiner lets concurrent callers share commits. The first caller leads: it takes
// the produce lock, drains the queue and runs one cycle for all; on leaving it hands
// the lead to the oldest batch that arrived meanwhile.
type combiner struct {
	produce *sync.Mutex
	buffers *Buffers
	cycle   func(run []*batch) // under the produce lock; sets first and err of each

	mu     sync.Mutex // guards queue, leader and batch.taken
	queue  []*batch   // arrival order; the leader's own batch is at its head
	leader *batch     // nil while no cycle runs

	run []*batch // the running cycle's batches; the leader's
}

// do commits recs and returns the offset of the first. A caller whose ctx ends while
// its batch is still queued leaves with the context's error and nothing appended;
// once a cycle has the batch, its outcome is waited for.
func (c *combiner) do(ctx context.Context, recs []model.Record) (int64, error) {
	b := c.buffers.batch().set(ctx, recs)
	defer c.buffers.putBatch(b)
	c.mu.Lock()
	c.queue = append(c.queue, b)
	lead := c.leader == nil
	if lead {
		c.leader = b
	}
	c.mu.Unlock()
	if !lead {
		select {
		case <-b.wake:
		case <-ctx.Done():
			if c.leave(b) {
				return 0, ctx.Err()
			}
			<-b.wake
		}
	}
	if !b.done {
		c.lead(b)
	}
	return b.first, b.err
}

// leave takes a queued batch out; false when a cycle already has it.
func (c *combiner) leave(b *batch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.taken {
		return false
	}
	for i, q := range c.queue {
		if q == b {
			c.queue = append(c.queue[:i], c.queue[i+1:]...)
			break
		}
	}
	if c.leader == b {
		select {
		case <-b.wake: // elected in the same instant; the election moves on
		default:
		}
		c.elect()
	}
	return true
}

// lead runs one cycle whose first batch is own.
func (c *combiner) lead(own *batch) {
	finished := false
	defer func() {
		if !finished {
			for _, b := range c.run {
				b.err = errCommitPanicked
			}
		}
		c.finish(own)
	}()
	c.produce.Lock()
	defer c.produce.Unlock()
	c.take()
	c.cycle(c.run)
	finished = true
}

// take moves the queue's head, up to the cycle's bounds, into run.
func (c *combiner) take() {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, records, bytes := 0, 0, 0
	for _, b := range c.queue {
		if n > 0 && (records+len(b.recs) > CycleRecordsMax || bytes+b.bytes > CycleBytesMax) {
			break
		}
		n, records, bytes = n+1, records+len(b.recs), bytes+b.bytes
		b.taken = true
	}
	c.run = append(c.run[:0], c.queue[:n]...)
	rest := copy(c.queue, c.queue[n:])
	clear(c.queue[rest:])
	c.queue = c.queue[:rest]
}

// finish wakes the cycle's callers and hands the lead on; in that order, because the
// next leader reuses run.
func (c *combiner) finish(own *batch) {
	for _, b := range c.run {
		b.done = true
		if b != own {
			b.wake <- struct{}{}
		}
	}
	clear(c.run)
	c.run = c.run[:0]
	c.mu.Lock()
	c.elect()
	c.mu.Unlock()
}

// elect makes the oldest waiter lead. Caller holds mu.
func (c *combiner) elect() {
	c.leader = nil
	if len(c.queue) > 0 {
		c.leader = c.queue[0]
		c.leader.wake <- struct{}{}
	}
}
