package broker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

// series returns the exposed values by "name{label values}", histograms by count.
func (r *rig) series() map[string]float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			key := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			switch {
			case m.Counter != nil:
				out[key] = m.Counter.GetValue()
			case m.Gauge != nil:
				out[key] = m.Gauge.GetValue()
			case m.Histogram != nil:
				out[key] = float64(m.Histogram.GetSampleCount())
			}
		}
	}
	return out
}

func (r *rig) wantSeries(want map[string]float64) {
	r.t.Helper()
	got := r.series()
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			r.t.Errorf("%s is %v (present: %v), want %v", k, g, ok, v)
		}
	}
}

// scrape makes the inventory pass and waits for what it should know.
func (r *rig) scrapeUntil(key string, want float64) {
	r.t.Helper()
	r.advance(inventoryEvery, func() bool {
		got, ok := r.series()[key]
		return ok && got == want
	}, fmt.Sprintf("%s to be %v", key, want))
}

func TestMetricsOfAnOpenPartition(t *testing.T) { // O10
	r := newRig(t)
	r.create(view("orders", 2))
	r.commit("orders", 1, "aa", "bb", "cc", "dd")
	ds := r.consume("orders", 3)
	r.ack(ds[1])
	if err := r.settle(ds[2], model.Extend); err != nil {
		t.Fatal(err)
	}
	if err := r.settle(ds[2], model.Nack); err != nil {
		t.Fatal(err)
	}
	_ = r.settle(ds[2], model.Ack)
	if _, err := r.b.Consume(context.Background(), ConsumeRequest{Topic: "orders", Partition: 0, Max: 1}); err != nil {
		t.Fatal(err)
	}
	r.wantSeries(map[string]float64{
		"narad_messages_produced_total{1,orders}":        4,
		"narad_bytes_produced_total{1,orders}":           8,
		"narad_messages_consumed_total{1,orders}":        3,
		"narad_bytes_consumed_total{1,orders}":           6,
		"narad_consumer_lag_messages{1,orders}":          4,
		"narad_inflight_size{1,orders}":                  1,
		"narad_acked_ahead_size{1,orders}":               1,
		"narad_consumer_dropped_messages{1,orders}":      0,
		"narad_segments{1,orders}":                       1,
		"narad_ack_extended_total{orders}":               1,
		"narad_nack_total{orders}":                       1,
		"narad_ack_rejected_total{no_lease}":             1,
		"narad_consume_empty_total{orders}":              1,
		"narad_consume_wait_seconds{hit,orders}":         1,
		"narad_consume_wait_seconds{no_wait,orders}":     1,
		"narad_open_partition_logs{}":                    1,
		"narad_partitions_total{}":                       2,
		"narad_reaper_restarts{}":                        0,
		"narad_idle_logs_evicted_total{}":                0,
		"narad_consumer_corrupt_skipped_total{1,orders}": 0,
	})
	got := r.series()
	if got["narad_partition_size_bytes{1,orders}"] == 0 || got["narad_topic_bytes{orders}"] != got["narad_partition_size_bytes{1,orders}"] {
		t.Errorf("sizes: partition %v, topic %v", got["narad_partition_size_bytes{1,orders}"], got["narad_topic_bytes{orders}"])
	}
	if _, ok := got["narad_consumer_lag_messages{0,orders}"]; ok {
		t.Error("a partition without files has gauges")
	}
}

func TestOldestUnconsumedAge(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	const age = "narad_oldest_unconsumed_message_age_seconds{0,orders}"
	r.commit("orders", 0, "a")
	committed := r.clk.Now()
	r.clk.Advance(100 * time.Second)
	r.commit("orders", 0, "b")
	d := r.one("orders")
	testutil.Eventually(t, 10*time.Second, func() bool {
		return r.series()[age] == r.clk.Now().Sub(committed).Seconds()
	}, "the age of the record at the frontier")
	r.ack(d)
	r.ack(r.one("orders"))
	r.wantSeries(map[string]float64{age: 0})
}

func TestMetricsOfAClosedPartitionComeFromDisk(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 3))
	r.commit("orders", 0, "a", "b", "c")
	r.ack(r.one("orders"))
	r.reopen()
	if err := r.b.Recover(context.Background(), r.topic.all()); err != nil {
		t.Fatal(err)
	}
	r.scrapeUntil("narad_consumer_lag_messages{0,orders}", 2) // the stored frontier, never 0
	if n := r.b.openLogs.Load(); n != 0 {
		t.Errorf("a scrape opened %d logs", n)
	}
	if _, ok := r.series()["narad_segments{2,orders}"]; ok {
		t.Error("a partition without files has gauges")
	}
	calls := r.sim.Calls()
	for range 10 {
		r.series()
		r.clk.Advance(inventoryEvery)
	}
	if n := r.sim.Calls() - calls; n != 0 {
		t.Errorf("%d I/O calls for scrapes of an unchanged node", n)
	}
}

func TestNoInventoryWithoutAScrape(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	r.commit("orders", 0, "a")
	testutil.Eventually(t, 10*time.Second, func() bool { return r.clk.Timers() == 2 }, "the keeper to be at rest")
	calls := r.sim.Calls()
	r.clk.Advance(10 * time.Second)
	if n := r.sim.Calls() - calls; n != 0 {
		t.Errorf("%d I/O calls on an idle node", n)
	}
}

func TestADeletedTopicLosesEverySeries(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	r.create(view("kept", 1))
	for _, name := range []string{"orders", "kept"} {
		r.commit(name, 0, "a")
		r.ack(r.one(name))
		r.none(name)
	}
	r.remove("orders")
	for k := range r.series() {
		if strings.Contains(k, "orders") {
			t.Errorf("%s survives the topic", k)
		}
	}
	r.wantSeries(map[string]float64{"narad_messages_produced_total{0,kept}": 1, "narad_partitions_total{}": 1})
}
