package httpapi

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/telemetry"
)

// knownMethods are the values of the method label; any other method is OTHER.
var knownMethods = [...]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE", "OTHER"}

func methodIndex(method string) int {
	for i, m := range knownMethods {
		if m == method {
			return i
		}
	}
	return len(knownMethods) - 1
}

// knownStatuses are those whose series are cached: all this package answers.
var knownStatuses = [...]int{202, 200, 204, 201, 400, 401, 403, 404, 405, 409, 410, 413, 415, 421, 429, 499, 500, 503}

func statusIndex(status int) int {
	for i, s := range knownStatuses {
		if s == status {
			return i
		}
	}
	return -1
}

// series are the request metrics of one (route, method, status), resolved once.
type series struct {
	requests prometheus.Counter
	duration prometheus.Observer
}

// metrics are the series of spec/metrics section 3 that HTTP feeds. None names a
// topic.
type metrics struct {
	requests         *prometheus.CounterVec
	duration         *prometheus.HistogramVec
	inFlight         prometheus.Gauge
	budgetRejections prometheus.Counter
	serverErrors     prometheus.Counter
	bytesIn          [routeCount]prometheus.Counter
	bytesOut         [routeCount]prometheus.Counter
	cells            [routeCount][len(knownMethods)][len(knownStatuses)]atomic.Pointer[series]
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return telemetry.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
	}
	m := &metrics{
		requests: counter("narad_http_requests_total", "HTTP requests answered.", "route", "method", "status"),
		duration: telemetry.Register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "narad_http_request_duration_seconds", Help: "Time from the headers of a request to its answer.",
			Buckets: telemetry.BucketsHTTP, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}, []string{"route", "method", "status"})),
		inFlight: telemetry.Register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "narad_http_requests_in_flight", Help: "HTTP requests being served."})),
		budgetRejections: telemetry.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "narad_http_batch_body_budget_rejections_total", Help: "Batch bodies over 1 MiB refused for lack of budget."})),
		serverErrors: telemetry.Errors(reg).WithLabelValues("http", "5xx"),
	}
	in := counter("narad_http_request_bytes_in_total", "Declared bytes of request bodies.", "route")
	out := counter("narad_http_response_bytes_out_total", "Bytes of response bodies.", "route")
	for r := range routeCount {
		m.bytesIn[r], m.bytesOut[r] = in.WithLabelValues(r.label()), out.WithLabelValues(r.label())
	}
	return m
}

// observe records an answered request.
func (m *metrics) observe(c *call, took time.Duration) {
	defer m.inFlight.Dec()
	s := m.seriesOf(c.route, c.req.Method, c.status)
	s.requests.Inc()
	s.duration.Observe(took.Seconds())
	if c.req.ContentLength > 0 {
		m.bytesIn[c.route].Add(float64(c.req.ContentLength))
	}
	if c.sent > 0 {
		m.bytesOut[c.route].Add(float64(c.sent))
	}
}

func (m *metrics) seriesOf(r route, method string, status int) *series {
	mi, si := methodIndex(method), statusIndex(status)
	if si >= 0 {
		if s := m.cells[r][mi][si].Load(); s != nil {
			return s
		}
	}
	labels := []string{r.label(), knownMethods[mi], strconv.Itoa(status)}
	s := &series{requests: m.requests.WithLabelValues(labels...), duration: m.duration.WithLabelValues(labels...)}
	if si >= 0 {
		m.cells[r][mi][si].Store(s)
	}
	return s
}
