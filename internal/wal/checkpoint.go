package wal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

const (
	checkpointName = "dispatch.checkpoint"
	// checkpointWriteEvery bounds how often a moving checkpoint is written to the
	// page cache; what a killed process may forget of it.
	checkpointWriteEvery = 10 * time.Millisecond
	// checkpointSyncAfter is when a written checkpoint is synced; with the write's
	// delay it stays below the 250 ms of spec/storage-and-produce section 14.5.
	checkpointSyncAfter = 200 * time.Millisecond
	// retryEvery paces what the keeper tries again: storing the checkpoint and
	// retiring segments.
	retryEvery = time.Second
)

var checkpointMagic = [4]byte{'N', 'C', 'P', '1'}

// checkpoint is the first seq that is not done, as a small durable fact. Whatever
// of it is lost makes records be dispatched again, nothing else.
type checkpoint struct {
	mu    sync.Mutex // guards the next three
	value uint64     // what Advance accepted last
	dirty bool       // value was not written yet, and the keeper knows
	err   error      // why the last attempt to store failed; nil once one succeeded

	// The rest is the keeper's own.
	file       disk.File // nil after a failure: the file is then replaced, not reused
	written    uint64
	synced     uint64 // segments below it may go
	writtenAt  time.Time
	unsyncedAt time.Time // first write since the last sync
	retryAt    time.Time
}

// Checkpoint is the first seq that is not done, as last accepted by Advance. A
// killed process remembers what it was 10 ms ago, a power cut what it was 250 ms
// ago.
func (l *Log) Checkpoint() uint64 {
	l.check.mu.Lock()
	defer l.check.mu.Unlock()
	return l.check.value
}

// Advance moves the checkpoint to seq: all records below it are done and will not
// be read again. It costs no I/O. A seq at or below the checkpoint is no change,
// one above Next is refused. While the checkpoint cannot be stored, which is tried
// again every second, Advance does not move it and says why.
func (l *Log) Advance(seq uint64) error {
	if next := l.next.Load(); seq > next {
		return fmt.Errorf("%w: checkpoint %d above the next WAL seq %d", model.ErrInvalid, seq, next)
	}
	c := &l.check
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if seq <= c.value {
		return nil
	}
	c.value = seq
	if !c.dirty {
		c.dirty = true
		wake(l.signals.keeper)
	}
	return nil
}

