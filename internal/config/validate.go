package config

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

// Limits of settings (spec/operations section 2.4).
const (
	headerBytesMin      = 4096
	idleEvictionMSMin   = 60_000
	offsetIntervalMSMin = 10
	offsetIntervalMSMax = 60_000
	snapshotIntervalMin = 5 * time.Millisecond
	nodeIDMax           = 128
)

// problems collects every violation, so that one start shows them all.
type problems struct{ errs []error }

func (p *problems) check(ok bool, format string, args ...any) {
	if !ok {
		p.errs = append(p.errs, fmt.Errorf("config: "+format, args...))
	}
}

// Validate checks the merged settings and reports every problem found, one per
// line, each naming its key and both values. It completes what one setting takes from
// another: the API port of peers that were named without one.
func (c *Config) Validate() error {
	var p problems
	c.validateHTTP(&p)
	c.validateCluster(&p)
	c.validateStorage(&p)
	c.validateTopic(&p)
	p.check(c.Fanout.MaxBatchRecords > 0, "fanout.max_batch_records (%d) must be > 0", c.Fanout.MaxBatchRecords)
	p.check(c.Fanout.MaxBatchBytes > 0, "fanout.max_batch_bytes (%d) must be > 0", c.Fanout.MaxBatchBytes)
	p.check(c.Fanout.LingerMS >= 0, "fanout.linger_ms (%d) must be >= 0", c.Fanout.LingerMS)
	switch c.Log.Level {
	case "debug", "info", "warn", "error":
	default:
		p.check(false, "log.level %q: want debug, info, warn or error", c.Log.Level)
	}
	p.check(c.Log.Format == "json" || c.Log.Format == "text", "log.format %q: want json or text", c.Log.Format)
	return errors.Join(p.errs...)
}

func (c *Config) validateHTTP(p *problems) {
	h := &c.HTTP
	checkAddr(p, "http.addr", h.Addr)
	if h.MetricsAddr != "" {
		checkAddr(p, "http.metrics_addr", h.MetricsAddr)
		p.check(distinct(h.MetricsAddr, h.Addr), "http.metrics_addr %s must differ from http.addr", h.MetricsAddr)
	}
	if h.PprofAddr != "" {
		checkAddr(p, "http.pprof_addr", h.PprofAddr)
		p.check(distinct(h.PprofAddr, h.Addr), "http.pprof_addr %s must differ from http.addr", h.PprofAddr)
	}
	p.check(h.ReadTimeout > 0, "http.read_timeout (%v) must be > 0", h.ReadTimeout)
	p.check(h.WriteTimeout > 0, "http.write_timeout (%v) must be > 0", h.WriteTimeout)
	p.check(h.IdleTimeout > 0, "http.idle_timeout (%v) must be > 0", h.IdleTimeout)
	p.check(h.MaxConsumeWait >= 0, "http.max_consume_wait (%v) must be >= 0", h.MaxConsumeWait)
	p.check(h.MaxConsumeWait <= h.ShutdownGrace,
		"http.max_consume_wait (%v) must be <= http.shutdown_grace (%v)", h.MaxConsumeWait, h.ShutdownGrace)
	p.check(h.MaxConsumeWait < h.WriteTimeout,
		"http.max_consume_wait (%v) must be < http.write_timeout (%v)", h.MaxConsumeWait, h.WriteTimeout)
	p.check(h.MaxHeaderBytes >= headerBytesMin, "http.max_header_bytes (%d) must be >= %d", h.MaxHeaderBytes, headerBytesMin)
	p.check(h.MaxConnections >= 0, "http.max_connections (%d) must be >= 0", h.MaxConnections)
	p.check(h.MaxConsumeInFlightPerID >= 0, "http.max_consume_in_flight_per_identity (%d) must be >= 0", h.MaxConsumeInFlightPerID)
	p.check(h.MaxProduceInFlightPerID >= 0, "http.max_produce_in_flight_per_identity (%d) must be >= 0", h.MaxProduceInFlightPerID)
	p.check(h.MaxBatchBodyBytesInFlight >= 0, "http.max_batch_body_bytes_in_flight (%d) must be >= 0", h.MaxBatchBodyBytesInFlight)
}

