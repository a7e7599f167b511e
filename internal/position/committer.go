package position

import (
	"container/list"
	"errors"
	"hash/crc32"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

// Cadences and bounds (spec/consume sections 10 and 20).
const (
	TickMax       = 100 * time.Millisecond // T: acks reach the page cache within it
	LevelInterval = 30 * time.Second       // how long consumer.offset may trail
	FilesMax      = 4096                   // held descriptors, whatever the process may open

	intervalDefault = time.Second // D, when Options has none
	logPeriod       = time.Minute // one line per condition
	closeErrorsMax  = 8           // failures of Close that are told apart
)

// Options configure a Committer.
type Options struct {
	FS       disk.FS
	Clock    clock.Clock
	Logger   *slog.Logger
	Registry prometheus.Registerer // nil = unregistered
	// Interval is D: how long a written position may wait for its sync. 0 = 1 s.
	Interval time.Duration
	// MaxFiles bounds the descriptors held open; a quarter of the soft
	// RLIMIT_NOFILE is right. 0, or anything above it, = FilesMax.
	MaxFiles int
}

// Source is the live state of a partition.
type Source interface {
	// Position is the state as of now, its runs in dst[:0]; ok is false when the
	// partition is gone. It is called on the committer's goroutine and may take
	// the partition's lock.
	Position(dst []model.Run) (pos model.Position, ok bool)
}

// Committer writes the positions of a node's partitions: to the page cache every
// tick, durably every interval. It owns one goroutine, which holds no timer while
// there is nothing to do.
type Committer struct {
	opts    Options
	tick    time.Duration // T
	turns   int64         // ticks in an interval; partitions take turns at their sync
	epoch   time.Time     // tick numbers count from here
	limit   *telemetry.Limiter
	metrics metrics

	// mu guards shared. A Tracked.mu may be held when it is taken, never the
	// other way round.
	mu     sync.Mutex
	shared shared

	work work // of the goroutine

	wake, stop, done chan struct{}
	closeOnce        sync.Once
	closeErr         error // readable once done is closed
}

// shared is what Dirty and Forget touch from other goroutines.
type shared struct {
	closed bool
	queue  []*Tracked        // dirty, each at most once
	held   map[*Tracked]bool // those with an open descriptor
	idle   *list.List        // held and durable, least recently written first
}

// work is what the committer's goroutine has under way; nobody else looks at it.
type work struct {
	queue    []*Tracked // taken from shared, and its next buffer
	unsynced []*Tracked // window written, or to be written again, since the last sync
	levels   []*Tracked // consumer.offset trails, longest first
	runs     []model.Run
	slot     [slotSize]byte
	primed   bool // this tick primed a partition
	handled  int  // partitions this tick wrote, synced or levelled
}

type metrics struct {
	syncs    prometheus.Histogram
	stranded prometheus.Gauge
}

// NewCommitter starts a committer. Close it after the last ack.
func NewCommitter(opts Options) *Committer {
	c := newCommitter(opts)
	go c.run()
	return c
}

// newCommitter is a committer whose goroutine does not run: step it by hand.
func newCommitter(opts Options) *Committer {
	if opts.Interval <= 0 {
		opts.Interval = intervalDefault
	}
	if opts.MaxFiles <= 0 || opts.MaxFiles > FilesMax {
		opts.MaxFiles = FilesMax
	}
	c := &Committer{
		opts:  opts,
		tick:  min(TickMax, opts.Interval),
		epoch: opts.Clock.Now(),
		limit: telemetry.NewLimiter(opts.Clock, logPeriod),
		metrics: metrics{
			syncs: prometheus.NewHistogram(prometheus.HistogramOpts{
				Name:    "narad_consumer_offset_sync_duration_seconds",
				Help:    "Duration of one sync of a partition's consumer position.",
				Buckets: telemetry.BucketsDisk,
			}),
			stranded: prometheus.NewGauge(prometheus.GaugeOpts{
				Name: "narad_consumer_offset_stranded_partitions",
				Help: "Partitions whose directory vanished under their consumer position: their acks are not persisted.",
			}),
		},
		wake: make(chan struct{}, 1),
		stop: make(chan struct{}),
		done: make(chan struct{}),
	}
	c.turns = max(1, int64(opts.Interval/c.tick))
	c.shared.held = map[*Tracked]bool{}
	c.shared.idle = list.New()
	if opts.Registry != nil {
		opts.Registry.MustRegister(c.metrics.syncs, c.metrics.stranded)
	}
	return c
}

// Track takes the partition k into care: dir is its directory, inc the life of the
// topic, src its live state, which continues what Load read there. Nothing is
// written, and no file is opened, before the first Dirty. See the package comment
// for the fence that Load and Track stand under.
func (c *Committer) Track(k model.PartitionKey, dir string, inc model.Incarnation, src Source) *Tracked {
	t := &Tracked{c: c, key: k, dir: dir, inc: inc, src: src}
	t.turn = (int64(crc32.ChecksumIEEE([]byte(k.Topic))) + int64(k.Partition)) % c.turns
	if info, err := c.opts.FS.Stat(dir); err == nil {
		t.file.dirID = info.ID // a directory that appears there later is not ours
	}
	return t
}

// Close writes every dirty partition, syncs what is not durable and levels every
// consumer.offset, then gives all descriptors back. It is idempotent; acks made
// while it runs may be missed, so end them first. Its error names the partitions
// that are behind on disk.
func (c *Committer) Close() error {
	c.closeOnce.Do(func() { close(c.stop) })
	<-c.done
	return c.closeErr
}

// run is the goroutine: it sleeps without a timer until the first Dirty, then
// ticks until all is durable, then wakes once more per partition to level it.
func (c *Committer) run() {
	defer close(c.done)
	timer := c.opts.Clock.NewTimer(c.tick)
	timer.Stop()
	defer timer.Stop()
	var due time.Time // of the armed timer; zero = none
	arm := func(now time.Time, wait time.Duration) {
		due = now.Add(wait)
		timer.Reset(wait)
	}
	for {
		select {
		case <-c.stop:
			c.closeErr = c.finish()
			return
		case <-c.wake:
			if now := c.opts.Clock.Now(); due.IsZero() || due.Sub(now) > c.tick {
				arm(now, c.tick)
			}
		case <-timer.C():
			due = time.Time{}
			if wait, more := c.step(); more {
				arm(c.opts.Clock.Now(), wait)
			}
		}
	}
}

// dirty queues t, which was clean.
func (c *Committer) dirty(t *Tracked) {
	c.mu.Lock()
	first := len(c.shared.queue) == 0
	if !c.shared.closed {
		c.shared.queue = append(c.shared.queue, t)
	}
	c.mu.Unlock()
	if first {
		select {
		case c.wake <- struct{}{}:
		default: // one is pending already
		}
	}
}

// takeQueue moves the queue into work.queue, and its buffer back.
func (c *Committer) takeQueue(closing bool) {
	clear(c.work.queue)
	c.mu.Lock()
	c.work.queue, c.shared.queue = c.shared.queue, c.work.queue[:0]
	c.shared.closed = closing
	c.mu.Unlock()
}

// room makes place for one more held descriptor, if need be by closing the least
// recently written one whose window is durable; false means there is none. The
// caller is the committer's goroutine, the only one that ever holds two
// Tracked.mu, so the order in which it takes them cannot matter.
func (c *Committer) room() bool {
	for {
		c.mu.Lock()
		full := len(c.shared.held) >= c.opts.MaxFiles
		oldest := c.shared.idle.Front()
		c.mu.Unlock()
		if !full {
			return true
		}
		if oldest == nil {
			return false
		}
		victim := oldest.Value.(*Tracked)
		victim.mu.Lock()
		victim.release()
		victim.mu.Unlock()
	}
}

// releaseAll closes every held descriptor.
func (c *Committer) releaseAll() {
	c.mu.Lock()
	held := make([]*Tracked, 0, len(c.shared.held))
	for t := range c.shared.held {
		held = append(held, t)
	}
	c.mu.Unlock()
	for _, t := range held {
		t.mu.Lock()
		t.release()
		t.mu.Unlock()
	}
}

// finish is the last pass, made by Close.
func (c *Committer) finish() error {
	var errs []error
	failed := func(t *Tracked, err error) {
		if err != nil && !errors.Is(err, errGone) && len(errs) < closeErrorsMax {
			errs = append(errs, t.failure(err))
		}
	}
	c.takeQueue(true)
	for _, t := range c.work.queue {
		failed(t, t.write())
	}
	for _, t := range c.work.unsynced {
		failed(t, t.sync())
	}
	for _, t := range c.work.levels {
		failed(t, t.level())
	}
	c.releaseAll()
	c.work = work{}
	return errors.Join(errs...)
}
