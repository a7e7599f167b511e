package commitlog

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

// ErrPastEnd: the offset is at or above the high watermark; nothing is there yet.
var ErrPastEnd = errors.New("offset is at or past the high watermark")

// DamageError says that the record at Offset cannot be read, now or ever: its
// bytes are damaged or missing. It matches model.ErrUnreadable.
type DamageError struct {
	Offset int64
	Next   int64 // the first offset behind the damage; everything before it is lost too
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("offset %d: %v (next readable offset %d)", e.Offset, model.ErrUnreadable, e.Next)
}

// Is makes the error match model.ErrUnreadable.
func (e *DamageError) Is(target error) bool { return target == model.ErrUnreadable }

// Options configure a log. FS and Dir are required.
type Options struct {
	FS           disk.FS
	Dir          string // partition directory, see PartitionDir
	Topic        string // for log lines and series
	Partition    int
	Clock        clock.Clock   // nil = the real one
	Logger       *slog.Logger  // nil = none
	Metrics      *Metrics      // nil = unregistered
	Cache        *Cache        // shared by all logs of the process; nil = one of its own
	Codec        Codec         // shared by all logs of the process
	MaxAge       time.Duration // retention; 0 keeps forever
	SegmentBytes int64         // roll past this size; 0 = SegmentBytesDefault
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	if o.Logger == nil {
		o.Logger = telemetry.Discard()
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	if o.Cache == nil {
		o.Cache = NewCache(0)
	}
	if o.Codec.dec == nil {
		o.Codec.dec = &zstdDecoder{}
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = SegmentBytesDefault
	}
	return o
}

// Log is the log of one partition. It is safe for concurrent use.
//
// Lock order: write, then mu, then the cache's locks. Readers never take write.
type Log struct {
	opt    Options
	series *series
	note   notifier

	hwm    atomic.Int64 // exclusive bound of what may be read; moved under write and mu
	oldest atomic.Int64
	next   atomic.Int64
	maxAge atomic.Int64 // nanoseconds
	unread atomic.Int32 // commits since the last read, see unreadCommitsMax
	closed atomic.Bool  // set under write and mu

	write sync.Mutex // serialises Commit, Sweep and Close; held across I/O; guards tail
	tail  tail

	mu   sync.Mutex // guards view and every handle's refs; never held across I/O
	view view
}

// tail is the writing end.
type tail struct {
	end      int64 // position of the next frame in the active segment
	visible  int64 // position a failed commit cuts back to: the first frame at or above H
	reserved int64 // offsets below it were visible once: never given out again
	floor    int64 // newest commit time known, Unix milliseconds
	born     bool  // the active segment's file exists; guarded by mu too
	entered  bool  // its directory entry is known to be durable
	unsynced bool  // the active segment may hold bytes no fsync has covered
	hwm      hwmFile
	poison   error // first failed fsync, wrapped; final
	closeErr error // what the first Close returned
}

// view is what readers look at.
type view struct {
	segs   []segment // ascending; the last one is active
	cut    int64     // end of the committed frames of the active segment
	blocks []*block  // most recently used first
	nav    []place   // recent frame boundaries, oldest first
	recent []int64   // bases of the sealed segments read last, latest first
}

func (v *view) active() *segment { return &v.segs[len(v.segs)-1] }

// find returns the segment that covers offset, nil when it is below the oldest.
func (v *view) find(offset int64) *segment {
	i := v.after(offset)
	if i == 0 {
		return nil
	}
	return &v.segs[i-1]
}

// after is the index of the first segment whose base is above offset.
func (v *view) after(offset int64) int {
	return sort.Search(len(v.segs), func(i int) bool { return v.segs[i].base > offset })
}

// end is the offset behind a segment: its successor's base, the high watermark for
// the active one.
func (l *Log) end(s *segment) int64 {
	if i := l.view.after(s.base); i < len(l.view.segs) {
		return l.view.segs[i].base
	}
	return l.hwm.Load()
}

// HighWatermark is the exclusive upper bound of what may be read. Lock-free; still
// answered after Close.
func (l *Log) HighWatermark() int64 { return l.hwm.Load() }

// OldestOffset is the base of the first retained segment. Lock-free.
func (l *Log) OldestOffset() int64 { return l.oldest.Load() }

// NextOffset is where the next record goes; it may lead HighWatermark over a
// hidden tail or during a commit. Lock-free.
func (l *Log) NextOffset() int64 { return l.next.Load() }

// NotifyC returns a channel that is closed when the high watermark moves, on Wake,
// and on Close. Obtain it, then check for data, then wait on it; after a wake start
// over with a new one (spec/storage-and-produce section 9.4).
func (l *Log) NotifyC() <-chan struct{} { return l.note.channel() }

// Wake announces without a new record: a lease ran out, a slot got free.
func (l *Log) Wake() { l.note.announce() }

// SetWakeNotifier sets what every announcement calls, nil for nothing. It runs
// under the log's write lock: it must not block nor call Commit, Sweep or Close.
func (l *Log) SetWakeNotifier(f func()) {
	if f == nil {
		l.note.wake.Store(nil)
		return
	}
	l.note.wake.Store(&f)
}

// SetMaxAge changes the retention; 0 keeps forever.
func (l *Log) SetMaxAge(d time.Duration) { l.maxAge.Store(int64(d)) }

// Stats describe a log.
type Stats struct {
	Segments        int
	OldestOffset    int64
	NextOffset      int64
	HighWatermark   int64
	SizeBytes       int64     // of frames in all segments
	OldestSegmentAt time.Time // last write of the oldest segment with records; zero when there is none
	LastWrite       time.Time // zero when nothing was ever written
}

func statsOf(segs []segment) (s Stats) {
	s.Segments = len(segs)
	for i := range segs {
		s.SizeBytes += segs[i].size
		if segs[i].size == 0 {
			continue
		}
		s.LastWrite = time.Unix(0, segs[i].last)
		if s.OldestSegmentAt.IsZero() {
			s.OldestSegmentAt = s.LastWrite
		}
	}
	if len(segs) > 0 {
		s.OldestOffset = segs[0].base
	}
	return s
}

// Stats describes the open log without touching the disk.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := statsOf(l.view.segs)
	if !l.tail.born && s.SizeBytes == 0 && s.Segments == 1 {
		s.Segments = 0
	}
	s.OldestOffset, s.HighWatermark, s.NextOffset = l.oldest.Load(), l.hwm.Load(), l.next.Load()
	return s
}

