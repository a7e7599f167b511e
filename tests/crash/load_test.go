package crash

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
	"github.com/narad-mq/narad/tests/ledger"
)

// Windows the tests hold the node to.
const (
	// ackWindow: a killed process forgets about one write tick (100 ms) of acks, and
	// more while a tick runs long: the first one of a partition syncs its new files,
	// which takes its time on a busy disk.
	ackWindow = 2 * time.Second
	// drainTimeout is what the end of a run gets to deliver everything once.
	drainTimeout = 60 * time.Second
	visibility   = 2 * time.Second
	// patience is what one step of a test gets on a busy machine.
	patience = 30 * time.Second
	// failurePause keeps a worker whose call failed from spinning while the node is down.
	failurePause = 2 * time.Millisecond
)

// load is a node, the traffic sent to it, and the ledger that judges the two.
type load struct {
	t      *testing.T
	node   *testutil.Node
	ledger *ledger.Ledger
	topic  string
	url    atomic.Pointer[string] // of the node as it runs now
	stop   chan struct{}          // closed to end the workers
	wg     sync.WaitGroup
	own    follower // of the test's own goroutine
}

func newLoad(t *testing.T, dir string) *load {
	if testing.Short() {
		t.Skip("runs the real binary for seconds")
	}
	l := &load{t: t, node: testutil.NewNode(t, dir), ledger: ledger.New(ledger.Windows{Ack: ackWindow}), topic: "orders"}
	l.own.l = l
	return l
}

// boot starts the node and points the clients at it.
func (l *load) boot() {
	l.t.Helper()
	l.node.Start()
	l.follow()
}

func (l *load) follow() {
	u := l.node.URL
	l.url.Store(&u)
}

// crash kills the node, whatever it is doing.
func (l *load) crash() {
	l.node.Kill()
	l.ledger.Killed(time.Now())
}

// create makes the load's topic.
func (l *load) create(in client.CreateTopic) {
	l.t.Helper()
	in.Name = l.topic
	if in.VisibilityTimeoutMS == 0 {
		in.VisibilityTimeoutMS = visibility.Milliseconds()
	}
	if _, err := l.client().CreateTopic(l.t.Context(), in); err != nil {
		l.t.Fatal(err)
	}
}

// run starts workers producers and as many consumers.
func (l *load) run(workers int) {
	l.stop = make(chan struct{})
	for w := range workers {
		l.wg.Add(2)
		go l.produce(w)
		go l.consume(w)
	}
}

// halt ends the workers.
func (l *load) halt() {
	close(l.stop)
	l.wg.Wait()
}

// flow waits until n more messages were accepted.
func (l *load) flow(n int) {
	l.t.Helper()
	before := l.ledger.Counts().Accepted
	testutil.Eventually(l.t, patience, func() bool {
		return l.ledger.Counts().Accepted >= before+n
	}, fmt.Sprintf("%d messages to be accepted", n))
}

func (l *load) running() bool {
	select {
	case <-l.stop:
		return false
	default:
		return true
	}
}

// pause is what a worker does after a failed call.
func (l *load) pause() {
	select {
	case <-l.stop:
	case <-time.After(failurePause):
	}
}

// follower is a client that follows the node over restarts: its port changes.
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
		c, err := client.New(u, client.WithTimeout(5*time.Second), client.WithRetries(1), client.WithBreaker(math.MaxInt, time.Second))
		if err != nil {
			f.l.t.Error(err)
		}
		f.c, f.url = c, u
	}
	return f.c
}

// client is the one of the test's own goroutine.
func (l *load) client() *client.Client { return l.own.get() }

// send produces one message and notes the answer.
func (l *load) send(c *client.Client, id string, size, partition int) error {
	m := client.Message{Payload: l.ledger.Sending(id, size), Pin: client.Partition(partition)}
	if partition == client.AnyPartition {
		m.Key = []byte(id)
	}
	err := c.Produce(context.Background(), l.topic, m)
	l.ledger.Answered(err, id)
	return err
}

