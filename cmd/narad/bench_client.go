package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/narad-mq/narad/client"
)

// batchingSenders are the goroutines that feed the batching producer.
const batchingSenders = 4

// produceBatching measures the client's batching Producer: as many batches under way
// as there are connections; the latency is that of one message, from its Send to its
// outcome, time in the producer's buffer included.
func (f *benchFlags) produceBatching(ctx context.Context, b *benchRun) error {
	p, err := b.cl.NewProducer(b.topic, client.ProducerOptions{BatchMessages: f.batch, InFlight: f.connections})
	if err != nil {
		return usageError{err}
	}
	b.senders = batchingSenders
	b.measure(ctx, batchingSenders, func(ctx context.Context, w *worker, _ int) bool {
		if !w.pace(ctx) {
			return false
		}
		sent := time.Now()
		err := p.SendAsync(ctx, client.Message{Payload: w.tmpl}, func(err error) {
			if err != nil {
				w.fail(context.Background(), err)
				return
			}
			b.messages.Add(1)
			b.mu.Lock()
			b.latency.record(time.Since(sent))
			b.mu.Unlock()
		})
		if err != nil {
			w.fail(ctx, err)
		}
		return true
	})
	if err := p.Close(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("close the producer: %w", err)
	}
	b.took = time.Since(b.start) // what was still under way counts, and its time
	return nil
}

// consumeHandlers measures the client's Consume: as many handlers as connections, each
// returning at once; no latency, as a handler sees no request.
func (f *benchFlags) consumeHandlers(ctx context.Context, b *benchRun) error {
	if err := b.fill(ctx, f.fill); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, f.duration)
	defer stop()
	var last atomic.Int64 // when the last message came, nanoseconds since the start
	var once sync.Once
	b.start = time.Now()
	handler := func(context.Context, client.Delivery) error {
		last.Store(int64(time.Since(b.start)))
		if b.messages.Add(1) >= int64(f.fill) {
			once.Do(stop)
		}
		return nil
	}
	err := b.cl.Consume(ctx, b.topic, handler, client.ConsumeOptions{Workers: f.connections, InFlight: f.connections * min(f.batch, consumeBatchMax)})
	b.took = time.Duration(max(last.Load(), 1))
	return err
}
