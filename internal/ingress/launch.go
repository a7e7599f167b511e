package ingress

import (
	"errors"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

// launch returns the next commit to start, nil when none is due or no slot free.
func (s *scheduler) launch(now time.Time) *flight {
	for s.load.slots < slotsMax {
		d := s.turnNow(now)
		if d == nil {
			d = s.dueNow(now)
		}
		if d == nil {
			return nil
		}
		if f := s.begin(d, now); f != nil {
			return f
		}
	}
	return nil
}

// dueNow returns a destination whose queue may leave now.
func (s *scheduler) dueNow(now time.Time) *destination {
	if d := s.waiting.top(); d != nil && !d.heapDue.After(now) {
		return d
	}
	for {
		d := s.lingering.top()
		if d == nil {
			return nil
		}
		if rest := d.rest(); rest.After(now) {
			if !d.heapDue.Before(rest) {
				return nil
			}
			s.lingering.set(d, rest)
			continue
		}
		if !d.heapDue.After(now) || s.load.slots == 0 && !now.Before(d.blockedUntil) {
			return d // due, or nothing is in flight it could wait for
		}
		return nil
	}
}

// rest is until when d's owner is left alone.
func (d *destination) rest() time.Time {
	if d.owner == nil {
		return time.Time{}
	}
	return d.owner.restUntil
}

// begin turns the queue of d into a commit. nil means that nothing is left to
// commit now: d has been scheduled again as its state asks.
func (s *scheduler) begin(d *destination, now time.Time) *flight {
	s.recheck(d, now)
	if len(d.queue) == 0 {
		s.schedule(d)
		return nil
	}
	to := s.lookUp(d, now)
	if to == nil || len(d.queue) == 0 {
		return nil
	}
	if d.owner.full() {
		s.crowd(d)
		return nil
	}
	f := s.newFlight()
	f.dest, f.to, f.owner = d, to, d.owner
	f.launched, f.budget = now, d.budget()
	f.items, d.queue = d.queue, f.items[:0]
	if !d.owner.local {
		s.cut(f, d, now)
	}
	for _, it := range f.items {
		f.recs = append(f.recs, it.rec.Record)
	}
	d.flight = f
	d.launched(now)
	s.schedule(d)
	s.load.slots++
	f.owner.inFlight++
	s.load.flights = append(s.load.flights, f)
	s.flightDue(now.Add(hungAfter))
	if d.skipped > 0 || d.wanted {
		d.wanted = false
		s.scan.want(now) // the queue has room again
	}
	return f
}

// recheck sends records back to the WAL whose topic changed since they were
// placed (spec/storage-and-produce section 16.3, step 4).
func (s *scheduler) recheck(d *destination, now time.Time) {
	s.refresh(d.topic)
	v := d.topic.view
	if v != nil && v == d.placedView {
		return
	}
	kept := d.queue[:0]
	for _, it := range d.queue {
		if v != nil && int(d.partition) < v.Partitions && !it.rec.Incarnation.Differs(v.ID) {
			kept = append(kept, it)
			continue
		}
		s.unhold(it, false)
		s.skip(it, s.home(it), now)
		s.scan.want(now)
	}
	clear(d.queue[len(kept):])
	d.queue, d.placedView = kept, v
}

// cut keeps as much of the batch as one remote commit may carry, at least one
// record, and puts the rest back into the queue.
func (s *scheduler) cut(f *flight, d *destination, now time.Time) {
	n, bytes := 0, 0
	for n < len(f.items) {
		bytes += peer.CommitSize(&f.items[n].rec.Record)
		if n > 0 && bytes > peer.CommitBytesMax {
			break
		}
		n++
	}
	if n == len(f.items) {
		return
	}
	d.queue = append(d.queue, f.items[n:]...)
	d.queuedAt = now
	clear(f.items[n:])
	f.items = f.items[:n]
}

func (s *scheduler) newFlight() *flight {
	n := len(s.load.free)
	if n == 0 {
		return &flight{}
	}
	f := s.load.free[n-1]
	s.load.free = s.load.free[:n-1]
	return f
}

// recycle keeps a landed flight's memory. Its records are the owner's no more:
// only a commit that succeeded is known to have let go of them.
func (s *scheduler) recycle(f *flight, o outcome) {
	if o != committed || len(s.load.free) >= freeFlightsMax || cap(f.items) > freeFlightCap {
		return
	}
	clear(f.items)
	clear(f.recs)
	*f = flight{items: f.items[:0], recs: f.recs[:0]}
	s.load.free = append(s.load.free, f)
}

func (s *scheduler) flightDue(at time.Time) {
	if s.load.next.IsZero() || at.Before(s.load.next) {
		s.load.next = at
	}
}

// tick turns commits hung that take too long, and cancels those out of budget.
func (s *scheduler) tick(now time.Time) {
	if s.load.next.IsZero() || now.Before(s.load.next) {
		return
	}
	s.load.next = time.Time{}
	for _, f := range s.load.flights {
		if act := f.dest.tick(now); act != 0 {
			f.hung = true
			s.load.slots--
			f.owner.inFlight--
			f.owner.hung++
			s.load.records -= len(f.items)
			s.apply(f.dest, act, now)
			s.lookUp(f.dest, now)
		}
		switch age := now.Sub(f.launched); {
		case f.timedOut:
		case age >= f.budget:
			f.timedOut = true
			f.cancel()
		case f.hung:
			s.flightDue(f.launched.Add(f.budget))
		default:
			s.flightDue(f.launched.Add(hungAfter + 1))
		}
	}
}

// result is how a commit ended, with what its goroutine found out after a
// failure: identities the leader confirmed gone.
type result struct {
	flight *flight
	err    error
	gone   []identity
	ended  time.Time
}

func (r *result) outcome() outcome {
	switch {
	case r.err == nil:
		return committed
	case errors.Is(r.err, model.ErrIncarnation):
		return refused
	}
	return failed
}

// landed takes the result of a commit.
func (s *scheduler) landed(r *result, now time.Time) {
	f, o := r.flight, r.outcome()
	d := f.dest
	d.flight, d.lastErr = nil, r.err
	s.dropFlight(f)
	f.owner.failing = o == failed
	act := d.landed(o, now)
	for _, k := range r.gone {
		s.confirm.confirmed(k, now)
	}
	switch o {
	case committed:
		f.owner.measured(r.ended.Sub(f.launched), now)
		for _, it := range f.items {
			s.unhold(it, f.hung)
			s.track.setDone(it.seq)
			it.rec.release()
		}
	default:
		if o == refused {
			s.note.refused(d, f, r.err, now)
		} else if len(r.gone) == 0 {
			s.note.failed(d, f, r.err, now)
		}
		if s.putBack(f, r.err, now); o == failed && d.rerouting(now) && s.routable(d, now) {
			act = act&^keepProbe | rescan // another partition takes the probe as well
			d.wanted = true
		} else if o == failed {
			s.scan.due(d.failingSince.Add(rerouteGrace))
		}
	}
	s.apply(d, act, now)
	s.recycle(f, o)
}

// routable reports whether the records of a rerouting destination have somewhere
// to go.
func (s *scheduler) routable(d *destination, now time.Time) bool {
	s.refresh(d.topic)
	return d.topic.view != nil && s.rerouted(d, now) != nil
}

func (s *scheduler) dropFlight(f *flight) {
	if f.hung {
		f.owner.hung--
	} else {
		s.load.slots--
		f.owner.inFlight--
	}
	for i, g := range s.load.flights {
		if g == f {
			last := len(s.load.flights) - 1
			s.load.flights[i] = s.load.flights[last]
			s.load.flights[last] = nil
			s.load.flights = s.load.flights[:last]
			return
		}
	}
}

// putBack puts an uncommitted batch before what queued behind it, without the
// records the leader confirmed gone.
func (s *scheduler) putBack(f *flight, cause error, now time.Time) {
	d := f.dest
	s.refresh(d.topic)
	batch := make([]item, 0, len(f.items)+len(d.queue))
	for _, it := range f.items {
		s.unhold(it, f.hung)
		v := d.topic.view
		dead := v == nil || it.rec.Incarnation.Differs(v.ID)
		if dead && s.confirm.isGone(identity{d.topic.name, it.rec.Incarnation}, now) {
			s.discard(it, d, false, cause)
			continue
		}
		s.load.records++
		s.load.bytes += it.rec.memory()
		batch = append(batch, it)
	}
	d.queue = append(batch, d.queue...)
	d.queuedAt, d.placedView = now, nil
}

// wakeAt is when the scheduler has something to do next without being fed; zero
// = never. With no record held or left in the WAL it is zero: idle costs nothing.
func (s *scheduler) wakeAt() time.Time {
	at := s.load.next
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if len(s.parked) > 0 && s.room() {
		sooner(s.scan.at)
	}
	if s.load.slots < slotsMax {
		if d := s.waiting.top(); d != nil {
			sooner(d.heapDue)
		}
		if d := s.lingering.top(); d != nil {
			sooner(later(d.heapDue, d.rest()))
			if s.load.slots == 0 {
				sooner(later(d.rest(), d.blockedUntil))
			}
		}
	}
	return at
}
