package client_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// relay is an address that stays while the node behind it comes and goes.
type relay struct {
	net.Listener
	wg sync.WaitGroup

	mu     sync.Mutex // guards target
	target string
}

func newRelay(t *testing.T) *relay {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: ln}
	r.wg.Go(r.serve)
	t.Cleanup(func() { _ = ln.Close(); r.wg.Wait() })
	return r
}

func (r *relay) point(url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = strings.TrimPrefix(url, "http://")
}

func (r *relay) serve() {
	for {
		in, err := r.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		target := r.target
		r.mu.Unlock()
		r.wg.Go(func() {
			defer in.Close()
			out, err := net.Dial("tcp", target)
			if err != nil {
				return
			}
			defer out.Close()
			r.wg.Go(func() { _, _ = io.Copy(out, in); out.Close() })
			_, _ = io.Copy(in, out)
		})
	}
}

// The node is killed again and again under a Producer and a Consume that know one
// address: every message the Producer reports as stored is worked on, and none that
// was never sent.
func TestKilledNodeLosesNothingAcknowledged(t *testing.T) {
	if testing.Short() {
		t.Skip("kills the real binary several times")
	}
	t.Parallel()
	node := testutil.NewNode(t, t.TempDir())
	node.Start()
	r := newRelay(t)
	r.point(node.URL)
	c := dialTo(t, "http://"+r.Addr().String(), client.WithTimeout(3*time.Second), client.WithBreaker(5, 50*time.Millisecond))
	topic := newTopic(t, c, client.CreateTopic{VisibilityTimeoutMS: 2000})

	var stored, failed, worked tally
	p := newProducer(t, c, topic, client.ProducerOptions{BatchMessages: 50})
	stop := consuming(t, c, topic, func(_ context.Context, d client.Delivery) error {
		worked.add(d)
		return nil
	}, client.ConsumeOptions{Workers: 8, InFlight: 200, Wait: time.Second})
	halt := make(chan struct{})
	var senders sync.WaitGroup
	for s := range 4 {
		senders.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-halt:
					return
				default:
				}
				d := client.Delivery{Payload: fmt.Appendf(nil, `{"s":%d,"i":%d}`, s, i)}
				if err := p.Send(bg, client.Message{Payload: d.Payload}); err == nil {
					stored.add(d)
				} else {
					failed.add(d)
				}
			}
		})
	}
	for range 4 {
		target := stored.distinct() + 300
		eventually(t, func() bool { return stored.distinct() >= target }, "messages to flow")
		node.Kill()
		node.Start()
		r.point(node.URL)
	}
	close(halt)
	senders.Wait()
	if err := p.Close(bg); err != nil {
		t.Error(err)
	}
	missing := func() (out []string) {
		worked.mu.Lock()
		defer worked.mu.Unlock()
		for m := range stored.seen {
			if worked.seen[m] == 0 {
				out = append(out, m)
			}
		}
		return out
	}
	eventually(t, func() bool { return len(missing()) == 0 }, "every stored message to be worked on")
	if err := stop(); err != nil {
		t.Error(err)
	}
	twice := 0
	for m, n := range worked.seen {
		if stored.seen[m]+failed.seen[m] == 0 {
			t.Errorf("worked on %s, which nobody sent", m)
		}
		if n > 1 {
			twice++
		}
	}
	t.Logf("%d stored, %d failed, %d worked on, %d more than once", len(stored.seen), len(failed.seen), len(worked.seen), twice)
}

// One of two addresses is dead from the start: nobody notices.
func TestDeadNodeIsSkipped(t *testing.T) {
	c := dialTo(t, "127.0.0.1:1,"+addr)
	topic := newTopic(t, c, client.CreateTopic{})
	produceN(t, c, topic, 200)
	p := newProducer(t, c, topic, client.ProducerOptions{})
	for range 20 {
		if err := p.Send(bg, client.Message{Payload: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
	var y tally
	stop := consuming(t, c, topic, func(_ context.Context, d client.Delivery) error { y.add(d); return nil }, client.ConsumeOptions{Workers: 2})
	eventually(t, func() bool { return y.distinct() == 200 }, "every message to be worked on")
	if err := stop(); err != nil {
		t.Error(err)
	}
}
