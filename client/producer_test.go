package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narad-mq/narad/client"
)

var bg = context.Background()

func newProducer(t testing.TB, c *client.Client, topic string, o client.ProducerOptions) *client.Producer {
	t.Helper()
	p, err := c.NewProducer(topic, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(bg, 10*time.Second)
		defer cancel()
		_ = p.Close(ctx)
	})
	return p
}

// everything is the payloads stored in a topic, in order of partition and offset.
func everything(t testing.TB, c *client.Client, topic string) (out []string) {
	t.Helper()
	for d, err := range c.Replay(bg, topic, client.ReplayOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(d.Payload))
	}
	return out
}

// settled waits until the topic holds n messages: a produce is answered before its
// message can be read.
func settled(t testing.TB, c *client.Client, topic string, n int) []string {
	t.Helper()
	eventually(t, func() bool {
		d, err := c.DescribeTopic(bg, topic)
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, p := range d.PartitionStats {
			sum += p.HighWatermark
		}
		return sum >= int64(n)
	}, fmt.Sprintf("%d messages in %s", n, topic))
	return everything(t, c, topic)
}

func TestProducerStoresEverything(t *testing.T) {
	c := dial(t)
	topic := newTopic(t, c, client.CreateTopic{})
	p := newProducer(t, c, topic, client.ProducerOptions{BatchMessages: 7, InFlight: 3})
	const goroutines, each = 8, 50
	var want []string
	var wg sync.WaitGroup
	for g := range goroutines {
		for i := range each {
			want = append(want, fmt.Sprintf(`{"g":%d,"i":%d}`, g, i))
		}
		wg.Go(func() {
			for i := range each {
				m := client.Message{Payload: fmt.Appendf(nil, `{"g":%d,"i":%d}`, g, i), Key: []byte{byte(g)}}
				if i%2 == 0 {
					if err := p.Send(bg, m); err != nil {
						t.Error(err)
					}
				} else if err := p.SendAsync(bg, m, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := p.Flush(bg); err != nil {
		t.Fatal(err)
	}
	got := settled(t, c, topic, len(want))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("stored %d messages, want %d; first %q, %q", len(got), len(want), got[:1], want[:1])
	}
}

func TestProducerKeepsBytesAndOrder(t *testing.T) {
	c := dial(t)
	topic := newTopic(t, c, client.CreateTopic{})
	p := newProducer(t, c, topic, client.ProducerOptions{InFlight: 1, BatchMessages: 3})
	payloads := []string{`{ "a" : 1 }`, "text", "\xff\x00binary", `[1]`, " 1 ", "1", strings.Repeat("x", client.MessageBytesMax)}
	buf := make([]byte, 0, client.MessageBytesMax)
	for _, s := range payloads {
		buf = append(buf[:0], s...) // the producer must not keep it
		if err := p.SendAsync(bg, client.Message{Payload: buf, Key: []byte("k\xff"), Pin: client.Partition(2)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(bg); err != nil {
		t.Fatal(err)
	}
	got := settled(t, c, topic, len(payloads))
	if !slices.Equal(got, payloads) {
		t.Errorf("stored %.80q, want %.80q", got, payloads)
	}
}

// One message that the server refuses takes no other down.
func TestProducerTakesRefusedMessagesOut(t *testing.T) {
	for _, bad := range []int{1, 3, 20} {
		c := dial(t)
		topic := newTopic(t, c, client.CreateTopic{})
		p := newProducer(t, c, topic, client.ProducerOptions{BatchMessages: 60})
		hold := make(chan struct{}) // the first batch waits in its callback until the rest is there
		if err := p.SendAsync(bg, client.Message{Payload: []byte("first")}, func(error) { <-hold }); err != nil {
			t.Fatal(err)
		}
		var refused, stored atomic.Int64
		for i := range 50 {
			m := client.Message{Payload: fmt.Append(nil, i)}
			if i%2 == 0 && i/2 < bad {
				m.Pin = client.Partition(99)
			}
			if err := p.SendAsync(bg, m, func(err error) {
				var e *client.Error
				switch {
				case err == nil:
					stored.Add(1)
				case errors.As(err, &e) && e.Message == "invalid argument: partition out of range" && !client.Uncertain(err):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		close(hold)
		if err := p.Close(bg); err != nil {
			t.Fatal(err)
		}
		if refused.Load() != int64(bad) || stored.Load() != int64(50-bad) {
			t.Errorf("%d bad messages: %d refused, %d stored", bad, refused.Load(), stored.Load())
		}
		if got := settled(t, c, topic, 51-bad); len(got) != 51-bad {
			t.Errorf("%d bad messages: %d are stored, want %d", bad, len(got), 51-bad)
		}
	}
}

func TestProducerRefusesWhatNoServerTakes(t *testing.T) {
	p := newProducer(t, dial(t), "none", client.ProducerOptions{})
	if err := p.Send(bg, client.Message{}); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("empty: %v", err)
	}
	if err := p.Send(bg, client.Message{Payload: make([]byte, client.MessageBytesMax+1)}); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if err := p.Send(bg, client.Message{Payload: []byte("x")}); !errors.Is(err, client.ErrNotFound) || client.Uncertain(err) {
		t.Errorf("no topic: %v", err)
	}
	if err := p.SendAsync(bg, client.Message{Payload: []byte("x")}, nil); err != nil {
		t.Error(err)
	}
	if err := p.Flush(bg); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("flush after a failure nobody was told: %v", err)
	}
	if err := p.Flush(bg); err != nil {
		t.Errorf("the failure is told twice: %v", err)
	}
	for _, o := range []client.ProducerOptions{{BatchMessages: 1001}, {BatchMessages: -1}, {BatchBytes: 1 << 25}, {InFlight: 5000}, {Linger: -1}, {BufferMessages: -1}, {BufferBytes: -1}} {
		if _, err := dial(t).NewProducer("t", o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// gate is a node whose produces wait until they are let through, and which counts the
// messages of each.
type gate struct {
	*httptest.Server
	arrived chan int // messages of a request that waits
	pass    chan int // status it answers
}

func newGate(t testing.TB) *gate {
	g := &gate{arrived: make(chan int, 1000), pass: make(chan int)}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var body struct{ Messages []json.RawMessage }
		if json.Unmarshal(b, &body) != nil {
			body.Messages = nil
		}
		g.arrived <- len(body.Messages)
		select {
		case s := <-g.pass:
			w.WriteHeader(s)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(g.Close)
	return g
}

func send(t testing.TB, p *client.Producer, n int, done func(error)) {
	t.Helper()
	for range n {
		if err := p.SendAsync(bg, client.Message{Payload: []byte("1")}, done); err != nil {
			t.Fatal(err)
		}
	}
}

// With nothing under way a message goes at once; behind it others gather, until the
// batch is full, the linger is over, or the request is answered.
func TestProducerBatches(t *testing.T) {
	g := newGate(t)
	c := dialTo(t, g.URL)
	p := newProducer(t, c, "t", client.ProducerOptions{BatchMessages: 10, InFlight: 2, Linger: time.Hour})
	send(t, p, 4, nil)
	if n := <-g.arrived; n != 1 {
		t.Fatalf("idle: first request has %d messages, want 1", n)
	}
	g.pass <- 202
	if n := <-g.arrived; n != 3 {
		t.Fatalf("answered: second request has %d messages, want the 3 that gathered", n)
	}
	send(t, p, 12, nil)
	if n := <-g.arrived; n != 10 {
		t.Fatalf("full: third request has %d messages, want 10", n)
	}
	send(t, p, 10, nil) // 2 + 8 are full, but both requests are under way
	g.pass <- 202
	if n := <-g.arrived; n != 10 {
		t.Fatalf("fourth request has %d messages, want 10", n)
	}
	send(t, p, 2, nil)
	flushed := make(chan error)
	go func() { flushed <- p.Flush(bg) }()
	for range 2 {
		g.pass <- 202
	}
	for <-g.arrived != 4 { // 2 that were left of the 12, and 2
		t.Fatal("flush did not send what had gathered")
	}
	g.pass <- 202
	if err := <-flushed; err != nil {
		t.Fatal(err)
	}
}

func TestProducerLinger(t *testing.T) {
	g := newGate(t)
	p := newProducer(t, dialTo(t, g.URL), "t", client.ProducerOptions{InFlight: 2, Linger: 10 * time.Millisecond})
	send(t, p, 3, nil)
	if a, b := <-g.arrived, <-g.arrived; a != 1 || b != 2 {
		t.Errorf("requests of %d and %d messages, want 1 and, the linger over, 2", a, b)
	}
	g.pass <- 202
	g.pass <- 202
}

func TestProducerBuffer(t *testing.T) {
	g := newGate(t)
	p := newProducer(t, dialTo(t, g.URL), "t", client.ProducerOptions{BufferMessages: 3})
	send(t, p, 3, nil)
	ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
	defer cancel()
	err := p.SendAsync(ctx, client.Message{Payload: []byte("1")}, nil)
	if !errors.Is(err, context.DeadlineExceeded) || client.Uncertain(err) {
		t.Fatalf("full buffer: %v, want a certain deadline", err)
	}
	took := make(chan error)
	go func() { took <- p.SendAsync(bg, client.Message{Payload: []byte("1")}, nil) }()
	<-g.arrived
	g.pass <- 202
	if err := <-took; err != nil {
		t.Fatalf("room again: %v", err)
	}
	for range 2 {
		<-g.arrived
		g.pass <- 202
	}

	byBytes := newProducer(t, dialTo(t, g.URL), "t", client.ProducerOptions{BufferBytes: 10})
	send(t, byBytes, 1, nil) // larger than the buffer, yet the only one
	ctx, cancel = context.WithTimeout(bg, 20*time.Millisecond)
	defer cancel()
	if err := byBytes.SendAsync(ctx, client.Message{Payload: []byte("1")}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("full by bytes: %v", err)
	}
	<-g.arrived
	g.pass <- 202
}

func TestProducerBatchBytes(t *testing.T) {
	g := newGate(t)
	p := newProducer(t, dialTo(t, g.URL), "t", client.ProducerOptions{BatchBytes: 4096, InFlight: 1, Linger: time.Hour})
	for range 6 {
		if err := p.SendAsync(bg, client.Message{Payload: bytes.Repeat([]byte("1"), 1800)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.SendAsync(bg, client.Message{Payload: bytes.Repeat([]byte("1"), 9000)}, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 2, 2, 1, 1} {
		if n := <-g.arrived; n != want {
			t.Fatalf("a request has %d messages, want %d", n, want)
		}
		g.pass <- 202
	}
}

func TestProducerSendGivesUp(t *testing.T) {
	g := newGate(t)
	p := newProducer(t, dialTo(t, g.URL), "t", client.ProducerOptions{})
	ctx, cancel := context.WithCancel(bg)
	go func() { <-g.arrived; cancel() }()
	if err := p.Send(ctx, client.Message{Payload: []byte("1")}); !errors.Is(err, context.Canceled) || !client.Uncertain(err) {
		t.Errorf("cancelled under way: %v, want uncertain", err)
	}
	if err := p.Send(ctx, client.Message{Payload: []byte("1")}); !errors.Is(err, context.Canceled) || client.Uncertain(err) {
		t.Errorf("cancelled before: %v, want certain", err)
	}
	g.pass <- 202
}

func TestProducerClose(t *testing.T) {
	g := newGate(t)
	p := newProducer(t, dialTo(t, g.URL), "t", client.ProducerOptions{InFlight: 1, BatchMessages: 1, BufferMessages: 3})
	var sure, unsure atomic.Int64
	send(t, p, 3, func(err error) {
		switch {
		case client.Uncertain(err):
			unsure.Add(1)
		case errors.Is(err, client.ErrClosed):
			sure.Add(1)
		default:
			t.Error(err)
		}
	})
	blocked := make(chan error)
	go func() { blocked <- p.SendAsync(bg, client.Message{Payload: []byte("1")}, nil) }()
	<-g.arrived
	ctx, cancel := context.WithTimeout(bg, 30*time.Millisecond)
	defer cancel()
	if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close of a hanging producer: %v", err)
	}
	if unsure.Load() != 1 || sure.Load() != 2 {
		t.Errorf("%d uncertain and %d certain failures, want 1 (under way) and 2 (never sent)", unsure.Load(), sure.Load())
	}
	if err := <-blocked; !errors.Is(err, client.ErrClosed) {
		t.Errorf("a sender that waited for room: %v", err)
	}
	if err := p.Close(bg); err != nil {
		t.Errorf("second close: %v", err)
	}
	if err := p.Send(bg, client.Message{Payload: []byte("1")}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("send after close: %v", err)
	}
}

// An idle producer has no goroutine and no timer: the bubble would not end otherwise.
func TestProducerIdleHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New("127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.NewProducer("t", client.ProducerOptions{}); err != nil {
			t.Fatal(err)
		}
	})
}
