package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
)

// consuming runs a Consume beside the test; stop ends it and returns what it returned.
func consuming(t *testing.T, c *client.Client, topic string, h client.Handler, o client.ConsumeOptions) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(bg)
	done := make(chan error, 1)
	go func() { done <- c.Consume(ctx, topic, h, o) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			select {
			case err = <-done:
			case <-time.After(20 * time.Second):
				err = errors.New("Consume does not return")
			}
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func produceN(t testing.TB, c *client.Client, topic string, n int) {
	t.Helper()
	for i := 0; i < n; {
		var ms []client.Message
		for ; i < n && len(ms) < 500; i++ {
			ms = append(ms, client.Message{Payload: fmt.Append(nil, i)})
		}
		if err := c.ProduceBatch(bg, topic, ms); err != nil {
			t.Fatal(err)
		}
	}
}

// left is how many messages of a topic can be received now.
func left(t testing.TB, c *client.Client, topic string) (n int) {
	t.Helper()
	for {
		ds, err := c.Receive(bg, topic, client.ReceiveOptions{Max: 100})
		if err != nil {
			t.Fatal(err)
		}
		if len(ds) == 0 {
			return n
		}
		n += len(ds)
	}
}

// tally counts how often each payload came.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (y *tally) add(d client.Delivery) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.seen == nil {
		y.seen = map[string]int{}
	}
	y.seen[string(d.Payload)]++
	return y.seen[string(d.Payload)]
}

func (y *tally) distinct() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.seen)
}

// staysSettled fails if a message comes back after the leases of the test ran out.
func staysSettled(t testing.TB, c *client.Client, topic string, visibility time.Duration) {
	t.Helper()
	ds, err := c.Receive(bg, topic, client.ReceiveOptions{Max: 100, Wait: visibility + 1500*time.Millisecond})
	if err != nil || len(ds) > 0 {
		t.Errorf("%d messages came back though all were acked, %v", len(ds), err)
	}
}

