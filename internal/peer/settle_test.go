package peer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
	"github.com/narad-mq/narad/internal/testutil"
)

// verdict answers a settlement by the offset of its handle.
func verdict(topic string, h model.Handle, op model.SettleOp) error {
	switch h.Offset % 4 {
	case 1:
		return fmt.Errorf("%s/%d: %w", topic, h.Partition, model.ErrNoLease)
	case 2:
		return fmt.Errorf("%w: %s/%d", model.ErrNotOwner, topic, h.Partition)
	case 3:
		return errors.New("disk on fire")
	}
	return nil
}

// holds reports whether a settlement came out as verdict says.
func holds(h model.Handle, err error) bool {
	var refused *StatusError
	switch h.Offset % 4 {
	case 1:
		return errors.Is(err, model.ErrNoLease) && errors.As(err, &refused) && refused.Status == 410 && refused.Code == "lease_gone"
	case 2:
		return errors.Is(err, model.ErrNotOwner) && !errors.Is(err, model.ErrNoLease) && errors.As(err, &refused) && refused.Status == 421
	case 3:
		return errors.As(err, &refused) && refused.Status == 500 && refused.Text == "ack failed"
	}
	return err == nil
}

func handle(offset int) model.Handle {
	return model.Handle{Partition: 1, Offset: int64(offset), Nonce: int64(offset) + 1}
}

func TestSettle(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	type seen struct {
		topic string
		h     model.Handle
		op    model.SettleOp
	}
	got := make(chan seen, 1)
	ServeQueue(n, model.LevelNewest, &queue{settle: func(topic string, h model.Handle, op model.SettleOp) error {
		got <- seen{topic, h, op}
		return verdict(topic, h, op)
	}})
	for offset := range 4 {
		for op := range settleOps {
			want := seen{"t", handle(offset), model.SettleOp(op)}
			if err := c.Settle(t.Context(), n.Addr(), "t", want.h, want.op); !holds(want.h, err) {
				t.Errorf("%v: %v", want, err)
			}
			if s := <-got; s != want {
				t.Errorf("settled %v, want %v", s, want)
			}
		}
	}
	if err := c.Settle(t.Context(), n.Addr(), "t", handle(0), 3); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("settle op 3: %v", err)
	}
}

// A batch is one request; each settlement has its own answer, in order, and one without a
// companion travels as a single op.
func TestSettleMany(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	ServeQueue(n, model.LevelNewest, &queue{settle: verdict})
	for _, count := range []int{1, 2, 64, 100} {
		hs := make([]model.Handle, count)
		for i := range hs {
			hs[i] = handle(i)
		}
		errs, err := c.SettleMany(t.Context(), n.Addr(), "t", hs, model.Nack)
		if err != nil || len(errs) != count {
			t.Fatalf("%d: %d answers, %v", count, len(errs), err)
		}
		for i, err := range errs {
			if !holds(hs[i], err) {
				t.Errorf("%d of %d: %v", i, count, err)
			}
		}
		want := []noderpc.Op{noderpc.OpAckBatch}
		if count == 1 {
			want = []noderpc.Op{noderpc.OpNack}
		}
		if sent := c.wire.ops(); !slices.Equal(sent, want) {
			t.Errorf("%d settlements went out as %v", count, sent)
		}
	}
	for _, count := range []int{0, 101} {
		if _, err := c.SettleMany(t.Context(), n.Addr(), "t", make([]model.Handle, count), model.Ack); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%d settlements: %v", count, err)
		}
	}
}

// An entry that is none fails alone.
func TestAckBatchEntries(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	ServeQueue(n, model.LevelNewest, &queue{settle: verdict})
	var e noderpc.Encoder
	e.AppendU32(4)
	for _, x := range []struct {
		kind          uint8
		topic, handle string
	}{{1, "t", "1:0:1"}, {0, "t", "1:0:1"}, {4, "t", "1:0:1"}, {1, "t", "1:00:1"}} {
		e.AppendU8(x.kind)
		e.AppendStr(x.topic)
		e.AppendStr(x.handle)
	}
	res, err := c.wire.Call(t.Context(), n.Addr(), noderpc.OpAckBatch, e)
	if err != nil || res.Status != 200 {
		t.Fatalf("%+v, %v", res, err)
	}
	errs, err := decodeResults(noderpc.NewDecoder(res.Body), 4)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{nil, model.ErrInvalid, model.ErrInvalid, model.ErrBadHandle} {
		if !errors.Is(errs[i], want) {
			t.Errorf("entry %d: %v, want %v", i, errs[i], want)
		}
	}
	if _, err := decodeResults(noderpc.NewDecoder(res.Body), 3); err == nil {
		t.Error("4 results were taken for 3 settlements")
	}
}

