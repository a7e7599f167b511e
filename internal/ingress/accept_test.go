package ingress

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

var bg = context.Background()

func TestAcceptRefusals(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3)
	child := w.create("child", idB, 3)
	child.Parent, child.FanoutDelayMS = "t", 1000
	plain := w.create("plain", idB, 3)
	plain.Parent = "t"
	w.create("odd", "not an id", 3)
	run(t, w, func(t *testing.T, in *Ingress) {
		for _, c := range []struct {
			name, topic string
			m           Message
			want        error
			text        string
		}{
			{"unknown topic", "x", Message{Partition: AnyPartition}, model.ErrTopicNotFound, "topic not found"},
			{"delay child", "child", Message{Partition: AnyPartition}, model.ErrDelayedChild,
				"direct produce to a delayed child topic is not allowed"},
			{"child without delay", "plain", Message{Partition: AnyPartition}, nil, ""},
			{"P-3 partition = count", "t", Message{Partition: 3}, model.ErrInvalid, "invalid argument: partition out of range"},
			{"P-3 partition -2", "t", Message{Partition: -2}, model.ErrInvalid, "invalid argument: partition out of range"},
			{"last partition", "t", Message{Partition: 2}, nil, ""},
			{"record of exactly 2 MiB", "t", Message{Partition: 0, Key: make([]byte, 1<<20), Payload: make([]byte, 1<<20-46)}, nil, ""},
			{"record of one byte more", "t", Message{Partition: 0, Key: make([]byte, 1<<20), Payload: make([]byte, 1<<20-45)}, model.ErrTooLarge, ""},
			{"id that would not decode", "odd", Message{Partition: 0}, errors.ErrUnsupported, ""},
		} {
			err := in.Accept(bg, c.topic, c.m)
			if c.want == errors.ErrUnsupported {
				if err == nil {
					t.Errorf("%s: accepted", c.name)
				}
				continue
			}
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("%s: error %v, want %v", c.name, err, c.want)
			}
			if c.text != "" && err.Error() != c.text {
				t.Errorf("%s: text %q, want %q", c.name, err, c.text)
			}
		}
		if got := testutil.ToFloat64(in.metrics.rejections.WithLabelValues("child", "delayed_child")); got != 1 {
			t.Errorf("%v delayed_child rejections counted, want 1", got)
		}
	})
}

func TestAcceptManyIsAllOrNothing(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3)
	run(t, w, func(t *testing.T, in *Ingress) {
		bad := []Message{{Payload: text("a"), Partition: 0}, {Payload: text("b"), Partition: 7}, {Payload: text("c"), Partition: 8}}
		err := in.AcceptMany(bg, "t", bad)
		var me *MessageError
		if !errors.As(err, &me) || me.Index != 1 || !errors.Is(err, model.ErrInvalid) {
			t.Fatalf("error %v, want message 1 refused as invalid", err)
		}
		if err := in.AcceptMany(bg, "x", bad); !errors.Is(err, model.ErrTopicNotFound) || errors.As(err, &me) {
			t.Fatalf("error %v, want topic not found for the batch", err)
		}
		after(0)
		if len(w.all()) != 0 || in.log.Next() != 1 {
			t.Fatalf("a refused batch left %v, next seq %d", w.all(), in.log.Next())
		}
		if err := in.AcceptMany(bg, "t", nil); err != nil || in.log.Next() != 1 {
			t.Fatalf("empty batch: %v", err)
		}
		bad[1].Partition, bad[2].Partition = 1, 2
		if err := in.AcceptMany(bg, "t", bad); err != nil {
			t.Fatal(err)
		}
		after(lingerMax)
		times := map[int64]bool{}
		for p := range 3 {
			for _, r := range w.node(self).logs["t/"+string(rune('0'+p))] {
				times[r.AcceptedAt] = true
				if r.Incarnation != idA {
					t.Fatalf("record with id %q", r.Incarnation)
				}
			}
		}
		if len(w.all()) != 3 || len(times) != 1 {
			t.Fatalf("stored %v with %d accept times, want all three with one", w.all(), len(times))
		}
	})
}

func TestAcceptAfterLatchAndReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.create("t", idA, 3)
		sim := disk.NewSim(1)
		in := mustOpen(t, w.options(sim, clock.Real()))
		sim.Fail(disk.Rule{Op: disk.OpSync, Path: "*.wal", N: 1, Err: errInjected})
		for range 2 {
			if err := in.Accept(bg, "t", Message{Partition: 0}); !errors.Is(err, model.ErrWALFailed) {
				t.Fatalf("error %v, want ErrWALFailed", err)
			}
		}
		if !errors.Is(in.Failed(), model.ErrWALFailed) {
			t.Fatalf("Failed() = %v", in.Failed())
		}
		_ = in.Close()

		sim = disk.NewSim(2)
		sim.SetCapacity(1 << 20)
		o := w.options(sim, clock.Real())
		o.ReserveBytes = 1 << 30
		in = mustOpen(t, o)
		if err := in.Accept(bg, "t", Message{Partition: 0}); !errors.Is(err, model.ErrDiskReserve) {
			t.Fatalf("error %v, want ErrDiskReserve", err)
		}
		mustClose(t, in)
		if err := in.Accept(bg, "t", Message{Partition: 0}); err == nil {
			t.Fatal("accepted after Close")
		}
	})
}

func TestMetricsAreRegisteredAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.create("t", idA, 3)
		w.setUnowned("t", 0, true)
		o := w.options(disk.NewSim(1), clock.Real())
		reg := newRegistry()
		o.Registry = reg
		in := mustOpen(t, o)
		mustAccept(t, in, "t", Message{Partition: 0})
		after(7_000_000_000)
		want := `
# HELP narad_ingress_dispatch_backlog_records Durable next sequence minus stored checkpoint: what a restart would replay.
# TYPE narad_ingress_dispatch_backlog_records gauge
narad_ingress_dispatch_backlog_records 1
# HELP narad_ingress_dispatch_oldest_age_seconds Age of the oldest accepted record that is not done, 0 when there is none.
# TYPE narad_ingress_dispatch_oldest_age_seconds gauge
narad_ingress_dispatch_oldest_age_seconds 7
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want),
			"narad_ingress_dispatch_backlog_records", "narad_ingress_dispatch_oldest_age_seconds"); err != nil {
			t.Error(err)
		}
		mustClose(t, in)
		in = mustOpen(t, o) // the same registry again
		w.setUnowned("t", 0, false)
		after(1_000_000_000)
		if in.oldestAge() != 0 || in.Backlog() != 0 {
			t.Errorf("age %v, backlog %d after all is done", in.oldestAge(), in.Backlog())
		}
		mustClose(t, in)
	})
}

// TestAcceptAllocations: at most four from the parsed request to durable, for a
// producer that has a group commit to itself.
func TestAcceptAllocations(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3)
	o := w.options(disk.OS{}, clock.Real())
	o.Dir = t.TempDir()
	in := mustOpen(t, o)
	in.StopDispatch()
	payload := make([]byte, 100)
	n := testing.AllocsPerRun(200, func() {
		if err := in.Accept(bg, "t", Message{Payload: payload, Partition: AnyPartition}); err != nil {
			t.Fatal(err)
		}
	})
	mustClose(t, in)
	if n > 4 {
		t.Fatalf("%v allocations a message", n)
	}
}

// TestAcceptChecksSchemas: a payload is checked after its partition (P-3, P-5) and
// before anything is stored; the first message that fails decides (SV-10, PB-7), and
// every refusal counts, for want of capacity too (P-14).
func TestAcceptChecksSchemas(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3).SchemaVersion = 1
	w.create("plain", idB, 3)
	run(t, w, func(t *testing.T, in *Ingress) {
		gone, cancel := context.WithCancel(bg)
		cancel()
		for _, c := range []struct {
			name, topic string
			ctx         context.Context
			ms          []Message
			index       int // of the refused message
			want        error
		}{
			{"good", "t", bg, []Message{{Payload: text("good")}}, 0, nil},
			{"bad", "t", bg, []Message{{Payload: text("bad")}}, 0, model.ErrInvalid},
			{"partition before schema", "t", bg, []Message{{Payload: text("busy"), Partition: 9}}, 0, errPartitionRange},
			{"busy", "t", bg, []Message{{Payload: text("busy")}}, 0, model.ErrSchemaBusy},
			{"left", "t", gone, []Message{{Payload: text("good")}}, 0, context.Canceled},
			{"first bad one", "t", bg, []Message{{Payload: text("good")}, {Payload: text("busy")}, {Payload: text("bad")}}, 1, model.ErrSchemaBusy},
			{"no schema", "plain", bg, []Message{{Payload: text("bad")}}, 0, nil},
		} {
			if len(c.ms) == 1 {
				if err := in.Accept(c.ctx, c.topic, c.ms[0]); !errors.Is(err, c.want) || c.want == nil && err != nil {
					t.Errorf("%s: %v, want %v", c.name, err, c.want)
				}
			}
			err := in.AcceptMany(c.ctx, c.topic, c.ms)
			var me *MessageError
			if !errors.Is(err, c.want) || c.want == nil && err != nil || c.want != nil && (!errors.As(err, &me) || me.Index != c.index) {
				t.Errorf("%s in a batch: %v, want message %d: %v", c.name, err, c.index, c.want)
			}
		}
		if got := testutil.ToFloat64(in.metrics.rejections.WithLabelValues("t", "schema")); got != 7 {
			t.Errorf("%v schema rejections counted, want 7", got)
		}
		after(lingerMax)
		if got := w.all(); len(got) != 2 || got["good"] != 2 || got["bad"] != 2 { // t's and plain's, single and batch
			t.Errorf("stored %v", got)
		}
	})
}
