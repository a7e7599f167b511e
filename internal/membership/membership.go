package membership

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/telemetry"
)

// Self is this node as others know it.
type Self struct {
	ID       string
	APIAddr  string // host:port of its API and of its node RPC
	RaftAddr string // host:port others dial for its Raft
	Empty    bool   // the volume had no Raft state when the process started
}

// Options configures a Membership.
type Options struct {
	Self   Self
	Peers  []config.Peer // as configured; none = a node of its own, which never joins
	Store  *metastore.Store
	Client Joiner

	Clock    clock.Clock           // nil = the real one
	Logger   *slog.Logger          // nil = none
	Registry prometheus.Registerer // nil = unregistered

	pace pace // zero = the lifecycle's; for tests
}

// Membership is the node's part in its cluster. All methods are safe for concurrent use.
type Membership struct {
	self  Self
	peers []config.Peer
	store *metastore.Store
	clock clock.Clock
	log   *slog.Logger
	pace  pace

	pulse *pulse   // owned by the heartbeat's goroutine
	join  *joining // owned by the join loop's goroutine

	// deciding is held while this node, as the leader, changes the configuration: what
	// one decision counted on must still hold when the next is taken.
	deciding chan struct{}

	ctx       context.Context
	cancel    context.CancelFunc
	startOnce sync.Once
	wg        sync.WaitGroup
}

// New returns a membership that does nothing until Start, but serves others: Join,
// Register and Forget.
func New(o Options) *Membership {
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	if o.Logger == nil {
		o.Logger = telemetry.Discard()
	}
	if o.pace == (pace{}) {
		o.pace = lifecyclePace()
	}
	m := &Membership{
		self: o.Self, peers: o.Peers, store: o.Store, clock: o.Clock, log: o.Logger, pace: o.pace,
		pulse: newPulse(o.Self.ID, o.Clock, o.Logger, o.Registry), deciding: make(chan struct{}, 1),
	}
	m.join = &joining{m: m, walk: walker{
		client: o.Client, self: o.Self, log: o.Logger, lines: telemetry.NewLimiter(o.Clock, rejectedEvery),
	}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Start begins the heartbeats and, on a node with peers, the join loop, which also asks
// for this node's vote. Close ends them.
func (m *Membership) Start() {
	m.startOnce.Do(func() {
		m.wg.Go(m.beat)
		if len(m.peers) > 0 {
			m.wg.Go(m.join.run)
		}
	})
}

// Close ends what Start began, and waits for it. It is idempotent. What is served goes
// on until its callers leave.
func (m *Membership) Close() error {
	m.startOnce.Do(func() {}) // a Start that comes after it starts nothing
	m.cancel()
	m.wg.Wait()
	return nil
}

// every calls f, again and again, each time after the pause it returned.
func (m *Membership) every(f func() time.Duration) {
	timer := m.clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C():
			timer.Reset(f())
		case <-m.ctx.Done():
			return
		}
	}
}

// Hint is the leader as this node knows it: its id, and the address of its API, which
// is that of its node RPC too. Either is "" when unknown.
func (m *Membership) Hint() (id, apiAddr string) {
	id, _ = m.store.Leader()
	return id, m.apiAddr(id)
}

// apiAddr is where a node answers, by its member record or by the configuration.
func (m *Membership) apiAddr(id string) string {
	if id == m.self.ID {
		return m.self.APIAddr
	}
	if r := m.record(id); r != nil {
		return r.Addr
	}
	for _, p := range m.peers {
		if p.ID == id {
			return p.APIAddr
		}
	}
	return ""
}

// record is a member's record on this replica, nil when there is none. It is shared.
func (m *Membership) record(id string) *model.Member {
	members := m.store.Members()
	for i := range members {
		if members[i].ID == id {
			return &members[i]
		}
	}
	return nil
}

// Register stores a member's heartbeat, as the leader, stamped with this node's clock.
// A tombstoned id is refused with model.ErrMemberRemoved.
func (m *Membership) Register(ctx context.Context, r peer.MemberReport) error {
	switch {
	case !validHint(r.APIAddr):
		return fmt.Errorf("%w: API address %q of member %q cannot be dialled", model.ErrInvalid, r.APIAddr, r.ID)
	case r.ID == m.self.ID && m.store.IsLeader():
		return fmt.Errorf("%w: %q is the id of the node that leads, at %s", model.ErrConflict, r.ID, m.self.APIAddr)
	}
	_, err := m.store.Accept(ctx, metastore.RegisterMember{
		ID: r.ID, Addr: r.APIAddr, RaftAddr: r.RaftAddr, At: m.clock.Now().UnixMilli(), Build: r.Build, EntryTypes: r.EntryTypes,
	})
	return err
}

// decide runs f while no other change of the configuration is decided here.
func (m *Membership) decide(ctx context.Context, f func() error) error {
	select {
	case m.deciding <- struct{}{}:
		defer func() { <-m.deciding }()
		return f()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", model.ErrUnavailable, ctx.Err())
	}
}
