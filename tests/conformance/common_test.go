package conformance

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// commonChecks are BODY (section 5.1), ST (section 19) and RT (section 5.3).
var commonChecks = map[string]check{
	"BODY-1": rows(
		row{"POST /v1/topics", `{"name":"a","foo":1}`, 400, `invalid json: json: unknown field "foo"`, nil},
		row{"POST /v1/topics", `{"name":1}`, 400, "invalid json: …", nil},
		row{"POST /v1/topics", `{"name":"a"}{}`, 400, "invalid json: …", nil},
		row{"POST /v1/topics", `{"name":"a"} x`, 400, "invalid json: …", nil},
		row{"POST /v1/topics", `name=a`, 400, "invalid json: …", nil},
		row{"POST /v1/topics", ``, 400, "invalid json: …", nil},
		row{"POST /v1/topics", `[]`, 400, "invalid json: …", nil},
		row{"PATCH /v1/topics/{t}", `{"foo":1}`, 400, `invalid json: json: unknown field "foo"`, nil},
		row{"PATCH /v1/topics/{t}", `{"retention_ms":"1h"}`, 400, "invalid json: …", nil},
		row{"PATCH /v1/topics/{t}", `{"retention_ms":3600000}[]`, 400, "invalid json: …", nil},
		row{"POST /v1/topics/{t}/produce/batch", `{"messages":[{"payload":1,"foo":1}]}`, 400, `invalid json: json: unknown field "foo"`, nil},
		row{"POST /v1/topics/{t}/produce/batch", `{"messages":[{"payload":1}],"foo":1}`, 400, `invalid json: json: unknown field "foo"`, nil},
		row{"POST /v1/topics/{t}/produce/batch", `{"messages":{}}`, 400, "invalid json: …", nil},
		row{"POST /v1/topics/{t}/produce/batch", `{"messages":[{"payload":1}]}{}`, 400, "invalid json: …", nil},
		row{"POST /v1/topics/{t}/ack", `{"receipt_handles":["0:0:1"],"foo":1}`, 400, `invalid json: json: unknown field "foo"`, nil},
		row{"POST /v1/topics/{t}/ack", `{"receipt_handles":[1]}`, 400, "invalid json: …", nil},
		row{"POST /v1/topics/{t}/ack", `{"receipt_handles":["0:0:1"]}true`, 400, "invalid json: …", nil},
	),
	"BODY-2": responseForm,
	"BODY-3": rows( // is checks the form of every refusal; these quote what is hard to quote
		row{"GET /v1/topics/%00%1f%22%5c", "", 404, "topic not found", nil},
		row{"GET /v1/topics/%ff%fe", "", 404, "topic not found", nil},
		row{"POST /v1/topics/%ff/produce", "x", 404, "topic not found", nil},
		row{"DELETE /v1/topics/%e2%80%a8", "", 404, "topic not found", nil},
		row{"POST /v1/topics", "{\"name\":\"\\u0001\\u2028\"}", 400, "invalid argument: …", nil},
		row{"POST /v1/topics", "{\"name\":\"a\",\"\\u0001\xff\":1}", 400, "invalid json: …", nil},
		row{"POST /v1/topics/{t}/produce/batch", "{\"messages\":[{\"\x01\":1}]}", 400, "invalid json: …", nil},
	),
	"BODY-4": func(p *probe) {
		s := p.server() // is checks type, nosniff and newline of a plain-text answer
		for line, want := range map[string]int{"GET /nowhere": 404, "POST /v1/nowhere": 404, "DELETE /v1/topics": 405} {
			p.ask(s, line, "").is(want, "").has("Content-Type", "text/plain; charset=utf-8")
		}
		p.ask(s, "GET /v1/topics/missing", "").is(404, "topic not found").has("Content-Type", "application/json")
	},
	"BODY-7": units,
	"BODY-8": rows(
		row{"DELETE /v1/topics/{t}?force=True", "", 400, "invalid argument: …", nil},
		row{"DELETE /v1/topics/{t}?force=1", "", 400, "invalid argument: …", nil},
		row{"DELETE /v1/topics/{t}?force=", "", 400, "invalid argument: …", nil},
		row{"DELETE /v1/topics/{t}?force=false", "", 204, "", nil},
		row{"DELETE /v1/topics/{t}?force=true", "", 404, "topic not found", nil},
	),
	"BODY-9": rows(
		row{"POST /v1/topics/{t}/produce?key=a&key=a", "x", 400, "invalid argument: …", nil},
		row{"GET /v1/topics/{t}/consume?wait=0s&wait=0s", "", 400, "invalid argument: …", nil},
		row{"POST /v1/topics/{t}/ack?receipt_handle=0:0:1&receipt_handle=0:0:1", "", 400, "invalid argument: …", nil},
		row{"POST /v1/topics/{t}/ack?receipt_handle=0:0:1&extend=0&extend=1", "", 400, "invalid argument: …", nil},
		row{"GET /v1/topics?limit=1&limit=x", "", 200, "", nil},
		row{"GET /v1/topics/{t}?partition=0&partition=99", "", 200, "", nil},
		row{"DELETE /v1/topics/{t}?force=false&force=maybe", "", 204, "", nil},
		row{"GET /v1/topics?foo=1&foo=2&%zz", "", 200, "", nil},
	),

	"RT-3": func(p *probe) {
		s := p.server()
		for range 5 {
			topic := p.newTopic(s)
			p.ask(s, "GET /v1/topics/"+topic, "").is(200, "")
			p.ask(s, "PATCH /v1/topics/"+topic, `{"partitions":4}`).is(200, "")
			if d := p.describe(s, topic); d.Partitions != 4 {
				p.Fatalf("%d partitions right after the answer, want 4", d.Partitions)
			}
			p.ask(s, "DELETE /v1/topics/"+topic, "").is(204, "")
			p.ask(s, "GET /v1/topics/"+topic, "").is(404, "")
		}
	},
	"RT-9": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		any, pinned := p.later(s, "GET /v1/topics/"+topic+"/consume?wait=10s", ""), p.later(s, "GET /v1/topics/"+topic+"/consume?wait=10s&partition=1", "")
		p.parked()
		p.ask(s, "DELETE /v1/topics/"+topic, "").is(204, "")
		for _, poll := range []*pending{any, pinned} {
			if a := poll.wait().within(3 * time.Second); a.status != 404 {
				a.is(204, "")
			}
		}
	},

	"ST-3": rows(
		row{"POST /v1/topics", `{"name":"a","a_field_of_a_later_release":true}`, 400, "invalid json: …", nil},
		row{"PATCH /v1/topics/{t}", `{"retention_ms":3600000,"a_field_of_a_later_release":true}`, 400, "invalid json: …", nil},
		row{"POST /v1/topics/{t}/produce/batch", `{"messages":[{"payload":1,"a_field_of_a_later_release":true}]}`, 400, "invalid json: …", nil},
		row{"POST /v1/topics/{t}/ack", `{"receipt_handles":[],"a_field_of_a_later_release":true}`, 400, "invalid json: …", nil},
	),
	"ST-5": rows( // what peers match
		row{"POST /v1/topics/{t}/produce/batch", `{"messages":[]}`, 400, "messages required", nil},
		row{"POST /v1/topics/{t}/produce/batch", elements(`{"payload":1}`, 1001), 400, "too many messages…", nil},
		row{"POST /v1/topics/{t}/produce/batch", elements(`{}`, 101), 400, "message 0: message required", nil},
		row{"POST /v1/topics/{t}/produce/batch", `{`, 400, "invalid json…", nil},
		row{"POST /v1/topics/{t}/produce/batch", "\x00", 400, "invalid json…", []string{"Content-Encoding: zstd"}},
	),
}

