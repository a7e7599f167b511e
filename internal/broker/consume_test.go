package broker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

func TestC_1_DeliversWithALease(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 3))
	if off, err := r.b.Commit(context.Background(), "orders", 1, []model.Record{{Key: []byte("k"), Payload: []byte("a")}}); err != nil || off != 0 {
		t.Fatalf("commit: offset %d, %v", off, err)
	}
	d := r.one("orders")
	if d.Topic != "orders" || d.Partition != 1 || d.Offset != 0 || string(d.Key) != "k" || string(d.Payload) != "a" {
		t.Errorf("delivered %+v", d)
	}
	if d.Handle.Partition != 1 || d.Handle.Offset != 0 || d.Handle.Nonce <= 0 || d.Count != 1 {
		t.Errorf("handle %v count %d", d.Handle, d.Count)
	}
	if d.CommittedAt != r.clk.Now().UnixMilli() {
		t.Errorf("committed at %d, want %d", d.CommittedAt, r.clk.Now().UnixMilli())
	}
	r.none("orders") // C2: one live lease
	r.ack(d)
	r.none("orders")
}

func TestConsumeRefusals(t *testing.T) {
	r := newRig(t)
	v := view("orders", 3, func(v *model.TopicView) { v.Owners[2] = "n2" })
	r.create(v)
	ctx := context.Background()
	for _, c := range []struct {
		req  ConsumeRequest
		want error
	}{
		{ConsumeRequest{Topic: "nope", Partition: -1, Max: 1}, model.ErrTopicNotFound},
		{ConsumeRequest{Topic: "orders", Partition: 3, Max: 1}, model.ErrInvalid},
		{ConsumeRequest{Topic: "orders", Partition: 2, Max: 1}, model.ErrNotOwner},
		{ConsumeRequest{Topic: "orders", Partition: -2, Max: 1}, model.ErrInvalid},
		{ConsumeRequest{Topic: "orders", Partition: -1, Max: 0}, model.ErrInvalid},
		{ConsumeRequest{Topic: "orders", Partition: -1, Max: 101}, model.ErrInvalid},
	} {
		_, err := r.b.Consume(ctx, c.req)
		wantErr(t, err, c.want)
	}
	_, err := r.b.Commit(ctx, "nope", 0, recs(0, 1))
	wantErr(t, err, model.ErrTopicNotFound)
	_, err = r.b.Commit(ctx, "orders", 3, recs(0, 1))
	wantErr(t, err, model.ErrInvalid)
	_, err = r.b.Commit(ctx, "orders", 2, recs(0, 1))
	wantErr(t, err, model.ErrNotOwner)
	_, err = r.b.Commit(ctx, "orders", 0, nil)
	wantErr(t, err, model.ErrInvalid)
	_, _, err = r.b.Read(ctx, "orders", 0, -1)
	wantErr(t, err, model.ErrInvalid)
}

func TestBatchConsumeStaysOnAPartitionUntilDry(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 2))
	for p := range 2 {
		if _, err := r.b.Commit(context.Background(), "orders", p, recs(p*100, 60)); err != nil {
			t.Fatal(err)
		}
	}
	ds := r.consume("orders", 100)
	if len(ds) != 100 {
		t.Fatalf("%d messages, want 100", len(ds))
	}
	for i := range ds {
		if want := ds[0].Partition; i < 60 && (ds[i].Partition != want || ds[i].Offset != int64(i)) {
			t.Fatalf("message %d is %d/%d", i, ds[i].Partition, ds[i].Offset)
		}
	}
	if rest := r.consume("orders", 100); len(rest) != 20 {
		t.Fatalf("%d messages left, want 20", len(rest))
	}
}

func TestScanStopsAtTheByteBound(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	var rs []model.Record
	for range 6 {
		rs = append(rs, model.Record{Payload: make([]byte, 1<<20)})
	}
	if _, err := r.b.Commit(context.Background(), "orders", 0, rs); err != nil {
		t.Fatal(err)
	}
	// 4 MiB are reached with the fourth record, which is kept.
	if ds := r.consume("orders", 100); len(ds) != 4 {
		t.Fatalf("%d messages of 1 MiB, want 4", len(ds))
	}
	// What was reserved past the bound was given back uncounted.
	ds := r.consume("orders", 100)
	if len(ds) != 2 || ds[0].Offset != 4 || ds[0].Count != 1 {
		t.Fatalf("%d messages, first %+v", len(ds), ds[0].Handle)
	}
}

