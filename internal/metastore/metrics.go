package metastore

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics is what the state machine counts (spec/metrics section 9). Gauges are
// atomics that a scrape reads; nothing is looked up by label while applying.
type metrics struct {
	applyErrors      *prometheus.CounterVec
	snapshotFailures prometheus.Counter
	applyStalled     atomic.Bool
	applyStopped     atomic.Bool
	fsmBytes         atomic.Int64
	snapshotBytes    atomic.Int64 // last snapshot written here
	snapshotNanos    atomic.Int64 // and how long it took, copy included
}

func newMetrics() *metrics {
	m := &metrics{
		applyErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "narad_metastore_apply_errors_total", Help: "Failed attempts to apply a Raft entry, by cause.",
		}, []string{"kind"}),
		snapshotFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "narad_metastore_snapshot_failures_total", Help: "Snapshots of the metadata database that failed.",
		}),
	}
	for _, kind := range []string{"storage", "unknown_entry_type", "undecodable", "newer_database"} {
		m.applyErrors.WithLabelValues(kind)
	}
	return m
}

func gaugeDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// collector reads Raft's own counters and the state machine's at scrape time; it
// never waits on Raft.
type collector struct {
	store  *Store
	state  *prometheus.Desc
	expiry *prometheus.Desc // of Raft's certificates, with TLS only
	gauges []gauge
}

type gauge struct {
	desc *prometheus.Desc
	read func() float64
}

func newCollector(s *Store) *collector {
	c := &collector{store: s, state: gaugeDesc("narad_raft_state", "1 for the state Raft is in, 0 for the others.", "state")}
	c.expiry = gaugeDesc("narad_raft_tls_cert_not_after_seconds", "Unix time at which the leaf and the earliest CA expire.", "kind")
	add := func(name, help string, read func() float64) {
		c.gauges = append(c.gauges, gauge{gaugeDesc(name, help), read})
	}
	m := s.fsm.metrics
	add("narad_raft_term", "Current Raft term.", func() float64 { return float64(s.raft.CurrentTerm()) })
	add("narad_raft_last_log_index", "Last index in the Raft log or snapshot.", func() float64 { return float64(s.raft.LastIndex()) })
	add("narad_raft_commit_index", "Highest committed Raft index.", func() float64 { return float64(s.raft.CommitIndex()) })
	add("narad_raft_applied_index", "Highest index handed to the state machine.", func() float64 { return float64(s.raft.AppliedIndex()) })
	add("narad_raft_fsm_pending", "Batches waiting for the state machine.", s.fsmPending)
	add("narad_raft_has_leader", "1 while a leader is known.", func() float64 {
		addr, _ := s.raft.LeaderWithID()
		return flag(addr != "")
	})
	add("narad_raft_last_contact_seconds", "Time since contact with the leader; 0 on the leader.", s.contactSeconds)
	add("narad_raft_voters", "Voters in the latest configuration.", func() float64 { v, _ := s.servers(); return float64(v) })
	add("narad_raft_nonvoters", "Non-voters in the latest configuration.", func() float64 { _, n := s.servers(); return float64(n) })
	add("narad_metastore_fsm_bytes", "Size of fsm.db in bytes; a snapshot needs this much free space.", func() float64 { return float64(m.fsmBytes.Load()) })
	add("narad_metastore_applied_index", "Highest index whose effects are stored.", func() float64 { return float64(s.fsm.applied.Load()) })
	add("narad_metastore_apply_stalled", "1 while retrying a write the disk refused.", func() float64 { return flag(m.applyStalled.Load()) })
	add("narad_metastore_apply_stopped", "1 once this node stopped applying entries.", func() float64 { return flag(m.applyStopped.Load()) })
	add("narad_metastore_snapshot_bytes", "Size of the last snapshot written here.", func() float64 { return float64(m.snapshotBytes.Load()) })
	add("narad_metastore_snapshot_duration_seconds", "Duration of the last snapshot written here, copy included.", func() float64 {
		return time.Duration(m.snapshotNanos.Load()).Seconds()
	})
	return c
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.state
	ch <- c.expiry
	for _, g := range c.gauges {
		ch <- g.desc
	}
	c.store.fsm.metrics.applyErrors.Describe(ch)
	c.store.fsm.metrics.snapshotFailures.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	now := c.store.raft.State()
	for state, label := range map[raft.RaftState]string{
		raft.Follower: "follower", raft.Candidate: "candidate", raft.Leader: "leader", raft.Shutdown: "shutdown",
	} {
		ch <- prometheus.MustNewConstMetric(c.state, prometheus.GaugeValue, flag(state == now), label)
	}
	if t := c.store.stream.tls; t != nil {
		ca, _ := t.earliestCA(c.store.clock.Now())
		ch <- prometheus.MustNewConstMetric(c.expiry, prometheus.GaugeValue, float64(t.leaf.NotAfter.Unix()), "leaf")
		ch <- prometheus.MustNewConstMetric(c.expiry, prometheus.GaugeValue, float64(ca.NotAfter.Unix()), "ca")
	}
	for _, g := range c.gauges {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.read())
	}
	c.store.fsm.metrics.applyErrors.Collect(ch)
	c.store.fsm.metrics.snapshotFailures.Collect(ch)
}

// fsmPending is a figure Raft publishes in its statistics only.
func (s *Store) fsmPending() float64 {
	n, err := strconv.ParseUint(s.raft.Stats()["fsm_pending"], 10, 64)
	if err != nil {
		return 0
	}
	return float64(n)
}

func (s *Store) contactSeconds() float64 {
	if s.IsLeader() {
		return 0
	}
	since := s.raft.LastContact()
	if since.IsZero() {
		since = s.started
	}
	return s.clock.Now().Sub(since).Seconds()
}

// servers counts the latest configuration known here.
func (s *Store) servers() (voters, nonvoters int) {
	for _, server := range s.raft.GetConfiguration().Configuration().Servers {
		if server.Suffrage == raft.Voter {
			voters++
		} else {
			nonvoters++
		}
	}
	return voters, nonvoters
}
