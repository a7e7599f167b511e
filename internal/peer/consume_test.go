package peer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
	"github.com/narad-mq/narad/internal/testutil"
)

// queue is a Queue made of functions; what is released is remembered.
type queue struct {
	consume func(ctx context.Context, r ConsumeRequest) ([]model.Delivery, error)
	read    func(topic string, p int, offset int64) (model.Message, bool, error)
	settle  func(topic string, h model.Handle, op model.SettleOp) error

	mu       sync.Mutex
	released []model.Handle
}

func (q *queue) Consume(ctx context.Context, r ConsumeRequest) ([]model.Delivery, error) {
	return q.consume(ctx, r)
}

func (q *queue) Read(_ context.Context, topic string, p int, offset int64) (model.Message, bool, error) {
	return q.read(topic, p, offset)
}

func (q *queue) Settle(_ context.Context, topic string, h model.Handle, op model.SettleOp) error {
	return q.settle(topic, h, op)
}

func (q *queue) Release(_ string, h model.Handle) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.released = append(q.released, h)
}

func (q *queue) back() []model.Handle {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.released)
}

// leased is n deliveries of one topic with payloads of size bytes.
func leased(topic string, n, size int) []model.Delivery {
	ds := make([]model.Delivery, n)
	for i := range ds {
		ds[i] = model.Delivery{
			Message: model.Message{Topic: topic, Partition: 2, Offset: int64(i), Key: fmt.Appendf(nil, "k%d", i), Payload: make([]byte, size), CommittedAt: 1_700_000_000_000},
			Handle:  model.Handle{Partition: 2, Offset: int64(i), Nonce: int64(100 + i)}, Count: 1,
		}
	}
	return ds
}

func handles(ds []model.Delivery) (hs []model.Handle) {
	for i := range ds {
		hs = append(hs, ds[i].Handle)
	}
	return hs
}

func TestConsume(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	asked := make(chan ConsumeRequest, 1)
	q := &queue{}
	q.consume = func(_ context.Context, r ConsumeRequest) ([]model.Delivery, error) {
		asked <- r
		return leased(r.Topic, r.Max, 10), nil
	}
	ServeQueue(n, model.LevelNewest, q)
	for _, r := range []ConsumeRequest{
		{Topic: "t", Partition: AnyPartition, Max: 1},
		{Topic: "t", Partition: 2, Max: 100, Wait: 3 * time.Second},
		{Topic: "t", Partition: AnyPartition, Max: 5, Claim: true},
	} {
		got, err := c.Consume(t.Context(), n.Addr(), r)
		if err != nil || !reflect.DeepEqual(got, leased("t", r.Max, 10)) {
			t.Fatalf("%+v: %d deliveries, %v", r, len(got), err)
		}
		if r.Claim {
			r.Claimer = "narad-1"
		}
		if served := <-asked; served != r {
			t.Errorf("served %+v, want %+v", served, r)
		}
	}
	nothing := &queue{consume: func(context.Context, ConsumeRequest) ([]model.Delivery, error) { return nil, nil }}
	ServeQueue(n, model.LevelNewest, nothing)
	if got, err := c.Consume(t.Context(), n.Addr(), ConsumeRequest{Topic: "t", Max: 1}); got != nil || err != nil {
		t.Errorf("nothing there: %v, %v", got, err)
	}
	if back := q.back(); back != nil {
		t.Errorf("released %v", back)
	}
	for _, r := range []ConsumeRequest{{Topic: "t"}, {Topic: "t", Max: 101}, {Max: 1}, {Topic: "t", Max: 1, Wait: -1}, {Topic: "t", Max: 1, Wait: MaxWait + 1}, {Topic: "t", Max: 1, Partition: -2}} {
		if _, err := c.Consume(t.Context(), n.Addr(), r); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestReplay(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	q := &queue{read: func(topic string, p int, offset int64) (model.Message, bool, error) {
		switch offset {
		case 0:
			return model.Message{}, false, &model.AgedOutError{Offset: 0, Oldest: 5}
		case 9:
			return model.Message{}, false, nil
		case 8: // of another place
			return model.Message{Topic: topic, Partition: p, Offset: 7}, true, nil
		}
		return model.Message{Topic: topic, Partition: p, Offset: offset, Payload: []byte("v"), CommittedAt: 6}, true, nil
	}}
	ServeQueue(n, model.LevelNewest, q)
	got, ok, err := c.Read(t.Context(), n.Addr(), "t", 4, 6)
	if want := (model.Message{Topic: "t", Partition: 4, Offset: 6, Payload: []byte("v"), CommittedAt: 6}); err != nil || !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v, %v", got, ok, err)
	}
	if _, ok, err := c.Read(t.Context(), n.Addr(), "t", 4, 9); ok || err != nil {
		t.Errorf("not written yet: %v, %v", ok, err)
	}
	var aged *model.AgedOutError
	if _, _, err := c.Read(t.Context(), n.Addr(), "t", 4, 0); !errors.As(err, &aged) || aged.Oldest != 5 {
		t.Errorf("aged out: %v", err)
	}
	if _, _, err := c.Read(t.Context(), n.Addr(), "t", 4, 8); err == nil {
		t.Error("a record of another offset was taken for it")
	}
	if _, _, err := c.Read(t.Context(), n.Addr(), "t", 4, -1); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("offset -1: %v", err)
	}
}

