package commitlog

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// Commit makes recs visible at consecutive offsets from first on, or fails as a
// whole: it writes their frames, fsyncs, reads back, checks every CRC, and only
// then moves the high watermark and announces it. On failure the tail is cut, so
// that a retry lands one copy at the same offsets, or the log is poisoned
// (spec/storage-and-produce sections 5.1 to 5.3).
//
// The log keeps the records' slices; recs itself stays the caller's, with
// CommittedAt raised to what was stored.
func (l *Log) Commit(recs []Record) (first int64, err error) {
	l.write.Lock()
	defer l.write.Unlock()
	if err := l.writable(); err != nil {
		return 0, err
	}
	if len(recs) == 0 {
		return l.next.Load(), nil
	}
	now := l.opt.Clock.Now()
	size := int64(0)
	for i := range recs {
		n := envelopeSize(&recs[i])
		size += recordLenSize + n
		if n > maxFrameBytes-recordLenSize {
			return 0, fmt.Errorf("%w: record %d of the commit takes %d bytes, at most %d", model.ErrInvalid, i, n, maxFrameBytes-recordLenSize)
		}
	}
	if err := l.rollIfDue(now); err != nil {
		return 0, fmt.Errorf("roll segment of %s: %w", l.opt.Dir, err)
	}
	buf := l.opt.Cache.buffers.write()
	defer l.opt.Cache.buffers.putWrite(buf)
	first = l.next.Load()
	*buf = slices.Grow((*buf)[:0], int(size+frameHeaderSize*(size/framePayloadMax*2+1)))
	raise(recs, l.tail.floor)
	*buf = l.encode(*buf, recs, first)
	if wrote, err := l.persist(*buf); err != nil {
		if wrote {
			l.discard()
		}
		return 0, fmt.Errorf("commit to %s at offset %d: %w", l.opt.Dir, first, err)
	}
	l.publish(*buf, recs, first, now)
	if l.tail.end >= l.opt.SegmentBytes {
		if err := l.roll(); err != nil { // owed still: the next commit tries again before it writes
			l.warn("storage: segment roll failed", "err", err)
		}
	}
	return first, nil
}

// writable refuses a log that was closed or poisoned.
func (l *Log) writable() error {
	if l.closed.Load() {
		return fmt.Errorf("%s: %w", l.opt.Dir, model.ErrLogClosed)
	}
	return l.tail.poison
}

// encode appends the frames of recs.
func (l *Log) encode(dst []byte, recs []Record, base int64) []byte {
	var raw *[]byte
	if l.opt.Codec.enc != nil {
		raw = l.opt.Cache.buffers.write()
		defer l.opt.Cache.buffers.putWrite(raw)
	}
	for len(recs) > 0 {
		n, size := splitFrame(recs)
		dst = l.encodeFrame(dst, raw, recs[:n], base, size)
		base += int64(n)
		recs = recs[n:]
	}
	return dst
}

// splitFrame says how many of recs go into the next frame, and their payload size.
func splitFrame(recs []Record) (n int, size int64) {
	for i := range recs {
		s := recordLenSize + envelopeSize(&recs[i])
		if n > 0 && size+s > framePayloadMax {
			break
		}
		n, size = n+1, size+s
	}
	return n, size
}

func (l *Log) encodeFrame(dst []byte, raw *[]byte, recs []Record, base, size int64) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, frameHeaderSize)...)
	h := frameHeader{count: int32(len(recs)), base: base, uncompressed: size}
	if raw == nil {
		dst = appendRecords(dst, recs)
	} else {
		*raw = appendRecords((*raw)[:0], recs)
		dst, h.codec = l.opt.Codec.encode(dst, *raw)
	}
	h.compressed = int64(len(dst) - at - frameHeaderSize)
	putFrameHeader(dst[at:], h)
	return dst
}

func appendRecords(dst []byte, recs []Record) []byte {
	for i := range recs {
		dst = appendRecord(dst, &recs[i])
	}
	return dst
}

// raise makes commit times never decrease: neither below the newest one the log
// has committed, nor within the commit (spec/storage-and-produce section 4.3).
func raise(recs []Record, floor int64) {
	for i := range recs {
		floor = max(floor, recs[i].CommittedAt)
		recs[i].CommittedAt = floor
	}
}

// persist is steps 3 to 6 of a commit: on success every frame of buf is durable and
// was read back. wrote reports whether bytes may have reached the file.
func (l *Log) persist(buf []byte) (wrote bool, err error) {
	h, err := l.writer()
	if err != nil {
		return false, err
	}
	defer l.release(h)
	began := l.opt.Clock.Now()
	l.tail.unsynced = true
	at := l.tail.end
	l.tail.end += int64(len(buf)) // what a failed write left behind is cut as well
	if _, err := h.f.WriteAt(buf, at); err != nil {
		return true, err
	}
	l.series.flushed(l.opt.Clock.Now().Sub(began), len(buf))
	if !l.tail.hwm.clear {
		if err := l.releaseHWM(); err != nil {
			return true, fmt.Errorf("release high watermark file: %w", err)
		}
	}
	if err := l.sync(h.f); err != nil {
		return true, err
	}
	return true, l.readBack(h.f, buf, at)
}