// A batch whose caller is gone before it starts is refused as a whole, unapplied.
func TestAckBatchUnapplied(t *testing.T) {
	s := &captured{}
	ServeQueue(s, model.LevelNewest, &queue{settle: func(string, model.Handle, model.SettleOp) error {
		t.Error("settled for a caller who is gone")
		return nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var list noderpc.Encoder
	appendSettlements(&list, []settlement{{model.Ack, "t", handle(1)}, {model.Ack, "t", handle(2)}})
	if res := s.handlers[noderpc.OpAckBatch](ctx, list); res.Status != http.StatusServiceUnavailable {
		t.Errorf("answered %d", res.Status)
	}
}

// full fills the slots of an owner with requests that wait for the channel, and returns
// once they all are under way.
func full(t *testing.T, c *caller, addr string, goOn chan struct{}) *sync.WaitGroup {
	t.Helper()
	c.wire.mu.Lock()
	c.wire.hold = func(ctx context.Context, op noderpc.Op) error {
		if op == noderpc.OpAck {
			<-goOn
		}
		return nil
	}
	c.wire.mu.Unlock()
	var wg sync.WaitGroup
	for i := range c.slots.most {
		wg.Go(func() {
			if err := c.Settle(t.Context(), addr, "t", handle(4*i), model.Ack); err != nil {
				t.Errorf("settle %d: %v", i, err)
			}
		})
	}
	testutil.Eventually(t, 5*time.Second, func() bool { return c.wire.count(noderpc.OpAck) == c.slots.most }, "all slots are taken")
	return &wg
}

// queued is how many settlements wait for a slot.
func (c *caller) queued(addr string) int {
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	if o := c.slots.owners[addr]; o != nil {
		return o.queued
	}
	return 0
}

func few(c *caller, most int) { c.slots.most = most }

// Past the slots settlements wait and leave together, at most 64 of them, each with its
// own answer (spec/cluster-and-network section 6.2).
func TestSettlementsCoalesce(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	ServeQueue(n, model.LevelNewest, &queue{settle: verdict})
	if c.slots.most < 128 {
		t.Fatalf("%d slots", c.slots.most)
	}
	few(c, 4)
	goOn := make(chan struct{})
	first := full(t, c, n.Addr(), goOn)
	c.wire.ops()

	const waiting = 2*coalesceMax + 1
	var wg sync.WaitGroup
	for i := range waiting {
		wg.Go(func() {
			if err := c.Settle(t.Context(), n.Addr(), "t", handle(i), model.SettleOp(i%3)); !holds(handle(i), err) {
				t.Errorf("settle %d: %v", i, err)
			}
		})
	}
	testutil.Eventually(t, 5*time.Second, func() bool { return c.queued(n.Addr()) == waiting }, "the rest waits")
	if sent := c.wire.ops(); sent != nil {
		t.Errorf("sent %v past the slots", sent)
	}
	close(goOn)
	first.Wait()
	wg.Wait()
	if batches, all := c.wire.count(noderpc.OpAckBatch), c.wire.ops(); batches != 2 || len(all) != 3 {
		t.Errorf("%d settlements left as %v", waiting, all)
	}
	if len(c.slots.owners) != 0 {
		t.Errorf("%d owners are remembered for nothing", len(c.slots.owners))
	}
}

// A settlement whose client left while it waited is taken out, unsent; one whose time is
// up while it waits was never delivered.
func TestSettlementsLeaveTheQueue(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	var mu sync.Mutex
	settled := map[int64]bool{}
	ServeQueue(n, model.LevelNewest, &queue{settle: func(_ string, h model.Handle, _ model.SettleOp) error {
		mu.Lock()
		defer mu.Unlock()
		settled[h.Offset] = true
		return nil
	}})
	few(c, 2)
	goOn := make(chan struct{})
	first := full(t, c, n.Addr(), goOn)

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			with := t.Context()
			if i%2 == 1 {
				with = ctx
			}
			err := c.Settle(with, n.Addr(), "t", handle(1000+i), model.Ack)
			if i%2 == 1 && (!errors.Is(err, ErrUnreached) || !errors.Is(err, context.Canceled)) || i%2 == 0 && err != nil {
				t.Errorf("settle %d: %v", i, err)
			}
		})
	}
	testutil.Eventually(t, 5*time.Second, func() bool { return c.queued(n.Addr()) == 6 }, "six wait")
	cancel()
	testutil.Eventually(t, 5*time.Second, func() bool { return c.queued(n.Addr()) == 3 }, "three left")
	short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if err := c.Settle(short, n.Addr(), "t", handle(2000), model.Ack); !errors.Is(err, ErrUnreached) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no slot in time: %v", err)
	}
	close(goOn)
	first.Wait()
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	for i := range 6 {
		if got := settled[int64(1000+i)]; got != (i%2 == 0) {
			t.Errorf("settlement %d applied: %v", i, got)
		}
	}
	if settled[2000] {
		t.Error("a settlement that found no slot was applied")
	}
}

// The queue of an owner is bounded, and says so at once.
func TestSettleQueueMax(t *testing.T) {
	s := slots{most: 1, owners: map[string]*owner{}}
	list := make([]settlement, 64)
	if w, err := s.take("a", list, time.Time{}); w != nil || err != nil {
		t.Fatalf("the first: %v, %v", w, err)
	}
	for i := 0; i < settleQueueMax; i += len(list) {
		if w, err := s.take("a", list, time.Time{}); w == nil || err != nil {
			t.Fatalf("%d wait: %v, %v", i, w, err)
		}
	}
	if _, err := s.take("a", list[:1], time.Time{}); !errors.Is(err, ErrUnreached) {
		t.Errorf("past the bound: %v", err)
	}
	if w, err := s.take("b", list[:1], time.Time{}); w != nil || err != nil {
		t.Errorf("another owner: %v, %v", w, err)
	}
}

