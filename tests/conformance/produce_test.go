package conformance

import (
	"context"
	"fmt"
	"net/url"
	"strings"
)

// produce stores one message.
func (p *probe) produce(s *server, topic, query, payload string) {
	p.Helper()
	p.ask(s, "POST /v1/topics/"+topic+"/produce"+query, payload).is(202, "")
}

const textRange = "invalid argument: partition out of range"

// produceChecks are P (section 10.1).
var produceChecks = map[string]check{
	"P-1": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		line := "POST /v1/topics/" + topic + "/produce?partition=2&key=" + url.QueryEscape("k\x00\xff&")
		if a := p.ask(s, line, "a message"); a.status != 202 || a.body != "" || a.header.Get("Content-Length") != "0" {
			a.fatalf("want 202, empty, Content-Length 0, got header %v", a.header)
		}
		m := p.take(s, topic, "")
		if m.Partition != 2 || m.text() != "a message" || m.keyText() != "k\x00\xff&" {
			p.Errorf("%+v", m)
		}
		p.placement(s)
	},
	"P-2": rows(
		row{"POST /v1/topics/{t}/produce", "", 400, "message required", nil},
		row{"POST /v1/topics/{t}/produce?partition=0", "", 400, "message required", nil},
	),
	"P-3": rows(
		row{"POST /v1/topics/{t}/produce?partition=3", "x", 400, textRange, nil},
		row{"POST /v1/topics/{t}/produce?partition=-1", "x", 400, textRange, nil},
		row{"POST /v1/topics/{t}/produce?partition=", "x", 400, textRange, nil},
		row{"POST /v1/topics/{t}/produce?partition=1.0", "x", 400, textRange, nil},
		row{"POST /v1/topics/{t}/produce?partition=99999999999", "x", 400, textRange, nil},
		row{"POST /v1/topics/{t}/produce?partition=3&key=a", "x", 400, textRange, nil},
	),
	"P-4": rows(
		row{"POST /v1/topics/{t}/produce?key=a&key=b", "x", 400, "invalid argument: …", nil},
		row{"POST /v1/topics/{t}/produce?partition=0&partition=0", "x", 400, "invalid argument: …", nil},
		row{"GET /v1/topics/{t}/consume", "", 204, "", nil},
	),
	"P-7": rows(row{"POST /v1/topics/missing/produce", "x", 404, "topic not found", nil}),
	"P-10": rows(
		row{"POST /v1/topics/{t}/produce", long(1<<20 + 1), 413, "message too large", nil},
		row{"GET /v1/topics/{t}/consume", "", 204, "", nil},
		row{"POST /v1/topics/{t}/produce", long(1 << 20), 202, "", nil},
	),
	"P-11": func(p *probe) {
		s := p.tight()
		topic := p.newTopic(s)
		p.fillProduces(s, topic)
		p.ask(s, "POST /v1/topics/"+topic+"/produce", "x").is(429, "too many in-flight produce requests for this identity…").has("Retry-After", "1")
	},
	"P-17": func(p *probe) {
		s := p.open()
		topic := p.newTopic(s)
		line := "POST /v1/topics/{topic}/produce"
		before := p.counted(s, line, 499)
		c := p.dial(s)
		c.write("POST /v1/topics/"+topic+"/produce", "half a mess", "Content-Length: 100", "X-Narad-Client: conformance")
		_ = c.Close()
		p.eventually(func() bool { return p.counted(s, line, 499) > before }, "499 to be recorded")
		p.ask(s, "GET /v1/topics/"+topic+"/consume", "").is(204, "")
	},
}

// placement: a key has one partition, and keyless messages take turns.
func (p *probe) placement(s *server) {
	p.Helper()
	topic := p.newTopic(s)
	for range 6 {
		p.produce(s, topic, "", "1")
		p.produce(s, topic, "?key=a+key", "1")
	}
	keyed, keyless := map[int]int{}, map[int]int{}
	for range 12 {
		m := p.take(s, topic, "")
		switch {
		case m.Key == nil:
			keyless[m.Partition]++
		case m.keyText() == "a key":
			keyed[m.Partition]++
		default:
			p.Errorf("key %q", *m.Key)
		}
	}
	if len(keyed) != 1 || len(keyless) != 3 || keyless[0] != 2 || keyless[1] != 2 {
		p.Errorf("messages by partition: of one key %v, without key %v; want one partition, and turns", keyed, keyless)
	}
}

