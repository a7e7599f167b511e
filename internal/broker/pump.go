package broker

import (
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/partition"
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
	here round // the visit under way; run's

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
	r := &b.pump.here
	*r = round{b: b, t: t, v: v}
	t.waiters.serve(r)
	*r = round{}
}

// round is one visit of the pump to a topic: the supply of its queue.
type round struct {
	b *Broker
	t *topic
	v *model.TopicView
}

func (r *round) reserve(w *waiter, limit int) bool {
	if w.pin != anyPartition {
		return r.v.OwnerOf(w.pin) == r.b.opts.Node && r.b.reserveFrom(r.t, w, w.pin, limit)
	}
	n := len(r.v.Owners)
	start := r.t.nextStart(n)
	for i := range n {
		p := (start + i) % n
		if r.v.Owners[p] == r.b.opts.Node && r.b.reserveFrom(r.t, w, p, limit) {
			return true
		}
	}
	return false
}

// available counts open partitions only: RegisterToken opened those with files.
func (r *round) available() (n int64) {
	for p, owner := range r.v.Owners {
		if owner != r.b.opts.Node {
			continue
		}
		s := r.t.slot(p)
		if s == nil {
			continue
		}
		pt := s.part.Load()
		if pt == nil {
			continue
		}
		have, err := pt.Available()
		if err != nil {
			r.b.warnPump(pt, err)
		}
		n += have
	}
	return n
}

func (r *round) announce(tk *token) *hold { return r.b.notifier.announce(r.t, tk) }

func (r *round) expired(tk *token) bool { return tk.till <= r.b.now() }

// reserveFrom reserves up to limit records for w from one partition, if that is open. It opens nothing: a
// consumer opened what had files before it parked, and a commit opens what it writes to.
func (b *Broker) reserveFrom(t *topic, w *waiter, p, limit int) bool {
	s := t.slot(p)
	if s == nil {
		return false
	}
	pt := s.part.Load()
	if pt == nil {
		return false
	}
	var err error
	w.leases, err = pt.Reserve(w.leases[:0], limit)
	if err != nil {
		b.warnPump(pt, err)
	}
	if len(w.leases) == 0 {
		return false
	}
	s.touch(b.now())
	w.part = pt
	return true
}

func (b *Broker) warnPump(pt *partition.Partition, err error) {
	key := pt.Key()
	b.pump.warn.Warn(b.logger, key.String(), "consume pump could not reserve from partition",
		"topic", key.Topic, "partition", key.Partition, "err", err)
}

func (p *pump) close() {
	close(p.stop)
	<-p.done
}
