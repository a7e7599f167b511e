package membership

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

// The admissions of a 200 to a join. A leader of release 3.0 answers joined, and has
// added the joiner as a voter.
const (
	admissionStaged   = "staged"   // added as a non-voter, or made one
	admissionDeferred = "deferred" // a non-voter, or a voter to be made one, for a reason
	admissionPromoted = "promoted" // made a voter by this request
	admissionVoter    = "voter"    // a voter before it
)

// Join decides about a node that asks to be in the cluster: the answers of the cluster
// lifecycle document. 200 with an admission; 412 when this node has no Raft
// configuration, and so is no evidence of a cluster; 421 when it does not lead; 409 for
// a decommissioned id that does not come with an empty volume, and for a release older
// than the cluster's; 400 for a request that makes no sense, 503 when the change could
// not be committed.
func (m *Membership) Join(ctx context.Context, r peer.JoinRequest) peer.JoinAnswer {
	if why := m.malformed(r); why != "" {
		return peer.JoinAnswer{Status: http.StatusBadRequest, Reason: why}
	}
	if len(m.store.Servers()) == 0 {
		return peer.JoinAnswer{Status: http.StatusPreconditionFailed, Reason: "this node has no raft configuration"}
	}
	if m.store.Writable() != nil {
		return m.redirect()
	}
	var a peer.JoinAnswer
	err := m.decide(ctx, func() (err error) {
		a, err = m.admit(ctx, r)
		return err
	})
	switch {
	case errors.Is(err, model.ErrOlderRelease): // the store has logged it
		return peer.JoinAnswer{Status: http.StatusConflict, Code: codeOlderRelease, Reason: err.Error()}
	case errors.Is(err, metastore.ErrNotLeader):
		return m.redirect()
	case err != nil:
		m.log.Error("join cluster: admission failed", "id", r.ID, "raft_addr", r.RaftAddr, "err", err)
		return peer.JoinAnswer{Status: http.StatusServiceUnavailable, Reason: model.ErrUnavailable.Error()}
	case a.Admission == admissionDeferred:
		m.log.Debug("join cluster: promotion deferred", "id", r.ID, "reason", a.Reason)
	}
	return a
}

// malformed is what is wrong with a request by itself, "" when nothing is.
func (m *Membership) malformed(r peer.JoinRequest) string {
	switch {
	case r.ID == "" || len(r.ID) > idBytesMax:
		return fmt.Sprintf("node id of %d bytes, want 1 to %d", len(r.ID), idBytesMax)
	case !validHint(r.RaftAddr):
		return fmt.Sprintf("raft address %q of node %q cannot be dialled", r.RaftAddr, r.ID)
	case r.ID == m.self.ID:
		return fmt.Sprintf("%q is the id of the node that was asked", r.ID)
	}
	return ""
}

// redirect is the answer of a configured node that does not decide.
func (m *Membership) redirect() peer.JoinAnswer {
	id, addr := m.Hint()
	return peer.JoinAnswer{Status: http.StatusMisdirectedRequest, LeaderID: id, LeaderAddr: addr}
}

func admitted(admission, reason string) peer.JoinAnswer {
	return peer.JoinAnswer{Status: http.StatusOK, Admission: admission, Reason: reason}
}

// admit is Join on a node that leads, under decide.
func (m *Membership) admit(ctx context.Context, r peer.JoinRequest) (peer.JoinAnswer, error) {
	removed, err := m.store.Removed(r.ID)
	if err != nil {
		return peer.JoinAnswer{}, err
	}
	servers := m.store.Servers()
	server := find(servers, r.ID)
	record := m.record(r.ID)
	switch {
	case removed && !r.Empty:
		return peer.JoinAnswer{Status: http.StatusConflict, Reason: fmt.Sprintf(
			"node %q was decommissioned and removed; it may come back with an empty data directory", r.ID)}, nil
	case server == nil && !removed && record != nil && record.Draining:
		// Out of the configuration, and the tombstone follows: letting it in now would
		// undo the decommission.
		return peer.JoinAnswer{Status: http.StatusConflict, Reason: fmt.Sprintf("node %q is being decommissioned", r.ID)}, nil
	}
	for _, s := range servers {
		if s.Addr == r.RaftAddr && s.ID != r.ID {
			return peer.JoinAnswer{Status: http.StatusBadRequest, Reason: fmt.Sprintf(
				"raft address %q of node %q is that of node %q", r.RaftAddr, r.ID, s.ID)}, nil
		}
	}
	if removed {
		if err := m.readmit(ctx, r); err != nil {
			return peer.JoinAnswer{}, err
		}
	}
	switch {
	case server == nil:
		return admitted(admissionStaged, ""), m.store.AddNonvoter(ctx, r.ID, r.RaftAddr, r.EntryTypes)
	case server.Voter && r.Empty && record != nil:
		return m.demote(ctx, r, servers, *server)
	case server.Voter:
		return admitted(admissionVoter, ""), m.move(ctx, r, *server)
	}
	return m.promote(ctx, r, *server, record)
}

