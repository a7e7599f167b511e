package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/narad-mq/narad/client"
)

// benchRun is one measurement under way.
type benchRun struct {
	stdio
	verb  string
	flags *benchFlags
	cl    *client.Client
	taker *client.Client // whom messages are consumed from and acked to; cl, or one of another node
	topic string
	// senders is how many workers share the rate.
	senders int

	start    time.Time
	took     time.Duration
	messages atomic.Int64 // done: produced, or consumed and acked
	failed   atomic.Int64 // requests that failed
	lastErr  atomic.Pointer[error]

	produced atomic.Int64 // e2e: what went in, beside messages that came out

	mu      sync.Mutex // guards latency
	latency histogram
}

func newBenchRun(verb string, f *benchFlags, cl *client.Client, io stdio) *benchRun {
	return &benchRun{stdio: io, verb: verb, flags: f, cl: cl, taker: cl, topic: f.topic, senders: f.connections}
}

// prepare makes the run's topic; the function it returns deletes it again.
func (b *benchRun) prepare(ctx context.Context) (cleanup func() error, err error) {
	if b.topic != "" {
		_, err := b.cl.DescribeTopic(ctx, b.topic)
		if err != nil {
			return nil, fmt.Errorf("bench topic %q: %w", b.topic, err)
		}
		return func() error { return nil }, nil
	}
	b.topic = fmt.Sprintf("bench-%08x", rand.Uint32())
	_, err = b.cl.CreateTopic(ctx, client.CreateTopic{Name: b.topic, Partitions: b.flags.partitions})
	if err != nil {
		return nil, fmt.Errorf("create bench topic %q: %w", b.topic, err)
	}
	return func() error {
		if err := b.cl.DeleteTopic(context.WithoutCancel(ctx), b.topic); err != nil {
			return fmt.Errorf("delete bench topic %q: %w", b.topic, err)
		}
		return nil
	}, nil
}

// worker is one connection of a run.
type worker struct {
	run     *benchRun
	latency histogram
	next    time.Time     // when a paced worker may send again
	period  time.Duration // between requests; 0 = no pacing
	tmpl    template
	batch   []client.Message
}

