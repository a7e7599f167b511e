package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults and bounds of ConsumeOptions.
const (
	DefaultWait  = 10 * time.Second
	DefaultGrace = 30 * time.Second
	// pollersMax bounds the receives of one Consume that are under way at once.
	pollersMax = 8
	// messagesPerPoller is how many messages in flight justify one more of them.
	messagesPerPoller = ReceiveMax
	// workersMax and inFlightMax bound what one Consume holds.
	workersMax  = 1 << 16
	inFlightMax = 1 << 20
	// lingerMax is how long a finished message waits for others to be acked with.
	lingerMax = 2 * time.Millisecond
	// stubbornWait is what handlers get to return once their context ended.
	stubbornWait = time.Second
	// pollPatience is what receives under way get to bring what the server hands over
	// just then: an answer that nobody reads leases its messages for nothing.
	pollPatience = 100 * time.Millisecond
	// settleWait is what the last settlements of a shutdown get at least.
	settleWait = 5 * time.Second
)

// Handler works on one message. Its context ends when the lease is lost (the cause is
// ErrLeaseLost then: stop, somebody else may have the message) and when a shutdown
// runs out of patience. Returning nil acks the message, an error or a panic nacks it:
// it is handed out again at once, to anybody.
type Handler func(ctx context.Context, d Delivery) error

// ConsumeOptions shape a Consume; a zero field takes its default.
type ConsumeOptions struct {
	Workers int // handlers that run at once; default 1
	// InFlight is how many messages are leased at once: in a handler, waiting for
	// one, or on their way to be acked. More than Workers hides the network from the
	// handlers; messages that wait are kept from other consumers. The default is
	// twice Workers.
	InFlight int
	Wait     time.Duration // of one long poll; default DefaultWait
	Grace    time.Duration // for running handlers once the context ended; default DefaultGrace
	Pin      Pin           // the only partition to take from
}

func (o *ConsumeOptions) fill() error {
	if o.Workers == 0 {
		o.Workers = 1
	}
	if o.InFlight == 0 {
		o.InFlight = 2 * o.Workers
	}
	if o.Wait == 0 {
		o.Wait = DefaultWait
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	switch {
	case o.Workers < 1 || o.Workers > workersMax:
		return fmt.Errorf("narad client: consume: %d workers: want 1 to %d", o.Workers, workersMax)
	case o.InFlight < o.Workers || o.InFlight > inFlightMax:
		return fmt.Errorf("narad client: consume: %d in flight with %d workers: want at least as many, at most %d", o.InFlight, o.Workers, inFlightMax)
	case o.Wait < 0 || o.Grace < 0:
		return fmt.Errorf("narad client: consume: wait %v, grace %v: want 0 or more", o.Wait, o.Grace)
	}
	return nil
}

// Consume runs h on the messages of a topic until ctx ends, and returns nil then. It
// takes messages in batches by long polls, keeps their leases alive while they wait
// and while h runs, acks and nacks in batches behind h's back, and repeats what
// fails on the way. It returns early with an error that more tries will not cure:
// no such topic, no right to it.
//
// When ctx ends it takes no more messages, gives back those no handler has begun, and
// waits for the running handlers: Grace long, then it ends their contexts. It returns
// when all messages are settled, or no node takes that. A handler that does not return
// even then is left behind, and is an error.
//
// The visibility timeout is asked for once, at the start.
func (c *Client) Consume(ctx context.Context, topic string, h Handler, o ConsumeOptions) error {
	if err := o.fill(); err != nil {
		return err
	}
	t, err := c.describe(ctx, topic, Partition(max(o.Pin.number(), 0)))
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("consume %s: %w", topic, err)
	}
	visibility := time.Duration(t.VisibilityTimeoutMS) * time.Millisecond
	if visibility <= 0 {
		return fmt.Errorf("consume %s: visibility timeout of %v", topic, visibility)
	}
	return newConsumer(c, topic, h, o, visibility).run(ctx)
}

// consumer is one Consume under way.
type consumer struct {
	c          *Client
	topic      string
	handle     Handler
	opt        ConsumeOptions
	visibility time.Duration

	slots   *slots
	work    chan *lease // leased, for the next free worker; room for all slots
	keeper  *keeper
	ackers  *settler
	nackers *settler

	base   context.Context // of handlers and settlements: outlives the caller's
	cancel context.CancelCauseFunc
	busy   atomic.Int64 // handlers running
}

func newConsumer(c *Client, topic string, h Handler, o ConsumeOptions, visibility time.Duration) *consumer {
	k := &consumer{
		c: c, topic: topic, handle: h, opt: o, visibility: visibility,
		slots: newSlots(o.InFlight), work: make(chan *lease, o.InFlight),
	}
	k.keeper = newKeeper(k)
	k.ackers = newSettler(k, modeAck)
	k.nackers = newSettler(k, modeNack)
	return k
}

