package fanout

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

// Replica is the local replica of the metadata.
type Replica interface {
	Topic(name string) (*model.TopicView, bool)
	Range(f func(*model.TopicView) bool)
	// Version moves after every change of a domain is visible.
	Version(d metastore.Domain) uint64
	// AppliedCaughtUp is nil while the replica is provably current.
	AppliedCaughtUp() error
}

// Leader confirms what a cursor may destroy: the file of another epoch.
type Leader interface {
	ConfirmLink(ctx context.Context, parent, child, epoch string) (metastore.Confirmation, error)
}

// Parents are the partition logs of this node: package broker.
type Parents interface {
	Slab(name string, id model.Incarnation, p int, dst []commitlog.Stored, from int64, lim commitlog.SlabLimit) (commitlog.Slab, error)
	Tail(name string, id model.Incarnation, p int) (high int64, exact bool, err error)
	HighWatermark(name string, id model.Incarnation, p int) (int64, error)
	Changed(name string, id model.Incarnation, p int) (<-chan struct{}, error)
}

// Owner takes commits for the partitions of one node: the local broker, or a peer.
type Owner interface {
	// Commit stores records; durable and visible when it returns nil.
	Commit(ctx context.Context, topic string, partition int, recs []model.Record) (first int64, err error)
}

// Placement finds the owner of a child partition. An error means nobody can be asked
// now; the cursor waits.
type Placement interface {
	Owner(topic string, partition int) (Owner, error)
}

// Options configure an Engine. All but the peers, the registry and the last three are
// required.
type Options struct {
	FS        disk.FS
	DataDir   string
	Node      string // this node's member id
	Replica   Replica
	Leader    Leader
	Parents   Parents
	Placement Placement
	Peers     Peers // nil = this node has none
	Clock     clock.Clock
	Logger    *slog.Logger
	Registry  prometheus.Registerer // nil = unregistered

	MaxBatchRecords int           // of a slab; 0 = DefaultMaxBatchRecords
	MaxBatchBytes   int           // keys and payloads of a slab; 0 = DefaultMaxBatchBytes
	Linger          time.Duration // to fill a slab read at the end of the log; 0 = none
}

// Engine runs this node's cursors. Its methods are safe for concurrent use.
type Engine struct {
	opts    Options
	log     *slog.Logger
	limiter *telemetry.Limiter
	metrics *metrics

	slabs  sync.Pool     // of *slabBuffer
	starts chan struct{} // one slot for each cursor that reads its file

	soft, hard context.Context // the first ends waits, the second commits
	stopSoft   context.CancelFunc
	stopHard   context.CancelFunc
	cursors    sync.WaitGroup
	loop       sync.WaitGroup
	exited     atomic.Bool // some cursor has ended since the last pass

	set     runningSet
	closing sync.Once
}

// runningSet is the cursors that were started and not yet seen to have ended.
type runningSet struct {
	mu sync.RWMutex // guards by; the reconciler alone writes
	by map[place]*cursor
}

func (r *runningSet) get(k place) *cursor {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.by[k]
}

// each calls f with every cursor; f must not block.
func (r *runningSet) each(f func(*cursor)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, c := range r.by {
		f(c)
	}
}

// Open starts the engine. The first cursors start at once.
func Open(o Options) (*Engine, error) {
	e, err := build(o)
	if err != nil {
		return nil, err
	}
	e.loop.Go(newReconciler(e).run)
	return e, nil
}

// build is Open without the reconciler.
func build(o Options) (*Engine, error) {
	if o.FS == nil || o.Replica == nil || o.Leader == nil || o.Parents == nil || o.Placement == nil || o.Clock == nil || o.Logger == nil || o.Node == "" {
		return nil, fmt.Errorf("%w: fan-out needs a file system, replica, leader, parents, placement, clock, logger and node id", model.ErrInvalid)
	}
	if o.MaxBatchRecords == 0 {
		o.MaxBatchRecords = DefaultMaxBatchRecords
	}
	if o.MaxBatchBytes == 0 {
		o.MaxBatchBytes = DefaultMaxBatchBytes
	}
	e := &Engine{
		opts: o, log: o.Logger, limiter: telemetry.NewLimiter(o.Clock, warnEvery),
		starts: make(chan struct{}, startsAtOnce),
		set:    runningSet{by: map[place]*cursor{}},
	}
	e.slabs.New = func() any { return new(slabBuffer) }
	e.metrics = newMetrics(o.Registry, e)
	e.soft, e.stopSoft = context.WithCancel(context.Background())
	e.hard, e.stopHard = context.WithCancel(context.Background())
	return e, nil
}

// Close stops every cursor and waits for it. Slabs in flight get stopGrace to be
// committed and passed; past it they are copied again after the next start. Idempotent.
func (e *Engine) Close() error {
	e.closing.Do(func() {
		e.stopSoft()
		e.loop.Wait() // starts no cursor any more
		done := make(chan struct{})
		go func() { e.cursors.Wait(); close(done) }()
		timer := e.opts.Clock.NewTimer(stopGrace)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C():
			e.stopHard()
			<-done
		}
		e.stopHard()
		e.metrics.unregister()
	})
	return nil
}

// pause waits; false when ctx ends first.
func (e *Engine) pause(ctx context.Context, d time.Duration) bool {
	timer := e.opts.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

func (e *Engine) nowMS() int64 { return e.opts.Clock.Now().UnixMilli() }

// slabBuffer is what one busy cursor works with; idle cursors hold none.
type slabBuffer struct {
	stored  []commitlog.Stored
	recs    []model.Record
	buckets buckets
}

func (e *Engine) buffer() *slabBuffer { return e.slabs.Get().(*slabBuffer) }

// putBuffer gives a buffer back without what it refers to.
func (e *Engine) putBuffer(b *slabBuffer) {
	clear(b.stored[:cap(b.stored)])
	clear(b.recs[:cap(b.recs)])
	b.buckets.clear()
	e.slabs.Put(b)
}
