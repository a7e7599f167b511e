package metastore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	"github.com/narad-mq/narad/internal/model"
)

// latchPoll is how often a node that never was current asks itself whether it is.
const latchPoll = 50 * time.Millisecond

// quietScanMax bounds the log entries AppliedCaughtUp looks at in one call. What it
// has looked at is remembered, so a longer run is passed in several calls.
const quietScanMax = 4096

// ErrBehind: this replica is not known to be current.
var ErrBehind = fmt.Errorf("%w: this replica is not known to be current", model.ErrUnavailable)

// LeaderReader reads the leader's state behind its barrier. leader is the Raft
// server id. Any error means the leader's word could not be had.
type LeaderReader interface {
	// Topic is the leader's LeaderTopic.
	Topic(ctx context.Context, leader, name string) (id model.Incarnation, exists bool, err error)
}

// AppliedCaughtUp is nil when this node has a leader, has heard from it in the last
// 5 s, and its state machine holds everything the node knows to be committed. It
// does not make a new leader's state an authority: only Barrier does.
func (s *Store) AppliedCaughtUp() error {
	if err := s.fsm.stopErr(); err != nil {
		return err
	}
	leader, _ := s.Leader()
	committed := s.transport.committed.Load()
	switch {
	case leader == "":
		return fmt.Errorf("%w: no raft leader known", ErrBehind)
	case s.IsLeader():
		committed = s.raft.CommitIndex()
	default:
		last := s.raft.LastContact()
		if since := s.clock.Now().Sub(last); last.IsZero() || since > contactMax {
			return fmt.Errorf("%w: last raft leader contact %s ago", ErrBehind, since.Round(time.Millisecond))
		}
	}
	if committed == 0 {
		return fmt.Errorf("%w: no commit index heard yet", ErrBehind)
	}
	// Entries up to Raft's own commit index are the committed ones; beyond it the
	// log may still hold what a dead leader left.
	if local := s.raft.CommitIndex(); local < committed {
		return fmt.Errorf("%w: committed up to %d here, the leader up to %d", ErrBehind, local, committed)
	}
	return s.holds(committed)
}

// holds is nil when the state machine has the effects of every entry up to index:
// no command lies between what it has stored and the index.
func (s *Store) holds(index uint64) error {
	applied := s.fsm.applied.Load()
	if applied >= index {
		return nil
	}
	first, err := s.logs.FirstIndex()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBehind, err)
	}
	// What is no longer in the log is in a snapshot that was taken of this database
	// or restored over it, so only its commands past applied count.
	from := max(applied+1, s.quiet.Load()+1)
	if first == 0 {
		from = max(from, s.snapshotIndex()+1)
	} else {
		from = max(from, first)
	}
	for i := from; i <= index; i++ {
		if i-from >= quietScanMax {
			return fmt.Errorf("%w: at index %d of %d, still looking", ErrBehind, i, index)
		}
		var l raft.Log
		if err := s.logs.GetLog(i, &l); err != nil {
			return fmt.Errorf("%w: entry %d of %d is not here: %w", ErrBehind, i, index, err)
		}
		if l.Type == raft.LogCommand {
			if i <= s.fsm.applied.Load() {
				continue // applied since
			}
			return fmt.Errorf("%w: index %d of %d is not applied yet", ErrBehind, i, index)
		}
		s.quiet.Store(i)
	}
	return nil
}

