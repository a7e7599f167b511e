package peer

import (
	"context"
	"encoding/hex"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	life1 = model.Incarnation("0123456789abcdef")
	life2 = model.Incarnation("fedcba9876543210")
)

// logged collects what a node logs.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// node is a peer: a real server on loopback. What it serves is up to the test.
type node struct {
	*noderpc.Server
	logs logged
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{}
	s, err := noderpc.Listen(noderpc.ServerOptions{
		Addr: "127.0.0.1:0", Secret: []byte("secret of the tests"), Secured: true,
		Clock: clock.Real(), Logger: slog.New(slog.NewTextHandler(&n.logs, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	n.Server = s
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	s.Ready()
	return n
}

// recorder is a Caller that counts what goes out and lets a test hold it back.
type recorder struct {
	to Caller

	mu     sync.Mutex
	sent   []noderpc.Op
	bodies [][]byte
	hold   func(ctx context.Context, op noderpc.Op) error // before sending; nil = nothing
}

func (r *recorder) Call(ctx context.Context, addr string, op noderpc.Op, body []byte) (noderpc.Response, error) {
	r.mu.Lock()
	r.sent = append(r.sent, op)
	r.bodies = append(r.bodies, append([]byte(nil), body...))
	hold := r.hold
	r.mu.Unlock()
	if hold != nil {
		if err := hold(ctx, op); err != nil {
			return noderpc.Response{}, err
		}
	}
	return r.to.Call(ctx, addr, op, body)
}

// ops are the operations sent since the last call.
func (r *recorder) ops() []noderpc.Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.sent
	r.sent, r.bodies = nil, nil
	return out
}

func (r *recorder) count(op noderpc.Op) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.sent {
		if o == op {
			n++
		}
	}
	return n
}

// caller is a client of this package over a real one of noderpc.
type caller struct {
	*Client
	wire  *recorder
	clock *clock.Fake
}

func newCaller(t testing.TB, level model.ReleaseLevel) *caller {
	t.Helper()
	rpc, err := noderpc.NewClient(noderpc.ClientOptions{
		Name: "main", Secret: []byte("secret of the tests"), Secured: true, Clock: clock.Real(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rpc.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &caller{wire: &recorder{to: rpc}, clock: clock.NewFake(time.UnixMilli(1_700_000_000_000))}
	c.Client = NewClient(Options{Main: c.wire, Transfer: c.wire, Level: level, Self: "narad-1", Clock: c.clock, Logger: slog.New(slog.DiscardHandler)})
	return c
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// captured is a Server that only keeps the handlers.
type captured struct {
	handlers [256]noderpc.Handler
}

func (c *captured) Handle(op noderpc.Op, h noderpc.Handler, _ func([]byte) noderpc.Gate) {
	c.handlers[op] = h
}

func (c *captured) Logger() *slog.Logger { return slog.New(slog.DiscardHandler) }