// measure runs n workers until the duration is over, then merges what they measured.
// loop is called again and again; it returns false to end its worker.
func (b *benchRun) measure(ctx context.Context, n int, loop func(context.Context, *worker, int) bool) {
	ctx, cancel := context.WithTimeout(ctx, b.flags.duration)
	defer cancel()
	var wg sync.WaitGroup
	b.start = time.Now()
	for i := range n {
		wg.Go(func() {
			w := b.newWorker()
			for ctx.Err() == nil && loop(ctx, w, i) {
			}
			b.mu.Lock()
			b.latency.merge(&w.latency)
			b.mu.Unlock()
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	b.progress(done)
	b.took = time.Since(b.start)
}

func (b *benchRun) newWorker() *worker {
	w := &worker{run: b, tmpl: b.flags.message.copy(), next: time.Now()}
	if b.flags.rate > 0 {
		w.period = time.Duration(float64(b.senders*b.flags.batch) / b.flags.rate * float64(time.Second))
		w.next = w.next.Add(time.Duration(rand.Int64N(int64(w.period) + 1)))
	}
	return w
}

// progress prints a line every half second on a terminal until done.
func (b *benchRun) progress(done <-chan struct{}) {
	if !interactive(b.err) {
		<-done
		return
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	var last int64
	for {
		select {
		case <-done:
			fmt.Fprint(b.err, "\r"+strings.Repeat(" ", 70)+"\r")
			return
		case <-tick.C:
			n := b.messages.Load()
			fmt.Fprintf(b.err, "\r%s: %6.1f s  %9d messages  %8.0f msg/s  %d errors ", b.verb,
				time.Since(b.start).Seconds(), n, float64(n-last)/progressEvery.Seconds(), b.failed.Load())
			last = n
		}
	}
}

// pace waits until the worker may send; false = the run is over.
func (w *worker) pace(ctx context.Context) bool {
	if w.period == 0 {
		return true
	}
	if d := time.Until(w.next); d > 0 && !pause(ctx, d) {
		return false
	}
	w.next = w.next.Add(w.period)
	return true
}

// fail counts a failed request and slows its worker down, so that a refusing server
// is not flooded. Errors from the end of the run do not count.
func (w *worker) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	w.run.failed.Add(1)
	w.run.lastErr.Store(&err)
	pause(ctx, retryDelayFirst)
}

// produceOnce sends one request's worth of messages.
func (w *worker) produceOnce(ctx context.Context) (n int, err error) {
	b := w.run
	w.tmpl.stamp(time.Now().UnixNano())
	m := client.Message{Payload: w.tmpl}
	// A request that was sent is waited for: the count must be of answered messages.
	ctx = context.WithoutCancel(ctx)
	if b.flags.batch == 1 {
		return 1, b.cl.Produce(ctx, b.topic, m)
	}
	w.batch = w.batch[:0]
	for range b.flags.batch {
		w.batch = append(w.batch, m)
	}
	return len(w.batch), b.cl.ProduceBatch(ctx, b.topic, w.batch)
}

// produce measures narad bench produce.
func (f *benchFlags) produce(ctx context.Context, b *benchRun) error {
	if f.batching {
		return f.produceBatching(ctx, b)
	}
	b.measure(ctx, f.connections, func(ctx context.Context, w *worker, _ int) bool {
		if !w.pace(ctx) {
			return false
		}
		t := time.Now()
		n, err := w.produceOnce(ctx)
		if err != nil {
			w.fail(ctx, err)
			return true
		}
		w.latency.record(time.Since(t))
		b.messages.Add(int64(n))
		return true
	})
	return nil
}

// fill stores n messages in batches before a consume run.
func (b *benchRun) fill(ctx context.Context, n int) error {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for range 8 {
		wg.Go(func() {
			m := client.Message{Payload: b.flags.message.copy()}
			size := max(1, min(100, (4<<20)/b.flags.size))
			for failed.Load() == nil && left.Add(int64(-size)) > int64(-size) {
				ms := make([]client.Message, size)
				for i := range ms {
					ms[i] = m
				}
				if err := b.cl.ProduceBatch(ctx, b.topic, ms); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return fmt.Errorf("fill topic %q: %w", b.topic, *err)
	}
	return nil
}

// consume measures narad bench consume.
func (f *benchFlags) consume(ctx context.Context, b *benchRun) error {
	if f.fill < 0 {
		return usageError{fmt.Errorf("--fill %d: want 0 or more", f.fill)}
	}
	if f.handlers {
		return f.consumeHandlers(ctx, b)
	}
	if err := b.fill(ctx, f.fill); err != nil {
		return err
	}
	b.measure(ctx, f.connections, func(ctx context.Context, w *worker, _ int) bool {
		if !w.pace(ctx) {
			return false
		}
		t := time.Now()
		ds, err := w.take(ctx, time.Second)
		if err == nil && len(ds) == 0 {
			return false
		}
		if err == nil {
			err = w.settle(ctx, ds)
		}
		if err != nil {
			w.fail(ctx, err)
			return true
		}
		w.latency.record(time.Since(t))
		return true
	})
	return nil
}

// take leases one request's worth of messages.
func (w *worker) take(ctx context.Context, wait time.Duration) ([]client.Delivery, error) {
	b := w.run
	return b.taker.Receive(ctx, b.topic, client.ReceiveOptions{Wait: wait, Max: min(b.flags.batch, consumeBatchMax)})
}

// settle acks what take leased and counts it.
func (w *worker) settle(ctx context.Context, ds []client.Delivery) (err error) {
	b := w.run
	ctx = context.WithoutCancel(ctx)
	if len(ds) == 1 {
		err = b.taker.Ack(ctx, b.topic, ds[0].Handle)
	} else {
		handles := make([]string, len(ds))
		for i := range ds {
			handles[i] = ds[i].Handle
		}
		var each []error
		if each, err = b.taker.AckBatch(ctx, b.topic, handles); err == nil {
			err = errors.Join(each...)
		}
	}
	if err == nil {
		b.messages.Add(int64(len(ds)))
	}
	return err
}

// e2e measures narad bench e2e: even workers produce, odd ones consume and ack.
func (f *benchFlags) e2e(ctx context.Context, b *benchRun) error {
	if f.connections < 2 {
		return usageError{fmt.Errorf("--connections %d: e2e needs at least 2", f.connections)}
	}
	b.senders = (f.connections + 1) / 2
	b.measure(ctx, f.connections, func(ctx context.Context, w *worker, i int) bool {
		if i%2 == 1 {
			return w.consumeTimed(ctx)
		}
		if !w.pace(ctx) {
			return false
		}
		n, err := w.produceOnce(ctx)
		if err != nil {
			w.fail(ctx, err)
			return true
		}
		b.produced.Add(int64(n))
		return true
	})
	return nil
}

// consumeTimed takes messages, records how old each was on arrival, and acks them.
func (w *worker) consumeTimed(ctx context.Context) bool {
	ds, err := w.take(ctx, time.Second)
	now := time.Now().UnixNano()
	if err == nil && len(ds) > 0 {
		for _, d := range ds {
			if sent := stampOf(d.Payload); sent > 0 {
				w.latency.record(time.Duration(now - sent))
			}
		}
		err = w.settle(ctx, ds)
	}
	if err != nil {
		w.fail(ctx, err)
	}
	return true
}
