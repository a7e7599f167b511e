// Package topics is the topic manager: it checks a change of topics against the
// rules of the API, proposes it to the metastore, and retries once when the topic
// changed in between. It runs on the Raft leader, whose replica holds every change
// that was ever answered.
package topics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/narad-mq/narad/internal/access"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/schema"
	"github.com/narad-mq/narad/internal/telemetry"
)

// Store is what the manager needs of the metastore. Accept commits an entry on this
// node or not at all: what was checked here is never handed to a leader that came
// later. It returns once the local replica shows the change, so what a manager answers
// can be used at once.
type Store interface {
	Topic(name string) (*model.TopicView, bool)
	NameTaken(name string) (existing string, ok bool)
	// LatestSchema is the newest version of a topic's schema; version 0 = none.
	LatestSchema(topic string) (doc []byte, version int, err error)
	Writable() error
	Accept(ctx context.Context, c metastore.Command) (metastore.Result, error)
}

// Placer chooses the members that new partitions go to: the controller.
type Placer interface {
	// Place chooses owners for n partitions, each kept off the parent's owner of the same
	// index as far as it goes. done is called once they are applied or given up.
	// model.ErrNoMember leaves them unassigned (TC-17).
	Place(ctx context.Context, n int, parentOwners []string) (owners []string, done func(), err error)
}

// Defaults are the values of fields a request leaves out (spec/operations section
// 2.4, topic). Times are milliseconds.
type Defaults struct {
	Partitions    int
	MaxPartitions int
	RetentionMS   int64 // 0 keeps forever
	VisibilityMS  int64
	MaxInFlight   int
	MaxAckedAhead int
}

// Gate is what a create waits for: package reclaim's, open once the startup sweep is over.
type Gate interface {
	// Wait returns nil once creates may go on, or why they may not before ctx ends.
	Wait(ctx context.Context) error
}

// Options configures a Manager.
type Options struct {
	Store    Store
	Placer   Placer
	Defaults Defaults
	// Users are asked who a caller is, for the second check of a change
	// (spec/http-api section 4); nil = security is off.
	Users access.Reader
	// Tails are asked where a child's copy begins.
	Tails  Tails
	Node   string       // this node's member id, for log lines
	Clock  clock.Clock  // nil = the real one
	Logger *slog.Logger // nil = none
	// Gate holds creates back while it is armed; nil = never.
	Gate Gate
	// OnDeleted is told of every deleted incarnation, so that its data can be
	// purged. It must not block; nil = nobody.
	OnDeleted func(name string, id model.Incarnation)
}

// Manager creates, alters and deletes topics. Safe for concurrent use.
type Manager struct {
	store     Store
	placer    Placer
	users     access.Reader // nil = security is off
	tails     Tails
	defaults  Defaults
	node      string
	clock     clock.Clock
	log       *slog.Logger
	onDeleted func(name string, id model.Incarnation)
	gate      Gate // nil = always open
	locks     *nameLocks
}

// New returns a manager over the store.
func New(o Options) *Manager {
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	if o.Logger == nil {
		o.Logger = telemetry.Discard()
	}
	if o.OnDeleted == nil {
		o.OnDeleted = func(string, model.Incarnation) {}
	}
	return &Manager{
		store: o.Store, placer: o.Placer, users: o.Users, tails: o.Tails, defaults: o.Defaults, node: o.Node, clock: o.Clock, log: o.Logger, onDeleted: o.OnDeleted,
		gate: o.Gate, locks: newNameLocks(),
	}
}

// CreateRequest asks for a topic (spec/http-api section 8.1). Zero fields take the
// server's defaults; so does a nil RetentionMS, while 0 keeps forever.
type CreateRequest struct {
	Name                string
	Partitions          int
	RetentionMS         *int64
	VisibilityTimeoutMS int64
	MaxInFlight         int
	MaxAckedAhead       int
	Schema              []byte // a JSON Schema, its version 1; nil = none
	Caller              string // username: the owner from then on; "" with security off
	Parent              string // the topic it becomes a child of; "" = none
	DelayMS             int64  // of a child
}

// Create makes a topic, places its partitions and registers its schema in one entry;
// the topic can be produced to and consumed from the moment it returns. The view has no role, as the
// answer to a create has none (TC-1).
func (m *Manager) Create(ctx context.Context, r CreateRequest) (*model.TopicView, error) {
	rec, err := m.newTopic(r)
	if err != nil {
		return nil, err
	}
	if r.Schema != nil {
		if _, r.Schema, err = schema.Register(r.Name, 1, r.Schema); err != nil {
			return nil, err // TC-4
		}
	}
	if m.gate != nil {
		if err := m.gate.Wait(ctx); err != nil {
			return nil, err
		}
	}
	unlock, err := m.locks.lockBoth(ctx, foldName(r.Name), foldName(r.Parent))
	if err != nil {
		return nil, err
	}
	defer unlock()
	for try := 0; ; try++ {
		view, err := m.tryCreate(ctx, r, rec)
		if try == 0 && (errors.Is(err, model.ErrMemberRemoved) || errors.Is(err, model.ErrTopicChanged)) {
			continue // placed before a member was removed, or the parent changed
		}
		return view, err
	}
}

