package broker

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/narad-mq/narad/internal/lease"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/partition"
)

// topic is one life of a topic name on this node: its partitions and its parked
// consumers. It is created at the first use of the topic and dropped when another life
// takes the name or the topic is retired.
type topic struct {
	name  string
	id    model.Incarnation // "" = by name
	guard *sync.Mutex       // of the name; see the package comment

	view  atomic.Pointer[model.TopicView]
	slots atomic.Pointer[[]*slot]
	vmu   sync.Mutex // serialises changes of view and slots

	marked bool // guarded by guard: the directory exists and carries id
	gone   atomic.Bool

	waiters waiters
	seq     atomic.Uint64 // wakes so far; see the package comment
	queued  atomic.Bool   // on the pump's list
	rotate  atomic.Uint32 // where the next scan starts
	waits   *waitMetrics
}

// slot is the place of one partition, open or not.
type slot struct {
	part   atomic.Pointer[partition.Partition] // nil = closed; changed under the guard
	used   atomic.Int64                        // monotonic ns of the last use
	absent atomic.Bool                         // the directory is known not to exist; cleared under the guard when a commit makes it
	rest   atomic.Pointer[resting]             // what is known while closed; nil = not looked at yet
	tail   tailSignal                          // for readers that keep their own place
}

func (s *slot) touch(now int64) {
	// Idle eviction works in minutes; sparing the store keeps the line shared.
	if now-s.used.Load() > int64(time.Second) {
		s.used.Store(now)
	}
}

func (b *Broker) newTopic(v *model.TopicView, guard *sync.Mutex) *topic {
	t := &topic{name: v.Name, id: v.ID, guard: guard, waits: newWaitMetrics(b.metrics, v.Name)}
	t.adopt(v)
	return t
}

// adopt makes v the current view and grows the slots to it. Caller holds vmu, or the
// topic is not shared yet.
func (t *topic) adopt(v *model.TopicView) {
	var have []*slot
	if p := t.slots.Load(); p != nil {
		have = *p
	}
	if len(have) < v.Partitions {
		grown := make([]*slot, v.Partitions)
		for i := copy(grown, have); i < len(grown); i++ {
			grown[i] = new(slot)
		}
		t.slots.Store(&grown)
	}
	t.view.Store(v)
}

// slot returns the place of partition p, nil when the topic has no such partition.
func (t *topic) slot(p int) *slot {
	all := t.all()
	if p < 0 || p >= len(all) {
		return nil
	}
	return all[p]
}

func (t *topic) all() []*slot {
	if p := t.slots.Load(); p != nil {
		return *p
	}
	return nil
}

// nextStart is where the next scan of n partitions begins.
func (t *topic) nextStart(n int) int {
	if n == 0 {
		return 0
	}
	return int((t.rotate.Add(1) - 1) % uint32(n))
}

// caps are the lease limits of a view.
func caps(v *model.TopicView) lease.Caps {
	return lease.Caps{
		MaxInFlight:   v.MaxInFlight,
		MaxAckedAhead: v.MaxAckedAhead,
		Visibility:    time.Duration(v.VisibilityTimeoutMS) * time.Millisecond,
	}
}

// maxAge is the retention of a view; 0 keeps forever.
func maxAge(v *model.TopicView) time.Duration {
	return time.Duration(v.RetentionMS) * time.Millisecond
}

// lookup returns the live topic, its view and its entry: two map loads, no lock, when
// nothing changed since the last call.
func (b *Broker) lookup(name string) (*topic, *model.TopicView, error) {
	v, ok := b.opts.Topics.Topic(name)
	if !ok {
		return nil, nil, fmt.Errorf("%w: %s", model.ErrTopicNotFound, name)
	}
	if t := b.entry(name); t != nil && t.view.Load() == v {
		return t, v, nil
	}
	return b.renew(name)
}

// entry returns the entry of a name, nil when there is none.
func (b *Broker) entry(name string) *topic {
	if t, ok := b.names.Load(name); ok {
		return t.(*topic)
	}
	return nil
}

// renewTriesMax bounds how often renew starts over because the topic changed again.
const renewTriesMax = 8

// renew brings the entry of a name up to the current view: made, refreshed, or replaced
// when the topic was recreated.
func (b *Broker) renew(name string) (*topic, *model.TopicView, error) {
	for range renewTriesMax {
		v, ok := b.opts.Topics.Topic(name)
		if !ok {
			return nil, nil, fmt.Errorf("%w: %s", model.ErrTopicNotFound, name)
		}
		t := b.entry(name)
		switch {
		case t == nil:
			b.names.LoadOrStore(name, b.newTopic(v, new(sync.Mutex)))
		case t.gone.Load() || t.id != v.ID:
			b.replace(t, v)
		case b.refresh(t):
			if v = t.view.Load(); v != nil {
				return t, v, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("%w: topic %s keeps changing", model.ErrUnavailable, name)
}

// refresh applies the current view to an entry of the same life; false when the topic
// changed its life meanwhile.
func (b *Broker) refresh(t *topic) bool {
	t.vmu.Lock()
	defer t.vmu.Unlock()
	v, ok := b.opts.Topics.Topic(t.name)
	if !ok || v.ID != t.id || t.gone.Load() {
		return false
	}
	old := t.view.Load()
	if old == v {
		return true
	}
	t.adopt(v)
	for _, s := range t.all() {
		if pt := s.part.Load(); pt != nil {
			apply(pt, old, v)
		}
	}
	return true
}

// apply gives an open partition the settings that differ between two views.
func apply(pt *partition.Partition, old, v *model.TopicView) {
	if caps(old) != caps(v) {
		pt.SetCaps(caps(v))
	}
	if maxAge(old) != maxAge(v) {
		pt.SetMaxAge(maxAge(v))
	}
}

// replace puts an entry for v's life in the place of t, whose topic is gone: its
// consumers are sent to look again, its logs closed and its consumer state dropped.
// The directory is set aside when the new life first opens a log.
func (b *Broker) replace(t *topic, v *model.TopicView) {
	t.guard.Lock()
	defer t.guard.Unlock()
	if b.entry(t.name) != t {
		return
	}
	b.bury(t)
	b.names.Store(t.name, b.newTopic(v, t.guard))
}

// bury ends a dead topic's presence in memory. Caller holds the guard. Logs are closed
// without waiting for a running commit, which then fails or lands in a directory that
// is never served again.
func (b *Broker) bury(t *topic) {
	b.kill(t)
	for p, s := range t.all() {
		pt := s.part.Swap(nil)
		if pt == nil {
			continue
		}
		b.openLogs.Add(-1)
		if err := pt.CloseNow(); err != nil {
			b.logger.Warn("close log of a deleted topic", "topic", t.name, "partition", p, "err", err)
		}
	}
}

// kill marks an entry as belonging to a dead life: its consumers are sent to look again,
// its series go, and nothing finds it any more. It does no I/O; the logs stay open until
// the entry is buried.
func (b *Broker) kill(t *topic) {
	t.vmu.Lock()
	again := t.gone.Swap(true)
	t.view.Store(nil)
	t.vmu.Unlock()
	if again {
		return // by now the series may be another life's
	}
	t.waiters.close(model.ErrTopicNotFound)
	b.metrics.forget(t.name)
}

// wake tells the topic's parked consumers, if any, that something may be available.
func (b *Broker) wake(t *topic) {
	t.seq.Add(1)
	if t.waiters.parked.Load() > 0 {
		b.pump.kick(t)
	}
}
