package fanout

import (
	"context"
	"errors"
	"io/fs"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

// reconciler compares the cursors this node should run with those it runs. All of it
// belongs to one goroutine.
type reconciler struct {
	e        *Engine
	schedule schedule
	links    map[string]*link   // by child; as of the last pass
	orphans  map[place]struct{} // files that no wanted cursor keeps, until the leader says so too
	sweeper  sweeper
	size     int // of the last pass, so that the next allocates once
}

func newReconciler(e *Engine) *reconciler {
	return &reconciler{
		e: e, schedule: newSchedule(), links: map[string]*link{}, orphans: map[place]struct{}{},
		sweeper: sweeper{fs: e.opts.FS, dataDir: e.opts.DataDir},
	}
}

// run ticks until the engine closes. A tick without change costs a few atomic loads,
// however many topics, links and cursors there are.
func (r *reconciler) run() {
	timer := r.e.opts.Clock.NewTimer(reconcileEvery)
	defer timer.Stop()
	for {
		r.tick()
		select {
		case <-timer.C():
			timer.Reset(reconcileEvery)
		case <-r.e.soft.Done():
			return
		}
	}
}

func (r *reconciler) tick() {
	v := versionsOf(r.e.opts.Replica) // before the views: what changes later makes another pass
	current := r.e.opts.Replica.AppliedCaughtUp() == nil
	pass, sweep := r.schedule.tick(r.e.opts.Clock.Now(), v, current, r.e.exited.Swap(false))
	if !pass {
		return
	}
	wanted := r.wanted()
	if sweep {
		r.look(wanted)
	}
	if !r.pass(wanted) {
		r.schedule.unfinished()
	}
}

// wanted is every cursor this node should run: links times owned parent partitions.
func (r *reconciler) wanted() map[place]*link {
	wanted := make(map[place]*link, r.size)
	links := make(map[string]*link, len(r.links))
	r.e.opts.Replica.Range(func(parent *model.TopicView) bool {
		for _, name := range parent.Children {
			child, ok := r.e.opts.Replica.Topic(name)
			if !ok {
				continue
			}
			l := r.links[name]
			if l == nil || l.parent != parent.Name || !l.same(parent, child) {
				if l, ok = linkOf(parent, child); !ok {
					continue
				}
				l.counts = r.e.metrics.countsOf(l)
			}
			links[name] = l
			for p := range parent.Partitions {
				if parent.OwnerOf(p) == r.e.opts.Node {
					wanted[place{parent.Name, p, name}] = l
				}
			}
		}
		return true
	})
	r.links, r.size = links, len(wanted)
	return wanted
}

// compare tells what differs between the wanted and the running: what to stop, because
// it is not wanted or of another link, and what to start, because nothing runs there.
// A place whose cursor has yet to end is in neither.
func compare(wanted map[place]*link, running map[place]*cursor) (stop []*cursor, start []place) {
	for k, c := range running {
		if wanted[k] != c.link {
			stop = append(stop, c)
		}
	}
	for k := range wanted {
		if running[k] == nil {
			start = append(start, k)
		}
	}
	return stop, start
}

// pass makes the running cursors the wanted ones; false = it left work behind.
func (r *reconciler) pass(wanted map[place]*link) (settled bool) {
	running := r.reap()
	stop, start := compare(wanted, running)
	for _, c := range stop {
		c.stop()
	}
	settled = len(stop) == 0
	for k := range running {
		if wanted[k] == nil {
			r.orphans[k] = struct{}{}
		}
	}
	if !r.clean(wanted, running) {
		settled = false
	}
	for _, k := range start {
		if !r.start(k, wanted[k]) {
			settled = false
		}
	}
	r.e.metrics.prune(r.links)
	return settled
}

// reap takes ended cursors out of the set and returns it. Nobody else writes it, so the
// reconciler reads it without the lock.
func (r *reconciler) reap() map[place]*cursor {
	set := &r.e.set
	set.mu.Lock()
	defer set.mu.Unlock()
	for k, c := range set.by {
		if c.ended() {
			delete(set.by, k)
			if r.links[k.child] != c.link {
				r.orphans[k] = struct{}{}
			}
		}
	}
	return set.by
}

func (r *reconciler) start(k place, l *link) bool {
	c, ctx, err := r.e.newCursor(k, l)
	if err != nil {
		r.e.limiter.Warn(r.e.log, "start/"+k.child, "fanout: cursor cannot start", "parent", k.parent, "partition", k.partition, "child", k.child, "err", err)
		return false
	}
	r.e.set.mu.Lock()
	r.e.set.by[k] = c
	r.e.set.mu.Unlock()
	r.e.cursors.Go(func() { c.main(ctx) })
	return true
}

// clean removes the files of cursors that are over, each only once the leader confirms
// that its epoch is gone; false = some have to wait. A place that is wanted again keeps
// its file: the new cursor decides by the epoch in it.
func (r *reconciler) clean(wanted map[place]*link, running map[place]*cursor) (done bool) {
	done = true
	words := map[question]metastore.Confirmation{}
	for k := range r.orphans {
		switch {
		case wanted[k] != nil:
			delete(r.orphans, k)
		case running[k] != nil:
			done = false // it has yet to end
		case r.e.soft.Err() != nil:
			return false
		case r.remove(k, words):
			delete(r.orphans, k)
		default:
			done = false
		}
	}
	return done
}

// question is what the leader is asked once per pass, however many files depend on it.
type question struct{ parent, child, epoch string }

// ask asks the leader, unless this pass has its word already.
func (r *reconciler) ask(q question, words map[question]metastore.Confirmation) metastore.Confirmation {
	word, asked := words[q]
	if asked {
		return word
	}
	ctx, cancel := context.WithTimeout(r.e.soft, confirmTimeout)
	defer cancel()
	word, err := r.e.opts.Leader.ConfirmLink(ctx, q.parent, q.child, q.epoch)
	if err != nil {
		word = metastore.Unknown
	}
	words[q] = word
	return word
}

// remove deletes one cursor file; false = not now. A position is no topic data: what it
// stands for can be copied again.
func (r *reconciler) remove(k place, words map[question]metastore.Confirmation) bool {
	name, err := cursorPath(r.e.opts.DataDir, k)
	if err != nil {
		return true
	}
	f := cursorFile{fs: r.e.opts.FS, name: name}
	rec, err := f.read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true
	case err != nil && !isCorrupt(err):
		return false
	}
	// Of a damaged file the epoch is not known: only the end of every link counts.
	switch r.ask(question{k.parent, k.child, rec.epoch}, words) {
	case metastore.Gone:
	case metastore.Live:
		return r.moved(k)
	default:
		return false
	}
	if err := r.e.opts.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.e.limiter.Warn(r.e.log, "remove/"+name, "fanout: cursor file could not be removed", "path", name, "err", err)
		return false
	}
	r.e.log.Info("fanout: cursor file removed: its link is gone", "parent", k.parent, "partition", k.partition, "child", k.child, "epoch", rec.epoch)
	return true
}

// moved reports whether a live link's cursor belongs to another node now: its file is
// the business of whoever takes the partition's directory.
func (r *reconciler) moved(k place) bool {
	v, ok := r.e.opts.Replica.Topic(k.parent)
	return ok && v.OwnerOf(k.partition) != r.e.opts.Node
}