// CheckCreate applies the rules a request breaks or keeps by itself, whatever exists
// and whoever asks (TC-3): they come before rights (spec/http-api PIPE-9, PIPE-10).
func (m *Manager) CheckCreate(r CreateRequest) error {
	_, err := m.newTopic(r)
	return err
}

func (m *Manager) tryCreate(ctx context.Context, r CreateRequest, rec model.Topic) (*model.TopicView, error) {
	if err := m.store.Writable(); err != nil {
		return nil, err
	}
	if err := m.mayCreate(r); err != nil {
		return nil, err
	}
	if existing, taken := m.store.NameTaken(rec.Name); taken {
		if existing == rec.Name {
			return nil, model.ErrTopicExists
		}
		return nil, fmt.Errorf("%w: %q exists", model.ErrNameTaken, existing)
	}
	if r.Parent != "" {
		return m.createUnder(ctx, r, rec)
	}
	owners, done, err := m.place(ctx, rec.Name, rec.Partitions, nil, createdUnplaced)
	if err != nil {
		return nil, err
	}
	defer done()
	entry := metastore.CreateLinkedTopic{Topic: rec, Owners: owners, Schema: r.Schema} // TC-21
	if _, err := m.store.Accept(ctx, entry); err != nil {
		return nil, err
	}
	view := &model.TopicView{Topic: rec, Owners: make([]string, rec.Partitions)}
	copy(view.Owners, owners)
	return view, nil
}

// newTopic checks a request and fills in the defaults (TC-3).
func (m *Manager) newTopic(r CreateRequest) (model.Topic, error) {
	rec := model.Topic{
		Name: r.Name, ID: model.NewIncarnation(), Owner: r.Caller, CreatedAt: m.clock.Now().Unix(),
		Partitions:          orDefault(r.Partitions, m.defaults.Partitions),
		RetentionMS:         m.defaults.RetentionMS,
		VisibilityTimeoutMS: orDefault(r.VisibilityTimeoutMS, m.defaults.VisibilityMS),
		MaxInFlight:         orDefault(r.MaxInFlight, m.defaults.MaxInFlight),
		MaxAckedAhead:       orDefault(r.MaxAckedAhead, m.defaults.MaxAckedAhead),
	}
	if r.RetentionMS != nil {
		rec.RetentionMS = *r.RetentionMS
	}
	if err := model.ValidateTopicName(r.Name); err != nil {
		return rec, fmt.Errorf("%w: %w", model.ErrInvalid, err)
	}
	return rec, firstError(
		checkRange("partitions", rec.Partitions, model.PartitionsMin, m.defaults.MaxPartitions),
		checkRetention(rec.RetentionMS),
		checkRange("visibility_timeout_ms", rec.VisibilityTimeoutMS, 1, model.VisibilityMSMax),
		checkCap("max_in_flight_per_partition", rec.MaxInFlight),
		checkCap("max_acked_ahead_per_partition", rec.MaxAckedAhead),
		checkParent(r),
	)
}

// Delete removes a topic from the metadata and hands its incarnation to OnDeleted
// (TD-1). Children become standalone (TD-2).
func (m *Manager) Delete(ctx context.Context, name, caller string) error {
	unlock, err := m.locks.lock(ctx, foldName(name))
	if err != nil {
		return err
	}
	defer unlock()
	return m.compareAndSet(name, caller, func(v *model.TopicView) error {
		_, err := m.store.Accept(ctx, metastore.RemoveTopic{Name: name, ID: v.ID})
		if err == nil {
			m.onDeleted(name, v.ID)
		}
		return err
	})
}

// compareAndSet runs a change against the topic as it stands, if the caller may
// manage that one, and once more when the topic changed under it (RT-8).
func (m *Manager) compareAndSet(name, caller string, change func(v *model.TopicView) error) error {
	for try := 0; ; try++ {
		if err := m.store.Writable(); err != nil {
			return err
		}
		v, ok := m.store.Topic(name)
		if !ok {
			return model.ErrTopicNotFound
		}
		err := m.mayManage(caller, v)
		if err == nil {
			err = change(v)
		}
		if try == 0 && changedUnder(err) {
			continue
		}
		return err
	}
}

// Warnings of changes that went through while no member was alive (TC-17).
const (
	createdUnplaced = "topic created without immediate partition assignment"
	grownUnplaced   = "topic partitions increased without immediate assignment"
)

// place has owners chosen for n new partitions of a topic. Without any live member the
// partitions stay unassigned, with a warning (TC-17).
func (m *Manager) place(ctx context.Context, topic string, n int, parentOwners []string, warning string) (owners []string, done func(), err error) {
	owners, done, err = m.placer.Place(ctx, n, parentOwners)
	if errors.Is(err, model.ErrNoMember) {
		m.log.Warn(warning, "topic", topic, "node", m.node, "err", err)
		return nil, func() {}, nil
	}
	return owners, done, err
}

// changedUnder reports whether a change was refused for what it was checked against.
func changedUnder(err error) bool {
	return errors.Is(err, model.ErrTopicChanged) || errors.Is(err, model.ErrMemberRemoved) || errors.Is(err, model.ErrVersionExists)
}

// foldName is the key of a name's lock: names are unique ignoring letter case.
func foldName(name string) string { return strings.ToLower(name) }
