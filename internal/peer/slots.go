package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// slots bounds the settle requests in flight to each owner and merges what waits for one
// (spec/cluster-and-network section 6.2).
type slots struct {
	most int // in flight to one owner

	mu     sync.Mutex // guards owners and all that hangs on them
	owners map[string]*owner
}

// owner is what is under way to one; it exists while something is.
type owner struct {
	inFlight int
	queue    []*settler // arrival order
	queued   int        // settlements of queue
}

// settler is a caller that waits for a slot with its settlements. It leaves the queue in
// one of three ways: it takes itself out, a slot's giver makes it run a batch, or it
// becomes part of the batch another one runs.
type settler struct {
	list  []settlement
	until time.Time // the end of its budget

	taken bool       // guarded by slots.mu: it is in a batch
	batch []*settler // set with taken on the one that runs it, itself included
	turn  chan turn  // one slot: run is yours, or this came of it
}

// turn is what a settler waits for.
type turn struct {
	run  bool
	errs []error
	err  error
}

// take takes a slot of addr and answers nil, or the settler that waits for one.
func (s *slots) take(addr string, list []settlement, until time.Time) (*settler, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[addr]
	if o == nil {
		o = &owner{}
		s.owners[addr] = o
	}
	if o.inFlight < s.most {
		o.inFlight++
		return nil, nil
	}
	if o.queued+len(list) > settleQueueMax {
		return nil, fmt.Errorf("%w: %d settlements wait for %s already", ErrUnreached, o.queued, addr)
	}
	w := &settler{list: list, until: until, turn: make(chan turn, 1)}
	o.queue = append(o.queue, w)
	o.queued += len(list)
	return w, nil
}

// leave takes w out of the queue; false when it is in a batch already.
func (s *slots) leave(addr string, w *settler) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.taken {
		return false
	}
	o := s.owners[addr]
	for i, q := range o.queue {
		if q == w {
			o.queue = append(o.queue[:i], o.queue[i+1:]...)
			o.queued -= len(w.list)
			break
		}
	}
	return true
}

// give gives a slot of addr back: to the oldest settlers of the queue, as many as one
// request carries, or to nobody. The newest of them runs the batch, because it has the
// most time left. together is false for an owner that takes them one by one.
func (s *slots) give(addr string, together bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[addr]
	if len(o.queue) == 0 {
		if o.inFlight--; o.inFlight == 0 {
			delete(s.owners, addr)
		}
		return
	}
	n, size := 0, 0
	for n < len(o.queue) {
		size += len(o.queue[n].list)
		if n > 0 && (!together || size > coalesceMax) {
			break
		}
		n++
	}
	batch := append([]*settler(nil), o.queue[:n]...)
	rest := copy(o.queue, o.queue[n:])
	clear(o.queue[rest:])
	o.queue = o.queue[:rest]
	for _, w := range batch {
		w.taken = true
		o.queued -= len(w.list)
	}
	runner := batch[n-1]
	runner.batch = batch
	runner.turn <- turn{run: true}
}

// Settle acks, extends or nacks a delivery at its owner. Under load it may travel with
// others; its answer is its own. The errors are those of Queue.Settle; with ErrUnreached
// nothing was applied, after any other error that is no *StatusError it may be.
func (c *Client) Settle(ctx context.Context, addr, topic string, h model.Handle, op model.SettleOp) error {
	one := settlement{op, topic, h}
	errs, err := c.settle(ctx, addr, []settlement{one})
	if err != nil {
		return err
	}
	return errs[0]
}

// SettleMany settles up to 100 deliveries of one topic with one request, or one by one at
// an owner of a release that needs it, and answers an error or nil for each. The error is
// one of all of them; see Settle.
func (c *Client) SettleMany(ctx context.Context, addr, topic string, hs []model.Handle, op model.SettleOp) ([]error, error) {
	if len(hs) == 0 || len(hs) > repliesMax {
		return nil, fmt.Errorf("%w: %d settlements, want 1 to %d", model.ErrInvalid, len(hs), repliesMax)
	}
	list := make([]settlement, len(hs))
	for i, h := range hs {
		list[i] = settlement{op, topic, h}
	}
	return c.settle(ctx, addr, list)
}

