package wal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// segmentBytesDefault is the size at which a segment is followed by the next.
const segmentBytesDefault = 64 << 20

// ErrCompacted is what a Reader answers when the record it is to read next lies in a
// segment that was removed because everything in it was done.
var ErrCompacted = errors.New("record lies below the oldest WAL segment")

// Entry is a record on its way into the log. The log keeps no reference to it
// after OnDurable, or without OnDurable after the append returned.
type Entry interface {
	// Size is the exact number of bytes AppendTo appends, 1 to BodyMax.
	Size() int
	// AppendTo appends the record's body to dst and returns the extended slice. It
	// is called once, under the log's staging lock: encode, nothing else.
	AppendTo(dst []byte) []byte
}

// SpareMode says how the log avoids writing into growing files, whose every sync
// costs a journal commit (the figures are in the package comment).
type SpareMode uint8

const (
	// SpareRecycle reuses retired segments, and writes zeros ahead of the tail where
	// there is none to reuse. The fastest, and the default.
	SpareRecycle SpareMode = iota
	// SpareZero writes zeros ahead of the tail; retired segments are removed.
	SpareZero
	// SpareNone does neither: segments grow as they are written.
	SpareNone
)

// Options of a Log. FS, Dir, Clock and Logger are required.
type Options struct {
	FS       disk.FS
	Dir      string // <data>/ingress/produce; created if missing
	Clock    clock.Clock
	Logger   *slog.Logger
	Registry prometheus.Registerer // nil = metrics are not registered
	// SegmentBytes is the length a segment's frames do not pass, except that a
	// segment holds at least one; 0 = 64 MiB.
	SegmentBytes int64
	// Spare is how the next stretch of file is made ready.
	Spare SpareMode
	// ReserveBytes: while the volume has less free space than this, appends fail
	// with model.ErrDiskReserve before anything is written. 0 = off.
	ReserveBytes int64
	// OnDurable, if set, gets every group of records once they are synced, in seq
	// order, before their appends return: entries[i] has seq first+i. It is called
	// on the log's own goroutine and must not block. The slice is the callee's.
	OnDurable func(first uint64, entries []Entry)
}

// Log is the ingress write-ahead log of one node. All methods are safe for
// concurrent use. Two goroutines belong to it: the committer, which alone writes
// the active segment and starts the next one, and the keeper, which stores the
// checkpoint, retires segments and watches the free space.
type Log struct {
	opt     Options
	stage   stage
	tail    tail // committer's own, once it runs
	catalog catalog
	spares  spares
	check   checkpoint
	space   space
	zeros   []byte // what is written ahead of the tail, zeroStep long; nobody writes to it

	next   atomic.Uint64 // first seq that is not durable; moved by the committer
	failed atomic.Pointer[failure]

	signals    signals
	running    sync.WaitGroup
	collectors []prometheus.Collector
	closing    closing
}

// signals are how the log's goroutines are woken.
type signals struct {
	committer chan struct{} // capacity 1, see wake
	keeper    chan struct{} // capacity 1, see wake
	stop      chan struct{} // closed to end the keeper
	rotate    atomic.Bool   // the keeper asks the committer for a new segment
}

// failure is the latched error of a log.
type failure struct{ err error }

// closing makes Close run once and answer every caller the same.
type closing struct {
	once sync.Once
	err  error
}

// Open recovers the log in o.Dir and starts it. It changes nothing on disk before
// everything it found has been checked; damage it must not repair is an error that
// matches model.ErrCorrupt and names file and position (decision table in the
// package comment).
func Open(o Options) (*Log, error) {
	if o.SegmentBytes < 0 || o.ReserveBytes < 0 {
		return nil, fmt.Errorf("%w: WAL segment bytes %d, reserve bytes %d: neither may be negative", model.ErrInvalid, o.SegmentBytes, o.ReserveBytes)
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = segmentBytesDefault
	}
	o.Dir = path.Clean(o.Dir)
	if err := disk.MkdirDurable(o.FS, o.Dir); err != nil {
		return nil, fmt.Errorf("ingress WAL: %w", err)
	}
	l := &Log{
		opt:     o,
		catalog: catalog{fs: o.FS, dir: o.Dir},
		zeros:   make([]byte, zeroStep),
		signals: signals{committer: make(chan struct{}, 1), keeper: make(chan struct{}, 1), stop: make(chan struct{})},
	}
	l.stage.init()
	l.collectors = l.metrics()
	if err := l.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("ingress WAL: %w", err), l.release())
	}
	if err := l.register(); err != nil {
		return nil, errors.Join(fmt.Errorf("ingress WAL: %w", err), l.release())
	}
	l.readSpace()
	l.running.Add(2)
	go l.commitLoop()
	go l.keepLoop()
	return l, nil
}

