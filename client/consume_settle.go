package client

import (
	"context"
	"sync"
	"time"
)

// settlersMax is how many batches of acks may be under way at once, beside those that
// are tried again.
const settlersMax = 4

// settler acks, or nacks, finished messages in batches: whatever is there when the
// last batch is answered, and after a short wait what came meanwhile.
type settler struct {
	k      *consumer
	mode   mode
	linger time.Duration
	queue  chan *lease
	done   chan struct{}  // closed when no worker puts any more
	retry  sync.WaitGroup // batches being tried again

	gathering sync.Mutex // held by the goroutine that fills a batch
}

func newSettler(k *consumer, m mode) *settler {
	return &settler{k: k, mode: m, linger: min(lingerMax, k.visibility/20), queue: make(chan *lease, ReceiveMax), done: make(chan struct{})}
}

func (s *settler) start(wg *sync.WaitGroup) {
	for range min(settlersMax, 1+s.k.opt.InFlight/ReceiveMax) {
		wg.Go(s.run)
	}
}

// put hands l over. Once the settler was told to end, by a shutdown that lost its
// patience, it drops l: its lease will run out.
func (s *settler) put(l *lease) {
	select {
	case s.queue <- l:
	case <-s.done:
	}
}

// run settles until done is closed and the queue is empty.
func (s *settler) run() {
	batch := make([]*lease, 0, ReceiveMax)
	for {
		if batch = s.gather(batch[:0]); len(batch) == 0 {
			return
		}
		if again := s.settle(batch); len(again) > 0 {
			s.retry.Go(func() { s.persist(again) })
		}
	}
}

// gather waits for a finished message and adds what else is queued, or is queued
// within the linger; empty = there will be none. One goroutine gathers at a time, so
// that batches are full before they are many.
func (s *settler) gather(batch []*lease) []*lease {
	s.gathering.Lock()
	defer s.gathering.Unlock()
	var over <-chan time.Time
	for limit := min(ReceiveMax, s.k.opt.InFlight); len(batch) < limit; {
		if len(batch) > 0 && over == nil {
			t := time.NewTimer(s.linger)
			defer t.Stop()
			over = t.C
		}
		l := s.next(over)
		if l == nil {
			break
		}
		batch = append(batch, l)
	}
	return batch
}

// next waits for a finished message, until over; nil = there is none.
func (s *settler) next(over <-chan time.Time) *lease {
	select {
	case l := <-s.queue:
		return l
	default:
	}
	if over != nil && s.k.idle() {
		return nil
	}
	select {
	case l := <-s.queue:
		return l
	case <-over:
		return nil
	case <-s.done:
	}
	select { // the last ones came before done was closed
	case l := <-s.queue:
		return l
	default:
		return nil
	}
}

// settle sends one batch and frees the slots of what is settled or cannot be. It
// returns what is worth another try.
func (s *settler) settle(ls []*lease) (again []*lease) {
	ctx, cancel := context.WithTimeout(s.k.base, s.k.visibility)
	defer cancel()
	errs, err := s.k.c.settleBatch(ctx, s.k.topic, handlesOf(ls), s.mode, 1)
	done := 0
	for i, l := range ls {
		e := err
		if err == nil {
			e = errs[i]
		}
		switch {
		case e == nil, s.mode.landed(e, l.unsure):
			done++
		case Retryable(e) && s.k.keeper.alive(l):
			l.unsure = l.unsure || Uncertain(e)
			again = append(again, l)
		default:
			done++
			s.k.c.log.Warn("cannot settle: message comes back", "topic", s.k.topic,
				"partition", l.d.Partition, "offset", l.d.Offset, "ack", s.mode == modeAck, "err", e)
		}
	}
	s.k.slots.give(done)
	return again
}

// persist tries leases again until they are settled or ran out. Each batch has a
// goroutine of its own, so that one owner that is down holds nobody else up; there
// are never more of them than messages in flight.
func (s *settler) persist(ls []*lease) {
	for fails := 1; len(ls) > 0; fails++ {
		if !pause(s.k.base, min(s.k.c.backoff(fails), s.k.visibility/4)) {
			s.k.slots.give(len(ls))
			return
		}
		ls = s.settle(ls)
	}
}
