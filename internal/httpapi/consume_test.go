package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
	"github.com/narad-mq/narad/internal/testutil"
)

// TestConsumeParams covers C-3 to C-7, C-9, R-5, R-6 and the order of the checks.
func TestConsumeParams(t *testing.T) {
	n := newNode(t, func(c *config.HTTP) { c.MaxConsumeWait = 50 * time.Millisecond })
	n.create(t, "t")
	for _, tc := range []struct {
		name, query string
		status      int
		text        string
	}{
		{"C-2", "", 204, ""},
		{"wait 0", "wait=0", 204, ""},
		{"C-4 wait without unit", "wait=5", 400, "invalid argument: wait"},
		{"C-4 negative wait", "wait=-1s", 400, "invalid argument: wait"},
		{"C-4 wait", "wait=soon", 400, "invalid argument: wait"},
		{"C-4 empty wait", "wait=", 400, "invalid argument: wait"},
		{"C-4 huge wait", "wait=9999999999h", 400, "invalid argument: wait"},
		{"C-4 partition", "partition=x", 400, "invalid argument: partition out of range"},
		{"C-4 partition range", "partition=3", 400, "invalid argument: partition out of range"},
		{"C-4 max 0", "max=0", 400, "invalid argument: max"},
		{"C-4 max 101", "max=101", 400, "invalid argument: max"},
		{"C-4 max", "max=x", 400, "invalid argument: max"},
		{"R-5", "partition=0&offset=-1", 400, "invalid argument: offset"},
		{"C-4 offset", "partition=0&offset=x", 400, "invalid argument: offset"},
		{"C-5", "offset=0", 400, `{"error":"partition required for replay-mode consume"`},
		{"C-6", "max=2&offset=0&partition=0", 400, "invalid argument: max and offset"},
		{"BODY-9", "wait=0&wait=0", 400, "wait is given more than once"},
		{"BODY-9 max", "max=1&max=1", 400, "max is given more than once"},
		{"unknown parameter", "foo=%zz&wait=0s", 204, ""},
		{"R-6", "partition=3&offset=0", 400, "invalid argument: partition out of range"},
		{"R-2", "partition=0&offset=0&wait=10s", 204, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n.do(t, "GET", "/v1/topics/t/consume?"+tc.query, "").expect(t, tc.status, tc.text)
		})
	}
	n.do(t, "GET", "/v1/topics/nope/consume", "").expect(t, 404, `{"error":"topic not found","code":"topic_not_found"}`)
	n.do(t, "GET", "/v1/topics/nope/consume?max=0", "").expect(t, 400, "max")
	n.do(t, "GET", "/v1/topics/nope/consume?partition=0&offset=0", "").expect(t, 404, "topic not found")
	n.do(t, "GET", "/v1/topics/t/consume?max=5", "", "-"+clientHeader).expect(t, 400, "X-Narad-Client") // C-7
	got := n.do(t, "GET", "/v1/topics/t/consume?wait=10m", "")
	got.expect(t, 204, "")
	if got.header.Get("X-Narad-Wait-Clamped") != "50ms" { // C-3
		t.Fatalf("headers %v", got.header)
	}
	if got := n.do(t, "GET", "/v1/topics/t/consume?wait=50ms", ""); got.header.Get("X-Narad-Wait-Clamped") != "" {
		t.Fatal("a wait at the cap is not clamped")
	}
}

