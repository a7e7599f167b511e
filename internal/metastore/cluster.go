package metastore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/narad-mq/narad/internal/model"
)

// ErrNotLeader: the call needs the leader, and this node is not. It is a
// model.ErrNotLeader, and so an ErrUnavailable, for every caller.
var ErrNotLeader = fmt.Errorf("%w", model.ErrNotLeader)

// ErrServerNotFound: no server of that id in the Raft configuration.
var ErrServerNotFound = errors.New("no such raft server")

// Server is one server of the Raft configuration.
type Server struct {
	ID    string // Raft server id, the member id
	Addr  string // host:port peers dial for Raft
	Voter bool
}

// Servers is the latest configuration known here, committed or not, ascending by
// id; empty on a node nobody admitted yet.
func (s *Store) Servers() []Server {
	raftServers := s.raft.GetConfiguration().Configuration().Servers
	out := make([]Server, 0, len(raftServers))
	for _, server := range raftServers {
		out = append(out, Server{ID: string(server.ID), Addr: string(server.Address), Voter: server.Suffrage == raft.Voter})
	}
	slices.SortFunc(out, func(a, b Server) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Leader is the id and Raft address of the leader as known here; "" = unknown.
func (s *Store) Leader() (id, addr string) {
	a, i := s.raft.LeaderWithID()
	return string(i), string(a)
}

// LedFor is how long this node has led in the current term, 0 when it does not.
func (s *Store) LedFor() time.Duration {
	r := s.reign.Load()
	if r == nil || !s.IsLeader() || s.raft.CurrentTerm() != r.term {
		return 0
	}
	return s.clock.Now().Sub(r.since)
}

// HeartbeatFailing is why this node's heartbeats, as the leader, do not reach a
// server; nil when the last one did, or none failed in the last 12 s.
func (s *Store) HeartbeatFailing(id string) error { return s.transport.failing(raft.ServerID(id)) }

// Answered is whether a server, at the address the configuration has for it, has
// answered a heartbeat that this node, as the leader, sent it since then; there is one
// every 100 to 200 ms. Where HeartbeatFailing takes up to the transport's 10 s to notice
// a server that drops packets, this one shows that it can be reached.
func (s *Store) Answered(server Server, since time.Time) bool {
	return s.transport.answeredSince(raft.ServerID(server.ID), raft.ServerAddress(server.Addr), since)
}

// AddNonvoter stages a server: it receives every entry and does not vote. One that
// is in the configuration already keeps its vote and gets the address. A joiner of
// an older release than the cluster is refused with ErrOlderRelease; entryTypes is
// the newest type it reported, 0 = none.
func (s *Store) AddNonvoter(ctx context.Context, id, addr string, entryTypes int) error {
	if err := s.CheckJoiner(id, entryTypes); err != nil {
		return err
	}
	return s.reconfigure(ctx, func() raft.IndexFuture {
		return s.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(addr), 0, configTimeout)
	})
}

// AddVoter makes a server a voter, or changes the address of one.
func (s *Store) AddVoter(ctx context.Context, id, addr string) error {
	return s.reconfigure(ctx, func() raft.IndexFuture {
		return s.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(addr), 0, configTimeout)
	})
}

// Demote takes a server's vote; it stays a non-voter.
func (s *Store) Demote(ctx context.Context, id string) error {
	if err := s.inConfiguration(id); err != nil {
		return err
	}
	return s.reconfigure(ctx, func() raft.IndexFuture { return s.raft.DemoteVoter(raft.ServerID(id), 0, configTimeout) })
}

// Remove takes a server out of the configuration.
func (s *Store) Remove(ctx context.Context, id string) error {
	if err := s.inConfiguration(id); err != nil {
		return err
	}
	return s.reconfigure(ctx, func() raft.IndexFuture { return s.raft.RemoveServer(raft.ServerID(id), 0, configTimeout) })
}

func (s *Store) inConfiguration(id string) error {
	if !slices.ContainsFunc(s.Servers(), func(server Server) bool { return server.ID == id }) {
		return fmt.Errorf("%w: %q", ErrServerNotFound, id)
	}
	return nil
}

// reconfigure has the leader commit a change of the configuration.
func (s *Store) reconfigure(ctx context.Context, change func() raft.IndexFuture) error {
	if err := s.Writable(); err != nil {
		return err
	}
	if err := s.await(ctx, func() raft.Future { return change() }); err != nil {
		return fmt.Errorf("raft configuration: %w", err)
	}
	return nil
}

// answeredLately is how recent an answer to a heartbeat shows that a voter can take over.
const answeredLately = time.Second

// TransferLeadership hands leadership to a voter that answers: the one that is furthest
// along while they all do. Raft by itself would choose by what it has sent, and so may
// wait for one that is gone. A node that does not lead, or is the only voter, has nothing
// to hand over.
func (s *Store) TransferLeadership(ctx context.Context) error {
	voters := slices.DeleteFunc(s.Servers(), func(server Server) bool { return !server.Voter || server.ID == s.self.NodeID })
	if !s.IsLeader() || len(voters) == 0 {
		return nil
	}
	answering := s.answering(ctx, voters)
	ask := []func() raft.Future{func() raft.Future { return s.raft.LeadershipTransfer() }}
	if n := len(answering); n > 0 && n < len(voters) {
		ask = ask[:0]
		for _, v := range answering {
			ask = append(ask, func() raft.Future {
				return s.raft.LeadershipTransferToServer(raft.ServerID(v.ID), raft.ServerAddress(v.Addr))
			})
		}
	}
	var err error
	for _, transfer := range ask {
		if err = s.await(ctx, transfer); err == nil {
			return nil
		}
		if ctx.Err() != nil || !s.IsLeader() {
			break
		}
	}
	return fmt.Errorf("transfer leadership: %w", err)
}

// Bounds of the wait for a voter that answers.
const (
	answerWait = time.Second
	answerPoll = 20 * time.Millisecond
)

// answering is which of the voters have answered of late; where none has, as on a busy
// machine, the first that do within a second.
func (s *Store) answering(ctx context.Context, voters []Server) []Server {
	since := s.clock.Now().Add(-answeredLately)
	timer := s.clock.NewTimer(answerWait)
	defer timer.Stop()
	poll := s.clock.NewTimer(answerPoll)
	defer poll.Stop()
	for {
		out := slices.DeleteFunc(slices.Clone(voters), func(v Server) bool { return !s.Answered(v, since) })
		if len(out) > 0 {
			return out
		}
		select {
		case <-poll.C():
			poll.Reset(answerPoll)
		case <-timer.C():
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}