// counted reads a counter of requests by route and status.
func (p *probe) counted(s *server, route string, status int) string {
	p.Helper()
	a := p.ask(s, "GET /metrics", "")
	prefix := fmt.Sprintf(`narad_http_requests_total{method="%s",route="%s",status="%d"} `, strings.Fields(route)[0], route, status)
	for l := range strings.Lines(a.body) {
		if v, ok := strings.CutPrefix(l, prefix); ok {
			return v
		}
	}
	return ""
}

const textBase64 = "payload is not a string of standard padded base64"

const batchLine = "POST /v1/topics/{t}/produce/batch"

func batch(messages string) string { return `{"messages":[` + messages + `]}` }

// nothing wants the topic of a table to hold no message.
var nothing = row{"GET /v1/topics/{t}/consume", "", 204, "", nil}

// batchProduceChecks are PB (section 10.2).
var batchProduceChecks = map[string]check{
	"PB-1": batchStored,
	"PB-2": rows(
		row{batchLine, `{}`, 400, "messages required", nil},
		row{batchLine, `{"messages":[]}`, 400, "messages required", nil},
		row{batchLine, `{"messages":null}`, 400, "messages required", nil},
	),
	"PB-3": rows(
		row{batchLine, elements(`{"payload":1}`, 1001), 400, "too many messages: more than 1000", nil},
		row{batchLine, elements(`{}`, 1001), 400, "too many messages: more than 1000", nil},
		nothing,
	),
	"PB-4": rows(
		row{batchLine, batch(`{}`), 400, "message 0: message required", nil},
		row{batchLine, batch(`{"payload":1},{"key":"a"}`), 400, "message 1: message required", nil},
		row{batchLine, batch(`{"payload":1},{"payload":"","payload_encoding":"base64"}`), 400, "message 1: message required", nil},
		row{batchLine, batch(`{"payload":"a","payload_encoding":"base64"}`), 400, "message 0: " + textBase64, nil},
		row{batchLine, batch(`{"payload":"YQ","payload_encoding":"base64"}`), 400, "message 0: " + textBase64, nil},
		row{batchLine, batch(`{"payload":"_w==","payload_encoding":"base64"}`), 400, "message 0: " + textBase64, nil},
		row{batchLine, batch(`{"payload":"YWJj\nYWJj","payload_encoding":"base64"}`), 400, "message 0: " + textBase64, nil},
		row{batchLine, batch(`{"payload":7,"payload_encoding":"base64"}`), 400, "message 0: " + textBase64, nil},
		row{batchLine, batch(`{"payload":"YQ==","payload_encoding":"hex"}`), 400, "message 0: …", nil},
		row{batchLine, batch(`{"payload":1,"key":"?","key_encoding":"base64"}`), 400, "message 0: …", nil},
		row{batchLine, batch(`{"payload":1,"key":"a","key_encoding":"utf8"}`), 400, "message 0: …", nil},
		row{batchLine, batch(`{"payload":1},{"payload":1},{"payload":1,"partition":-1}`), 400, "message 2: " + textRange, nil},
		nothing,
	),
	"PB-5": rows(
		row{batchLine, batch(`{"payload":1},{"payload":1,"partition":3}`), 400, "message 1: " + textRange, nil},
		nothing,
	),
	"PB-7": rows(
		row{batchLine, batch(`{"payload":1},{"payload":2},{}`), 400, "message 2: …", nil},
		row{batchLine, batch(`{"payload":1},{"payload":2,"partition":9}`), 400, "message 1: …", nil},
		row{batchLine, batch(`{"payload":1}`) + "x", 400, "invalid json: …", nil},
		nothing,
	),
	"PB-8": rows(
		row{batchLine + "?key=a", batch(`{"payload":1}`), 400, "invalid argument: …", nil},
		row{batchLine + "?partition=0", batch(`{"payload":1}`), 400, "invalid argument: …", nil},
		nothing,
	),
	"PB-9": rows(
		row{batchLine, batch(`{"payload":1},{"payload":"` + long(1<<20-1) + `"}`), 413, "message 1: message too large", nil},
		row{batchLine, batch(`{"payload":"` + strings.Repeat("QUFB", 1<<20/3+1) + `","payload_encoding":"base64"}`), 413, "message 0: message too large", nil},
		nothing,
	),
	"PB-10": batchBodyLimit,
	"PB-11": rows(
		row{batchLine, batch(`{"payload":1}`), 415, "unsupported Content-Encoding: want zstd, gzip or none", []string{"Content-Encoding: br"}},
		row{batchLine, batch(`{"payload":1}`), 415, "unsupported Content-Encoding: want zstd, gzip or none", []string{"Content-Encoding: gzip, gzip"}},
		nothing,
		row{batchLine, batch(`{"payload":1}`), 202, "", []string{"Content-Encoding: identity"}},
		row{batchLine, gzipped(batch(`{"payload":1}`)), 202, "", []string{"Content-Encoding: gzip"}},
		row{batchLine, zstded(batch(`{"payload":1}`)), 202, "", []string{"Content-Encoding: zstd"}},
	),
	"PB-12": rows(
		row{batchLine, batch(`{"payload":1}`), 400, "invalid json: …", []string{"Content-Encoding: gzip"}},
		row{batchLine, batch(`{"payload":1}`), 400, "invalid json: …", []string{"Content-Encoding: zstd"}},
		row{batchLine, gzipped(batch(`{"payload":1}`))[:20], 400, "invalid json: …", []string{"Content-Encoding: gzip"}},
		row{batchLine, zstded(batch(`{"payload":1}`))[:12], 400, "invalid json: …", []string{"Content-Encoding: zstd"}},
		nothing,
	),
	"PB-13": func(p *probe) {
		s := p.tight()
		line := "POST /v1/topics/" + p.newTopic(s) + "/produce/batch"
		p.fillBudget(s, line)
		p.ask(s, line, overBudget).is(503, textBudget).has("Retry-After", "1")
	},
	"PB-14": func(p *probe) {
		s := p.tight()
		line := "POST /v1/topics/" + p.newTopic(s) + "/produce/batch"
		p.fillBudget(s, line)
		p.ask(s, line, padded(`{"messages":[{"payload":1}]}`, 1<<20)).is(202, "")
		p.ask(s, line, gzipped(padded(`{"messages":[{"payload":1}]}`, 1<<20)), "Content-Encoding: gzip").is(202, "")
	},
	"PB-15": rows(
		row{batchLine, batch(`{"payload":1},{"payload":1,"partition":3}`), 400, "message 1: " + textRange, nil},
		row{"POST /v1/topics/missing/produce/batch", batch(`{"payload":1}`), 404, "topic not found", nil},
		nothing,
	),
	"PB-16": func(p *probe) {
		s := p.tight()
		topic := p.newTopic(s)
		p.fillProduces(s, topic)
		p.ask(s, "POST /v1/topics/"+topic+"/produce/batch", batch(`{"payload":1}`)).is(429, "too many in-flight produce requests for this identity…").has("Retry-After", "1")
	},
	"PB-17": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		p.ask(s, "POST /v1/topics/"+topic+"/produce/batch", batch(`{"payload":"hi"}`)).is(202, "")
		if m := p.take(s, topic, ""); string(m.Payload) != `"hi"` || m.PayloadEncoding != "" {
			p.Errorf("stored %q", m.Payload)
		}
	},
}

