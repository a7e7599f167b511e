package broker

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/partition"
)

// Cadences and bounds of spec/storage-and-produce section 10.
const (
	retentionEvery    = time.Minute      // sweeps of the open logs
	careEvery         = time.Minute      // idle eviction, supervision
	reaperStaleAfter  = 2 * time.Minute  // a sweep loop silent for so long is replaced
	reaperRestartsMax = 10               // then the error line is the alarm
	coldRest          = 30 * time.Minute // a partition whose cold sweep panicked is left alone
)

// keeper runs what happens without a request: retention of open logs (the reaper), and
// idle eviction, the cold walk and the supervision of the reaper (the caretaker).
type keeper struct {
	b    *Broker
	stop chan struct{}
	wg   sync.WaitGroup

	beat     atomic.Int64 // when the reaper last showed life, on Broker.now
	reaper   atomic.Int64 // number of the reaper in office; others end
	restarts atomic.Int64

	shunned map[model.PartitionKey]time.Time // until when the cold walk leaves them alone; the caretaker's
}

func newKeeper(b *Broker) *keeper {
	return &keeper{b: b, stop: make(chan struct{}), shunned: make(map[model.PartitionKey]time.Time)}
}

func (k *keeper) start() {
	k.startReaper(0)
	k.wg.Go(k.care)
}

func (k *keeper) close() {
	close(k.stop)
	k.wg.Wait()
}

func (k *keeper) startReaper(number int64) {
	k.beat.Store(k.b.now())
	k.reaper.Store(number)
	k.wg.Go(func() { k.reap(number) })
}

// pause waits; false = stop.
func (k *keeper) pause(d time.Duration) bool {
	timer := k.b.opts.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-k.stop:
		return false
	}
}

func (k *keeper) reap(number int64) {
	for k.pause(retentionEvery) {
		for _, t := range k.b.names.Range {
			for _, s := range t.(*topic).all() {
				if k.reaper.Load() != number {
					return // replaced while it hung
				}
				k.beat.Store(k.b.now())
				if pt := s.part.Load(); pt != nil && !t.(*topic).gone.Load() {
					k.sweep(pt)
				}
			}
		}
		k.beat.Store(k.b.now())
	}
}

// sweep runs retention over one log and contains what goes wrong in it.
func (k *keeper) sweep(pt *partition.Partition) {
	key := pt.Key()
	defer func() {
		if r := recover(); r != nil {
			k.b.logger.Error("retention sweep panicked; partition skipped",
				"topic", key.Topic, "partition", key.Partition, "panic", r, "stack", string(debug.Stack()))
		}
	}()
	if _, err := pt.Sweep(k.b.opts.Clock.Now()); err != nil && !errors.Is(err, model.ErrLogClosed) {
		k.b.logger.Warn("retention sweep failed", "topic", key.Topic, "partition", key.Partition, "err", err)
	}
}

func (k *keeper) care() {
	lastWalk := k.b.opts.Clock.Now()
	for k.pause(careEvery) {
		k.supervise()
		k.evictIdle()
		if now := k.b.opts.Clock.Now(); k.b.opts.ColdWalk > 0 && now.Sub(lastWalk) >= k.b.opts.ColdWalk {
			lastWalk = now
			k.coldWalk(now)
		}
	}
}

// supervise replaces a reaper that hangs in one partition.
func (k *keeper) supervise() {
	silent := time.Duration(k.b.now() - k.beat.Load())
	if silent < retentionEvery+reaperStaleAfter {
		return
	}
	n := k.restarts.Load()
	k.b.logger.Error("retention loop does not tick", "silent", silent, "restarts", n)
	if n < reaperRestartsMax {
		k.restarts.Store(n + 1)
		k.startReaper(n + 1)
	}
}

// evictIdle closes the logs nobody used for the eviction time, and those of dead topics
// that nobody retired.
func (k *keeper) evictIdle() {
	if k.b.opts.IdleEviction <= 0 {
		return
	}
	before := k.b.now() - int64(k.b.opts.IdleEviction)
	for _, e := range k.b.names.Range {
		t := e.(*topic)
		for p, s := range t.all() {
			if s.part.Load() == nil || s.used.Load() > before || !k.mayRest(t, s) {
				continue
			}
			closed, err := k.b.putToRest(t, s, before)
			if err != nil {
				k.b.logger.Warn("close idle log", "topic", t.name, "partition", p, "err", err)
			}
			if closed {
				k.b.metrics.evicted.Inc()
			}
		}
		k.b.dropDead(t)
	}
}

