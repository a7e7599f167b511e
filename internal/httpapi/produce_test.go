package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/telemetry"
)

// TestProduce covers P-1 to P-4, P-7, P-10 and P-15 over the real parts.
func TestProduce(t *testing.T) {
	n := newNode(t, nil)
	n.create(t, "t")
	got := n.do(t, "POST", "/v1/topics/t/produce?key=k1", "hello")
	got.expect(t, 202, "")
	if got.header.Get("Content-Length") != "0" || got.header.Get("Content-Type") != "" {
		t.Fatalf("P-1 headers %v", got.header)
	}
	m := n.take(t, "t", "")
	if m.Partition != 0 || m.Key == nil || *m.Key != "k1" || string(m.Payload) != `"hello"` || m.Count != 1 {
		t.Fatalf("k1 of 3 partitions goes to 0: %+v", m)
	}
	if d := time.Now().Unix() - m.Timestamp; d < 0 || d > 60 {
		t.Fatalf("timestamp %d is no time in seconds", m.Timestamp)
	}
	for _, tc := range []struct {
		name, path, body string
		status           int
		text             string
	}{
		{"P-2", "t/produce", "", 400, `{"error":"message required","code":"message_required"}`},
		{"P-3 range", "t/produce?partition=3", "x", 400, `{"error":"invalid argument: partition out of range","code":"invalid_argument"}`},
		{"P-3 not an int", "t/produce?partition=x", "x", 400, "invalid argument: partition out of range"},
		{"P-3 negative", "t/produce?partition=-1", "x", 400, "invalid argument: partition out of range"},
		{"P-4 key twice", "t/produce?key=a&key=b", "x", 400, "key is given more than once"},
		{"P-4 partition twice", "t/produce?partition=1&partition=1", "x", 400, "partition is given more than once"},
		{"unknown parameter", "t/produce?foo=1&foo=2", "x", 202, ""},
		{"P-7", "nope/produce", "x", 404, `{"error":"topic not found","code":"topic_not_found"}`},
		{"P-7 slash", "a%2fb/produce", "x", 404, "topic not found"},
		{"P-2 before P-7", "nope/produce", "", 400, "message required"},
		{"P-10", "t/produce", strings.Repeat("x", 1<<20+1), 413, `{"error":"message too large","code":"message_too_large"}`},
		{"long key", "t/produce?key=" + strings.Repeat("k", 60_000), "x", 202, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n.do(t, "POST", "/v1/topics/"+tc.path, tc.body).expect(t, tc.status, tc.text)
		})
	}
}

// TestProduceBytes: bodies and keys come back byte for byte, whatever they hold
// and whatever Content-Type they came under (10.4).
func TestProduceBytes(t *testing.T) {
	n := newNode(t, nil)
	n.create(t, "t")
	for _, tc := range []struct{ key, body, payload, encoding string }{
		{"", `{"a" : 1}`, `{"a" : 1}`, ""},
		{"plain", "text <b>", `"text \u003cb\u003e"`, ""},
		{"a b&c=d/é", "1 2", `"1 2"`, ""},
		{"\xff\x00", "\xff\xfe", `"//4="`, "base64"},
		{"", strings.Repeat("x", 1<<20), `"` + strings.Repeat("x", 1<<20) + `"`, ""},
	} {
		for _, ctype := range []string{"application/json", "application/octet-stream", "text/plain"} {
			n.do(t, "POST", "/v1/topics/t/produce?partition=2&key="+url.QueryEscape(tc.key), tc.body, "Content-Type: "+ctype).expect(t, 202, "")
			m := n.take(t, "t", "")
			if string(m.Payload) != tc.payload || m.PayloadEncoding != tc.encoding || m.Partition != 2 {
				t.Fatalf("%.50q came back as %.50s (%s)", tc.body, m.Payload, m.PayloadEncoding)
			}
			if (m.Key == nil) != (tc.key == "") || m.Key != nil && string(decoded(t, *m.Key, m.KeyEncoding)) != tc.key {
				t.Fatalf("key %q came back as %v", tc.key, m.Key)
			}
			n.settle(t, "t", m.Handle, "").expect(t, 204, "")
		}
	}
}

