package reclaim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

// Bounds of telling the other members about a delete (spec/cluster-and-network section
// 5.3): about 17 s in all, detached from the client. What they miss their own sweeps find.
const (
	tellQueueMax = 1024                    // deletes waiting
	tellAtOnce   = 8                       // deletes being told
	tellPeersMax = 16                      // members asked at once about one delete
	tellTries    = 3                       // of each member
	tellBudget   = 5500 * time.Millisecond // of one try: what the member waits for its replica, and some
	tellPause    = 250 * time.Millisecond  // between two tries
)

// Peers carries a purge to another node: *peer.Client. addr is its API address.
type Peers interface {
	Purge(ctx context.Context, addr, topic string, id model.Incarnation) error
}

// BroadcastOptions configures a Broadcast.
type BroadcastOptions struct {
	Self    string // this node's member id: it is not told
	Members func() []model.Member
	Peers   Peers
	Clock   clock.Clock  // nil = the real one
	Logger  *slog.Logger // nil = none
}

// Broadcast tells the live members to purge what was deleted. It is best effort: the
// commit of the delete is what counts, and every node sweeps for itself.
type Broadcast struct {
	o     BroadcastOptions
	queue chan deletion
	slots chan struct{}
	ctx   context.Context
	stop  context.CancelFunc
	work  sync.WaitGroup
}

// NewBroadcast starts a broadcast.
func NewBroadcast(o BroadcastOptions) *Broadcast {
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	if o.Logger == nil {
		o.Logger = telemetry.Discard()
	}
	b := &Broadcast{o: o, queue: make(chan deletion, tellQueueMax), slots: make(chan struct{}, tellAtOnce)}
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.work.Go(b.run)
	return b
}

// Deleted hands over an incarnation whose delete committed. It never blocks.
func (b *Broadcast) Deleted(name string, id model.Incarnation) {
	select {
	case b.queue <- deletion{name, id}:
	default:
		b.unfinished(deletion{name, id}, nil, fmt.Errorf("more than %d deletes wait to be told", tellQueueMax))
	}
}

// Close ends what is under way and waits for it. Idempotent.
func (b *Broadcast) Close() error {
	b.stop()
	b.work.Wait()
	return nil
}

func (b *Broadcast) run() {
	for {
		select {
		case <-b.ctx.Done():
			return
		case b.slots <- struct{}{}:
		}
		select {
		case <-b.ctx.Done():
			return
		case d := <-b.queue:
			b.work.Go(func() {
				defer func() { <-b.slots }()
				b.tell(d)
			})
		}
	}
}

// tell asks every other live member to purge.
func (b *Broadcast) tell(d deletion) {
	var mu sync.Mutex // guards missed and why
	var missed []string
	var why []error
	var group sync.WaitGroup
	slots := make(chan struct{}, tellPeersMax)
	for _, m := range b.o.Members() {
		if m.ID == b.o.Self || m.Status != model.MemberAlive || m.Addr == "" {
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if err := b.ask(m.Addr, d); err != nil {
				mu.Lock()
				defer mu.Unlock()
				missed, why = append(missed, m.ID), append(why, fmt.Errorf("%s: %w", m.ID, err))
			}
		})
	}
	group.Wait()
	if len(missed) > 0 && b.ctx.Err() == nil {
		b.unfinished(d, missed, errors.Join(why...))
	}
}

// ask has one member purge, in a few tries.
func (b *Broadcast) ask(addr string, d deletion) (err error) {
	for try := range tellTries {
		if try > 0 && !b.pause() {
			return err
		}
		if err = b.try(addr, d); err == nil {
			return nil
		}
	}
	return err
}

// pause waits before the next try; false = closed.
func (b *Broadcast) pause() bool {
	timer := b.o.Clock.NewTimer(tellPause)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-b.ctx.Done():
		return false
	}
}

func (b *Broadcast) try(addr string, d deletion) error {
	ctx, cancel := context.WithTimeout(b.ctx, tellBudget)
	defer cancel()
	return b.o.Peers.Purge(ctx, addr, d.name, d.id)
}

func (b *Broadcast) unfinished(d deletion, members []string, err error) {
	b.o.Logger.Error("topic purge unfinished on some members",
		"topic", d.name, "purged_incarnation", d.id, "members", members, "err", err)
}
