package conformance

import (
	"net/http"
	"strings"
	"time"
)

const textCrossSite = "state-changing requests must send Content-Type: application/json or application/octet-stream, or an X-Narad-Client header"

const form = "Content-Type: application/x-www-form-urlencoded"

// pipelineChecks are PIPE (section 2) and CSRF (section 2.1).
var pipelineChecks = map[string]check{
	"PIPE-1": headerCap,
	"PIPE-4": rows(
		row{"POST /v1/nowhere", "", 415, textCrossSite, []string{bare}},
		row{"PUT /healthz", "", 415, textCrossSite, []string{bare}},
		row{"PATCH /v1/topics/a/b/c", "{}", 415, textCrossSite, []string{bare}},
		row{"POST /v1/nowhere", "", 404, "404 page not found", nil},
		row{"DELETE /v1/nowhere", "", 404, "404 page not found", []string{bare}},
	),
	"PIPE-5": routeMatch,
	"PIPE-7": func(p *probe) {
		s := p.tight()
		topic := p.newTopic(s)
		p.fillProduces(s, topic)
		p.ask(s, "POST /v1/topics/"+topic+"/produce?partition=x", "").is(429, "too many in-flight…")
		p.ask(s, "POST /v1/topics/missing/produce/batch?key=a", "").is(429, "too many in-flight…")
	},
	"PIPE-9": rows(
		row{"POST /v1/topics/{t}/produce?partition=x", long(1<<20 + 1), 400, "invalid argument: partition out of range", nil},
		row{"POST /v1/topics/{t}/produce/batch?key=a", "not json", 400, "invalid argument…", nil},
		row{"PATCH /v1/topics/{t}", "not json" + long(1<<20), 413, "", nil},
		row{"POST /v1/topics/missing/produce", "", 400, "message required", nil},
		row{"PATCH /v1/topics/missing", `{"foo":1}`, 400, "invalid json…", nil},
		row{"DELETE /v1/topics/missing?force=maybe", "", 400, "invalid argument…", nil},
		row{"POST /v1/topics/missing/ack?receipt_handle=x", "", 400, "invalid receipt handle", nil},
	),
	"PIPE-10": rows(
		row{"POST /v1/topics/missing/produce?partition=107", "x", 404, "topic not found", nil},
		row{"POST /v1/topics/missing/produce/batch", `{"messages":[{"payload":1,"partition":107}]}`, 404, "topic not found", nil},
		row{"POST /v1/topics/missing/ack?receipt_handle=0:0:1", "", 404, "topic not found", nil},
		row{"GET /v1/topics/missing/consume?partition=107", "", 404, "topic not found", nil},
	),
	"PIPE-11": rows(
		row{"POST /v1/topics/{t}/ack?receipt_handle=0:0:1", "", 410, "receipt handle no longer matches an active reservation", nil},
		row{"POST /v1/topics", `{"name":"{t}"}`, 409, "topic already exists", nil},
	),

	"CSRF-1": rows(
		row{"POST /v1/topics/{t}/produce", "a=b", 415, textCrossSite, []string{bare, form}},
		row{"POST /v1/topics/{t}/produce", "a=b", 415, textCrossSite, []string{bare, "Content-Type: text/plain"}},
		row{"POST /v1/topics/{t}/produce", "a=b", 202, "", []string{form}},
		row{"POST /v1/topics/{t}/produce", "a=b", 202, "", []string{bare, "Content-Type: application/octet-stream"}},
		row{"POST /v1/topics/{t}/produce", "a=b", 202, "", []string{bare, "Content-Type: application/json; charset=utf-8"}},
	),
	"CSRF-2": rows(
		row{"POST /v1/topics/{t}/ack?receipt_handle=0:0:1", "", 415, textCrossSite, []string{bare}},
		row{"POST /v1/topics/{t}/ack?receipt_handle=0:0:1", "", 410, "", nil},
	),
	"CSRF-4": func(p *probe) {
		s := p.server()
		p.ask(s, "PUT /v1/topics", "{}", bare).is(415, textCrossSite)
		p.ask(s, "PUT /v1/topics", "{}").is(405, "").has("Allow", "GET, HEAD, POST")
	},
	"CSRF-5": rows(
		row{"GET /v1/topics/{t}", "", 200, "", []string{bare}},
		row{"GET /v1/topics/{t}/consume", "", 204, "", []string{bare}},
		row{"DELETE /v1/topics/missing", "", 404, "topic not found", []string{bare}},
	),
	"CSRF-6": rows(
		row{"GET /v1/topics/{t}/consume?max=1", "", 400, "batch consume requires an X-Narad-Client header", []string{bare}},
		row{"HEAD /v1/topics/{t}/consume?max=1", "", 400, "", []string{bare}},
	),
	"CSRF-7": rows(
		row{"POST /v1/topics/{t}/produce", "x", 415, textCrossSite, []string{"X-Narad-Client:", form}},
		row{"POST /v1/topics/{t}/produce", "x", 202, "", []string{"X-Narad-Client: any value", form}},
	),
	"E-415A": rows(row{"POST /v1/topics", "{}", 415, textCrossSite, []string{bare}}),
}

