package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/model"
)

// owned counts the partitions that the replica places on this node.
type owned struct {
	mu    sync.Mutex // guards all below
	byTop map[string]int
	total int
}

// set records the count of one topic; 0 forgets the name.
func (o *owned) set(name string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total += n - o.byTop[name]
	if n == 0 {
		delete(o.byTop, name)
		return
	}
	if o.byTop == nil {
		o.byTop = make(map[string]int)
	}
	o.byTop[name] = n
}

func (o *owned) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total
}

func (b *Broker) countOwned(v *model.TopicView) int {
	n := 0
	for _, node := range v.Owners {
		if node == b.opts.Node {
			n++
		}
	}
	return n
}

// TopicChanged tells the broker what the replica has just applied; v is nil when the
// topic was deleted. Retention and caps reach open logs and live lease tables, and
// parked consumers look again: those of a deleted or recreated topic end. It does no
// I/O, and correctness does not rest on it: every request compares views by itself.
func (b *Broker) TopicChanged(name string, v *model.TopicView) {
	if v == nil {
		b.owned.set(name, 0)
	} else {
		b.owned.set(name, b.countOwned(v))
	}
	t := b.entry(name)
	switch {
	case t == nil:
	case v == nil || v.ID != t.id:
		b.kill(t)
	case b.refresh(t):
		b.wake(t) // a gained partition or a raised cap may have something
	}
}

// Retire is the first step of purging one life of a topic: its logs are closed, its
// consumer state is dropped, and its directory is renamed to the stale name it answers;
// "" when there is no directory marked with id, which is all this touches. It removes
// nothing. ErrUnavailable while the replica still shows that life: the purge has to come
// back (spec/storage-and-produce section 3).
func (b *Broker) Retire(name string, id model.Incarnation) (stalePath string, err error) {
	if v, ok := b.opts.Topics.Topic(name); ok && !id.Differs(v.ID) {
		return "", fmt.Errorf("%w: the local metastore still shows topic %s as %s", model.ErrUnavailable, name, v.ID)
	}
	dir, err := commitlog.TopicDir(b.opts.DataDir, name)
	if err != nil {
		return "", err
	}
	t := b.hold(name, id)
	defer t.guard.Unlock()
	if t.gone.Load() || !t.id.Differs(id) {
		b.bury(t)
		defer b.names.CompareAndDelete(name, t)
	}
	marker, err := commitlog.ReadMarker(b.opts.FS, dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (marker == "" || marker != id) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("marker of %s: %w", name, err)
	}
	if stalePath, err = commitlog.SetAside(b.opts.FS, dir, id, b.opts.Clock.Now()); err != nil {
		return "", fmt.Errorf("set aside %s of %s: %w", name, id, err)
	}
	return stalePath, nil
}

// hold returns the entry of a name with its guard taken, making a dead one when there is
// none, so that nothing opens under the name meanwhile.
func (b *Broker) hold(name string, id model.Incarnation) *topic {
	for {
		dead := &topic{name: name, id: id, guard: new(sync.Mutex)}
		b.kill(dead)
		e, _ := b.names.LoadOrStore(name, dead)
		t := e.(*topic)
		t.guard.Lock()
		if b.entry(name) == t {
			return t
		}
		t.guard.Unlock() // replaced or dropped while waiting
	}
}

// Describe reads the state of one owned partition without ever opening its log: from
// memory when it is open, else from its files. A partition without files, or whose
// directory belongs to another life of the name, is empty.
func (b *Broker) Describe(v *model.TopicView, p int) (model.PartitionStats, error) {
	out := model.PartitionStats{Index: p, OwnerNode: v.OwnerOf(p), Status: "ok"}
	if p < 0 || p >= v.Partitions {
		return out, errPartitionRange
	}
	if out.OwnerNode != b.opts.Node {
		return out, fmt.Errorf("%w: %s/%d", model.ErrNotOwner, v.Name, p)
	}
	st, _, err := b.peek(v, p)
	if err != nil {
		return out, fmt.Errorf("describe %s/%d: %w", v.Name, p, err)
	}
	out.Segments, out.SizeBytes = st.Segments, st.SizeBytes
	out.OldestOffset, out.NextOffset, out.HighWatermark = st.OldestOffset, st.NextOffset, st.HighWatermark
	if !st.OldestSegmentAt.IsZero() {
		out.OldestSegmentAt = st.OldestSegmentAt.Unix()
	}
	return out, nil
}

// peek waits for an open or close of the topic that is under way. clean is false for a
// closed log whose files do not vouch for its high watermark.
func (b *Broker) peek(v *model.TopicView, p int) (st commitlog.Stats, clean bool, err error) {
	t := b.entry(v.Name)
	if t == nil || t.id != v.ID {
		return b.describeClosed(v.Name, v.ID, p)
	}
	s := t.slot(p)
	if s != nil {
		if pt := s.part.Load(); pt != nil {
			return pt.Gauges().Stats, true, nil
		}
	}
	t.guard.Lock()
	defer t.guard.Unlock()
	if s != nil {
		if pt := s.part.Load(); pt != nil {
			return pt.Gauges().Stats, true, nil
		}
	}
	return b.describeClosed(v.Name, v.ID, p)
}

// describeClosed reads a closed partition's files; clean says that its high watermark is
// vouched for by a graceful close. Missing or foreign directories are empty and clean.
func (b *Broker) describeClosed(name string, id model.Incarnation, p int) (st commitlog.Stats, clean bool, err error) {
	ours, err := b.holdsFiles(name, id)
	if err != nil || !ours {
		return st, err == nil, err
	}
	return b.describeFiles(name, p)
}

// holdsFiles reports whether this node's directory of the topic is there and belongs to
// that incarnation.
func (b *Broker) holdsFiles(name string, id model.Incarnation) (bool, error) {
	dir, err := commitlog.TopicDir(b.opts.DataDir, name)
	if err != nil {
		return false, err
	}
	marker, err := commitlog.ReadMarker(b.opts.FS, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && !marker.Differs(id), err
}

// describeFiles is describeClosed in a directory that holdsFiles has vouched for.
func (b *Broker) describeFiles(name string, p int) (st commitlog.Stats, clean bool, err error) {
	dir, err := commitlog.PartitionDir(b.opts.DataDir, name, p)
	if err != nil {
		return st, false, err
	}
	st, clean, err = commitlog.Describe(b.opts.FS, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return commitlog.Stats{}, true, nil
	}
	return st, clean, err
}
