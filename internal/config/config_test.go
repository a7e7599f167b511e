package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func noEnv(string) string { return "" }

func TestDefaultsAreValid(t *testing.T) {
	c, err := Load(nil, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatalf("the built-in settings are refused: %v", err)
	}
}

// sample is a value for a field that differs from every default: its JSON form,
// its text form, and a second text for the layer above.
func sample(field any) (inJSON, text, text2 string) {
	switch field.(type) {
	case *string:
		return `"file-1"`, "env-1", "flag-1"
	case *bool:
		return "true", "false", "true"
	case *time.Duration:
		return `"71ms"`, "72ms", "73ms"
	case *[]string:
		return `["a","b"]`, "c,d", "e"
	case *[]Peer:
		return `[{"id":"a","addr":"h:1"},{"id":"b","addr":"h:2","api_port":3}]`, "c@h:4,d@h:5/6", "e@h:7"
	}
	return "71", "72", "73"
}

// fromJSON is a sample's JSON form as value shows it.
func fromJSON(field any, inJSON string) string {
	switch field.(type) {
	case *[]string:
		return "a,b"
	case *[]Peer:
		return "a@h:1,b@h:2/3"
	}
	return strings.Trim(inJSON, `"`)
}

func value(field any) string {
	switch f := field.(type) {
	case *[]string:
		return strings.Join(*f, ",")
	case *[]Peer:
		var out []string
		for _, p := range *f {
			out = append(out, p.String())
		}
		return strings.Join(out, ",")
	case *string:
		return *f
	case *bool:
		return fmt.Sprint(*f)
	case *time.Duration:
		return f.String()
	case *int:
		return fmt.Sprint(*f)
	case *int64:
		return fmt.Sprint(*f)
	}
	return "?"
}

func fieldOf(c *Config, name string) any {
	for _, k := range c.keys() {
		if k.name == name {
			return k.field
		}
	}
	return nil
}

// Every key: default < file < environment < flag, each overriding only itself.
func TestPrecedenceOfEveryKey(t *testing.T) {
	base := Default()
	for _, k := range base.keys() {
		t.Run(k.name, func(t *testing.T) {
			inJSON, text, text2 := sample(k.field)
			block, leaf, _ := strings.Cut(k.name, ".")
			file := fmt.Appendf(nil, `{%q:{%q:%s}}`, block, leaf, inJSON)

			c, err := Load(file, noEnv)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := value(fieldOf(&c, k.name)), fromJSON(k.field, inJSON); got != want {
				t.Errorf("from the file: got %s, want %s", got, want)
			}
			for _, other := range c.keys() {
				if got, want := value(other.field), value(fieldOf(&base, other.name)); other.name != k.name && got != want {
					t.Errorf("%s became %s, want its default %s", other.name, got, want)
				}
			}
			if k.env != "" {
				env := func(n string) string {
					if n == k.env {
						return text
					}
					return ""
				}
				if c, err = Load(file, env); err != nil {
					t.Fatal(err)
				}
				if got := value(fieldOf(&c, k.name)); got != text {
					t.Errorf("environment over file: got %s, want %s", got, text)
				}
			}
			if err := c.Set(k.name, text2); err != nil {
				t.Fatal(err)
			}
			if got := value(fieldOf(&c, k.name)); got != text2 {
				t.Errorf("flag over all: got %s, want %s", got, text2)
			}
		})
	}
}

func TestFileRefusals(t *testing.T) {
	const prefix = "config: load file: "
	for _, tc := range []struct{ name, file, want string }{
		{"unknown key", `{"http":{"addrr":":1"}}`, prefix + `json: unknown field "addrr"`},
		{"unknown block", `{"htp":{"addr":":1"}}`, prefix + `json: unknown field "htp"`},
		{"internal key", `{"storage":{"segment_bytes":1}}`, prefix + `storage.segment_bytes is an internal setting and cannot be configured`},
		{"duplicate key", `{"http":{"addr":":1","addr":":2"}}`, prefix + `duplicate key "addr"`},
		{"duplicate block", `{"http":{},"http":{}}`, prefix + `duplicate key "http"`},
		{"bare duration", `{"http":{"read_timeout":10}}`, prefix + `http.read_timeout: 10 is not a duration with a unit`},
		{"wrong type", `{"http":{"max_connections":"x"}}`, prefix + `http.max_connections: `},
		{"null", `{"http":{"addr":null}}`, prefix + `http.addr: null is not a value`},
		{"trailing data", `{} {}`, prefix + `data after the configuration object`},
		{"not an object", `[]`, prefix + `got [, want an object`},
		{"cut short", `{"http":{"addr":`, prefix},
		{"peer with an unknown field", `{"cluster":{"peers":[{"id":"a","adr":"h:1"}]}}`, prefix + `cluster.peers: json: unknown field "adr"`},
		{"peer with a field twice", `{"cluster":{"peers":[{"id":"a","id":"b"}]}}`, prefix + `cluster.peers: duplicate key "id"`},
		{"peer as text", `{"cluster":{"peers":["a@h:1"]}}`, prefix + `cluster.peers: got a@h:1, want an object`},
		{"peers as text", `{"cluster":{"peers":"a@h:1"}}`, prefix + `cluster.peers: json: `},
		{"peer's API port", `{"cluster":{"peers":[{"id":"a","addr":"h:1","api_port":65536}]}}`, prefix + `cluster.peers: peer "a": API port 65536 must be 1 to 65535`},
		{"peer without a port", `{"cluster":{"peers":[{"id":"a","addr":"h","api_port":1}]}}`, prefix + `cluster.peers: peer "a": "h" is not host:port`},
		{"initial members", `{"cluster":{"initial_members":"a"}}`, prefix + `cluster.initial_members: `},
		{"secret in the file", `{"cluster":{"secret":"x"}}`, prefix + `json: unknown field "secret"`},
		{"too large", `{"http":{"addr":"` + strings.Repeat("x", fileBytesMax) + `"}}`, prefix},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Load([]byte(tc.file), noEnv)
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Fatalf("got %v, want prefix %q", err, tc.want)
			}
		})
	}
}

