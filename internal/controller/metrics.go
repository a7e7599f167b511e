package controller

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/telemetry"
)

// metrics are the leader's series; 0 on every other node (spec/cluster-and-network
// section 21).
type metrics struct {
	refused   prometheus.Gauge // 1 while the breaker refuses to mark voters dead
	colocated prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	return &metrics{
		refused: telemetry.Register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "narad_dead_marking_refused",
			Help: "1 while the leader refuses to mark voters dead, since fewer than a quorum would stay alive; 0 elsewhere.",
		})),
		colocated: telemetry.Register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "narad_colocated_child_partitions",
			Help: "On the leader, child partitions on the node of their parent's partition of the same index; 0 elsewhere.",
		})),
	}
}

// reset is what a node that does not lead shows.
func (m *metrics) reset() {
	m.refused.Set(0)
	m.colocated.Set(0)
}
