package commitlog

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

// nativeBucketsMax bounds the native form of each histogram.
const nativeBucketsMax = 100

// Metrics are the storage series of spec/metrics section 8 that partition logs
// feed, shared by all logs of a node.
type Metrics struct {
	fsync, flush, sweep *prometheus.HistogramVec // topic, partition
	hwmPersist          *prometheus.HistogramVec // topic, partition, outcome
	flushBytes          *prometheus.CounterVec   // topic, partition
	deletedBytes        *prometheus.CounterVec   // topic, partition, reason
	deletedMessages     *prometheus.CounterVec   // topic, partition, reason
	errors              *prometheus.CounterVec   // component, kind

	mu   sync.Mutex // guards open and every series.forgotten
	open map[*series]struct{}
}

// NewMetrics registers the series on reg; nil leaves them unregistered but usable.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	part := []string{"topic", "partition"}
	hist := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return telemetry.Register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: telemetry.BucketsDisk,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: nativeBucketsMax,
		}, labels))
	}
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		return telemetry.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
	}
	return &Metrics{
		fsync: hist("narad_storage_fsync_duration_seconds", "Partition file syncs.", part...),
		flush: hist("narad_storage_flush_duration_seconds", "Buffered writes to segments.", part...),
		sweep: hist("narad_storage_retention_run_duration_seconds", "One retention pass over a partition.", part...),
		hwmPersist: hist("narad_storage_high_watermark_persist_duration_seconds",
			"High watermark file writes: at most one per log open and one per close.", append(part, "outcome")...),
		flushBytes: count("narad_storage_flush_bytes_total", "Bytes written to segments.", part...),
		deletedBytes: count("narad_storage_retention_bytes_deleted_total",
			"Bytes deleted by retention.", append(part, "reason")...),
		deletedMessages: count("narad_storage_retention_messages_deleted_total",
			"Messages deleted by retention.", append(part, "reason")...),
		errors: telemetry.Errors(reg),
		open:   map[*series]struct{}{},
	}
}

// Forget removes every series of a deleted topic. Logs of it that are still open
// create none again (spec/metrics section 2).
func (m *Metrics) Forget(topic string) {
	m.forget(prometheus.Labels{"topic": topic}, func(k model.PartitionKey) bool { return k.Topic == topic })
}

// ForgetPartition removes the series of a partition that left this node.
func (m *Metrics) ForgetPartition(topic string, partition int) {
	key := model.PartitionKey{Topic: topic, Partition: partition}
	m.forget(prometheus.Labels{"topic": topic, "partition": strconv.Itoa(partition)},
		func(k model.PartitionKey) bool { return k == key })
}

func (m *Metrics) forget(labels prometheus.Labels, match func(model.PartitionKey) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.open {
		if match(s.key) {
			s.forgotten = true
		}
	}
	for _, v := range []*prometheus.HistogramVec{m.fsync, m.flush, m.sweep, m.hwmPersist} {
		v.DeletePartialMatch(labels)
	}
	for _, v := range []*prometheus.CounterVec{m.flushBytes, m.deletedBytes, m.deletedMessages} {
		v.DeletePartialMatch(labels)
	}
}

// series are the children of one open log, each made at its first observation, so
// that an idle partition costs none. All methods but newSeries and close are
// called under the log's write lock.
type series struct {
	m         *Metrics
	key       model.PartitionKey
	forgotten bool // guarded by m.mu: make no child any more

	fsync, flush prometheus.Observer
	flushBytes   prometheus.Counter
}

func (m *Metrics) newSeries(key model.PartitionKey) *series {
	s := &series{m: m, key: key}
	m.mu.Lock()
	m.open[s] = struct{}{}
	m.mu.Unlock()
	return s
}

func (s *series) close() {
	s.m.mu.Lock()
	delete(s.m.open, s)
	s.m.mu.Unlock()
}

func (s *series) labels(extra ...string) []string {
	return append([]string{s.key.Topic, strconv.Itoa(s.key.Partition)}, extra...)
}

// observe runs f, which may create children, unless the series were forgotten.
func (s *series) observe(f func()) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if !s.forgotten {
		f()
	}
}

func (s *series) synced(d time.Duration) {
	if s.fsync == nil {
		s.observe(func() { s.fsync = s.m.fsync.WithLabelValues(s.labels()...) })
	}
	if s.fsync != nil {
		s.fsync.Observe(d.Seconds())
	}
}

func (s *series) flushed(d time.Duration, bytes int) {
	if s.flush == nil {
		s.observe(func() {
			s.flush = s.m.flush.WithLabelValues(s.labels()...)
			s.flushBytes = s.m.flushBytes.WithLabelValues(s.labels()...)
		})
	}
	if s.flush != nil {
		s.flush.Observe(d.Seconds())
		s.flushBytes.Add(float64(bytes))
	}
}

func (s *series) hwmPersisted(d time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	s.observe(func() { s.m.hwmPersist.WithLabelValues(s.labels(outcome)...).Observe(d.Seconds()) })
}

func (s *series) swept(d time.Duration, sw Swept) {
	s.observe(func() {
		s.m.sweep.WithLabelValues(s.labels()...).Observe(d.Seconds())
		if sw.Segments > 0 {
			s.m.deletedBytes.WithLabelValues(s.labels("age")...).Add(float64(sw.Bytes))
			s.m.deletedMessages.WithLabelValues(s.labels("age")...).Add(float64(sw.Messages))
		}
	})
}

// failed counts narad_errors_total{component="storage"}.
func (s *series) failed(kind string) { s.m.errors.WithLabelValues("storage", kind).Inc() }
