package partition

import (
	"errors"
	"slices"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/lease"
	"github.com/narad-mq/narad/internal/model"
)

// takeRoundsMax bounds how often one Take reserves again after records were skipped.
// When it is reached with records left, consumers are woken to go on.
const takeRoundsMax = 64

// Budget is what one scan may still reserve: messages, and bytes of keys and payloads.
// The record that crosses the byte bound is kept, and the first record is always taken
// (spec/consume section 2.1).
type Budget struct {
	Messages int
	Bytes    int
}

func (b *Budget) spent() bool { return b.Messages <= 0 || b.Bytes <= 0 }

// Reserve leases up to limit records and appends them to dst; nothing appended means
// nothing is available now. It does no I/O once the queue state was built.
func (p *Partition) Reserve(dst []lease.Lease, limit int) ([]lease.Lease, error) {
	s, err := p.queue()
	if err != nil {
		return dst, err
	}
	now, had := p.opts.Now(), len(dst)
	s.mu.Lock()
	if s.gone {
		s.mu.Unlock()
		return dst, model.ErrLogClosed
	}
	dst, _ = s.table.ReserveRun(dst, now, p.log.HighWatermark(), limit)
	tell := len(dst) > had && !s.armed
	s.armed = s.armed || tell
	s.mu.Unlock()
	if tell {
		p.opts.Due(p, dst[had].Expires)
	}
	return dst, nil
}

// Available is how many records Reserve could lease now, leases that are due but not yet
// purged aside. It does no I/O once the queue state was built.
func (p *Partition) Available() (int64, error) {
	s, err := p.queue()
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return 0, nil
	}
	return s.table.Available(p.log.HighWatermark()), nil
}

// Unreserve gives reservations back that nobody will read; they do not count as
// deliveries.
func (p *Partition) Unreserve(leases []lease.Lease) {
	s := p.shard.Load()
	if s == nil || len(leases) == 0 {
		return
	}
	var all lease.Event
	s.mu.Lock()
	for _, l := range leases {
		if ev, ok := s.table.Release(l.Offset, l.Nonce); ok {
			all.Dirty, all.Wake = all.Dirty || ev.Dirty, all.Wake || ev.Wake
		}
	}
	s.mu.Unlock()
	p.after(s, all)
}

// Take reserves and reads up to the budget and appends the deliveries to dst. A
// partition with nothing to hand out answers dst as it was. After an error the
// reservations that were not delivered have been given back; deliveries appended
// before it are good and the error is only returned when there are none.
func (p *Partition) Take(dst []model.Delivery, b *Budget) ([]model.Delivery, error) {
	sc := p.opts.Buffers.scratch()
	defer p.opts.Buffers.putScratch(sc)
	had := len(dst)
	for range takeRoundsMax {
		var err error
		sc.leases, err = p.Reserve(sc.leases[:0], b.Messages)
		if err == nil && len(sc.leases) == 0 {
			return dst, nil
		}
		before := len(dst)
		if err == nil {
			dst, err = p.fetch(dst, sc, sc.leases, b)
		}
		if err != nil {
			if len(dst) > had {
				return dst, nil
			}
			return dst, err
		}
		if b.spent() || len(dst)-before == len(sc.leases) {
			return dst, nil
		}
	}
	p.opts.Wake()
	return dst, nil
}

// Fetch reads records reserved by Reserve, under the rules of Take.
func (p *Partition) Fetch(dst []model.Delivery, leases []lease.Lease, b *Budget) ([]model.Delivery, error) {
	sc := p.opts.Buffers.scratch()
	defer p.opts.Buffers.putScratch(sc)
	had := len(dst)
	dst, err := p.fetch(dst, sc, leases, b)
	if len(dst) > had {
		return dst, nil
	}
	return dst, err
}

// fetch turns leases, ascending by offset, into deliveries. Leases whose record is gone
// or unreadable are resolved on the way; on an error, or when the budget is spent, the
// rest is given back.
func (p *Partition) fetch(dst []model.Delivery, sc *scratch, leases []lease.Lease, b *Budget) ([]model.Delivery, error) {
	had := len(dst)
	var err error
	for len(leases) > 0 && !b.spent() {
		sc.stored, err = p.log.ReadRun(sc.stored[:0], leases[0].Offset, consecutive(leases), b.Bytes)
		if err != nil {
			if leases, err = p.resolve(leases, err); err != nil {
				break
			}
			continue
		}
		dst = slices.Grow(dst, len(sc.stored))
		for i := range sc.stored {
			dst = append(dst, p.delivery(&sc.stored[i], &leases[i]))
			b.Messages--
			b.Bytes -= len(sc.stored[i].Key) + len(sc.stored[i].Payload)
		}
		leases = leases[len(sc.stored):]
	}
	p.Unreserve(leases)
	p.countConsumed(dst[had:])
	return dst, err
}

