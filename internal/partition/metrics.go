package partition

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics holds the per-partition traffic counters of a node (spec/metrics sections
// 3 and 5).
type Metrics struct {
	produced, producedBytes *prometheus.CounterVec
	consumed, consumedBytes *prometheus.CounterVec
	corrupt                 *prometheus.CounterVec
	extended, nacked        *prometheus.CounterVec
}

// Counters are one partition's counters, resolved once so that no message pays for a
// label look-up. Extended and Nacked are shared by the partitions of a topic.
type Counters struct {
	MessagesProduced, BytesProduced prometheus.Counter
	MessagesConsumed, BytesConsumed prometheus.Counter
	CorruptSkipped                  prometheus.Counter
	Extended, Nacked                prometheus.Counter
}

// NewMetrics makes the counters and registers them; a nil registry leaves them
// unregistered and usable.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		if reg != nil {
			reg.MustRegister(v)
		}
		return v
	}
	return &Metrics{
		produced:      vec("narad_messages_produced_total", "Messages appended to a partition log, on the owner.", "topic", "partition"),
		producedBytes: vec("narad_bytes_produced_total", "Payload bytes appended to a partition log.", "topic", "partition"),
		consumed:      vec("narad_messages_consumed_total", "Messages handed to queue consumers; redeliveries count again, replays never.", "topic", "partition"),
		consumedBytes: vec("narad_bytes_consumed_total", "Payload bytes handed to queue consumers.", "topic", "partition"),
		corrupt:       vec("narad_consumer_corrupt_skipped_total", "Unreadable records skipped: each is a lost message.", "topic", "partition"),
		extended:      vec("narad_ack_extended_total", "Leases extended.", "topic"),
		nacked:        vec("narad_nack_total", "Leases handed back, including records cut from a batch answer.", "topic"),
	}
}

// For resolves the counters of one partition.
func (m *Metrics) For(topic string, partition int) *Counters {
	p := strconv.Itoa(partition)
	return &Counters{
		MessagesProduced: m.produced.WithLabelValues(topic, p),
		BytesProduced:    m.producedBytes.WithLabelValues(topic, p),
		MessagesConsumed: m.consumed.WithLabelValues(topic, p),
		BytesConsumed:    m.consumedBytes.WithLabelValues(topic, p),
		CorruptSkipped:   m.corrupt.WithLabelValues(topic, p),
		Extended:         m.extended.WithLabelValues(topic),
		Nacked:           m.nacked.WithLabelValues(topic),
	}
}

// Forget removes every series of a topic. Counters resolved before keep working but
// are seen by nobody.
func (m *Metrics) Forget(topic string) {
	match := prometheus.Labels{"topic": topic}
	for _, v := range []*prometheus.CounterVec{
		m.produced, m.producedBytes, m.consumed, m.consumedBytes, m.corrupt, m.extended, m.nacked,
	} {
		v.DeletePartialMatch(match)
	}
}