func TestC1_NothingPastTheHighWatermark(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	if _, ok, err := r.b.Read(context.Background(), "orders", 0, 0); ok || err != nil {
		t.Fatalf("read of an empty partition: %v %v", ok, err)
	}
	r.commit("orders", 0, "a", "b")
	if m, ok, err := r.b.Read(context.Background(), "orders", 0, 1); !ok || err != nil || string(m.Payload) != "b" {
		t.Fatalf("read: %v %v %q", ok, err, m.Payload)
	}
	if _, ok, err := r.b.Read(context.Background(), "orders", 0, 2); ok || err != nil {
		t.Fatalf("read at the high watermark: %v %v", ok, err)
	}
}

func TestC_11_InFlightCap(t *testing.T) {
	r := newRig(t)
	v := r.create(view("orders", 1, func(v *model.TopicView) { v.MaxInFlight = 2 }))
	r.commit("orders", 0, "a", "b", "c")
	ds := r.consume("orders", 10)
	if len(ds) != 2 {
		t.Fatalf("%d leases, want 2", len(ds))
	}
	r.none("orders")
	// A raised cap reaches the live table and wakes who waits.
	ch := r.poll(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Minute})
	r.awaitParked("orders", 1)
	raised := *v
	raised.MaxInFlight = 3
	r.create(&raised)
	if p := receive(t, ch); len(p.ds) != 1 || string(p.ds[0].Payload) != "c" {
		t.Fatalf("after raising the cap: %v %v", payloads(p.ds), p.err)
	}
}

func TestC_12_AckedAheadCap(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1, func(v *model.TopicView) { v.MaxAckedAhead = 2 }))
	r.commit("orders", 0, "a", "b", "c", "d")
	ds := r.consume("orders", 3)
	r.ack(ds[1])
	r.ack(ds[2])
	r.none("orders") // the set is full and the frontier is leased
	if err := r.settle(ds[0], model.Nack); err != nil {
		t.Fatal(err)
	}
	if d := r.one("orders"); d.Offset != 0 || d.Count != 2 {
		t.Fatalf("offered offset %d count %d, want the frontier hole a second time", d.Offset, d.Count)
	} else {
		r.ack(d)
	}
	if d := r.one("orders"); d.Offset != 3 {
		t.Fatalf("offered offset %d, want 3", d.Offset)
	}
}

func TestC_22_NackAndExpiryWakeTheNextWaiter(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	r.commit("orders", 0, "a")
	d := r.one("orders")
	ch := r.poll(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour})
	r.awaitParked("orders", 1)
	if err := r.settle(d, model.Nack); err != nil {
		t.Fatal(err)
	}
	p := receive(t, ch)
	if len(p.ds) != 1 || p.ds[0].Count != 2 {
		t.Fatalf("after the nack: %+v", p)
	}
	ch = r.poll(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour})
	r.awaitParked("orders", 1)
	r.clk.Advance(30 * time.Second) // V
	r.clk.Advance(time.Second)      // C7: at most a second more
	if p = receive(t, ch); len(p.ds) != 1 || p.ds[0].Count != 3 {
		t.Fatalf("after the expiry: %+v", p)
	}
	wantErr(t, r.settle(d, model.Ack), model.ErrNoLease)
}

func TestC_20_DeleteEndsTheLongPoll(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	any := r.poll(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour})
	pinned := r.poll(context.Background(), ConsumeRequest{Topic: "orders", Partition: 0, Max: 1, Wait: time.Hour})
	r.awaitParked("orders", 2)
	r.remove("orders")
	for _, ch := range []<-chan polled{any, pinned} {
		wantErr(t, receive(t, ch).err, model.ErrTopicNotFound)
	}
}

func TestReleaseWaitersEndsEveryLongPoll(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	ch := r.poll(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour})
	r.awaitParked("orders", 1)
	r.b.ReleaseWaiters()
	if p := receive(t, ch); p.ds != nil || p.err != nil {
		t.Fatalf("released: %+v", p)
	}
	r.create(view("later", 1)) // also on a topic first seen afterwards
	for _, name := range []string{"orders", "later"} {
		if ds, err := r.b.Consume(context.Background(), ConsumeRequest{Topic: name, Partition: -1, Max: 1, Wait: time.Hour}); ds != nil || err != nil {
			t.Fatalf("consume of %s after release: %v %v", name, ds, err)
		}
	}
}

