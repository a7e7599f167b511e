package ingress

import (
	"context"
	"fmt"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/wal"
)

// AnyPartition as a Message's partition leaves the choice to the key, or to the
// topic's rotation when there is no key.
const AnyPartition = -1

var errPartitionRange = fmt.Errorf("%w: partition out of range", model.ErrInvalid)

// Message is one message to accept. Key and Payload belong to the ingress from
// the call on: the caller must not write to them again, whatever the outcome.
type Message struct {
	Key, Payload []byte
	Partition    int // AnyPartition, or the partition that wins over the key
}

// MessageError says which message of a batch was refused. It matches what the
// message was refused for.
type MessageError struct {
	Index int // from 0
	Err   error
}

func (e *MessageError) Error() string { return fmt.Sprintf("message %d: %v", e.Index, e.Err) }

// Unwrap returns the reason.
func (e *MessageError) Unwrap() error { return e.Err }

// Accept makes one message durable in this node's WAL and returns. After a nil
// return the message is committed to its partition at least once, whatever
// happens to this process (spec/storage-and-produce sections 1 and 15).
//
// Refusals, nothing stored: model.ErrTopicNotFound, ErrDelayedChild, ErrInvalid
// (`partition out of range`, a payload the topic's schema refuses), ErrTooLarge,
// ErrSchemaBusy, ErrDiskReserve, and the context's
// error while the message was not staged. model.ErrWALFailed leaves the outcome
// open: the record may be delivered after a restart.
func (in *Ingress) Accept(ctx context.Context, topic string, m Message) error {
	in.accepting.Add(1)
	defer in.accepting.Add(-1)
	view, err := in.open(topic)
	if err != nil {
		return err
	}
	r := &record{topic: view.Name}
	if err := in.fill(r, view, m, in.clock.Now().UnixMilli()); err != nil {
		return err
	}
	if view.SchemaVersion != 0 {
		if err := in.check(ctx, view, m.Payload); err != nil {
			return err
		}
	}
	return in.log.Append(ctx, r)
}

// AcceptMany makes a batch durable: all of it or nothing, with one accept time,
// one topic id and consecutive places in the WAL (spec/storage-and-produce
// section 15.2). A message that is refused is named by a *MessageError; the
// errors of the topic and of the WAL are as for Accept.
func (in *Ingress) AcceptMany(ctx context.Context, topic string, ms []Message) error {
	in.accepting.Add(1)
	defer in.accepting.Add(-1)
	view, err := in.open(topic)
	if err != nil || len(ms) == 0 {
		return err
	}
	now := in.clock.Now().UnixMilli()
	records := make([]record, len(ms))
	entries := make([]wal.Entry, len(ms))
	for i := range ms {
		records[i].topic = view.Name
		err := in.fill(&records[i], view, ms[i], now)
		if err == nil && view.SchemaVersion != 0 {
			err = in.check(ctx, view, ms[i].Payload)
		}
		if err != nil {
			return &MessageError{Index: i, Err: err}
		}
		entries[i] = &records[i]
	}
	return in.log.AppendMany(ctx, entries)
}

// open returns the topic a produce names if it takes produces.
func (in *Ingress) open(topic string) (*model.TopicView, error) {
	view, ok := in.dir.Topic(topic)
	if !ok {
		return nil, model.ErrTopicNotFound
	}
	if view.ID != "" {
		if _, err := model.ParseIncarnation(string(view.ID)); err != nil {
			return nil, fmt.Errorf("topic %q: %w", view.Name, err) // would not decode again
		}
	}
	if view.Parent != "" && view.FanoutDelayMS > 0 {
		in.metrics.rejections.WithLabelValues(view.Name, rejectDelayedChild).Inc()
		return nil, model.ErrDelayedChild
	}
	return view, nil
}

// check holds a payload against the topic's schema. Every refusal counts, also for
// want of capacity (spec/metrics section 4).
func (in *Ingress) check(ctx context.Context, view *model.TopicView, payload []byte) error {
	err := in.schemas.Check(ctx, view, payload)
	if err != nil {
		in.metrics.rejections.WithLabelValues(view.Name, rejectSchema).Inc()
	}
	return err
}

// fill completes a record: its partition is chosen by position alone, whoever
// owns it (spec/storage-and-produce section 15.3).
func (in *Ingress) fill(r *record, view *model.TopicView, m Message, now int64) error {
	p := m.Partition
	switch {
	case p < AnyPartition || p >= view.Partitions || view.Partitions < 1:
		return errPartitionRange
	case p != AnyPartition:
	case len(m.Key) > 0:
		p = model.KeyPartition(m.Key, view.Partitions)
	default:
		p = in.turns.next(view.Name, view.Partitions)
	}
	r.partition = int32(p)
	r.Key, r.Payload, r.AcceptedAt, r.Incarnation = m.Key, m.Payload, now, view.ID
	if n := r.Size(); n > wal.BodyMax {
		return fmt.Errorf("%w: record of %d bytes, at most %d", model.ErrTooLarge, n, wal.BodyMax)
	}
	return nil
}