// writer returns the active segment's file, which the first write of a partition
// creates, with its directories.
func (l *Log) writer() (*handle, error) {
	l.mu.Lock()
	base := l.view.active().base
	l.mu.Unlock()
	if !l.tail.entered {
		if err := l.enter(base); err != nil {
			return nil, err
		}
	}
	return l.acquire(base)
}

func (l *Log) releaseHWM() error {
	began := l.opt.Clock.Now()
	err := l.tail.hwm.release(l.opt.FS, l.opt.Dir)
	l.series.hwmPersisted(l.opt.Clock.Now().Sub(began), err)
	return err
}

// sync fsyncs the active segment. A failure poisons the log: the kernel may have
// dropped the dirty pages, so a second try would report success for lost bytes.
func (l *Log) sync(f disk.File) error {
	began := l.opt.Clock.Now()
	if err := f.Sync(); err != nil {
		l.poison(err)
		return l.tail.poison
	}
	l.tail.unsynced = false
	l.series.synced(l.opt.Clock.Now().Sub(began))
	return nil
}

func (l *Log) poison(err error) {
	l.tail.poison = fmt.Errorf("%s: %w: %w", l.opt.Dir, model.ErrLogPoisoned, err)
	l.opt.Logger.Error("storage: fsync failed; log poisoned until reopened",
		"dir", l.opt.Dir, "durable_tail", l.hwm.Load(), "err", err)
	l.series.failed("fsync_poisoned")
}

// readBack reads what was just written at position at and checks every frame: the
// header as written, and the CRC over what came back.
func (l *Log) readBack(f disk.File, buf []byte, at int64) error {
	scratch := l.opt.Cache.buffers.window()
	defer l.opt.Cache.buffers.windows.Put(scratch)
	w := newWindow(f, at+int64(len(buf)), windowBytes, *scratch)
	for len(buf) > 0 {
		want, reason := parseFrameHeader(buf)
		if reason != "" {
			return fmt.Errorf("%w: frame to be written: %s", model.ErrCorrupt, reason)
		}
		got, ok, err := w.frameAt(at, want.base)
		if err != nil {
			return fmt.Errorf("read back: %w", err)
		}
		if !ok || got != want {
			return fmt.Errorf("%w: frame of offsets [%d,%d) at position %d did not read back as written",
				model.ErrCorrupt, want.base, want.end(), at)
		}
		buf, at = buf[want.size():], at+want.size()
	}
	return nil
}

// publish moves the high watermark over durable frames and announces it.
func (l *Log) publish(buf []byte, recs []Record, first int64, now time.Time) {
	end := first + int64(len(recs))
	l.tail.floor = recs[len(recs)-1].CommittedAt
	l.mu.Lock()
	a := l.view.active()
	if a.idx == nil {
		a.idx = newIndex(a.base)
	}
	for at := l.tail.end - int64(len(buf)); len(buf) > 0; {
		size := frameHeaderSize + int64(binary.BigEndian.Uint32(buf[19:]))
		count := int64(binary.BigEndian.Uint32(buf[3:]))
		base := int64(binary.BigEndian.Uint64(buf[7:]))
		a.idx.add(base, at, base+count, size)
		buf, at = buf[size:], at+size
	}
	if a.size == 0 {
		a.first = now.UnixNano()
	}
	a.size, a.last = l.tail.end, now.UnixNano()
	l.view.cut, l.tail.visible = l.tail.end, l.tail.end
	if l.unread.Load() < unreadCommitsMax {
		l.unread.Add(1)
		l.cacheWritten(recs, first)
	}
	l.next.Store(end)
	l.hwm.Store(end)
	l.mu.Unlock()
	l.note.announce()
}

// discard cuts everything a failed commit may have written, and the hidden tail
// with it. After a failed fsync the cut is not synced, only made: the bytes the
// kernel may have lost must not be read back as good ones by the next open.
func (l *Log) discard() {
	poisoned := l.tail.poison != nil
	h, err := l.writer()
	if err == nil {
		err = h.f.Truncate(l.tail.visible)
		if err == nil && !poisoned {
			err = h.f.Sync()
		}
		l.release(h)
	}
	if err != nil {
		if !poisoned {
			l.poison(err)
		}
		return
	}
	l.mu.Lock()
	l.tail.end = l.tail.visible
	a := l.view.active()
	a.size = l.tail.visible
	if a.idx != nil {
		a.idx.cut(place{l.hwm.Load(), l.tail.visible})
	}
	l.next.Store(max(l.hwm.Load(), l.tail.reserved))
	l.mu.Unlock()
	if !poisoned {
		l.tail.unsynced = false
	}
}