func TestConsumeWorksOnEverythingOnce(t *testing.T) {
	t.Parallel()
	for _, o := range []client.ConsumeOptions{{}, {Workers: 8}, {Workers: 4, InFlight: 4}, {Workers: 16, InFlight: 500}} {
		t.Run(fmt.Sprintf("%d workers, %d in flight", o.Workers, o.InFlight), func(t *testing.T) {
			t.Parallel()
			c := dial(t)
			const visibility = 2 * time.Second
			topic := newTopic(t, c, client.CreateTopic{VisibilityTimeoutMS: visibility.Milliseconds()})
			const n = 300
			produceN(t, c, topic, n)
			var y tally
			var running, most atomic.Int64
			stop := consuming(t, c, topic, func(_ context.Context, d client.Delivery) error {
				now := running.Add(1)
				defer running.Add(-1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				if y.add(d) > 1 || d.DeliveryCount != 1 {
					t.Errorf("%s came again, delivery %d", d.Payload, d.DeliveryCount)
				}
				return nil
			}, o)
			eventually(t, func() bool { return y.distinct() == n }, "every message to be worked on")
			if err := stop(); err != nil {
				t.Error(err)
			}
			if most.Load() > int64(max(o.Workers, 1)) {
				t.Errorf("%d handlers at once", most.Load())
			}
			staysSettled(t, c, topic, visibility)
		})
	}
}

func TestConsumeHandsFailuresBack(t *testing.T) {
	t.Parallel()
	c := dial(t)
	topic := newTopic(t, c, client.CreateTopic{VisibilityTimeoutMS: 60_000})
	produceN(t, c, topic, 20)
	var y tally
	var done atomic.Int64
	stop := consuming(t, c, topic, func(_ context.Context, d client.Delivery) error {
		switch y.add(d) {
		case 1:
			return errors.New("not today")
		case 2:
			panic("oh no")
		}
		done.Add(1)
		return nil
	}, client.ConsumeOptions{Workers: 4})
	// The visibility timeout is a minute: they come back because they are nacked.
	eventually(t, func() bool { return done.Load() == 20 }, "every message to succeed at its third delivery")
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestConsumeKeepsLeasesAlive(t *testing.T) {
	t.Parallel()
	c := dial(t)
	topic := newTopic(t, c, client.CreateTopic{VisibilityTimeoutMS: 600})
	produceN(t, c, topic, 6)
	var y tally
	var done atomic.Int64
	// One worker: five messages wait, leased, while one is worked on.
	stop := consuming(t, c, topic, func(ctx context.Context, d client.Delivery) error {
		if y.add(d) > 1 {
			t.Errorf("%s came again", d.Payload)
		}
		if d.Offset == 0 && d.Partition == 0 {
			select {
			case <-time.After(2 * time.Second):
			case <-ctx.Done():
				t.Errorf("context of a held lease ended: %v", context.Cause(ctx))
			}
		}
		done.Add(1)
		return nil
	}, client.ConsumeOptions{Workers: 1, InFlight: 6})
	eventually(t, func() bool { return done.Load() == 6 }, "all messages to be worked on")
	if err := stop(); err != nil {
		t.Error(err)
	}
	staysSettled(t, c, topic, 600*time.Millisecond)
}

func TestConsumeEndsHandlersOfLostLeases(t *testing.T) {
	t.Parallel()
	c := dial(t)
	topic := newTopic(t, c, client.CreateTopic{VisibilityTimeoutMS: 600})
	produceN(t, c, topic, 1)
	lost := make(chan error, 1)
	var y tally
	stop := consuming(t, c, topic, func(ctx context.Context, d client.Delivery) error {
		if y.add(d) > 1 {
			return nil
		}
		if err := c.Nack(bg, topic, d.Handle); err != nil { // somebody takes it away
			t.Error(err)
		}
		<-ctx.Done()
		lost <- context.Cause(ctx)
		return ctx.Err()
	}, client.ConsumeOptions{})
	select {
	case err := <-lost:
		if !errors.Is(err, client.ErrLeaseLost) {
			t.Errorf("cause %v, want ErrLeaseLost", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the handler's context did not end")
	}
	eventually(t, func() bool { y.mu.Lock(); defer y.mu.Unlock(); return y.seen["0"] == 2 }, "the message to come again")
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestConsumeShutdown(t *testing.T) {
	t.Parallel()
	c := dial(t)
	topic := newTopic(t, c, client.CreateTopic{VisibilityTimeoutMS: 60_000})
	produceN(t, c, topic, 10)
	begun, finish := make(chan struct{}, 10), make(chan struct{})
	stop := consuming(t, c, topic, func(ctx context.Context, _ client.Delivery) error {
		begun <- struct{}{}
		<-finish
		if ctx.Err() != nil {
			t.Error("context of a running handler ended within its grace")
		}
		return nil
	}, client.ConsumeOptions{Workers: 2, InFlight: 10})
	<-begun
	<-begun
	stopped := make(chan error)
	go func() { stopped <- stop() }()
	select {
	case err := <-stopped:
		t.Fatalf("Consume returned with handlers running: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(finish)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	// Two were acked; eight were given back, long before their leases run out.
	if n := left(t, c, topic); n != 8 {
		t.Errorf("%d messages can be received, want the 8 that no handler had begun", n)
	}
}

func TestConsumeGrace(t *testing.T) {
	t.Parallel()
	c := dial(t)
	topic := newTopic(t, c, client.CreateTopic{VisibilityTimeoutMS: 60_000})
	produceN(t, c, topic, 1)
	begun := make(chan struct{})
	stop := consuming(t, c, topic, func(ctx context.Context, _ client.Delivery) error {
		close(begun)
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), client.ErrLeaseLost) {
			t.Error("the cause is a lost lease")
		}
		return ctx.Err()
	}, client.ConsumeOptions{Grace: 50 * time.Millisecond})
	<-begun
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := left(t, c, topic); n != 1 {
		t.Errorf("%d messages can be received, want the one that was not finished", n)
	}
}

func TestConsumeStubbornHandler(t *testing.T) {
	t.Parallel()
	c := dial(t)
	topic := newTopic(t, c, client.CreateTopic{})
	produceN(t, c, topic, 1)
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	stop := consuming(t, c, topic, func(context.Context, client.Delivery) error {
		close(begun)
		<-end
		close(ended)
		return nil
	}, client.ConsumeOptions{Grace: time.Millisecond})
	<-begun
	if err := stop(); err == nil || err.Error() != fmt.Sprintf("consume %s: 1 handlers do not return", topic) {
		t.Errorf("got %v", err)
	}
	close(end) // and it does no harm when it returns after all
	<-ended
}

func TestConsumeRefused(t *testing.T) {
	t.Parallel()
	c := dial(t)
	nop := func(context.Context, client.Delivery) error { return nil }
	if err := c.Consume(bg, "no-such-topic", nop, client.ConsumeOptions{}); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("no topic: %v", err)
	}
	ended, cancel := context.WithCancel(bg)
	cancel()
	if err := c.Consume(ended, "no-such-topic", nop, client.ConsumeOptions{}); err != nil {
		t.Errorf("context ended before: %v", err)
	}
	for _, o := range []client.ConsumeOptions{{Workers: -1}, {Workers: 1 << 20}, {Workers: 2, InFlight: 1}, {InFlight: 1 << 21}, {Wait: -1}, {Grace: -1}} {
		if err := c.Consume(bg, "t", nop, o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	topic := newTopic(t, c, client.CreateTopic{})
	done := make(chan error, 1)
	go func() { done <- c.Consume(bg, topic, nop, client.ConsumeOptions{Wait: 100 * time.Millisecond}) }()
	if err := c.DeleteTopic(bg, topic); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, client.ErrNotFound) {
			t.Errorf("topic deleted: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("goes on consuming a deleted topic")
	}
}

// newMeddler stands between a client and the node.
func newMeddler(t *testing.T, f func(w http.ResponseWriter, r *http.Request, forward func())) *httptest.Server {
	u, err := url.Parse(addr)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	proxy := httputil.NewSingleHostReverseProxy(u)
	proxy.Transport, proxy.ErrorLog = tr, log.New(io.Discard, "", 0)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f(w, r, func() { proxy.ServeHTTP(w, r) })
	}))
	t.Cleanup(func() { s.Close(); tr.CloseIdleConnections() })
	return s
}

// Acks whose answer is lost, and acks that are refused for a while, are repeated
// until they are settled.
func TestConsumeInsistsOnAcks(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(w http.ResponseWriter, forward func()){
		"answer lost": func(w http.ResponseWriter, forward func()) { forward(); panic(http.ErrAbortHandler) },
		"never sent":  func(http.ResponseWriter, func()) { panic(http.ErrAbortHandler) },
		"refused":     func(w http.ResponseWriter, _ func()) { w.WriteHeader(503) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const visibility = 3 * time.Second
			var acks atomic.Int64
			m := newMeddler(t, func(w http.ResponseWriter, r *http.Request, forward func()) {
				if strings.HasSuffix(r.URL.Path, "/ack") && acks.Add(1) <= 6 {
					spoil(w, forward)
					return
				}
				forward()
			})
			c := dialTo(t, m.URL, client.WithBackoff(time.Millisecond, 10*time.Millisecond))
			topic := newTopic(t, c, client.CreateTopic{VisibilityTimeoutMS: visibility.Milliseconds()})
			produceN(t, c, topic, 50)
			var y tally
			stop := consuming(t, c, topic, func(_ context.Context, d client.Delivery) error {
				if y.add(d) > 1 {
					t.Errorf("%s came again", d.Payload)
				}
				return nil
			}, client.ConsumeOptions{Workers: 4})
			eventually(t, func() bool { return y.distinct() == 50 }, "every message to be worked on")
			if err := stop(); err != nil {
				t.Error(err)
			}
			staysSettled(t, c, topic, visibility)
		})
	}
}

// With every ack refused Consume still returns, and says nothing is wrong: the leases
// run out.
func TestConsumeShutdownWithoutAcks(t *testing.T) {
	t.Parallel()
	m := newMeddler(t, func(w http.ResponseWriter, r *http.Request, forward func()) {
		if strings.HasSuffix(r.URL.Path, "/ack") {
			w.WriteHeader(503)
			return
		}
		forward()
	})
	c := dialTo(t, m.URL, client.WithBackoff(time.Millisecond, 10*time.Millisecond))
	topic := newTopic(t, c, client.CreateTopic{VisibilityTimeoutMS: 900})
	produceN(t, c, topic, 5)
	var y tally
	stop := consuming(t, c, topic, func(_ context.Context, d client.Delivery) error { y.add(d); return nil }, client.ConsumeOptions{Workers: 2})
	eventually(t, func() bool { return y.distinct() == 5 }, "every message to be worked on")
	if err := stop(); err != nil {
		t.Error(err)
	}
}
