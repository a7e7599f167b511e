package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
	"github.com/narad-mq/narad/internal/testutil"
)

// TestIdentityCap: weights are clamped to the cap, refused at once when they do
// not fit, and given back exactly once.
func TestIdentityCap(t *testing.T) {
	k := newIdentityCap(10, "consume")
	a, err := k.take("a", 6)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.take("a", 5); err == nil || err.Error() != "too many in-flight consume requests for this identity (limit 10 per node)" {
		t.Fatalf("11 of 10: %v", err)
	}
	b, err := k.take("b", 100)
	if err != nil || b.weight != 10 {
		t.Fatalf("another identity, clamped: %+v %v", b, err)
	}
	if err := a.raise(4); err != nil || a.weight != 6 {
		t.Fatalf("raise below what is held: %+v %v", a, err)
	}
	if err := a.raise(10); err != nil || k.held["a"] != 10 {
		t.Fatalf("raise to the cap: %+v %v", a, err)
	}
	a.release()
	a.release()
	b.release()
	if len(k.held) != 0 {
		t.Fatalf("held %v after all releases", k.held)
	}
	off := newIdentityCap(0, "produce")
	if h, err := off.take("a", 1<<30); err != nil || h.weight != 0 {
		t.Fatalf("no cap: %+v %v", h, err)
	}
}

// TestLIM8_ConsumeCap and its weights over HTTP: parked consumes hold the cap for
// their whole life; E-429C with Retry-After.
func TestLIM8_ConsumeCap(t *testing.T) {
	gate := make(chan struct{})
	var parked sync.WaitGroup
	parked.Add(2)
	f := &fake{consume: func(context.Context) ([]model.Delivery, error) {
		parked.Done()
		<-gate
		return nil, nil
	}}
	s := serveFake(t, f, func(c *config.HTTP) { c.MaxConsumeInFlightPerID = 10 })
	var wg sync.WaitGroup
	for _, q := range []string{"max=8", "wait=1s"} {
		wg.Go(func() { s.do(t, "GET", "/v1/topics/t/consume?"+q, "").expect(t, 204, "") })
	}
	parked.Wait()
	got := s.do(t, "GET", "/v1/topics/t/consume?max=2", "")
	got.expect(t, 429, `{"error":"too many in-flight consume requests for this identity (limit 10 per node)","code":"too_many_in_flight"}`)
	if got.header.Get("Retry-After") != "1" {
		t.Fatalf("headers %v", got.header)
	}
	s.do(t, "GET", "/v1/topics/t/consume?partition=0&offset=1", "").expect(t, 204, "") // a replay weighs 1
	s.do(t, "GET", "/v1/topics/t/consume?max=0", "").expect(t, 400, "max")             // parameters come first
	close(gate)
	wg.Wait()
	s.idle(t)
	f.consume = nil
	s.do(t, "GET", "/v1/topics/t/consume?max=100", "").expect(t, 204, "") // clamped to the cap
}

// TestLIM9_ProduceCap: a batch weighs its count once that is known (E-429P).
func TestLIM9_ProduceCap(t *testing.T) {
	gate, entered := make(chan struct{}), make(chan struct{})
	f := &fake{accept: func(context.Context) error { entered <- struct{}{}; <-gate; return nil }}
	s := serveFake(t, f, func(c *config.HTTP) { c.MaxProduceInFlightPerID = 4 })
	var wg sync.WaitGroup
	wg.Go(func() {
		s.do(t, "POST", "/v1/topics/t/produce/batch", list(3, `{"payload":1}`)).expect(t, 202, "3")
	})
	<-entered
	s.do(t, "POST", "/v1/topics/t/produce/batch", list(2, `{"payload":1}`)).
		expect(t, 429, "too many in-flight produce requests for this identity (limit 4 per node)")
	wg.Go(func() { s.do(t, "POST", "/v1/topics/t/produce", "x").expect(t, 202, "") })
	<-entered
	s.do(t, "POST", "/v1/topics/t/produce", "x").expect(t, 429, "limit 4")
	close(gate)
	wg.Wait()
	s.idle(t)
	wg.Go(func() { s.do(t, "POST", "/v1/topics/t/produce/batch", list(9, `{"payload":1}`)).expect(t, 202, "9") })
	<-entered
	wg.Wait()
}