// A reply that would pass 8 MiB is cut, and what is cut is put back at once.
func TestConsumeReleasesWhatDoesNotFit(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	all := leased("t", 10, 1<<20)
	q := &queue{consume: func(context.Context, ConsumeRequest) ([]model.Delivery, error) { return all, nil }}
	ServeQueue(n, model.LevelNewest, q)
	got, err := c.Consume(t.Context(), n.Addr(), ConsumeRequest{Topic: "t", Partition: AnyPartition, Max: 10, Wait: time.Second})
	if err != nil || len(got) != 7 {
		t.Fatalf("%d deliveries, %v", len(got), err)
	}
	if back := q.back(); !slices.Equal(back, handles(all[7:])) {
		t.Errorf("released %v", back)
	}
}

// Records that were reserved for a caller who left are put back, whichever side of the
// reply it left on (spec/consume-and-delivery section 9).
func TestConsumeReleasesWhatNobodyReads(t *testing.T) {
	all := leased("t", 3, 10)
	request := ConsumeRequest{Topic: "t", Partition: AnyPartition, Max: 3, Wait: time.Minute}

	t.Run("left while it was served", func(t *testing.T) {
		n, c := newNode(t), newCaller(t, model.LevelNewest)
		entered := make(chan struct{})
		q := &queue{consume: func(ctx context.Context, _ ConsumeRequest) ([]model.Delivery, error) {
			close(entered)
			<-ctx.Done()
			return all, nil // reserved at the same moment
		}}
		ServeQueue(n, model.LevelNewest, q)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-entered
			cancel()
		}()
		if _, err := c.Consume(ctx, n.Addr(), request); !errors.Is(err, context.Canceled) {
			t.Errorf("consume: %v", err)
		}
		testutil.Eventually(t, 5*time.Second, func() bool { return slices.Equal(q.back(), handles(all)) }, "the records are put back")
	})

	t.Run("with an error and records", func(t *testing.T) {
		n, c := newNode(t), newCaller(t, model.LevelNewest)
		q := &queue{consume: func(context.Context, ConsumeRequest) ([]model.Delivery, error) { return all, model.ErrUnavailable }}
		ServeQueue(n, model.LevelNewest, q)
		if _, err := c.Consume(t.Context(), n.Addr(), request); !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("consume: %v", err)
		}
		if back := q.back(); !slices.Equal(back, handles(all)) {
			t.Errorf("released %v", back)
		}
	})

	t.Run("the reply can be taken back", func(t *testing.T) {
		q := &queue{consume: func(context.Context, ConsumeRequest) ([]model.Delivery, error) { return all, nil }}
		res, err := serveConsume(t.Context(), q, request)
		if err != nil || res.Undelivered == nil || q.back() != nil {
			t.Fatalf("served with %v, released %v", err, q.back())
		}
		res.Undelivered()
		if back := q.back(); !slices.Equal(back, handles(all)) {
			t.Errorf("released %v", back)
		}
	})
}

