package wal

import (
	"encoding/binary"
	"fmt"

	"github.com/narad-mq/narad/internal/disk"
)

// zeroStep is the grid up to which zeros are written ahead of the tail, in bytes:
// one sync in many pays for the file's growth instead of each one. Measured, 256 KiB
// gives all of the gain for small groups and two thirds for 64 KiB ones; 4 MiB stalls
// a group for 10 ms.
const zeroStep = 256 << 10

// setBodyLength notes a body's length where sealFrame expects it; bodyLength reads it.
func setBodyLength(header []byte, n int) { binary.BigEndian.PutUint32(header[12:], uint32(n)) }
func bodyLength(header []byte) int {
	return int(binary.BigEndian.Uint32(header[12:]) & lengthMask)
}

// tail is where the next group goes. It belongs to the committer.
type tail struct {
	seg     *segment
	file    disk.File
	pos     int64  // after the last durable frame
	ready   int64  // the file does not grow up to here
	group   uint16 // number of the next write in this segment
	growing bool   // zeros ahead of the tail are not wanted, or could not be written
}

// commitLoop is the committer. It sleeps on its wake channel alone: a batch is
// staged before its token is sent, and after every token it takes batches until none
// is left, so none waits for a timer.
func (l *Log) commitLoop() {
	defer l.running.Done()
	for {
		b, last := l.stage.take()
		if b != nil {
			l.stage.finish(b, l.commit(b))
			l.noteAppend()
			continue
		}
		if l.signals.rotate.Swap(false) && !last {
			l.rotateDone()
			continue
		}
		if last {
			return
		}
		<-l.signals.committer
	}
}

// commit writes a batch, in one run if it fits the segment, else in one run per
// segment. What would touch the disk reserve is refused as a whole. On an error the runs before it are durable and stay.
func (l *Log) commit(b *batch) error {
	if err := l.takeSpace(len(b.buf)); err != nil {
		return err
	}
	defer l.space.writing.Store(0)
	rest, entries := b.buf, b.entries
	for len(rest) > 0 {
		if err := l.Failed(); err != nil {
			return err
		}
		run, count := l.fit(rest)
		if count == 0 {
			if err := l.roll(); err != nil {
				return err
			}
			continue
		}
		first := l.next.Load()
		if err := l.write(run, first, count); err != nil {
			return err
		}
		if l.opt.OnDurable != nil {
			l.opt.OnDurable(first, entries[:count:count])
		}
		rest, entries = rest[len(run):], entries[count:]
	}
	return nil
}

// fit cuts off the frames that still fit the active segment; an empty segment takes
// at least one.
func (l *Log) fit(staged []byte) (run []byte, count int) {
	room := l.opt.SegmentBytes - l.tail.pos
	end := 0
	for end < len(staged) {
		n := frameHeaderSize + bodyLength(staged[end:])
		if int64(end+n) > room && (count > 0 || l.tail.pos > headerSize) {
			break
		}
		end += n
		count++
	}
	return staged[:end], count
}

// write seals, writes and syncs one run of frames and makes it readable. A failure
// is final.
func (l *Log) write(run []byte, first uint64, count int) error {
	t := &l.tail
	for at, i := 0, 0; at < len(run); i++ {
		n := frameHeaderSize + bodyLength(run[at:])
		sealFrame(run[at:], t.seg.saltSum, first+uint64(i), group{number: t.group, more: i < count-1})
		t.seg.addMark(first+uint64(i), t.pos+int64(at))
		at += n
	}
	if _, err := t.file.WriteAt(run, t.pos); err != nil {
		return l.latch(err)
	}
	end := t.pos + int64(len(run))
	l.zeroAhead(end)
	if err := t.file.Sync(); err != nil {
		return l.latch(err)
	}
	t.pos = end
	t.group = (t.group + 1) & groupMask
	t.seg.end.Store(end)
	l.next.Store(first + uint64(count))
	return nil
}

// zeroAhead extends the file with zeros up to the next step once data has reached
// its end. No room for zeros is no failure: the segment then just grows with its
// data, and the sync that follows tells whether the data itself is safe.
func (l *Log) zeroAhead(end int64) {
	t := &l.tail
	if end <= t.ready {
		return
	}
	t.ready = end
	if target := min((end/zeroStep+1)*zeroStep, l.opt.SegmentBytes); !t.growing && target > end {
		if _, err := t.file.WriteAt(l.zeros[:target-end], end); err == nil {
			t.ready = target
		} else {
			t.growing = true
		}
	}
	t.seg.size.Store(t.ready)
}

// roll makes an empty segment the active one. Until it has succeeded nothing
// changes, and the next append tries again.
func (l *Log) roll() error {
	old := l.tail.seg
	t, err := l.create(l.next.Load())
	if err != nil {
		return fmt.Errorf("ingress WAL: start a segment at seq %d: %w", l.next.Load(), err)
	}
	l.catalog.push(t.seg, t.file)
	l.tail = t
	wake(l.signals.keeper)
	if old == nil {
		return nil
	}
	if err := l.catalog.detach(old); err != nil { // all of it was synced
		l.opt.Logger.Warn("ingress WAL: closing a full segment", "file", old.path, "err", err)
	}
	return nil
}

// rotateDone rolls away from an active segment whose records are all done, so that
// it can be retired (spec/storage-and-produce section 14.4). Nothing depends on it:
// it is tried again when the checkpoint moves.
func (l *Log) rotateDone() {
	if l.Failed() != nil || l.tail.pos <= rotateBytes || l.Checkpoint() != l.next.Load() {
		return
	}
	if err := l.roll(); err != nil {
		l.opt.Logger.Warn("ingress WAL: rotation of a dispatched segment failed", "dir", l.opt.Dir, "err", err)
	}
}
