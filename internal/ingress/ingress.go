package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/wal"
)

// Owner commits records to a partition: this node's broker, or a peer.
//
// A nil error means that every record is durable, verified and visible under
// consecutive offsets from first on; then the slice recs is the caller's again,
// while keys and payloads may be kept. model.ErrIncarnation refuses the batch as
// a whole for belonging to another life of the topic; every other error is a
// failed attempt whose outcome is unknown.
type Owner interface {
	Commit(ctx context.Context, topic string, partition int, recs []model.Record) (first int64, err error)
}

// Directory is the local replica's view of the topics. Both calls are made per
// message or batch: one map load, one atomic load.
type Directory interface {
	Topic(name string) (*model.TopicView, bool)
	TopicsVersion() uint64
}

// Placement tells who owns a partition. alive is membership's opinion of node.
// An error (model.ErrUnavailable before the first catch-up, no owner) means that
// the records wait.
type Placement interface {
	Owner(topic string, partition int) (o Owner, node string, alive bool, err error)
}

// Confirmer asks the leader, behind a barrier, whether an incarnation of a topic
// is gone; with id "", whether the name is absent. Anything but gone == true and
// no error keeps the data.
type Confirmer interface {
	ConfirmGone(ctx context.Context, name string, id model.Incarnation) (gone bool, err error)
}

// Schemas holds payloads against the schemas of topics that have one. It is asked
// for no other topic. Errors: model.ErrInvalid for a payload that is refused,
// ErrSchemaBusy, and the context's.
type Schemas interface {
	Check(ctx context.Context, view *model.TopicView, payload []byte) error
}

// Options of an Ingress. All but Registry and the last three are required.
type Options struct {
	FS        disk.FS
	Dir       string // <data>/ingress/produce
	Node      string // this node, as Placement names it
	Clock     clock.Clock
	Logger    *slog.Logger
	Registry  prometheus.Registerer // nil = metrics are not registered
	Directory Directory
	Schemas   Schemas
	Placement Placement
	Confirmer Confirmer

	SegmentBytes int64         // of the WAL; 0 = its default
	Spare        wal.SpareMode // of the WAL
	ReserveBytes int64         // free space below which nothing is accepted; 0 = off
}

// Ingress accepts messages on this node and dispatches them to their owners.
// All methods are safe for concurrent use.
type Ingress struct {
	clock   clock.Clock
	dir     Directory
	schemas Schemas
	log     *wal.Log
	metrics *metrics
	turns   *rotations
	disp    *dispatcher
	reg     prometheus.Registerer

	accepting atomic.Int64 // Accept and AcceptMany that have not returned

	stopOnce  sync.Once
	closeOnce sync.Once
	closeErr  error
}

// Open recovers the WAL and starts to dispatch what it holds.
func Open(o Options) (*Ingress, error) {
	h := newHandover()
	log, err := wal.Open(wal.Options{
		FS: o.FS, Dir: o.Dir, Clock: o.Clock, Logger: o.Logger, Registry: o.Registry,
		SegmentBytes: o.SegmentBytes, Spare: o.Spare, ReserveBytes: o.ReserveBytes,
		OnDurable: h.push,
	})
	if err != nil {
		return nil, fmt.Errorf("open ingress: %w", err)
	}
	h.start(log.Next())
	in := &Ingress{
		clock: o.Clock, dir: o.Directory, schemas: o.Schemas, log: log, reg: o.Registry,
		metrics: newMetrics(), turns: newRotations(rotationsMax),
	}
	sched := newScheduler(o.Directory, o.Placement, o.Node, log.Checkpoint(), in.metrics, o.Logger)
	in.disp = newDispatcher(o, log, h, sched)
	if err := in.metrics.register(o.Registry, in.backlog, in.oldestAge); err != nil {
		return nil, errors.Join(fmt.Errorf("open ingress: %w", err), log.Close())
	}
	go in.disp.run()
	return in, nil
}

// Backlog is the number of accepted records a restart would dispatch again.
func (in *Ingress) Backlog() uint64 {
	checkpoint := in.log.Checkpoint() // first, so that the difference is never negative
	return in.log.Next() - checkpoint
}

// InFlight is the number of produces that wait to become durable.
func (in *Ingress) InFlight() int { return int(in.accepting.Load()) }

func (in *Ingress) backlog() float64 { return float64(in.Backlog()) }

// oldestAge is the age of the first record not done, in seconds.
func (in *Ingress) oldestAge() float64 {
	at := in.disp.shared.oldestAt.Load()
	if at == 0 {
		return 0
	}
	return max(0, float64(in.clock.Now().UnixMilli()-at)/1000)
}

// Failed is non-nil once the WAL latched (model.ErrWALFailed) or the dispatcher
// met a record it cannot decode (model.ErrCorrupt); both stay until a restart.
func (in *Ingress) Failed() error {
	if err := in.log.Failed(); err != nil {
		return err
	}
	return in.disp.fault()
}

// StopDispatch lets no new commit leave and waits for those in flight, for a few
// seconds at most. What is not done stays in the WAL. Accept goes on working.
func (in *Ingress) StopDispatch() {
	in.stopOnce.Do(func() { close(in.disp.stop) })
	<-in.disp.done
}

// Close stops dispatching, stores the final checkpoint and closes the WAL. It is
// idempotent.
func (in *Ingress) Close() error {
	in.closeOnce.Do(func() {
		in.StopDispatch()
		in.disp.cancel()
		in.disp.await()
		in.closeErr = in.log.Close()
		in.metrics.unregister(in.reg)
	})
	return in.closeErr
}