// loadCheckpoint reads the stored value; 0 = there is none to be trusted.
func (l *Log) loadCheckpoint() (uint64, error) {
	name := l.catalog.pathOf(checkpointName)
	if _, err := l.opt.FS.Stat(name); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	f, err := l.opt.FS.Open(name, os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	var b [disk.FactSize + 1]byte // one more tells a longer file
	n, err := f.ReadAt(b[:], 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	v, state := disk.DecodeFact(checkpointMagic, b[:n])
	if state == disk.FactDamaged || state == disk.FactValid && v < 1 {
		l.opt.Logger.Warn("ingress dispatch checkpoint is damaged; dispatch starts at the oldest WAL segment", "file", name)
		return 0, nil
	}
	return uint64(v), nil
}

// startCheckpoint stores the value recovery arrived at and syncs it, so that
// segments may be retired behind it. The directory is synced by the caller.
func (l *Log) startCheckpoint(value uint64) error {
	f, err := l.opt.FS.Open(l.catalog.pathOf(checkpointName), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	l.check.file = f
	if info, err := f.Stat(); err != nil {
		return err
	} else if info.Size > disk.FactSize {
		if err := f.Truncate(disk.FactSize); err != nil {
			return err
		}
	}
	b := disk.EncodeFact(checkpointMagic, int64(value))
	if _, err := f.WriteAt(b[:], 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	l.check.value, l.check.written, l.check.synced = value, value, value
	return nil
}

// storeCheckpoint does what is due for the checkpoint and returns when to come
// back; zero = when it moves.
func (l *Log) storeCheckpoint(now time.Time) (again time.Time) {
	c := &l.check
	if now.Before(c.retryAt) {
		return c.retryAt
	}
	if c.file == nil {
		return l.replaceCheckpoint(now)
	}
	if value := l.Checkpoint(); value != c.written {
		if at := c.writtenAt.Add(checkpointWriteEvery); now.Before(at) {
			return at
		}
		if err := l.writeCheckpoint(now); err != nil {
			return l.checkpointFailed(now, err)
		}
	}
	if c.written == c.synced {
		return time.Time{}
	}
	if at := c.unsyncedAt.Add(checkpointSyncAfter); now.Before(at) {
		return at
	}
	if err := l.syncCheckpoint(); err != nil {
		return l.checkpointFailed(now, err)
	}
	return time.Time{}
}

// writeCheckpoint puts the current value into the page cache.
func (l *Log) writeCheckpoint(now time.Time) error {
	c := &l.check
	value := c.claim()
	b := disk.EncodeFact(checkpointMagic, int64(value))
	if _, err := c.file.WriteAt(b[:], 0); err != nil {
		return err
	}
	if c.written == c.synced {
		c.unsyncedAt = now
	}
	c.written, c.writtenAt = value, now
	return nil
}

func (l *Log) syncCheckpoint() error {
	if err := l.check.file.Sync(); err != nil {
		return err
	}
	l.check.synced = l.check.written
	return nil
}

// claim returns the value to store now; a later Advance wakes the keeper again.
func (c *checkpoint) claim() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dirty = false
	return c.value
}

// replaceCheckpoint writes a new file in place of one that failed: a file whose
// sync failed is never synced again.
func (l *Log) replaceCheckpoint(now time.Time) (again time.Time) {
	if err := l.rewriteCheckpoint(); err != nil {
		return l.checkpointFailed(now, err)
	}
	l.check.mu.Lock()
	l.check.err = nil
	l.check.mu.Unlock()
	l.opt.Logger.Info("ingress dispatch checkpoint is stored again", "dir", l.opt.Dir)
	return time.Time{}
}

func (l *Log) rewriteCheckpoint() error {
	name := l.catalog.pathOf(checkpointName)
	value := l.check.claim()
	b := disk.EncodeFact(checkpointMagic, int64(value))
	if err := disk.WriteFileAtomic(l.opt.FS, name, b[:]); err != nil {
		return err
	}
	f, err := l.opt.FS.Open(name, os.O_RDWR)
	if err != nil {
		return err
	}
	l.check.file, l.check.written, l.check.synced = f, value, value
	return nil
}

// checkpointFailed gives the file up and says when to try a new one.
func (l *Log) checkpointFailed(now time.Time, err error) (again time.Time) {
	c := &l.check
	err = fmt.Errorf("store the dispatch checkpoint: %w", err)
	c.mu.Lock()
	first := c.err == nil
	c.err = err
	c.mu.Unlock()
	if first {
		l.opt.Logger.Error("ingress dispatch checkpoint could not be stored", "dir", l.opt.Dir, "err", err)
	}
	if cerr := c.close(); cerr != nil {
		l.opt.Logger.Warn("closing the dispatch checkpoint", "dir", l.opt.Dir, "err", cerr)
	}
	c.retryAt = now.Add(retryEvery)
	return c.retryAt
}

// finalCheckpoint stores and syncs the last value; the keeper has ended.
func (l *Log) finalCheckpoint() error {
	c := &l.check
	if c.file == nil {
		return l.rewriteCheckpoint()
	}
	if l.Checkpoint() != c.written {
		if err := l.writeCheckpoint(l.opt.Clock.Now()); err != nil {
			return err
		}
	}
	if c.written == c.synced {
		return nil
	}
	return l.syncCheckpoint()
}

// close closes the file, if one is open.
func (c *checkpoint) close() error {
	if c.file == nil {
		return nil
	}
	f := c.file
	c.file = nil
	return f.Close()
}
