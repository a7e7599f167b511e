package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
	"github.com/narad-mq/narad/tests/ledger"
)

const (
	// ackWindow: a killed owner forgets about one write tick (100 ms) of acks, and more
	// while a tick runs long on a busy disk.
	ackWindow = 2 * time.Second
	// copyWindow: what a killed node dispatched last it dispatches again (about 250 ms of
	// it), and a commit whose answer was lost is made again.
	copyWindow = 5 * time.Second
	// visibility is the leases' life.
	visibility = 3 * time.Second
	// drainTimeout is what the end of a run gets to deliver everything once.
	drainTimeout = 90 * time.Second
	// pace is what a producer waits between two requests: a steady load, not a flood.
	pace = 15 * time.Millisecond
	// failurePause keeps a worker whose call failed from spinning while its node is down.
	failurePause = 50 * time.Millisecond
	batchSize    = 5 // messages of a batch produce
)

// load is traffic on all nodes of a cluster: producers to one topic, consumers of it and
// of its children, and a ledger for each.
type load struct {
	t     *testing.T
	c     *cluster
	topic string
	paths map[string]*ledger.Ledger // by topic: the one produced to, and its children
	next  atomic.Int64              // number of the next message

	sending atomic.Bool   // producers send
	flight  sync.RWMutex  // held for reading during a produce
	stop    chan struct{} // closed to end the workers
	wg      sync.WaitGroup
}

// newLoad makes a topic and its children and prepares the load; run starts it. Of the
// children name and delay are looked at.
func (c *cluster) newLoad(topic string, partitions int, children ...client.CreateTopic) *load {
	c.t.Helper()
	l := &load{t: c.t, c: c, topic: topic, paths: map[string]*ledger.Ledger{}, stop: make(chan struct{})}
	cl := c.living()[0].client()
	for i, in := range append([]client.CreateTopic{{Name: topic}}, children...) {
		name := in.Name
		in.Partitions, in.VisibilityTimeoutMS = partitions, visibility.Milliseconds()
		if i > 0 {
			in.Parent = topic
		}
		if _, err := cl.CreateTopic(c.t.Context(), in); err != nil {
			c.t.Fatalf("create %s: %v", name, err)
		}
		delay := time.Duration(in.FanoutDelayMS) * time.Millisecond // a copy is made so much later
		book := ledger.New(ledger.Windows{Ack: ackWindow, Copy: copyWindow + delay, Lease: visibility})
		l.paths[name] = book
		c.faults = append(c.faults, func(f fault) func(time.Time) {
			return book.Begin(ledger.Fault{Kind: f.kind, Node: f.node, Kills: f.kills, Start: f.start})
		})
		for p, owner := range c.owners(name) {
			book.Owns(p, owner.ID)
		}
	}
	c.agree() // a node that has not heard of the topic yet refuses its messages
	c.t.Cleanup(l.halt)
	return l
}

// owners are the owners of a topic's partitions, by partition.
func (c *cluster) owners(topic string) (out []*node) {
	c.t.Helper()
	testutil.Eventually(c.t, patience, func() bool {
		out = nil
		d, err := c.living()[0].client().DescribeTopic(c.t.Context(), topic)
		if err != nil {
			return false
		}
		for _, p := range d.PartitionStats {
			for _, n := range c.nodes {
				if n.ID == p.OwnerNode {
					out = append(out, n)
				}
			}
		}
		return len(out) > 0 && len(out) == d.Partitions
	}, "every partition of "+topic+" to have an owner")
	return out
}

// run starts a producer and a consumer of each path on every node that has none yet.
func (l *load) run(nodes ...*node) {
	l.sending.Store(true)
	for _, n := range nodes {
		l.wg.Add(1)
		go l.produce(n)
		for topic, book := range l.paths {
			l.wg.Add(1)
			go l.consume(n, topic, book)
		}
	}
}

// halt ends the workers.
func (l *load) halt() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.wg.Wait()
}

// rest waits, unless the load ends before.
func (l *load) rest(d time.Duration) {
	select {
	case <-l.stop:
	case <-time.After(d):
	}
}

func (l *load) running() bool {
	select {
	case <-l.stop:
		return false
	default:
		return true
	}
}

