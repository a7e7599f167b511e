// Package router brings a request to the node that can serve it. In a cluster of
// one that is this node or nobody: the router resolves the topic, checks the
// partition and its owner, and hands the work to the local broker. It is the one
// place that knows where a partition lives; callers never look at owners.
package router

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
)

// routePoll is how often a consume that waits for its topic to get an owner
// looks at the placement again (spec/consume section 6.1).
const routePoll = 50 * time.Millisecond

// Directory is the local replica's view of the topics.
type Directory interface {
	Topic(name string) (*model.TopicView, bool)
}

// Local is the data plane of this node: the broker.
type Local interface {
	Consume(ctx context.Context, req broker.ConsumeRequest) ([]model.Delivery, error)
	Read(ctx context.Context, topic string, partition int, offset int64) (model.Message, bool, error)
	Settle(ctx context.Context, topic string, h model.Handle, op model.SettleOp) error
	Release(topic string, h model.Handle)
	CountRejected(reason string)
}

// Stats describes partitions this node owns without opening their logs.
type Stats interface {
	Describe(topic *model.TopicView, partition int) (model.PartitionStats, error)
}

// Options is what a Router is made of; every field is required.
type Options struct {
	Node      string // member id of this node
	Directory Directory
	Local     Local
	Stats     Stats
	Clock     clock.Clock
	Logger    *slog.Logger
}

// Router routes consumes, replays, settlements and descriptions. It starts no
// goroutine.
type Router struct {
	Options
	release    sync.Once
	releasedCh chan struct{} // closed by ReleaseWaiters
}

// New makes a router.
func New(o Options) *Router {
	return &Router{Options: o, releasedCh: make(chan struct{})}
}

// ReleaseWaiters ends the consumes that wait for an owner, now and from now on:
// they return nothing, as if their wait were over. Part of a graceful stop.
func (r *Router) ReleaseWaiters() {
	r.release.Do(func() { close(r.releasedCh) })
}

// Consume takes messages from the queue of a topic. Partition -1 takes from any.
// An empty result without an error means nothing came within the wait. A topic
// none of whose wanted partitions has an owner holds the request for its wait
// instead of answering at once, so that a poll loop does not spin
// (spec/consume section 6.1).
func (r *Router) Consume(ctx context.Context, req broker.ConsumeRequest) ([]model.Delivery, error) {
	view, err := r.view(req.Topic)
	if err != nil {
		return nil, err
	}
	where, err := r.locate(view, req.Partition)
	if err != nil {
		return nil, err
	}
	if where == here {
		return r.Local.Consume(ctx, req)
	}
	return r.hold(ctx, req)
}

// hold waits for a partition the request wants to get an owner, then serves it
// with what is left of the wait.
func (r *Router) hold(ctx context.Context, req broker.ConsumeRequest) ([]model.Delivery, error) {
	if req.Wait <= 0 {
		return nil, nil
	}
	deadline := r.Clock.Now().Add(req.Wait)
	timer := r.Clock.NewTimer(min(routePoll, req.Wait))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.releasedCh:
			return nil, nil
		case <-timer.C():
		}
		left := deadline.Sub(r.Clock.Now())
		if left <= 0 {
			return nil, nil
		}
		view, err := r.view(req.Topic)
		if err != nil {
			return nil, err
		}
		where, err := r.locate(view, req.Partition)
		if err != nil {
			return nil, err
		}
		if where == here {
			req.Wait = left
			return r.Local.Consume(ctx, req)
		}
		timer.Reset(min(routePoll, left))
	}
}

// Read is a replay read: the message at offset, or false when offset lies at or
// past the high watermark (spec/consume section 8).
func (r *Router) Read(ctx context.Context, topic string, partition int, offset int64) (model.Message, bool, error) {
	view, err := r.view(topic)
	if err != nil {
		return model.Message{}, false, err
	}
	if partition < 0 {
		return model.Message{}, false, errPartitionRange()
	}
	where, err := r.locate(view, partition)
	if err != nil {
		return model.Message{}, false, err
	}
	if where != here {
		return model.Message{}, false, notOwner(view, partition)
	}
	return r.Local.Read(ctx, topic, partition, offset)
}

// Settle acks, extends or nacks one delivery. A handle that names a partition
// the topic lacks names no live lease (spec/http-api section 10.5, A-2), which the
// broker says and counts.
func (r *Router) Settle(ctx context.Context, topic string, h model.Handle, op model.SettleOp) error {
	view, err := r.view(topic)
	if err != nil {
		return err
	}
	return r.settle(ctx, view, h, op)
}

// SettleMany settles handles in order; errs[i] is what Settle would have said of
// handles[i], so a handle listed twice is settled once and then has no lease.
// The second result is for a topic that cannot be resolved at all.
func (r *Router) SettleMany(ctx context.Context, topic string, handles []model.Handle, op model.SettleOp) (errs []error, err error) {
	view, err := r.view(topic)
	if err != nil {
		return nil, err
	}
	errs = make([]error, len(handles))
	for i, h := range handles {
		if ctx.Err() != nil {
			errs[i] = ctx.Err()
			continue
		}
		errs[i] = r.settle(ctx, view, h, op)
	}
	return errs, nil
}

func (r *Router) settle(ctx context.Context, view *model.TopicView, h model.Handle, op model.SettleOp) error {
	if h.Partition < view.Partitions && view.OwnerOf(h.Partition) != r.Node {
		return notOwner(view, h.Partition)
	}
	return r.Local.Settle(ctx, view.Name, h, op)
}

// Release gives back a delivery that was cut from an answer or never written.
func (r *Router) Release(topic string, h model.Handle) { r.Local.Release(topic, h) }

// CountRejected counts a settlement refused before it reached the router.
func (r *Router) CountRejected(reason string) { r.Local.CountRejected(reason) }

func (r *Router) view(topic string) (*model.TopicView, error) {
	view, ok := r.Directory.Topic(topic)
	if !ok {
		return nil, fmt.Errorf("%w: %q", model.ErrTopicNotFound, topic)
	}
	return view, nil
}

// place is where a request can be served.
type place uint8

const (
	nowhere place = iota // no owner yet: hold
	here                 // this node
)

// locate finds where partition of view is served, -1 meaning any of them. A
// partition somebody else owns is ErrNotOwner: this node reaches no other.
func (r *Router) locate(view *model.TopicView, partition int) (place, error) {
	if partition >= view.Partitions || partition < -1 {
		return nowhere, errPartitionRange()
	}
	if partition < 0 {
		for _, owner := range view.Owners {
			if owner == r.Node {
				return here, nil
			}
		}
		return nowhere, nil
	}
	switch view.OwnerOf(partition) {
	case r.Node:
		return here, nil
	case "":
		return nowhere, nil
	}
	return nowhere, notOwner(view, partition)
}

func errPartitionRange() error {
	return fmt.Errorf("%w: partition out of range", model.ErrInvalid)
}

func notOwner(view *model.TopicView, p int) error {
	return fmt.Errorf("%w: %s/%d is owned by %q", model.ErrNotOwner, view.Name, p, view.OwnerOf(p))
}
