package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/narad-mq/narad/internal/lease"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/partition"
)

// ScanBytesMax bounds the keys and payloads one scan reserves; the record that crosses
// it is kept (spec/consume section 2.1).
const ScanBytesMax = 4 << 20

// ConsumeRequest asks for records with a lease each.
type ConsumeRequest struct {
	Topic     string
	Partition int           // -1 = any this node owns
	Max       int           // 1 to 100
	Wait      time.Duration // how long to wait for the first record; 0 = not at all
}

// scan is one consume in progress.
type scan struct {
	b      *Broker
	req    ConsumeRequest
	budget partition.Budget
	out    []model.Delivery
}

// Consume leases and returns up to Max records; nil and no error mean that nothing
// became available within Wait, or that the node is stopping. When ctx ends, what was
// being handed over is given back and the context's error returned. Errors:
// ErrTopicNotFound, ErrInvalid for a partition out of range, ErrNotOwner for a pinned
// partition of another node, ErrUnavailable when a log kept closing, and I/O errors.
func (b *Broker) Consume(ctx context.Context, req ConsumeRequest) ([]model.Delivery, error) {
	if req.Max < 1 || req.Max > model.ScanMessagesMax || req.Partition < anyPartition {
		return nil, fmt.Errorf("%w: consume of %d messages from partition %d", model.ErrInvalid, req.Max, req.Partition)
	}
	s := scan{b: b, req: req, budget: partition.Budget{Messages: req.Max, Bytes: ScanBytesMax}}
	began := b.opts.Clock.Now()
	t, err := s.consume(ctx)
	if t != nil && !t.gone.Load() {
		t.waits.observe(b.opts.Clock.Now().Sub(began), len(s.out), req.Wait, err)
	}
	return s.out, err
}

// consume scans, parks, and starts over while the topic's logs or the topic itself are
// replaced under it. The topic it answers is where the request is counted.
func (s *scan) consume(ctx context.Context) (*topic, error) {
	var until time.Time // the end of the wait, set when it starts
	for tries := 0; ; {
		t, v, err := s.b.lookup(s.req.Topic)
		if err != nil {
			return nil, err
		}
		seq := t.seq.Load()
		err = s.local(t, v)
		if errors.Is(err, model.ErrLogClosed) {
			if tries++; tries < resolveTriesMax {
				continue
			}
			return t, fmt.Errorf("%w: a log of %s keeps closing", model.ErrUnavailable, s.req.Topic)
		}
		if err != nil || len(s.out) > 0 || s.req.Wait <= 0 {
			return t, err
		}
		now := s.b.opts.Clock.Now()
		if until.IsZero() {
			until = now.Add(s.req.Wait)
		}
		again, err := s.park(ctx, t, seq, until.Sub(now))
		if !again {
			return t, err
		}
	}
}

// local is one pass over the local partitions, without waiting. It stays on a partition
// until that is dry, and opens closed ones only when it reaches them, so one that cannot
// be opened never hides a record before it.
func (s *scan) local(t *topic, v *model.TopicView) error {
	if s.req.Partition != anyPartition {
		return s.from(t, v, s.req.Partition)
	}
	n := len(v.Owners)
	start := t.nextStart(n)
	for i := range n {
		p := (start + i) % n
		if v.Owners[p] != s.b.opts.Node {
			continue
		}
		if err := s.from(t, v, p); err != nil {
			if len(s.out) > 0 {
				return nil
			}
			return err
		}
		if s.budget.Messages <= 0 || s.budget.Bytes <= 0 {
			return nil
		}
	}
	return nil
}

func (s *scan) from(t *topic, v *model.TopicView, p int) error {
	pt, err := s.b.get(t, v, p, false)
	if errors.Is(err, errNotOpened) {
		return nil
	}
	if err != nil {
		return err
	}
	s.out, err = pt.Take(s.out, &s.budget)
	return err
}

// park waits for the pump. again means: look once more, from the start, with what is
// left of the wait.
func (s *scan) park(ctx context.Context, t *topic, seq uint64, wait time.Duration) (again bool, err error) {
	if wait <= 0 {
		return false, ctx.Err()
	}
	w := s.b.newWaiter(s.req.Partition, s.req.Max)
	joined, end := t.waiters.join(w)
	if !joined {
		s.b.freeWaiter(w)
		return s.dismissed(end)
	}
	if t.seq.Load() != seq {
		s.b.pump.kick(t) // something became available between the scan and the join
	}
	if s.b.released.Load() {
		t.waiters.close(nil) // the entry may be younger than ReleaseWaiters
	}
	timer := s.b.opts.Clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.wake:
	case <-timer.C():
		if t.waiters.leave(w) {
			s.b.freeWaiter(w)
			return false, nil
		}
		<-w.wake
	case <-ctx.Done():
		if !t.waiters.leave(w) {
			<-w.wake
		}
	}
	defer s.b.freeWaiter(w)
	if ctx.Err() != nil {
		if w.part != nil {
			w.part.Unreserve(w.leases)
		}
		return false, ctx.Err()
	}
	if w.part == nil {
		return s.dismissed(w.end)
	}
	return s.claim(t, w.part, w.leases)
}

// dismissed is what a consumer does that was sent away: nothing more when the node is
// stopping; when its topic went, look whether another life took the name.
func (s *scan) dismissed(end error) (again bool, err error) {
	return end != nil, nil
}

// claim reads what the pump reserved and tops it up.
func (s *scan) claim(t *topic, pt *partition.Partition, leases []lease.Lease) (again bool, err error) {
	s.out, err = pt.Fetch(s.out, leases, &s.budget)
	if errors.Is(err, model.ErrLogClosed) || err == nil && len(s.out) == 0 {
		return true, nil // closed, or every record turned out gone or unreadable
	}
	if err != nil {
		return false, err
	}
	if s.budget.Messages > 0 && s.budget.Bytes > 0 {
		if v := t.view.Load(); v != nil {
			_ = s.local(t, v) // a bonus: what was delivered stands, whatever this meets
		}
	}
	return false, nil
}

// Read returns the record at an offset without a lease; false at or past the high
// watermark. Errors: as for Consume, and AgedOutError or ErrUnreadable for a record that
// is gone (spec/consume section 8).
func (b *Broker) Read(ctx context.Context, name string, p int, offset int64) (m model.Message, ok bool, err error) {
	if offset < 0 {
		return m, false, fmt.Errorf("%w: offset %d", model.ErrInvalid, offset)
	}
	for range resolveTriesMax {
		if err := ctx.Err(); err != nil {
			return m, false, err
		}
		t, v, err := b.lookup(name)
		if err != nil {
			return m, false, err
		}
		pt, err := b.get(t, v, p, false)
		if errors.Is(err, errNotOpened) {
			return m, false, nil
		}
		if err == nil {
			m, ok, err = pt.Read(offset)
		}
		if !errors.Is(err, model.ErrLogClosed) {
			return m, ok, err
		}
	}
	return m, false, fmt.Errorf("%w: log of %s/%d keeps closing", model.ErrUnavailable, name, p)
}