// What may wait holds no slot of the messaging gate; what does not, does.
func TestConsumeGate(t *testing.T) {
	for wait, want := range map[time.Duration]noderpc.Gate{0: noderpc.GateMessaging, time.Millisecond: noderpc.GateNone} {
		m := consumeMessage{ConsumeRequest{Topic: "t", Max: 3, Wait: wait}, queueOffset}
		var e noderpc.Encoder
		if _, err := m.encode(&e); err != nil {
			t.Fatal(err)
		}
		if got := consumeGate(e); got != want {
			t.Errorf("wait %s: gate %d, want %d", wait, got, want)
		}
	}
	if consumeGate(nil) != noderpc.GateMessaging {
		t.Error("a request that cannot be read passes no gate")
	}
}

// A long poll has its wait and 2 s; a probe 500 ms, whatever its caller allows.
func TestConsumeBudgets(t *testing.T) {
	c := newCaller(t, model.LevelNewest)
	var left time.Duration
	c.wire.hold = func(ctx context.Context, _ noderpc.Op) error {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		return ErrUnreached
	}
	for _, x := range []struct {
		r    ConsumeRequest
		want time.Duration
	}{
		{ConsumeRequest{Topic: "t", Max: 1, Wait: 20 * time.Second}, 22 * time.Second},
		{ConsumeRequest{Topic: "t", Max: 1}, 500 * time.Millisecond},
		{ConsumeRequest{Topic: "t", Max: 1, Claim: true}, 500 * time.Millisecond},
	} {
		if _, err := c.Consume(t.Context(), "127.0.0.1:1", x.r); !errors.Is(err, ErrUnreached) {
			t.Fatal(err)
		}
		if left > x.want || left < x.want-300*time.Millisecond {
			t.Errorf("%+v: %s, want %s", x.r, left, x.want)
		}
	}
}

// Whenever a caller leaves, its records are either its own or put back, never both and
// never neither, over the whole way there and back.
func TestReservedRecordsHaveOneEnd(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	var next atomic.Int64
	q := &queue{consume: func(context.Context, ConsumeRequest) ([]model.Delivery, error) {
		d := leased("t", 1, 10)
		d[0].Handle.Nonce = next.Add(1)
		return d, nil
	}}
	ServeQueue(n, model.LevelNewest, q)
	if _, err := c.Consume(t.Context(), n.Addr(), ConsumeRequest{Topic: "t", Max: 1}); err != nil { // connects
		t.Fatal(err)
	}
	var mu sync.Mutex
	delivered := map[int64]bool{1: true}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 1))
			for range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(3000))*time.Microsecond)
				got, err := c.Consume(ctx, n.Addr(), ConsumeRequest{Topic: "t", Max: 1, Wait: time.Second})
				cancel()
				if err == nil {
					mu.Lock()
					delivered[got[0].Handle.Nonce] = true
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	// One that is served late, after its caller left, may be beyond the count.
	var reserved int64
	ends := map[int64]int{}
	testutil.Eventually(t, 5*time.Second, func() bool {
		reserved = next.Load()
		clear(ends)
		for nonce := range delivered {
			ends[nonce]++
		}
		for _, h := range q.back() {
			ends[h.Nonce]++
		}
		for nonce := int64(1); nonce <= reserved; nonce++ {
			if ends[nonce] == 0 {
				return false
			}
		}
		return true
	}, "every record has an end")
	for nonce, n := range ends {
		if n != 1 {
			t.Errorf("record %d has %d ends", nonce, n)
		}
	}
	t.Logf("%d records reserved, %d delivered", reserved, len(delivered))
}
