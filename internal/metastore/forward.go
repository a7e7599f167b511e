package metastore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

// settleTimeout bounds the wait for this node's replica after a write the leader
// carried out for it.
const settleTimeout = 3 * time.Second

// Forwarder reaches the leader's metastore from another node. leader is the Raft
// server id. Errors of the leader keep their sentinels.
type Forwarder interface {
	// Propose is the leader's Accept.
	Propose(ctx context.Context, leader string, c Command) (Result, error)
	// AppliedIndex is the leader's LeaderApplied.
	AppliedIndex(ctx context.Context, leader string) (uint64, error)
}

// ErrNotSettled: the leader committed the change, but this node's replica is not
// known to show it. Read it back; do not send it again.
var ErrNotSettled = errors.New("the change is committed, but this node has not applied it yet")

// Accept commits a command for a peer: Propose without forwarding.
func (s *Store) Accept(ctx context.Context, c Command) (Result, error) {
	if report, ok := c.(RegisterMember); ok && s.gate.level == model.Level30 && report.reports() {
		return Result{}, fmt.Errorf("%w: %s", model.ErrTrailingData, c.Type())
	}
	if err := s.Writable(); err != nil {
		return Result{}, err
	}
	return s.proposeGated(ctx, c)
}

// forward has the leader commit a command and waits for this node's replica.
func (s *Store) forward(ctx context.Context, c Command) (Result, error) {
	leader, _ := s.Leader()
	switch leader {
	case "":
		return Result{}, fmt.Errorf("%w: no raft leader known", model.ErrUnavailable)
	case s.self.NodeID: // since just now
		return s.Accept(ctx, c)
	}
	r, err := s.self.Forwarder.Propose(ctx, leader, c)
	if err != nil {
		return r, err
	}
	if err := s.Settle(ctx); err != nil {
		s.log.Debug("metastore: answering a forwarded write before this replica shows it", "entry", c.Type(), "err", err)
	}
	return r, nil
}

// Settle returns once this node's replica has applied what the leader has: after a
// write the leader carried out for this node, so that the next read here shows it.
// ErrNotSettled after at most 3 s, and at once when the leader cannot be asked. On
// the leader there is nothing to wait for.
func (s *Store) Settle(ctx context.Context) error {
	if s.IsLeader() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	leader, _ := s.Leader()
	if leader == "" || s.self.Forwarder == nil {
		return fmt.Errorf("%w: no leader to ask", ErrNotSettled)
	}
	index, err := s.self.Forwarder.AppliedIndex(ctx, leader)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotSettled, err)
	}
	if err := s.fsm.progress.wait(ctx, s.fsm.stopped, index); err != nil {
		return fmt.Errorf("%w: at index %d of %d: %w", ErrNotSettled, s.fsm.applied.Load(), index, err)
	}
	return nil
}

// LeaderApplied is the highest index whose effects the leader's replica holds;
// ErrNotLeader on any other node.
func (s *Store) LeaderApplied() (uint64, error) {
	if err := s.fsm.stopErr(); err != nil {
		return 0, err
	}
	if !s.IsLeader() {
		return 0, ErrNotLeader
	}
	return s.fsm.applied.Load(), nil
}

// progress is how far a replica has come, and who waits for it to come further.
type progress struct {
	applied atomic.Uint64 // newest index whose effects are stored

	mu      sync.Mutex // guards the rest
	waiters int
	moved   chan struct{} // closed, and replaced, when applied moves while waiters > 0
}

func (p *progress) set(index uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applied.Store(index)
	if p.waiters > 0 {
		close(p.moved)
		p.waiters, p.moved = 0, make(chan struct{})
	}
}

// wait returns once applied has reached index, or with why it will not or may not.
func (p *progress) wait(ctx context.Context, stopped <-chan struct{}, index uint64) error {
	for {
		p.mu.Lock()
		if p.applied.Load() >= index {
			p.mu.Unlock()
			return nil
		}
		if p.moved == nil {
			p.moved = make(chan struct{})
		}
		moved := p.moved
		p.waiters++
		p.mu.Unlock()
		select {
		case <-moved:
		case <-stopped:
			return ErrStopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
