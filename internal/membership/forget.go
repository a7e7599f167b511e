package membership

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

// refusal is a refusal with a text of its own.
type refusal struct {
	is   error // sentinel of package model
	text string
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) Unwrap() error { return r.is }

func refusef(is error, format string, args ...any) error {
	return &refusal{is: is, text: fmt.Sprintf(format, args...)}
}

// Forget removes a server that never became a member from the Raft configuration, as the
// leader and on behalf of caller, and tells whether it had a vote. It touches no data: a
// server with a member record in any state, or named by an assignment, is refused with
// model.ErrConflict (spec/http-api section 12.4), and so is a voter without which the
// cluster might have no quorum. The leader itself is model.ErrInvalid, an unknown id
// model.ErrMemberNotFound.
func (m *Membership) Forget(ctx context.Context, id, caller string) (voter bool, err error) {
	err = m.decide(ctx, func() error {
		if err := m.store.Barrier(ctx); err != nil {
			return err
		}
		servers := m.store.Servers()
		server := find(servers, id)
		if err := m.forgettable(ctx, servers, server, id); err != nil {
			return err
		}
		voter = server.Voter
		if err := m.store.Remove(ctx, id); err != nil {
			return err
		}
		m.log.Warn("forgot a raft server with no member record", "component", "audit", "id", id, "voter", voter, "actor", caller)
		return nil
	})
	return voter, err
}

// forgettable is F-2 to F-7: nil when the server may be removed.
func (m *Membership) forgettable(ctx context.Context, servers []metastore.Server, server *metastore.Server, id string) error {
	switch {
	case id == m.self.ID:
		return refusef(model.ErrInvalid, "%q is the raft leader itself, which cannot forget itself", id)
	case server == nil:
		return refusef(model.ErrMemberNotFound, "no raft server %q", id)
	}
	if r := m.record(id); r != nil {
		return refusef(model.ErrConflict, "%q has a member record (%s); decommission it instead", id, r.Status)
	}
	if where := m.assigned(id); where != "" {
		return refusef(model.ErrConflict, "%q is named by the assignment of %s; forget never touches data", id, where)
	}
	if !server.Voter {
		return nil
	}
	if led := m.store.LedFor(); led < m.pace.led {
		return refusef(model.ErrConflict, "the leader %q has led for less than %s, so it cannot tell yet which voters it reaches", m.self.ID, m.pace.led)
	}
	answered, ok := m.hear(ctx, func(answered reach) bool { return sufficient(servers, m.self.ID, id, answered) })
	if !ok {
		return refusef(model.ErrConflict, "forgetting the voter could leave the cluster without a quorum: heartbeats to %s are failing",
			strings.Join(m.failing(servers, id, answered), ", "))
	}
	return nil
}

// failing are the other voters, but one, that do not answer.
func (m *Membership) failing(servers []metastore.Server, but string, answered reach) (ids []string) {
	for _, s := range servers {
		if s.Voter && s.ID != but && s.ID != m.self.ID && !answered(s) {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// assigned is a partition whose assignment names the id as owner or move target, "" when
// there is none.
func (m *Membership) assigned(id string) (where string) {
	m.store.Range(func(v *model.TopicView) bool {
		if p := slices.Index(v.Owners, id); p >= 0 {
			where = fmt.Sprintf("%s/%d", v.Name, p)
		} else if p := slices.Index(v.Targets, id); p >= 0 {
			where = fmt.Sprintf("%s/%d", v.Name, p)
		}
		return where == ""
	})
	return where
}
