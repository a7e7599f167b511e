package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

// The clock stands still, so a wake that is lost between a scan and its park shows as a
// consumer that never returns.
func TestC13_NoWakeIsLostBetweenScanAndPark(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	for i := range 3000 {
		ch := r.poll(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1 + i%2, Max: 1, Wait: time.Hour})
		r.commit("orders", 0, fmt.Sprint(i))
		p := receive(t, ch)
		if len(p.ds) != 1 {
			t.Fatalf("round %d: %+v", i, p)
		}
		r.ack(p.ds[0])
	}
}

func TestC2_C5_O4_ConcurrentConsumersShareWithoutOverlap(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 3, func(v *model.TopicView) { v.MaxInFlight, v.MaxAckedAhead = 40, 60 }))
	const messages, consumers = 3000, 12
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var seen sync.Map // payload -> deliveries
	var acked atomic.Int64
	var wg sync.WaitGroup
	for c := range consumers {
		wg.Go(func() {
			for {
				ds, err := r.b.Consume(ctx, ConsumeRequest{Topic: "orders", Partition: -1, Max: 1 + c*3, Wait: time.Hour})
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("consume: %v", err)
					}
					return
				}
				for i := range ds {
					d := ds[(i+c)%len(ds)]
					if _, dup := seen.LoadOrStore(string(d.Payload), true); dup {
						t.Errorf("%q was delivered twice with no fault", d.Payload)
					}
					if err := r.settle(d, model.Ack); err != nil {
						t.Errorf("ack: %v", err)
					}
				}
				if acked.Add(int64(len(ds))) == messages {
					cancel()
				}
			}
		})
	}
	for p := range 3 {
		wg.Go(func() {
			for i := 0; i < messages/3; i += 10 {
				if _, err := r.b.Commit(context.Background(), "orders", p, recs(p*messages+i, 10)); err != nil {
					t.Errorf("commit: %v", err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		cancel()
		<-done
		t.Fatalf("O8: stuck with %d of %d acked", acked.Load(), messages)
	}
}

// An open that fails is met only when the scan reaches it, and hides no record.
func TestUnopenablePartitionHidesNothing(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 2))
	r.commit("orders", 0, "a")
	r.commit("orders", 1, "b")
	r.reopen()
	eio := errors.New("EIO")
	r.sim.Fail(disk.Rule{Op: disk.OpAny, Path: "/data/topics/orders/p00001/*", Err: eio})
	var got []model.Delivery
	for range 2 {
		ds, err := r.b.Consume(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 10})
		if err != nil {
			wantErr(t, err, eio)
		}
		got = append(got, ds...)
	}
	if len(got) != 1 || got[0].Partition != 0 {
		t.Fatalf("delivered %v", payloads(got))
	}
	r.sim.ClearRules()
	if d := r.one("orders"); d.Partition != 1 {
		t.Fatalf("after the repair: partition %d", d.Partition)
	}
}

// Every write, sync, truncate and rename of the workload fails once, in turn.
func TestF12_F14_F15_FailEveryCall(t *testing.T) {
	for _, op := range []disk.Op{disk.OpWrite, disk.OpSync, disk.OpTruncate, disk.OpRename, disk.OpSyncDir, disk.OpOpen, disk.OpRead} {
		t.Run(op.String(), func(t *testing.T) {
			topics := crashTopics()
			var h *history
			testutil.FailPoints(t, func() *disk.Sim {
				h = newHistory()
				return newVolume(1)
			}, disk.Rule{Op: op, Err: errors.New("EIO")}, func(sim *disk.Sim) error {
				return h.workload(sim, topics)
			}, func(sim *disk.Sim, k int, failed error) {
				h.check(t, sim, topics)
				h.check(t, sim.Crash(int64(k)), topics)
			})
		})
	}
}

func TestPartitionsCanGrow(t *testing.T) {
	r := newRig(t)
	v := r.create(view("orders", 1))
	ch := r.poll(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour})
	r.awaitParked("orders", 1)
	grown := *v
	grown.Partitions, grown.Owners = 3, []string{node, node, node}
	r.create(&grown)
	r.commit("orders", 2, "a")
	if p := receive(t, ch); len(p.ds) != 1 || p.ds[0].Partition != 2 {
		t.Fatalf("%+v", p)
	}
}
