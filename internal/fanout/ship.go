package fanout

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

// ship returns once every record is committed to the child. Buckets that fail are kept
// in memory, copied off the parent's log so that a long outage does not pin its read
// buffers, and tried again alone, for as long as the link and the ownership stand. No
// record goes to a sibling of the partition it belongs to.
func (c *cursor) ship(ctx context.Context, buf *slabBuffer, stored []commitlog.Stored) error {
	buf.recs = buf.recs[:0]
	size := 0
	for i := range stored {
		s := &stored[i]
		size += len(s.Payload)
		buf.recs = append(buf.recs, model.Record{Key: s.Key, Payload: s.Payload, Incarnation: c.link.childID})
	}
	c.e.metrics.batchRecords.Observe(float64(len(stored)))
	c.e.metrics.batchBytes.Observe(float64(size))
	pending := buf.recs
	for round := 0; ; round++ {
		rule, err := c.target()
		if err != nil {
			return err
		}
		buf.buckets.sort(pending, rule.count, rule.of)
		failed, err := c.commitAll(ctx, &buf.buckets, rule.count)
		if len(failed) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.warn("fanout: child batch commit failed", err, "partitions", failed)
		pending = c.keep(buf, failed, round == 0)
		if !c.e.pause(ctx, retryBackoff) {
			return ctx.Err()
		}
	}
}

// target checks that the link of this cursor's epoch and the ownership still stand, and
// how the child's partitions are dealt now.
func (c *cursor) target() (*placement, error) {
	parent, ok := c.e.opts.Replica.Topic(c.at.parent)
	if !ok || parent.OwnerOf(c.at.partition) != c.e.opts.Node {
		return nil, errGone
	}
	child, ok := c.e.opts.Replica.Topic(c.at.child)
	if !ok || !c.link.same(parent, child) || child.Partitions < 1 {
		return nil, errGone
	}
	return &placement{
		count: child.Partitions, keepsIndex: child.Partitions == parent.Partitions,
		parent: c.at.partition, roundRobin: c.link.roundRobin,
	}, nil
}

// commitAll commits the buckets, commitsInFlight at once, and returns the partitions
// that failed, ascending, and one of the reasons.
func (c *cursor) commitAll(ctx context.Context, b *buckets, count int) (failed []int, why error) {
	var mu sync.Mutex // guards failed and why
	one := func(p int) {
		recs := b.of(p)
		if err := c.commit(ctx, p, recs); err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed, why = append(failed, p), err
			return
		}
		c.link.counts.committed.Add(float64(len(recs)))
	}
	var filled []int
	for p := range count {
		if len(b.of(p)) > 0 {
			filled = append(filled, p)
		}
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, commitsInFlight)
	for _, p := range filled[:len(filled)-1] {
		slots <- struct{}{}
		group.Go(func() { one(p); <-slots })
	}
	one(filled[len(filled)-1]) // a slab for one partition needs no goroutine
	group.Wait()
	slices.Sort(failed)
	return failed, why
}

// commit stores one bucket, with quick tries. A stop ends the waits but not a commit
// that was begun: its outcome decides whether the slab is copied again.
func (c *cursor) commit(ctx context.Context, p int, recs []model.Record) (err error) {
	for try := range quickTries {
		if try > 0 && !c.e.pause(ctx, quickRetryFirst<<(try-1)) {
			return err
		}
		var owner Owner
		if owner, err = c.e.opts.Placement.Owner(c.at.child, p); err == nil {
			recs, err = c.commitRuns(owner, p, recs)
		}
		if err == nil {
			return nil
		}
		err = fmt.Errorf("commit to %s/%d: %w", c.at.child, p, err)
	}
	return err
}

// commitRuns commits as much at a time as one request to another node carries, and
// returns what is left after a failure.
func (c *cursor) commitRuns(owner Owner, p int, recs []model.Record) (left []model.Record, err error) {
	for len(recs) > 0 {
		n := runLength(recs)
		if err := c.commitOnce(owner, p, recs[:n]); err != nil {
			return recs, err
		}
		recs = recs[n:]
	}
	return nil, nil
}

// runLength is how many of the records fit into one commit; at least one.
func runLength(recs []model.Record) int {
	size := 0
	for i := range recs {
		size += peer.CommitSize(&recs[i])
		if i > 0 && (size > peer.CommitBytesMax || i == commitRecordsMax) {
			return i
		}
	}
	return len(recs)
}

func (c *cursor) commitOnce(owner Owner, p int, recs []model.Record) error {
	ctx, cancel := context.WithTimeout(c.e.hard, commitTimeout)
	defer cancel()
	_, err := owner.Commit(ctx, c.at.child, p, recs)
	return err
}

// keep moves the failed buckets, in their order, to the front of the slab's records, and
// takes them off the parent's log.
func (c *cursor) keep(buf *slabBuffer, failed []int, copied bool) []model.Record {
	kept := make([]model.Record, 0, len(buf.recs))
	for _, p := range failed {
		for _, r := range buf.buckets.of(p) {
			if copied {
				r.Key, r.Payload = slices.Clone(r.Key), slices.Clone(r.Payload)
			}
			kept = append(kept, r)
		}
	}
	clear(buf.stored)
	clear(buf.recs)
	buf.buckets.clear()
	return kept
}