// TestConsume covers C-1, C-22, CB-1, CB-5 and CB-7.
func TestConsume(t *testing.T) {
	n := newNode(t, nil)
	n.create(t, "t")
	waiting := make(chan answer, 1)
	go func() { waiting <- n.do(t, "GET", "/v1/topics/t/consume?wait=10s", "") }()
	testutil.Eventually(t, 5*time.Second, func() bool { return promtest.ToFloat64(n.api.metrics.inFlight) == 1 }, "the consume to park")
	n.do(t, "POST", "/v1/topics/t/produce?partition=1&key=k", `{"n":1}`).expect(t, 202, "")
	got := <-waiting
	got.expect(t, 200, `{"topic":"t","partition":1,"offset":0,"key":"k","payload":{"n":1},"timestamp":`)
	if got.header.Get("Content-Type") != "application/json" || got.header.Get("Content-Length") != fmt.Sprint(len(got.body)) {
		t.Fatalf("headers %v for %d bytes", got.header, len(got.body))
	}
	var m message
	if err := json.Unmarshal([]byte(got.body), &m); err != nil {
		t.Fatal(err)
	}
	if h, err := model.ParseHandle(m.Handle); err != nil || h.Partition != 1 || h.Offset != 0 || m.Count != 1 {
		t.Fatalf("handle %q, count %d: %v", m.Handle, m.Count, err)
	}
	n.do(t, "GET", "/v1/topics/t/consume", "").expect(t, 204, "") // leased
	n.settle(t, "t", m.Handle, "0").expect(t, 204, "")
	again := n.take(t, "t", "partition=1")
	if again.Offset != 0 || again.Handle == m.Handle || again.Count != 2 {
		t.Fatalf("after a nack: %+v", again)
	}
	n.settle(t, "t", again.Handle, "").expect(t, 204, "")

	n.do(t, "GET", "/v1/topics/t/consume?max=10", "").expect(t, 204, "") // CB-1: never an empty list
	n.do(t, "POST", "/v1/topics/t/produce/batch", list(5, `{"payload":"x","partition":2}`)).expect(t, 202, "5")
	seen := 0
	for seen < 5 {
		a := n.do(t, "GET", "/v1/topics/t/consume?max=3&partition=2&wait=10s", "")
		a.expect(t, 200, `{"messages":[{"topic":"t","partition":2,"offset":`)
		var page struct{ Messages []message }
		if err := json.Unmarshal([]byte(a.body), &page); err != nil || len(page.Messages) > 3 {
			t.Fatalf("%d messages, %v", len(page.Messages), err)
		}
		for _, m := range page.Messages {
			if m.Offset != int64(seen) || m.Handle == "" {
				t.Fatalf("%+v, want offset %d", m, seen)
			}
			seen++
		}
	}
	one := n.do(t, "POST", "/v1/topics/t/produce", "y")
	one.expect(t, 202, "")
	n.do(t, "GET", "/v1/topics/t/consume?max=1&wait=10s", "").expect(t, 200, `{"messages":[{`)
}

// TestReplay covers.
func TestReplay(t *testing.T) {
	n := newNode(t, nil)
	n.create(t, "t")
	n.do(t, "POST", "/v1/topics/t/produce?partition=1", "one").expect(t, 202, "")
	m := n.take(t, "t", "")
	for range 2 {
		got := n.do(t, "GET", "/v1/topics/t/consume?partition=1&offset=0", "")
		got.expect(t, 200, `{"topic":"t","partition":1,"offset":0,"payload":"one","timestamp":`)
		if strings.Contains(got.body, "receipt_handle") || strings.Contains(got.body, "delivery_count") || !strings.HasSuffix(got.body, "}\n") {
			t.Fatalf("R-1 %s", got.body)
		}
	}
	n.do(t, "GET", "/v1/topics/t/consume?partition=1&offset=1", "").expect(t, 204, "")
	n.do(t, "GET", "/v1/topics/t/consume?partition=1&offset=9223372036854775807", "").expect(t, 204, "")
	n.settle(t, "t", m.Handle, "").expect(t, 204, "") // untouched by the replays
	n.do(t, "GET", "/v1/topics/t/consume?partition=1&offset=0", "").expect(t, 200, `"payload":"one"`)
}

// TestC21_Leaver: a consumer that leaves its long poll takes nothing with it: what
// arrives next goes to somebody else at once, as a first delivery.
func TestC21_Leaver(t *testing.T) {
	n := newNode(t, nil)
	n.create(t, "t")
	parked := func(want float64) {
		t.Helper()
		testutil.Eventually(t, 5*time.Second, func() bool { return promtest.ToFloat64(n.api.metrics.inFlight) == want }, "the long poll to park or end")
	}
	for i := range 5 {
		conn := n.dial(t)
		fmt.Fprintf(conn, "GET /v1/topics/t/consume?wait=10s HTTP/1.1\r\nHost: x\r\n\r\n")
		parked(1)
		conn.Close()
		parked(0)
		n.do(t, "POST", "/v1/topics/t/produce", fmt.Sprint(i)).expect(t, 202, "")
		m := n.take(t, "t", "")
		if string(m.Payload) != fmt.Sprint(i) || m.Count != 1 {
			t.Fatalf("message %d came as %+v", i, m)
		}
		n.settle(t, "t", m.Handle, "").expect(t, 204, "")
	}
}

// TestStopReleases: on a graceful stop a parked consume ends with 204 and its
// connection with it (spec/consume section 6.1).
func TestStopReleases(t *testing.T) {
	n := newNode(t, nil)
	n.create(t, "t")
	got := make(chan string, 1)
	go func() {
		got <- n.raw(t, 9*time.Second, "GET /v1/topics/t/consume?wait=10s HTTP/1.1\r\nHost: x\r\n\r\n")
	}()
	testutil.Eventually(t, 5*time.Second, func() bool { return promtest.ToFloat64(n.api.metrics.inFlight) == 1 }, "the consume to park")
	n.api.Stop()
	n.broker.ReleaseWaiters()
	if raw := <-got; !strings.HasPrefix(raw, "HTTP/1.1 204 ") || !strings.Contains(raw, "Connection: close") {
		t.Fatalf("%q", raw)
	}
}

