package router

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/model"
)

// benchCluster is n nodes on simulated volumes in real time, with a topic of as many
// partitions, one on each.
func benchCluster(b *testing.B, n int) *cluster {
	b.Helper()
	c := newCluster(b, n, simulated)
	b.Cleanup(c.close)
	var owners []string
	for i := range n {
		owners = append(owners, fmt.Sprint("n", i))
	}
	c.create("t", owners...)
	c.wire.took = func() time.Duration { return 0 }
	return c
}

// BenchmarkConsumeHere is a record of this node, with and without other owners: the route
// is all that it costs over the broker.
func BenchmarkConsumeHere(b *testing.B) {
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			c := benchCluster(b, n)
			rs := make([]model.Record, 1000)
			for i := range rs {
				rs[i] = model.Record{Payload: make([]byte, 256)}
			}
			r, ctx, left := c.nodes[0].router, context.Background(), 0
			b.ReportAllocs()
			for b.Loop() {
				if left == 0 {
					b.StopTimer()
					if _, err := c.nodes[0].broker.Commit(ctx, "t", 0, rs); err != nil {
						b.Fatal(err)
					}
					left = len(rs)
					b.StartTimer()
				}
				ds, err := r.Consume(ctx, broker.ConsumeRequest{Topic: "t", Partition: -1, Max: 1, Wait: time.Second})
				if err != nil || len(ds) != 1 {
					b.Fatal(ds, err)
				}
				if err := r.Settle(ctx, "t", ds[0].Handle, model.Ack); err != nil {
					b.Fatal(err)
				}
				left--
			}
		})
	}
}

// BenchmarkHandOver is one record through a parked consumer of this node, or, from another
// node, through word and claim.
func BenchmarkHandOver(b *testing.B) {
	for _, tc := range []struct{ nodes, from int }{{1, 0}, {3, 0}, {3, 1}} {
		b.Run(fmt.Sprintf("nodes=%d/from=%d", tc.nodes, tc.from), func(b *testing.B) {
			c := benchCluster(b, tc.nodes)
			r, ctx := c.nodes[0].router, context.Background()
			got := make(chan model.Delivery)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					ds, err := r.Consume(ctx, broker.ConsumeRequest{Topic: "t", Partition: -1, Max: 1, Wait: time.Minute})
					if err != nil || len(ds) == 0 {
						return
					}
					got <- ds[0]
				}
			}()
			rs := []model.Record{{Payload: make([]byte, 256)}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.nodes[tc.from].broker.Commit(ctx, "t", tc.from, rs); err != nil {
					b.Fatal(err)
				}
				d := <-got
				if err := r.Settle(ctx, "t", d.Handle, model.Ack); err != nil {
					b.Fatal(err)
				}
			}
			c.nodes[0].broker.ReleaseWaiters()
			<-done
		})
	}
}
