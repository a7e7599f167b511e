package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Defaults of ProducerOptions.
const (
	DefaultBatchMessages = 500
	DefaultBatchBytes    = 1 << 20 // past it a node counts the body against a budget of its own
	DefaultLinger        = 5 * time.Millisecond
	DefaultBatchesSent   = 4
	DefaultBufferBytes   = 32 << 20
)

// ProducerOptions shape a Producer; a zero field takes the default above.
type ProducerOptions struct {
	BatchMessages int // most messages of one request, up to BatchMessagesMax
	BatchBytes    int // most bytes of one request as encoded, up to BatchBytesMax; a larger message goes alone
	// Linger is how long a message waits for others while a request is under way.
	// With none under way it is sent at once.
	Linger time.Duration
	// InFlight is how many requests may be under way at once. Messages with the same
	// key sent one after the other keep their order only with 1, and only while
	// nothing fails and one node is used.
	InFlight int
	// BufferMessages and BufferBytes (as encoded) bound what was taken and has no
	// outcome yet; at the bound Send waits. One message is always taken. The default
	// of BufferMessages is two batches for each request: one sent, one gathering.
	BufferMessages int
	BufferBytes    int
}

func (o *ProducerOptions) fill() error {
	for _, f := range []struct {
		name     string
		v        *int
		def, max int
	}{
		{"BatchMessages", &o.BatchMessages, DefaultBatchMessages, BatchMessagesMax},
		{"BatchBytes", &o.BatchBytes, DefaultBatchBytes, BatchBytesMax},
		{"InFlight", &o.InFlight, DefaultBatchesSent, 1024},
		{"BufferMessages", &o.BufferMessages, 2 * cmp.Or(o.InFlight, DefaultBatchesSent) * cmp.Or(o.BatchMessages, DefaultBatchMessages), 1 << 24},
		{"BufferBytes", &o.BufferBytes, DefaultBufferBytes, 1 << 34},
	} {
		if *f.v == 0 {
			*f.v = f.def
		}
		if *f.v < 1 || *f.v > f.max {
			return fmt.Errorf("narad client: producer: %s %d: want 1 to %d", f.name, *f.v, f.max)
		}
	}
	if o.Linger == 0 {
		o.Linger = DefaultLinger
	}
	if o.Linger < 0 {
		return fmt.Errorf("narad client: producer: linger %v: want 0 or more", o.Linger)
	}
	return nil
}

// Producer gathers the messages of many goroutines into batches and keeps several
// batches under way. It is safe for concurrent use. An idle one has no goroutine and
// no timer.
type Producer struct {
	c     *Client
	topic string
	opt   ProducerOptions
	ctx   context.Context // of the requests; ended by a Close that runs out of time
	stop  context.CancelFunc
	small sync.Pool // *[]byte, for one message each
	large sync.Pool // *[]byte, for one batch each

	mu       sync.Mutex // guards below
	open     *batch     // takes messages; nil = none does
	ready    []*batch   // full or overdue, waiting for a free request
	live     map[*batch]struct{}
	sending  int // requests under way: one goroutine each
	messages int // buffered, as are bytes
	bytes    int
	room     chan struct{} // closed and replaced when the buffer shrinks; nil = nobody waits
	closed   bool
	lost     error // first failure of a message sent without a callback
	timer    *time.Timer
}

// NewProducer makes a producer for one topic. Close it.
func (c *Client) NewProducer(topic string, o ProducerOptions) (*Producer, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	p := &Producer{c: c, topic: topic, opt: o, live: map[*batch]struct{}{}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p, nil
}

// Send hands m over and waits for its outcome: nil means it is stored, as Produce
// says. If ctx ends first the message may be stored all the same, and the error is
// Uncertain; if it ends before the message was taken, it is not.
func (p *Producer) Send(ctx context.Context, m Message) error {
	got := make(chan error, 1)
	if err := p.SendAsync(ctx, m, func(err error) { got <- err }); err != nil {
		return err
	}
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		return fmt.Errorf("produce to %s: %w", p.topic, &callError{err: ctx.Err(), uncertain: true, retryable: true})
	}
}

