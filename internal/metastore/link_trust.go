package metastore

import (
	"context"
	"fmt"

	"github.com/narad-mq/narad/internal/model"
)

// LinkReader is a LeaderReader that also reads links; without it a follower's word on
// a link stays Unknown.
type LinkReader interface {
	// Link is the leader's LeaderLink.
	Link(ctx context.Context, leader, child string) (parent, epoch string, err error)
}

// ConfirmLink asks the leader whether child is attached to parent by this epoch, by
// the rules of ConfirmGone. Live allows a cursor of that epoch to begin, Gone allows
// its file to be removed. An empty epoch stands for any.
func (s *Store) ConfirmLink(ctx context.Context, parent, child, epoch string) (Confirmation, error) {
	if err := s.AppliedCaughtUp(); err != nil && !s.IsLeader() {
		return Unknown, err
	}
	under, now, err := s.askLeaderLink(ctx, child)
	switch {
	case err != nil:
		return Unknown, fmt.Errorf("leader confirm: child %q of %q: %w", child, parent, err)
	case under != parent, epoch != "" && epoch != now:
		return Gone, nil
	}
	return Live, nil
}

func (s *Store) askLeaderLink(ctx context.Context, child string) (parent, epoch string, err error) {
	if s.IsLeader() {
		return s.LeaderLink(ctx, child)
	}
	leader, _ := s.Leader()
	reader, ok := s.self.Reader.(LinkReader)
	switch {
	case leader == "" || leader == s.self.NodeID:
		return "", "", ErrNotLeader
	case !ok:
		return "", "", fmt.Errorf("%w: no way to ask the leader", model.ErrUnavailable)
	}
	return reader.Link(ctx, leader, child)
}

// LeaderLink reads a child's link behind a barrier; both are "" when it has none.
// Only the leader can answer.
func (s *Store) LeaderLink(ctx context.Context, child string) (parent, epoch string, err error) {
	if err := s.Barrier(ctx); err != nil {
		return "", "", err
	}
	v, ok := s.Topic(child)
	if !ok {
		return "", "", nil
	}
	return v.Parent, v.AttachEpoch, nil
}
