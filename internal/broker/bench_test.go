package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

// benchBroker runs on the real clock and the simulated volume, so that the figures are
// the broker's and not a disk's.
func benchBroker(b *testing.B) *Broker {
	b.Helper()
	topics := &replica{views: map[string]*model.TopicView{}}
	topics.set("orders", view("orders", 3, func(v *model.TopicView) { v.MaxInFlight = 1 << 20 }))
	br, err := Open(Options{
		FS: disk.NewSim(1), DataDir: "/data", Node: node, Topics: topics, Clock: clock.Real(), Logger: telemetry.Discard(),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { br.Close() })
	return br
}

func perMessage(b *testing.B, messages int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(messages), "ns/msg")
}

func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			br, ctx := benchBroker(b), context.Background()
			rs := make([]model.Record, n)
			for i := range rs {
				rs[i] = model.Record{Payload: make([]byte, 256)}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := br.Commit(ctx, "orders", 0, rs); err != nil {
					b.Fatal(err)
				}
			}
			perMessage(b, b.N*n)
		})
	}
}

func BenchmarkCommitParallel(b *testing.B) {
	br, ctx := benchBroker(b), context.Background()
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		rs := []model.Record{{Payload: make([]byte, 256)}}
		for pb.Next() {
			if _, err := br.Commit(ctx, "orders", 0, rs); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkConsumeAck(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			br, ctx := benchBroker(b), context.Background()
			rs := make([]model.Record, 1000)
			for i := range rs {
				rs[i] = model.Record{Payload: make([]byte, 256)}
			}
			left, done := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				if left < n {
					b.StopTimer()
					if _, err := br.Commit(ctx, "orders", 0, rs); err != nil {
						b.Fatal(err)
					}
					left += len(rs)
					b.StartTimer()
				}
				ds, err := br.Consume(ctx, ConsumeRequest{Topic: "orders", Partition: -1, Max: n})
				if err != nil || len(ds) != n {
					b.Fatal(len(ds), err)
				}
				for i := range ds {
					if err := br.Settle(ctx, "orders", ds[i].Handle, model.Ack); err != nil {
						b.Fatal(err)
					}
				}
				left -= n
				done += n
			}
			perMessage(b, done)
		})
	}
}

// BenchmarkHandOver is one record through a parked consumer: commit, pump, read, ack.
func BenchmarkHandOver(b *testing.B) {
	br, ctx := benchBroker(b), context.Background()
	req := ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Minute}
	got := make(chan model.Delivery)
	stop := make(chan struct{})
	go func() {
		defer close(got)
		for {
			ds, err := br.Consume(ctx, req)
			if err != nil || len(ds) == 0 {
				return
			}
			select {
			case got <- ds[0]:
			case <-stop:
				return
			}
		}
	}()
	rs := []model.Record{{Payload: make([]byte, 256)}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := br.Commit(ctx, "orders", 0, rs); err != nil {
			b.Fatal(err)
		}
		d := <-got
		if err := br.Settle(ctx, "orders", d.Handle, model.Ack); err != nil {
			b.Fatal(err)
		}
	}
	close(stop)
	br.ReleaseWaiters()
	for range got {
	}
}

func BenchmarkConsumeEmpty(b *testing.B) {
	br, ctx := benchBroker(b), context.Background()
	if _, err := br.Commit(ctx, "orders", 0, recs(0, 1)); err != nil {
		b.Fatal(err)
	}
	req := ConsumeRequest{Topic: "orders", Partition: -1, Max: 1}
	if _, err := br.Consume(ctx, req); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if ds, _ := br.Consume(ctx, req); len(ds) != 0 {
			b.Fatal("not empty")
		}
	}
}
