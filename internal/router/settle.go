package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

// givingMax bounds the records being given back to other owners at once; further ones come
// back when their lease is over.
const givingMax = 256

// Settle acks, extends or nacks one delivery, wherever its partition lives. A handle that
// names a partition the topic lacks names no live lease (spec/http-api section 10.5, A-2),
// which the broker says and counts. Errors of another node's partition: ErrOwnerDown and
// ErrAckNotDelivered when nothing was applied, ErrAckUnanswered when that is not known, and
// what the owner answers.
func (r *Router) Settle(ctx context.Context, topic string, h model.Handle, op model.SettleOp) error {
	view, err := r.Table.topic(topic)
	if err != nil {
		return err
	}
	if r.settlesHere(view, h) {
		return r.Local.Settle(ctx, view.Name, h, op)
	}
	owner, err := r.other(view, h.Partition)
	if err == nil {
		limit, cancel := context.WithTimeout(ctx, settleBudget)
		defer cancel()
		err = r.unsettled(ctx, view, h, owner, r.abreast(limit, view, func() error {
			return r.Peers.Settle(limit, owner.Addr, topic, h, op)
		}))
	}
	r.countUnsettled(err)
	return err
}

// SettleMany settles handles; errs[i] is what Settle would have said of handles[i]. Those
// of one owner are settled in order, so a handle listed twice is settled once and then has
// no lease; different owners are asked at the same time. The second result is for a topic
// that cannot be resolved at all.
func (r *Router) SettleMany(ctx context.Context, topic string, handles []model.Handle, op model.SettleOp) (errs []error, err error) {
	view, err := r.Table.topic(topic)
	if err != nil {
		return nil, err
	}
	errs = make([]error, len(handles))
	var groups map[string]*group // by owner
	for i, h := range handles {
		if r.settlesHere(view, h) {
			continue
		}
		owner, err := r.other(view, h.Partition)
		if err != nil {
			errs[i] = err
			r.countUnsettled(err)
			continue
		}
		g := groups[owner.ID]
		if g == nil {
			if groups == nil {
				groups = make(map[string]*group)
			}
			g = &group{owner: owner}
			groups[owner.ID] = g
		}
		g.handles, g.places = append(g.handles, h), append(g.places, i)
	}
	var wg sync.WaitGroup
	for _, g := range groups {
		wg.Go(func() { r.settleGroup(ctx, view, g, op, errs) })
	}
	for i, h := range handles {
		if !r.settlesHere(view, h) {
			continue
		}
		if errs[i] = ctx.Err(); errs[i] == nil {
			errs[i] = r.Local.Settle(ctx, view.Name, h, op)
		}
	}
	wg.Wait()
	return errs, nil
}

// group is one owner's part of a batch.
type group struct {
	owner   Target
	handles []model.Handle
	places  []int // of handles in the batch
}

// settleGroup writes only its own places of errs.
func (r *Router) settleGroup(ctx context.Context, view *model.TopicView, g *group, op model.SettleOp, errs []error) {
	limit, cancel := context.WithTimeout(ctx, settleBudget)
	defer cancel()
	var got []error
	failed := r.abreast(limit, view, func() (err error) {
		if len(g.handles) == 1 {
			got = []error{r.Peers.Settle(limit, g.owner.Addr, view.Name, g.handles[0], op)}
		} else if got, err = r.Peers.SettleMany(limit, g.owner.Addr, view.Name, g.handles, op); err == nil && len(got) != len(g.handles) {
			err = fmt.Errorf("%d answers to %d settlements", len(got), len(g.handles))
		}
		if err == nil && behind(got[0]) { // no topic: of none of them
			return got[0]
		}
		return err
	})
	for j, i := range g.places {
		err := failed
		if err == nil {
			err = got[j]
		}
		errs[i] = r.unsettled(ctx, view, g.handles[j], g.owner, err)
		r.countUnsettled(errs[i])
	}
}

// settlesHere: a partition the topic lacks is for the broker to refuse.
func (r *Router) settlesHere(view *model.TopicView, h model.Handle) bool {
	return h.Partition >= view.Partitions || view.OwnerOf(h.Partition) == r.Node
}

// unsettled is what became of a settlement sent to its owner. Whether it may have been
// applied is what clients go by.
func (r *Router) unsettled(ctx context.Context, view *model.TopicView, h model.Handle, owner Target, err error) error {
	if err == nil {
		return nil
	}
	as := model.ErrAckUnanswered
	if errors.Is(err, peer.ErrUnreached) {
		as = model.ErrAckNotDelivered
	}
	return r.unanswered(ctx, view, h.Partition, owner, as, err)
}

// countUnsettled counts the refusals that no owner has counted.
func (r *Router) countUnsettled(err error) {
	switch {
	case errors.Is(err, model.ErrOwnerDown), errors.Is(err, model.ErrAckNotDelivered):
		r.Local.CountRejected(broker.RejectOwnerDown)
	case errors.Is(err, model.ErrAckUnanswered):
		r.Local.CountRejected(broker.RejectNoAnswer)
	}
}

// CountRejected counts a settlement refused before it reached the router.
func (r *Router) CountRejected(reason string) { r.Local.CountRejected(reason) }

// Release gives back a delivery that was cut from an answer or never written. It does not
// wait for another owner.
func (r *Router) Release(topic string, h model.Handle) {
	view, err := r.Table.topic(topic)
	if err != nil {
		return // the lease went with the topic
	}
	if r.settlesHere(view, h) {
		r.Local.Release(topic, h)
		return
	}
	owner, err := r.other(view, h.Partition)
	if err != nil {
		return
	}
	select {
	case r.giving <- struct{}{}:
	default:
		r.Logger.Warn("record not given back; it comes back when its lease is over",
			slog.String("topic", topic), slog.Int("partition", h.Partition), slog.Int64("offset", h.Offset))
		return
	}
	if !r.crew.do(func(ctx context.Context) {
		defer func() { <-r.giving }()
		limit, cancel := context.WithTimeout(ctx, settleBudget)
		defer cancel()
		// A lease that is gone by now is what was wanted; anything else ends at V.
		_ = r.Peers.Settle(limit, owner.Addr, topic, h, model.Nack)
	}) {
		<-r.giving
	}
}
