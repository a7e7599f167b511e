package crash

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// The fan-out run.
const (
	fanoutKills     = 5
	fanoutProducers = 4
	fanoutSlab      = 20 // records of a slab: what one kill may repeat, per cursor
	fanoutParts     = 3  // of the parent
	fanoutDelay     = 2 * time.Second
	fanoutDrain     = 60 * time.Second
)

// copies is what a topic holds: how often each payload, and its earliest commit second.
type copies struct {
	times map[string]int
	first map[string]int64
	total int
}

func copiesOf(t *testing.T, c *client.Client, topic string) copies {
	t.Helper()
	got := copies{times: map[string]int{}, first: map[string]int64{}}
	for m, err := range c.Replay(t.Context(), topic, client.ReplayOptions{}) {
		if err != nil {
			t.Fatalf("replay %s: %v", topic, err)
		}
		key, at := string(m.Raw), m.Timestamp.Unix()
		if at0, ok := got.first[key]; !ok || at < at0 {
			got.first[key] = at
		}
		got.times[key]++
		got.total++
	}
	return got
}

// O7: the node is killed again and again under load, with the slabs of several children
// in flight. No child has a gap, each repeats at most the slab in flight of each cursor
// and kill, and nothing reaches a delay child early.
func TestKilledUnderFanout(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the real binary for many seconds")
	}
	rng := random(t)
	node := testutil.NewNode(t, t.TempDir())
	node.Env = []string{fmt.Sprint("NARAD_FANOUT_MAX_BATCH_RECORDS=", fanoutSlab), "NARAD_FANOUT_LINGER_MS=1"}
	node.Start()
	c := node.Client()
	for _, in := range []client.CreateTopic{
		{Name: "p", Partitions: fanoutParts},
		{Name: "same", Parent: "p"}, {Name: "more", Parent: "p", Partitions: 5},
		{Name: "late", Parent: "p", FanoutDelayMS: fanoutDelay.Milliseconds()},
	} {
		if _, err := c.CreateTopic(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	var url atomic.Pointer[string]
	follow := func() { u := node.URL; url.Store(&u) }
	follow()
	accepted, stop := produceNumbers(t, &url)
	for range fanoutKills {
		before := accepted.count()
		want := 100 + rng.IntN(1500)
		testutil.Eventually(t, patience, func() bool { return accepted.count() >= before+want }, "the load to flow")
		node.Kill()
		node.Start()
		follow()
	}
	stop()
	c = node.Client()
	testutil.Eventually(t, fanoutDrain, func() bool {
		list, err := c.Children(t.Context(), "p")
		if err != nil || len(list.Children) != 3 {
			return false
		}
		for _, ch := range list.Children {
			if !ch.LagComplete || ch.LagMessages > 0 {
				return false
			}
		}
		return copiesOf(t, c, "p").has(accepted) // dispatched as well
	}, "every child to catch up")
	parent := copiesOf(t, c, "p")
	testutil.Eventually(t, fanoutDrain, func() bool { return copiesOf(t, c, "late").total >= parent.total }, "the delay child")
	for _, name := range []string{"same", "more", "late"} {
		child := copiesOf(t, c, name)
		for key, n := range parent.times {
			if child.times[key] < n {
				t.Errorf("%s has %q %d times, its parent %d times: a gap", name, key, child.times[key], n)
			}
			if early := parent.first[key] + int64(fanoutDelay/time.Second) - child.first[key]; name == "late" && early > 0 {
				t.Errorf("%s came %d s early", key, early)
			}
		}
		if len(child.times) != len(parent.times) {
			t.Errorf("%s holds %d different messages, its parent %d", name, len(child.times), len(parent.times))
		}
		repeated := child.total - parent.total
		if most := fanoutKills * fanoutParts * fanoutSlab; repeated > most {
			t.Errorf("%s repeats %d records, at most %d were in flight", name, repeated, most)
		}
		t.Logf("%s: %d records, %d repeated; parent %d, accepted %d", name, child.total, repeated, parent.total, accepted.count())
	}
	if code := node.Stop(); code != 0 {
		t.Errorf("graceful stop: exit code %d, want 0", code)
	}
}

// has reports whether everything accepted is there.
func (c copies) has(a *numbers) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, payload := range a.accepted {
		if c.times[payload] == 0 {
			return false
		}
	}
	return true
}

// numbers are the payloads that were answered 202.
type numbers struct {
	mu       sync.Mutex // guards accepted
	accepted []string
}

func (a *numbers) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.accepted)
}

// produceNumbers sends batches of different payloads to topic p until stop; batches that
// fail are not sent again.
func produceNumbers(t *testing.T, url *atomic.Pointer[string]) (a *numbers, stop func()) {
	a = &numbers{}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	for w := range fanoutProducers {
		wg.Go(func() {
			var c *client.Client
			at := ""
			for i := 0; ; i++ {
				select {
				case <-quit:
					if c != nil {
						c.Close()
					}
					return
				default:
				}
				if u := *url.Load(); u != at {
					if c != nil {
						c.Close()
					}
					c, _ = client.New(u, client.WithTimeout(5*time.Second), client.WithRetries(1))
					at = u
				}
				batch, payloads := make([]client.Message, 10), make([]string, 10)
				for k := range batch {
					payloads[k] = fmt.Sprintf(`"%d-%d-%d"`, w, i, k)
					batch[k] = client.Message{Payload: []byte(payloads[k])}
					if k%2 == 0 { // half of them keyless
						batch[k].Key = fmt.Appendf(nil, "k%d", (i+k)%50)
					}
				}
				if err := c.ProduceBatch(t.Context(), "p", batch); err != nil {
					if errors.Is(err, context.Canceled) {
						return
					}
					<-time.After(failurePause)
					continue
				}
				a.mu.Lock()
				a.accepted = append(a.accepted, payloads...)
				a.mu.Unlock()
			}
		})
	}
	return a, sync.OnceFunc(func() { close(quit); wg.Wait() })
}
