package broker

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/partition"
)

// errNotOpened says that a partition has no files and the caller wanted none made.
var errNotOpened = errors.New("partition has no files")

// get returns an owned partition, opened if need be. With create false a partition
// whose directory does not exist is errNotOpened: it holds nothing, and looking at it
// must not make directories.
func (b *Broker) get(t *topic, v *model.TopicView, p int, create bool) (*partition.Partition, error) {
	s := t.slot(p)
	if s == nil || p >= v.Partitions {
		return nil, errPartitionRange
	}
	if v.OwnerOf(p) != b.opts.Node {
		return nil, fmt.Errorf("%w: %s/%d", model.ErrNotOwner, t.name, p)
	}
	if b.opts.CaughtUp != nil && !b.opts.CaughtUp() {
		// A view from before a restart may show partitions that went elsewhere since.
		return nil, fmt.Errorf("%w: ownership of %s/%d is not known yet", model.ErrUnavailable, t.name, p)
	}
	s.touch(b.now())
	if pt := s.part.Load(); pt != nil {
		return pt, nil
	}
	if !create && s.absent.Load() {
		return nil, errNotOpened
	}
	return b.open(t, s, p, create)
}

// open opens one partition under the guard.
func (b *Broker) open(t *topic, s *slot, p int, create bool) (*partition.Partition, error) {
	t.guard.Lock()
	defer t.guard.Unlock()
	if pt := s.part.Load(); pt != nil {
		return pt, nil
	}
	if b.closed.Load() {
		return nil, model.ErrShuttingDown
	}
	v, ok := b.opts.Topics.Topic(t.name)
	if !ok || v.ID != t.id || b.entry(t.name) != t {
		return nil, fmt.Errorf("%w: topic %s changed", model.ErrLogClosed, t.name)
	}
	if v.OwnerOf(p) != b.opts.Node {
		return nil, fmt.Errorf("%w: %s/%d", model.ErrNotOwner, t.name, p)
	}
	dir, err := commitlog.PartitionDir(b.opts.DataDir, t.name, p)
	if err != nil {
		return nil, err
	}
	if err := b.claim(t, create); err != nil {
		return nil, err
	}
	if !create {
		if _, err := b.opts.FS.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			s.absent.Store(true)
			return nil, errNotOpened
		} else if err != nil {
			return nil, err
		}
	}
	pt, err := partition.Open(b.partitionOptions(t, v, p, dir))
	if err != nil {
		return nil, err
	}
	if t.waiters.parked.Load() > 0 {
		// So that the pump need not read files. A failure shows at the next touch.
		if err := pt.WarmQueue(); err != nil {
			b.logger.Warn("load consumer position", "topic", t.name, "partition", p, "err", err)
		}
	}
	b.install(t, s, v, pt)
	return pt, nil
}

// install publishes an opened partition and catches up with a view that changed while
// it was being opened.
func (b *Broker) install(t *topic, s *slot, v *model.TopicView, pt *partition.Partition) {
	s.touch(b.now())
	s.part.Store(pt)
	s.absent.Store(false)
	b.openLogs.Add(1)
	t.vmu.Lock()
	defer t.vmu.Unlock()
	if now := t.view.Load(); now != nil && now != v {
		apply(pt, v, now)
	}
}

func (b *Broker) partitionOptions(t *topic, v *model.TopicView, p int, dir string) partition.Options {
	return partition.Options{
		Log: commitlog.Options{
			FS: b.opts.FS, Dir: dir, Topic: t.name, Partition: p,
			Clock: b.opts.Clock, Logger: b.logger, Metrics: b.metrics.log, Cache: b.cache,
			Codec: b.opts.Codec, MaxAge: maxAge(v),
		},
		Incarnation: t.id,
		Caps:        caps(v),
		Committer:   b.committer,
		Counters:    b.metrics.traffic.For(t.name, p),
		Buffers:     b.buffers,
		Gate:        func() (model.Incarnation, error) { return b.gate(t, p) },
		Wake:        func() { b.wake(t) },
		Due:         b.purger.schedule,
		Now:         b.now,
	}
}

// gate is the check under the produce lock (spec/storage-and-produce section 18.2).
func (b *Broker) gate(t *topic, p int) (model.Incarnation, error) {
	v, ok := b.opts.Topics.Topic(t.name)
	switch {
	case !ok:
		return "", fmt.Errorf("%w: %s", model.ErrTopicNotFound, t.name)
	case v.ID != t.id || t.gone.Load():
		return "", fmt.Errorf("%w: %s was recreated", model.ErrLogClosed, t.name)
	case v.OwnerOf(p) != b.opts.Node:
		return "", fmt.Errorf("%w: %s/%d", model.ErrNotOwner, t.name, p)
	}
	return v.ID, nil
}

// claim makes sure that the topic's directory belongs to t's life before anything in it
// is opened: a directory of another life is set aside, one without a marker is adopted
// (spec/storage-and-produce section 3). With create false a missing directory stays
// missing. Caller holds the guard.
func (b *Broker) claim(t *topic, create bool) error {
	if t.marked || t.id == "" {
		return nil
	}
	dir, err := commitlog.TopicDir(b.opts.DataDir, t.name)
	if err != nil {
		return err
	}
	exists, err := b.exists(dir)
	if err != nil {
		return err
	}
	if exists {
		marker, err := commitlog.ReadMarker(b.opts.FS, dir)
		if err != nil {
			return fmt.Errorf("marker of %s: %w", t.name, err)
		}
		if marker == t.id {
			t.marked = true
			return nil
		}
		if marker != "" {
			if err := b.setAside(t, dir, marker); err != nil {
				return err
			}
			exists = false
		}
	}
	if !exists && !create {
		return nil
	}
	if err := commitlog.WriteMarker(b.opts.FS, dir, t.id); err != nil {
		return fmt.Errorf("marker of %s: %w", t.name, err)
	}
	t.marked = true
	return nil
}

func (b *Broker) setAside(t *topic, dir string, old model.Incarnation) error {
	stale, err := commitlog.SetAside(b.opts.FS, dir, old, b.opts.Clock.Now())
	if err != nil {
		return fmt.Errorf("set aside %s of %s: %w", t.name, old, err)
	}
	b.logger.Error("topic directory belongs to another incarnation; set aside",
		"topic", t.name, "topic_id", t.id, "directory_id", old, "path", stale)
	return nil
}

func (b *Broker) exists(path string) (bool, error) {
	_, err := b.opts.FS.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
