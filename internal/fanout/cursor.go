package fanout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

var (
	// errGone: the link of this epoch, or this node's ownership, ended. The reconciler
	// decides what follows.
	errGone = errors.New("fan-out link or ownership ended")
	// errUnconfirmed: the leader did not confirm the epoch. Nothing was written; the
	// reconciler starts the cursor again.
	errUnconfirmed = errors.New("fan-out epoch is not confirmed by the leader")
)

// notStarted is the position of a cursor that does not know its own yet.
const notStarted = -1

// cursor copies one parent partition to one child. The fields above the line are its
// goroutine's; the atomics are read by listings and scrapes.
type cursor struct {
	e    *Engine
	link *link
	at   place
	file cursorFile
	mine bool // the file on disk is of this epoch, or this cursor has made it so

	next atomic.Int64 // first offset not known to be in the child; notStarted
	high atomic.Int64 // the parent's high watermark at the last look
	head atomic.Int64 // commit time of the record at next while the gate holds it back; 0 = none

	stop context.CancelFunc
	done chan struct{}
}

func (e *Engine) newCursor(k place, l *link) (*cursor, context.Context, error) {
	name, err := cursorPath(e.opts.DataDir, k)
	if err != nil {
		return nil, nil, err
	}
	c := &cursor{e: e, link: l, at: k, file: cursorFile{fs: e.opts.FS, name: name}, done: make(chan struct{})}
	c.next.Store(notStarted)
	ctx, stop := context.WithCancel(e.soft)
	c.stop = stop
	return c, ctx, nil
}

// attrs name the cursor in log lines.
func (c *cursor) attrs(more ...any) []any {
	return append([]any{"parent", c.at.parent, "partition", c.at.partition, "child", c.at.child, "epoch", c.link.epoch}, more...)
}

// warn writes one line a minute about each kind of failure of this cursor.
func (c *cursor) warn(text string, err error, more ...any) {
	c.e.limiter.Warn(c.e.log, text+c.file.name, text, c.attrs(append(more, "err", err)...)...)
}

// ended reports whether the cursor's goroutine has returned.
func (c *cursor) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// main is the goroutine.
func (c *cursor) main(ctx context.Context) {
	err := c.run(ctx)
	c.file.release()
	if err != nil && !over(err) && ctx.Err() == nil {
		c.warn("fanout: cursor stopped; it starts again", err)
	}
	c.e.exited.Store(true)
	close(c.done)
}

