// Package router brings a request to the node that can serve it. It is the one place that
// knows where a partition lives; callers never look at owners.
//
// A request for one partition (pinned consume, replay, settlement) is served here or
// forwarded to the partition's owner. A queue consume takes what this node's partitions
// have; then each other owner is probed once, without waiting; then the consumer parks in
// the broker's queue, and the gateway leaves tokens with the other owners, so that they
// send word when they have a record (spec/consume-and-delivery sections 6 and 7). What
// other nodes ask of this one is served by Here and never forwarded again.
package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

// Budgets of requests to other nodes (spec/consume-and-delivery sections 9.1 and 20).
const (
	probeBudget   = 500 * time.Millisecond // of a probe or claim, with dial and stream
	forwardMargin = 2 * time.Second        // that a forwarded long poll has beyond its wait
	readBudget    = 5 * time.Second        // of a forwarded replay read
	settleBudget  = 2 * time.Second        // of a forwarded settlement, with waiting for a slot
	waitMax       = 30 * time.Second       // Options.MaxWait when that is 0
)

// Queues is the part of the local broker that hands out records.
type Queues interface {
	Consume(ctx context.Context, req broker.ConsumeRequest) ([]model.Delivery, error)
	ConsumeForPeer(ctx context.Context, req broker.ConsumeRequest, c broker.Claim) ([]model.Delivery, error)
	Read(ctx context.Context, topic string, partition int, offset int64) (model.Message, bool, error)
	CountConsume(topic string, took time.Duration, records int, wait time.Duration, err error)
}

// Leases is the part of the local broker that ends leases.
type Leases interface {
	Settle(ctx context.Context, topic string, h model.Handle, op model.SettleOp) error
	Release(topic string, h model.Handle)
	CountRejected(reason string)
}

// Wakes is the part of the local broker that waits with other nodes.
type Wakes interface {
	RegisterToken(node, addr, topic string, ttl time.Duration)
	SendWord(topic, owner string) bool
}

// Local is the data plane of this node: the broker.
type Local interface {
	Queues
	Leases
	Wakes
}

// Stats describes partitions this node owns without opening their logs.
type Stats interface {
	Describe(topic *model.TopicView, partition int) (model.PartitionStats, error)
}

// Owners are the other nodes as owners of partitions. An error that is no
// *peer.StatusError is no answer; peer.ErrUnreached, that none can have come.
type Owners interface {
	Consume(ctx context.Context, addr string, r peer.ConsumeRequest) ([]model.Delivery, error)
	Read(ctx context.Context, addr, topic string, partition int, offset int64) (model.Message, bool, error)
	Settle(ctx context.Context, addr, topic string, h model.Handle, op model.SettleOp) error
	SettleMany(ctx context.Context, addr, topic string, hs []model.Handle, op model.SettleOp) ([]error, error)
}

// Peers reaches the other nodes: package peer.
type Peers interface {
	Owners
	RegisterTokens(ctx context.Context, addr, callback string, toks []peer.Token) error
	Stats(ctx context.Context, addr, topic string, partition int) ([]model.PartitionStats, error)
}

// Options is what a Router is made of; every field without a default is required.
type Options struct {
	Node      string // member id of this node
	Directory Directory
	Table     *Table // nil = one of the router's own, over Directory
	Local     Local
	Stats     Stats
	Peers     Peers         // nil = there are no other nodes
	MaxWait   time.Duration // of a long poll forwarded to this node; 0 = 30 s
	Clock     clock.Clock
	Logger    *slog.Logger
}

// Router routes consumes, replays, settlements and descriptions.
type Router struct {
	Options
	gateway *gateway // nil = no other nodes
	held    *held

	released context.Context // done from ReleaseWaiters on
	release  context.CancelFunc
	giving   chan struct{} // slots of records being given back to other owners
	late     chan struct{} // slots of registrations that wait for this replica
	crew     crew
}

// New makes a router. With other nodes it starts a goroutine, and else when a
// consume is held; see Close.
func New(o Options) *Router {
	if o.Table == nil {
		o.Table = NewTable(o.Node, o.Directory)
	}
	if o.MaxWait <= 0 {
		o.MaxWait = waitMax
	}
	r := &Router{Options: o, giving: make(chan struct{}, givingMax), late: make(chan struct{}, lateMax)}
	r.released, r.release = context.WithCancel(context.Background())
	r.crew.open()
	r.held = newHeld(r)
	if o.Peers != nil {
		r.gateway = newGateway(r)
		r.crew.do(func(context.Context) { r.gateway.run() })
	}
	return r
}

// ReleaseWaiters ends the consumes that wait for an owner, or at one, now and from now on:
// they return nothing, as if their wait were over. Part of a graceful stop.
func (r *Router) ReleaseWaiters() { r.release() }

// Close ends what goes on in the background: tokens at other owners, records being given
// back. It is idempotent.
func (r *Router) Close() error {
	r.release()
	r.crew.close()
	return nil
}

// Consume takes messages from the queue of a topic. Partition -1 takes from any.
// An empty result without an error means nothing came within the wait. A topic
// none of whose wanted partitions has an owner that lives holds the request for its wait
// instead of answering at once, so that a poll loop does not spin
// (spec/consume section 6.1). Errors of a pinned consume at another node: ErrOwnerDown,
// ErrOwnerUnreachable, and what the owner answers.
func (r *Router) Consume(ctx context.Context, req broker.ConsumeRequest) ([]model.Delivery, error) {
	if r.gateway != nil && req.Partition < 0 {
		req.Elsewhere = r.gateway
	}
	got, held, err := r.tryConsume(ctx, req)
	if held {
		return r.hold(ctx, req)
	}
	return got, err
}

