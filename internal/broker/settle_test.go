package broker

import (
	"context"
	"testing"

	"github.com/narad-mq/narad/internal/model"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestA_1_A_13_A_14_SettleModes(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	r.commit("orders", 0, "a", "b", "c")
	ds := r.consume("orders", 3)
	for range 2 {
		if err := r.settle(ds[0], model.Extend); err != nil {
			t.Fatal(err)
		}
	}
	r.ack(ds[0])
	if err := r.settle(ds[1], model.Nack); err != nil {
		t.Fatal(err)
	}
	wantErr(t, r.settle(ds[1], model.Ack), model.ErrNoLease)
	wantErr(t, r.settle(ds[0], model.Ack), model.ErrNoLease) // idempotent by nonce
	again := r.one("orders")
	if again.Offset != ds[1].Offset || again.Handle.Nonce == ds[1].Handle.Nonce {
		t.Fatalf("redelivered %v after %v", again.Handle, ds[1].Handle)
	}
	r.ack(again)
	r.ack(ds[2])
}

func TestA_2_DeadHandles(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	r.create(view("other", 1))
	r.commit("orders", 0, "a")
	r.commit("other", 0, "x")
	d, x := r.one("orders"), r.one("other")
	ctx := context.Background()
	bad := d.Handle
	bad.Nonce ^= 1
	lacks := d.Handle
	lacks.Partition = 7
	for name, h := range map[string]model.Handle{"wrong nonce": bad, "partition the topic lacks": lacks, "other topic's": x.Handle} {
		if err := r.b.Settle(ctx, "orders", h, model.Ack); err == nil {
			t.Errorf("%s: settled", name)
		} else {
			wantErr(t, err, model.ErrNoLease)
		}
	}
	wantErr(t, r.b.Settle(ctx, "nope", d.Handle, model.Ack), model.ErrTopicNotFound)
	if got := testutil.ToFloat64(r.b.metrics.rejected.WithLabelValues(RejectNoLease)); got != 3 {
		t.Errorf("rejected %v, want 3", got)
	}
	r.ack(d) // still live
}

func TestSettleAfterTheCallerLeftAppliesNothing(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	r.commit("orders", 0, "a")
	d := r.one("orders")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	wantErr(t, r.b.Settle(ctx, "orders", d.Handle, model.Ack), context.Canceled)
	r.ack(d)
}

func TestA_12_AcksOutOfOrderUpToBothCaps(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1, func(v *model.TopicView) { v.MaxInFlight, v.MaxAckedAhead = 50, 50 }))
	if _, err := r.b.Commit(context.Background(), "orders", 0, recs(0, 200)); err != nil {
		t.Fatal(err)
	}
	ahead := 0
	first := r.one("orders")
	for {
		ds := r.consume("orders", 49)
		if len(ds) == 0 {
			break
		}
		for i := len(ds) - 1; i >= 0; i-- { // C9: never refused for capacity
			r.ack(ds[i])
			ahead++
		}
	}
	if ahead < 50 || ahead > 100 {
		t.Fatalf("%d acks above the hole, want 50 to 100", ahead)
	}
	r.ack(first)
	if ds := r.consume("orders", 1); len(ds) != 1 {
		t.Fatal("nothing after the hole closed")
	}
}

func TestReleaseIsACountedNack(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	r.commit("orders", 0, "a")
	d := r.one("orders")
	r.b.Release("orders", d.Handle)
	r.b.Release("orders", d.Handle) // harmless
	if again := r.one("orders"); again.Count != 2 {
		t.Fatalf("count %d, want 2", again.Count)
	}
	if got := testutil.ToFloat64(r.b.metrics.traffic.For("orders", 0).Nacked); got != 1 {
		t.Errorf("nacks %v, want 1", got)
	}
	if got := testutil.ToFloat64(r.b.metrics.rejected.WithLabelValues(RejectNoLease)); got != 0 {
		t.Errorf("rejected %v, want 0", got)
	}
}

func TestC6_GracefulStopRedeliversNoAck(t *testing.T) {
	r := newRig(t)
	v := r.create(view("orders", 1))
	r.commit("orders", 0, "a", "b", "c", "d")
	ds := r.consume("orders", 3)
	r.ack(ds[0])
	r.ack(ds[2])
	r.reopen()
	wantErr(t, r.settle(ds[1], model.Ack), model.ErrNoLease)
	if err := r.b.Recover(context.Background(), r.topic.all()); err != nil {
		t.Fatal(err)
	}
	if n := r.b.openLogs.Load(); n != 0 {
		t.Fatalf("%d logs open after a clean start, want 0", n)
	}
	if st, err := r.b.Describe(v, 0); err != nil || st.HighWatermark != 4 {
		t.Fatalf("describe closed: %+v %v", st, err)
	}
	got := r.consume("orders", 10)
	if len(got) != 2 || got[0].Offset != 1 || got[1].Offset != 3 {
		t.Fatalf("after the restart: %v", payloads(got))
	}
	if got[0].Count != 1 {
		t.Errorf("count %d, want 1: a restart forgets it", got[0].Count)
	}
}

func TestCloseRefusesAcksItCouldNotKeep(t *testing.T) { // C6
	r := newRig(t)
	r.create(view("orders", 1))
	r.commit("orders", 0, "a", "b")
	ds := r.consume("orders", 2)
	r.ack(ds[0])
	r.b.entry("orders").slot(0).part.Load().EndQueue()
	wantErr(t, r.settle(ds[1], model.Ack), model.ErrShuttingDown)
	r.reopen()
	if got := r.consume("orders", 2); len(got) != 1 || got[0].Offset != 1 {
		t.Fatalf("after the restart: %v", payloads(got))
	}
}
