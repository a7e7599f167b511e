package noderpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/narad-mq/narad/internal/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testSecret = []byte("a secret of the tests")

// lines is a log a test can look into.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.buf.String(), text)
}

func testLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// serve starts a server on addr (127.0.0.1:0 when empty) that ends with the test.
func serve(t testing.TB, change func(*ServerOptions)) *Server {
	t.Helper()
	o := ServerOptions{Addr: "127.0.0.1:0", Secret: testSecret, Secured: true, Clock: clock.Real(), Logger: testLogger(io.Discard)}
	if change != nil {
		change(&o)
	}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
	})
	return s
}

func dialler(t testing.TB, change func(*ClientOptions)) *Client {
	t.Helper()
	o := ClientOptions{Name: "main", Secret: testSecret, Secured: true, Clock: clock.Real(), Logger: testLogger(io.Discard)}
	if change != nil {
		change(&o)
	}
	c, err := NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return c
}

// echo answers with the request's fields.
func echo(_ context.Context, body []byte) Response {
	return Response{Status: http.StatusOK, ContentType: "application/octet-stream", Body: bytes.Clone(body)}
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, stop := context.WithTimeout(context.Background(), d)
	t.Cleanup(stop)
	return ctx
}

// TestRoundTrip sends bodies of every size that is handled apart, there and back.
func TestRoundTrip(t *testing.T) {
	s := serve(t, nil)
	c := dialler(t, nil)
	s.Handle(OpNodeStatus, echo, nil)
	for _, n := range []int{0, 1, 1000, tryMax - headerSize - 1, tryMax, bodyGrain + 1, joinMax, joinMax + 1, 5 << 20} {
		body := bytes.Repeat([]byte{byte(n), 7, 9}, n/3+1)[:n]
		res, err := c.Call(within(t, 20*time.Second), s.Addr(), OpNodeStatus, body)
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if res.Status != 200 || res.ContentType != "application/octet-stream" || !bytes.Equal(res.Body, body) {
			t.Fatalf("%d bytes: status %d, %q, %d bytes back", n, res.Status, res.ContentType, len(res.Body))
		}
	}
}

func TestResponseHeaders(t *testing.T) {
	s := serve(t, nil)
	c := dialler(t, nil)
	for _, size := range []int{0, joinMax + 1} {
		s.Handle(OpGetTopic, func(context.Context, []byte) Response {
			return Response{Status: 421, ContentType: "text/plain", Body: make([]byte, size), Header: []Header{{"Retry-After", "1"}, {"X", ""}}}
		}, nil)
		res, err := c.Call(within(t, 10*time.Second), s.Addr(), OpGetTopic, nil)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(res.Header) != "[{Retry-After 1} {X }]" || res.Status != 421 || len(res.Body) != size {
			t.Fatalf("got %d, %d bytes, %v", res.Status, len(res.Body), res.Header)
		}
	}
}

func TestUnroutedOperation(t *testing.T) {
	s := serve(t, nil)
	c := dialler(t, nil)
	check := func(status int, body string) {
		t.Helper()
		res, err := c.Call(within(t, 10*time.Second), s.Addr(), OpForgetServer, nil)
		if err != nil || res.Status != status || string(res.Body) != body || res.ContentType != "application/json" {
			t.Fatalf("got %d %s, %v", res.Status, res.Body, err)
		}
	}
	check(503, `{"error":"not ready"}`)
	s.Ready()
	check(400, `{"error":"unsupported rpc operation"}`)
	s.Handle(OpForgetServer, func(context.Context, []byte) Response { return Response{Status: 204} }, nil)
	res, err := c.Call(within(t, 10*time.Second), s.Addr(), OpForgetServer, nil)
	if err != nil || res.Status != 204 || len(res.Body) > 0 || res.ContentType != "" {
		t.Fatalf("got %+v, %v", res, err)
	}
}

func TestConcurrentCalls(t *testing.T) {
	s := serve(t, nil)
	c := dialler(t, nil)
	for o := Op(1); o < opCount; o++ {
		s.Handle(o, echo, nil)
	}
	var all sync.WaitGroup
	for i := range 400 {
		all.Go(func() {
			body := []byte(fmt.Sprint("request ", i))
			res, err := c.Call(within(t, 20*time.Second), s.Addr(), Op(1+i%(opCount-1)), body)
			if err != nil || !bytes.Equal(res.Body, body) {
				t.Errorf("call %d: %q, %v", i, res.Body, err)
			}
		})
	}
	all.Wait()
}

// TestHandlerPanic: a panic is one request's trouble, logged and answered.
func TestHandlerPanic(t *testing.T) {
	var log lines
	s := serve(t, func(o *ServerOptions) { o.Logger = testLogger(&log) })
	c := dialler(t, nil)
	s.Handle(OpAck, func(context.Context, []byte) Response { panic("a bug of the test") }, nil)
	s.Handle(OpNack, echo, func([]byte) Gate { panic("a bug in a gate") })
	for _, op := range []Op{OpAck, OpNack, OpAck} {
		res, err := c.Call(within(t, 10*time.Second), s.Addr(), op, nil)
		if err != nil || res.Status != 500 || string(res.Body) != `{"error":"internal error"}` {
			t.Fatalf("%s: got %d %s, %v", op, res.Status, res.Body, err)
		}
	}
	if !log.has("a bug of the test") || !log.has("a bug in a gate") || !log.has("op=ack") {
		t.Error("a panic is not in the log")
	}
}

func TestRequestTooLarge(t *testing.T) {
	c := dialler(t, nil)
	_, err := c.Call(context.Background(), "127.0.0.1:1", OpCommitProduceBatch, make([]byte, bodyMax))
	if !errors.Is(err, ErrUnreached) || !errors.Is(err, ErrFrameTooLarge) {
		t.Fatalf("got %v", err)
	}
	if c.transport != nil {
		t.Fatal("a socket was opened for it")
	}
}