// settle sends settlements when there is a slot, alone or with others.
func (c *Client) settle(ctx context.Context, addr string, list []settlement) ([]error, error) {
	if list[0].op >= model.SettleOp(len(settleOps)) {
		return nil, fmt.Errorf("%w: %s", model.ErrInvalid, list[0].op)
	}
	ctx, cancel := context.WithTimeout(ctx, settleBudget)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreached, err)
	}
	w, err := c.slots.take(addr, list, c.clock.Now().Add(settleBudget))
	if err != nil {
		return nil, err
	}
	if w == nil {
		defer c.giveSlot(addr)
		return c.settleList(ctx, addr, list)
	}
	select {
	case t := <-w.turn:
		return c.turn(ctx, addr, w, t)
	case <-ctx.Done():
	}
	if c.slots.leave(addr, w) {
		return nil, fmt.Errorf("%w: no slot for a settlement at %s: %w", ErrUnreached, addr, ctx.Err())
	}
	if w.batch == nil { // another one runs it
		select {
		case t := <-w.turn:
			return t.errs, t.err
		default:
			return nil, fmt.Errorf("settlement at %s, in a batch under way: %w", addr, ctx.Err())
		}
	}
	return c.turn(ctx, addr, w, <-w.turn)
}

// turn is what w does when it is its turn: run the batch, or take what came of it. A batch
// is run even when its runner's caller has left, as far as the runner's budget goes.
func (c *Client) turn(ctx context.Context, addr string, w *settler, t turn) ([]error, error) {
	if !t.run {
		return t.errs, t.err
	}
	defer c.giveSlot(addr)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.until.Sub(c.clock.Now()))
	defer cancel()
	var list []settlement
	for _, m := range w.batch {
		list = append(list, m.list...)
	}
	errs, err := c.settleList(ctx, addr, list)
	for _, m := range w.batch {
		t = turn{err: err}
		if err == nil {
			t.errs, errs = errs[:len(m.list)], errs[len(m.list):]
		}
		if m != w {
			m.turn <- t
		}
	}
	return t.errs, t.err // of the last, which is w
}

func (c *Client) giveSlot(addr string) { c.slots.give(addr, c.may(addr, featureAckBatch)) }

// settleList sends settlements with one request, or one by one where it must.
func (c *Client) settleList(ctx context.Context, addr string, list []settlement) ([]error, error) {
	if len(list) > 1 && c.may(addr, featureAckBatch) {
		errs, err := c.settleTogether(ctx, addr, list)
		if err == nil || !errors.Is(err, ErrUnsupported) {
			return errs, err
		}
		c.older.remember(addr, featureAckBatch)
		c.log.Debug("peer of an older release: settling one by one", "peer", addr)
	}
	errs := make([]error, len(list))
	for i := range list {
		errs[i] = c.settleOne(ctx, addr, &list[i])
	}
	return errs, nil
}

func (c *Client) settleTogether(ctx context.Context, addr string, list []settlement) ([]error, error) {
	e := c.encoder()
	defer c.recycle(e)
	appendSettlements(e, list)
	res, err := accepted(c.send(ctx, addr, noderpc.OpAckBatch, *e))
	if err != nil {
		return nil, err
	}
	errs, err := decodeResults(noderpc.NewDecoder(res.Body), len(list))
	if err != nil {
		return nil, fmt.Errorf("%s at %s: answer: %w", noderpc.OpAckBatch, addr, err)
	}
	return errs, nil
}

func (c *Client) settleOne(ctx context.Context, addr string, s *settlement) error {
	e := c.encoder()
	defer c.recycle(e)
	s.appendTarget(e)
	_, err := accepted(c.send(ctx, addr, settleOps[s.op], *e))
	return err
}
