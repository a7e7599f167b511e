// Package reclaim is the only code that removes topic data. Everything else sets
// aside and keeps; here a directory goes, and only when all of this holds:
//
//  1. its incarnation marker names the incarnation that is to go;
//  2. the leader confirmed, after a barrier, that this incarnation of the name is
//     gone, and the local replica knows no topic of any name with that incarnation;
//  3. it was set aside under its stale name, topics/<topic>.stale-<id>[.<ns>], so
//     nothing serves it or creates files in it.
//
// A directory without a marker, with another marker, or whose confirmation could
// not be had, is kept and counted. Within a directory the marker is removed last,
// after everything else is durably gone, so that a crash in the middle leaves a
// directory that still says whose it was, and the next sweep finishes it.
package reclaim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

// Confirmer is the leader's word on an incarnation; only metastore.Gone allows a
// removal.
type Confirmer interface {
	ConfirmGone(ctx context.Context, name string, id model.Incarnation) (metastore.Confirmation, error)
}

// Retirer takes a topic incarnation out of service: it closes its logs, drops its
// consumer state, and renames its directory to the stale name, which it returns. It
// touches only a directory whose marker is id, and returns "" when there is none.
type Retirer interface {
	Retire(name string, id model.Incarnation) (stalePath string, err error)
}

// Directory is the local replica: what it still knows is not even asked about.
type Directory interface {
	Topic(name string) (*model.TopicView, bool)
	Range(func(*model.TopicView) bool)
	// AppliedCaughtUp is nil while the replica is provably current.
	AppliedCaughtUp() error
}

// Bounds of the work in the background.
const (
	queueMax     = 1024 // purges waiting; past it a sweep finds the rest
	sweepMax     = 1024 // directories one sweep removes; the next one goes on
	retryFirst   = time.Second
	retryMax     = 30 * time.Second
	sweepEvery   = 30 * time.Second // while topics change (spec/cluster-and-network section 13)
	topicsFolder = "topics"

	purgeWait   = 5 * time.Second // for the replica to let go of what is to be purged
	replicaPoll = 50 * time.Millisecond
	warnEvery   = time.Minute // per topic or kind
)

// Options configures a Reclaimer.
type Options struct {
	FS        disk.FS
	DataDir   string
	Topics    Directory
	Confirmer Confirmer
	Retirer   Retirer
	Clock     clock.Clock           // nil = the real one
	Logger    *slog.Logger          // nil = none
	Registry  prometheus.Registerer // nil = unregistered
}

// Reclaimer removes what is confirmed gone. One goroutine works; it sleeps without a timer
// while no topic changes and nothing is left to do.
type Reclaimer struct {
	fs        disk.FS
	root      string // <data>/topics
	topics    Directory
	confirmer Confirmer
	retirer   Retirer
	clock     clock.Clock
	log       *slog.Logger
	limiter   *telemetry.Limiter
	inventory *inventory

	work   chan struct{} // capacity 1: held by the one purge or sweep at a time
	silent error         // why the leader cannot be asked, during this work; held with it

	queue    chan deletion
	sweepC   chan struct{} // capacity 1: a sweep is wanted at once
	changedC chan struct{} // capacity 1: a topic changed
	stop     context.CancelFunc
	done     chan struct{}
}

type deletion struct {
	name string
	id   model.Incarnation
}