// sendBatch produces n small messages in one batch, anywhere, and notes the answer.
func (l *load) sendBatch(c *client.Client, prefix string, n, partition int) error {
	ids, ms := make([]string, n), make([]client.Message, n)
	for i := range n {
		ids[i] = fmt.Sprintf("%s-%d", prefix, i)
		ms[i] = client.Message{Payload: l.ledger.Sending(ids[i], ledger.BodyMin), Pin: client.Partition(partition)}
	}
	err := c.ProduceBatch(context.Background(), l.topic, ms)
	l.ledger.Answered(err, ids...)
	return err
}

// mustSend produces n messages, each of which must be accepted.
func (l *load) mustSend(prefix string, n, size, partition int) {
	l.t.Helper()
	for i := range n {
		if err := l.send(l.client(), fmt.Sprintf("%s-%d", prefix, i), size, partition); err != nil {
			l.t.Fatalf("produce %s-%d: %v", prefix, i, err)
		}
	}
}

func (l *load) produce(worker int) {
	defer l.wg.Done()
	f := follower{l: l}
	for i := 0; l.running(); i++ {
		name := fmt.Sprintf("w%d-%d-%d", worker, time.Now().UnixNano(), i)
		var err error
		if worker%2 == 0 {
			err = l.send(f.get(), name, ledger.BodyMin, client.AnyPartition)
		} else {
			err = l.sendBatch(f.get(), name, 20, client.AnyPartition)
		}
		if err != nil {
			l.pause()
		}
	}
}

// consume leases and acks until stop; every tenth message is left to its lease.
func (l *load) consume(worker int) {
	defer l.wg.Done()
	f := follower{l: l}
	rng := rand.New(rand.NewPCG(uint64(worker), 1))
	for l.running() {
		if _, err := l.consumeOnce(f.get(), worker%2 == 0, func() bool { return rng.IntN(10) > 0 }); err != nil {
			l.pause()
		}
	}
}

// consumeOnce takes one answer and acks what ack says.
func (l *load) consumeOnce(c *client.Client, batch bool, ack func() bool) (int, error) {
	ctx := context.Background()
	n := 1
	if batch {
		n = 50
	}
	began := time.Now()
	ds, err := c.Receive(ctx, l.topic, client.ReceiveOptions{Wait: 200 * time.Millisecond, Max: n})
	if err != nil {
		return 0, err
	}
	for _, d := range ds {
		id := l.ledger.Deliver(d, began)
		if id == "" || !ack() {
			continue
		}
		if sent := time.Now(); c.Ack(ctx, l.topic, d.Handle) == nil {
			l.ledger.Acked(id, d, sent)
		}
	}
	return len(ds), nil
}

// settle consumes and acks until everything accepted so far was acked once.
func (l *load) settle() {
	l.t.Helper()
	deadline := time.Now().Add(drainTimeout)
	for l.ledger.Unacked() > 0 && time.Now().Before(deadline) {
		if _, err := l.consumeOnce(l.client(), true, func() bool { return true }); err != nil {
			l.t.Fatalf("drain: %v", err)
		}
	}
}

// drain settles everything, then judges the run.
func (l *load) drain() {
	l.t.Helper()
	l.settle()
	if lost := l.ledger.Undelivered(); len(lost) > 0 {
		l.t.Errorf("O1: %d accepted messages were never delivered, such as %v", len(lost), lost[:min(5, len(lost))])
	}
	if n := l.ledger.Unacked(); n > 0 {
		l.t.Errorf("O8: %d accepted messages could not be acked within %v", n, drainTimeout)
	}
	for _, p := range l.ledger.Problems() {
		l.t.Error(p)
	}
	if n := len(l.node.LogLines("panic")); n > 0 {
		l.t.Errorf("the log holds %d panics", n)
	}
}

// refusal checks that err is the server's refusal with this status and code.
func refusal(t *testing.T, what string, err error, status int, code, text string) {
	t.Helper()
	var e *client.Error
	if !errors.As(err, &e) || e.Status != status || e.Code != code || e.Message != text {
		t.Errorf("%s: got %v, want %d %s (code %s)", what, err, status, text, code)
	}
}
