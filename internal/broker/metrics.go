package broker

import (
	"sync/atomic"
	"time"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/partition"
	"github.com/narad-mq/narad/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the broker's series (spec/metrics sections 3, 5 and 8).
type metrics struct {
	reg     prometheus.Registerer // nil = unregistered
	log     *commitlog.Metrics
	traffic *partition.Metrics

	waited     *prometheus.HistogramVec
	empty      *prometheus.CounterVec
	rejected   *prometheus.CounterVec
	noLease    prometheus.Counter
	evicted    prometheus.Counter
	coldSwept  prometheus.Counter
	coldPanics prometheus.Counter
	state      *collector
}

func newMetrics(b *Broker) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	reg := b.opts.Registry
	m := &metrics{
		reg:     reg,
		log:     commitlog.NewMetrics(reg),
		traffic: partition.NewMetrics(reg),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "narad_consume_wait_seconds", Help: "How long a queue consume took, by outcome.",
			Buckets:                     telemetry.BucketsWait,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"topic", "outcome"}),
		empty: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "narad_consume_empty_total", Help: "Consumes that returned nothing."}, []string{"topic"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "narad_ack_rejected_total", Help: "Acks, extends and nacks answered other than success."}, []string{"reason"}),
		evicted:    counter("narad_idle_logs_evicted_total", "Partition logs closed for idleness."),
		coldSwept:  counter("narad_cold_retention_swept_total", "Closed partitions opened to delete expired data."),
		coldPanics: counter("narad_cold_retention_panics_total", "Contained panics of the cold retention walk."),
		state:      newCollector(b),
	}
	m.rejected = telemetry.Register(reg, m.rejected) // the router feeds it too
	m.noLease = m.rejected.WithLabelValues(RejectNoLease)
	if reg != nil {
		reg.MustRegister(m.waited, m.empty, m.evicted, m.coldSwept, m.coldPanics, m.state)
	}
	return m
}

// unregister takes out what reads the broker at scrape time.
func (m *metrics) unregister() {
	if m.reg != nil {
		m.reg.Unregister(m.state)
	}
}

// forget removes every series of a topic.
func (m *metrics) forget(topic string) {
	match := prometheus.Labels{"topic": topic}
	m.waited.DeletePartialMatch(match)
	m.empty.DeletePartialMatch(match)
	m.traffic.Forget(topic)
	m.log.Forget(topic)
}

// The outcomes of a consume (spec/metrics section 3).
const (
	outcomeHit = iota
	outcomeTimeout
	outcomeCancelled
	outcomeNoWait
	outcomes
)

var outcomeNames = [outcomes]string{"hit", "timeout", "cancelled", "no_wait"}

// waitMetrics are one topic's consume series. A series is made at its first
// observation, and then kept at hand.
type waitMetrics struct {
	m      *metrics
	topic  string
	waited [outcomes]atomic.Pointer[prometheus.Observer]
	empty  atomic.Pointer[prometheus.Counter]
}

func newWaitMetrics(m *metrics, topic string) *waitMetrics {
	return &waitMetrics{m: m, topic: topic}
}

// observe records one consume. A failed one counts only if its caller left.
func (w *waitMetrics) observe(took time.Duration, records int, wait time.Duration, err error) {
	outcome := outcomeHit
	switch {
	case records > 0:
	case err != nil && !isContext(err):
		return
	case err != nil:
		outcome = outcomeCancelled
	case wait <= 0:
		outcome = outcomeNoWait
	default:
		outcome = outcomeTimeout
	}
	o := w.waited[outcome].Load()
	if o == nil {
		made := w.m.waited.WithLabelValues(w.topic, outcomeNames[outcome])
		o = &made
		w.waited[outcome].Store(o)
	}
	(*o).Observe(took.Seconds())
	if records > 0 {
		return
	}
	c := w.empty.Load()
	if c == nil {
		made := w.m.empty.WithLabelValues(w.topic)
		c = &made
		w.empty.Store(c)
	}
	(*c).Inc()
}
