package telemetry

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers c, or returns the collector of the same description that is
// registered already, so that several packages can feed one series. A nil registry
// leaves c unregistered and usable.
func Register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	err := reg.Register(c)
	var dup prometheus.AlreadyRegisteredError
	if errors.As(err, &dup) {
		if old, ok := dup.ExistingCollector.(C); ok {
			return old
		}
	}
	if err != nil {
		panic(err) // two packages describe one name differently: a mistake in the code
	}
	return c
}

// Errors is narad_errors_total, shared by every component (spec/metrics section 10).
// Labels are a closed list in code: component and kind.
func Errors(reg prometheus.Registerer) *prometheus.CounterVec {
	return Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "narad_errors_total", Help: "Errors by component and kind.",
	}, []string{"component", "kind"}))
}