// produce sends to one node, singles and batches by turns. A node that is up from the
// request's start to its end has to answer 202: producing needs no other node.
func (l *load) produce(n *node) {
	defer l.wg.Done()
	c := n.client()
	for i := 0; l.running(); i++ {
		l.rest(pace)
		if !l.sending.Load() {
			continue
		}
		up, count := n.up.Load(), 1
		if i%2 == 1 {
			count = batchSize
		}
		began := time.Now()
		l.flight.RLock()
		err := l.send(c, n.ID, count)
		l.flight.RUnlock()
		switch {
		case err == nil:
			n.accepted.Add(int64(count))
			continue
		case up%2 == 1 && n.up.Load() == up:
			l.paths[l.topic].Problem("%s is up and did not accept a message after %v: %v", n.ID, time.Since(began), err)
		}
		l.rest(failurePause)
	}
}

// send produces count new messages and notes the answer.
func (l *load) send(c *client.Client, by string, count int) error {
	ids, ms := make([]string, count), make([]client.Message, count)
	for i := range count {
		ids[i] = fmt.Sprintf("%s-%d", by, l.next.Add(1))
		for _, book := range l.paths {
			ms[i].Payload = book.Sending(ids[i], ledger.BodyMin)
		}
		if i%2 == 0 {
			ms[i].Key = []byte(ids[i])
		}
	}
	var err error
	if count == 1 {
		err = c.Produce(context.Background(), l.topic, ms[0])
	} else {
		err = c.ProduceBatch(context.Background(), l.topic, ms)
	}
	for _, book := range l.paths {
		book.Answered(err, ids...)
	}
	return err
}

// consume leases through one node and acks; one in twenty is left to its lease.
func (l *load) consume(n *node, topic string, book *ledger.Ledger) {
	defer l.wg.Done()
	c := n.client()
	rng := rand.New(rand.NewPCG(uint64(l.c.number), uint64(n.addr[len(n.addr)-1])))
	for l.running() {
		began := time.Now()
		ds, err := c.Receive(context.Background(), topic, client.ReceiveOptions{Wait: 500 * time.Millisecond, Max: 50})
		if err != nil {
			l.rest(failurePause)
			continue
		}
		var ids, handles []string
		var took []client.Delivery
		for _, d := range ds {
			if id := book.Deliver(d, began); id != "" && rng.IntN(20) > 0 {
				ids, handles, took = append(ids, id), append(handles, d.Handle), append(took, d)
			}
		}
		if len(handles) == 0 {
			continue
		}
		sent := time.Now()
		errs, failed := c.AckBatch(context.Background(), topic, handles)
		for i := range handles {
			err := failed
			if err == nil {
				err = errs[i]
			}
			if err == nil {
				book.Acked(ids[i], took[i], sent)
			} else {
				book.AckFailed(ids[i], err)
			}
		}
	}
}

// through waits until every node that is up accepted messages that were sent after now.
func (l *load) through(why string) {
	l.t.Helper()
	before := map[*node]int64{}
	for _, n := range l.c.living() {
		before[n] = n.accepted.Load()
	}
	if len(before) == 0 {
		l.t.Fatalf("%s: no node is up", why)
	}
	testutil.Eventually(l.t, patience, func() bool {
		for n, v := range before {
			if n.accepted.Load() < v+2*(batchSize+1) { // at least two requests began by now
				return false
			}
		}
		return true
	}, why+": messages to be accepted through every node that is up")
}

// drain ends the producing, waits until everything accepted so far was delivered and
// acked on every path, judges, and lets the producers go on.
func (l *load) drain() {
	l.t.Helper()
	l.sending.Store(false)
	l.flight.Lock() // every produce is answered
	defer l.flight.Unlock()
	deadline := time.Now().Add(drainTimeout)
	for topic, book := range l.paths {
		for book.Unacked() > 0 && time.Now().Before(deadline) {
			l.rest(20 * time.Millisecond)
		}
		if lost := book.Undelivered(); len(lost) > 0 {
			l.t.Errorf("O1: %s: %d accepted messages were never delivered, such as %v", topic, len(lost), lost[:min(5, len(lost))])
		}
		if n := book.Unacked(); n > 0 {
			l.t.Errorf("O8: %s: %d accepted messages could not be acked within %v", topic, n, drainTimeout)
		}
		judged := book.Histories()
		for _, p := range book.Problems() {
			l.t.Errorf("%s: %s", topic, p)
		}
		l.t.Logf("%s: %+v, %d histories", topic, book.Counts(), judged)
	}
	if l.t.Failed() {
		l.t.FailNow()
	}
	l.sending.Store(true)
}