func (c *Config) validateCluster(p *problems) {
	cl := &c.Cluster
	checkAddr(p, "cluster.addr", cl.Addr)
	p.check(distinct(cl.Addr, c.HTTP.Addr), "cluster.addr (%s) must differ from http.addr (%s)", cl.Addr, c.HTTP.Addr)
	if cl.AdvertiseAddr != "" {
		checkDialable(p, "cluster.advertise_addr", cl.AdvertiseAddr)
	}
	c.validatePeers(p)
	p.check(validNodeID(cl.NodeID), "cluster.node_id %q: want 1 to %d of A-Z a-z 0-9 . _ -", cl.NodeID, nodeIDMax)
	p.check(cl.SnapshotThreshold > 0, "cluster.raft_snapshot_threshold (%d) must be > 0", cl.SnapshotThreshold)
	p.check(cl.SnapshotInterval >= snapshotIntervalMin, "cluster.raft_snapshot_interval (%v) must be >= %v", cl.SnapshotInterval, snapshotIntervalMin)
	p.check(cl.TrailingLogs >= 0, "cluster.raft_trailing_logs (%d) must be >= 0", cl.TrailingLogs)
}

func (c *Config) validateStorage(p *problems) {
	s := &c.Storage
	p.check(s.DataDir != "", "storage.data_dir must not be empty")
	p.check(s.Codec == "none" || s.Codec == "zstd", "storage.codec %q: want none or zstd", s.Codec)
	switch s.CompressionLevel {
	case "fastest", "default", "better", "best":
	default:
		p.check(false, "storage.compression_level %q: want fastest, default, better or best", s.CompressionLevel)
	}
	p.check(s.IdleLogEvictionMS == 0 || s.IdleLogEvictionMS >= idleEvictionMSMin,
		"storage.idle_log_eviction_ms (%d) must be 0 or >= %d", s.IdleLogEvictionMS, idleEvictionMSMin)
	p.check(s.ColdRetentionWalkMS == 0 || s.ColdRetentionWalkMS >= idleEvictionMSMin,
		"storage.cold_retention_walk_ms (%d) must be 0 or >= %d", s.ColdRetentionWalkMS, idleEvictionMSMin)
	p.check(s.OffsetCommitIntervalMS >= offsetIntervalMSMin && s.OffsetCommitIntervalMS <= offsetIntervalMSMax,
		"storage.consumer_offset_commit_interval_ms (%d) must be %d to %d", s.OffsetCommitIntervalMS, offsetIntervalMSMin, offsetIntervalMSMax)
	p.check(s.ReserveBytes >= ReserveAuto, "storage.reserve_bytes (%d) must be >= 0, or -1 for the default share of the volume", s.ReserveBytes)
}

func (c *Config) validateTopic(p *problems) {
	t := &c.Topic
	p.check(t.DefaultPartitions >= model.PartitionsMin && t.DefaultPartitions <= t.MaxPartitions,
		"topic.default_partitions (%d) must be %d to topic.max_partitions (%d)", t.DefaultPartitions, model.PartitionsMin, t.MaxPartitions)
	p.check(t.DefaultRetentionMS == 0 || t.DefaultRetentionMS >= model.RetentionMSMin && t.DefaultRetentionMS <= model.RetentionMSMax,
		"topic.default_retention_age_ms (%d) must be 0 or %d to %d", t.DefaultRetentionMS, model.RetentionMSMin, model.RetentionMSMax)
	p.check(t.DefaultVisibilityMS > 0 && t.DefaultVisibilityMS <= model.VisibilityMSMax,
		"topic.default_visibility_timeout_ms (%d) must be 1 to %d", t.DefaultVisibilityMS, model.VisibilityMSMax)
	p.check(t.DefaultRetentionMS == 0 || t.DefaultVisibilityMS <= t.DefaultRetentionMS,
		"topic.default_visibility_timeout_ms (%d) must be <= topic.default_retention_age_ms (%d)", t.DefaultVisibilityMS, t.DefaultRetentionMS)
	p.check(t.DefaultMaxInFlight > 0, "topic.default_max_in_flight_per_partition (%d) must be > 0", t.DefaultMaxInFlight)
	p.check(t.DefaultMaxAckedAhead > 0, "topic.default_max_acked_ahead_per_partition (%d) must be > 0", t.DefaultMaxAckedAhead)
}

// distinct reports whether two listeners can be bound; port 0 never collides.
func distinct(a, b string) bool { return a != b || strings.HasSuffix(a, ":0") }

func checkAddr(p *problems, name, addr string) {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	p.check(err == nil, "%s %q is not host:port: %w", name, addr, err)
}

func validNodeID(id string) bool {
	if id == "" || len(id) > nodeIDMax {
		return false
	}
	for _, c := range []byte(id) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !ok {
			return false
		}
	}
	return true
}