// A batch that is under way when its runner's client leaves is run all the same: the others
// get their answers.
func TestABatchOutlivesItsRunner(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	ServeQueue(n, model.LevelNewest, &queue{settle: verdict})
	few(c, 1)
	goOn, batch := make(chan struct{}), make(chan struct{})
	first := full(t, c, n.Addr(), goOn)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.wire.mu.Lock()
	hold := c.wire.hold
	c.wire.hold = func(with context.Context, op noderpc.Op) error {
		if op == noderpc.OpAckBatch {
			cancel()
			close(batch)
		}
		return hold(with, op)
	}
	c.wire.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.Settle(t.Context(), n.Addr(), "t", handle(1), model.Ack); !errors.Is(err, model.ErrNoLease) {
			t.Errorf("the other: %v", err)
		}
	})
	testutil.Eventually(t, 5*time.Second, func() bool { return c.queued(n.Addr()) == 1 }, "one waits")
	wg.Go(func() { // the newest, so it runs the batch
		if err := c.Settle(ctx, n.Addr(), "t", handle(0), model.Ack); err != nil {
			t.Errorf("the runner: %v", err)
		}
	})
	testutil.Eventually(t, 5*time.Second, func() bool { return c.queued(n.Addr()) == 2 }, "two wait")
	close(goOn)
	<-batch
	first.Wait()
	wg.Wait()
}

// The time in the queue counts: a batch whose runner's 2 s are over is not sent any more.
func TestSettleBudgetCoversTheQueue(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	ServeQueue(n, model.LevelNewest, &queue{settle: verdict})
	few(c, 1)
	goOn := make(chan struct{})
	first := full(t, c, n.Addr(), goOn)
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			if err := c.Settle(t.Context(), n.Addr(), "t", handle(4*i), model.Ack); !errors.Is(err, ErrUnreached) {
				t.Errorf("settle %d: %v", i, err)
			}
		})
	}
	testutil.Eventually(t, 5*time.Second, func() bool { return c.queued(n.Addr()) == 2 }, "two wait")
	c.clock.Advance(settleBudget)
	close(goOn)
	first.Wait()
	wg.Wait()
	if c.wire.count(noderpc.OpAckBatch) != 0 {
		t.Error("a batch was sent after its time")
	}
}

// An owner that knows no AckBatch gets what waits one by one.
func TestSettlementsCoalesceAtOlderPeers(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	ServeQueue(n, model.Level30, &queue{settle: verdict})
	few(c, 2)
	goOn := make(chan struct{})
	first := full(t, c, n.Addr(), goOn)
	const waiting = 100
	var wg sync.WaitGroup
	for i := range waiting {
		wg.Go(func() {
			if err := c.Settle(t.Context(), n.Addr(), "t", handle(i), model.SettleOp(i%3)); !holds(handle(i), err) {
				t.Errorf("settle %d: %v", i, err)
			}
		})
	}
	testutil.Eventually(t, 5*time.Second, func() bool { return c.queued(n.Addr()) == waiting }, "the rest waits")
	close(goOn)
	first.Wait()
	wg.Wait()
	if got := c.wire.count(noderpc.OpAckBatch); got == 0 || got > c.slots.most {
		t.Errorf("%d batches were tried", got)
	}
}

// Under load with clients that leave at random, every settlement ends, those that stay get
// their own answers, and all slots come back.
func TestSettlementsUnderLoad(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	ServeQueue(n, model.LevelNewest, &queue{settle: verdict})
	few(c, 3)
	var wg sync.WaitGroup
	for g := range 40 {
		wg.Go(func() {
			for i := range 15 {
				at := g*100 + i
				if at%7 == 0 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(at%5)*100*time.Microsecond)
					_ = c.Settle(ctx, n.Addr(), "t", handle(at), model.Ack)
					cancel()
					continue
				}
				if at%11 == 0 {
					hs := []model.Handle{handle(at), handle(at + 1), handle(at + 2)}
					errs, err := c.SettleMany(t.Context(), n.Addr(), "t", hs, model.Nack)
					for k := range errs {
						if !holds(hs[k], errs[k]) {
							t.Errorf("%d of a batch: %v", at+k, errs[k])
						}
					}
					if err != nil {
						t.Errorf("batch %d: %v", at, err)
					}
					continue
				}
				if err := c.Settle(t.Context(), n.Addr(), "t", handle(at), model.SettleOp(at%3)); !holds(handle(at), err) {
					t.Errorf("settle %d: %v", at, err)
				}
			}
		})
	}
	wg.Wait()
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	if len(c.slots.owners) != 0 {
		t.Errorf("slots of %d owners did not come back", len(c.slots.owners))
	}
	if c.wire.count(noderpc.OpAckBatch) == 0 {
		t.Error("nothing was coalesced")
	}
}
