package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/partition"
	"github.com/narad-mq/narad/internal/position"
	"github.com/narad-mq/narad/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

// Topics is the local replica as the broker reads it, on hot paths too. Views are compared
// by pointer, so no version is needed.
type Topics interface {
	// Topic returns the current view; the same pointer until the topic changes.
	Topic(name string) (*model.TopicView, bool)
}

// Defaults of Options (spec/storage-and-produce section 22).
const (
	DefaultIdleEviction = 30 * time.Minute
	DefaultColdWalk     = 5 * time.Minute
)

// frameCacheBytes is the process-wide budget of decoded frames
// (spec/storage-and-produce section 9.3).
const frameCacheBytes = 256 << 20

// Options configure a Broker.
type Options struct {
	FS       disk.FS
	DataDir  string
	Node     string // this node's member id
	Topics   Topics
	Clock    clock.Clock
	Logger   *slog.Logger
	Registry prometheus.Registerer // nil = unregistered
	Codec    commitlog.Codec

	IdleEviction   time.Duration // close logs not used for so long; 0 = never
	ColdWalk       time.Duration // look for expired segments of closed logs this often; 0 = never
	OffsetInterval time.Duration // durability of acks; 0 = 1 s
	OffsetFiles    int           // consumer files held open; 0 = position.FilesMax
	CaughtUp       func() bool   // has the replica been current since the start: before, nothing is owned; nil = yes
	Notifier       Notifier      // how other nodes are told of records; nil = there are none
}

// Broker is the node's data plane. Its methods are safe for concurrent use.
type Broker struct {
	opts      Options
	logger    *slog.Logger
	topicsDir string
	epoch     time.Time // now counts from here
	cache     *commitlog.Cache
	committer *position.Committer
	metrics   *metrics

	buffers *partition.Buffers
	waiters *sync.Pool // of *waiter

	names    sync.Map     // topic name -> *topic
	openLogs atomic.Int64 // partitions open now
	owned    owned

	pump     *pump
	notifier *notifier // nil = no other nodes
	purger   *purger
	keeper   *keeper

	released atomic.Bool // parks nobody any more
	closed   atomic.Bool // opens nothing any more
	closing  sync.Once
	closeErr error
}

// Open starts the data plane. It opens no partition; see Recover.
func Open(o Options) (*Broker, error) {
	if o.FS == nil || o.Topics == nil || o.Clock == nil || o.Logger == nil || o.Node == "" {
		return nil, fmt.Errorf("%w: broker needs a file system, topics, a clock, a logger and a node id", model.ErrInvalid)
	}
	b := &Broker{
		opts:      o,
		logger:    o.Logger,
		topicsDir: path.Join(o.DataDir, "topics"),
		epoch:     o.Clock.Now(),
		cache:     commitlog.NewCache(frameCacheBytes),
		buffers:   partition.NewBuffers(),
		waiters:   newWaiterPool(),
	}
	b.metrics = newMetrics(b)
	b.committer = position.NewCommitter(position.Options{
		FS: o.FS, Clock: o.Clock, Logger: o.Logger, Registry: o.Registry, Interval: o.OffsetInterval, MaxFiles: o.OffsetFiles,
	})
	b.pump = newPump(telemetry.NewLimiter(o.Clock, pumpWarnEvery))
	if o.Notifier != nil {
		b.notifier = newNotifier(b, o.Notifier)
		b.notifier.wg.Go(b.notifier.run)
	}
	b.purger = newPurger(o.Clock, b.now)
	b.keeper = newKeeper(b)
	go b.pump.run(b)
	go b.purger.run()
	go b.metrics.state.inventory.run()
	b.keeper.start()
	return b, nil
}

// now is the monotonic time that leases are judged by, in nanoseconds.
func (b *Broker) now() int64 { return int64(b.opts.Clock.Now().Sub(b.epoch)) }

// ReleaseWaiters sends every parked consumer away with nothing, and all who come
// later: the node is stopping (spec/consume section 6.1).
func (b *Broker) ReleaseWaiters() {
	b.released.Store(true)
	for _, t := range b.names.Range {
		t.(*topic).waiters.close(nil)
	}
}

// Close stops the data plane: consumers are sent away, the committer writes and levels
// every consumer position, then each log is closed with its high watermark
// (spec/storage-and-produce section 20). It is idempotent; a failed step does not stop
// the next.
func (b *Broker) Close() error {
	b.closing.Do(func() {
		b.ReleaseWaiters()
		b.closed.Store(true)
		b.keeper.close()
		b.metrics.state.inventory.close()
		b.purger.close()
		b.pump.close()
		if b.notifier != nil {
			b.notifier.close()
		}
		for _, e := range b.names.Range {
			for _, s := range e.(*topic).all() {
				if pt := s.part.Load(); pt != nil {
					pt.EndQueue()
				}
			}
		}
		err := b.committer.Close()
		b.closeErr = errors.Join(err, b.closeTopics())
		b.metrics.unregister()
	})
	return b.closeErr
}

// closersMax bounds the topics closed at once. Each partition that was written costs
// two syncs, and syncs under way together share the file system's journal commits.
const closersMax = 16

func (b *Broker) closeTopics() error {
	var mu sync.Mutex // guards errs
	var errs []error
	var closers errgroup.Group
	closers.SetLimit(closersMax)
	for _, e := range b.names.Range {
		closers.Go(func() error {
			failed := b.closeTopic(e.(*topic))
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, failed...)
			return nil // one that fails keeps none of the others open
		})
	}
	_ = closers.Wait()
	return errors.Join(errs...)
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func (b *Broker) closeTopic(t *topic) (errs []error) {
	t.guard.Lock()
	defer t.guard.Unlock()
	for _, s := range t.all() {
		if pt := s.part.Swap(nil); pt != nil {
			b.openLogs.Add(-1)
			errs = append(errs, pt.Close())
		}
	}
	return errs
}
