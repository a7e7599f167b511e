package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

const (
	// replayAhead is how many reads of a replay are under way at once.
	replayAhead = 16
	// replayPatience is how long a replay waits for a partition nobody can read now.
	replayPatience = 30 * time.Second
)

// ReplayOptions narrow a Replay. The zero value reads the whole topic.
type ReplayOptions struct {
	Pin  Pin   // the only partition to read
	From int64 // first offset, of every partition read
	To   int64 // offset to stop before; 0 = the end as it was when the replay began
}

// Replay yields what is stored in a topic, one partition after the other, each in
// order and up to where it ended when the replay began. It leases nothing and settles
// nothing. Offsets that retention deleted are passed over. An error comes with the
// partition and offset it is about:
//
//   - ErrUnreadable: that record is damaged; the replay goes on with the next one.
//   - One that is Retryable: for 30 s nobody could read the partition; the replay goes
//     on with the next partition.
//   - Any other ends the replay, as the end of ctx does.
//
// Stop at the first error to be sure that nothing is missing.
func (c *Client) Replay(ctx context.Context, topic string, o ReplayOptions) iter.Seq2[Delivery, error] {
	return func(yield func(Delivery, error) bool) {
		t, err := c.describe(ctx, topic, o.Pin)
		if err != nil {
			yield(Delivery{Topic: topic, Partition: max(0, o.Pin.number())}, fmt.Errorf("replay %s: %w", topic, err))
			return
		}
		for _, stats := range t.PartitionStats {
			r := replay{c: c, topic: topic, partition: stats.Index, yield: yield}
			if !r.run(ctx, stats, o) {
				return
			}
		}
	}
}

// replay reads one partition.
type replay struct {
	c         *Client
	topic     string
	partition int
	yield     func(Delivery, error) bool
	patient   time.Time // when waiting for the partition began; zero = it is readable
}

// run reads the partition; false ends the whole replay.
func (r *replay) run(ctx context.Context, stats PartitionStats, o ReplayOptions) bool {
	for fails := 1; stats.Status != partitionOK; fails++ {
		if !r.wait(ctx, fails) {
			err := fmt.Errorf("replay %s: %w", r.topic, &callError{err: &Error{Status: 503, Message: "partition owner is " + stats.OwnerLiveness}, retryable: true})
			return r.report(ctx, o.From, err)
		}
		var err error
		if stats, err = r.stats(ctx); err != nil {
			return r.report(ctx, o.From, err)
		}
	}
	r.patient = time.Time{}
	end := stats.HighWatermark
	if o.To > 0 {
		end = min(end, o.To)
	}
	at := max(o.From, stats.OldestOffset)
	for fails := 0; at < end; {
		next, err := r.stretch(ctx, at, end)
		if next > at {
			at, fails, r.patient = next, 0, time.Time{}
		}
		switch {
		case err == nil:
		case errors.Is(err, errStopped):
			return false
		case errors.Is(err, ErrUnreadable):
			if !r.yield(r.place(at), err) {
				return false
			}
			at++
		case errors.Is(err, ErrOffsetGone):
			stats, err := r.stats(ctx)
			if err != nil {
				return r.report(ctx, at, err)
			}
			at = max(at+1, stats.OldestOffset)
		case Retryable(err):
			if fails++; !r.wait(ctx, fails) {
				return r.report(ctx, at, err)
			}
		default:
			return r.report(ctx, at, err)
		}
	}
	return true
}

// partitionOK is the status of a partition whose owner answers.
const partitionOK = "ok"

var errStopped = errors.New("the loop over the replay ended")

// stats asks for the partition's state.
func (r *replay) stats(ctx context.Context) (PartitionStats, error) {
	t, err := r.c.describe(ctx, r.topic, Partition(r.partition))
	if err != nil {
		return PartitionStats{}, fmt.Errorf("replay %s: %w", r.topic, err)
	}
	for _, s := range t.PartitionStats {
		if s.Index == r.partition {
			return s, nil
		}
	}
	return PartitionStats{}, fmt.Errorf("replay %s: no partition %d any more", r.topic, r.partition)
}

// wait pauses before the partition is tried again; false when patience or ctx ended.
func (r *replay) wait(ctx context.Context, fails int) bool {
	now := time.Now()
	if r.patient.IsZero() {
		r.patient = now
	}
	return now.Sub(r.patient) < replayPatience && pause(ctx, r.c.backoff(fails))
}

// report yields an error; false ends the whole replay.
func (r *replay) report(ctx context.Context, at int64, err error) bool {
	if ctx.Err() != nil {
		err = fmt.Errorf("replay %s: %w", r.topic, ctx.Err())
	}
	return r.yield(r.place(at), err) && Retryable(err)
}

func (r *replay) place(at int64) Delivery {
	return Delivery{Topic: r.topic, Partition: r.partition, Offset: at}
}

// read is one read under way.
type read struct {
	d   Delivery
	ok  bool
	err error
}

// stretch yields the records of [at, end), several reads ahead, until one fails. It
// returns the offset it came to, and why it stopped there.
func (r *replay) stretch(ctx context.Context, at, end int64) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	var ahead []chan read // for at, at+1, ...
	defer func() {
		cancel()
		for _, c := range ahead {
			<-c
		}
	}()
	for next := at; at < end; at++ {
		for ; next < end && next < at+replayAhead; next++ {
			c, offset := make(chan read, 1), next
			ahead = append(ahead, c)
			go func() {
				d, ok, err := r.c.Read(ctx, r.topic, r.partition, offset)
				c <- read{d, ok, err}
			}()
		}
		got := <-ahead[0]
		ahead = ahead[1:]
		switch {
		case got.err != nil:
			return at, fmt.Errorf("replay %s/%d@%d: %w", r.topic, r.partition, at, got.err)
		case !got.ok: // the log ends before where it ended: it is another one now
			return end, nil
		case !r.yield(got.d, nil):
			return at, errStopped
		}
	}
	return at, nil
}