// over reports whether an error only says what the reconciler is about to act on.
func over(err error) bool {
	for _, is := range []error{errGone, model.ErrTopicNotFound, model.ErrTopicChanged, model.ErrNotOwner, model.ErrShuttingDown} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// run copies until ctx ends (nil) or the cursor cannot go on.
func (c *cursor) run(ctx context.Context) error {
	if err := c.begin(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	for ctx.Err() == nil {
		// Before looking for records, or a commit in between would go unnoticed.
		changed, err := c.e.opts.Parents.Changed(c.at.parent, c.link.parentID, c.at.partition)
		if err != nil {
			return err
		}
		p, err := c.step(ctx)
		if err != nil {
			return err
		}
		if !c.wait(ctx, p, changed) {
			return nil
		}
	}
	return nil
}

// pauseKind is what a cursor waits for after a step.
type pauseKind struct {
	forCommit bool
	sleep     time.Duration
}

// wait ends with what the step asked for; false = stop. A cursor that waits holds no
// descriptor and no buffer. A commit does not end the sleep of a delay cursor: what is
// behind the record it waits for cannot be due earlier.
func (c *cursor) wait(ctx context.Context, p pauseKind, changed <-chan struct{}) bool {
	switch {
	case p.forCommit:
		c.file.release()
		select {
		case <-changed:
			return true
		case <-ctx.Done():
			return false
		}
	case p.sleep > 0:
		c.file.release()
		return c.e.pause(ctx, p.sleep)
	}
	return ctx.Err() == nil
}

// begin finds the first position. Only a link without recorded attach point needs its
// file now; for the others the record says as much as a file would.
func (c *cursor) begin(ctx context.Context) error {
	select {
	case c.e.starts <- struct{}{}:
		defer func() { <-c.e.starts }()
	case <-ctx.Done():
		return nil
	}
	have, err := c.load(ctx)
	if err != nil {
		return err
	}
	b := decide(have, c.link, c.at.partition)
	c.mine = b.from == resumed
	if b.from != observed {
		c.next.Store(b.next)
		return nil
	}
	high, err := c.e.opts.Parents.HighWatermark(c.at.parent, c.link.parentID, c.at.partition)
	if err != nil {
		return err
	}
	if ok, err := c.file.placed(); err != nil || !ok {
		c.next.Store(high)
		return err
	}
	if err := c.anchor(ctx, high); err != nil {
		return err
	}
	c.next.Store(high)
	return nil
}

// load reads the cursor file, again when it does not check out: a reader may catch a
// writer in the middle. nil = none, or damaged for good.
func (c *cursor) load(ctx context.Context) (*record, error) {
	for try := 1; ; try++ {
		r, err := c.file.read()
		switch {
		case err == nil:
			return &r, nil
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil
		case !isCorrupt(err):
			return nil, err
		case try == tornReads:
			c.e.log.Warn("fanout: cursor file is damaged; copying starts at the attach point again", c.attrs("err", err)...)
			return nil, nil
		}
		if !c.e.pause(ctx, tornReadsApart) {
			return nil, ctx.Err()
		}
	}
}

// anchor makes the file this cursor's, at next, once the leader has confirmed the epoch:
// a stale replica can show an epoch that is over, and its cursor would overwrite the
// position of the live one (founding document, "Attach epochs").
func (c *cursor) anchor(ctx context.Context, next int64) error {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	word, err := c.e.opts.Leader.ConfirmLink(ctx, c.at.parent, c.at.child, c.link.epoch)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errUnconfirmed, err)
	case word == metastore.Gone:
		return fmt.Errorf("%w: the leader knows another epoch", errUnconfirmed)
	case word != metastore.Live:
		return errUnconfirmed
	}
	if err := c.file.anchor(record{c.link.epoch, next}); err != nil {
		c.warn("fanout: persist cursor", err)
		return err
	}
	c.mine = true
	c.e.log.Info("fanout: cursor anchored", c.attrs("next_offset", next)...)
	return nil
}

// step copies one slab, or says what to wait for.
func (c *cursor) step(ctx context.Context) (pauseKind, error) {
	next := c.next.Load()
	high, exact, err := c.e.opts.Parents.Tail(c.at.parent, c.link.parentID, c.at.partition)
	if err != nil {
		return pauseKind{}, err
	}
	if exact && next > high {
		// The log lost its end, with its volume for one. Its offsets will be used
		// again, and what they hold then has to be copied.
		c.e.log.Warn("fanout: cursor is ahead of its parent; back to the parent's end", c.attrs("next_offset", next, "high_watermark", high)...)
		next = high
		c.next.Store(high)
	}
	c.high.Store(max(high, next))
	if exact && next == high {
		c.head.Store(0)
		return pauseKind{forCommit: true}, nil
	}
	if head := c.head.Load(); head != 0 {
		if left := dueIn(c.e.nowMS(), head, c.link.delayMS); left > 0 {
			return pauseKind{sleep: left}, nil
		}
	}
	return c.copySlab(ctx, next)
}

