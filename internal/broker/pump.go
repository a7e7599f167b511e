package broker

import (
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/telemetry"
)

// pumpWarnEvery limits the pump's line about partitions it could not reserve from.
const pumpWarnEvery = time.Minute

// pump is the node's one goroutine that matches available records with parked
// consumers. It is fed topics, each at most once at a time, and sleeps otherwise.
type pump struct {
	wake chan struct{} // one slot
	stop chan struct{}
	done chan struct{}
	warn *telemetry.Limiter

	mu    sync.Mutex // guards topics
	topic []*topic   // to be pumped
}

func newPump(warn *telemetry.Limiter) *pump {
	return &pump{wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}), warn: warn}
}

// kick has the topic pumped soon. It never blocks.
func (p *pump) kick(t *topic) {
	if t.queued.Swap(true) {
		return // on the list already; it is taken off before it is pumped
	}
	p.mu.Lock()
	p.topic = append(p.topic, t)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pump) run(b *Broker) {
	defer close(p.done)
	var batch []*topic
	for {
		select {
		case <-p.wake:
		case <-p.stop:
			return
		}
		p.mu.Lock()
		batch, p.topic = p.topic, batch[:0]
		p.mu.Unlock()
		for i, t := range batch {
			t.queued.Store(false)
			b.pumpTopic(t)
			batch[i] = nil
		}
	}
}

// pumpTopic serves the parked consumers of one topic. Ownership is read afresh, so a
// partition gained since they parked serves them and a lost one does not.
func (b *Broker) pumpTopic(t *topic) {
	v, ok := b.opts.Topics.Topic(t.name)
	if !ok || t.id.Differs(v.ID) {
		return // whoever noticed or will notice the change dismisses the waiters
	}
	t.waiters.serve(func(w *waiter) bool {
		if w.pin != anyPartition {
			return v.OwnerOf(w.pin) == b.opts.Node && b.reserveFrom(t, w, w.pin)
		}
		n := len(v.Owners)
		start := t.nextStart(n)
		for i := range n {
			p := (start + i) % n
			if v.Owners[p] == b.opts.Node && b.reserveFrom(t, w, p) {
				return true
			}
		}
		return false
	})
}

// reserveFrom reserves for w from one partition, if that is open. It opens nothing: a
// consumer opened what had files before it parked, and a commit opens what it writes to.
func (b *Broker) reserveFrom(t *topic, w *waiter, p int) bool {
	s := t.slot(p)
	if s == nil {
		return false
	}
	pt := s.part.Load()
	if pt == nil {
		return false
	}
	var err error
	w.leases, err = pt.Reserve(w.leases[:0], w.max)
	if err != nil {
		b.pump.warn.Warn(b.logger, pt.Key().String(), "consume pump could not reserve from partition",
			"topic", t.name, "partition", p, "err", err)
	}
	if len(w.leases) == 0 {
		return false
	}
	s.touch(b.now())
	w.part = pt
	return true
}

func (p *pump) close() {
	close(p.stop)
	<-p.done
}
