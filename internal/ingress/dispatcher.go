package ingress

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/wal"
)

// dispatcher empties the WAL to the partition owners. Its loop is the only
// goroutine that touches the scheduler; each commit and each question to the
// leader runs on a goroutine of its own and answers over a channel.
type dispatcher struct {
	log       *wal.Log
	clock     clock.Clock
	logger    *slog.Logger
	dir       Directory
	confirmer Confirmer
	sched     *scheduler
	in        *intake

	results chan result
	answers chan answer
	lifetime
	shared shared
}

// lifetime is how the dispatcher's goroutines end.
type lifetime struct {
	stop    chan struct{}   // closed by StopDispatch
	done    chan struct{}   // closed when the loop has ended
	workers sync.WaitGroup  // commits and questions
	ctx     context.Context // of the workers; cancelled when stopping takes too long
	cancel  context.CancelFunc
}

// shared is what other goroutines read of the dispatcher.
type shared struct {
	oldestAt atomic.Int64          // accept time of the first seq not done, Unix ms; 0 = none
	fault    atomic.Pointer[error] // why the dispatcher stopped by itself
}

// answer is what the leader said about an identity.
type answer struct {
	about identity
	gone  bool
	err   error
}

// resultsBuffer lets commits end without waiting for the loop.
const resultsBuffer = 4 * slotsMax

func newDispatcher(o Options, log *wal.Log, h *handover, sched *scheduler) *dispatcher {
	ctx, cancel := context.WithCancel(context.Background())
	return &dispatcher{
		log: log, clock: o.Clock, logger: o.Logger, dir: o.Directory, confirmer: o.Confirmer,
		sched: sched, in: newIntake(log, h),
		results: make(chan result, resultsBuffer), answers: make(chan answer, confirmsMax),
		lifetime: lifetime{stop: make(chan struct{}), done: make(chan struct{}), ctx: ctx, cancel: cancel},
	}
}

// run is the loop: take what came back, take on what is new, let go what is due,
// store the checkpoint, sleep until something happens.
func (d *dispatcher) run() {
	defer close(d.done)
	timer := d.clock.NewTimer(0)
	defer timer.Stop()
	for {
		now := d.clock.Now()
		d.collect(now)
		d.sched.tick(now)
		more := d.feed(now)
		for f := d.sched.launch(now); f != nil; f = d.sched.launch(now) {
			d.start(f)
		}
		d.ask()
		d.settle(now)
		if more {
			select {
			case <-d.stop:
				d.wind(timer)
				return
			default:
				continue
			}
		}
		if !d.sleep(timer, now) {
			d.wind(timer)
			return
		}
	}
}

// sleep waits for the next thing to do; false means stop.
func (d *dispatcher) sleep(timer clock.Timer, now time.Time) bool {
	var fire <-chan time.Time
	at := d.sched.wakeAt()
	if d.in.retryAt.After(now) && (at.IsZero() || at.After(d.in.retryAt) || at.Before(now)) {
		at = d.in.retryAt
	}
	if !at.IsZero() {
		timer.Reset(at.Sub(now))
		fire = timer.C()
	}
	select {
	case <-d.stop:
		return false
	case r := <-d.results:
		d.sched.landed(&r, d.clock.Now())
	case a := <-d.answers:
		d.answered(a)
	case <-d.in.fresh.wake:
	case <-fire:
	}
	return true
}

// collect takes everything that came back meanwhile.
func (d *dispatcher) collect(now time.Time) {
	for {
		select {
		case r := <-d.results:
			d.sched.landed(&r, now)
		case a := <-d.answers:
			d.answered(a)
		default:
			return
		}
	}
}

// feed places records, those left in the WAL first, and reports whether there
// may be more at once.
func (d *dispatcher) feed(now time.Time) (more bool) {
	if now.Before(d.in.retryAt) {
		return false
	}
	read := 0
	for ; read < readChunk && d.sched.room(); read++ {
		seq, ok := d.sched.nextScan(now)
		if !ok {
			break
		}
		rec, err := d.in.again(seq, d.sched)
		if err != nil {
			d.sched.scan.active = false
			d.sched.scan.want(now)
			return d.readFailed(seq, err, now)
		}
		d.sched.place(item{seq, rec}, true, now)
	}
	for ; read < readChunk && d.sched.mayRead(); read++ {
		seq := d.sched.track.frontier
		rec, err := d.in.next(seq, d.sched)
		if err != nil {
			return d.readFailed(seq, err, now)
		}
		if rec == nil {
			break
		}
		d.in.ages.add(seq, rec.AcceptedAt)
		d.sched.place(item{seq, rec}, false, now)
	}
	return read > 0
}

// readFailed backs off when the WAL cannot be read. A record that was read but
// makes no sense stops the dispatcher instead: nothing is skipped, the checkpoint
// stays before it (spec/storage-and-produce section 14.2).
func (d *dispatcher) readFailed(seq uint64, err error, now time.Time) bool {
	if isUndecodable(err) {
		err = fmt.Errorf("ingress dispatcher stopped at seq %d: %w", seq, err)
		d.shared.fault.Store(&err)
		d.sched.frozen = true
		d.logger.Error("produce dispatcher stopped: a WAL record does not decode; nothing is skipped", "seq", seq, "err", err)
		return false
	}
	d.in.retryAt = now.Add(failureBackoff)
	d.sched.note.warnLimited(now, "produce dispatcher: reading the WAL", "seq", seq, "err", err)
	return false
}