// Close makes the log unusable, stores the high watermark, and wakes everyone who
// waits. Reads in flight finish. Nothing needs an fsync here: every byte below the
// high watermark had one when it got there. Close is idempotent: later calls return
// what the first one did.
func (l *Log) Close() error {
	l.write.Lock()
	defer l.write.Unlock()
	if l.closed.Load() {
		return l.tail.closeErr
	}
	if err := l.storeHWM(); err != nil {
		l.tail.closeErr = fmt.Errorf("store high watermark in %s: %w", l.opt.Dir, err)
	}
	l.mu.Lock()
	l.closed.Store(true)
	var files []disk.File
	for i := range l.view.segs {
		files = append(files, l.letGo(&l.view.segs[i])...)
	}
	blocks := l.view.blocks
	l.view.blocks, l.view.nav = nil, nil
	l.mu.Unlock()
	for _, b := range blocks {
		l.opt.Cache.drop(b)
	}
	l.tail.closeErr = errors.Join(l.tail.closeErr, closeAll(files))
	l.series.close()
	l.note.close()
	return l.tail.closeErr
}

// storeHWM writes the boundary unless the file already holds it. A file that was
// valid at open and never released stays as it is: it may stand above what
// survived, and is then what keeps those offsets from being given out again.
func (l *Log) storeHWM() error {
	h := &l.tail.hwm
	if !l.tail.born || h.valid && !h.clear && h.value >= l.hwm.Load() {
		return nil
	}
	began := l.opt.Clock.Now()
	err := h.store(l.opt.FS, l.opt.Dir, l.hwm.Load())
	l.series.hwmPersisted(l.opt.Clock.Now().Sub(began), err)
	return err
}

// acquire shares the open file of the segment at base, or opens it. The caller
// gives it back with release. Of two callers that open it at once one keeps a file
// of its own, which its release closes.
func (l *Log) acquire(base int64) (*handle, error) {
	l.mu.Lock()
	if s := l.view.find(base); s != nil && s.base == base && s.file != nil {
		s.file.refs++
		h := s.file
		l.mu.Unlock()
		return h, nil
	}
	flag := os.O_RDONLY
	if base == l.view.active().base {
		flag = os.O_RDWR // the writer shares it
	}
	l.mu.Unlock()
	f, err := l.opt.FS.Open(l.segmentPath(base), flag)
	if err != nil {
		return nil, err
	}
	h := &handle{f: f, refs: 1}
	l.mu.Lock()
	if s := l.view.find(base); s != nil && s.base == base && s.file == nil && !l.closed.Load() {
		s.file = h
		h.refs++
	}
	l.mu.Unlock()
	return h, nil
}

// release gives a handle back and closes it behind its last user. A close error
// of a file only read, or already synced, says nothing about its contents.
func (l *Log) release(h *handle) {
	l.mu.Lock()
	h.refs--
	last := h.refs == 0
	l.mu.Unlock()
	if last {
		_ = h.f.Close()
	}
}

// letGo takes the segment's own reference back and returns the file if it was the
// last. Caller holds mu and closes the file after releasing it.
func (l *Log) letGo(s *segment) []disk.File {
	h := s.file
	s.file = nil
	if h == nil {
		return nil
	}
	if h.refs--; h.refs > 0 {
		return nil
	}
	return []disk.File{h.f}
}

func closeAll(files []disk.File) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}
