package metastore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/narad-mq/narad/internal/model"
)

// leadRetry is how often a new leader retries its barrier and registration
// (spec/operations section 4, step 7).
const leadRetry = 250 * time.Millisecond

// contactMax is how old the last contact with the leader may be.
const contactMax = 5 * time.Second

// ErrNotReady: the replica is not known to be current; the rest of the text says
// why (spec/http-api section 15).
var ErrNotReady = errors.New("metastore: node is not ready")

// watch follows this node's leadership and the state machine's health.
func (s *Store) watch() {
	s.campaign()
	for {
		select {
		case leads := <-s.raft.LeaderCh():
			s.term.Store(0)
			if leads {
				s.establish()
			}
		case <-s.fsm.stopped:
			s.abdicate()
			return
		case <-s.quit:
			return
		}
	}
}

// campaign makes the only voter of a cluster the leader at once. Raft's follower
// would wait out one to two heartbeat timeouts (1 to 2 s) for a leader that cannot
// exist. Lower timeouts would do too, but the leader lease among them is fixed for
// the process's life, and too short once the node has peers. So the node tells
// itself what a leader that hands over tells its successor: time out now. If the
// message is lost, the ordinary timeout elects it a second later.
func (s *Store) campaign() {
	servers := s.raft.GetConfiguration().Configuration().Servers
	if len(servers) != 1 || servers[0].ID != raft.ServerID(s.self.NodeID) || servers[0].Suffrage != raft.Voter {
		return
	}
	request := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax,
		ID:              []byte(s.self.NodeID),
		Addr:            s.transport.EncodePeer(servers[0].ID, servers[0].Address),
	}}
	if err := s.transport.TimeoutNow(servers[0].ID, s.stream.self(), request, &raft.TimeoutNowResponse{}); err != nil {
		s.log.Debug("metastore: could not hurry the election; it takes its ordinary time", "err", err)
	}
	s.transport.CloseStreams() // nothing else will use the connection to itself
}

// establish makes a new leader able to write: one barrier per term, then its own
// member record, so that placement finds it. It returns when that is done, or the
// node no longer leads.
func (s *Store) establish() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for s.raft.State() == raft.Leader && s.fsm.stopErr() == nil {
		term := s.raft.CurrentTerm()
		s.enthrone(term)
		err := s.Barrier(ctx)
		if err == nil {
			err = s.registerSelf(ctx)
		}
		if err == nil && s.raft.State() == raft.Leader && s.raft.CurrentTerm() == term {
			s.term.Store(term)
			s.latchOnce.Do(func() { close(s.caughtUp) })
			return
		}
		s.log.Debug("metastore: new leader is not ready to write yet", "term", term, "err", err)
		timer := s.clock.NewTimer(leadRetry)
		select {
		case <-timer.C():
		case <-s.quit:
			timer.Stop()
			return
		}
	}
}

// enthrone notes the beginning of a term as the leader. What heartbeats told an
// earlier one is forgotten.
func (s *Store) enthrone(term uint64) {
	if r := s.reign.Load(); r == nil || r.term != term {
		s.transport.forget()
		s.reign.Store(&reign{term: term, since: s.clock.Now()})
	}
}

// registerSelf writes this node's member record. A decommissioned id cannot have
// one, and leads until the removal it is part of completes.
func (s *Store) registerSelf(ctx context.Context) error {
	_, err := s.propose(ctx, s.Report())
	if errors.Is(err, model.ErrMemberRemoved) {
		s.log.Error("member heartbeat refused", "member", s.self.NodeID, "err", err)
		return nil
	}
	return err
}

// Report is this node's member record as of now: what a registration and every
// heartbeat sends to the leader. It names the build and the newest entry type this
// node applies, except as release 3.0, which reports neither.
func (s *Store) Report() RegisterMember {
	r := RegisterMember{ID: s.self.NodeID, Addr: s.self.APIAddr, RaftAddr: s.stream.advertise, At: s.clock.Now().UnixMilli()}
	if s.gate.level != model.Level30 {
		r.Build, r.EntryTypes = s.self.Build, int(s.gate.newest)
	}
	return r
}

