package wal

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

const (
	// spaceEvery is how often the free space is looked at while records come and
	// nothing else calls for it: other programs fill volumes too.
	spaceEvery = 250 * time.Millisecond
	// owedMax bounds what is kept free for the copies that the partition logs have
	// yet to make of accepted records. Most owners are on other nodes, so a backlog
	// without an end must not refuse a produce for its whole size.
	owedMax = 64 << 20
	// copies is how often a record is written on a node that owns its partition:
	// here, and in the partition's log.
	copies = 2
)

// space is the disk reserve's state.
type space struct {
	low    atomic.Bool  // appends are refused
	asked  atomic.Bool  // records came since the last look
	readAt atomic.Int64 // Unix ns of the last look
	// spare is what may still be written before the reserve is touched: as of the last
	// look, less what the committer has written since.
	spare atomic.Int64
	// writing is what the group under way may take; a look may not see it yet.
	writing atomic.Int64

	mu      sync.Mutex // held while looking; guards failing
	failing bool       // the last look failed
}

// noteAppend asks for a look at the free space if the last one is old.
func (l *Log) noteAppend() {
	if l.opt.ReserveBytes == 0 || l.opt.Clock.Now().UnixNano()-l.space.readAt.Load() < int64(spaceEvery) {
		return
	}
	l.space.asked.Store(true)
	wake(l.signals.keeper)
}

// watchSpace looks at the free space if appends asked for it or are refused.
func (l *Log) watchSpace(now time.Time) (again time.Time) {
	if !l.space.asked.Load() && !l.space.low.Load() {
		return time.Time{}
	}
	if at := time.Unix(0, l.space.readAt.Load()).Add(spaceEvery); !now.Before(at) {
		l.readSpace()
	}
	if l.space.low.Load() {
		return time.Unix(0, l.space.readAt.Load()).Add(spaceEvery)
	}
	return time.Time{}
}

// takeSpace is the committer's question before it writes a batch of n bytes:
// model.ErrDiskReserve if that would touch the reserve. Far from the reserve it is an
// addition; near it, a look per group, so that no speed of writing gets past it.
func (l *Log) takeSpace(n int) error {
	if l.opt.ReserveBytes == 0 {
		return nil
	}
	need := int64(n) * copies
	if l.space.spare.Add(-need) < 0 {
		l.readSpace()
		if l.space.spare.Add(-need) < 0 {
			l.space.spare.Add(need) // a smaller batch may still fit
			if l.space.low.Load() {
				wake(l.signals.keeper) // to look again
			}
			return model.ErrDiskReserve
		}
	}
	l.space.writing.Store(need)
	return nil
}

// readSpace compares the free space with the reserve. If it cannot be read, the
// last verdict stands.
func (l *Log) readSpace() {
	if l.opt.ReserveBytes == 0 {
		return
	}
	l.space.mu.Lock()
	defer l.space.mu.Unlock()
	l.space.asked.Store(false)
	l.space.readAt.Store(l.opt.Clock.Now().UnixNano())
	room, err := l.opt.FS.Space(l.opt.Dir)
	if err != nil {
		if !l.space.failing {
			l.opt.Logger.Warn("ingress WAL: free space cannot be read", "dir", l.opt.Dir, "err", err)
		}
		l.space.failing = true
		if !l.space.low.Load() {
			l.space.spare.Store(l.opt.ReserveBytes)
		}
		return
	}
	l.space.failing = false
	owed := min(l.catalog.undone(l.Checkpoint()), owedMax)
	spare := int64(min(room.Available, 1<<62)) - l.opt.ReserveBytes - owed
	l.space.spare.Store(spare - l.space.writing.Load())
	low := spare < 0
	if low == l.space.low.Swap(low) {
		return
	}
	if low {
		l.opt.Logger.Warn("disk almost full; appends are refused", "dir", l.opt.Dir,
			"available_bytes", room.Available, "reserve_bytes", l.opt.ReserveBytes, "undispatched_bytes", owed)
	} else {
		l.opt.Logger.Info("disk has room again; appends are accepted", "dir", l.opt.Dir,
			"available_bytes", room.Available, "reserve_bytes", l.opt.ReserveBytes, "undispatched_bytes", owed)
	}
}