// TestProduceBatch covers PB-1 to PB-8 over the real parts: all or nothing, in
// order.
func TestProduceBatch(t *testing.T) {
	n := newNode(t, nil)
	n.create(t, "t")
	path := "/v1/topics/t/produce/batch"
	for _, tc := range []struct {
		name, path, body string
		status           int
		text             string
	}{
		{"PB-2", path, `{"messages":[]}`, 400, `{"error":"messages required","code":"messages_required"}`},
		{"PB-2 before the topic", "/v1/topics/nope/produce/batch", `{"messages":[]}`, 400, "messages required"},
		{"PB-3", path, list(1001, `{"payload":1}`), 400, `{"error":"too many messages: more than 1000","code":"too_many_messages"}`},
		{"PB-4 probe", path, list(101, `{}`), 400, `{"error":"message 0: message required","code":"message_required"}`},
		{"PB-5 range", path, `{"messages":[{"payload":1},{"payload":2,"partition":3}]}`, 400, "message 1: invalid argument: partition out of range"},
		{"PB-6 form before range", path, `{"messages":[{"payload":1,"partition":9},{}]}`, 400, "message 1: message required"},
		{"PB-15 key and payload over a record", path, `{"messages":[{"payload":1},{"payload":"` + strings.Repeat("x", 1<<20-2) + `","key":"` + strings.Repeat("k", 1<<20) + `"}]}`, 413, `{"error":"message 1: message too large","code":"message_too_large"}`},
		{"PB-8 key", path + "?key=a", list(1, `{"payload":1}`), 400, "invalid argument: "},
		{"PB-8 partition", path + "?partition=1", list(1, `{"payload":1}`), 400, "invalid argument: "},
		{"PB-15 topic", "/v1/topics/nope/produce/batch", list(1, `{"payload":1}`), 404, `{"error":"topic not found","code":"topic_not_found"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n.do(t, "POST", tc.path, tc.body).expect(t, tc.status, tc.text)
		})
	}
	n.do(t, "GET", "/v1/topics/t/consume", "").expect(t, 204, "") // PB-7: nothing of all that was stored
	var body strings.Builder
	body.WriteString(`{"messages":[`)
	for i := range 1000 {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"payload":%d,"partition":1}`, i)
	}
	body.WriteString(`]}`)
	got := n.do(t, "POST", path, body.String())
	got.expect(t, 202, "{\"accepted\":1000}\n")
	if got.header.Get("Content-Type") != "application/json" {
		t.Fatalf("headers %v", got.header)
	}
	for i := 0; i < 1000; {
		a := n.do(t, "GET", "/v1/topics/t/consume?wait=10s&max=100&partition=1", "")
		a.expect(t, 200, `{"messages":[{`)
		var page struct{ Messages []message }
		if err := json.Unmarshal([]byte(a.body), &page); err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Messages {
			if string(m.Payload) != fmt.Sprint(i) || m.Offset != int64(i) {
				t.Fatalf("message %d: %s at %d", i, m.Payload, m.Offset)
			}
			i++
		}
	}
}

// produceCall serves one produce through the core alone, the way a front does.
type produceCall struct {
	body bytes.Reader
	req  Request
	head http.Header
	got  int
}

func (p *produceCall) SetHeader(string, string) {}

func (p *produceCall) Send(status int, _ string, _ []byte) error { p.got = status; return nil }

func newProduceCall(payload []byte) *produceCall {
	p := &produceCall{head: http.Header{clientHeader: {"b"}}}
	p.body.Reset(payload)
	p.req = Request{Method: "POST", Path: "/v1/topics/t/produce", Header: p.head, Body: &p.body, ContentLength: int64(len(payload)), Identity: "127.0.0.1"}
	return p
}

// discard takes messages and forgets them.
type discard struct{ fake }

func (d *discard) reset() { d.accepted = d.accepted[:0] }

// TestProduceAllocations: the produce path allocates the payload buffer and what
// its decoding needs, at most four times (house budget).
func TestProduceAllocations(t *testing.T) {
	d := &discard{}
	a := New(Options{Config: config.Default().HTTP, Clock: clock.Real(), Logger: telemetry.Discard()})
	a.Begin(d.backends())
	payload := []byte(sampleJSON(1 << 10))
	p := newProduceCall(payload)
	p.req.Ctx = t.Context()
	for _, query := range []string{"", "partition=1", "key=customer-7"} {
		p.req.Query = query
		allocs := testing.AllocsPerRun(200, func() {
			p.body.Reset(payload)
			d.reset()
			a.Serve(&p.req, p)
		})
		if allocs > 4 || p.got != 202 {
			t.Errorf("%q: %v allocations, status %d", query, allocs, p.got)
		}
	}
}

func BenchmarkProduceCore1KiB(b *testing.B) {
	d := &discard{}
	a := New(Options{Config: config.Default().HTTP, Clock: clock.Real(), Logger: telemetry.Discard()})
	a.Begin(d.backends())
	payload := []byte(sampleJSON(1 << 10))
	p := newProduceCall(payload)
	p.req.Ctx = b.Context()
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		p.body.Reset(payload)
		d.reset()
		a.Serve(&p.req, p)
	}
	if p.got != 202 {
		b.Fatal(p.got)
	}
}

// nullWriter is an http.ResponseWriter that costs next to nothing.
type nullWriter struct {
	header http.Header
	status int
}

func (w *nullWriter) Header() http.Header { return w.header }

func (w *nullWriter) WriteHeader(status int) { w.status = status }

func (w *nullWriter) Write(p []byte) (int, error) { return len(p), nil }

func (w *nullWriter) Flush() {}

func BenchmarkProduceHandler1KiB(b *testing.B) {
	d := &discard{}
	a := New(Options{Config: config.Default().HTTP, Clock: clock.Real(), Logger: telemetry.Discard()})
	a.Begin(d.backends())
	h := a.Handler()
	payload := []byte(sampleJSON(1 << 10))
	body := bytes.NewReader(payload)
	r := httptest.NewRequest("POST", "/v1/topics/t/produce?key=customer-7", body)
	r.Header.Set("Content-Type", "application/octet-stream")
	w := &nullWriter{header: http.Header{}}
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		body.Reset(payload)
		d.reset()
		h.ServeHTTP(w, r)
	}
	if w.status != 202 {
		b.Fatal(w.status)
	}
}