// Heartbeat writes this node's member record through the leader. A leader of release
// 3.0 refuses the report of build and entry types; it gets the record without, at
// once.
func (s *Store) Heartbeat(ctx context.Context) error {
	report := s.Report()
	_, err := s.Propose(ctx, report)
	if errors.Is(err, model.ErrTrailingData) {
		report.Build, report.EntryTypes = "", 0
		_, err = s.Propose(ctx, report)
	}
	return err
}

// abdicate leaves Raft: a replica that stopped must not vote, lead or acknowledge.
func (s *Store) abdicate() {
	s.term.Store(0)
	select {
	case <-s.quit:
		return // Close ended a retry; nothing failed for good
	default:
	}
	if err := s.stopRaft(); err != nil {
		s.log.Error("metastore: raft did not shut down cleanly", "err", err)
	}
	close(s.done)
}

// IsLeader reports whether this node leads, by its own knowledge.
func (s *Store) IsLeader() bool { return s.raft.State() == raft.Leader }

// CaughtUp reports whether the replica has been current once since the start: the
// latch of spec/http-api RT-7.
func (s *Store) CaughtUp() bool {
	select {
	case <-s.caughtUp:
		return true
	default:
		return false
	}
}

// Writable is nil while this node takes metadata writes: it leads and has passed
// the barrier of its term (spec/http-api RT-6).
func (s *Store) Writable() error {
	if err := s.fsm.stopErr(); err != nil {
		return err
	}
	if s.raft.State() != raft.Leader {
		return ErrNotLeader
	}
	if term := s.term.Load(); term == 0 || s.raft.CurrentTerm() != term {
		return fmt.Errorf("%w: this leader has not passed the barrier of its term yet", model.ErrUnavailable)
	}
	return nil
}

// LeaderTerm is the Raft term in which this node leads and takes writes, 0 while
// Writable refuses. Another answer is another term, however short the time between.
func (s *Store) LeaderTerm() uint64 {
	term := s.term.Load()
	if s.Writable() != nil || s.raft.CurrentTerm() != term {
		return 0
	}
	return term
}

// contact is what readiness is judged by.
type contact struct {
	hasLeader, leads, caughtUp bool
	last                       time.Time // last contact with the leader, zero = never
	now                        time.Time
}

// readiness is the table of spec/http-api H-6 to H-9.
func readiness(c contact) error {
	switch {
	case !c.hasLeader:
		return fmt.Errorf("%w: no raft leader known", ErrNotReady)
	case !c.leads && c.last.IsZero():
		return fmt.Errorf("%w: no contact with the raft leader yet", ErrNotReady)
	case !c.leads && c.now.Sub(c.last) > contactMax:
		return fmt.Errorf("%w: last raft leader contact %s ago", ErrNotReady, c.now.Sub(c.last).Round(time.Millisecond))
	case !c.caughtUp:
		return fmt.Errorf("%w: replica has not caught up with the leader since start", ErrNotReady)
	}
	return nil
}

// Ready is nil while the node may serve; the texts are those of /readyz.
func (s *Store) Ready() error {
	if err := s.fsm.stopErr(); err != nil {
		return err
	}
	leader, _ := s.raft.LeaderWithID()
	return readiness(contact{
		hasLeader: leader != "", leads: s.IsLeader(), caughtUp: s.CaughtUp(),
		last: s.raft.LastContact(), now: s.clock.Now(),
	})
}

// WaitReady returns once the replica has caught up since the start, or with why it
// has not.
func (s *Store) WaitReady(ctx context.Context) error {
	select {
	case <-s.caughtUp:
		return nil
	case <-s.done:
		return s.Err()
	case <-ctx.Done():
		return errors.Join(ctx.Err(), s.Ready())
	}
}
