package ingress

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

// discardNotesMax bounds the distinct discards collected between two flushes;
// past it a line is not written, the counter still counts.
const discardNotesMax = 256

// notes is the dispatcher's voice: what happens per record is counted at once,
// and told in the log once per destination or identity and minute.
type notes struct {
	metrics  *metrics
	log      *slog.Logger
	discards map[identity]*discardNote
	told     *lru[identity, time.Time] // discards logged lately

	conditions map[string]time.Time // by message; a handful of constants
}

// discardNote is what was discarded of one identity since the last flush.
type discardNote struct {
	records   int
	seq       uint64 // the first
	partition int32
	recreated bool
	cause     error
}

func newNotes(m *metrics, log *slog.Logger) *notes {
	return &notes{
		metrics: m, log: log,
		discards: map[identity]*discardNote{},
		told:     newLRU[identity, time.Time](confirmedIDsMax),

		conditions: map[string]time.Time{},
	}
}

func (n *notes) warn(msg string, args ...any) {
	n.log.Log(context.Background(), slog.LevelWarn, msg, args...)
}

// rerouted counts a record placed at another partition than its own.
func (n *notes) rerouted(from, to *destination, now time.Time) {
	if from.topic.rerouted == nil {
		from.topic.rerouted = n.metrics.rerouted.WithLabelValues(from.topic.name)
	}
	from.topic.rerouted.Inc()
	if !from.mayWarn(now) {
		return
	}
	args := []any{"topic", from.topic.name, "partition", from.partition, "to_partition", to.partition}
	if from.owner != nil {
		args = append(args, "owner", from.owner.node)
	}
	if from.dead {
		n.warn("rerouting produce records for unavailable partition owner", args...)
		return
	}
	n.warn("rerouting produce records for stuck partition owner", append(args, "err", from.lastErr)...)
}

// failed tells that a commit failed, which a partition without another to take its
// records would not show otherwise.
func (n *notes) failed(d *destination, f *flight, err error, now time.Time) {
	if errors.Is(err, context.Canceled) || errors.Is(err, model.ErrTopicNotFound) {
		return // a stop, and a topic whose end is being confirmed
	}
	n.warnLimited(now, "produce dispatcher: a commit failed; its records stay in the WAL and are tried again",
		"topic", d.topic.name, "partition", d.partition, "owner", f.owner.node, "records", len(f.items), "err", err)
}

// refused tells that an owner holds another incarnation.
func (n *notes) refused(d *destination, f *flight, err error, now time.Time) {
	if !d.mayWarn(now) {
		return
	}
	n.warn("owner refused produce records accepted for another topic incarnation; checking them again",
		"topic", d.topic.name, "partition", d.partition, "owner", f.owner.node, "records", len(f.items), "err", err)
}

// mayWarn allows one line a minute.
func (d *destination) mayWarn(now time.Time) bool {
	if !d.warnedAt.IsZero() && now.Sub(d.warnedAt) < logEvery {
		return false
	}
	d.warnedAt = now
	return true
}

// discarded counts a record dropped after the leader's confirmation.
func (n *notes) discarded(it item, recreated bool, cause error) {
	if recreated {
		n.metrics.recreated.Inc()
	} else {
		n.metrics.deleted.Inc()
	}
	k := identity{it.rec.topic, it.rec.Incarnation}
	d := n.discards[k]
	if d == nil {
		if len(n.discards) >= discardNotesMax {
			return
		}
		d = &discardNote{seq: it.seq, partition: it.rec.partition, recreated: recreated, cause: cause}
		n.discards[k] = d
	}
	d.records++
}

// flush writes the lines about what was discarded.
func (n *notes) flush(now time.Time) {
	for k, d := range n.discards {
		n.tell(k, d, now)
	}
	clear(n.discards)
}

func (n *notes) tell(k identity, d *discardNote, now time.Time) {
	if at := n.told.get(k); at == nil {
		n.told.add(k, now)
	} else if now.Sub(*at) < logEvery {
		return
	} else {
		*at = now
	}
	switch {
	case d.recreated:
		n.warn("discarding undispatched record of a deleted topic incarnation",
			"topic", k.topic, "topic_id", string(k.id), "partition", d.partition, "seq", d.seq, "records", d.records)
	case d.cause != nil:
		n.warn("discarding undispatched record for deleted topic",
			"topic", k.topic, "topic_id", string(k.id), "records", d.records, "err", d.cause)
	case d.records > 1:
		n.warn("discarding undispatched produce records for deleted topic",
			"topic", k.topic, "records", d.records)
	default:
		n.warn("discarding undispatched record for deleted topic",
			"topic", k.topic, "partition", d.partition, "seq", d.seq)
	}
}

// warnLimited writes a line about a condition of the dispatcher as a whole, once
// a minute per message.
func (n *notes) warnLimited(now time.Time, msg string, args ...any) {
	if at, ok := n.conditions[msg]; ok && now.Sub(at) < logEvery {
		return
	}
	n.conditions[msg] = now
	n.warn(msg, args...)
}