// copySlab reads from next, commits what it read to the child, and only then moves the
// durable position past it.
func (c *cursor) copySlab(ctx context.Context, next int64) (pauseKind, error) {
	if !c.mine {
		if ok, err := c.file.placed(); err != nil {
			return pauseKind{}, err
		} else if !ok {
			return pauseKind{forCommit: true}, nil // no files, so no records
		}
		if err := c.anchor(ctx, next); err != nil {
			return pauseKind{}, err
		}
	}
	buf := c.e.buffer()
	defer c.e.putBuffer(buf)
	slab, err := c.read(ctx, buf, next)
	var aged *model.AgedOutError
	if errors.As(err, &aged) && aged.Oldest > next {
		c.dropped(aged.Oldest-next, "records aged out of the parent before they were copied")
		return pauseKind{}, c.advance(aged.Oldest)
	}
	if err != nil {
		if !over(err) {
			c.warn("fanout: read parent slab", err)
		}
		return pauseKind{}, err
	}
	if slab.Skipped > 0 {
		c.dropped(slab.Skipped, "unreadable records of the parent were passed over")
	}
	if len(slab.Records) > 0 {
		if c.link.delayMS > 0 {
			c.head.Store(slab.Records[0].CommittedAt) // overdue until it is shipped
		}
		if err := c.ship(ctx, buf, slab.Records); err != nil {
			return pauseKind{}, err
		}
	}
	c.head.Store(slab.Gated)
	if slab.Next != next {
		return pauseKind{}, c.advance(slab.Next)
	}
	if slab.Gated == 0 {
		return pauseKind{forCommit: true}, nil
	}
	return pauseKind{sleep: dueIn(c.e.nowMS(), slab.Gated, c.link.delayMS)}, nil
}

// read is one slab: filled at once from a backlog, with one linger at the end of the
// log, so that a trickle still ships soon and a stream in large commits.
func (c *cursor) read(ctx context.Context, buf *slabBuffer, next int64) (commitlog.Slab, error) {
	o := &c.e.opts
	lim := commitlog.SlabLimit{MaxRecords: o.MaxBatchRecords, MaxBytes: o.MaxBatchBytes, MaxCommittedAt: gateAt(c.e.nowMS(), c.link.delayMS)}
	first, err := o.Parents.Slab(c.at.parent, c.link.parentID, c.at.partition, buf.stored[:0], next, lim)
	if err != nil {
		return first, err
	}
	buf.stored = first.Records
	lim.MaxRecords -= len(first.Records)
	for i := range first.Records {
		lim.MaxBytes -= len(first.Records[i].Key) + len(first.Records[i].Payload)
	}
	if len(first.Records) == 0 || lim.MaxRecords <= 0 || lim.MaxBytes <= 0 || o.Linger <= 0 || !c.lingers(first) || !c.e.pause(ctx, o.Linger) {
		return first, nil
	}
	lim.MaxCommittedAt = gateAt(c.e.nowMS(), c.link.delayMS)
	more, err := o.Parents.Slab(c.at.parent, c.link.parentID, c.at.partition, first.Records, first.Next, lim)
	if err != nil {
		return first, nil // the next step meets it again
	}
	buf.stored = more.Records
	more.Skipped += first.Skipped
	return more, nil
}

// lingers reports whether waiting may fill a slab: it ends at the end of the log, or at
// a record that is about to be due.
func (c *cursor) lingers(s commitlog.Slab) bool {
	if s.Gated != 0 {
		return dueIn(c.e.nowMS(), s.Gated, c.link.delayMS) <= c.e.opts.Linger
	}
	high, _, err := c.e.opts.Parents.Tail(c.at.parent, c.link.parentID, c.at.partition)
	return err == nil && s.Next >= high
}

// advance makes next the durable position, after everything before it was committed.
func (c *cursor) advance(next int64) error {
	if err := c.file.advance(record{c.link.epoch, next}); err != nil {
		c.warn("fanout: persist cursor", err)
		return err
	}
	c.next.Store(next)
	c.head.Store(0)
	if next > c.high.Load() {
		c.high.Store(next)
	}
	return nil
}

// dropped counts what the child will never get.
func (c *cursor) dropped(n int64, what string) {
	c.link.counts.dropped.Add(float64(n))
	c.e.limiter.Warn(c.e.log, what+c.file.name, "fanout: "+what, c.attrs("dropped", n)...)
}