// start runs a commit on a goroutine of its own.
func (d *dispatcher) start(f *flight) {
	ctx, cancel := context.WithCancel(d.ctx)
	f.cancel = cancel
	d.workers.Add(1)
	go func() {
		defer d.workers.Done()
		defer cancel()
		d.deliver(d.commit(ctx, f))
	}()
}

// commit runs on the flight's goroutine. After a failure it also finds out
// whether the topic is gone (spec/storage-and-produce section 19).
func (d *dispatcher) commit(ctx context.Context, f *flight) result {
	topic, partition := f.dest.topic.name, int(f.dest.partition)
	_, err := f.to.Commit(ctx, topic, partition, f.recs)
	r := result{flight: f, err: err, ended: d.clock.Now()}
	if r.outcome() != failed {
		return r
	}
	for _, k := range d.suspects(topic, f.recs) {
		if isGone, err := d.confirm(k); err == nil && isGone {
			r.gone = append(r.gone, k)
		}
	}
	return r
}

// suspects are the identities of a failed batch that the local replica does not
// have, a few of them at most.
func (d *dispatcher) suspects(topic string, recs []model.Record) (ks []identity) {
	view, ok := d.dir.Topic(topic)
	for i := range recs {
		id := recs[i].Incarnation
		if ok && !id.Differs(view.ID) {
			continue
		}
		known := false
		for _, k := range ks {
			known = known || k.id == id
		}
		if !known && len(ks) < failedConfirmMax {
			ks = append(ks, identity{topic, id})
		}
	}
	return ks
}

// confirm asks the leader within the budget of a question.
func (d *dispatcher) confirm(k identity) (bool, error) {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	timer := d.clock.NewTimer(confirmBudget)
	defer timer.Stop()
	asked := make(chan answer, 1)
	d.workers.Add(1)
	go func() {
		defer d.workers.Done()
		isGone, err := d.confirmer.ConfirmGone(ctx, k.topic, k.id)
		asked <- answer{k, isGone, err}
	}()
	select {
	case a := <-asked:
		return a.gone, a.err
	case <-timer.C():
		return false, fmt.Errorf("%w: no answer within %v", model.ErrUnavailable, confirmBudget)
	}
}

// deliver hands a result to the loop, or drops it when the loop has ended.
func (d *dispatcher) deliver(r result) {
	select {
	case d.results <- r:
	case <-d.done:
	}
}

// ask puts the queued questions to the leader, a few at a time.
func (d *dispatcher) ask() {
	for {
		k, ok := d.sched.confirm.next()
		if !ok {
			return
		}
		d.workers.Add(1)
		go func() {
			defer d.workers.Done()
			isGone, err := d.confirm(k)
			select {
			case d.answers <- answer{k, isGone, err}:
			case <-d.done:
			}
		}()
	}
}

func (d *dispatcher) answered(a answer) {
	now := d.clock.Now()
	d.sched.answered(a.about, a.gone && a.err == nil, now)
	if a.err != nil {
		d.sched.note.warnLimited(now, "leader confirm: produce records of an unknown topic are kept",
			"topic", a.about.topic, "topic_id", string(a.about.id), "err", a.err)
	}
}

// settle stores the checkpoint and tells what happened.
func (d *dispatcher) settle(now time.Time) {
	t := d.sched.track
	if err := d.log.Advance(t.base); err != nil {
		d.in.retryAt = now.Add(failureBackoff)
		d.sched.note.warnLimited(now, "produce dispatcher: storing the checkpoint", "checkpoint", t.base, "err", err)
	}
	d.shared.oldestAt.Store(d.in.ages.at(t.base, t.frontier))
	d.sched.note.flush(now)
	d.sched.sweep(now)
}

// wind ends the loop: no new commits; those in flight may land within the grace,
// then they are cancelled and given a little longer.
func (d *dispatcher) wind(timer clock.Timer) {
	d.in.close()
	timer.Reset(stopGrace)
	cancelled := false
	for len(d.sched.load.flights) > 0 {
		select {
		case r := <-d.results:
			d.sched.landed(&r, d.clock.Now())
		case <-timer.C():
			if cancelled {
				d.logger.Warn("produce dispatcher: commits did not end; their records stay in the ingress WAL",
					"commits", len(d.sched.load.flights))
				d.settle(d.clock.Now())
				return
			}
			cancelled = true
			d.cancel()
			timer.Reset(stopAbandonAfter)
		}
	}
	d.settle(d.clock.Now())
}

func (d *dispatcher) fault() error {
	if p := d.shared.fault.Load(); p != nil {
		return *p
	}
	return nil
}

// await waits for the goroutines of commits and questions after the loop ended
// and their context was cancelled. One that ignores its context is left behind.
func (d *dispatcher) await() {
	ended := make(chan struct{})
	go func() {
		d.workers.Wait()
		close(ended)
	}()
	timer := d.clock.NewTimer(stopAbandonAfter)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C():
	}
}
