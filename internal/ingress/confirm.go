package ingress

import (
	"time"

	"github.com/narad-mq/narad/internal/model"
)

// identity is one life of a topic name; id "" is the name itself.
type identity struct {
	topic string
	id    model.Incarnation
}

// verdict is what is known of an identity that the local replica does not have.
type verdict uint8

const (
	// wait: not confirmed; the record stays in the WAL.
	wait verdict = iota
	// gone: the leader said so.
	gone
)

// confirmations remembers what the leader said about identities the local
// replica does not have, and which are still to be asked. Pure: the caller asks.
type confirmations struct {
	dead    *lru[identity, struct{}] // confirmed ids; never come back
	absent  map[string]time.Time     // confirmed names without an id, believed until then
	pending map[identity]time.Time   // being asked (zero), or unconfirmed until then
	queue   []identity               // to be asked
	asking  int                      // asked and not answered

	forgetAt time.Time // when expired answers are looked for again
}

func newConfirmations() *confirmations {
	return &confirmations{
		dead:    newLRU[identity, struct{}](confirmedIDsMax),
		absent:  map[string]time.Time{},
		pending: map[identity]time.Time{},
	}
}

// verdict returns what is known of k, and queues the question if nothing is.
func (c *confirmations) verdict(k identity, now time.Time) verdict {
	if c.isGone(k, now) {
		return gone
	}
	if until, ok := c.pending[k]; ok && (until.IsZero() || now.Before(until)) {
		return wait
	}
	if len(c.pending) >= confirmedIDsMax {
		c.forget(now)
	}
	if len(c.pending) < confirmedIDsMax {
		c.pending[k] = time.Time{}
		c.queue = append(c.queue, k)
	}
	return wait
}

func (c *confirmations) isGone(k identity, now time.Time) bool {
	if k.id != "" {
		return c.dead.get(k) != nil
	}
	until, ok := c.absent[k.topic]
	return ok && now.Before(until)
}

// next returns a question to ask now, if one is queued and few are open.
func (c *confirmations) next() (identity, bool) {
	if len(c.queue) == 0 || c.asking >= confirmsMax {
		return identity{}, false
	}
	k := c.queue[0]
	c.queue = c.queue[1:]
	c.asking++
	return k, true
}

// answered notes the answer to a question next returned.
func (c *confirmations) answered(k identity, isGone bool, now time.Time) {
	c.asking--
	if isGone {
		c.confirmed(k, now)
		return
	}
	c.pending[k] = now.Add(unconfirmedFor)
}

// confirmed notes that the leader said k is gone. A name without an id may be
// created again, so that answer is believed only for a moment.
func (c *confirmations) confirmed(k identity, now time.Time) {
	delete(c.pending, k)
	switch {
	case k.id == "":
		if len(c.absent) >= confirmedIDsMax {
			c.forget(now)
		}
		if len(c.absent) < confirmedIDsMax {
			c.absent[k.topic] = now.Add(unconfirmedFor)
		}
	case c.dead.get(k) == nil:
		c.dead.add(k, struct{}{})
	}
}

// forget drops the answers whose time is over, once a second at most.
func (c *confirmations) forget(now time.Time) {
	if now.Before(c.forgetAt) {
		return
	}
	c.forgetAt = now.Add(unconfirmedFor)
	for k, until := range c.pending {
		if !until.IsZero() && !now.Before(until) {
			delete(c.pending, k)
		}
	}
	for name, until := range c.absent {
		if !now.Before(until) {
			delete(c.absent, name)
		}
	}
}
