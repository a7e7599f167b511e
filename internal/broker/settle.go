package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/narad-mq/narad/internal/model"
)

// The reasons under which a refused settlement is counted (spec/metrics section 5).
const (
	RejectNoLease   = "no_lease"
	RejectBadHandle = "bad_handle"
	RejectOwnerDown = "owner_down"
	RejectNoAnswer  = "no_answer"
)

// CountRejected counts a settlement that was refused before it reached the broker; the
// reason is one of the Reject constants. The broker counts its own.
func (b *Broker) CountRejected(reason string) { b.metrics.rejected.WithLabelValues(reason).Inc() }

// Settle applies an ack, extend or nack. ErrNoLease covers every way a handle can be
// out of date, a partition the topic does not have included; ErrNotOwner means that the
// partition moved; when ctx had ended already nothing was applied.
func (b *Broker) Settle(ctx context.Context, name string, h model.Handle, op model.SettleOp) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := b.settle(name, h, op)
	if errors.Is(err, model.ErrNoLease) {
		b.metrics.noLease.Inc()
	}
	return err
}

func (b *Broker) settle(name string, h model.Handle, op model.SettleOp) error {
	t, v, err := b.lookup(name)
	if err != nil {
		return err
	}
	s := t.slot(h.Partition)
	if s == nil || h.Partition >= v.Partitions {
		return model.ErrNoLease
	}
	if v.OwnerOf(h.Partition) != b.opts.Node {
		return fmt.Errorf("%w: %s/%d", model.ErrNotOwner, name, h.Partition)
	}
	pt := s.part.Load()
	if pt == nil {
		return model.ErrNoLease // a closed partition has no leases
	}
	s.touch(b.now())
	return pt.Settle(h, op)
}

// Release puts back a record that was leased but reached nobody: it was cut from a
// response, or the response could not be written. It is a nack and counts as one.
func (b *Broker) Release(name string, h model.Handle) {
	// A lease that is gone by now is what was wanted; anything else ends at V.
	_ = b.settle(name, h, model.Nack)
}
