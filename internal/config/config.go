// Package config holds the node's settings as one value: built-in defaults, then a
// JSON file, then the environment, then flags, each layer overriding single keys;
// validated once, after the merge (spec/operations section 2). Nothing is reloaded.
package config

import (
	"os"
	"time"
)

// Config is every setting of a node.
type Config struct {
	HTTP     HTTP
	Cluster  Cluster
	Storage  Storage
	Topic    Topic
	Fanout   Fanout
	Log      Log
	Security Security
}

// HTTP is the client API and its neighbours. Durations bound one request.
type HTTP struct {
	Addr                      string
	ReadTimeout               time.Duration
	WriteTimeout              time.Duration
	IdleTimeout               time.Duration
	ShutdownGrace             time.Duration
	MaxConsumeWait            time.Duration // 0 = a ceiling of 30 s
	MaxHeaderBytes            int
	MaxConnections            int   // 0 = no cap
	MaxConsumeInFlightPerID   int   // 0 = no cap
	MaxProduceInFlightPerID   int   // 0 = no cap
	MaxBatchBodyBytesInFlight int64 // 0 = no cap
	MetricsAddr               string
	MetricsUnauthenticated    bool
	PprofAddr                 string
}

// Cluster is the node's identity and its Raft settings.
type Cluster struct {
	NodeID            string
	Addr              string
	AdvertiseAddr     string   // "" = this node's entry in Peers, else Addr
	Peers             []Peer   // the same on every node; none = a node of its own
	InitialMembers    []string // ids that may start the cluster; none = every peer
	SnapshotThreshold int
	SnapshotInterval  time.Duration
	TrailingLogs      int
}

// Storage is what the node keeps on disk. Fields ending in MS are milliseconds.
type Storage struct {
	DataDir                string
	Codec                  string
	CompressionLevel       string
	IdleLogEvictionMS      int64 // 0 = off
	ColdRetentionWalkMS    int64 // 0 = off
	OffsetCommitIntervalMS int64
	IngressWALPrealloc     bool
	ReserveBytes           int64 // -1 = the smaller of 64 MiB and 5 % of the volume; 0 = off
}

// Topic is what a create that leaves a field out gets.
type Topic struct {
	DefaultPartitions    int
	MaxPartitions        int
	DefaultRetentionMS   int64 // 0 = keep forever
	DefaultVisibilityMS  int64
	DefaultMaxInFlight   int
	DefaultMaxAckedAhead int
}

// Fanout bounds the slabs that fan-out cursors copy.
type Fanout struct {
	MaxBatchRecords int
	MaxBatchBytes   int   // keys and payloads
	LingerMS        int64 // to fill a slab at the end of the parent's log; 0 = none
}

// Log is the node's own log.
type Log struct {
	Level  string
	Format string
}

// Security is who may call the node.
type Security struct {
	Enabled                bool
	AllowPlaintextRaft     bool // the Raft port is fenced by other means than TLS
	AllowInsecureCluster   bool // several nodes with Enabled off
	AllowLegacyClusterAuth bool // node RPC also proves the secret as older releases do
	// PEM files of Raft's mutual TLS, read once at start: all three or none.
	ClusterTLSCertFile string
	ClusterTLSKeyFile  string
	ClusterTLSCAFile   string
}

// ReserveAuto is the value of Storage.ReserveBytes that stands for the default
// share of the volume.
const ReserveAuto = -1

