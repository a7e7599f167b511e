package reclaim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

// startupWait is how long the startup sweep waits for a current replica; past it the
// sweep is skipped, never hurried (spec/operations section 4).
const startupWait = 60 * time.Second

// listedMax bounds the copies named one by one at startup.
const listedMax = 20

// Gate holds creates back until the startup sweep is over: a sweep must not meet a
// directory that a create has just made. It is armed when it is made, and opened once.
type Gate struct {
	once   sync.Once
	opened chan struct{}
}

// NewGate returns an armed gate.
func NewGate() *Gate { return &Gate{opened: make(chan struct{})} }

// Open lets everybody through from now on. Idempotent.
func (g *Gate) Open() { g.once.Do(func() { close(g.opened) }) }

// Wait returns nil once the gate is open, and model.ErrUnavailable when ctx ends first.
func (g *Gate) Wait(ctx context.Context) error {
	select {
	case <-g.opened:
		return nil
	default:
	}
	select {
	case <-g.opened:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: creates wait for the startup sweep: %w", model.ErrUnavailable, ctx.Err())
	}
}

// Startup is the sweep before the first create. It waits up to 60 s for a replica that is
// current, sweeps, lists what is set aside, and opens the gate, whatever came of it. A
// sweep that was skipped or did not finish goes on in the background.
func (r *Reclaimer) Startup(ctx context.Context, gate *Gate) (Swept, error) {
	defer gate.Open()
	if err := r.awaitCurrent(ctx); err != nil {
		r.log.Warn("startup sweep of deleted topics skipped; it is done once the replica is current", "err", err)
		r.listQuarantined()
		r.SweepSoon()
		return Swept{}, err
	}
	s, err := r.Sweep(ctx)
	r.listQuarantined()
	if err != nil {
		// Nothing is lost by keeping a dead topic's directory: a later sweep finds it.
		r.log.Warn("startup sweep of deleted topics did not finish; it is tried again later", "err", err)
		r.SweepSoon()
	}
	return s, err
}

// listQuarantined names what is set aside on this node, some of it at most, and how much
// there is in all (spec/cluster-and-network section 13).
func (r *Reclaimer) listQuarantined() {
	list, err := r.Quarantined()
	if err != nil {
		return // the sweep said why
	}
	bytes := int64(0)
	for i, c := range list {
		bytes += c.Bytes
		if i < listedMax {
			r.log.Error("quarantined partition copy on this node", "kind", "topic_incarnation", "topic", c.Topic,
				"dir", c.Dir, "bytes", c.Bytes, "mod_time", c.ModTime)
		}
	}
	if len(list) > 0 {
		r.log.Error("quarantined copies on this node in all", "copies", len(list), "bytes", bytes)
	}
}

func (r *Reclaimer) awaitCurrent(ctx context.Context) error {
	limit := r.clock.NewTimer(startupWait)
	defer limit.Stop()
	poll := r.clock.NewTimer(replicaPoll)
	defer poll.Stop()
	for {
		err := r.topics.AppliedCaughtUp()
		if err == nil {
			return nil
		}
		select {
		case <-poll.C():
			poll.Reset(replicaPoll)
		case <-limit.C():
			return fmt.Errorf("no current replica within %v: %w", startupWait, err)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}
