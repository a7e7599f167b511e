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
	Elsewhere Elsewhere     // other nodes that may have records; nil = do not look there
}

// Elsewhere is the rest of the cluster for a consume that is not pinned: package router.
// What it answers is leased to the consumer; when ctx ends meanwhile it gives back what it
// got. It fails by answering nothing.
type Elsewhere interface {
	// Probe asks the other owners of a topic for up to limit records, without waiting.
	Probe(ctx context.Context, topic string, limit int) []model.Delivery
	// Claim asks the owner that announced a record.
	Claim(ctx context.Context, topic, owner string, limit int) []model.Delivery
	// Park says that a consumer now waits for the topic until then, in the queue or on its
	// way between the owners; Leave that it no longer does.
	Park(topic string, until time.Time)
	Leave(topic string)
}

// Claim is what a consume of another node says about the announcement it answers.
type Claim struct {
	Made bool   // it answers one
	Node string // the claimer; "" = a release that does not say
}

// scan is one consume in progress.
type scan struct {
	b      *Broker
	req    ConsumeRequest
	budget partition.Budget
	out    []model.Delivery

	began  time.Time
	asked  bool // the other owners were probed
	parked bool // Elsewhere knows that it waits
	back   bool // it returns to the queue from another owner
}

// Consume leases and returns up to Max records; nil and no error mean that nothing
// became available within Wait, or that the node is stopping. When ctx ends, what was
// being handed over is given back and the context's error returned. Errors:
// ErrTopicNotFound, ErrInvalid for a partition out of range, ErrNotOwner for a pinned
// partition of another node, ErrUnavailable when a log kept closing, and I/O errors.
func (b *Broker) Consume(ctx context.Context, req ConsumeRequest) ([]model.Delivery, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	s := scan{b: b, req: req, began: b.opts.Clock.Now()}
	t, err := s.consume(ctx)
	s.leave()
	if t != nil && !t.gone.Load() {
		t.waits.observe(b.opts.Clock.Now().Sub(s.began), len(s.out), req.Wait, err)
	}
	return s.out, err
}

// ConsumeForPeer is Consume on behalf of another node, where its consumer is counted. A
// claim ends the hold of the announcement it answers, whatever it finds, once it has taken
// what it can.
func (b *Broker) ConsumeForPeer(ctx context.Context, req ConsumeRequest, c Claim) ([]model.Delivery, error) {
	if c.Made {
		defer func() {
			if t := b.entry(req.Topic); t != nil {
				b.endHold(t, c.Node)
			}
		}()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := req.check(); err != nil {
		return nil, err
	}
	s := scan{b: b, req: req, began: b.opts.Clock.Now()}
	_, err := s.consume(ctx)
	s.leave()
	return s.out, err
}

// CountConsume counts a consume of a client of this node that another one served, like
// Consume counts its own.
func (b *Broker) CountConsume(topic string, took time.Duration, records int, wait time.Duration, err error) {
	if t, _, found := b.lookup(topic); found == nil {
		t.waits.observe(took, records, wait, err)
	}
}

func (r *ConsumeRequest) check() error {
	if r.Max < 1 || r.Max > model.ScanMessagesMax || r.Partition < anyPartition {
		return fmt.Errorf("%w: consume of %d messages from partition %d", model.ErrInvalid, r.Max, r.Partition)
	}
	return nil
}

// consume scans, asks elsewhere, parks, and starts over while the topic's logs or the
// topic itself are replaced under it. The topic it answers is where the request is
// counted.
func (s *scan) consume(ctx context.Context) (*topic, error) {
	s.budget = partition.Budget{Messages: s.req.Max, Bytes: ScanBytesMax}
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
		if err != nil || len(s.out) > 0 {
			return t, err
		}
		if s.req.Elsewhere != nil && !s.asked {
			s.asked = true
			if s.out = s.req.Elsewhere.Probe(ctx, t.name, s.req.Max); len(s.out) > 0 {
				return t, nil
			}
			if ctx.Err() != nil {
				return t, ctx.Err()
			}
		}
		if s.req.Wait <= 0 {
			return t, nil
		}
		again, err := s.park(ctx, t, seq, s.began.Add(s.req.Wait))
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

// park waits for the pump, or for word of a record elsewhere. again means: look once
// more, from the start, with what is left of the wait.
func (s *scan) park(ctx context.Context, t *topic, seq uint64, until time.Time) (again bool, err error) {
	wait := until.Sub(s.b.opts.Clock.Now())
	if wait <= 0 {
		return false, ctx.Err()
	}
	w := s.b.newWaiter(s.req.Partition, s.req.Max, s.req.Elsewhere != nil)
	joined, end := t.waiters.join(w, s.back)
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
	if w.roams && !s.parked {
		s.parked = true
		s.req.Elsewhere.Park(t.name, until) // in the queue first, so that word finds it
	}
	timer := s.b.opts.Clock.NewTimer(wait)
	defer timer.Stop()
	late := false
	select {
	case <-w.wake:
	case <-timer.C():
		if t.waiters.leave(w) {
			s.b.freeWaiter(w)
			return false, nil
		}
		<-w.wake
		late = true
	case <-ctx.Done():
		if !t.waiters.leave(w) {
			<-w.wake
		}
	}
	defer s.b.freeWaiter(w)
	left := ctx.Err() // asked once: what was handed over has one end
	if w.word != nil && (late || left != nil) {
		t.waiters.send(w.word) // no use for it any more: the next one's
		return false, left
	}
	if left != nil {
		if w.part != nil {
			w.part.Unreserve(w.leases)
		}
		return false, left
	}
	switch {
	case w.word != nil:
		return s.follow(ctx, t, w.word)
	case w.part != nil:
		return s.claim(t, w.part, w.leases)
	}
	return s.dismissed(w.end)
}

// follow goes where word sends it. A round of all owners that finds something passes on
// the word, so that one lost announcement does not keep the rest of a backlog.
func (s *scan) follow(ctx context.Context, t *topic, wd *word) (again bool, err error) {
	if wd.owner != "" {
		s.out = s.req.Elsewhere.Claim(ctx, t.name, wd.owner, s.req.Max)
	} else if s.out = s.req.Elsewhere.Probe(ctx, t.name, s.req.Max); len(s.out) > 0 {
		t.waiters.send(wd)
	}
	if len(s.out) == 0 {
		s.back = true
		return ctx.Err() == nil, ctx.Err()
	}
	if len(s.out) == 1 && s.req.Max > 1 {
		s.budget.Messages--
		s.budget.Bytes -= len(s.out[0].Key) + len(s.out[0].Payload)
		s.topUp(t)
	}
	return false, nil
}

// leave ends what park said elsewhere.
func (s *scan) leave() {
	if s.parked {
		s.req.Elsewhere.Leave(s.req.Topic)
	}
}

// dismissed is what a consume does that was sent away: nothing more when the node is
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
	s.topUp(t)
	return false, nil
}

// topUp takes what the local partitions have besides.
func (s *scan) topUp(t *topic) {
	if v := t.view.Load(); v != nil && s.budget.Messages > 0 && s.budget.Bytes > 0 {
		_ = s.local(t, v) // a bonus: what was delivered stands, whatever this meets
	}
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
