package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/narad-mq/narad/internal/model"
)

// Open recovers a log. It reads the newest segment and stats the others; it
// creates nothing, and a missing directory is an empty log
// (spec/storage-and-produce section 6).
func Open(opt Options) (*Log, error) {
	l := &Log{opt: opt.withDefaults()}
	l.maxAge.Store(int64(opt.MaxAge))
	l.unread.Store(unreadCommitsMax)
	if err := l.recover(); err != nil {
		return nil, fmt.Errorf("open partition log %s: %w", l.opt.Dir, err)
	}
	l.series = l.opt.Metrics.newSeries(model.PartitionKey{Topic: opt.Topic, Partition: opt.Partition})
	return l, nil
}

func (l *Log) recover() error {
	segs, err := listSegments(l.opt.FS, l.opt.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	h, damaged, err := readHWM(l.opt.FS, l.opt.Dir)
	if err != nil {
		return err
	}
	l.tail.hwm = h
	if damaged {
		l.warn("storage: high watermark file is damaged; treated as empty")
	}
	l.tail.born = len(segs) > 0
	if !l.tail.born {
		segs = []segment{{}}
	}
	l.view.segs = segs
	l.oldest.Store(segs[0].base)
	if !l.tail.born {
		l.bound(0, nil)
		return nil
	}
	return l.recoverActive()
}

// recoverActive walks the newest segment, cuts a torn tail, and derives the
// watermarks.
func (l *Log) recoverActive() error {
	a := l.view.active()
	f, err := l.opt.FS.Open(l.segmentPath(a.base), os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := l.opt.Cache.buffers.window()
	defer l.opt.Cache.buffers.windows.Put(buf)
	info, err := f.Stat()
	if err != nil {
		return err
	}
	l.tail.entered = info.Size > 0 // no frame is written before the entry was synced
	k := newWalk(newWindow(f, info.Size, windowBytes, *buf), place{base: a.base})
	boundary := hiddenFrom{at: max(l.tail.hwm.value, a.base)}
	var last frameHeader
	var lastAt int64
	for {
		h, at, ok, err := k.step()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		last, lastAt = h, at
		boundary.pass(h, at)
	}
	a.idx, a.size = k.found, k.found.scanned.pos
	l.tail.unsynced = true
	for _, d := range k.found.damage {
		l.warn("storage: damaged bytes in the active segment; their offsets are lost",
			"segment", segmentName(a.base), "position", d.pos, "from", d.from, "to", d.next)
	}
	if a.size < info.Size {
		l.warn("storage: torn tail cut", "segment", segmentName(a.base), "position", a.size, "bytes", info.Size-a.size)
		if err := f.Truncate(a.size); err != nil {
			return fmt.Errorf("cut torn tail: %w", err)
		}
		if err := f.Sync(); err != nil {
			return fmt.Errorf("sync cut torn tail: %w", err)
		}
		l.tail.unsynced = false
	}
	if last.count > 0 {
		if err := l.seedFloor(k.w, lastAt, last); err != nil {
			return err
		}
	}
	l.bound(a.size, &boundary)
	if !l.tail.trusted() && l.tail.unsynced {
		if err := f.Sync(); err != nil {
			return fmt.Errorf("sync recovered segment: %w", err)
		}
		l.tail.unsynced = false
	}
	return nil
}

// hiddenFrom finds, during the walk, the first frame at or above a boundary.
type hiddenFrom struct {
	at    int64 // the boundary
	found bool
	place place // that frame
}

// pass looks at a frame. A boundary inside a frame, which no log writes, is moved
// behind it: records that may have been acked stay visible.
func (b *hiddenFrom) pass(h frameHeader, at int64) {
	if b.found {
		return
	}
	if h.base >= b.at {
		b.found, b.place = true, place{h.base, at}
	} else if h.end() > b.at {
		b.at = h.end()
	}
}

// trusted reports whether the boundary found at open is used. A boundary of 0 is
// not, over record bytes: at worst that shows duplicates.
func (t *tail) trusted() bool { return t.hwm.valid && (t.hwm.value > 0 || t.end == 0) }

// bound sets T, H and the places that belong to them, end being the position after
// the last valid frame of the active segment.
//
// H = min(stored, T) when the stored boundary is trusted, else T; never below the
// active segment's base, because only committed records are ever sealed. Offsets
// between what survived and a larger stored boundary were visible once: they are
// reported and never given out again, so that no consumer's position can hide a
// new record (spec/reliability F13, F24).
func (l *Log) bound(end int64, b *hiddenFrom) {
	a := l.view.active()
	l.tail.end, l.tail.visible = end, end
	next := a.base
	if a.idx != nil {
		next = a.idx.scanned.base
	}
	h := next
	if l.tail.trusted() {
		if b != nil && b.found {
			h, l.tail.visible = max(b.at, a.base), b.place.pos
		}
		if v := l.tail.hwm.value; v > next {
			l.opt.Logger.Error("storage: records below the high watermark are missing",
				"topic", l.opt.Topic, "partition", l.opt.Partition, "dir", l.opt.Dir, "from", next, "to", v)
			l.tail.reserved = v
		}
	}
	l.view.cut = l.tail.visible
	l.hwm.Store(h)
	l.next.Store(max(next, l.tail.reserved))
}

// seedFloor takes the newest commit time from the last frame, so that a clock set
// back before the restart does not order new records before old ones.
func (l *Log) seedFloor(w *window, at int64, h frameHeader) error {
	recs, err := l.decode(w, []framed{{h, at}})
	if errors.Is(err, model.ErrCorrupt) {
		return nil // the floor is a comfort; reads report the damage
	}
	if err != nil {
		return err
	}
	l.tail.floor = recs[len(recs)-1].CommittedAt
	return nil
}

func (l *Log) warn(msg string, args ...any) {
	l.opt.Logger.Warn(msg, append([]any{"topic", l.opt.Topic, "partition", l.opt.Partition, "dir", l.opt.Dir}, args...)...)
}
