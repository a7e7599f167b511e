package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// script is a node that does as told: the k-th request meets the k-th step, all
// later ones the last.
type script struct {
	*httptest.Server
	calls atomic.Int64
}

type step func(w http.ResponseWriter, r *http.Request)

func newScript(t *testing.T, steps ...step) *script {
	s := &script{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		steps[min(int(s.calls.Add(1)), len(steps))-1](w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// answers is a step with a status and a body; a Retry-After if after is given.
func answers(status int, body string, after ...string) step {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, a := range after {
			w.Header().Set("Retry-After", a)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func refuses(status int, code string, after ...string) step {
	return answers(status, fmt.Sprintf(`{"error":"no","code":%q}`, code), after...)
}

// resets closes the connection instead of answering.
func resets(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

// hangs answers nothing until the client leaves.
func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// quick makes a client whose pauses do not slow tests down.
func quick(t *testing.T, addrs string, opts ...Option) *Client {
	t.Helper()
	c, err := New(addrs, append([]Option{WithBackoff(time.Millisecond, 4*time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// The five kinds of calls, by what they may repeat.
var kinds = map[string]func(*Client) error{
	"read":    func(c *Client) error { _, err := c.DescribeTopic(context.Background(), "t"); return err },
	"receive": func(c *Client) error { _, err := c.Receive(context.Background(), "t", ReceiveOptions{}); return err },
	"settle":  func(c *Client) error { return c.Ack(context.Background(), "t", "0:1:2") },
	"produce": func(c *Client) error { return c.Produce(context.Background(), "t", Message{Payload: []byte("x")}) },
	"change":  func(c *Client) error { return c.DeleteTopic(context.Background(), "t") },
}

// What a first attempt meets, and what each kind of call makes of it (spec/consume
// section 16, spec/http-api section 17). A = tried again, U = uncertain if it is not
// tried again. Cautious produces differ from others in that they end where U is.
func TestRetryTable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		step step
		want map[string]string
	}{
		{"400", refuses(400, "invalid_argument"), all("")},
		{"401", refuses(401, ""), all("")},
		{"403", refuses(403, ""), all("")},
		{"404", refuses(404, "topic_not_found"), all("")},
		{"409", refuses(409, "conflict"), all("")},
		{"410", refuses(410, "lease_gone"), all("")},
		{"413", refuses(413, "body_too_large"), all("")},
		{"415", refuses(415, "unsupported_media_type"), all("")},
		{"421", refuses(421, "not_owner"), all("A")},
		{"429", refuses(429, "too_many_in_flight"), all("A")},
		{"500", refuses(500, "internal"), writes("AU", "U")},
		{"501", refuses(501, ""), map[string]string{"settle": "U", "produce": "U", "change": "U"}},
		{"502", answers(502, "no answer"), writes("AU", "U")},
		{"503 refused", refuses(503, "disk_reserve"), all("A")},
		{"503 unknown", refuses(503, "outcome_unknown"), map[string]string{"read": "A", "receive": "A", "settle": "A", "produce": "AU", "change": "U"}},
		{"503 of a balancer", answers(503, "busy"), map[string]string{"read": "A", "receive": "A", "settle": "A", "produce": "AU", "change": "U"}},
		{"reset", resets, writes("AU", "U")},
		{"hang", hangs, writes("AU", "U")},
	} {
		for kind, call := range kinds {
			t.Run(tc.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s := newScript(t, tc.step)
				want := tc.want[kind]
				err := call(quick(t, s.URL, WithRetries(3), WithTimeout(200*time.Millisecond)))
				check(t, s, err, strings.Contains(want, "A"), strings.Contains(want, "U"), 3)

				cautious := newScript(t, tc.step)
				again := strings.Contains(want, "A") && (kind != "produce" || !strings.Contains(want, "U"))
				err = call(quick(t, cautious.URL, WithRetries(2), WithTimeout(200*time.Millisecond), WithCautiousRetries()))
				check(t, cautious, err, again, strings.Contains(want, "U"), 2)
			})
		}
	}
}

func all(s string) map[string]string {
	return map[string]string{"read": s, "receive": s, "settle": s, "produce": s, "change": s}
}

// writes is what happens to whatever may have been applied: acks and produces are
// repeated, changes are not; reads are repeated and never uncertain.
func writes(repeated, changed string) map[string]string {
	return map[string]string{"read": "A", "receive": "A", "settle": repeated, "produce": repeated, "change": changed}
}

func check(t *testing.T, s *script, err error, again, unsure bool, attempts int64) {
	t.Helper()
	want := int64(1)
	if again {
		want = attempts
	}
	if err == nil || s.calls.Load() != want || Uncertain(err) != unsure {
		t.Errorf("%d attempts, want %d; uncertain %v, want %v; %v", s.calls.Load(), want, Uncertain(err), unsure, err)
	}
	if again && !Retryable(err) {
		t.Errorf("repeated, but not Retryable: %v", err)
	}
}

func TestUncertaintyOfAnyAttemptStays(t *testing.T) {
	s := newScript(t, resets, refuses(404, "topic_not_found"))
	err := quick(t, s.URL).Produce(context.Background(), "t", Message{Payload: []byte("x")})
	if !errors.Is(err, ErrNotFound) || !Uncertain(err) || Retryable(err) {
		t.Errorf("got %v (uncertain %v, retryable %v), want an uncertain not-found", err, Uncertain(err), Retryable(err))
	}
}

func TestNobodyListens(t *testing.T) {
	s := newScript(t, hangs)
	s.Close()
	err := quick(t, s.URL, WithCautiousRetries()).Produce(context.Background(), "t", Message{Payload: []byte("x")})
	var c *ConnError
	if !errors.As(err, &c) || c.Sent || c.Node != s.URL || Uncertain(err) || !Retryable(err) || !strings.Contains(err.Error(), "after 4 attempts") {
		t.Errorf("got %v, want a certain ConnError of %s after 4 attempts", err, s.URL)
	}
}

func TestAnotherNodeServes(t *testing.T) {
	bad, good := newScript(t, refuses(503, "disk_reserve", "7")), newScript(t, answers(202, ""))
	c := quick(t, bad.URL+","+good.URL)
	start := time.Now()
	for range 6 {
		if err := c.Produce(context.Background(), "t", Message{Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if n := bad.calls.Load(); n != 1 {
		t.Errorf("the node that asked for 7 s of pause got %d requests, want 1", n)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v: waited for a Retry-After that concerned one node", took)
	}
}

func TestRetryAfterOfTheClusterIsWaitedFor(t *testing.T) {
	t.Parallel()
	// An owner that is down is down whichever node is asked.
	a := newScript(t, answers(503, "partition owner is down; retry later", "1"), answers(204, ""))
	start := time.Now()
	if err := quick(t, a.URL+",127.0.0.1:1").Ack(context.Background(), "t", "0:1:2"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < time.Second {
		t.Errorf("tried again after %v, want 1 s or more", took)
	}
}

func TestRetryAfterPastTheDeadline(t *testing.T) {
	for _, after := range []string{"20", "31", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)} {
		s := newScript(t, refuses(429, "auth_throttled", after))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		start := time.Now()
		_, err := quick(t, s.URL).DescribeTopic(ctx, "t")
		if !errors.Is(err, ErrThrottled) || time.Since(start) > 5*time.Second || s.calls.Load() != 1 {
			t.Errorf("Retry-After %s: %v after %v and %d requests, want the refusal at once", after, err, time.Since(start), s.calls.Load())
		}
	}
}

func TestRetryAfterValues(t *testing.T) {
	for v, want := range map[string]time.Duration{"": 0, "3": 3 * time.Second, "-1": 0, "x": 0, "99999999999999": 0, "Mon, 02 Jan 2006 15:04:05 GMT": 0} {
		if got := retryAfter(v); got != want {
			t.Errorf("retryAfter(%q) = %v, want %v", v, got, want)
		}
	}
}

func TestHangingNodeIsLeftOut(t *testing.T) {
	bad, good := newScript(t, hangs), newScript(t, answers(202, ""))
	c := quick(t, bad.URL+","+good.URL, WithTimeout(30*time.Millisecond), WithBreaker(2, time.Hour))
	for range 10 {
		if err := c.Produce(context.Background(), "t", Message{Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if n := bad.calls.Load(); n != 2 {
		t.Errorf("the hanging node got %d requests, want 2", n)
	}
}

// A caller's own short deadline shows a node that hangs, too; a cancel shows nothing.
func TestDeadlinesCountCancelsDoNot(t *testing.T) {
	s := newScript(t, hangs)
	c := quick(t, s.URL, WithBreaker(2, time.Hour))
	for range 3 {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(20*time.Millisecond, cancel)
		err := c.Produce(ctx, "t", Message{Payload: []byte("x")})
		if !errors.Is(err, context.Canceled) || !Uncertain(err) || Retryable(err) {
			t.Errorf("cancelled: %v", err)
		}
	}
	if c.nodes.all[0].failures != 0 {
		t.Errorf("%d failures counted for what the caller cancelled", c.nodes.all[0].failures)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		if err := c.Produce(ctx, "t", Message{Payload: []byte("x")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("deadline: %v", err)
		}
		cancel()
	}
	if !c.nodes.all[0].open {
		t.Error("a node that lets deadlines pass is not left out")
	}
}

func TestAckThatLandedBefore(t *testing.T) {
	for _, m := range []struct {
		name string
		call func(*Client) error
		lost bool
	}{
		{"ack", func(c *Client) error { return c.Ack(context.Background(), "t", "0:1:2") }, false},
		{"nack", func(c *Client) error { return c.Nack(context.Background(), "t", "0:1:2") }, false},
		{"extend", func(c *Client) error { return c.Extend(context.Background(), "t", "0:1:2") }, true},
	} {
		s := newScript(t, resets, refuses(410, "lease_gone"))
		if err := m.call(quick(t, s.URL)); errors.Is(err, ErrLeaseLost) != m.lost || !m.lost && err != nil {
			t.Errorf("%s: no answer, then 410: %v", m.name, err)
		}
		s = newScript(t, refuses(503, "shutting_down"), refuses(410, "lease_gone"))
		if err := m.call(quick(t, s.URL)); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("%s: refused, then 410: %v, want ErrLeaseLost", m.name, err)
		}
	}
}

func TestBatchAckRepeatsWhatIsLeft(t *testing.T) {
	var bodies []string
	s := newScript(t, answers(200, ""))
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(b))
		out := `{"results":[{"status":204},{"status":502,"error":"?"},{"status":503,"error":"down"},{"status":410,"error":"gone"},{"status":400,"error":"bad"}]}`
		if len(bodies) == 2 {
			out = `{"results":[{"status":410,"error":"gone"},{"status":410,"error":"gone"}]}`
		}
		_, _ = io.WriteString(w, out)
	})
	errs, err := quick(t, s.URL).AckBatch(context.Background(), "t", []string{"a", "b", "c", "d", "e"})
	if err != nil || len(bodies) != 2 || bodies[1] != `{"receipt_handles":["b","c"]}` {
		t.Fatalf("requests %q, %v: want the second for b and c", bodies, err)
	}
	// b answered 502, so its 410 means it had landed; c was refused, so it is lost.
	if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], ErrLeaseLost) || !errors.Is(errs[3], ErrLeaseLost) || !errors.Is(errs[4], ErrBadRequest) {
		t.Errorf("results %v", errs)
	}
}

func TestBatchAckThatStaysUnanswered(t *testing.T) {
	s := newScript(t, answers(200, `{"results":[{"status":204},{"status":503,"error":"down"}]}`), resets)
	errs, err := quick(t, s.URL).AckBatch(context.Background(), "t", []string{"a", "b"})
	if err != nil || errs[0] != nil || !Uncertain(errs[1]) || s.calls.Load() != DefaultRetries {
		t.Errorf("%v, %v after %d requests", errs, err, s.calls.Load())
	}
}

func TestHeadersOfARequest(t *testing.T) {
	var got http.Header
	s := newScript(t, func(w http.ResponseWriter, r *http.Request) { got = r.Header; w.WriteHeader(202) })
	c := quick(t, s.URL, WithName("biller"), WithBasicAuth("ann", "secret"))
	if err := c.Produce(context.Background(), "t", Message{Payload: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if got.Get("X-Narad-Client") != "biller" || got.Get("Authorization") != "Basic YW5uOnNlY3JldA==" || got.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("headers %v", got)
	}
}

func TestAnswersThatCannotBeRead(t *testing.T) {
	for name, st := range map[string]step{
		"not JSON": answers(200, "<html>"),
		"too large": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(responseBytesMax+1))
		},
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			for b := make([]byte, 1<<20); ; {
				if _, err := w.Write(b); err != nil {
					return
				}
			}
		},
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "{")
		},
	} {
		s := newScript(t, st)
		if _, err := quick(t, s.URL, WithRetries(1)).Receive(context.Background(), "t", ReceiveOptions{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestClosedClient(t *testing.T) {
	s := newScript(t, answers(202, ""))
	c := quick(t, s.URL)
	c.Close()
	c.Close()
	if err := c.Produce(context.Background(), "t", Message{Payload: []byte("x")}); !errors.Is(err, ErrClosed) || s.calls.Load() != 0 {
		t.Errorf("produce on a closed client: %v, %d requests", err, s.calls.Load())
	}
}

func TestBackoffIsBounded(t *testing.T) {
	c := quick(t, "127.0.0.1:1", WithBackoff(DefaultBackoff, DefaultBackoffMax))
	for _, n := range []int{1, 2, 8, 64, 1 << 20} {
		limit := DefaultBackoffMax
		if n < 7 {
			limit = DefaultBackoff << (n - 1)
		}
		for range 100 {
			if d := c.backoff(n); d <= 0 || d > limit {
				t.Fatalf("pause %d is %v, want up to %v", n, d, limit)
			}
		}
	}
}
