package noderpc

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/telemetry"
)

// outcome is how a call ended, as the metric label says it.
type outcome uint8

const (
	outcomeOK       outcome = iota
	outcomeRejected         // 4xx
	outcomeFailed           // 5xx
	outcomeTimeout
	outcomeError
	outcomeCount
)

var outcomeNames = [outcomeCount]string{"ok", "rejected", "failed", "timeout", "error"}

// Metrics are the series of the calls a node makes, shared by its clients. The series of
// an operation appear with its first call.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	ops      [opCount]opMetrics // by operation; 0 is for unknown ones
}

// opMetrics are looked up once, so that a call costs no label lookup.
type opMetrics struct {
	once     sync.Once
	outcomes [outcomeCount]prometheus.Counter
	seconds  prometheus.Observer
}

// NewMetrics registers narad_cluster_rpc_requests_total and
// narad_cluster_rpc_request_seconds; a nil registry leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{
		requests: telemetry.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "narad_cluster_rpc_requests_total", Help: "Requests this node sent to others, by operation and outcome.",
		}, []string{"op", "outcome"})),
		seconds: telemetry.Register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "narad_cluster_rpc_request_seconds", Help: "Duration of requests to other nodes.", Buckets: telemetry.BucketsHTTP,
		}, []string{"op"})),
	}
}

func (m *Metrics) observe(op Op, res Response, err error, took time.Duration) {
	index := op
	if !op.known() {
		index = 0
	}
	o := &m.ops[index]
	o.once.Do(func() {
		for i, name := range outcomeNames {
			o.outcomes[i] = m.requests.WithLabelValues(op.String(), name)
		}
		o.seconds = m.seconds.WithLabelValues(op.String())
	})
	o.outcomes[outcomeOf(res, err)].Inc()
	o.seconds.Observe(took.Seconds())
}

func outcomeOf(res Response, err error) outcome {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return outcomeTimeout
	case err != nil:
		return outcomeError
	case res.Status >= http.StatusInternalServerError:
		return outcomeFailed
	case res.Status >= http.StatusBadRequest:
		return outcomeRejected
	}
	return outcomeOK
}