// parked gives requests just sent the time to reach the server and wait there. Nothing
// tells from outside that they do; a check that needs it only gets stronger by it.
func (p *probe) parked() { <-time.After(150 * time.Millisecond) }

func responseForm(p *probe) {
	s := p.server()
	topic := p.newTopic(s)
	p.produce(s, topic, "?partition=0", "one\nmessage")
	m := p.take(s, topic, "")
	var batch map[string]any
	p.ask(s, "POST /v1/topics/"+topic+"/produce/batch", `{"messages":[{"payload":1}]}`).wants(202, &batch)
	for _, line := range []string{"GET /v1/topics", "GET /v1/topics/" + topic, "GET /healthz", "GET /readyz",
		"GET /v1/topics/" + topic + "/consume?partition=0&offset=0"} {
		p.ask(s, line, "").wants(200, &batch)
	}
	p.ask(s, "PATCH /v1/topics/"+topic, `{"retention_ms":3600000}`).wants(200, &batch)
	p.ask(s, "POST /v1/topics/"+topic+"/ack", fmt.Sprintf(`{"receipt_handles":[%q]}`, m.Handle)).wants(200, &batch)
}

// units: a time is in seconds or milliseconds as its name says.
func units(p *probe) {
	s := p.server()
	topic := p.newTopic(s)
	p.produce(s, topic, "?partition=0", "1")
	m := p.take(s, topic, "")
	d := p.describe(s, topic)
	now := time.Now().Unix()
	times := map[string]int64{"created_at": d.CreatedAt, "timestamp": m.Timestamp, "oldest_segment_at": d.Stats[0].OldestSegmentAt}
	for name, at := range times {
		if at < now-3600 || at > now+3600 {
			p.Errorf("%s = %d, want Unix seconds, now %d", name, at, now)
		}
	}
}

