package client_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
)

// payload is a JSON object of n bytes.
func payload(n int) []byte {
	return fmt.Appendf(nil, `{"t":%d,"p":"%s"}`, int64(1e18), bytes.Repeat([]byte("x"), n-len(`{"t":1234567890123456789,"p":""}`)))
}

const benchBatch = 100

// requests is how many raw requests are under way at once in the benchmarks.
var requests = []int{1, 8, 32}

// BenchmarkProduceRaw is the yardstick of BenchmarkProducer: batches of 100 messages
// of 1 KiB, sent by hand.
func BenchmarkProduceRaw(b *testing.B) {
	for _, n := range requests {
		b.Run(fmt.Sprintf("requests=%d", n), func(b *testing.B) {
			c := dial(b)
			topic := newTopic(b, c, client.CreateTopic{})
			ms := make([]client.Message, benchBatch)
			for i := range ms {
				ms[i].Payload = payload(1024)
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() {
					for left.Add(-benchBatch) > -benchBatch {
						if err := c.ProduceBatch(context.Background(), topic, ms); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

func BenchmarkProducer(b *testing.B) {
	for _, n := range requests {
		b.Run(fmt.Sprintf("requests=%d", n), func(b *testing.B) {
			c := dial(b)
			topic := newTopic(b, c, client.CreateTopic{})
			p, err := c.NewProducer(topic, client.ProducerOptions{BatchMessages: benchBatch, InFlight: n})
			if err != nil {
				b.Fatal(err)
			}
			var failed atomic.Int64
			done := func(err error) {
				if err != nil {
					failed.Add(1)
				}
			}
			m := client.Message{Payload: payload(1024)}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if err := p.SendAsync(context.Background(), m, done); err != nil {
					b.Fatal(err)
				}
			}
			if err := p.Close(context.Background()); err != nil || failed.Load() > 0 {
				b.Fatalf("%d failed, %v", failed.Load(), err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

// filled is a topic with n messages of 1 KiB.
func filled(b *testing.B, c *client.Client, n int) string {
	b.Helper()
	topic := newTopic(b, c, client.CreateTopic{MaxInFlight: 100_000, MaxAckedAhead: 100_000})
	p, err := c.NewProducer(topic, client.ProducerOptions{})
	if err != nil {
		b.Fatal(err)
	}
	m := client.Message{Payload: payload(1024)}
	for range n {
		if err := p.SendAsync(context.Background(), m, nil); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	return topic
}

// BenchmarkConsumeRaw is the yardstick of BenchmarkConsume: receives of 100 and one
// batch ack for each.
func BenchmarkConsumeRaw(b *testing.B) {
	for _, n := range requests {
		b.Run(fmt.Sprintf("requests=%d", n), func(b *testing.B) {
			c := dial(b)
			topic := filled(b, c, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			var done atomic.Int64
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() {
					for done.Load() < int64(b.N) {
						ds, err := c.Receive(context.Background(), topic, client.ReceiveOptions{Max: benchBatch, Wait: 100 * time.Millisecond})
						if err != nil {
							b.Error(err)
							return
						}
						if len(ds) == 0 {
							continue
						}
						handles := make([]string, len(ds))
						for i := range ds {
							handles[i] = ds[i].Handle
						}
						if _, err := c.AckBatch(context.Background(), topic, handles); err != nil {
							b.Error(err)
							return
						}
						done.Add(int64(len(ds)))
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

func BenchmarkConsume(b *testing.B) {
	for _, n := range requests {
		b.Run(fmt.Sprintf("requests=%d", n), func(b *testing.B) {
			c := dial(b)
			topic := filled(b, c, b.N)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var done atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			err := c.Consume(ctx, topic, func(context.Context, client.Delivery) error {
				if done.Add(1) == int64(b.N) {
					cancel()
				}
				return nil
			}, client.ConsumeOptions{Workers: 16, InFlight: n * 200})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}