func (p *Partition) countConsumed(ds []model.Delivery) {
	if len(ds) == 0 {
		return
	}
	bytes := 0
	for i := range ds {
		bytes += len(ds[i].Payload)
	}
	p.counters.MessagesConsumed.Add(float64(len(ds)))
	p.counters.BytesConsumed.Add(float64(bytes))
}

func (p *Partition) delivery(r *commitlog.Stored, l *lease.Lease) model.Delivery {
	return model.Delivery{
		Message: p.message(r),
		Handle:  model.Handle{Partition: p.key.Partition, Offset: l.Offset, Nonce: l.Nonce},
		Count:   l.Count,
	}
}

func (p *Partition) message(r *commitlog.Stored) model.Message {
	return model.Message{
		Topic: p.key.Topic, Partition: p.key.Partition, Offset: r.Offset,
		Key: r.Key, Payload: r.Payload, CommittedAt: r.CommittedAt,
	}
}

// consecutive counts the leases at the head whose offsets follow each other.
func consecutive(leases []lease.Lease) int {
	n := 1
	for n < len(leases) && leases[n].Offset == leases[0].Offset+int64(n) {
		n++
	}
	return n
}

// resolve deals with a failed read of leases[0]: it answers the leases still worth
// reading, or the error that ends the fetch (spec/consume section 5.2).
func (p *Partition) resolve(leases []lease.Lease, err error) ([]lease.Lease, error) {
	s := p.shard.Load()
	var aged *model.AgedOutError
	switch {
	case errors.As(err, &aged):
		p.jump(s, aged.Oldest)
		for len(leases) > 0 && leases[0].Offset < aged.Oldest {
			leases = leases[1:]
		}
		return leases, nil
	case errors.Is(err, model.ErrUnreadable):
		end := leases[0].Offset + 1
		var damage *commitlog.DamageError
		if errors.As(err, &damage) {
			end = max(end, min(damage.Next, p.log.HighWatermark())) // all of the gap at once
		}
		mine := 0
		for mine < len(leases) && leases[mine].Offset < end {
			mine++
		}
		p.skip(s, leases[:mine], end, err)
		return leases[mine:], nil
	}
	return leases, err
}

// jump moves the frontier over what retention removed, in one step.
func (p *Partition) jump(s *shard, oldest int64) {
	s.mu.Lock()
	if s.gone {
		s.mu.Unlock()
		return
	}
	from, moved, ev := s.table.Jump(oldest)
	s.mu.Unlock()
	if moved {
		p.logger.Warn("consumer frontier fell behind retention; skipped to oldest retained offset",
			"topic", p.key.Topic, "partition", p.key.Partition, "from", from, "to", oldest)
	}
	p.after(s, ev)
}

// skip gives up records whose bytes are damaged for good: the leased ones, and all
// behind the first of them and below end that nobody holds. A stretch of any length is
// one step and one line.
func (p *Partition) skip(s *shard, leases []lease.Lease, end int64, cause error) {
	var all lease.Event
	skipped := int64(0)
	s.mu.Lock()
	if !s.gone {
		for _, l := range leases {
			if ev, ok := s.table.Corrupt(l.Offset, l.Nonce); ok {
				skipped++
				all.Dirty, all.Wake = all.Dirty || ev.Dirty, all.Wake || ev.Wake
			}
		}
		n, ev := s.table.CorruptRange(leases[0].Offset, end)
		skipped += n
		all.Dirty, all.Wake = all.Dirty || ev.Dirty, all.Wake || ev.Wake
	}
	s.mu.Unlock()
	if skipped == 0 {
		return
	}
	p.counters.CorruptSkipped.Add(float64(skipped))
	p.logger.Warn("skipped permanently-unreadable record", "topic", p.key.Topic, "partition", p.key.Partition,
		"offset", leases[0].Offset, "records", skipped, "err", cause)
	p.after(s, all)
}

// Read is a replay read: no lease, no effect on queue state. ok is false at or past
// the high watermark (spec/consume section 8).
func (p *Partition) Read(offset int64) (m model.Message, ok bool, err error) {
	if offset >= p.log.HighWatermark() {
		return m, false, nil
	}
	r, err := p.log.Read(offset)
	if err != nil {
		return m, false, err
	}
	return p.message(&r), true, nil
}