// TestLIM10_BatchBudget (PB-13, PB-14): bodies over 1 MiB take from the budget as
// they grow; a small one never does.
func TestLIM10_BatchBudget(t *testing.T) {
	s := serveFake(t, &fake{}, func(c *config.HTTP) { c.MaxBatchBodyBytesInFlight = 3 << 20 })
	big := list(2, `{"payload":"`+strings.Repeat("x", 900_000)+`"}`) // 2 steps
	held, release := io.Pipe()
	done := make(chan error, 1)
	go func() {
		req, _ := http.NewRequest("POST", "http://"+s.addr+"/v1/topics/t/produce/batch", held)
		req.Header.Set(clientHeader, "t")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode != 202 {
				err = fmt.Errorf("status %d", resp.StatusCode)
			}
		}
		done <- err
	}()
	if _, err := io.WriteString(release, big[:len(big)-10]); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, 5*time.Second, func() bool { return s.api.batchBudget.used.Load() == 2<<20 }, "2 MiB of budget taken")
	got := s.do(t, "POST", "/v1/topics/t/produce/batch", big)
	got.expect(t, 503, `{"error":"batch produce bodies in flight on this node are at their limit; retry","code":"batch_body_budget"}`)
	if got.header.Get("Retry-After") != "1" {
		t.Fatalf("headers %v", got.header)
	}
	if n := promtest.ToFloat64(s.api.metrics.budgetRejections); n != 1 {
		t.Fatalf("%v rejections counted", n)
	}
	s.do(t, "POST", "/v1/topics/t/produce/batch", list(1, `{"payload":1}`)).expect(t, 202, "1")
	if _, err := io.WriteString(release, big[len(big)-10:]); err != nil {
		t.Fatal(err)
	}
	release.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := s.api.batchBudget.used.Load(); n != 0 {
		t.Fatalf("%d bytes still held", n)
	}
	s.do(t, "POST", "/v1/topics/t/produce/batch", big).expect(t, 202, "2")
}