// readmit lifts a tombstone: an empty directory is a deliberate re-add. A release that is
// refused anyway lifts nothing.
func (m *Membership) readmit(ctx context.Context, r peer.JoinRequest) error {
	if err := m.store.CheckJoiner(r.ID, r.EntryTypes); err != nil {
		return err
	}
	_, err := m.store.Propose(ctx, metastore.ReadmitMember{ID: r.ID})
	if err != nil {
		m.log.Error("join cluster: readmit member", "id", r.ID, "err", err)
		return err
	}
	m.log.Info("join cluster: a decommissioned id comes back with an empty volume", "id", r.ID)
	return nil
}

// move gives a server that is in the configuration its address, and changes nothing else
// about it.
func (m *Membership) move(ctx context.Context, r peer.JoinRequest, s metastore.Server) error {
	if s.Addr == r.RaftAddr {
		return nil
	}
	m.log.Info("join cluster: raft server moves", "id", r.ID, "from", s.Addr, "to", r.RaftAddr)
	return m.store.AddNonvoter(ctx, r.ID, r.RaftAddr, r.EntryTypes) // a voter keeps its vote
}

// demote takes the vote of a voter that has lost its volume: it has forgotten what it
// voted and stored, and must not be counted until it has caught up. One without member
// record has not lost anything: it is an initial member that starts for the first time,
// after the others. Where the cluster could not commit anything without the voter, it
// keeps the vote: its log is the leader's from the first contact on, and the cluster goes
// on.
func (m *Membership) demote(ctx context.Context, r peer.JoinRequest, servers []metastore.Server, s metastore.Server) (peer.JoinAnswer, error) {
	if _, ok := m.hear(ctx, func(answered reach) bool { return sufficient(servers, m.self.ID, r.ID, answered) }); !ok {
		return admitted(admissionDeferred, "its volume is empty, and without its vote the cluster would have no quorum"), m.move(ctx, r, s)
	}
	m.log.Warn("join cluster: voter has lost its volume; it is a non-voter until it has caught up", "id", r.ID)
	if err := m.store.Demote(ctx, r.ID); err != nil {
		return peer.JoinAnswer{}, err
	}
	return admitted(admissionStaged, ""), m.move(ctx, r, s)
}

// promote gives a non-voter its vote, or says why not yet.
func (m *Membership) promote(ctx context.Context, r peer.JoinRequest, s metastore.Server, record *model.Member) (peer.JoinAnswer, error) {
	switch {
	case s.Addr != r.RaftAddr:
		return admitted(admissionDeferred, "its raft address has just changed"), m.move(ctx, r, s)
	case r.Empty:
		return admitted(admissionDeferred, "its volume is empty"), nil
	}
	c := candidate{led: m.store.LedFor(), ledMin: m.pace.led, failing: m.store.HeartbeatFailing(r.ID), record: record}
	if why := c.deferral(); why != "" {
		return admitted(admissionDeferred, why), nil
	}
	if _, ok := m.hear(ctx, func(answered reach) bool { return answered(s) }); !ok {
		// One just staged, moved or gone, whose heartbeats have not failed yet.
		return admitted(admissionDeferred, "it does not answer the leader's heartbeats"), nil
	}
	if err := m.store.AddVoter(ctx, r.ID, r.RaftAddr); err != nil {
		return peer.JoinAnswer{}, err
	}
	m.log.Info("join cluster: raft non-voter promoted", "id", r.ID)
	return admitted(admissionPromoted, ""), nil
}

// reach tells whether a server can be reached.
type reach func(metastore.Server) bool

// hear waits a little for answers to heartbeats that are sent from now on, and returns
// who has answered. What was heard before says nothing: a change of who votes counts at
// once, committed or not, so one that relies on a voter that has just gone leaves the
// cluster without a leader until that voter is back.
func (m *Membership) hear(ctx context.Context, enough func(answered reach) bool) (answered reach, ok bool) {
	since := m.clock.Now()
	answered = func(s metastore.Server) bool { return m.store.Answered(s, since) }
	timer := m.clock.NewTimer(hearPoll)
	defer timer.Stop()
	for !enough(answered) {
		if m.clock.Now().Sub(since) >= hearFor {
			return answered, false
		}
		timer.Reset(hearPoll)
		select {
		case <-timer.C():
		case <-ctx.Done():
			return answered, false
		}
	}
	return answered, true
}
