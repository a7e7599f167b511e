package broker

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/model"
)

// What follows is for readers that keep their own place in a partition's log: fan-out
// cursors. They name the life of the topic they read, and never make a directory.

// Slab reads committed records of an owned partition from an offset on, appended to dst;
// see commitlog.Log.Slab. It opens the log and counts as a use of it. A partition without
// files is an empty slab. Errors: model.ErrTopicNotFound, ErrTopicChanged when the name
// has another life, ErrNotOwner, and those of commitlog.Log.Slab.
func (b *Broker) Slab(name string, id model.Incarnation, p int, dst []commitlog.Stored, from int64, lim commitlog.SlabLimit) (commitlog.Slab, error) {
	for range resolveTriesMax {
		t, v, err := b.life(name, id)
		if err != nil {
			return commitlog.Slab{}, err
		}
		pt, err := b.get(t, v, p, false)
		if errors.Is(err, errNotOpened) {
			return commitlog.Slab{Records: dst, Next: from}, nil
		}
		if err == nil {
			var s commitlog.Slab
			if s, err = pt.Log().Slab(dst, from, lim); err == nil {
				return s, nil
			}
		}
		if !errors.Is(err, model.ErrLogClosed) {
			return commitlog.Slab{}, err
		}
	}
	return commitlog.Slab{}, fmt.Errorf("%w: log of %s/%d keeps closing", model.ErrNotOwner, name, p)
}

// Tail is the high watermark of an owned partition, without opening its log or counting
// as a use of it. exact is false for a closed log whose files do not vouch for it: then it
// is a lower bound.
func (b *Broker) Tail(name string, id model.Incarnation, p int) (high int64, exact bool, err error) {
	t, v, err := b.life(name, id)
	if err != nil {
		return 0, false, err
	}
	s := t.slot(p)
	switch {
	case s == nil:
		return 0, false, errPartitionRange
	case v.OwnerOf(p) != b.opts.Node:
		return 0, false, fmt.Errorf("%w: %s/%d", model.ErrNotOwner, name, p)
	}
	if pt := s.part.Load(); pt != nil {
		return pt.Log().HighWatermark(), true, nil
	}
	st, exact, err := b.peek(v, p)
	if err != nil {
		return 0, false, fmt.Errorf("tail of %s/%d: %w", name, p, err)
	}
	return st.HighWatermark, exact, nil
}

// HighWatermark is the exact high watermark of an owned partition: where an attach begins.
// Only a log whose files do not vouch for it is opened.
func (b *Broker) HighWatermark(name string, id model.Incarnation, p int) (int64, error) {
	high, exact, err := b.Tail(name, id, p)
	if err != nil || exact {
		return high, err
	}
	t, v, err := b.life(name, id)
	if err != nil {
		return 0, err
	}
	pt, err := b.get(t, v, p, false)
	if errors.Is(err, errNotOpened) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return pt.Log().HighWatermark(), nil
}

// Changed returns a channel that the next commit to the partition closes, whether its log
// is open now or not. Obtain it, then look for records, then wait on it.
func (b *Broker) Changed(name string, id model.Incarnation, p int) (<-chan struct{}, error) {
	t, _, err := b.life(name, id)
	if err != nil {
		return nil, err
	}
	s := t.slot(p)
	if s == nil {
		return nil, errPartitionRange
	}
	return s.tail.channel(), nil
}

// life is lookup for one life of a name.
func (b *Broker) life(name string, id model.Incarnation) (*topic, *model.TopicView, error) {
	t, v, err := b.lookup(name)
	if err == nil && t.id != id {
		err = fmt.Errorf("%w: %s is %s, not %s", model.ErrTopicChanged, name, t.id, id)
	}
	return t, v, err
}

// tailSignal wakes those who wait for commits to a partition. Its announcement costs one
// atomic load while nobody waits.
type tailSignal struct {
	armed atomic.Bool // a channel was handed out since the last announcement

	mu sync.Mutex // guards ch
	ch chan struct{}
}

func (s *tailSignal) channel() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	s.armed.Store(true)
	return s.ch
}

func (s *tailSignal) announce() {
	if !s.armed.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed.Swap(false) {
		close(s.ch)
		s.ch = nil
	}
}
