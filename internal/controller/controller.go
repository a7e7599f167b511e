// Package controller does the leader's duties: it places partitions, marks silent
// members dead, and prunes assignment rows that belong to no partition. It runs on
// every node and acts on the one that leads.
//
// # A term
//
// The membership watch looks every 250 ms. A term begins with a Raft barrier: only
// behind it is the member table read, for until then the state machine may lack
// heartbeats that earlier leaders committed. Every 10 s comes a tick: dead marking,
// then the sweep that places partitions without owner. The sweep also runs soon after
// members turn alive: when every voter is, or 1 s after the last one arrived. Rows of
// no partition are pruned when a term begins and at every 6th tick.
//
// # Silence
//
// The time of a heartbeat is another clock's. What is judged is how long this loop has
// run in its term without seeing a member's heartbeat change, on its own monotonic
// clock; a stretch in which the loop did not get to look counts for 1 s at most. So
// nothing an earlier leader, a leaderless cluster or a stopped process left unstamped
// is held against anybody. The leader never judges itself. A pass that would leave
// fewer than a quorum of the voters alive marks none of them: this node would not lead
// if they were down, so what fails is how their heartbeats get here.
//
// # Owners
//
// Partitions are placed once. A dead owner keeps what it owns, as its disk holds the
// data; nothing here replaces an owner, and neither does the entry that places. Creates
// and the sweep take the assignment lock, see Place.
package controller

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

// Leadership is whether and since when this node leads.
type Leadership interface {
	// LeaderTerm is the term in which this node takes writes, 0 = none.
	LeaderTerm() uint64
	// Barrier returns once the replica holds everything committed before; at most 5 s.
	Barrier(ctx context.Context) error
}

// Roster is who there is.
type Roster interface {
	Members() []model.Member
	Servers() []metastore.Server
	Version(d metastore.Domain) uint64
}

// Placements are the partitions and their owners.
type Placements interface {
	Topic(name string) (*model.TopicView, bool)
	Range(f func(*model.TopicView) bool)
	OwnedPartitions(member string) int
	OrphanPlacements(limit int) ([]model.PartitionKey, error)
}

// Entries commits changes on this node, as the leader, or not at all.
type Entries interface {
	Accept(ctx context.Context, c metastore.Command) (metastore.Result, error)
	// Applies is nil when every member applies an entry type.
	Applies(t metastore.EntryType) error
}

// Store is what the controller needs of the metastore.
type Store interface {
	Leadership
	Roster
	Placements
	Entries
}

// Options configures a Controller.
type Options struct {
	Store    Store
	Self     string                // this node's member id
	Clock    clock.Clock           // nil = the real one
	Logger   *slog.Logger          // nil = none
	Registry prometheus.Registerer // nil = unregistered
}

// Controller does the leader's duties on one node. Place is safe for concurrent use.
type Controller struct {
	store   Store
	self    string
	clock   clock.Clock
	log     *slog.Logger
	metrics *metrics
	assign  *semaphore.Weighted // the assignment lock, see Place
	reign   *reign              // nil while not leading; the loop's alone

	mu      sync.Mutex     // guards pending and forming
	pending map[string]int // member id -> partitions chosen and not yet applied
	forming time.Time      // when the cluster was first seen forming; zero = it is not

	quit      context.Context // done once Close is called
	stop      context.CancelFunc
	startOnce sync.Once
	loop      sync.WaitGroup
}

// New returns a controller; Start has it act.
func New(o Options) *Controller {
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	if o.Logger == nil {
		o.Logger = telemetry.Discard()
	}
	quit, stop := context.WithCancel(context.Background())
	return &Controller{
		store: o.Store, self: o.Self, clock: o.Clock, log: o.Logger, metrics: newMetrics(o.Registry),
		assign: semaphore.NewWeighted(assignWhole), pending: map[string]int{}, quit: quit, stop: stop,
	}
}

// Start begins the membership watch. Calling it again does nothing.
func (c *Controller) Start() {
	c.startOnce.Do(func() { c.loop.Go(c.run) })
}

// Close ends the watch and waits for it; creates that wait for a forming cluster go on
// at once. It is idempotent.
func (c *Controller) Close() error {
	c.startOnce.Do(func() {}) // nothing starts after it
	c.stop()
	c.loop.Wait()
	return nil
}

// run looks until Close.
func (c *Controller) run() {
	c.look(c.quit)
	timer := c.clock.NewTimer(watchEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C():
		case <-c.quit.Done():
			return
		}
		c.look(c.quit)
		timer.Reset(watchEvery)
	}
}
