package broker

import (
	"strconv"
	"time"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/partition"
	"github.com/prometheus/client_golang/prometheus"
)

// frontierUnknown marks a resting partition whose consumer files were not read yet.
const frontierUnknown = -1

// resting is what is known of a closed partition: read at its close, or at the first
// look at its files. It is immutable.
type resting struct {
	stats    commitlog.Stats
	frontier int64 // or frontierUnknown
	empty    bool  // it has no files
	oldestAt int64 // commit time of the record at the frontier, Unix ms; 0 = unknown
}

// newResting is what a first look at a closed partition's log tells.
func newResting(st commitlog.Stats) *resting {
	if st == (commitlog.Stats{}) {
		return &resting{empty: true}
	}
	return &resting{stats: st, frontier: frontierUnknown}
}

// collector exports the per-partition gauges at scrape time, from memory alone. What has
// to be read from disk is left to the inventory, which a scrape only wakes.
type collector struct {
	b         *Broker
	inventory *inventory

	lag, age, dropped, inflight, ahead *prometheus.Desc
	size, segments, topicBytes         *prometheus.Desc
	openLogs, partitions, restarts     *prometheus.Desc
}

func newCollector(b *Broker) *collector {
	per := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"topic", "partition"}, nil)
	}
	one := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	return &collector{
		b:          b,
		inventory:  newInventory(b),
		lag:        per("narad_consumer_lag_messages", "High watermark minus committed frontier."),
		age:        per("narad_oldest_unconsumed_message_age_seconds", "Age of the oldest unacked message, 0 when caught up."),
		dropped:    per("narad_consumer_dropped_messages", "Messages deleted by retention before they were acked."),
		inflight:   per("narad_inflight_size", "Leases out."),
		ahead:      per("narad_acked_ahead_size", "Acks held above the oldest unacked message."),
		size:       per("narad_partition_size_bytes", "Bytes of the partition's segments."),
		segments:   per("narad_segments", "Segments of the partition."),
		topicBytes: prometheus.NewDesc("narad_topic_bytes", "Bytes of the topic's segments on this node.", []string{"topic"}, nil),
		openLogs:   one("narad_open_partition_logs", "Partition logs open now."),
		partitions: one("narad_partitions_total", "Partitions owned by this node."),
		restarts:   one("narad_reaper_restarts", "Replacements of the retention loop."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.lag, c.age, c.dropped, c.inflight, c.ahead, c.size, c.segments, c.topicBytes, c.openLogs, c.partitions, c.restarts,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector; it does no I/O.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.inventory.poke()
	now := c.b.opts.Clock.Now()
	for _, e := range c.b.names.Range {
		t := e.(*topic)
		v := t.view.Load()
		if v == nil {
			continue
		}
		bytes, some := int64(0), false
		for p, s := range t.all() {
			if v.OwnerOf(p) != c.b.opts.Node {
				continue
			}
			if n, ok := c.slot(ch, t, p, s, now); ok {
				bytes, some = bytes+n, true
			}
		}
		if some {
			ch <- prometheus.MustNewConstMetric(c.topicBytes, prometheus.GaugeValue, float64(bytes), t.name)
		}
	}
	gauge := func(d *prometheus.Desc, v int64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	gauge(c.openLogs, c.b.openLogs.Load())
	gauge(c.partitions, int64(c.b.owned.count()))
	gauge(c.restarts, c.b.keeper.restarts.Load())
}

// Bytes is the size of the segments of every partition whose files were looked at. It
// does no I/O.
func (b *Broker) Bytes() (n int64) {
	for _, e := range b.names.Range {
		for _, s := range e.(*topic).all() {
			if pt := s.part.Load(); pt != nil {
				n += pt.Gauges().SizeBytes
			} else if known := s.rest.Load(); known != nil {
				n += known.stats.SizeBytes
			}
		}
	}
	return n
}

// slot exports one partition, if anything is known of it.
func (c *collector) slot(ch chan<- prometheus.Metric, t *topic, p int, s *slot, now time.Time) (bytes int64, ok bool) {
	known := s.rest.Load()
	var g partition.Gauges
	switch pt := s.part.Load(); {
	case pt != nil:
		g = pt.Gauges()
		if !g.Loaded && known != nil && known.frontier != frontierUnknown {
			g.Frontier, g.Loaded = known.frontier, true
		}
	case known != nil && !known.empty:
		g = partition.Gauges{Stats: known.stats, Frontier: known.frontier, Loaded: known.frontier != frontierUnknown}
	default:
		return 0, false
	}
	label := strconv.Itoa(p)
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, t.name, label)
	}
	gauge(c.size, float64(g.SizeBytes))
	gauge(c.segments, float64(g.Segments))
	gauge(c.inflight, float64(g.InFlight))
	gauge(c.ahead, float64(g.AckedAhead))
	if !g.Loaded {
		return g.SizeBytes, true // the frontier is not known yet: no lag rather than a wrong one
	}
	lag := max(0, g.HighWatermark-g.Frontier)
	gauge(c.lag, float64(lag))
	gauge(c.dropped, float64(max(0, g.OldestOffset-g.Frontier)))
	if age, ok := oldestAge(lag, g, known, now); ok {
		gauge(c.age, age)
	}
	return g.SizeBytes, true
}

// oldestAge is the age of the oldest unacked record in seconds, as far as the inventory
// has read it.
func oldestAge(lag int64, g partition.Gauges, known *resting, now time.Time) (float64, bool) {
	switch {
	case lag == 0:
		return 0, true
	case known != nil && known.oldestAt > 0:
		return max(0, float64(now.UnixMilli()-known.oldestAt)/1000), true
	case !g.OldestSegmentAt.IsZero():
		return max(0, now.Sub(g.OldestSegmentAt).Seconds()), true // an upper bound
	}
	return 0, false
}