// Append writes one record and returns once it is durable. After the record was
// staged the context no longer matters: the caller gets the true outcome. Errors:
// model.ErrTooLarge, model.ErrDiskReserve, model.ErrWALFailed, model.ErrShuttingDown,
// the context's, or that of creating the next segment, after which the next append
// tries again.
func (l *Log) Append(ctx context.Context, e Entry) error {
	one := [1]Entry{e}
	return l.append(ctx, one[:])
}

// AppendMany writes records under consecutive seqs and returns once all are
// durable. Nothing is staged unless all can be. On an error the records are not
// durable as a whole; a prefix of them may be, and will be read.
func (l *Log) AppendMany(ctx context.Context, es []Entry) error {
	if len(es) == 0 {
		return nil
	}
	return l.append(ctx, es)
}

func (l *Log) append(ctx context.Context, es []Entry) error {
	total := 0
	for _, e := range es {
		n := e.Size()
		if n < 1 {
			return fmt.Errorf("%w: WAL record of %d bytes", model.ErrInvalid, n)
		}
		if n > BodyMax {
			return fmt.Errorf("%w: WAL record of %d bytes, at most %d", model.ErrTooLarge, n, BodyMax)
		}
		total += frameHeaderSize + n
	}
	if total > stagedMax {
		return fmt.Errorf("%w: %d bytes of WAL records at once, at most %d", model.ErrTooLarge, total, stagedMax)
	}
	if l.space.low.Load() {
		return model.ErrDiskReserve
	}
	b, err := l.stage.add(ctx, es, total, l.failed.Load)
	if err != nil {
		return err
	}
	wake(l.signals.committer)
	<-b.done
	return b.err
}

// Next is the first seq that is not durable yet.
func (l *Log) Next() uint64 { return l.next.Load() }

// Failed is nil until a write or sync of the log failed. The error matches
// model.ErrWALFailed, is what every append answers from then on, and stays until
// the process restarts.
func (l *Log) Failed() error {
	if f := l.failed.Load(); f != nil {
		return f.err
	}
	return nil
}

// latch makes err final for the log and returns what appends answer.
func (l *Log) latch(err error) error {
	f := &failure{fmt.Errorf("%w: %w", model.ErrWALFailed, err)}
	if l.failed.CompareAndSwap(nil, f) {
		l.opt.Logger.Error("ingress WAL failed; appends are refused until restart", "dir", l.opt.Dir, "next_seq", l.next.Load(), "err", err)
	}
	return l.Failed()
}

// Close finishes what is staged, stores and syncs the checkpoint, starts an empty
// segment so that later damage to the last records is told apart from a crash, and
// removes the spares. It is idempotent.
func (l *Log) Close() error {
	l.closing.once.Do(func() { l.closing.err = l.close() })
	return l.closing.err
}

func (l *Log) close() error {
	l.stage.close()
	wake(l.signals.committer)
	close(l.signals.stop)
	l.running.Wait()

	err := l.finalCheckpoint()
	if l.Failed() == nil && l.tail.pos > headerSize {
		if rerr := l.roll(); rerr != nil {
			l.opt.Logger.Warn("ingress WAL: could not seal the last segment", "dir", l.opt.Dir, "err", rerr)
		}
	}
	err = errors.Join(err, l.compact(), l.spares.clear(&l.catalog))
	if err != nil {
		l.opt.Logger.Error("produce dispatcher: final checkpoint", "err", err)
	}
	l.unregister()
	return errors.Join(err, l.release())
}

// release closes what the log holds open.
func (l *Log) release() error {
	err := l.check.close()
	if l.tail.seg != nil {
		err = errors.Join(err, l.catalog.detach(l.tail.seg))
		l.tail.seg = nil
	}
	return err
}

// wake leaves a token in a channel of capacity 1. Whoever takes it looks at the
// shared state afterwards, so state set before wake is never missed: either the
// token is new, or one is still there and the look is still to come.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