// Default returns the built-in settings.
func Default() Config {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "narad"
	}
	return Config{
		HTTP: HTTP{
			Addr: ":7942", ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
			IdleTimeout: time.Minute, ShutdownGrace: 10 * time.Second, MaxConsumeWait: 10 * time.Second,
			MaxHeaderBytes: 64 << 10, MaxConnections: 4096, MaxConsumeInFlightPerID: 1024,
			MaxBatchBodyBytesInFlight: 256 << 20,
		},
		Cluster: Cluster{
			NodeID: host, Addr: ":7943",
			SnapshotThreshold: 8192, SnapshotInterval: 2 * time.Minute, TrailingLogs: 10240,
		},
		Storage: Storage{
			DataDir: "data", Codec: "none", CompressionLevel: "fastest",
			IdleLogEvictionMS: 1_800_000, ColdRetentionWalkMS: 300_000, OffsetCommitIntervalMS: 1000,
			IngressWALPrealloc: true, ReserveBytes: ReserveAuto,
		},
		Topic: Topic{
			DefaultPartitions: 3, MaxPartitions: 108, DefaultRetentionMS: 604_800_000,
			DefaultVisibilityMS: 30_000, DefaultMaxInFlight: 1024, DefaultMaxAckedAhead: 1024,
		},
		Fanout:   Fanout{MaxBatchRecords: 4096, MaxBatchBytes: 4 << 20, LingerMS: 25},
		Log:      Log{Level: "info", Format: "json"},
		Security: Security{Enabled: true},
	}
}

// key is one setting: its place in the file, its variable ("" = file only), and
// the field it sets.
type key struct {
	name, env string
	field     any // *string, *int, *int64, *bool, *time.Duration, *[]string or *[]Peer
}

