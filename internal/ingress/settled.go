package ingress

import (
	"context"
	"errors"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

// Bounds of waiting for this node's replica on behalf of a sender that is ahead of it.
const (
	settleBudget = 500 * time.Millisecond
	settlingMax  = 8 // commits that wait at once; the rest is refused as it stands
)

// Settled commits for other nodes. A sender may know of a topic or a placement before this
// node does, moments after it was made; without a wait its first records would be refused
// and lie in its WAL for a whole failure backoff. A refusal that a replica which is behind
// can explain is checked again once the replica has reached the leader.
type Settled struct {
	owner    Owner
	settle   func(ctx context.Context) error
	settling chan struct{}
}

// NewSettled returns owner, asked again after settle. settle returns nil once the replica
// shows what the leader had committed when it was called: metastore.Store.Settle.
func NewSettled(owner Owner, settle func(ctx context.Context) error) *Settled {
	return &Settled{owner: owner, settle: settle, settling: make(chan struct{}, settlingMax)}
}

// Commit implements Owner.
func (s *Settled) Commit(ctx context.Context, topic string, partition int, recs []model.Record) (first int64, err error) {
	first, err = s.owner.Commit(ctx, topic, partition, recs)
	if !explainedByLag(err) || !s.caughtUp(ctx) {
		return first, err
	}
	return s.owner.Commit(ctx, topic, partition, recs)
}

// explainedByLag reports whether a commit was refused, with nothing stored, for what a
// newer view may show otherwise.
func explainedByLag(err error) bool {
	return errors.Is(err, model.ErrTopicNotFound) || errors.Is(err, model.ErrIncarnation) || errors.Is(err, model.ErrNotOwner)
}

func (s *Settled) caughtUp(ctx context.Context) bool {
	select {
	case s.settling <- struct{}{}:
	default:
		return false
	}
	defer func() { <-s.settling }()
	ctx, cancel := context.WithTimeout(ctx, settleBudget)
	defer cancel()
	return s.settle(ctx) == nil
}