// batchStored: the count, the order, and the bytes of every form a message can take.
func batchStored(p *probe) {
	s := p.server()
	topic := p.newTopic(s)
	a := p.ask(s, "POST /v1/topics/"+topic+"/produce/batch", ` { "messages" : [
		{"payload": {"a" : [1, 2.50e+1]} , "partition":1},
		{"payload":"AP8=","payload_encoding":"base64","key":"/w==","key_encoding":"base64","partition":1},
		{"payload":"aGk=","payload_encoding":"base64","key":"","partition":1},
		{"payload":null,"key":"k","partition":1,"key_encoding":null,"payload_encoding":null},
		{"payload":"\u00e9","partition":1} ] } `)
	a.is(202, "").equals(`{"accepted":5}`)
	for i, want := range []string{
		`"payload":{"a" : [1, 2.50e+1]},`,
		`"key":"/w==","key_encoding":"base64","payload":"AP8=","payload_encoding":"base64",`,
		`"payload":"hi",`,
		`"key":"k","payload":null,`,
		`"payload":"\u00e9",`,
	} {
		a := p.ask(s, fmt.Sprintf("GET /v1/topics/%s/consume?wait=10s&partition=1", topic), "").is(200, "")
		if prefix := fmt.Sprintf(`{"topic":%q,"partition":1,"offset":%d,%s"timestamp":`, topic, i, want); !strings.HasPrefix(a.body, prefix) {
			a.fatalf("want to begin with %s", prefix)
		}
	}
}

// abandon sends a request and leaves before its answer.
func (p *probe) abandon(s *server, line string) {
	p.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if a, err := s.send(ctx, line, "", nil); err == nil {
			p.Errorf("%s: answered %d before the client left", line, a.status)
		}
	}()
	p.parked()
	cancel()
	<-done
}