// run is the life of the consumer: each stage is stopped after the one that feeds it.
func (k *consumer) run(ctx context.Context) error {
	k.base, k.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	defer k.cancel(context.Canceled)
	polling, stop := context.WithCancelCause(ctx) // also ended by a poller that gives up
	defer stop(nil)
	receiving, abort := context.WithCancel(k.base)
	defer abort()
	context.AfterFunc(polling, func() { time.AfterFunc(pollPatience, abort) })

	var settlers, keeping, pollers, workers sync.WaitGroup
	k.ackers.start(&settlers)
	k.nackers.start(&settlers)
	keepCtx, stopKeeper := context.WithCancel(k.base)
	defer stopKeeper()
	keeping.Go(func() { k.keeper.run(keepCtx) })
	for range k.opt.Workers {
		workers.Go(func() { k.worker(polling) })
	}
	for range min(1+(k.opt.InFlight-1)/messagesPerPoller, pollersMax) {
		pollers.Go(func() {
			if err := k.poll(polling, receiving); err != nil {
				stop(err)
			}
		})
	}
	pollers.Wait()
	close(k.work) // workers give back what is left
	began := time.Now()
	stubborn := k.drain(&workers)
	giveUp := time.AfterFunc(max(k.opt.Grace-time.Since(began), settleWait), func() { k.cancel(context.Canceled) })
	defer giveUp.Stop()
	close(k.ackers.done)
	close(k.nackers.done)
	settlers.Wait()
	k.ackers.retry.Wait()
	k.nackers.retry.Wait()
	stopKeeper()
	keeping.Wait()
	if cause := context.Cause(polling); ctx.Err() == nil && cause != nil {
		return errors.Join(fmt.Errorf("consume %s: %w", k.topic, cause), stubborn)
	}
	return stubborn
}

// drain waits for the handlers: Grace, then with their contexts ended.
func (k *consumer) drain(workers *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { workers.Wait(); close(done) }()
	for _, patience := range []time.Duration{k.opt.Grace, stubbornWait} {
		t := time.NewTimer(patience)
		select {
		case <-done:
			t.Stop()
			return nil
		case <-t.C:
			k.keeper.cancelAll(context.Canceled)
		}
	}
	return fmt.Errorf("consume %s: %d handlers do not return", k.topic, k.busy.Load())
}

// poll takes messages while slots are free. It returns nil when ctx ended, and the
// error that more polls will not cure. receiving ends a little after ctx.
func (k *consumer) poll(ctx, receiving context.Context) error {
	for fails := 0; ; {
		n := k.slots.take(ctx, ReceiveMax)
		if n == 0 {
			return nil
		}
		ds, err := k.c.Receive(receiving, k.topic, ReceiveOptions{Wait: k.opt.Wait, Max: n, Pin: k.opt.Pin})
		now := time.Now()
		k.slots.give(n - len(ds))
		k.slots.waiting.Add(int64(len(ds)))
		for _, l := range k.keeper.add(ds, now) {
			k.work <- l // has room for every slot
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			fails = 0
		case len(ds) == 0 && !Retryable(err) && errors.As(err, new(*Error)), errors.Is(err, ErrClosed):
			return err
		default:
			fails++
			k.c.log.Warn("cannot receive; trying again", "topic", k.topic, "err", err)
			if !pause(ctx, k.c.backoff(fails)) {
				return nil
			}
		}
	}
}

// worker runs the handler on one message after the other. Once ctx ended it gives
// them back instead.
func (k *consumer) worker(ctx context.Context) {
	for l := range k.work {
		k.slots.taken()
		if ctx.Err() != nil {
			k.keeper.drop(l)
			k.nackers.put(l)
			continue
		}
		k.one(l)
	}
}

// one runs the handler on one message and hands it on to be settled.
func (k *consumer) one(l *lease) {
	ctx, ok := k.keeper.begin(k.base, l)
	if !ok { // its lease was lost while it waited
		k.slots.give(1)
		return
	}
	k.busy.Add(1)
	to := k.nackers
	defer func() {
		k.busy.Add(-1)
		k.keeper.drop(l)
		to.put(l)
	}()
	if err := k.call(ctx, l.d); err == nil {
		to = k.ackers
	} else {
		k.c.log.Warn("handler failed: message goes back", "topic", k.topic, "partition", l.d.Partition, "offset", l.d.Offset, "err", err)
	}
}

// idle reports whether no message is on its way to be settled: batches need not wait
// for more.
func (k *consumer) idle() bool { return k.busy.Load() == 0 && k.slots.waiting.Load() <= 0 }

// call is the handler with a panic turned into an error.
func (k *consumer) call(ctx context.Context, d Delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	return k.handle(ctx, d)
}