// TestBodyBounds: LIM-1 to LIM-4 at the bound and one past it, declared and
// chunked.
func TestBodyBounds(t *testing.T) {
	f := &fake{}
	s := serveFake(t, f, nil)
	pad := func(prefix string, n int) string { return prefix + strings.Repeat(" ", n-len(prefix)) }
	for _, tc := range []struct {
		name, method, path, body string
		status                   int
		text                     string
	}{
		{"LIM-1 create at the bound", "POST", "/v1/topics", pad(`{"name":"t"}`, 1<<20), 201, `"name":"t"`},
		{"TC-14", "POST", "/v1/topics", pad(`{"name":"t"}`, 1<<20+1), 413, "request body too large"},
		{"TA-16", "PATCH", "/v1/topics/t", pad(`{"retention_ms":0}`, 1<<20+1), 413, "request body too large"},
		{"LIM-3 message at the bound", "POST", "/v1/topics/t/produce", pad("", 1<<20), 202, ""},
		{"P-10", "POST", "/v1/topics/t/produce", pad("", 1<<20+1), 413, "message too large"},
		{"LIM-2 batch at the bound", "POST", "/v1/topics/t/produce/batch", pad(list(1, `{"payload":1}`), 16<<20), 202, "1"},
		{"PB-10", "POST", "/v1/topics/t/produce/batch", pad(list(1, `{"payload":1}`), 16<<20+1), 413, "request body too large"},
		{"LIM-4 ack at the bound", "POST", "/v1/topics/t/ack", pad(`{"receipt_handles":["0:0:1"]}`, 64<<10), 200, "204"},
		{"AB-5", "POST", "/v1/topics/t/ack", pad(`{"receipt_handles":["0:0:1"]}`, 64<<10+1), 413, "request body too large"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.do(t, tc.method, tc.path, tc.body).expect(t, tc.status, tc.text)
			req, err := http.NewRequest(tc.method, "http://"+s.addr+tc.path, io.MultiReader(strings.NewReader(tc.body)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(clientHeader, "t")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != tc.status {
				t.Fatalf("chunked: %d, want %d", resp.StatusCode, tc.status)
			}
		})
	}
}

// TestReadBodyMemory: a buffer is exact up to 64 KiB, never more than four times
// what has arrived beyond, and trimmed when mostly empty.
func TestReadBodyMemory(t *testing.T) {
	read := func(n, declared int, r io.Reader) []byte {
		t.Helper()
		if r == nil {
			r = iotest.HalfReader(bytes.NewReader(make([]byte, n)))
		}
		buf, err := readBody(&Request{Ctx: t.Context(), Body: r, ContentLength: int64(declared)}, 16<<20, errBodyTooLarge, nil)
		if err != nil || len(buf) != n {
			t.Fatalf("%d bytes declared %d: %d, %v", n, declared, len(buf), err)
		}
		return buf
	}
	for _, n := range []int{1, 1000, 64 << 10} {
		if b := read(n, n, nil); cap(b) > n+n/4 { // the allocator's size class
			t.Errorf("%d bytes in a buffer of %d", n, cap(b))
		}
	}
	if b := read(100, -1, nil); cap(b) > 200 {
		t.Errorf("100 chunked bytes pin %d", cap(b))
	}
	if b := read(3<<20, 3<<20, nil); cap(b) > 3<<20+1<<13 {
		t.Errorf("3 MiB declared in a buffer of %d", cap(b))
	}
	got, grown := 0, 0
	probe := readerFunc(func(p []byte) (int, error) {
		if have := got + len(p); have > grown {
			grown = have
		}
		if limit := max(64<<10, 4*got) + 1<<13; got+len(p) > limit {
			t.Fatalf("%d bytes received, buffer of %d", got, got+len(p))
		}
		if got >= 5<<20 {
			return 0, io.EOF
		}
		n := min(len(p), 1<<15)
		got += n
		return n, nil
	})
	if _, err := readGrowing(probe, 8<<20, 16<<20, errBodyTooLarge, nil); err != nil || grown == 0 {
		t.Fatal(err)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestBodyErrors: what breaks while a body is read decides the answer.
func TestBodyErrors(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, tc := range []struct {
		ctx  context.Context
		err  error
		want fixed
	}{
		{t.Context(), io.ErrUnexpectedEOF, errClientGone},
		{gone, errors.New("connection reset"), errClientGone},
		{gone, &timeoutError{}, errBodyTimeout},
		{t.Context(), errors.New("malformed chunk"), errBodyUnreadable},
	} {
		for _, declared := range []int64{10, -1} {
			r := &Request{Ctx: tc.ctx, Body: io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(tc.err)), ContentLength: declared}
			if _, err := readBody(r, 100, errBodyTooLarge, nil); err != error(tc.want) {
				t.Errorf("%v, declared %d: %v, want %v", tc.err, declared, err, tc.want)
			}
			d := decoders{}
			r.Body = io.MultiReader(strings.NewReader("\x1f\x8b\x08\x00"), iotest.ErrReader(tc.err))
			if _, err := d.readCompressed(r, codingGzip, nil); err != error(tc.want) {
				t.Errorf("%v, gzip: %v, want %v", tc.err, err, tc.want)
			}
		}
	}
}

type timeoutError struct{}

func (*timeoutError) Error() string   { return "i/o timeout" }
func (*timeoutError) Timeout() bool   { return true }
func (*timeoutError) Temporary() bool { return true }

// TestServerSettings: the listener's limits of spec/http-api section 1.
func TestServerSettings(t *testing.T) {
	cfg := config.Default().HTTP
	a := New(Options{Config: cfg, Clock: clock.Real(), Logger: telemetry.Discard()})
	srv := NewServer(a, cfg)
	if srv.ReadHeaderTimeout != 5*time.Second || srv.ReadTimeout != 10*time.Second || srv.WriteTimeout != 30*time.Second || srv.IdleTimeout != time.Minute {
		t.Fatalf("timeouts %v %v %v", srv.ReadHeaderTimeout, srv.WriteTimeout, srv.IdleTimeout)
	}
	if a.writeBudget != 28*time.Second {
		t.Fatalf("a change may take %v", a.writeBudget)
	}
	cfg.MaxHeaderBytes, cfg.MaxConsumeWait = 4096, 0
	if srv := NewServer(a, cfg); srv.MaxHeaderBytes < 1 {
		t.Fatalf("MaxHeaderBytes %d means the library's own default", srv.MaxHeaderBytes)
	}
	if a := New(Options{Config: cfg, Clock: clock.Real(), Logger: telemetry.Discard()}); a.maxWait != 30*time.Second {
		t.Fatalf("ceiling %v", a.maxWait)
	}
}

// of is what an identity holds.
func (k *identityCap) of(id string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held[id]
}