// limitChecks are LIM (section 5.2).
var limitChecks = map[string]check{
	"LIM-2": batchBodyLimit,
	"LIM-3": rows(
		row{"POST /v1/topics/{t}/produce", long(1 << 20), 202, "", nil},
		row{"POST /v1/topics/{t}/produce", long(1<<20 + 1), 413, "message too large", nil},
		row{"POST /v1/topics/{t}/produce/batch", `{"messages":[{"payload":"` + long(1<<20-2) + `"}]}`, 202, "", nil},
		row{"POST /v1/topics/{t}/produce/batch", `{"messages":[{"payload":1},{"payload":"` + long(1<<20-1) + `"}]}`, 413, "message 1: message too large", nil},
	),
	"LIM-4": rows(
		row{"POST /v1/topics/{t}/ack", padded(`{"receipt_handles":["0:0:1"]}`, 64<<10), 200, "", nil},
		row{"POST /v1/topics/{t}/ack", padded(`{"receipt_handles":["0:0:1"]}`, 64<<10+1), 413, "request body too large", nil},
	),
	"LIM-6": rows(
		row{"POST /v1/topics/{t}/produce/batch", elements(`{"payload":1}`, 0), 400, "messages required", nil},
		row{"POST /v1/topics/{t}/produce/batch", elements(`{"payload":1}`, 1000), 202, "", nil},
		row{"POST /v1/topics/{t}/produce/batch", elements(`{"payload":1}`, 1001), 400, "too many messages: more than 1000", nil},
	),
	"LIM-7": rows(
		row{"GET /v1/topics/{t}/consume?max=0", "", 400, "invalid argument: …", nil},
		row{"GET /v1/topics/{t}/consume?max=1", "", 204, "", nil},
		row{"GET /v1/topics/{t}/consume?max=100", "", 204, "", nil},
		row{"GET /v1/topics/{t}/consume?max=101", "", 400, "invalid argument: …", nil},
		row{"POST /v1/topics/{t}/ack", handles(`"0:0:1"`, 100), 200, "", nil},
		row{"POST /v1/topics/{t}/ack", handles(`"0:0:1"`, 101), 400, "too many receipt_handles: more than 100", nil},
	),
	"LIM-8": func(p *probe) {
		s := p.tight()
		topic := p.newTopic(s)
		p.ask(s, "GET /v1/topics/"+topic+"/consume?max=100", "").is(204, "") // clamped to the cap
		p.fillConsumes(s, topic)
		p.ask(s, "GET /v1/topics/"+topic+"/consume", "").is(429, "").has("Retry-After", "1")
		p.ask(s, "GET /v1/topics/"+topic+"/consume?max=2", "").is(429, "")
		p.ask(s, "GET /v1/topics/"+topic+"/consume?partition=0&offset=0", "").is(429, "")
		p.ask(s, "POST /v1/topics/"+topic+"/produce", "x").is(202, "")
	},
	"LIM-9": func(p *probe) {
		s := p.tight()
		topic := p.newTopic(s)
		p.ask(s, "POST /v1/topics/"+topic+"/produce/batch", elements(`{"payload":1}`, 1000)).is(202, "") // clamped
		one, two := "POST /v1/topics/"+topic+"/produce", "POST /v1/topics/"+topic+"/produce/batch"
		p.fill(func() func() { return p.holdProduces(s, topic, tightProduces-1) }, func() bool {
			return p.ask(s, two, elements(`{"payload":1}`, 2)).status == http.StatusTooManyRequests
		})
		p.ask(s, two, elements(`{"payload":1}`, 2)).is(429, "").has("Retry-After", "1")
		p.ask(s, one, "x").is(202, "")
		p.fill(func() func() { return p.holdProduces(s, topic, 1) }, func() bool { return p.ask(s, one, "x").status == http.StatusTooManyRequests })
		p.ask(s, one, "x").is(429, "").has("Retry-After", "1")
		p.ask(s, "GET /v1/topics/"+topic+"/consume", "").is(200, "")
	},
	"LIM-10": bodyBudget,
	"LIM-11": func(p *probe) {
		s := p.server()
		p.newTopic(s, `"partitions":3`)
		p.newTopic(s, `"partitions":108`)
		p.run(s,
			row{"POST /v1/topics", `{"name":"a","partitions":2}`, 400, "invalid argument: …", nil},
			row{"POST /v1/topics", `{"name":"a","partitions":109}`, 400, "invalid argument: …", nil},
			row{"PATCH /v1/topics/{t}", `{"partitions":109}`, 400, "invalid argument: …", nil})
	},
	"E-429C": func(p *probe) {
		s := p.tight()
		p.fillConsumes(s, p.newTopic(s))
		p.ask(s, "GET /v1/topics/missing/consume", "").is(429,
			fmt.Sprintf("too many in-flight consume requests for this identity (limit %d per node)", tightConsumes)).has("Retry-After", "1")
	},
	"E-429P": func(p *probe) {
		s := p.tight()
		p.fillProduces(s, p.newTopic(s))
		p.ask(s, "POST /v1/topics/missing/produce", "x").is(429,
			fmt.Sprintf("too many in-flight produce requests for this identity (limit %d per node)", tightProduces)).has("Retry-After", "1")
	},
}