// SendAsync hands m over and returns; it waits only while the buffer is full. done is
// called once with the outcome, from a goroutine that sends: it must not block, nor
// call Flush or Close. Without done a failure is returned by the next Flush or Close.
// The producer keeps nothing of m: its bytes may be reused on return. An error means
// m was not taken, and done is not called.
func (p *Producer) SendAsync(ctx context.Context, m Message, done func(error)) error {
	if err := m.check(); err != nil {
		return fmt.Errorf("produce to %s: %w", p.topic, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("produce to %s: %w", p.topic, err)
	}
	buf := pooled(&p.small)
	defer p.small.Put(buf)
	*buf = appendMessage((*buf)[:0], &m)
	size := len(*buf)
	p.mu.Lock()
	for p.messages > 0 && (p.messages >= p.opt.BufferMessages || p.bytes+size > p.opt.BufferBytes) && !p.closed {
		if p.room == nil {
			p.room = make(chan struct{})
		}
		room := p.room
		p.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return fmt.Errorf("produce to %s: buffer is full: %w", p.topic, ctx.Err())
		}
		p.mu.Lock()
	}
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("produce to %s: %w", p.topic, ErrClosed)
	}
	p.add(*buf, done)
	return nil
}

// add puts an encoded message into a batch and sends what is due; with mu held.
func (p *Producer) add(encoded []byte, done func(error)) {
	if b := p.open; b != nil && len(b.body)+1+len(encoded)+len(batchTail) > p.opt.BatchBytes {
		p.seal()
	}
	if p.open == nil {
		p.open = p.newBatch()
		p.live[p.open] = struct{}{}
	}
	b := p.open
	b.add(encoded, done)
	p.messages++
	p.bytes += len(encoded)
	switch {
	case len(b.items) >= p.opt.BatchMessages || len(b.body) >= p.opt.BatchBytes, p.sending == 0:
		p.seal()
	case len(b.items) == 1:
		p.linger(b)
	}
}

// linger seals b when its time is over, if it is still open then; with mu held.
func (p *Producer) linger(b *batch) {
	p.timer = time.AfterFunc(p.opt.Linger, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case p.open != b:
		case p.sending < p.opt.InFlight:
			p.seal()
		default:
			b.overdue = true // goes on gathering until a request is free
		}
	})
}

// seal closes the open batch to further messages and sends it if a request is free;
// with mu held.
func (p *Producer) seal() {
	if p.open == nil {
		return
	}
	p.enqueue(p.open)
	if p.sending < p.opt.InFlight {
		p.sending++
		go p.run()
	}
}

// run sends batches until none is due.
func (p *Producer) run() {
	for {
		b := p.due()
		if b == nil {
			return
		}
		p.send(b)
		p.finish(b)
	}
}

// due is the next batch to send; nil ends the sender. The last sender takes the open
// batch too: with nothing under way there is nothing to wait for.
func (p *Producer) due() *batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.open; len(p.ready) == 0 && b != nil && (b.overdue || p.sending == 1) {
		p.enqueue(b)
	}
	if len(p.ready) == 0 {
		p.sending--
		return nil
	}
	b := p.ready[0]
	p.ready[0] = nil
	p.ready = p.ready[1:]
	return b
}

// enqueue moves the open batch to those that wait for a request; with mu held.
func (p *Producer) enqueue(b *batch) {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.ready = append(p.ready, b)
	p.open = nil
}

// finish gives the room of b back, after every outcome was told.
func (p *Producer) finish(b *batch) {
	p.mu.Lock()
	p.messages -= len(b.items)
	p.bytes -= b.encoded
	delete(p.live, b)
	if p.lost == nil {
		p.lost = b.lost
	}
	if p.room != nil {
		close(p.room)
		p.room = nil
	}
	p.mu.Unlock()
	p.recycle(b)
	close(b.done)
}

// Flush sends what was taken so far without further waiting, and returns once all of
// it has an outcome: with the first failure, since the last Flush, of a message that
// was sent without a callback.
func (p *Producer) Flush(ctx context.Context) error {
	p.mu.Lock()
	p.seal()
	wait := make([]*batch, 0, len(p.live))
	for b := range p.live {
		wait = append(wait, b)
	}
	p.mu.Unlock()
	for _, b := range wait {
		select {
		case <-b.done:
		case <-ctx.Done():
			return fmt.Errorf("flush %s: %w", p.topic, ctx.Err())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.lost
	p.lost = nil
	return err
}

// Close takes no more messages, sends what was taken and waits for the outcomes, as
// Flush does. When ctx ends first it gives the rest up: those messages fail with an
// error that is Uncertain if they may be stored. Closing again does the same.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	if p.room != nil {
		close(p.room) // whoever waits for room learns that it is over
		p.room = nil
	}
	p.mu.Unlock()
	err := p.Flush(ctx)
	p.stop()
	if ctx.Err() != nil { // requests end at once now
		err = errors.Join(err, p.Flush(context.WithoutCancel(ctx)))
	}
	return err
}
