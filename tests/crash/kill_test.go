package crash

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

var (
	kills = flag.Int("kills", 6, "how often the node is killed")
	seed  = flag.Uint64("seed", 0, "seed of the kill times (0 = from the clock)")
)

// Windows the tests hold the node to.
const (
	// ackWindow: a killed process forgets about one write tick (100 ms) of acks; the
	// rest is room for a tick that runs long on a busy machine.
	ackWindow = 500 * time.Millisecond
	// drainTimeout is what the end of a run gets to deliver everything once.
	drainTimeout = 60 * time.Second
	visibility   = 2 * time.Second
)

// load is the traffic of a run.
type load struct {
	t      *testing.T
	node   *testutil.Node
	ledger *ledger
	topic  string
	url    atomic.Pointer[string] // of the node as it runs now
	stop   chan struct{}
	wg     sync.WaitGroup
}

func (l *load) running() bool {
	select {
	case <-l.stop:
		return false
	default:
		return true
	}
}

// client follows the node over restarts: its port changes.
type follower struct {
	l   *load
	url string
	c   *client.Client
}

func (f *follower) get() *client.Client {
	if u := *f.l.url.Load(); f.c == nil || u != f.url {
		if f.c != nil {
			f.c.Close()
		}
		c, err := client.New(u, client.WithTimeout(5*time.Second))
		if err != nil {
			f.l.t.Error(err)
		}
		f.c, f.url = c, u
	}
	return f.c
}

func (l *load) produce(worker int) {
	defer l.wg.Done()
	f := follower{l: l}
	ctx := context.Background()
	for i := 0; l.running(); i++ {
		if worker%2 == 0 {
			id := fmt.Sprintf("w%d-%d", worker, i)
			l.ledger.sending(id)
			m := client.Message{Payload: newMessage(id), Key: []byte(id), Partition: client.AnyPartition}
			if f.get().Produce(ctx, l.topic, m) == nil {
				l.ledger.accepted(id)
			}
			continue
		}
		var ids []string
		var ms []client.Message
		for j := range 20 {
			ids = append(ids, fmt.Sprintf("w%d-%d-%d", worker, i, j))
			l.ledger.sending(ids[j])
			ms = append(ms, client.Message{Payload: newMessage(ids[j]), Partition: client.AnyPartition})
		}
		if f.get().ProduceBatch(ctx, l.topic, ms) == nil {
			for _, id := range ids {
				l.ledger.accepted(id)
			}
		}
	}
}

// consume leases and acks until stop; every tenth message is left to its lease.
func (l *load) consume(worker int) {
	defer l.wg.Done()
	f := follower{l: l}
	rng := rand.New(rand.NewPCG(uint64(worker), 1))
	for l.running() {
		l.consumeOnce(f.get(), worker%2 == 0, func() bool { return rng.IntN(10) > 0 })
	}
}

func (l *load) consumeOnce(c *client.Client, batch bool, ack func() bool) int {
	ctx := context.Background()
	n := 1
	if batch {
		n = 50
	}
	began := time.Now()
	ds, err := c.Consume(ctx, l.topic, client.ConsumeOptions{Wait: 200 * time.Millisecond, Partition: client.AnyPartition, Max: n})
	if err != nil {
		return 0
	}
	for _, d := range ds {
		id := l.ledger.deliver(d, began, ackWindow)
		if id != "" && ack() && c.Ack(ctx, l.topic, d.Handle) == nil {
			l.ledger.acked(id, d)
		}
	}
	return len(ds)
}

// F1 F2 F6 F8 with O1 O2 O3 O5: the node is killed again and again in the middle of a
// load; nothing that was answered 202 is lost, nothing is invented, and no ack older
// than the promised window is forgotten.
func TestF1KillLoopLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the real binary for many seconds")
	}
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	rng := rand.New(rand.NewPCG(s, 2))

	node := testutil.NewNode(t, t.TempDir())
	node.Start()
	l := &load{t: t, node: node, ledger: newLedger(), topic: "orders", stop: make(chan struct{})}
	url := node.URL
	l.url.Store(&url)
	_, err := node.Client().CreateTopic(context.Background(), client.CreateTopic{Name: l.topic, VisibilityTimeoutMS: visibility.Milliseconds()})
	if err != nil {
		t.Fatal(err)
	}
	for w := range 6 {
		l.wg.Add(2)
		go l.produce(w)
		go l.consume(w)
	}
	for range *kills {
		// The kill falls at a random point of a load that is known to flow.
		_, before, _, _, _ := l.ledger.counts()
		target := before + 100 + rng.IntN(3000)
		testutil.Eventually(t, 30*time.Second, func() bool {
			_, accepted, _, _, _ := l.ledger.counts()
			return accepted >= target
		}, fmt.Sprintf("%d messages to be accepted", target))
		node.Kill()
		l.ledger.killed(time.Now())
		node.Start()
		u := node.URL
		l.url.Store(&u)
	}
	close(l.stop)
	l.wg.Wait()
	l.drain()
	sent, accepted, delivered, acked, late := l.ledger.counts()
	t.Logf("%d kills: %d sent, %d accepted, %d deliveries, %d acked, %d redelivered inside the ack window", *kills, sent, accepted, delivered, acked, late)
	if accepted < *kills*50 {
		t.Errorf("only %d messages were accepted: the run proves little", accepted)
	}
	if code := node.Stop(); code != 0 {
		t.Errorf("graceful stop: exit code %d, want 0", code)
	}
}

// drain consumes until everything accepted was delivered and acked, then judges.
func (l *load) drain() {
	f := follower{l: l}
	deadline := time.Now().Add(drainTimeout)
	for l.ledger.unacked() > 0 && time.Now().Before(deadline) {
		l.consumeOnce(f.get(), true, func() bool { return true })
	}
	if lost := l.ledger.undelivered(); len(lost) > 0 {
		l.t.Errorf("O1: %d accepted messages were never delivered, such as %v", len(lost), lost[:min(5, len(lost))])
	}
	if n := l.ledger.unacked(); n > 0 {
		l.t.Errorf("O8: %d accepted messages could not be acked within %v", n, drainTimeout)
	}
	for _, p := range l.ledger.problems {
		l.t.Error(p)
	}
}