func TestWaitEndsOnTime(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	ch := r.poll(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: 10 * time.Second})
	r.awaitParked("orders", 1)
	if p := advanceUntil(r, ch, time.Second, 12); p.ds != nil || p.err != nil {
		t.Fatalf("at the end of the wait: %+v", p)
	}
	r.awaitParked("orders", 0)
}

// advanceUntil moves the clock in steps until the poll returns; at most n of them.
func advanceUntil(r *rig, ch <-chan polled, step time.Duration, n int) polled {
	r.t.Helper()
	for range n {
		select {
		case p := <-ch:
			return p
		case <-time.After(5 * time.Millisecond):
			r.clk.Advance(step)
		}
	}
	return receive(r.t, ch)
}

func TestPinnedConsumersHaveTheirOwnQueue(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 2))
	ctx := context.Background()
	first := r.poll(ctx, ConsumeRequest{Topic: "orders", Partition: 1, Max: 1, Wait: time.Hour})
	r.awaitParked("orders", 1)
	second := r.poll(ctx, ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour})
	r.awaitParked("orders", 2)
	r.commit("orders", 0, "for anyone") // must pass by the pinned one, though that came first
	if p := receive(t, second); len(p.ds) != 1 || p.ds[0].Partition != 0 {
		t.Fatalf("shared waiter: %+v", p)
	}
	third := r.poll(ctx, ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour})
	r.awaitParked("orders", 2)
	r.commit("orders", 1, "pinned first")
	if p := receive(t, first); len(p.ds) != 1 || p.ds[0].Partition != 1 {
		t.Fatalf("pinned waiter: %+v", p)
	}
	r.awaitParked("orders", 1)
	r.commit("orders", 1, "then the rest")
	if p := receive(t, third); len(p.ds) != 1 {
		t.Fatalf("shared waiter: %+v", p)
	}
}

func TestC13_EveryRecordWakesExactlyOneOf5000(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 3))
	const parked, records = 5000, 40
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	got := make(chan polled, parked)
	for range parked {
		go func() {
			ds, err := r.b.Consume(ctx, ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour})
			got <- polled{ds, err}
		}()
	}
	r.awaitParked("orders", parked)
	seen := map[string]bool{}
	for i := range records {
		r.commit("orders", i%3, fmt.Sprint(i))
		p := receive(t, got)
		if p.err != nil || len(p.ds) != 1 || seen[string(p.ds[0].Payload)] {
			t.Fatalf("record %d: %+v", i, p)
		}
		seen[string(p.ds[0].Payload)] = true
		if n := r.b.entry("orders").waiters.parked.Load(); n != int64(parked-i-1) {
			t.Fatalf("%d parked after %d records, want %d", n, i+1, parked-i-1)
		}
	}
	if len(got) != 0 {
		t.Fatalf("%d consumers woke for nothing", len(got))
	}
	cancel()
	for range parked - records {
		wantErr(t, receive(t, got).err, context.Canceled)
	}
	r.awaitParked("orders", 0)
}

func TestC10_HangUpDuringHandOverStrandsNothing(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	for i := range 300 {
		ctx, cancel := context.WithCancel(context.Background())
		ch := r.poll(ctx, ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour})
		r.awaitParked("orders", 1)
		done := make(chan struct{})
		go func() {
			cancel()
			close(done)
		}()
		r.commit("orders", 0, fmt.Sprint(i))
		p := receive(t, ch)
		<-done
		if p.err != nil {
			wantErr(t, p.err, context.Canceled)
			if p.ds = r.consume("orders", 1); len(p.ds) != 1 { // C-21: free at once, not after V
				t.Fatalf("round %d: the record of a hung-up consumer is not available", i)
			}
		}
		if d := p.ds[0]; string(d.Payload) != fmt.Sprint(i) || d.Count != 1 {
			t.Fatalf("round %d: delivered %q count %d", i, d.Payload, d.Count)
		}
		r.ack(p.ds[0])
	}
}

func TestPumpTopsUpABatch(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 3))
	ch := r.poll(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 10, Wait: time.Hour})
	r.awaitParked("orders", 1)
	r.commit("orders", 2, "a", "b", "c")
	p := receive(t, ch)
	if got := payloads(p.ds); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Fatalf("batch %v, %v", got, p.err)
	}
}