// New starts a reclaimer. It does nothing until it is told of a deletion or asked
// to sweep.
func New(o Options) (*Reclaimer, error) {
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	if o.Logger == nil {
		o.Logger = telemetry.Discard()
	}
	r := &Reclaimer{
		fs: o.FS, root: path.Join(o.DataDir, topicsFolder), topics: o.Topics, confirmer: o.Confirmer, retirer: o.Retirer,
		clock: o.Clock, log: o.Logger, limiter: telemetry.NewLimiter(o.Clock, warnEvery), inventory: newInventory(),
		work:  make(chan struct{}, 1),
		queue: make(chan deletion, queueMax), sweepC: make(chan struct{}, 1), changedC: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if o.Registry != nil {
		if err := o.Registry.Register(r.inventory); err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go r.run(ctx)
	return r, nil
}

// Deleted hands over an incarnation whose delete committed. It never blocks: past
// the queue's bound a sweep finds the directory.
func (r *Reclaimer) Deleted(name string, id model.Incarnation) {
	select {
	case r.queue <- deletion{name, id}:
	default:
		r.SweepSoon()
	}
}

// SweepSoon asks for a sweep in the background.
func (r *Reclaimer) SweepSoon() {
	select {
	case r.sweepC <- struct{}{}:
	default:
	}
}

// TopicChanged is for the metastore's subscription. A delete or recreate whose purge this
// node missed is found by a sweep that follows within 30 s. It never blocks.
func (r *Reclaimer) TopicChanged(string, *model.TopicView) {
	select {
	case r.changedC <- struct{}{}:
	default:
	}
}

// Close stops the goroutine, in the middle of a removal if need be, and waits for
// it. Idempotent.
func (r *Reclaimer) Close() error {
	r.stop()
	<-r.done
	return nil
}

// run purges and sweeps until ctx ends. What fails is found again by the sweep that
// follows after a pause, which doubles while nothing gets better.
func (r *Reclaimer) run(ctx context.Context) {
	defer close(r.done)
	pause := retryFirst
	var due time.Time // of the timer; zero = it is not armed
	timer := r.clock.NewTimer(retryMax)
	timer.Stop()
	defer timer.Stop()
	arm := func(d time.Duration) {
		if at := r.clock.Now().Add(d); due.IsZero() || at.Before(due) {
			due = at
			timer.Reset(d)
		}
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-r.changedC:
			arm(sweepEvery)
			continue
		case d := <-r.queue:
			err = r.purgeNow(ctx, d.name, d.id)
		case <-r.sweepC:
			_, err = r.Sweep(ctx)
		case <-timer.C():
			due = time.Time{}
			_, err = r.Sweep(ctx)
		}
		switch {
		case err == nil || keptForGood(err):
			pause = retryFirst
		case ctx.Err() == nil:
			arm(pause)
			pause = min(2*pause, retryMax)
		}
	}
}

// acquire takes the work; false when ctx ends first.
func (r *Reclaimer) acquire(ctx context.Context) error {
	select {
	case r.work <- struct{}{}:
		r.silent = nil
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Reclaimer) release() { <-r.work }

var (
	// ErrKept: the data is not known to be that of an incarnation that is gone, so it
	// stays.
	ErrKept = errors.New("topic data kept")
	// ErrUnconfirmed is an ErrKept that a later attempt may turn into a removal: the
	// leader could not be asked.
	ErrUnconfirmed = fmt.Errorf("%w: not confirmed", model.ErrUnavailable)
)

// keptForGood tells a decision from a failure: asking again would not change it.
func keptForGood(err error) bool {
	return (errors.Is(err, ErrKept) || errors.Is(err, model.ErrCorrupt)) && !errors.Is(err, ErrUnconfirmed)
}

// purge reports whether there was anything to remove. Caller holds the work.
func (r *Reclaimer) purge(ctx context.Context, name string, id model.Incarnation, reason string) (removed bool, err error) {
	if err := r.confirm(ctx, name, id); err != nil {
		return false, err
	}
	stale, err := r.retirer.Retire(name, id)
	if err != nil {
		return false, fmt.Errorf("retire %s of incarnation %s: %w", name, id, err)
	}
	if stale == "" { // or an earlier attempt renamed it and got no further
		stale = path.Join(r.root, name+staleInfix+string(id))
	}
	return r.removeStale(ctx, stale, name, id, reason)
}

// confirm is nil only when the leader says gone and no topic here has the
// incarnation under any name.
//
// One question that stays without answer is enough for a sweep: a leader that cannot be
// reached costs seconds each time.
func (r *Reclaimer) confirm(ctx context.Context, name string, id model.Incarnation) error {
	if r.silent != nil {
		return r.silent
	}
	answer, err := r.confirmer.ConfirmGone(ctx, name, id)
	if err != nil {
		r.silent = fmt.Errorf("%w, %w: the leader cannot be asked: %w", ErrKept, ErrUnconfirmed, err)
		r.limiter.Warn(r.log, "confirm/"+name, "leader confirm: the topic's data is kept for now", "topic", name, "topic_id", id, "err", err)
		return fmt.Errorf("%w, %w: %q of incarnation %s: %w", ErrKept, ErrUnconfirmed, name, id, err)
	}
	if answer != metastore.Gone {
		if answer == metastore.Unknown {
			return fmt.Errorf("%w, %w: %q of incarnation %s", ErrKept, ErrUnconfirmed, name, id)
		}
		return fmt.Errorf("%w: the leader says %q of incarnation %s is %s", ErrKept, name, id, answer)
	}
	owner := ""
	r.topics.Range(func(v *model.TopicView) bool {
		if v.ID == id {
			owner = v.Name
		}
		return owner == ""
	})
	if owner != "" {
		return fmt.Errorf("%w: incarnation %s, asked for as %q, is the live topic %q", ErrKept, id, name, owner)
	}
	return nil
}
