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
	"sync"
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
}

// Bounds of the work in the background.
const (
	queueMax     = 1024 // purges waiting; past it a sweep finds the rest
	sweepMax     = 1024 // directories one sweep removes; the next one goes on
	retryFirst   = time.Second
	retryMax     = 30 * time.Second // spec/cluster section 13: a sweep every 30 s
	topicsFolder = "topics"
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

// Reclaimer removes what is confirmed gone. One goroutine works; it sleeps without
// a timer while nothing is left to do.
type Reclaimer struct {
	fs        disk.FS
	root      string // <data>/topics
	topics    Directory
	confirmer Confirmer
	retirer   Retirer
	clock     clock.Clock
	log       *slog.Logger
	inventory *inventory

	work sync.Mutex // one purge or sweep at a time

	queue  chan deletion
	sweepC chan struct{} // capacity 1: a sweep is wanted
	stop   context.CancelFunc
	done   chan struct{}
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
		clock: o.Clock, log: o.Logger, inventory: newInventory(),
		queue: make(chan deletion, queueMax), sweepC: make(chan struct{}, 1), done: make(chan struct{}),
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
	timer := r.clock.NewTimer(retryMax)
	timer.Stop()
	defer timer.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case d := <-r.queue:
			err = r.Purge(ctx, d.name, d.id)
		case <-r.sweepC:
			_, err = r.Sweep(ctx)
		case <-timer.C():
			_, err = r.Sweep(ctx)
		}
		switch {
		case err == nil || keptForGood(err):
			pause = retryFirst
		case ctx.Err() == nil:
			timer.Reset(pause)
			pause = min(2*pause, retryMax)
		}
	}
}

var (
	// ErrKept: the data is not known to be that of an incarnation that is gone, so it
	// stays.
	ErrKept = errors.New("topic data kept")
	// ErrUnconfirmed is an ErrKept that a later attempt may turn into a removal: the
	// leader could not be asked.
	ErrUnconfirmed = errors.New("not confirmed")
)

// keptForGood tells a decision from a failure: asking again would not change it.
func keptForGood(err error) bool {
	return (errors.Is(err, ErrKept) || errors.Is(err, model.ErrCorrupt)) && !errors.Is(err, ErrUnconfirmed)
}

// Purge removes the data of one deleted incarnation on this node. It returns nil
// when nothing of it is left here, ErrKept when the leader did not confirm it gone,
// and other errors when a step failed; the data is then still whole or findable by
// a sweep.
func (r *Reclaimer) Purge(ctx context.Context, name string, id model.Incarnation) error {
	if err := model.PathElement(name); err != nil {
		return fmt.Errorf("%w: %w", model.ErrInvalid, err)
	}
	if _, err := model.ParseIncarnation(string(id)); err != nil {
		return fmt.Errorf("%w: purge of %q: %w", model.ErrInvalid, name, err)
	}
	r.work.Lock()
	defer r.work.Unlock()
	_, err := r.purge(ctx, name, id, "topic deleted")
	return err
}

// purge reports whether there was anything to remove. Caller holds work.
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
func (r *Reclaimer) confirm(ctx context.Context, name string, id model.Incarnation) error {
	answer, err := r.confirmer.ConfirmGone(ctx, name, id)
	if err != nil {
		r.log.Warn("leader confirm: the topic's data is kept for now", "topic", name, "topic_id", id, "err", err)
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