// TestDamagedRecord covers R-4 and C-24: after a restart, a record whose
// bytes rotted is 410 to a replay and is passed over by the queue.
func TestDamagedRecord(t *testing.T) {
	dir := t.TempDir()
	n := openNode(t, dir, nil)
	n.create(t, "t")
	n.do(t, "POST", "/v1/topics/t/produce?partition=0", strings.Repeat("a", 1000)).expect(t, 202, "")
	n.settle(t, "t", n.take(t, "t", "").Handle, "0").expect(t, 204, "")
	n.do(t, "POST", "/v1/topics/t/produce?partition=0", strings.Repeat("z", 1000)).expect(t, 202, "")
	testutil.Eventually(t, 10*time.Second, func() bool {
		return n.do(t, "GET", "/v1/topics/t/consume?partition=0&offset=1", "").status == 200
	}, "the second record")
	n.close()
	n.corruptLogs(t, "t")
	n = openNode(t, dir, nil)
	n.do(t, "GET", "/v1/topics/t/consume?partition=0&offset=0", "").expect(t, 410, `{"error":"record is unreadable","code":"record_unreadable"}`)
	if m := n.take(t, "t", ""); !strings.Contains(string(m.Payload), "zzz") || m.Offset != 1 {
		t.Fatalf("%+v", m)
	}
}

// failing is a Response whose writes fail.
type failing struct{ status int }

func (f *failing) SetHeader(string, string) {}

func (f *failing) Send(status int, _ string, _ []byte) error {
	f.status = status
	return errors.New("broken pipe")
}

// TestWriteFailureReleases: an answer that cannot be written gives all its leases
// back, single and batch, and is recorded as a client that left.
func TestWriteFailureReleases(t *testing.T) {
	f := &fake{}
	for i := range 3 {
		f.deliver = append(f.deliver, model.Delivery{Message: model.Message{Topic: "t", Payload: []byte("1")}, Handle: model.Handle{Offset: int64(i), Nonce: 1}})
	}
	a := New(Options{Config: config.Default().HTTP, Clock: clock.Real(), Logger: telemetry.Discard()})
	a.Begin(f.backends())
	req := Request{Ctx: t.Context(), Method: "GET", Path: "/v1/topics/t/consume", Query: "max=3", Header: http.Header{clientHeader: {"x"}}}
	a.Serve(&req, &failing{})
	if f.releases() != 3 {
		t.Fatalf("batch: %d of 3 released", f.releases())
	}
	f.deliver = f.deliver[:1]
	req.Query = ""
	a.Serve(&req, &failing{})
	if f.releases() != 4 {
		t.Fatalf("single: %d released", f.releases())
	}
	if got := promtest.ToFloat64(a.metrics.requests.WithLabelValues(routeConsume.label(), "GET", "499")); got != 2 {
		t.Fatalf("%v recorded as 499", got)
	}
}

// TestCB4_CutIsReleased: records left out of the answer are released before it is
// sent, the others are not.
func TestCB4_CutIsReleased(t *testing.T) {
	f := &fake{}
	for i := range 4 {
		f.deliver = append(f.deliver, model.Delivery{
			Message: model.Message{Topic: "t", Payload: bytes.Repeat([]byte("<"), 512<<10)},
			Handle:  model.Handle{Offset: int64(i), Nonce: 1},
		})
	}
	s := serveFake(t, f, nil)
	got := s.do(t, "GET", "/v1/topics/t/consume?max=4", "")
	var page struct{ Messages []message }
	if err := json.Unmarshal([]byte(got.body), &page); err != nil || len(page.Messages) != 2 {
		t.Fatalf("%d messages, %v", len(page.Messages), err)
	}
	if f.releases() != 2 || f.released[0].Offset != 2 || f.released[1].Offset != 3 {
		t.Fatalf("released %v", f.released)
	}
}

func BenchmarkConsumeHandler1KiB(b *testing.B) {
	f := &fake{deliver: []model.Delivery{{
		Message: model.Message{Topic: "t", Key: []byte("customer-7"), Payload: []byte(sampleJSON(1 << 10)), CommittedAt: 1_700_000_000_000},
		Handle:  model.Handle{Partition: 1, Offset: 7, Nonce: 1 << 60}, Count: 1,
	}}}
	a := New(Options{Config: config.Default().HTTP, Clock: clock.Real(), Logger: telemetry.Discard()})
	a.Begin(f.backends())
	h := a.Handler()
	r := httptest.NewRequest("GET", "/v1/topics/t/consume?wait=10s", nil)
	w := &nullWriter{header: http.Header{}}
	b.SetBytes(1 << 10)
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
	if w.status != 200 {
		b.Fatal(w.status)
	}
}