func (c *Config) keys() []key {
	return []key{
		{"http.addr", "NARAD_HTTP_ADDR", &c.HTTP.Addr},
		{"http.read_timeout", "NARAD_HTTP_READ_TIMEOUT", &c.HTTP.ReadTimeout},
		{"http.write_timeout", "NARAD_HTTP_WRITE_TIMEOUT", &c.HTTP.WriteTimeout},
		{"http.idle_timeout", "NARAD_HTTP_IDLE_TIMEOUT", &c.HTTP.IdleTimeout},
		{"http.shutdown_grace", "NARAD_HTTP_SHUTDOWN_GRACE", &c.HTTP.ShutdownGrace},
		{"http.max_consume_wait", "NARAD_HTTP_MAX_CONSUME_WAIT", &c.HTTP.MaxConsumeWait},
		{"http.max_header_bytes", "NARAD_HTTP_MAX_HEADER_BYTES", &c.HTTP.MaxHeaderBytes},
		{"http.max_connections", "NARAD_HTTP_MAX_CONNECTIONS", &c.HTTP.MaxConnections},
		{"http.max_consume_in_flight_per_identity", "NARAD_HTTP_MAX_CONSUME_IN_FLIGHT_PER_IDENTITY", &c.HTTP.MaxConsumeInFlightPerID},
		{"http.max_produce_in_flight_per_identity", "NARAD_HTTP_MAX_PRODUCE_IN_FLIGHT_PER_IDENTITY", &c.HTTP.MaxProduceInFlightPerID},
		{"http.max_batch_body_bytes_in_flight", "NARAD_HTTP_MAX_BATCH_BODY_BYTES_IN_FLIGHT", &c.HTTP.MaxBatchBodyBytesInFlight},
		{"http.metrics_addr", "NARAD_HTTP_METRICS_ADDR", &c.HTTP.MetricsAddr},
		{"http.metrics_unauthenticated", "NARAD_HTTP_METRICS_UNAUTHENTICATED", &c.HTTP.MetricsUnauthenticated},
		{"http.pprof_addr", "NARAD_HTTP_PPROF_ADDR", &c.HTTP.PprofAddr},
		{"cluster.node_id", "NARAD_NODE_ID", &c.Cluster.NodeID},
		{"cluster.addr", "NARAD_CLUSTER_ADDR", &c.Cluster.Addr},
		{"cluster.advertise_addr", "NARAD_CLUSTER_ADVERTISE_ADDR", &c.Cluster.AdvertiseAddr},
		{"cluster.peers", "NARAD_CLUSTER_PEERS", &c.Cluster.Peers},
		{"cluster.initial_members", "NARAD_CLUSTER_INITIAL_MEMBERS", &c.Cluster.InitialMembers},
		{"cluster.raft_snapshot_threshold", "NARAD_CLUSTER_RAFT_SNAPSHOT_THRESHOLD", &c.Cluster.SnapshotThreshold},
		{"cluster.raft_snapshot_interval", "NARAD_CLUSTER_RAFT_SNAPSHOT_INTERVAL", &c.Cluster.SnapshotInterval},
		{"cluster.raft_trailing_logs", "NARAD_CLUSTER_RAFT_TRAILING_LOGS", &c.Cluster.TrailingLogs},
		{"storage.data_dir", "NARAD_DATA_DIR", &c.Storage.DataDir},
		{"storage.codec", "", &c.Storage.Codec},
		{"storage.compression_level", "", &c.Storage.CompressionLevel},
		{"storage.idle_log_eviction_ms", "", &c.Storage.IdleLogEvictionMS},
		{"storage.cold_retention_walk_ms", "", &c.Storage.ColdRetentionWalkMS},
		{"storage.consumer_offset_commit_interval_ms", "", &c.Storage.OffsetCommitIntervalMS},
		{"storage.ingress_wal_prealloc", "", &c.Storage.IngressWALPrealloc},
		{"storage.reserve_bytes", "NARAD_STORAGE_RESERVE_BYTES", &c.Storage.ReserveBytes},
		{"topic.default_partitions", "NARAD_TOPIC_DEFAULT_PARTITIONS", &c.Topic.DefaultPartitions},
		{"topic.max_partitions", "NARAD_TOPIC_MAX_PARTITIONS", &c.Topic.MaxPartitions},
		{"topic.default_retention_age_ms", "NARAD_TOPIC_DEFAULT_RETENTION_AGE_MS", &c.Topic.DefaultRetentionMS},
		{"topic.default_visibility_timeout_ms", "NARAD_TOPIC_DEFAULT_VISIBILITY_TIMEOUT_MS", &c.Topic.DefaultVisibilityMS},
		{"topic.default_max_in_flight_per_partition", "NARAD_TOPIC_DEFAULT_MAX_IN_FLIGHT_PER_PARTITION", &c.Topic.DefaultMaxInFlight},
		{"topic.default_max_acked_ahead_per_partition", "NARAD_TOPIC_DEFAULT_MAX_ACKED_AHEAD_PER_PARTITION", &c.Topic.DefaultMaxAckedAhead},
		{"fanout.max_batch_records", "NARAD_FANOUT_MAX_BATCH_RECORDS", &c.Fanout.MaxBatchRecords},
		{"fanout.max_batch_bytes", "NARAD_FANOUT_MAX_BATCH_BYTES", &c.Fanout.MaxBatchBytes},
		{"fanout.linger_ms", "NARAD_FANOUT_LINGER_MS", &c.Fanout.LingerMS},
		{"log.level", "NARAD_LOG_LEVEL", &c.Log.Level},
		{"log.format", "NARAD_LOG_FORMAT", &c.Log.Format},
		{"security.enabled", "NARAD_SECURITY_ENABLED", &c.Security.Enabled},
		{"security.cluster_tls_cert_file", "NARAD_CLUSTER_TLS_CERT_FILE", &c.Security.ClusterTLSCertFile},
		{"security.cluster_tls_key_file", "NARAD_CLUSTER_TLS_KEY_FILE", &c.Security.ClusterTLSKeyFile},
		{"security.cluster_tls_ca_file", "NARAD_CLUSTER_TLS_CA_FILE", &c.Security.ClusterTLSCAFile},
		{"security.allow_plaintext_raft", "NARAD_SECURITY_ALLOW_PLAINTEXT_RAFT", &c.Security.AllowPlaintextRaft},
		{"security.allow_insecure_cluster", "NARAD_SECURITY_ALLOW_INSECURE_CLUSTER", &c.Security.AllowInsecureCluster},
		{"security.allow_legacy_cluster_auth", "NARAD_SECURITY_ALLOW_LEGACY_CLUSTER_AUTH", &c.Security.AllowLegacyClusterAuth},
	}
}
