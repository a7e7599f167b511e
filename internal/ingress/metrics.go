package ingress

import "github.com/prometheus/client_golang/prometheus"

// metrics are the series of spec/storage-and-produce section 23 that accepting
// and dispatching feed.
type metrics struct {
	rejections *prometheus.CounterVec // topic, reason
	rerouted   *prometheus.CounterVec // topic
	discarded  *prometheus.CounterVec // reason
	deleted    prometheus.Counter
	recreated  prometheus.Counter
	registered []prometheus.Collector
}

// Reasons of narad_produce_rejections_total.
const (
	rejectDelayedChild = "delayed_child"
	rejectSchema       = "schema"
)

func newMetrics() *metrics {
	m := &metrics{
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "narad_produce_rejections_total",
			Help: "Produce requests refused before storing, by topic and reason.",
		}, []string{"topic", "reason"}),
		rerouted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "narad_produce_rerouted_records_total",
			Help: "Records placed at another partition because the owner of their own is unavailable.",
		}, []string{"topic"}),
		discarded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "narad_produce_discarded_records_total",
			Help: "Accepted records dropped because the leader confirmed their topic gone.",
		}, []string{"reason"}),
	}
	m.deleted = m.discarded.WithLabelValues("deleted")
	m.recreated = m.discarded.WithLabelValues("recreated")
	return m
}

// register puts the series into the registry, if there is one; backlog and age
// are read at collection.
func (m *metrics) register(reg prometheus.Registerer, backlog, age func() float64) error {
	if reg == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{
		m.rejections, m.rerouted, m.discarded,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "narad_ingress_dispatch_backlog_records",
			Help: "Durable next sequence minus stored checkpoint: what a restart would replay.",
		}, backlog),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "narad_ingress_dispatch_oldest_age_seconds",
			Help: "Age of the oldest accepted record that is not done, 0 when there is none.",
		}, age),
	} {
		if err := reg.Register(c); err != nil {
			m.unregister(reg)
			return err
		}
		m.registered = append(m.registered, c)
	}
	return nil
}

// unregister takes the series out of the registry, so that a node can be opened
// again on it.
func (m *metrics) unregister(reg prometheus.Registerer) {
	for _, c := range m.registered {
		reg.Unregister(c)
	}
	m.registered = nil
}

// forget drops the series of a deleted topic.
func (m *metrics) forget(topic string) {
	m.rerouted.DeleteLabelValues(topic)
	m.rejections.DeletePartialMatch(prometheus.Labels{"topic": topic})
}
