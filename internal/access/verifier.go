package access

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/model"
)

// Bounds of verification (spec/http-api AUTH-7).
const (
	verifySlots = 4    // bcrypt runs at once
	queueMax    = 1024 // checks admitted and not begun; past it 429
)

// checkKey names a check: what is compared, and with which hash.
type checkKey struct {
	mac  mac
	hash string
}

// check is one bcrypt run that any number of requests wait for.
type check struct {
	key      checkKey
	username string
	password []byte // wiped after the run
	verdict  func() // on a right password, before done closes
	clean    bool   // the username's bucket was full

	userUntil time.Duration // of the token taken from the username's bucket
	nodeUntil time.Duration // of the one taken from the node's budget; 0 = none

	done chan struct{}
	err  error // set before done closes; nil = right password
}

// throttle says that a check was not admitted, and by what.
type throttle struct {
	wait   time.Duration
	byNode bool
}

// verifier admits checks and runs them. Its goroutines live while there are checks.
type verifier struct {
	compare func(hash, password []byte) error // bcrypt
	queued  prometheus.Gauge
	now     func() time.Duration // since the Authenticator's start

	mu       sync.Mutex // guards everything below
	buckets  map[string]*bucket
	sweepAt  int // buckets above which the full ones are dropped
	node     bucket
	inFlight map[checkKey]*check
	first    []*check // of usernames whose bucket was full
	second   []*check // of those with failures
	running  int
	closed   bool
	wg       sync.WaitGroup
}

func newVerifier(queued prometheus.Gauge, now func() time.Duration) *verifier {
	return &verifier{
		compare: compare, queued: queued, now: now, sweepAt: bucketsIdle,
		buckets: map[string]*bucket{}, inFlight: map[checkKey]*check{},
	}
}

// join returns the check in flight for c's credential, or admits c and starts it. A
// check that is not admitted is a throttle.
func (v *verifier) join(c *check) (*check, *throttle) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if running, ok := v.inFlight[c.key]; ok {
		return running, nil
	}
	c.done = make(chan struct{})
	if v.closed {
		c.err = model.ErrShuttingDown
		close(c.done)
		return c, nil
	}
	if len(v.first)+len(v.second) >= queueMax {
		return nil, &throttle{wait: time.Second}
	}
	if t := v.admit(c, v.now()); t != nil {
		return nil, t
	}
	v.inFlight[c.key] = c
	v.queued.Inc()
	v.start(c)
	return c, nil
}

// admit takes what the check costs. Caller holds mu.
func (v *verifier) admit(c *check, now time.Duration) *throttle {
	b := v.buckets[c.username]
	if b == nil {
		b = &bucket{}
	}
	c.clean = b.isFull(now)
	until, wait, ok := b.take(ofUser, now)
	if !ok {
		return &throttle{wait: wait}
	}
	c.userUntil = until
	if !c.clean {
		if c.nodeUntil, wait, ok = v.node.take(ofNode, now); !ok {
			b.giveBack(ofUser, until, now)
			return &throttle{wait: wait, byNode: true}
		}
	}
	v.sweep(now)
	v.buckets[c.username] = b
	return nil
}

// sweep drops full buckets once there are many. Those left have seen a check within
// the last minute, so their number is bounded by what the slots can do in it. Caller
// holds mu.
func (v *verifier) sweep(now time.Duration) {
	if len(v.buckets) < v.sweepAt {
		return
	}
	for name, b := range v.buckets {
		if b.isFull(now) {
			delete(v.buckets, name)
		}
	}
	v.sweepAt = max(bucketsIdle, 2*len(v.buckets))
}

// start runs the check, or queues it. Caller holds mu.
func (v *verifier) start(c *check) {
	switch {
	case v.running < verifySlots:
		v.running++
		v.wg.Go(func() { v.work(c) })
	case c.clean:
		v.first = append(v.first, c)
	default:
		v.second = append(v.second, c)
	}
}

// work runs checks until none is queued.
func (v *verifier) work(c *check) {
	for c != nil {
		err := v.compare([]byte(c.key.hash), c.password)
		clear(c.password)
		if err == nil {
			c.verdict()
		}
		c = v.finish(c, err)
	}
}

// finish settles what the check cost, wakes who waits for it, and returns the next
// one to run.
func (v *verifier) finish(c *check, err error) *check {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.settle(c, err)
	next := pop(&v.first)
	if next == nil {
		next = pop(&v.second)
	}
	if next == nil {
		v.running--
	}
	return next
}

// settle ends a check. Only a wrong password costs anything. Caller holds mu.
func (v *verifier) settle(c *check, err error) {
	now := v.now()
	switch {
	case !isMismatch(err):
		v.refund(c, now)
	case c.clean:
		v.node.take(ofNode, now) // if any is left
	}
	delete(v.inFlight, c.key)
	v.queued.Dec()
	c.err = err
	close(c.done)
}

// refund gives back what admit took. Caller holds mu.
func (v *verifier) refund(c *check, now time.Duration) {
	if b := v.buckets[c.username]; b != nil {
		b.giveBack(ofUser, c.userUntil, now)
		if b.isFull(now) {
			delete(v.buckets, c.username)
		}
	}
	if c.nodeUntil > 0 {
		v.node.giveBack(ofNode, c.nodeUntil, now)
	}
}

func pop(queue *[]*check) *check {
	q := *queue
	if len(q) == 0 {
		return nil
	}
	c := q[0]
	q[0] = nil
	if *queue = q[1:]; len(q) == 1 {
		*queue = nil
	}
	return c
}

// wait returns the check's result, or leaves with ctx; the check goes on.
func (c *check) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close refuses what has not begun and waits for what has.
func (v *verifier) close() {
	v.mu.Lock()
	v.closed = true
	for _, queue := range []*[]*check{&v.first, &v.second} {
		for c := pop(queue); c != nil; c = pop(queue) {
			clear(c.password)
			v.settle(c, model.ErrShuttingDown)
		}
	}
	v.mu.Unlock()
	v.wg.Wait()
}
