package load

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// The figures of TestIdleChildrenCostNothing.
const (
	linkedTopics = 5000
	linkedPairs  = 1250 // parents of one child; the other topics are in large families
	familySize   = 100  // topics of such a family, its parent included
	linkedMemory = 384 << 20
	hour         = time.Hour
)

func linkedName(i int) string { return fmt.Sprintf("linked-%05d", i) }

// parentOf is the parent of the i-th topic, "" = it is one.
func parentOf(i int) string {
	if i < 2*linkedPairs {
		if i%2 == 1 {
			return linkedName(i - 1)
		}
		return ""
	}
	if of := i - (i-2*linkedPairs)%familySize; of != i {
		return linkedName(of)
	}
	return ""
}

// workers calls f for 0 to n-1, several at once.
func workers(tb testing.TB, n int, f func(i int) error) {
	tb.Helper()
	var wg sync.WaitGroup
	for w := range idleWorkers {
		wg.Go(func() {
			for i := w; i < n && !tb.Failed(); i += idleWorkers {
				if err := f(i); err != nil {
					tb.Errorf("%d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
}

// Five thousand topics, all of them parents or children, some children with a delay, cost
// under one percent of a core while nothing is produced: after they were made, after a
// start, and with a message in every parent, which the delay children wait for.
func TestIdleChildrenCostNothing(t *testing.T) {
	needLinux(t)
	needFiles(t, linkedTopics)
	node := testutil.NewNode(t, volume(t))
	node.Start()
	c := node.Client(client.WithIdleConnections(idleWorkers))
	create := func(i int) error {
		in := client.CreateTopic{Name: linkedName(i), Parent: parentOf(i)}
		if in.Parent != "" && i%3 == 0 {
			in.FanoutDelayMS = hour.Milliseconds()
		}
		_, err := c.CreateTopic(t.Context(), in)
		return err
	}
	each := func(children bool) {
		workers(t, linkedTopics, func(i int) error {
			if (parentOf(i) != "") != children {
				return nil
			}
			return create(i)
		})
	}
	each(false)
	each(true)
	idle := func(what string) {
		t.Helper()
		// Cursors start within seconds; then nothing has anything to do.
		testutil.Eventually(t, patience, func() bool {
			return processOf(t, node).cpuOver(time.Second) <= time.Second/20
		}, what+": the cursors to have started")
		p := processOf(t, node)
		used := p.cpuOver(idleWindow)
		share := used.Seconds() / idleWindow.Seconds()
		t.Logf("%s: %.2f %% of a core over %v, %s resident, %d descriptors", what, 100*share, idleWindow, mib(p.rss()), p.files())
		if share >= idleShare {
			t.Errorf("%s: %.2f %% of a core while idle, want less than %.0f %%", what, 100*share, 100*idleShare)
		}
		if rss := p.rss(); rss >= linkedMemory {
			t.Errorf("%s: %s resident, want less than %s", what, mib(rss), mib(linkedMemory))
		}
	}
	idle("after they were made")
	stop(t, node)
	began := time.Now()
	node.Start()
	t.Logf("ready after %v", time.Since(began).Round(time.Millisecond))
	idle("after a start")

	c = node.Client(client.WithIdleConnections(idleWorkers))
	workers(t, linkedTopics, func(i int) error {
		if parentOf(i) != "" {
			return nil
		}
		return c.Produce(t.Context(), linkedName(i), client.Message{Payload: []byte(`1`)})
	})
	idle("with a message in every parent")
	stop(t, node)
	node.Start()
	idle("with a message in every parent, after a start")
}

// The copy benchmark.
const (
	copyChildren    = 4
	copyBatch       = 100
	copyBatches     = 1500 // of one round
	copyConnections = 16
	copyBody        = 1 << 10
)

// BenchmarkFourChildren produces to a topic without children and to a parent of four, in
// turns on one node of the real binary, and compares the messages a second that the node
// commits on plain produce with those it copies: from the first request to the last
// commit, to the last copy.
func BenchmarkFourChildren(b *testing.B) {
	node := testutil.NewNode(b, b.TempDir())
	node.Start()
	c := node.Client(client.WithIdleConnections(copyConnections))
	for _, in := range []client.CreateTopic{{Name: "plain"}, {Name: "p"}} {
		if _, err := c.CreateTopic(b.Context(), in); err != nil {
			b.Fatal(err)
		}
	}
	for i := range copyChildren {
		if _, err := c.CreateTopic(b.Context(), client.CreateTopic{Name: fmt.Sprint("c", i), Parent: "p"}); err != nil {
			b.Fatal(err)
		}
	}
	var plain, copied time.Duration
	const count = copyBatches * copyBatch
	n := 0
	for b.Loop() {
		n++
		began := time.Now()
		fill(b, c, "plain")
		committed(b, c, "plain", int64(n*count))
		plain += time.Since(began)
		began = time.Now()
		fill(b, c, "p")
		committed(b, c, "p", int64(n*count))
		for behind := true; behind; {
			<-time.After(5 * time.Millisecond)
			list, err := c.Children(b.Context(), "p")
			if err != nil {
				b.Fatal(err)
			}
			behind = false
			for _, ch := range list.Children {
				behind = behind || ch.LagMessages > 0 || !ch.LagComplete
			}
		}
		copied += time.Since(began)
	}
	perPlain := float64(n*count) / plain.Seconds()
	perCopied := float64(copyChildren*n*count) / copied.Seconds()
	b.ReportMetric(perPlain, "plain/s")
	b.ReportMetric(perCopied, "copies/s")
	b.ReportMetric(perCopied/perPlain, "copies/plain")
}

// fill produces one round to a topic.
func fill(b *testing.B, c *client.Client, topic string) {
	b.Helper()
	payload := append(append([]byte{'"'}, bytes.Repeat([]byte{'x'}, copyBody-2)...), '"')
	var next atomic.Int64
	var wg sync.WaitGroup
	for range copyConnections {
		wg.Go(func() {
			ms := make([]client.Message, copyBatch)
			for next.Add(1) <= copyBatches {
				for i := range ms {
					ms[i] = client.Message{Payload: payload}
				}
				if err := c.ProduceBatch(context.Background(), topic, ms); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// committed waits until a topic's partitions hold so many messages.
func committed(b *testing.B, c *client.Client, topic string, want int64) {
	b.Helper()
	testutil.Eventually(b, patience, func() bool {
		d, err := c.DescribeTopic(b.Context(), topic)
		if err != nil {
			b.Fatal(err)
		}
		var have int64
		for _, p := range d.PartitionStats {
			have += p.HighWatermark
		}
		return have >= want
	}, topic+" to hold what was accepted")
}
