package position

import (
	"container/list"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

var (
	// errGone: nothing is to be written for the partition: it was forgotten, its
	// live state is gone, or it is stranded.
	errGone = errors.New("partition is gone")
	// errReplaced: the path is gone or names another object than the one pinned.
	errReplaced = errors.New("directory removed or replaced")
)

// Tracked is one partition in a committer's care. Its methods are safe for
// concurrent use.
type Tracked struct {
	c    *Committer
	key  model.PartitionKey
	dir  string
	inc  model.Incarnation
	turn int64 // which tick of an interval syncs it

	isDirty atomic.Bool // acked since the last snapshot; stays set when stranded

	// mu is held by the committer while it works on this partition, I/O included,
	// and while it calls src. It guards what follows.
	mu   sync.Mutex
	src  Source // nil once forgotten
	file stateFile

	queued queued // the committer's goroutine's
}

// stateFile is the partition's consumer.ahead as the committer knows it.
type stateFile struct {
	primed   bool
	stranded bool
	f        disk.File     // nil while not held
	idleAt   *list.Element // place in shared.idle while held and durable
	dirID    disk.ID       // of the directory; zero = not known yet
	fileID   disk.ID
	window   int64     // slot that is written next, 0 or 1
	seq      uint64    // of the newest record
	rewrite  bool      // the window must be written again before any sync
	suspect  bool      // priming failed at its sync: the newest slot may not be durable
	since    time.Time // of the first write since the last sync; zero = all durable
	inWindow int64     // committed in the window
	durable  int64     // committed in the anchor
	levelled int64     // committed in consumer.offset
}

// queued says which of the committer's lists hold the partition.
type queued struct {
	unsynced, level bool
	levelSince      time.Time
}

// Dirty says that the position changed. It is cheap enough for every ack: one
// atomic load when the partition is dirty already. Call it after unlocking the
// partition.
func (t *Tracked) Dirty() {
	if !t.isDirty.Load() && t.isDirty.CompareAndSwap(false, true) {
		t.c.dirty(t)
	}
}

// Forget ends the care for the partition. After it returns no earlier snapshot is
// written, whatever the path names by then, and the descriptor is closed. It waits
// for a tick that is at this partition, so the caller must not hold a lock that
// Source.Position takes. It is idempotent.
func (t *Tracked) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file.stranded {
		t.c.metrics.stranded.Dec()
	}
	t.src = nil
	t.release()
	t.file = stateFile{}
}

// Level reports whether both files say all that the live state has to say, so that
// dropping it loses no ack. It answers false rather than wait for a tick, and for a
// stranded partition, whose memory is the only copy.
func (t *Tracked) Level() bool {
	if !t.mu.TryLock() {
		return false
	}
	defer t.mu.Unlock()
	f := &t.file
	return !t.isDirty.Load() && !f.stranded && f.since.IsZero() && f.durable == f.levelled
}

// waiting tells since when the window waits for its sync.
func (t *Tracked) waiting() (since time.Time, waiting bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.file.since, !t.file.since.IsZero()
}

// write puts a fresh snapshot into the window.
func (t *Tracked) write() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.src == nil || t.file.stranded {
		return errGone
	}
	t.isDirty.Store(false) // before the snapshot, so that no later ack is missed
	if err := t.prime(); err != nil {
		return t.checked(err)
	}
	c := t.c
	pos, ok := t.src.Position(c.work.runs)
	if !ok {
		t.file.since = time.Time{}
		return errGone
	}
	c.work.runs = pos.Ahead[:0]
	c.work.handled++
	slot{seq: t.file.seq + 1, incarnation: t.inc, pos: pos}.encode(&c.work.slot)
	err := t.with(func(f disk.File) error {
		if err := t.named(); err != nil {
			return err
		}
		t.busy()
		t.file.seq++
		t.file.rewrite = true
		_, err := f.WriteAt(c.work.slot[:], t.file.window*slotSize)
		return err
	})
	if err != nil {
		return t.checked(err)
	}
	t.file.rewrite, t.file.inWindow = false, pos.Committed
	if t.file.since.IsZero() {
		t.file.since = c.opts.Clock.Now()
	}
	if !t.queued.unsynced {
		t.queued.unsynced = true
		c.work.unsynced = append(c.work.unsynced, t)
	}
	return nil
}

// sync makes the window durable and turns it into the anchor. A window that was
// not written in full since a failure is left alone: syncing it again could report
// success for bytes that never reached the disk.
func (t *Tracked) sync() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.src == nil || t.file.stranded {
		return errGone
	}
	if t.file.since.IsZero() || t.file.rewrite {
		return nil
	}
	c := t.c
	c.work.handled++
	start := c.opts.Clock.Now()
	err := t.with(func(f disk.File) error {
		if err := t.named(); err != nil {
			return err
		}
		err := f.Sync()
		t.file.rewrite = err != nil
		return err
	})
	if err != nil {
		return t.checked(err)
	}
	now := c.opts.Clock.Now()
	c.metrics.syncs.Observe(now.Sub(start).Seconds())
	t.file.window = 1 - t.file.window
	t.file.since = time.Time{}
	t.file.durable = t.file.inWindow
	t.idle()
	if t.file.durable != t.file.levelled {
		c.trail(t, now)
	}
	return nil
}

// level brings consumer.offset up to what is durable in consumer.ahead.
func (t *Tracked) level() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.src == nil || t.file.stranded {
		return errGone
	}
	if t.file.durable == t.file.levelled {
		return nil
	}
	t.c.work.handled++
	dir, err := t.pin()
	if err == nil {
		err = writeOffset(dir, t.file.durable)
		err = errors.Join(err, dir.Close())
	}
	if err != nil {
		return t.checked(err)
	}
	t.file.levelled = t.file.durable
	return nil
}

// writeOffset overwrites consumer.offset in a pinned directory, durably.
func writeOffset(dir disk.Dir, committed int64) error {
	f, err := dir.Open(OffsetName, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	b := disk.EncodeFact(offsetMagic, committed)
	info, err := f.Stat()
	if err == nil && info.Size > disk.FactSize {
		err = f.Truncate(disk.FactSize) // some other content: a fact has one size
	}
	if err == nil {
		_, err = f.WriteAt(b[:], 0)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil && info.Size == 0 { // new
		err = dir.Sync()
	}
	return err
}

// checked turns an error into the partition's fate: stranded for good when its
// directory was replaced, else the error for another try.
func (t *Tracked) checked(err error) error {
	if !errors.Is(err, errReplaced) {
		return err
	}
	t.file.stranded = true
	t.file.since = time.Time{}
	t.release()
	t.isDirty.Store(true) // no further Dirty queues it
	t.c.metrics.stranded.Inc()
	if t.c.limit.Allow("stranded " + t.key.String()) {
		t.c.opts.Logger.Error("consumer offsets: partition directory removed or replaced under its persisted state; its acks are not persisted until the partition is dropped",
			"topic", t.key.Topic, "partition", t.key.Partition)
	}
	return errGone
}

func (t *Tracked) failure(err error) error {
	return fmt.Errorf("consumer position of %s: %w", t.key, err)
}