func TestEnvironmentRefusals(t *testing.T) {
	for env, bad := range map[string]string{
		"NARAD_HTTP_READ_TIMEOUT":     "10",
		"NARAD_HTTP_MAX_CONNECTIONS":  "many",
		"NARAD_SECURITY_ENABLED":      "yes",
		"NARAD_STORAGE_RESERVE_BYTES": "1MiB",
		"NARAD_CLUSTER_PEERS":         "n2",
	} {
		_, err := Load(nil, func(n string) string {
			if n == env {
				return bad
			}
			return ""
		})
		if err == nil || !strings.Contains(err.Error(), env) || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s=%s: got %v, want an error that names both", env, bad, err)
		}
	}
}

func TestValidateReportsEveryProblemWithBothValues(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"wait over grace", func(c *Config) { c.HTTP.MaxConsumeWait = 20 * time.Second }, "http.max_consume_wait (20s) must be <= http.shutdown_grace (10s)"},
		{"wait at write timeout", func(c *Config) { c.HTTP.WriteTimeout = 10 * time.Second }, "http.max_consume_wait (10s) must be < http.write_timeout (10s)"},
		{"same address", func(c *Config) { c.Cluster.Addr = c.HTTP.Addr }, "cluster.addr (:7942) must differ from http.addr (:7942)"},
		{"address without port", func(c *Config) { c.HTTP.Addr = "localhost" }, `http.addr "localhost" is not host:port`},
		{"header bytes", func(c *Config) { c.HTTP.MaxHeaderBytes = 4095 }, "http.max_header_bytes (4095) must be >= 4096"},
		{"codec", func(c *Config) { c.Storage.Codec = "lz4" }, `storage.codec "lz4": want none or zstd`},
		{"eviction", func(c *Config) { c.Storage.IdleLogEvictionMS = 59_999 }, "storage.idle_log_eviction_ms (59999) must be 0 or >= 60000"},
		{"walk", func(c *Config) { c.Storage.ColdRetentionWalkMS = 1 }, "storage.cold_retention_walk_ms (1) must be 0 or >= 60000"},
		{"interval low", func(c *Config) { c.Storage.OffsetCommitIntervalMS = 9 }, "storage.consumer_offset_commit_interval_ms (9) must be 10 to 60000"},
		{"interval high", func(c *Config) { c.Storage.OffsetCommitIntervalMS = 60_001 }, "storage.consumer_offset_commit_interval_ms (60001) must be 10 to 60000"},
		{"partitions", func(c *Config) { c.Topic.DefaultPartitions = 2 }, "topic.default_partitions (2) must be 3 to topic.max_partitions (108)"},
		{"max partitions", func(c *Config) { c.Topic.MaxPartitions = 2 }, "topic.default_partitions (3) must be 3 to topic.max_partitions (2)"},
		{"retention", func(c *Config) { c.Topic.DefaultRetentionMS = 3_599_999 }, "topic.default_retention_age_ms (3599999) must be 0 or 3600000"},
		{"visibility over retention", func(c *Config) { c.Topic.DefaultRetentionMS = 3_600_000; c.Topic.DefaultVisibilityMS = 3_600_001 },
			"topic.default_visibility_timeout_ms (3600001) must be <= topic.default_retention_age_ms (3600000)"},
		{"node id", func(c *Config) { c.Cluster.NodeID = "a b" }, `cluster.node_id "a b": want 1 to 128`},
		{"level", func(c *Config) { c.Log.Level = "loud" }, `log.level "loud": want debug, info, warn or error`},
		{"format", func(c *Config) { c.Log.Format = "xml" }, `log.format "xml": want json or text`},
		{"slab records", func(c *Config) { c.Fanout.MaxBatchRecords = 0 }, "fanout.max_batch_records (0) must be > 0"},
		{"slab bytes", func(c *Config) { c.Fanout.MaxBatchBytes = -1 }, "fanout.max_batch_bytes (-1) must be > 0"},
		{"linger", func(c *Config) { c.Fanout.LingerMS = -1 }, "fanout.linger_ms (-1) must be >= 0"},
		{"reserve", func(c *Config) { c.Storage.ReserveBytes = -2 }, "storage.reserve_bytes (-2) must be >= 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Default()
			tc.change(&c)
			c.HTTP.IdleTimeout = -1 // a second problem: both must be reported
			err := c.Validate()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if !strings.Contains(err.Error(), "http.idle_timeout (-1ns) must be > 0") {
				t.Errorf("the second problem is not reported: %v", err)
			}
		})
	}
}

func FuzzLoadFile(f *testing.F) {
	f.Add([]byte(`{"http":{"addr":":1"},"storage":{"codec":"zstd"}}`))
	f.Add([]byte(`{"http":{"read_timeout":"10s"}}`))
	f.Add([]byte(`{"cluster":{"peers":[{"id":"a","addr":"h:1","api_port":2}],"initial_members":["a"]}}`))
	f.Add([]byte(`[{`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := Load(b, noEnv); err == nil {
			_ = c.Validate()
		}
	})
}
