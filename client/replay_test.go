package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/narad-mq/narad/client"
)

func TestReplayYieldsEveryPartitionInOrder(t *testing.T) {
	c := dial(t)
	topic := newTopic(t, c, client.CreateTopic{Partitions: 3})
	var want []string
	for p := range 3 {
		var ms []client.Message
		for i := range 40 {
			ms = append(ms, client.Message{Payload: fmt.Appendf(nil, `"%d/%d"`, p, i), Pin: client.Partition(p)})
			want = append(want, fmt.Sprintf("%d/%d", p, i))
		}
		if err := c.ProduceBatch(bg, topic, ms); err != nil {
			t.Fatal(err)
		}
	}
	if got := settled(t, c, topic, len(want)); !slices.Equal(got, want) {
		t.Errorf("replayed %q", got)
	}
	var part []int64
	for d, err := range c.Replay(bg, topic, client.ReplayOptions{Pin: client.Partition(1), From: 5, To: 9}) {
		if err != nil || d.Partition != 1 || d.Handle != "" || string(d.Payload) != fmt.Sprintf("1/%d", d.Offset) {
			t.Errorf("%+v, %v", d, err)
		}
		part = append(part, d.Offset)
	}
	if !slices.Equal(part, []int64{5, 6, 7, 8}) {
		t.Errorf("offsets %v of [5, 9)", part)
	}
	// A loop may end early, and what is produced during a replay is not part of it.
	seen := 0
	for range c.Replay(bg, topic, client.ReplayOptions{}) {
		produceN(t, c, topic, 1)
		if seen++; seen == 3 {
			break
		}
	}
	if err := c.ProduceBatch(bg, topic, []client.Message{{Payload: []byte("1"), Pin: client.Partition(0)}}); err != nil {
		t.Fatal(err)
	}
	if n := left(t, c, topic); n == 0 {
		t.Error("a replay took the messages from the queue")
	}
}

func TestReplayErrors(t *testing.T) {
	c := dial(t)
	errs := 0
	for _, err := range c.Replay(bg, "no-such-topic", client.ReplayOptions{}) {
		if !errors.Is(err, client.ErrNotFound) {
			t.Error(err)
		}
		errs++
	}
	topic := newTopic(t, c, client.CreateTopic{})
	for _, err := range c.Replay(bg, topic, client.ReplayOptions{Pin: client.Partition(99)}) {
		if !errors.Is(err, client.ErrBadRequest) {
			t.Error(err)
		}
		errs++
	}
	for range c.Replay(bg, topic, client.ReplayOptions{}) {
		t.Error("an empty topic yields something")
	}
	produceN(t, c, topic, 50)
	settled(t, c, topic, 50)
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	for _, err := range c.Replay(ctx, topic, client.ReplayOptions{}) {
		cancel()
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			errs++
		}
	}
	if errs != 3 {
		t.Errorf("%d errors, want 3: one from each", errs)
	}
}

// Offsets that age out while a replay runs are passed over, damaged ones are told.
func TestReplayPassesOverWhatIsGone(t *testing.T) {
	var gone atomic.Int64 // offsets below it are aged out
	m := newMeddler(t, func(w http.ResponseWriter, r *http.Request, _ func()) {
		q := r.URL.Query()
		var offset int64
		fmt.Sscan(q.Get("offset"), &offset)
		switch {
		case !strings.HasSuffix(r.URL.Path, "/consume"):
			fmt.Fprintf(w, `{"partitions":1,"partition_stats":[{"index":0,"status":"ok","oldest_offset":%d,"high_watermark":60}]}`, gone.Load())
		case offset < gone.Load():
			w.WriteHeader(410)
			fmt.Fprint(w, `{"error":"aged out","code":"offset_aged_out"}`)
		case offset == 55:
			w.WriteHeader(410)
			fmt.Fprint(w, `{"error":"record is unreadable","code":"record_unreadable"}`)
		default:
			fmt.Fprintf(w, `{"topic":"t","partition":0,"offset":%d,"payload":1,"timestamp":1}`, offset)
		}
	})
	gone.Store(3)
	var got []int64
	damaged := 0
	for d, err := range dialTo(t, m.URL).Replay(bg, "t", client.ReplayOptions{From: 1}) {
		switch {
		case errors.Is(err, client.ErrUnreadable):
			if damaged++; d.Offset != 55 || d.Partition != 0 {
				t.Errorf("damaged: %+v", d)
			}
		case err != nil:
			t.Fatal(err)
		default:
			got = append(got, d.Offset)
		}
		if d.Offset == 10 {
			gone.Store(50)
		}
	}
	// Reads that were under way when retention struck may still be served.
	if damaged != 1 || got[0] != 3 || !slices.IsSorted(got) || slices.Contains(got, 40) || !slices.Contains(got, 50) || got[len(got)-1] != 59 {
		t.Errorf("%d damaged; offsets %v", damaged, got)
	}
}

// A partition whose owner comes back is waited for.
func TestReplayWaitsForTheOwner(t *testing.T) {
	var calls atomic.Int64
	m := newMeddler(t, func(w http.ResponseWriter, r *http.Request, _ func()) {
		switch n := calls.Add(1); {
		case !strings.HasSuffix(r.URL.Path, "/consume") && n < 3:
			fmt.Fprint(w, `{"partitions":1,"partial":true,"partition_stats":[{"index":0,"status":"owner_unavailable","owner_liveness":"dead"}]}`)
		case !strings.HasSuffix(r.URL.Path, "/consume"):
			fmt.Fprint(w, `{"partitions":1,"partition_stats":[{"index":0,"status":"ok","high_watermark":1}]}`)
		case n < 12:
			http.Error(w, "partition owner is down; retry later", http.StatusServiceUnavailable)
		default:
			fmt.Fprint(w, `{"topic":"t","offset":0,"payload":1}`)
		}
	})
	n := 0
	for _, err := range dialTo(t, m.URL, client.WithBackoff(1, 2)).Replay(bg, "t", client.ReplayOptions{}) {
		if err != nil {
			t.Error(err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d records, want 1", n)
	}
}