// elements is a batch produce body of n elements.
func elements(element string, n int) string {
	return `{"messages":[` + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + `]}`
}

// handles is a batch ack body of n handles.
func handles(handle string, n int) string {
	return `{"receipt_handles":[` + strings.TrimSuffix(strings.Repeat(handle+",", n), ",") + `]}`
}

// padded is a JSON text of exactly n bytes.
func padded(text string, n int) string { return text + strings.Repeat(" ", n-len(text)) }

func batchBodyLimit(p *probe) {
	s := p.server()
	const limit = 16 << 20
	line := "POST /v1/topics/" + p.newTopic(s) + "/produce/batch"
	fits, over := padded(`{"messages":[{"payload":1}]}`, limit), padded(`{"messages":[{"payload":1}]}`, limit+1)
	p.ask(s, line, fits).is(202, "")
	p.ask(s, line, over).is(413, "request body too large")
	for coding, pack := range map[string]func(string) string{"gzip": gzipped, "zstd": zstded} {
		p.ask(s, line, pack(fits), "Content-Encoding: "+coding).is(202, "")
		p.ask(s, line, pack(over), "Content-Encoding: "+coding).is(413, "request body too large")
	}
}

func gzipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(s)) // to memory
	_ = w.Close()
	return b.String()
}

func zstded(s string) string {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return string(w.EncodeAll([]byte(s), nil))
}

// overBudget is a batch body that fits the tight server's budget once, not twice.
var overBudget = padded(`{"messages":[{"payload":1}]}`, tightBudget-1<<10)

// fillBudget takes the budget of batch bodies with one that does not end; finish ends it.
func (p *probe) fillBudget(s *server, line string) (finish func()) {
	p.Helper()
	var c *conn
	p.fill(func() func() {
		c = p.dial(s)
		c.write(line, overBudget[1:], fmt.Sprint("Content-Length: ", len(overBudget)), "X-Narad-Client: conformance")
		p.parked()
		return func() { _ = c.Close() }
	}, func() bool { return p.ask(s, line, overBudget).status == http.StatusServiceUnavailable })
	return func() {
		if _, err := c.Write([]byte(" ")); err != nil {
			p.Fatal(err)
		}
		c.read(line)
	}
}

const textBudget = "batch produce bodies in flight on this node are at their limit; retry"

// bodyBudget: batch bodies over 1 MiB share the node's budget, smaller ones need none.
func bodyBudget(p *probe) {
	s := p.tight()
	line := "POST /v1/topics/" + p.newTopic(s) + "/produce/batch"
	p.ask(s, line, overBudget).is(202, "")
	finish := p.fillBudget(s, line)
	p.ask(s, line, overBudget).is(503, textBudget).has("Retry-After", "1")
	p.ask(s, line, gzipped(overBudget), "Content-Encoding: gzip").is(503, textBudget)
	p.ask(s, line, padded(`{"messages":[{"payload":1}]}`, 1<<20)).is(202, "")
	finish()
	p.ask(s, line, overBudget).is(202, "")
}
