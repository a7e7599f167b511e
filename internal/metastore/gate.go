package metastore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

// The newest entry type of each release level.
const (
	newest30 = TypePlacePartitions
	newest31 = TypeRemoveUser
	newest32 = TypeDeleteRemote
)

// newestOf is the newest entry type a level applies.
func newestOf(l model.ReleaseLevel) EntryType {
	switch l {
	case model.Level30:
		return newest30
	case model.Level31:
		return newest31
	case model.Level32:
		return newest32
	}
	return NewestType
}

// gateLineEvery is how often a type that is held back says so.
const gateLineEvery = time.Minute

// gate decides which entry types a leader may propose.
type gate struct {
	level  model.ReleaseLevel
	newest EntryType // of the level
	cached atomic.Pointer[gateView]
	lines  *telemetry.Limiter // once a minute per type, and per joiner

	mu   sync.Mutex         // guards used
	used map[EntryType]bool // types this process has proposed
}

// gateView is the newest type every server and member applies, as of both lists.
type gateView struct {
	members uint64 // version of the member domain
	config  uint64 // index of the configuration
	newest  EntryType
}

// Applies is nil when every server and member applies an entry type, so that the
// leader may propose it; otherwise it is a *model.HeldBackError.
func (s *Store) Applies(t EntryType) error {
	if t <= newest30 || t <= s.gateView().newest {
		return nil
	}
	held := &model.HeldBackError{EntryType: int(t), Name: t.String(), Remotes: t > newest31}
	for _, h := range holders(s.Servers(), s.Members(), s.self.NodeID, s.gate.newest) {
		if h.newest >= t {
			continue
		}
		if held.Members == nil {
			held.Reason = h.why
		}
		held.Members = append(held.Members, h.id)
	}
	if held.Members == nil {
		return nil // the last one registered just now
	}
	return held
}

// gateView computes the gate, or takes it from the cache while nothing moved.
func (s *Store) gateView() *gateView {
	config := s.raft.GetConfiguration()
	members, index := s.Version(DomainMembers), config.Index()
	if v := s.gate.cached.Load(); v != nil && v.members == members && v.config == index {
		return v
	}
	v := &gateView{members: members, config: index, newest: s.gate.newest}
	for _, h := range holders(s.Servers(), s.Members(), s.self.NodeID, s.gate.newest) {
		v.newest = min(v.newest, h.newest)
	}
	s.gate.cached.Store(v)
	return v
}

// holder is one server or member and the newest type it is known to apply.
type holder struct {
	id, why string
	newest  EntryType
}

// holders is every server (voter or not) and every member (alive, dead or draining)
// by its last report, however old, ascending by id. self, the leader, counts as its
// own release; a server without record as the oldest.
func holders(servers []Server, members []model.Member, self string, own EntryType) []holder {
	out := []holder{{self, fmt.Sprintf("this node applies entry types up to %d", own), own}}
	recorded := map[string]bool{self: true}
	for _, m := range members {
		if m.ID == self {
			continue
		}
		recorded[m.ID] = true
		build := m.Build
		if build == "" {
			build = "not reported"
		}
		out = append(out, holder{m.ID, fmt.Sprintf("member %q (build %s) applies entry types up to %d", m.ID, build, reported(m)), reported(m)})
	}
	for _, server := range servers {
		if !recorded[server.ID] {
			out = append(out, holder{server.ID, fmt.Sprintf("raft server %q has no member record yet", server.ID), newest30})
		}
	}
	slices.SortFunc(out, func(a, b holder) int { return strings.Compare(a.id, b.id) })
	return out
}

// reported is the newest type a member says it applies; no report is that of 3.0.
func reported(m model.Member) EntryType {
	return EntryType(min(max(m.EntryTypes, int(newest30)), math.MaxUint8))
}

// fallback is a command that has older entries to fall back to.
type fallback interface {
	// base is the entries every release applies, in order.
	base() []Command
}

// proposeGated commits a command as the newest entries every member applies.
func (s *Store) proposeGated(ctx context.Context, c Command) (Result, error) {
	t := c.Type()
	if t <= newest30 {
		return s.propose(ctx, c)
	}
	held := s.Applies(t)
	if held == nil {
		s.logUse(t)
		return s.propose(ctx, c)
	}
	old, ok := c.(fallback)
	if !ok {
		return Result{}, held
	}
	s.logHeld(t, held)
	if err := s.check(c); err != nil {
		return Result{}, err
	}
	return s.proposeBase(ctx, c, old.base(), held)
}

// check is the leader-side check of an entry that older members cannot check: the
// command runs on this replica without writing. Commands check first and write
// after, so one that meets the read-only transaction has passed its checks.
func (s *Store) check(c Command) error {
	err := s.fsm.view(func(tx *bbolt.Tx) error { return c.apply(newTxn(tx, s.fsm.catalog)) })
	var r *refusal
	switch {
	case err == nil, errors.Is(err, bolterrors.ErrTxNotWritable):
		return nil
	case errors.As(err, &r):
		return err
	}
	return fmt.Errorf("%w: %w", model.ErrUnavailable, err)
}

// proposeBase commits the entries of an older release one after the other. A create
// whose later steps fail is taken back.
func (s *Store) proposeBase(ctx context.Context, c Command, steps []Command, held error) (r Result, err error) {
	for i, step := range steps {
		if r, err = s.propose(ctx, step); err != nil {
			if i > 0 {
				s.takeBack(ctx, steps[0])
			}
			return r, err
		}
	}
	if gone, ok := c.(RemoveUser); ok {
		s.logOwnerless(gone.Username, held)
	}
	return r, nil
}

// takeBack deletes a topic whose schema or link could not follow it.
func (s *Store) takeBack(ctx context.Context, first Command) {
	created, ok := first.(CreateTopic)
	if !ok {
		return
	}
	if _, err := s.propose(ctx, DeleteTopic{Name: created.Topic.Name, ID: created.Topic.ID}); err != nil {
		s.log.Error("metastore: a topic is left without its schema or its link to a parent", "topic", created.Topic.Name, "err", err)
	}
}

// logHeld says, once a minute and type, why a type is not used yet.
func (s *Store) logHeld(t EntryType, reason error) {
	if s.gate.lines.Allow(t.String()) {
		s.log.Info("metastore: not using a new raft entry type yet; proposing the entries every member applies",
			"entry_type", int(t), "name", t.String(), "reason", reason)
	}
}

// logUse says that a type is used for the first time by this process.
func (s *Store) logUse(t EntryType) {
	s.gate.mu.Lock()
	first := !s.gate.used[t]
	s.gate.used[t] = true
	s.gate.mu.Unlock()
	if first {
		s.log.Info(fmt.Sprintf("metastore: every member applies raft entry type %d; using %s", uint8(t), t))
	}
}

// ownerlessNamed is how many topics that line names.
const ownerlessNamed = 20

// logOwnerless names the topics an older user delete left to the next user of the
// name (spec/http-api AZ-23).
func (s *Store) logOwnerless(username string, held error) {
	var topics []string
	s.Range(func(v *model.TopicView) bool {
		if v.Owner == username {
			topics = append(topics, v.Name)
		}
		return true
	})
	slices.Sort(topics)
	if len(topics) > 0 {
		s.log.LogAttrs(context.Background(), slog.LevelWarn, "user deleted, but its topics still name it as owner",
			slog.String("component", "audit"), slog.String("user", username),
			slog.Any("topics", topics[:min(len(topics), ownerlessNamed)]), slog.Int("topic_count", len(topics)), slog.Any("reason", held))
	}
}