func headerCap(p *probe) {
	s := p.server()
	const head = "GET /healthz"
	c := p.dial(s)
	c.write(head, "", "X-Filler: "+long(60_000))
	c.read(head).is(200, "")
	c = p.dial(s)
	c.write(head, "", "X-Filler: "+long(70_000))
	c.read(head).is(431, "")
}

// routeMatch: only clean paths are routes, nothing is redirected, and a wrong method
// names the right ones.
func routeMatch(p *probe) {
	s := p.server()
	topic := p.newTopic(s)
	for _, path := range []string{
		"/", "/v1", "/v2/topics", "/v1/topics/", "//v1/topics", "/v1//topics", "/v1/./topics", "/v1/../v1/topics",
		"/v1/topics/" + topic + "/", "/v1/topics//" + topic, "/v1/topics/./consume", "/v1/topics/../consume",
		"/v1/topics/" + topic + "/produce/", "/v1/topics/" + topic + "/purge", "/healthz/", "/V1/topics", "/debug/pprof/",
	} {
		p.ask(s, "GET "+path, "").is(404, "404 page not found")
		p.ask(s, "HEAD "+path, "").is(404, "")
	}
	for _, r := range []struct{ line, allow string }{
		{"DELETE /v1/topics", "GET, HEAD, POST"},
		{"OPTIONS /v1/topics", "GET, HEAD, POST"},
		{"POST /v1/topics/" + topic, "DELETE, GET, HEAD, PATCH"},
		{"GET /v1/topics/" + topic + "/produce", "POST"},
		{"HEAD /v1/topics/" + topic + "/produce", "POST"},
		{"PUT /v1/topics/" + topic + "/produce/batch", "POST"},
		{"POST /v1/topics/" + topic + "/consume", "GET"},
		{"GET /v1/topics/" + topic + "/ack", "POST"},
		{"POST /healthz", "GET, HEAD"},
		{"DELETE /readyz", "GET, HEAD"},
	} {
		p.ask(s, r.line, "").is(405, "").has("Allow", r.allow)
	}
	// The page of topics starts behind every name that other checks make meanwhile.
	for _, path := range []string{"/healthz", "/readyz", "/v1/topics?page_token=~", "/v1/topics/" + topic} {
		get, head := p.ask(s, "GET "+path, ""), p.ask(s, "HEAD "+path, "").is(200, "")
		for _, name := range []string{"Content-Type", "Content-Length"} {
			head.has(name, get.header.Get(name))
		}
	}
}

// long is n bytes of text that is no JSON.
func long(n int) string { return strings.Repeat("x", n) }

// holdProduces keeps n produces in flight until the check ends: their bodies do not come.
func (p *probe) holdProduces(s *server, topic string, n int) (leave func()) {
	p.Helper()
	var held []*conn
	for range n {
		c := p.dial(s)
		c.write("POST /v1/topics/"+topic+"/produce", "x", "Content-Length: 1000", "X-Narad-Client: conformance")
		held = append(held, c)
	}
	p.parked()
	return func() {
		for _, c := range held {
			_ = c.Close()
		}
	}
}

// fillProduces takes all the places for produces of the tight node.
func (p *probe) fillProduces(s *server, topic string) {
	p.Helper()
	p.fill(func() func() { return p.holdProduces(s, topic, tightProduces) }, func() bool {
		return p.ask(s, "POST /v1/topics/missing/produce", "x").status == http.StatusTooManyRequests
	})
}

// fillConsumes takes all its places for consumes, for as long as it lets them wait.
func (p *probe) fillConsumes(s *server, topic string) {
	p.Helper()
	p.fill(func() func() {
		for range tightConsumes {
			p.later(s, "GET /v1/topics/"+topic+"/consume?wait=10s", "")
		}
		p.parked()
		return func() {}
	}, func() bool {
		return p.ask(s, "GET /v1/topics/missing/consume", "").status == http.StatusTooManyRequests
	})
}

// Looks that have to find every place taken, and the time between them.
const (
	looks     = 5
	lookEvery = 10 * time.Millisecond
)

// fill takes places until looks find none left. A look takes one itself for a moment,
// which may be the one it should have found taken: then all is given back and done again.
// A look may also find taken what an earlier one has not given back yet, so several have
// to agree.
func (p *probe) fill(take func() (leave func()), full func() bool) {
	p.Helper()
	p.eventually(func() bool {
		leave := take()
		for range looks {
			if !full() {
				leave()
				return false
			}
			<-time.After(lookEvery)
		}
		return true
	}, "every place to be taken")
}
