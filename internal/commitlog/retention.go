package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/narad-mq/narad/internal/disk"
)

// Swept is what one retention pass deleted.
type Swept struct {
	Segments int
	Messages int64 // offsets, gaps included
	Bytes    int64
	Rolled   bool // the idle active segment was sealed
}

// rollIfDue seals the active segment before a write that finds it full or its
// oldest record older than the retention. With a hidden tail the roll is put off
// to the end of the commit that covers it.
func (l *Log) rollIfDue(now time.Time) error {
	a := l.view.active()
	age := l.maxAge.Load()
	if l.tail.end >= l.opt.SegmentBytes || age > 0 && a.size > 0 && now.UnixNano()-a.first > age {
		return l.roll()
	}
	return nil
}

// roll seals the active segment: fsync it, create its successor empty, sync the
// directory, switch. Until the switch the old segment stays active, and no frame
// is written: a successor that a failed attempt left behind would hide it.
// A segment that is empty, or holds hidden records, is never sealed.
func (l *Log) roll() error {
	a := l.view.active()
	next := l.next.Load()
	if l.tail.end != l.tail.visible || l.tail.end == 0 || next == a.base {
		return nil
	}
	if l.tail.unsynced {
		if err := l.syncActive(); err != nil {
			return err
		}
	}
	if err := l.create(next); err != nil {
		return err
	}
	l.tail.entered = true
	l.mu.Lock()
	var files []disk.File
	a.size = l.tail.end
	if l.unread.Load() < unreadCommitsMax {
		files = l.touch(a.base)
	} else {
		files = l.letGo(a)
		a.idx = nil
	}
	l.view.segs = append(l.view.segs, segment{base: next})
	l.view.cut, l.tail.end, l.tail.visible = 0, 0, 0
	l.hwm.Store(max(l.hwm.Load(), next))
	l.mu.Unlock()
	_ = closeAll(files) // synced above
	return nil
}

func (l *Log) syncActive() error {
	h, err := l.writer()
	if err != nil {
		return err
	}
	defer l.release(h)
	return l.sync(h.f)
}

// Sweep is one retention pass: it seals the active segment when its last write is
// older than the retention, and deletes the sealed segments whose last write is,
// oldest first, stopping at the first that is not expired. Segments are detached
// under the write lock and unlinked after it is released; one that cannot be
// unlinked is logged, counted, and found again by the next open
// (spec/storage-and-produce section 10).
func (l *Log) Sweep(now time.Time) (Swept, error) {
	began := l.opt.Clock.Now()
	l.write.Lock()
	if l.closed.Load() {
		l.write.Unlock()
		return Swept{}, l.writable()
	}
	age := l.maxAge.Load()
	if age <= 0 {
		l.write.Unlock()
		return Swept{}, nil
	}
	var sw Swept
	var err error
	cutoff := now.UnixNano() - age
	if a := l.view.active(); l.tail.poison == nil && a.size > 0 && a.last < cutoff {
		base := a.base
		if err = l.roll(); err == nil {
			sw.Rolled = l.view.active().base != base
		}
	}
	gone, blocks, files := l.detach(cutoff)
	for i := range gone {
		sw.Segments++
		sw.Bytes += gone[i].size
	}
	if len(gone) > 0 {
		sw.Messages = l.oldest.Load() - gone[0].base
	}
	if sw != (Swept{}) || err != nil { // a pass with nothing to do makes no series
		l.series.swept(l.opt.Clock.Now().Sub(began), sw)
	}
	l.write.Unlock()

	for _, b := range blocks {
		l.opt.Cache.drop(b)
	}
	_ = closeAll(files) // sealed: synced long ago
	l.unlink(gone)
	if err != nil {
		return sw, fmt.Errorf("seal idle segment of %s: %w", l.opt.Dir, err)
	}
	return sw, nil
}

// detach takes the expired sealed segments out of the view, with everything cached
// of them. Caller holds write.
func (l *Log) detach(cutoff int64) (gone []segment, blocks []*block, files []disk.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &l.view
	n := 0
	for n < len(v.segs)-1 && v.segs[n].last < cutoff {
		n++
	}
	if n == 0 {
		return nil, nil, nil
	}
	for i := range n {
		files = append(files, l.letGo(&v.segs[i])...)
	}
	gone = v.segs[:n:n]
	v.segs = append([]segment(nil), v.segs[n:]...)
	l.oldest.Store(v.segs[0].base)
	blocks, v.blocks, v.nav, v.recent = v.blocks, nil, nil, nil
	for i := range v.segs[:len(v.segs)-1] {
		files = append(files, l.letGo(&v.segs[i])...)
		v.segs[i].idx = nil
	}
	return gone, blocks, files
}

// unlink removes detached segments, oldest first, and makes that durable.
func (l *Log) unlink(gone []segment) {
	if len(gone) == 0 {
		return
	}
	fail := func(err error, what string) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.warn("storage: retention could not delete a segment", "segment", what, "err", err)
			l.series.failed("retention_unlink")
		}
	}
	for i := range gone {
		fail(l.opt.FS.Remove(l.segmentPath(gone[i].base)), segmentName(gone[i].base))
	}
	fail(disk.SyncDir(l.opt.FS, l.opt.Dir), ".")
}

// HasExpired reports whether a closed log holds a segment, the active one
// included, whose last write (by file time) is older than maxAge. It opens nothing.
func HasExpired(fsys disk.FS, dir string, maxAge time.Duration, now time.Time) (bool, error) {
	if maxAge <= 0 {
		return false, nil
	}
	segs, err := listSegments(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list segments: %w", err)
	}
	cutoff := now.Add(-maxAge).UnixNano()
	for i := range segs {
		sealed := i < len(segs)-1
		if segs[i].last < cutoff && (sealed || segs[i].size > 0) {
			return true, nil
		}
	}
	return false, nil
}
