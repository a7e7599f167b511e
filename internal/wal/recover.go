package wal

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// found is what recovery learned about the directory before it changed anything.
type found struct {
	segments []*segment // ascending bases
	leftover []string   // names of an unfinished segment and of spares
	spares   []spare
	last     lastSegment
}

// lastSegment is the state of the newest segment.
type lastSegment struct {
	next  uint64 // seq after its last valid frame; its base if there is none
	end   int64  // file position after that frame
	group int64  // file position where the last group starts
}

// recover checks everything in the directory, and only then makes durable what it
// accepted, starts a new segment and sets the log's state (spec/storage-and-produce
// section 14.6).
func (l *Log) recover() error {
	stored, err := l.loadCheckpoint()
	if err != nil {
		return err
	}
	at, err := l.list()
	if err != nil {
		return err
	}
	next := max(stored, 1)
	if len(at.segments) > 0 {
		if next, err = l.verify(&at, stored); err != nil {
			return err
		}
	}
	if stored > next {
		return fmt.Errorf("%w: %s holds %d, above the next seq %d of the WAL in %s; records may be missing. Removing the file replays the whole WAL",
			model.ErrCorrupt, checkpointName, stored, next, l.opt.Dir)
	}
	value := next
	if len(at.segments) > 0 {
		value = l.startAt(stored, at.segments[0].base)
	}
	return l.begin(&at, value, next)
}

// startAt is the first seq to dispatch, given the stored checkpoint (0 = none).
func (l *Log) startAt(stored, oldest uint64) uint64 {
	if stored >= oldest {
		return stored
	}
	if stored > 0 {
		l.opt.Logger.Warn("ingress dispatch checkpoint was below the oldest WAL segment; dispatch starts at that segment",
			"checkpoint", stored, "oldest_segment", oldest)
	}
	return oldest
}

// list sorts the directory's files into kinds. Unknown ones are left alone.
func (l *Log) list() (found, error) {
	infos, err := l.opt.FS.List(l.opt.Dir)
	if err != nil {
		return found{}, err
	}
	var at found
	for _, info := range infos {
		base, ok := parseSegmentName(info.Name)
		switch {
		case info.IsDir:
		case ok:
			s := &segment{base: base, path: l.catalog.pathOf(info.Name)}
			s.size.Store(info.Size)
			s.end.Store(headerSize)
			at.segments = append(at.segments, s)
		case info.Name == newSegmentName:
			at.leftover = append(at.leftover, info.Name)
		case slices.Contains(spareNames[:], info.Name):
			if l.opt.Spare == SpareRecycle && info.Size >= headerSize {
				at.spares = append(at.spares, spare{info.Name, info.Size})
			} else {
				at.leftover = append(at.leftover, info.Name)
			}
		}
	}
	slices.SortFunc(at.segments, func(a, b *segment) int {
		if a.base < b.base {
			return -1
		}
		return 1
	})
	return at, nil
}

// verify checks every segment that is not wholly below the checkpoint, and returns
// the next seq.
func (l *Log) verify(at *found, stored uint64) (next uint64, err error) {
	n := len(at.segments)
	for i, s := range at.segments[:n-1] {
		until := at.segments[i+1].base
		s.until.Store(until)
		if until <= stored {
			s.unread = true
			continue
		}
		if err := l.scanFile(s, func(sc *scan) error { return sc.sealed(until) }); err != nil {
			return 0, err
		}
	}
	err = l.scanFile(at.segments[n-1], func(sc *scan) error {
		at.last, err = sc.newest(l.opt.Logger)
		return err
	})
	return at.last.next, err
}

// scanFile runs check on an open segment.
func (l *Log) scanFile(s *segment, check func(*scan) error) error {
	f, err := l.opt.FS.Open(s.path, os.O_RDONLY)
	if err != nil {
		return err
	}
	return errors.Join(check(&scan{src: f, seg: s, size: s.size.Load()}), f.Close())
}

// begin makes the accepted state durable and starts a new segment behind it. The
// newest segment is never written again: whatever a torn group left behind its last
// valid frame is then outside the log, for the next segment's base says where it
// ends. One without any frame is replaced.
func (l *Log) begin(at *found, value, next uint64) error {
	for _, name := range at.leftover {
		if err := l.catalog.remove(l.catalog.pathOf(name)); err != nil {
			return err
		}
	}
	l.adopt(at.spares)
	if n := len(at.segments); n > 0 {
		s := at.segments[n-1]
		if at.last.next == s.base {
			at.segments = at.segments[:n-1]
		} else if err := l.resync(s, at.last); err != nil {
			return err
		}
	}
	if err := l.startCheckpoint(value); err != nil {
		return err
	}
	l.catalog.list = at.segments
	l.next.Store(next)
	return l.roll()
}

// adopt takes over the spares an earlier process left.
func (l *Log) adopt(kept []spare) {
	for _, name := range spareNames {
		i := slices.IndexFunc(kept, func(sp spare) bool { return sp.name == name })
		if i < 0 {
			l.spares.free = append(l.spares.free, name)
		} else {
			l.spares.ready = append(l.spares.ready, kept[i])
		}
	}
}

// resync writes the last group over itself and syncs it. The scan saw the page
// cache: a process that was killed may never have synced that group, and one whose
// sync failed left pages that are marked clean and are not on disk, which only a
// new write brings there. Every earlier group was synced before the next was written.
func (l *Log) resync(s *segment, last lastSegment) error {
	f, err := l.opt.FS.Open(s.path, os.O_RDWR)
	if err != nil {
		return err
	}
	err = rewrite(f, last.group, last.end)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// rewrite copies a stretch of a file onto itself.
func rewrite(f disk.File, from, to int64) error {
	b := make([]byte, min(windowSize, to-from))
	for from < to {
		n, err := f.ReadAt(b[:min(int64(len(b)), to-from)], from)
		if err != nil {
			return err
		}
		if _, err := f.WriteAt(b[:n], from); err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}
