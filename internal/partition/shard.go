package partition

import (
	"crypto/rand"
	"fmt"
	"sync"

	"github.com/narad-mq/narad/internal/lease"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/position"
)

// shard is the queue state of one partition: leases in memory, and the settled
// position that the committer persists.
type shard struct {
	mu    sync.Mutex // guards all but tracked
	table *lease.Table
	gone  bool // dropped; whoever still holds it must not act on it
	armed bool // somebody was told by Options.Due to call Expire
	ended bool // the committer is about to stop: nothing is settled any more

	tracked *position.Tracked // set before the shard is published
}

// Position is position.Source: a snapshot for the committer.
func (s *shard) Position(dst []model.Run) (model.Position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return model.Position{}, false
	}
	return s.table.Position(dst), true
}

// drop ends the shard; after it returns the committer writes nothing of it.
func (s *shard) drop() {
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	s.tracked.Forget()
}

// queue returns the shard, built from disk at the first touch (spec/consume section
// 10, "Recovery of a shard"). After Close it answers ErrLogClosed.
func (p *Partition) queue() (*shard, error) {
	if s := p.shard.Load(); s != nil {
		return s, nil
	}
	p.build.Lock()
	defer p.build.Unlock()
	if s := p.shard.Load(); s != nil {
		return s, nil
	}
	if p.shut || p.ended {
		return nil, model.ErrLogClosed
	}
	o := &p.opts
	pos, err := position.Load(o.Log.FS, o.Log.Dir, o.Incarnation)
	if err != nil {
		return nil, fmt.Errorf("load consumer position of %s: %w", p.key, err)
	}
	var seed [32]byte
	rand.Read(seed[:]) // never fails since Go 1.24: it crashes the program instead
	s := &shard{table: lease.New(o.Caps, pos, lease.NewNonces(seed))}
	s.tracked = o.Committer.Track(p.key, o.Log.Dir, o.Incarnation, s)
	p.shard.Store(s)
	return s, nil
}

// EndQueue refuses settlements from now on with ErrShuttingDown, so that the committer
// can be closed without missing an ack that was answered.
func (p *Partition) EndQueue() {
	p.build.Lock()
	defer p.build.Unlock()
	p.ended = true
	if s := p.shard.Load(); s != nil {
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
	}
}

// WarmQueue builds the queue state now, so that a later Reserve does no I/O.
func (p *Partition) WarmQueue() error {
	_, err := p.queue()
	return err
}

// after acts on what a table operation reported. Called without the shard lock.
func (p *Partition) after(s *shard, ev lease.Event) {
	if ev.Dirty {
		s.tracked.Dirty()
	}
	if ev.Wake {
		p.opts.Wake()
	}
}

// Expire purges the leases that are due and answers when it is to be called again; ok
// is false when Options.Due will say so first. Consumers are woken when a lease expired
// or a freeze lapsed.
func (p *Partition) Expire() (next int64, ok bool) {
	s := p.shard.Load()
	if s == nil {
		return 0, false
	}
	n := 0
	s.mu.Lock()
	if !s.gone {
		n = s.table.Expire(p.opts.Now())
		next, ok = s.table.NextExpiry()
		s.armed = ok
	}
	s.mu.Unlock()
	if n > 0 {
		p.opts.Wake()
	}
	return next, ok
}

// Settle applies an ack, extend or nack to the lease the handle names. ErrNoLease: no
// live lease carries it, whatever the reason (spec/consume section 5.3).
func (p *Partition) Settle(h model.Handle, op model.SettleOp) error {
	s := p.shard.Load()
	if s == nil {
		return model.ErrNoLease // nobody ever took a lease here
	}
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return model.ErrShuttingDown
	}
	var (
		ev lease.Event
		ok bool
	)
	if !s.gone {
		ev, ok = s.table.Settle(p.opts.Now(), op, h.Offset, h.Nonce)
	}
	s.mu.Unlock()
	p.after(s, ev) // a refusal can have noticed an expiry
	if !ok {
		return model.ErrNoLease
	}
	switch op {
	case model.Extend:
		p.counters.Extended.Inc()
	case model.Nack:
		p.counters.Nacked.Inc()
	}
	return nil
}