// dropDead forgets the entry of a dead topic once all its logs are closed.
func (b *Broker) dropDead(t *topic) {
	if !t.gone.Load() {
		return
	}
	t.guard.Lock()
	defer t.guard.Unlock()
	for _, s := range t.all() {
		if s.part.Load() != nil {
			return
		}
	}
	b.names.CompareAndDelete(t.name, t)
}

// mayRest reports whether retention can do without the open log: the cold walk will look
// after it, or nothing in it can expire.
func (k *keeper) mayRest(t *topic, s *slot) bool {
	v, pt := t.view.Load(), s.part.Load()
	if k.b.opts.ColdWalk > 0 || v == nil || v.RetentionMS == 0 || pt == nil {
		return true
	}
	g := pt.Gauges()
	return g.OldestOffset == g.NextOffset
}

// putToRest closes an open partition that was not used since before and has no lease
// out.
func (b *Broker) putToRest(t *topic, s *slot, before int64) (closed bool, err error) {
	t.guard.Lock()
	defer t.guard.Unlock()
	pt := s.part.Load()
	if pt == nil || s.used.Load() > before || !pt.Resting() {
		return false, nil
	}
	g := pt.Gauges()
	r := &resting{stats: g.Stats, frontier: frontierUnknown}
	if g.Loaded {
		r.frontier = g.Frontier
	}
	if known := s.rest.Load(); known != nil && known.frontier == r.frontier {
		r.oldestAt = known.oldestAt
	}
	s.rest.Store(r)
	s.part.Store(nil)
	b.openLogs.Add(-1)
	return true, pt.Close()
}

// coldWalk deletes expired segments of closed partitions. It runs only on a replica
// that has caught up, so that it never applies a retention that was raised since.
func (k *keeper) coldWalk(now time.Time) {
	if up := k.b.opts.CaughtUp; up != nil && !up() {
		return
	}
	names, err := k.b.topicDirs()
	if err != nil {
		k.b.logger.Warn("cold retention walk", "err", err)
		return
	}
	for name := range names {
		v, ok := k.b.opts.Topics.Topic(name)
		if !ok || v.RetentionMS == 0 {
			continue
		}
		for p := range v.Partitions {
			select {
			case <-k.stop:
				return
			default:
			}
			if v.OwnerOf(p) == k.b.opts.Node {
				k.coldVisit(v, p, now)
			}
		}
	}
}

// coldVisit looks at one partition, and contains a panic in it.
func (k *keeper) coldVisit(v *model.TopicView, p int, now time.Time) {
	key := model.PartitionKey{Topic: v.Name, Partition: p}
	if until, ok := k.shunned[key]; ok {
		if now.Before(until) {
			return
		}
		delete(k.shunned, key)
	}
	defer func() {
		if r := recover(); r != nil {
			k.shunned[key] = now.Add(coldRest)
			k.b.metrics.coldPanics.Inc()
			k.b.logger.Error("cold retention sweep panicked; partition left alone",
				"topic", key.Topic, "partition", p, "rest", coldRest, "panic", r, "stack", string(debug.Stack()))
		}
	}()
	if err := k.coldSweep(v, p, now); err != nil {
		k.b.logger.Warn("cold retention sweep failed", "topic", key.Topic, "partition", p, "err", err)
	}
}

func (k *keeper) coldSweep(v *model.TopicView, p int, now time.Time) error {
	dir, err := commitlog.PartitionDir(k.b.opts.DataDir, v.Name, p)
	if err != nil {
		return err
	}
	if t := k.b.entry(v.Name); t != nil {
		if s := t.slot(p); s != nil && s.part.Load() != nil {
			return nil // open: the reaper's
		}
	}
	expired, err := commitlog.HasExpired(k.b.opts.FS, dir, maxAge(v), now)
	if err != nil || !expired {
		return err
	}
	t, cur, err := k.b.lookup(v.Name)
	if err != nil {
		return err
	}
	pt, err := k.b.get(t, cur, p, false)
	if errors.Is(err, errNotOpened) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := pt.Sweep(now); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	k.b.metrics.coldSwept.Inc()
	s := t.slot(p)
	_, err = k.b.putToRest(t, s, s.used.Load())
	return err
}
