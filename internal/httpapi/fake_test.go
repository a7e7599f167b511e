package httpapi

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/ingress"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/router"
	"github.com/narad-mq/narad/internal/telemetry"
	"github.com/narad-mq/narad/internal/testutil"
	"github.com/narad-mq/narad/internal/topics"
)

// fake stands in for the floors below where a test needs an answer they give only
// when something is broken. Its zero value knows topic "t" with 3 partitions.
type fake struct {
	degraded []string                        // of Health
	err      error                           // answered by every operation
	deliver  []model.Delivery                // what a consume returns
	message  *model.Message                  // what a replay returns
	accept   func(ctx context.Context) error // called by Accept and AcceptMany
	consume  func(ctx context.Context) ([]model.Delivery, error)

	mu       sync.Mutex // guards the rest
	accepted []ingress.Message
	released []model.Handle
}

func (f *fake) view() *model.TopicView {
	return &model.TopicView{
		Topic:  model.Topic{Name: "t", ID: "00112233aabbccdd", Partitions: 3, RetentionMS: 1, VisibilityTimeoutMS: 2, MaxInFlight: 3, MaxAckedAhead: 4, CreatedAt: 5},
		Owners: []string{"n", "n", "n"},
	}
}

func (f *fake) Topic(name string) (*model.TopicView, bool) { return f.view(), name == "t" }

func (f *fake) ListTopics(string, int) ([]*model.TopicView, bool) {
	return []*model.TopicView{f.view()}, false
}

func (f *fake) Create(context.Context, topics.CreateRequest) (*model.TopicView, error) {
	return f.view(), f.err
}

func (f *fake) Alter(context.Context, string, topics.AlterRequest) (*model.TopicView, error) {
	return f.view(), f.err
}

func (f *fake) Delete(context.Context, string, string) error { return f.err }

func (f *fake) CheckCreate(topics.CreateRequest) error { return nil }

func (f *fake) Consume(ctx context.Context, _ broker.ConsumeRequest) ([]model.Delivery, error) {
	if f.consume != nil {
		return f.consume(ctx)
	}
	return f.deliver, f.err
}

func (f *fake) Read(context.Context, string, int, int64) (model.Message, bool, error) {
	if f.err != nil || f.message == nil {
		return model.Message{}, false, f.err
	}
	return *f.message, true, nil
}

func (f *fake) Release(_ string, h model.Handle) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released = append(f.released, h)
}

func (f *fake) releases() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.released)
}

func (f *fake) Settle(context.Context, string, model.Handle, model.SettleOp) error { return f.err }

func (f *fake) SettleMany(_ context.Context, _ string, hs []model.Handle, _ model.SettleOp) ([]error, error) {
	errs := make([]error, len(hs))
	for i := range errs {
		errs[i] = f.err
	}
	return errs, nil
}

func (f *fake) CountRejected(string) {}

func (f *fake) Describe(context.Context, string, int) (router.Details, error) {
	return router.Details{View: f.view(), Stats: []model.PartitionStats{}}, f.err
}

func (f *fake) Accept(ctx context.Context, topic string, m ingress.Message) error {
	return f.AcceptMany(ctx, topic, []ingress.Message{m})
}

func (f *fake) AcceptMany(ctx context.Context, _ string, ms []ingress.Message) error {
	if f.accept != nil {
		if err := f.accept(ctx); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.accepted = append(f.accepted, ms...)
	}
	return f.err
}

func (f *fake) Ready() error { return f.err }

func (f *fake) Degraded() []string { return f.degraded }

func (f *fake) backends() Backends {
	return Backends{Directory: f, Topics: f, Router: f, Produce: f, Health: f}
}

// server is a real HTTP server over an API.
type server struct {
	api  *API
	addr string
	reg  *prometheus.Registry
	log  *lockedBuffer
	stop func() // idempotent
}

// lockedBuffer collects log lines.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve starts a server that has not begun.
func serve(t testing.TB, edit func(*config.HTTP)) *server {
	t.Helper()
	return serveWith(t, edit, false)
}

func serveWith(t testing.TB, edit func(*config.HTTP), secured bool) *server {
	t.Helper()
	cfg := config.Default().HTTP
	if edit != nil {
		edit(&cfg)
	}
	s := &server{reg: prometheus.NewRegistry(), log: &lockedBuffer{}}
	log, err := telemetry.NewLogger(s.log, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	s.api = New(Options{
		Config: cfg, Secured: secured, Clock: clock.Real(), Logger: log, Registry: s.reg,
		Metrics: promhttp.HandlerFor(s.reg, promhttp.HandlerOpts{}),
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	srv := NewServer(s.api, cfg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(LimitListener(l, cfg.MaxConnections))
	}()
	s.stop = func() {
		_ = srv.Close()
		<-done
		http.DefaultClient.CloseIdleConnections()
	}
	t.Cleanup(s.stop)
	return s
}

// serveFake starts a server over a fake.
func serveFake(t testing.TB, f *fake, edit func(*config.HTTP)) *server {
	t.Helper()
	s := serve(t, edit)
	s.api.Begin(f.backends())
	return s
}

// idle waits until every request is recorded, which is after its answer was sent.
func (s *server) idle(t testing.TB) {
	t.Helper()
	testutil.Eventually(t, 5*time.Second, func() bool { return promtest.ToFloat64(s.api.metrics.inFlight) == 0 }, "requests to end")
}

// answer is a response read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends one request with the client header. header holds "Name: value" lines;
// a line "-Name" leaves a default header out.
func (s *server) do(t testing.TB, method, path, body string, header ...string) answer {
	t.Helper()
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, "http://"+s.addr+path, rd)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(clientHeader, "test")
	for _, h := range header {
		if name, ok := strings.CutPrefix(h, "-"); ok {
			req.Header.Del(name)
			continue
		}
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	client := http.Client{
		Timeout:       20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: read body: %v", method, path, err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// raw sends bytes on a fresh connection and returns all that comes back until the
// server closes it or d passes.
func (s *server) raw(t testing.TB, d time.Duration, parts ...string) string {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(d))
	for _, p := range parts {
		if _, err := io.WriteString(conn, p); err != nil {
			break // refused while sending: the answer tells
		}
	}
	var out strings.Builder
	_, _ = io.Copy(&out, bufio.NewReader(conn))
	return out.String()
}

// expect compares status and text of an answer; a text of "" is an empty body.
func (a answer) expect(t testing.TB, status int, text string) {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d (body %s), want %d", a.status, a.body, status)
	}
	if text == "" && a.body != "" || !strings.Contains(a.body, text) {
		t.Fatalf("body %q, want %q in it", a.body, text)
	}
}
