// Package docs holds the documents to the product: what they list exists, what exists
// they list.
package docs

import (
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// documented returns the series of docs/metrics.md: name to type and labels.
func documented(t *testing.T) map[string]string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(narad_[a-z0-9_]+)` \\| (\\w+) \\|([a-z, ]*)\\|").FindAllStringSubmatch(string(doc), -1) {
		if rows[m[1]] != "" {
			t.Errorf("docs/metrics.md lists %s twice", m[1])
		}
		rows[m[1]] = m[2] + " " + sorted(strings.Split(m[3], ","))
	}
	return rows
}

func sorted(labels []string) string {
	out := []string{}
	for _, l := range labels {
		if l = strings.TrimSpace(l); l != "" && l != "le" {
			out = append(out, l)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// scraped returns the series a node exports, in the same form.
func scraped(t *testing.T, url string) map[string]string {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (narad_\S+) (\w+)$`).FindAllStringSubmatch(string(body), -1) {
		types[m[1]] = m[2]
	}
	rows := map[string]string{}
	label := regexp.MustCompile(`(\w+)="`)
	for _, m := range regexp.MustCompile(`(?m)^(narad_[a-z0-9_]+)(\{.*\})? `).FindAllStringSubmatch(string(body), -1) {
		name := m[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(name, suffix); types[base] == "histogram" {
				name = base
			}
		}
		var labels []string
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			labels = append(labels, l[1])
		}
		rows[name] = types[name] + " " + sorted(labels)
	}
	return rows
}

// rare are series that only appear once something went wrong, ran for a long time or had
// another node to talk to; their packages test them.
var rare = []string{
	"narad_raft_tls_cert_not_after_seconds", "narad_produce_rejections_total", "narad_produce_rerouted_records_total",
	"narad_storage_high_watermark_persist_duration_seconds", "narad_storage_retention_bytes_deleted_total", "narad_storage_retention_messages_deleted_total",
	"narad_storage_retention_run_duration_seconds", "narad_cluster_rpc_requests_total", "narad_cluster_rpc_request_seconds",
}

// The registry and docs/metrics.md agree both ways: names, types and labels.
func TestMetricsDocument(t *testing.T) {
	node := testutil.NewNode(t, t.TempDir())
	node.Start()
	c := node.Client()
	ctx := context.Background()
	if _, err := c.CreateTopic(ctx, client.CreateTopic{Name: "orders"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateTopic(ctx, client.CreateTopic{Name: "orders-due", Parent: "orders", FanoutDelayMS: 1}); err != nil {
		t.Fatal(err)
	}
	if err := c.Produce(ctx, "orders", client.Message{Payload: []byte("{}"), Pin: client.Partition(0)}); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.ReceiveOptions{{Wait: 5 * time.Second}, {Pin: client.Partition(1)}} {
		ds, err := c.Receive(ctx, "orders", o)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			if err := c.Nack(ctx, "orders", d.Handle); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := documented(t)
	for _, name := range rare {
		if want[name] == "" {
			t.Errorf("docs/metrics.md does not list %s", name)
		}
		delete(want, name)
	}
	// Gauges of a partition follow the next inventory pass.
	testutil.Eventually(t, 15*time.Second, func() bool {
		got := scraped(t, node.URL)
		return got["narad_fanout_lag_messages"] != "" && got["narad_consumer_lag_messages"] != "" && got["narad_oldest_unconsumed_message_age_seconds"] != ""
	}, "the partition gauges")
	got := scraped(t, node.URL)
	for name, row := range want {
		if got[name] != row {
			t.Errorf("%s: documented as %q, exported as %q", name, row, got[name])
		}
	}
	for name, row := range got {
		if want[name] == "" && !slices.Contains(rare, name) {
			t.Errorf("%s (%s) is exported and not in docs/metrics.md", name, row)
		}
	}
}