// tryConsume serves req unless none of the partitions it wants has an owner: then it is to
// be held.
func (r *Router) tryConsume(ctx context.Context, req broker.ConsumeRequest) (got []model.Delivery, hold bool, err error) {
	view, err := r.Table.topic(req.Topic)
	if err != nil {
		return nil, false, err
	}
	if req.Partition >= view.Partitions || req.Partition < -1 {
		return nil, false, errPartitionRange()
	}
	if req.Partition < 0 {
		if where := r.Table.route(view); !where.local && (r.gateway == nil || !where.alive()) {
			return nil, true, nil
		}
		got, err = r.Local.Consume(ctx, req)
		return got, false, err
	}
	switch owner := view.OwnerOf(req.Partition); {
	case owner == r.Node:
		got, err = r.Local.Consume(ctx, req)
	case owner == "":
		return nil, true, nil
	default:
		got, err = r.forward(ctx, view, req)
	}
	return got, false, err
}

// forward has the owner serve a pinned consume with its whole wait.
func (r *Router) forward(ctx context.Context, view *model.TopicView, req broker.ConsumeRequest) ([]model.Delivery, error) {
	owner, err := r.other(view, req.Partition)
	if err != nil {
		return nil, err
	}
	limit, cancel := context.WithTimeout(ctx, req.Wait+forwardMargin)
	defer cancel()
	defer context.AfterFunc(r.released, cancel)()
	began := r.Clock.Now()
	var got []model.Delivery
	err = r.abreast(limit, view, func() (err error) {
		got, err = r.Peers.Consume(limit, owner.Addr, peer.ConsumeRequest{
			Topic: req.Topic, Partition: req.Partition, Max: req.Max, Wait: max(0, req.Wait-r.Clock.Now().Sub(began)),
		})
		return err
	})
	switch {
	case err == nil:
	case ctx.Err() == nil && r.released.Err() != nil:
		err = nil
	default:
		err = r.unanswered(ctx, view, req.Partition, owner, model.ErrOwnerUnreachable, err)
	}
	r.Local.CountConsume(req.Topic, r.Clock.Now().Sub(began), len(got), req.Wait, err)
	return got, err
}

// hold waits for a partition the request wants to get an owner that lives, then serves it
// with what is left of the wait.
func (r *Router) hold(ctx context.Context, req broker.ConsumeRequest) ([]model.Delivery, error) {
	began, wait := r.Clock.Now(), req.Wait
	nothing := func(err error) ([]model.Delivery, error) {
		r.Local.CountConsume(req.Topic, r.Clock.Now().Sub(began), 0, wait, err)
		return nil, err
	}
	if wait <= 0 {
		return nothing(nil)
	}
	r.held.join()
	defer r.held.leave()
	timer := r.Clock.NewTimer(wait)
	defer timer.Stop()
	for {
		changed := r.held.changed()
		req.Wait = max(wait-r.Clock.Now().Sub(began), 0)
		if got, held, err := r.tryConsume(ctx, req); !held {
			return got, err
		}
		select {
		case <-ctx.Done():
			return nothing(ctx.Err())
		case <-r.released.Done():
			return nothing(nil)
		case <-timer.C():
			return nothing(nil)
		case <-changed:
		}
	}
}

// Read is a replay read: the message at offset, or false when offset lies at or
// past the high watermark (spec/consume section 8).
func (r *Router) Read(ctx context.Context, topic string, partition int, offset int64) (model.Message, bool, error) {
	view, err := r.Table.topic(topic)
	if err != nil {
		return model.Message{}, false, err
	}
	if partition < 0 || partition >= view.Partitions {
		return model.Message{}, false, errPartitionRange()
	}
	if view.OwnerOf(partition) == r.Node {
		return r.Local.Read(ctx, topic, partition, offset)
	}
	owner, err := r.other(view, partition)
	if err != nil {
		return model.Message{}, false, err
	}
	limit, cancel := context.WithTimeout(ctx, readBudget)
	defer cancel()
	var m model.Message
	var ok bool
	err = r.abreast(limit, view, func() (err error) {
		m, ok, err = r.Peers.Read(limit, owner.Addr, topic, partition, offset)
		return err
	})
	if err != nil {
		err = r.unanswered(ctx, view, partition, owner, model.ErrOwnerUnreachable, err)
	}
	return m, ok, err
}

// other is the owner of a partition that this node does not own, as somebody to send to.
func (r *Router) other(view *model.TopicView, p int) (Target, error) {
	owner := view.OwnerOf(p)
	if owner == "" || r.Peers == nil {
		return Target{}, fmt.Errorf("%w: %s/%d is owned by %q", model.ErrNotOwner, view.Name, p, owner)
	}
	t := r.Table.member(owner)
	if !t.Alive || t.Addr == "" {
		return t, fmt.Errorf("%w: %s/%d is owned by %q", model.ErrOwnerDown, view.Name, p, owner)
	}
	return t, nil
}

// unanswered is what a failed request to an owner means: its refusal as it is, the end of
// the caller's context, or as.
func (r *Router) unanswered(ctx context.Context, view *model.TopicView, p int, owner Target, as, err error) error {
	switch {
	case ctx.Err() != nil && !refused(err):
		return ctx.Err()
	case refused(err), errors.Is(err, model.ErrUnavailable):
		return fmt.Errorf("%s/%d at %q: %w", view.Name, p, owner.ID, err)
	}
	return fmt.Errorf("%w: %s/%d at %q: %w", as, view.Name, p, owner.ID, err)
}

// refused reports whether err is a node's answer, not the want of one.
func refused(err error) bool {
	var answer *peer.StatusError
	return errors.As(err, &answer)
}

func errPartitionRange() error {
	return fmt.Errorf("%w: partition out of range", model.ErrInvalid)
}
