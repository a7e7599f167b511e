package router

import (
	"context"
	"slices"
	"time"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

// Here is what this node does for others: it serves the partitions it owns, keeps tokens,
// and takes word from owners. It never asks a third node. It satisfies peer.Queue,
// peer.Tokens and peer.Describer.
type Here struct{ r *Router }

// Here returns the serving side of the router.
func (r *Router) Here() Here { return Here{r} }

// Consume takes records from the partitions this node owns. It waits only for a consume
// that says so, and no longer than this node would let its own clients wait.
func (h Here) Consume(ctx context.Context, q peer.ConsumeRequest) ([]model.Delivery, error) {
	return h.r.Local.ConsumeForPeer(ctx, broker.ConsumeRequest{
		Topic: q.Topic, Partition: q.Partition, Max: q.Max, Wait: min(q.Wait, h.r.MaxWait),
	}, broker.Claim{Made: q.Claim, Node: q.Claimer})
}

// Read is a replay read of a partition this node owns.
func (h Here) Read(ctx context.Context, topic string, partition int, offset int64) (model.Message, bool, error) {
	return h.r.Local.Read(ctx, topic, partition, offset)
}

// Settle settles a delivery of a partition this node owns.
func (h Here) Settle(ctx context.Context, topic string, handle model.Handle, op model.SettleOp) error {
	return h.r.Local.Settle(ctx, topic, handle, op)
}

// Release puts back a record that was taken here and reached nobody.
func (h Here) Release(topic string, handle model.Handle) { h.r.Local.Release(topic, handle) }

// RegisterTokens keeps a node's tokens for the topics of which this node owns something.
// One for a topic this replica does not show yet is kept as soon as it does: consumers
// come right after a create, and would wait for the next renewal.
func (h Here) RegisterTokens(node, callback string, tokens []peer.Token) {
	for _, t := range tokens {
		ttl := t.TTL
		if t.Drop {
			ttl = 0
		}
		if ttl > 0 && !h.owns(t.Topic) {
			h.registerLate(node, callback, t.Topic, ttl)
			continue
		}
		h.r.Local.RegisterToken(node, callback, t.Topic, max(ttl, time.Duration(0)))
	}
}

// lateMax bounds the registrations that wait for this replica; those past it are left to
// their renewal.
const lateMax = 256

// registerLate registers a token once this replica shows that this node owns something of
// the topic.
func (h Here) registerLate(node, callback, topic string, ttl time.Duration) {
	select {
	case h.r.late <- struct{}{}:
	default:
		return
	}
	began := h.r.Clock.Now()
	started := h.r.crew.do(func(ctx context.Context) {
		defer func() { <-h.r.late }()
		pause := h.r.Clock.NewTimer(lagPause)
		defer pause.Stop()
		for {
			select {
			case <-pause.C():
			case <-ctx.Done():
				return
			}
			passed := h.r.Clock.Now().Sub(began)
			if passed >= min(lagMax, ttl) {
				return
			}
			if h.owns(topic) {
				h.r.Local.RegisterToken(node, callback, topic, ttl-passed)
				return
			}
			pause.Reset(lagPause)
		}
	})
	if !started {
		<-h.r.late
	}
}

// owns reports whether this node owns a partition of a topic, by its replica.
func (h Here) owns(topic string) bool {
	view, ok := h.r.Directory.Topic(topic)
	return ok && slices.Contains(view.Owners, h.r.Node)
}

// Notify takes an owner's word that it has a record of the topic, and reports whether a
// consumer here will claim it.
func (h Here) Notify(topic, owner string) bool {
	return h.r.gateway != nil && h.r.gateway.notified(topic, owner)
}

// PartitionStats describes the partitions of a topic that this node owns, or the one that
// is asked for (-1 = all). ErrNotOwner when that is another's.
func (h Here) PartitionStats(ctx context.Context, topic string, partition int) ([]model.PartitionStats, error) {
	view, err := h.r.Table.topic(topic)
	if err != nil {
		return nil, err
	}
	if partition >= 0 {
		s, err := h.r.Stats.Describe(view, partition)
		if err != nil {
			return nil, err
		}
		return []model.PartitionStats{s}, nil
	}
	var out []model.PartitionStats
	for p := range view.Partitions {
		if view.OwnerOf(p) != h.r.Node {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if s, err := h.r.Stats.Describe(view, p); err == nil {
			out = append(out, s)
		} else {
			h.r.warnDescribe(view, p, err)
		}
	}
	return out, nil
}
