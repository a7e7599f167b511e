package commitlog

import (
	"errors"
	"fmt"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// Read returns the record at offset. Errors: *model.AgedOutError below the oldest
// retained offset, ErrPastEnd, *DamageError (matches model.ErrUnreadable),
// model.ErrLogClosed, or an I/O error, which fails this read only.
func (l *Log) Read(offset int64) (Stored, error) {
	var one [1]Stored
	recs, err := l.ReadRun(one[:0], offset, 1, 0)
	if err != nil {
		return Stored{}, err
	}
	return recs[0], nil
}

// ReadRun appends consecutive readable records from offset from on to dst: at
// least one, or an error as Read's; at most maxRecords, and no more than maxBytes
// of keys and payloads past the first (0 = no such bound). It stops before a gap
// or damage, which the read at that offset reports.
func (l *Log) ReadRun(dst []Stored, from int64, maxRecords, maxBytes int) ([]Stored, error) {
	r := run{dst: dst, next: from, had: len(dst), records: max(maxRecords, 1), bytes: maxBytes}
	err := l.read(&r)
	if len(r.dst) > r.had {
		return r.dst, nil
	}
	return dst, err
}

// run collects consecutive records until a limit is met.
type run struct {
	dst     []Stored
	had     int   // records dst came with
	next    int64 // offset wanted next
	records int   // still wanted
	bytes   int   // bound of keys and payloads; 0 = none
	size    int   // collected
	gate    int64 // hold back records committed later; 0 = none
	gated   int64 // commit time of the record the gate held back
	bad     bool  // stopped at an envelope that does not decode
}

func (r *run) full() bool { return r.records == 0 || r.gated != 0 || r.bad }

// take decides on the record at next.
func (r *run) take(s *Stored) bool {
	n := len(s.Key) + len(s.Payload)
	first := len(r.dst) == r.had && r.size == 0
	switch {
	case r.records == 0:
		return false
	case s.damaged:
		r.bad = true
		return false
	case r.gate != 0 && s.CommittedAt > r.gate:
		r.gated = s.CommittedAt
		return false
	case r.bytes > 0 && !first && r.size+n > r.bytes:
		r.records = 0
		return false
	}
	r.records--
	r.size += n
	return true
}

// copy takes the records of recs, which covers next, as far as the limits go.
func (r *run) copy(recs []Stored) {
	for i := int(r.next - recs[0].Offset); i < len(recs) && r.take(&recs[i]); i++ {
		r.dst = append(r.dst, recs[i])
		r.next++
	}
}

// read fills r from the cache and, where that ends, from the segments. The error
// is what stopped it before a limit did.
func (l *Log) read(r *run) error {
	if l.unread.Load() != 0 {
		l.unread.Store(0)
	}
	for {
		if err := l.readable(r.next); err != nil {
			return err
		}
		if b := l.cached(r.next); b != nil && b.copyTo(r) {
			// Taken from memory; nothing when it was dropped since the look-up.
		} else if recs, err := l.load(r.next); err != nil {
			return l.readFailed(r.next, err)
		} else {
			r.copy(recs)
		}
		if r.bad {
			return &DamageError{Offset: r.next, Next: r.next + 1}
		}
		if r.full() {
			return nil
		}
	}
}

// readable refuses offsets outside [oldest, H) and closed logs.
func (l *Log) readable(offset int64) error {
	if l.closed.Load() {
		return fmt.Errorf("%s: %w", l.opt.Dir, model.ErrLogClosed)
	}
	if oldest := l.oldest.Load(); offset < oldest {
		return &model.AgedOutError{Offset: offset, Oldest: oldest}
	}
	if offset >= l.hwm.Load() {
		return ErrPastEnd
	}
	return nil
}

// readFailed explains a failed load: a log closed or a segment aged out meanwhile
// says so, whatever the file system answered.
func (l *Log) readFailed(offset int64, err error) error {
	var d *DamageError
	if errors.As(err, &d) {
		return err
	}
	if rerr := l.readable(offset); rerr != nil && !errors.Is(rerr, ErrPastEnd) {
		return rerr
	}
	return fmt.Errorf("read %s at offset %d: %w", l.opt.Dir, offset, err)
}

// framed is a checked frame and its position.
type framed struct {
	frameHeader
	at int64
}

// plan is where a cold read begins.
type plan struct {
	file  *handle
	base  int64 // of the segment
	end   int64 // offset behind the segment
	limit int64 // its readable bytes
	start place // nearest known frame boundary
	ahead int   // bytes to read at once: more when an earlier read ended here
}

// plan finds offset's segment and the nearest known place before it. Caller
// releases the file.
func (l *Log) plan(offset int64) (plan, error) {
	l.mu.Lock()
	s := l.view.find(offset)
	if s == nil {
		l.mu.Unlock()
		return plan{}, &model.AgedOutError{Offset: offset, Oldest: l.oldest.Load()}
	}
	p := plan{base: s.base, end: l.end(s), limit: s.size}
	if s == l.view.active() {
		p.limit = l.view.cut
	}
	if s.idx == nil {
		s.idx = newIndex(s.base)
	}
	if d, lost := s.idx.lost(offset); lost {
		l.mu.Unlock()
		return plan{}, &DamageError{Offset: offset, Next: d.next}
	}
	var files []disk.File
	if s != l.view.active() {
		files = l.touch(s.base)
	}
	p.start = s.idx.start(offset)
	p.ahead = readAheadBytes
	for _, n := range l.view.nav {
		if n.base <= offset && n.base > p.start.base && n.base >= p.base {
			p.start = n
		}
	}
	if p.start.base == offset {
		p.ahead = blockBytesMax
	}
	l.mu.Unlock()
	_ = closeAll(files) // only ever read, see release
	var err error
	p.file, err = l.acquire(p.base)
	return p, err
}

// load reads the frame that covers offset and the small frames right behind it,
// caches them as one block and returns them.
func (l *Log) load(offset int64) ([]Stored, error) {
	p, err := l.plan(offset)
	if err != nil {
		return nil, err
	}
	defer l.release(p.file)
	buf := l.opt.Cache.buffers.window()
	defer l.opt.Cache.buffers.windows.Put(buf)
	k := newWalk(newWindow(p.file.f, p.limit, p.ahead, *buf), p.start)
	first, err := k.seek(offset, p.end)
	var d *DamageError
	if errors.As(err, &d) {
		l.learn(p, k.found)
	}
	if err != nil {
		return nil, err
	}
	frames, err := k.gather(first, p.end)
	if err != nil {
		return nil, err
	}
	recs, err := l.decode(k.w, frames)
	if errors.Is(err, model.ErrCorrupt) {
		return nil, &DamageError{Offset: offset, Next: frames[0].end()}
	}
	if err != nil {
		return nil, err
	}
	l.learn(p, k.found)
	l.remember(recs)
	return recs, nil
}

// seek walks to the frame that covers offset; end is where the segment's offsets
// end, wherever its frames do. A frame past it is not this segment's: serving it
// would answer for the successor.
func (k *walk) seek(offset, end int64) (framed, error) {
	for {
		h, at, ok, err := k.step()
		if err != nil {
			return framed{}, err
		}
		if !ok {
			s := &k.found.scanned
			if s.base >= end {
				return framed{}, fmt.Errorf("offset %d: %w: walk ended at offset %d", offset, model.ErrCorrupt, s.base)
			}
			k.found.damage = append(k.found.damage, damage{from: s.base, next: end, pos: s.pos, nextPos: k.w.limit})
			*s = place{end, k.w.limit}
			return framed{}, &DamageError{Offset: offset, Next: end}
		}
		if h.end() > end || h.base > offset { // of another segment's offsets, or behind a gap
			return framed{}, &DamageError{Offset: offset, Next: min(max(h.base, offset+1), end)}
		}
		if h.end() > offset {
			return framed{h, at}, nil
		}
	}
}

// gather adds the frames right behind first that the window holds already, while
// all of them together stay small. It reads nothing.
func (k *walk) gather(first framed, end int64) ([]framed, error) {
	frames := []framed{first}
	size, count := first.uncompressed, int64(first.count)
	for last := first; ; {
		at := last.at + last.size()
		if !k.w.holds(at, frameHeaderSize) {
			return frames, nil
		}
		b, err := k.w.at(at, frameHeaderSize)
		if err != nil {
			return nil, err
		}
		h, reason := parseFrameHeader(b)
		size, count = size+h.uncompressed, count+int64(h.count)
		if reason != "" || h.base != last.end() || h.end() > end || size > blockBytesMax || count > blockRecordsMax || !k.w.holds(at, h.size()) {
			return frames, nil
		}
		if _, ok, err := k.w.frameAt(at, last.end()); err != nil || !ok {
			return frames, err
		}
		k.found.add(h.base, at, h.end(), h.size())
		last = framed{h, at}
		frames = append(frames, last)
	}
}

// decodeCountHint bounds what a record count in a header makes decode allocate.
const decodeCountHint = 1 << 16

// decode returns the records of consecutive frames. They share one buffer of their
// own. When a later frame does not decode, the records before it are returned.
func (l *Log) decode(w *window, frames []framed) ([]Stored, error) {
	var size, count int64
	for i := range frames {
		size, count = size+frames[i].uncompressed, count+int64(frames[i].count)
	}
	arena := make([]byte, 0, size)
	recs := make([]Stored, 0, min(count, decodeCountHint))
	for i := range frames {
		f := &frames[i]
		stored, err := w.payload(f.at, f.frameHeader)
		if err != nil {
			return nil, err
		}
		n, had := len(arena), len(recs)
		if arena, err = l.opt.Codec.decode(arena, f.frameHeader, stored); err == nil {
			recs, err = decodePayload(recs, f.frameHeader, arena[n:])
		}
		if err != nil && i == 0 {
			return nil, err
		}
		if err != nil {
			return recs[:had], nil
		}
	}
	return recs, nil
}

// Slab limits and answer.
type (
	// SlabLimit bounds a slab. MaxCommittedAt, when not 0, holds back the first
	// record committed after that time (Unix milliseconds) and all behind it.
	SlabLimit struct {
		MaxRecords, MaxBytes int
		MaxCommittedAt       int64
	}
	// Slab is a run of records for a cursor. Next is where the next slab begins: it
	// is past damage that was skipped, Skipped counts the offsets lost there. Gated,
	// when not 0, is the commit time of the record MaxCommittedAt held back: with the
	// caller's delay it says when the next record falls due.
	Slab struct {
		Records []Stored
		Next    int64
		Skipped int64
		Gated   int64
	}
)

// Slab reads records for a copy to another log, appended to dst, passing over
// unreadable ones. At the high watermark it returns an empty slab. Errors:
// *model.AgedOutError, model.ErrLogClosed, or an I/O error; records found before
// an error are returned without it.
func (l *Log) Slab(dst []Stored, from int64, lim SlabLimit) (Slab, error) {
	r := run{dst: dst, next: from, had: len(dst), records: max(lim.MaxRecords, 1), bytes: lim.MaxBytes, gate: lim.MaxCommittedAt}
	var skipped int64
	for {
		err := l.read(&r)
		s := Slab{Records: r.dst, Next: r.next, Skipped: skipped, Gated: r.gated}
		var d *DamageError
		if errors.As(err, &d) {
			skipped += d.Next - r.next
			r.next, r.bad = d.Next, false
			continue
		}
		if err == nil || errors.Is(err, ErrPastEnd) || len(r.dst) > r.had {
			return s, nil
		}
		return s, err
	}
}
