package fanout

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/telemetry"
)

// metrics are the series of spec/metrics section 6. Lags are read off the running
// cursors at each scrape, so they go with the cursor and cost nothing in between.
type metrics struct {
	e                        *Engine
	reg                      prometheus.Registerer // nil = unregistered
	lag, dueLag              *prometheus.Desc
	committed, dropped       *prometheus.CounterVec
	batchRecords, batchBytes prometheus.Histogram

	mu    sync.Mutex // guards known
	known map[linkName]*linkCounts
}

type linkName struct{ parent, child string }

// linkCounts are the counters of one parent and child.
type linkCounts struct {
	committed, dropped prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, e *Engine) *metrics {
	labels := []string{"parent", "child", "partition"}
	pair := labels[:2]
	count := func(name, help string) *prometheus.CounterVec {
		return telemetry.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, pair))
	}
	hist := func(name, help string, bounds []float64) prometheus.Histogram {
		return telemetry.Register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: bounds,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: nativeBucketsMax,
		}))
	}
	m := &metrics{
		e: e, reg: reg, known: map[linkName]*linkCounts{},
		lag: prometheus.NewDesc("narad_fanout_lag_messages",
			"Parent high watermark minus cursor.", labels, nil),
		dueLag: prometheus.NewDesc("narad_fanout_due_lag_seconds",
			"How far behind the due frontier a delay child's cursor runs; 0 while the next record is not due.", labels, nil),
		committed: count("narad_fanout_committed_total", "Records copied to a child."),
		dropped: count("narad_fanout_child_dropped_messages",
			"Records a child never got: aged out of the parent first, or unreadable. Data loss."),
		batchRecords: hist("narad_fanout_batch_records", "Records per slab.", prometheus.ExponentialBuckets(1, 4, 7)),
		batchBytes:   hist("narad_fanout_batch_bytes", "Payload bytes per slab.", prometheus.ExponentialBuckets(1<<10, 4, 7)),
	}
	if reg != nil {
		reg.MustRegister(m)
	}
	return m
}

func (m *metrics) unregister() {
	if m.reg != nil {
		m.reg.Unregister(m)
	}
}

// countsOf is the counters of a link, shared by all attachments of the same two names.
func (m *metrics) countsOf(l *link) *linkCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := linkName{l.parent, l.child}
	c := m.known[name]
	if c == nil {
		c = &linkCounts{
			committed: m.committed.WithLabelValues(l.parent, l.child),
			dropped:   m.dropped.WithLabelValues(l.parent, l.child),
		}
		m.known[name] = c
	}
	return c
}

// prune forgets the counters of links that are over.
func (m *metrics) prune(links map[string]*link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.known {
		if l := links[name.child]; l == nil || l.parent != name.parent {
			delete(m.known, name)
			m.committed.DeleteLabelValues(name.parent, name.child)
			m.dropped.DeleteLabelValues(name.parent, name.child)
		}
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.lag
	ch <- m.dueLag
}

// Collect implements prometheus.Collector; it touches memory only.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	var running []*cursor
	m.e.set.each(func(c *cursor) { running = append(running, c) })
	now := m.e.nowMS()
	for _, c := range running {
		next := c.next.Load()
		if next == notStarted || c.ended() {
			continue
		}
		labels := []string{c.at.parent, c.at.child, strconv.Itoa(c.at.partition)}
		ch <- prometheus.MustNewConstMetric(m.lag, prometheus.GaugeValue, float64(max(c.high.Load()-next, 0)), labels...)
		if c.link.delayMS == 0 {
			continue
		}
		late := 0.0
		if head := c.head.Load(); head != 0 {
			late = dueLag(now, head, c.link.delayMS)
		}
		ch <- prometheus.MustNewConstMetric(m.dueLag, prometheus.GaugeValue, late, labels...)
	}
}
