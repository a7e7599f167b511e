package broker

import (
	"context"
	"errors"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

// Bounds of delivery tokens (spec/consume sections 7 and 20).
const (
	holdTime         = time.Second // from announcing a record to the end of its hold
	tokenTTLMax      = time.Minute // longer waits are not served, so longer tokens are cut
	tokenNodeMax     = 1024        // nodes with a token on one topic; further ones are ignored
	announceMax      = 16          // announcements under way at once, node-wide
	announceQueueMax = 4096        // announcements that wait for one of those
)

// Notifier carries announcements: package peer.
type Notifier interface {
	// NotifyToken tells the node at addr that topic has a record for its consumers, and
	// answers whether it will claim it.
	NotifyToken(ctx context.Context, addr, topic string) (claim bool, err error)
}

// token says that consumers of another node wait for a topic. It is spent by announcing
// one record, and takes nothing out of circulation.
type token struct {
	node string // member id
	addr string // where announcements go
	till int64  // on Broker.now
}

// hold counts one announced record until its claim comes, the node passes, or its time is
// over.
type hold struct {
	topic *topic
	node  string
	addr  string
	till  int64 // on Broker.now
}

// RegisterToken notes that consumers of a node wait for a topic for ttl from now; one that
// is there is renewed in its place. 0 drops it. The pump looks at the topic either way, so
// a backlog drains. A topic of which this node owns nothing keeps no token: whoever sent
// it knows better soon.
func (b *Broker) RegisterToken(node, addr, name string, ttl time.Duration) {
	if b.notifier == nil {
		return
	}
	t, v, err := b.lookup(name)
	if err != nil || b.countOwned(v) == 0 {
		return
	}
	if ttl <= 0 {
		t.waiters.dropToken(node)
		return
	}
	for p := range v.Partitions {
		if v.OwnerOf(p) == b.opts.Node {
			b.prepare(t, v, p)
		}
	}
	t.waiters.register(token{node: node, addr: addr, till: b.now() + int64(min(ttl, tokenTTLMax))})
	if b.released.Load() {
		t.waiters.close(nil) // the entry may be younger than ReleaseWaiters
	}
	b.pump.kick(t)
}

// prepare opens a partition with files and its queue, so that the pump counts its backlog
// without reading anything.
func (b *Broker) prepare(t *topic, v *model.TopicView, p int) {
	pt, err := b.get(t, v, p, false)
	if err == nil {
		err = pt.WarmQueue()
	}
	if err != nil && !errors.Is(err, errNotOpened) && !errors.Is(err, model.ErrLogClosed) {
		b.pump.warn.Warn(b.logger, model.PartitionKey{Topic: t.name, Partition: p}.String(),
			"partition could not be opened for waiting consumers", "topic", t.name, "partition", p, "err", err)
	}
}

// SendWord sends the consumer of topic that has been parked longest to the owner that
// announced a record, or to all other owners when owner is "". False when nobody is
// parked who could go.
func (b *Broker) SendWord(name, owner string) bool {
	t := b.entry(name)
	return t != nil && t.waiters.send(&word{owner: owner})
}

// endHold ends the oldest hold of a node on a topic, whoever the node is when it is "".
func (b *Broker) endHold(t *topic, node string) {
	if t.waiters.endHold(func(h *hold) bool { return node == "" || h.node == node }) {
		b.pump.kick(t)
	}
}

// register adds or renews the token of a node.
func (q *waiters) register(tk token) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch w := q.tokens[tk.node]; {
	case q.closed:
	case w != nil:
		*w.token = tk
	case len(q.tokens) < tokenNodeMax:
		if q.tokens == nil {
			q.tokens = make(map[string]*waiter)
		}
		w = &waiter{pin: anyPartition, token: &tk}
		q.tokens[tk.node] = w
		q.shared.push(w)
		q.parked.Add(1)
	}
}

func (q *waiters) dropToken(node string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.tokens[node]; w != nil {
		q.takeOut(w)
	}
}

// endHold takes out the oldest hold that is meant, and reports whether there was one.
func (q *waiters) endHold(meant func(*hold) bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, h := range q.holds {
		if meant(h) {
			q.holds = append(q.holds[:i], q.holds[i+1:]...)
			return true
		}
	}
	return false
}
