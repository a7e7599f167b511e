package schema

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

// Reasons of narad_schema_rejections_total (spec/metrics section 4).
const (
	reasonDepth     = "depth"
	reasonMalformed = "malformed"
	reasonInvalid   = "invalid"
	reasonBusy      = "busy"
	reasonCanceled  = "canceled"
	reasonPaths     = "definition_paths"
	reasonPattern   = "definition_pattern"
)

// Validator checks payloads for a node and bounds what large ones and costly
// schemas may take of it: at most one per core at a time (SV-9). Everything else
// passes by the bound. It holds no goroutine.
type Validator struct {
	clk      clock.Clock
	slots    chan struct{}
	seconds  prometheus.Histogram
	inFlight prometheus.Gauge
	refused  map[string]prometheus.Counter // by reason
}

// NewValidator bounds the checks to procs at a time.
func NewValidator(procs int, clk clock.Clock, reg prometheus.Registerer) *Validator {
	v := &Validator{clk: clk, slots: make(chan struct{}, max(procs, 1)), refused: map[string]prometheus.Counter{}}
	v.seconds = telemetry.Register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "narad_schema_validation_seconds",
		Help:    "Payload checks under the node's bound, decoding included, the wait for a slot excluded.",
		Buckets: telemetry.BucketsDisk,
	}))
	v.inFlight = telemetry.Register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "narad_schema_validations_in_flight",
		Help: "Payload checks running under the node's bound.",
	}))
	vec := telemetry.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "narad_schema_rejections_total",
		Help: "Payloads refused on topics with a schema, by reason.",
	}, []string{"reason"}))
	for _, r := range []string{reasonDepth, reasonMalformed, reasonInvalid, reasonBusy, reasonCanceled, reasonPaths, reasonPattern} {
		v.refused[r] = vec.WithLabelValues(r)
	}
	return v
}

// Check is s.Validate within the bound. It waits up to 5 s for a slot where one is
// needed; model.ErrSchemaBusy says that none came free, and the error of ctx that
// the caller left. A nil schema accepts everything (SV-11).
func (v *Validator) Check(ctx context.Context, s *Schema, payload []byte) error {
	switch {
	case s == nil:
		return nil
	case len(payload) <= freePayloadMax && !s.costly || s.refusal != nil:
		return v.count(s.Validate(payload))
	}
	if err := v.acquire(ctx); err != nil {
		return err
	}
	defer func() {
		v.inFlight.Dec()
		<-v.slots
	}()
	v.inFlight.Inc()
	start := v.clk.Now()
	err := s.Validate(payload)
	v.seconds.Observe(v.clk.Now().Sub(start).Seconds())
	return v.count(err)
}

// acquire takes a slot.
func (v *Validator) acquire(ctx context.Context) error {
	select {
	case v.slots <- struct{}{}:
		return nil
	default:
	}
	timer := v.clk.NewTimer(slotWait)
	defer timer.Stop()
	select {
	case v.slots <- struct{}{}:
		return nil
	case <-timer.C():
		v.refused[reasonBusy].Inc()
		return model.ErrSchemaBusy
	case <-ctx.Done():
		v.refused[reasonCanceled].Inc()
		return fmt.Errorf("wait for a schema validation slot: %w", ctx.Err())
	}
}

// count notes a refusal and passes it on.
func (v *Validator) count(err error) error {
	if refused, ok := errors.AsType[*payloadError](err); ok {
		v.refused[refused.reason].Inc()
	}
	return err
}