// snapshotIndex is Raft's newest snapshot, a figure it publishes in its statistics
// only.
func (s *Store) snapshotIndex() uint64 {
	n, err := strconv.ParseUint(s.raft.Stats()["last_snapshot_index"], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// latch waits until the replica is current for the first time since the start, and
// opens the ownership reads for good.
func (s *Store) latch() {
	timer := s.clock.NewTimer(latchPoll)
	defer timer.Stop()
	for {
		if !s.IsLeader() && s.AppliedCaughtUp() == nil {
			s.latchOnce.Do(func() { close(s.caughtUp) })
		}
		select {
		case <-s.caughtUp: // by the line above, or by a barrier as the leader
			return
		case <-timer.C():
			timer.Reset(latchPoll)
		case <-s.fsm.stopped:
			return
		case <-s.quit:
			return
		}
	}
}

// Assignment is where a partition is, as this replica knows it. ErrUnavailable
// until the replica was current once since the start: a restored one shows the past.
func (s *Store) Assignment(topic string, p int) (model.Assignment, error) {
	v, err := s.owned(topic)
	if err != nil {
		return model.Assignment{}, err
	}
	if p < 0 || p >= len(v.Owners) {
		return model.Assignment{}, fmt.Errorf("%w: partition %d of %q, want 0 to %d", model.ErrInvalid, p, topic, len(v.Owners)-1)
	}
	return assignmentOf(v, p), nil
}

// Assignments is Assignment of every partition of a topic, ascending.
func (s *Store) Assignments(topic string) ([]model.Assignment, error) {
	v, err := s.owned(topic)
	if err != nil {
		return nil, err
	}
	out := make([]model.Assignment, len(v.Owners))
	for p := range out {
		out[p] = assignmentOf(v, p)
	}
	return out, nil
}

func (s *Store) owned(topic string) (*model.TopicView, error) {
	if !s.CaughtUp() {
		return nil, fmt.Errorf("%w: replica has not caught up with the leader since start", model.ErrUnavailable)
	}
	v, ok := s.Topic(topic)
	if !ok {
		return nil, model.ErrTopicNotFound
	}
	return v, nil
}

func assignmentOf(v *model.TopicView, p int) model.Assignment {
	a := model.Assignment{Topic: v.Name, Partition: p, Owner: v.Owners[p]}
	if v.Targets != nil {
		a.Target = v.Targets[p]
	}
	return a
}

// Confirmation is the leader's word on whether a topic incarnation still exists.
type Confirmation uint8

// The answers of ConfirmGone. Only Gone allows anything to be destroyed.
const (
	Unknown Confirmation = iota // could not be had; keep the data
	Live                        // the topic exists as this incarnation
	Gone                        // no topic of that name, or another incarnation
)

func (c Confirmation) String() string {
	switch c {
	case Live:
		return "live"
	case Gone:
		return "gone"
	}
	return "unknown"
}

// ConfirmGone asks whether the incarnation id of a topic is gone for good. A
// replica that is not current does not ask; a follower asks the leader; the leader
// passes a barrier and reads its state after it. Whatever fails on the way is
// Unknown, with the reason. With id unknown only the absence of the name is Gone.
func (s *Store) ConfirmGone(ctx context.Context, name string, id model.Incarnation) (Confirmation, error) {
	if err := s.AppliedCaughtUp(); err != nil && !s.IsLeader() {
		return Unknown, err
	}
	now, exists, err := s.askLeader(ctx, name)
	switch {
	case err != nil:
		return Unknown, fmt.Errorf("leader confirm: %q: %w", name, err)
	case !exists, id.Differs(now):
		return Gone, nil
	}
	return Live, nil
}

// askLeader reads a topic as the leader has it.
func (s *Store) askLeader(ctx context.Context, name string) (id model.Incarnation, exists bool, err error) {
	if s.IsLeader() {
		return s.LeaderTopic(ctx, name)
	}
	leader, _ := s.Leader()
	switch {
	case leader == "" || leader == s.self.NodeID:
		return "", false, ErrNotLeader
	case s.self.Reader == nil:
		return "", false, fmt.Errorf("%w: no way to ask the leader", model.ErrUnavailable)
	}
	return s.self.Reader.Topic(ctx, leader, name)
}

// LeaderTopic reads a topic behind a barrier, for a peer or for this node: "does it
// still exist, and as which incarnation". Only the leader can answer.
func (s *Store) LeaderTopic(ctx context.Context, name string) (id model.Incarnation, exists bool, err error) {
	if err := s.Barrier(ctx); err != nil {
		return "", false, err
	}
	v, ok := s.Topic(name)
	if !ok {
		return "", false, nil
	}
	return v.ID, true, nil
}

// LeaderAssignment reads a partition's assignment behind a barrier. Only the leader
// can answer.
func (s *Store) LeaderAssignment(ctx context.Context, topic string, p int) (model.Assignment, error) {
	if err := s.Barrier(ctx); err != nil {
		return model.Assignment{}, err
	}
	return s.Assignment(topic, p)
}

// Barrier returns once this node, as the leader, has applied every entry committed
// before the call; at most 5 s.
func (s *Store) Barrier(ctx context.Context) error {
	if err := s.fsm.stopErr(); err != nil {
		return err
	}
	if !s.IsLeader() {
		return fmt.Errorf("metastore barrier: %w", ErrNotLeader)
	}
	ctx, cancel := context.WithTimeout(ctx, barrierTimeout)
	defer cancel()
	if err := s.await(ctx, func() raft.Future { return s.raft.Barrier(barrierTimeout) }); err != nil {
		return fmt.Errorf("metastore barrier: %w", err)
	}
	return s.fsm.stopErr() // Raft answers a barrier even when the machine has stopped
}
