package partition

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/lease"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/position"
)

// Options say what a partition is made of. Log is handed to commitlog.Open as it is;
// its Topic, Partition, Dir, FS, Clock and Logger serve the queue state too.
type Options struct {
	Log         commitlog.Options
	Incarnation model.Incarnation // life of the topic the directory belongs to; "" = by name
	Caps        lease.Caps
	Committer   *position.Committer
	Counters    *Counters
	Buffers     *Buffers // shared by all partitions of the process

	// Gate is asked once per commit cycle, under the produce lock: nil while this
	// node owns the partition and its log still belongs to the live topic, whose
	// incarnation it answers.
	Gate func() (live model.Incarnation, err error)
	// Wake is called, with no lock held that a reserve needs, whenever something may
	// have become available to consumers. It must not block.
	Wake func()
	// Due asks for a call of Expire at the given time of Now, or earlier. It is called
	// for the first lease after Expire answered that none is out, and for each freeze.
	// It must not block.
	Due func(p *Partition, at int64)
	// Now is the monotonic time in nanoseconds that leases are judged by.
	Now func() int64
}

// Partition is one owned partition. Its methods are safe for concurrent use.
type Partition struct {
	opts     Options
	key      model.PartitionKey
	clk      clock.Clock
	logger   *slog.Logger
	counters *Counters
	log      *commitlog.Log

	produce  sync.Mutex // the produce lock; see the package comment
	combiner combiner
	scratch  []commitlog.Record // guarded by produce

	freeze atomic.Int64 // time of Now until which commits are refused; 0 = never frozen

	build sync.Mutex // serialises building the shard and closing; taken before the shard lock
	shard atomic.Pointer[shard]
	shut  bool // guarded by build: closed
	ended bool // guarded by build: see EndQueue
}

// Open opens the partition's log; it creates nothing and reads no consumer file.
func Open(o Options) (*Partition, error) {
	log, err := commitlog.Open(o.Log)
	if err != nil {
		return nil, fmt.Errorf("open %s/%d: %w", o.Log.Topic, o.Log.Partition, err)
	}
	p := &Partition{
		opts:     o,
		key:      model.PartitionKey{Topic: o.Log.Topic, Partition: o.Log.Partition},
		clk:      o.Log.Clock,
		logger:   o.Log.Logger,
		counters: o.Counters,
		log:      log,
	}
	p.combiner = combiner{produce: &p.produce, buffers: o.Buffers, cycle: p.cycle}
	log.SetWakeNotifier(o.Wake)
	return p, nil
}

// Key names the partition.
func (p *Partition) Key() model.PartitionKey { return p.key }

// Log is the partition's log, for readers that keep their own place in it. Committing
// through it would bypass the produce lock.
func (p *Partition) Log() *commitlog.Log { return p.log }

// SetCaps applies changed caps to the live lease table. No lease is revoked.
func (p *Partition) SetCaps(c lease.Caps) {
	p.build.Lock()
	p.opts.Caps = c
	s := p.shard.Load()
	p.build.Unlock()
	if s != nil {
		s.mu.Lock()
		ev := s.table.SetCaps(c)
		s.mu.Unlock()
		p.after(s, ev)
	}
}

// SetMaxAge applies a changed retention to the open log; 0 keeps forever.
func (p *Partition) SetMaxAge(d time.Duration) { p.log.SetMaxAge(d) }

// Sweep runs one retention pass over the log. The produce lock is not needed: the log
// has its own write lock, and idle rotation only seals what is fully committed.
func (p *Partition) Sweep(now time.Time) (commitlog.Swept, error) { return p.log.Sweep(now) }

// Freeze refuses commits and new reservations for ttl, or until Thaw, and answers the
// high watermark that nothing can pass meanwhile: the freeze is armed first and the
// watermark read under the produce lock, so a commit that passed the gate before is
// counted (spec/storage-and-produce section 18.3). Acks, extends and nacks go on.
func (p *Partition) Freeze(ttl time.Duration) (hwm int64, err error) {
	s, err := p.queue()
	if err != nil {
		return 0, err
	}
	now := p.opts.Now()
	p.freeze.Store(now + int64(ttl))
	s.mu.Lock()
	s.table.Freeze(now, ttl)
	s.mu.Unlock()
	p.opts.Due(p, now+int64(ttl))
	p.produce.Lock()
	defer p.produce.Unlock()
	return p.log.HighWatermark(), nil
}

// Thaw ends a freeze.
func (p *Partition) Thaw() {
	p.freeze.Store(0)
	if s := p.shard.Load(); s != nil {
		s.mu.Lock()
		ev := s.table.Thaw()
		s.mu.Unlock()
		p.after(s, ev)
	}
}

func (p *Partition) frozen() bool {
	until := p.freeze.Load()
	return until != 0 && p.opts.Now() < until
}

// Close ends a partition between two commits: it waits for the running cycle, drops
// the queue state (what the committer has not written by now is redelivered later)
// and closes the log, which records the high watermark. Later calls answer
// ErrLogClosed. Close is idempotent.
func (p *Partition) Close() error {
	p.produce.Lock()
	defer p.produce.Unlock()
	return p.CloseNow()
}

// CloseNow is Close without waiting for the produce lock: for the purge and the
// retirement of a dead incarnation, the only two that may cut a commit short
// (spec/storage-and-produce section 11).
func (p *Partition) CloseNow() error {
	p.build.Lock()
	defer p.build.Unlock()
	if p.shut {
		return nil
	}
	p.shut = true
	if s := p.shard.Load(); s != nil {
		s.drop()
	}
	if err := p.log.Close(); err != nil {
		return fmt.Errorf("close %s: %w", p.key, err)
	}
	return nil
}
