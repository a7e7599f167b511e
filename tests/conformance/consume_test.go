package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// message is the Message of section 7.4.
type message struct {
	Topic           string          `json:"topic"`
	Partition       int             `json:"partition"`
	Offset          int64           `json:"offset"`
	Key             *string         `json:"key"`
	KeyEncoding     string          `json:"key_encoding"`
	Payload         json.RawMessage `json:"payload"`
	PayloadEncoding string          `json:"payload_encoding"`
	Timestamp       int64           `json:"timestamp"`
	Handle          string          `json:"receipt_handle"`
	Count           int             `json:"delivery_count"`
}

// text is the payload's bytes as they were produced, of a payload that is no JSON.
func (m message) text() string {
	var s string
	_ = json.Unmarshal(m.Payload, &s) // what is no string is not what the check produced
	return decoded(s, m.PayloadEncoding)
}

func (m message) keyText() string {
	if m.Key == nil {
		return ""
	}
	return decoded(*m.Key, m.KeyEncoding)
}

func decoded(s, encoding string) string {
	if encoding != "base64" {
		return s
	}
	b, _ := base64.StdEncoding.DecodeString(s)
	return string(b)
}

// take leases one message, waiting for it.
func (p *probe) take(s *server, topic, query string) message {
	p.Helper()
	var m message
	p.ask(s, "GET /v1/topics/"+topic+"/consume?wait=10s"+query, "").wants(200, &m)
	return m
}

// takeBatch leases several messages, waiting for the first.
func (p *probe) takeBatch(s *server, topic, query string) []message {
	p.Helper()
	var b struct {
		Messages []message `json:"messages"`
	}
	a := p.ask(s, "GET /v1/topics/"+topic+"/consume?wait=10s"+query, "").wants(200, &b)
	if len(b.Messages) == 0 || !slices.Equal(fieldsOf(a.body), []string{"messages"}) {
		a.fatalf("want a batch")
	}
	return b.Messages
}

// empty wants a consume at once to find nothing.
func (p *probe) empty(s *server, topic, query string) {
	p.Helper()
	p.ask(s, "GET /v1/topics/"+topic+"/consume?wait=0s"+query, "").is(204, "").within(5 * time.Second)
}

// stored waits until a partition shows n messages.
func (p *probe) stored(s *server, topic string, partition int, n int64) {
	p.Helper()
	p.eventually(func() bool {
		d := p.describe(s, topic)
		return d.Stats[partition].HighWatermark == n
	}, fmt.Sprintf("partition %d to show %d messages", partition, n))
}

func consumeRefused(query, text string) row {
	return row{"GET /v1/topics/{t}/consume?" + query, "", 400, text, nil}
}

// consumeChecks are C (section 10.3), the queue.
var consumeChecks = map[string]check{
	"C-1": consumeMessage,
	"C-2": func(p *probe) {
		s := p.server()
		line := "GET /v1/topics/" + p.newTopic(s) + "/consume"
		p.ask(s, line, "").is(204, "").within(5 * time.Second)
		for _, wait := range []string{"400ms", "0.4s", "400000us"} {
			if a := p.ask(s, line+"?wait="+wait, "").is(204, ""); a.took < 400*time.Millisecond {
				a.fatalf("waited %v", a.took)
			}
		}
		p.ask(s, line+"?wait=0", "").is(204, "").has("X-Narad-Wait-Clamped", "")
	},
	"C-3": clamped,
	"C-4": rows(
		consumeRefused("wait=5", "invalid argument: …"), consumeRefused("wait=-1s", "invalid argument: …"), consumeRefused("wait=x", "invalid argument: …"),
		consumeRefused("wait=", "invalid argument: …"), consumeRefused("wait=10d", "invalid argument: …"),
		consumeRefused("partition=3", textRange), consumeRefused("partition=-1", textRange), consumeRefused("partition=x", textRange), consumeRefused("partition=", textRange),
		consumeRefused("partition=0&offset=x", "invalid argument: …"), consumeRefused("partition=0&offset=-1", "invalid argument: …"),
		consumeRefused("max=0", "invalid argument: …"), consumeRefused("max=101", "invalid argument: …"), consumeRefused("max=x", "invalid argument: …"), consumeRefused("max=", "invalid argument: …"),
	),
	"C-5": rows(consumeRefused("offset=0", "partition required for replay-mode consume")),
	"C-6": rows(consumeRefused("max=1&partition=0&offset=0", "invalid argument: …")),
	"C-7": rows(
		row{"GET /v1/topics/{t}/consume?max=1", "", 400, "batch consume requires an X-Narad-Client header", []string{bare}},
		row{"HEAD /v1/topics/{t}/consume?max=1", "", 400, "", []string{bare}},
		row{"GET /v1/topics/missing/consume?max=1", "", 400, "batch consume requires an X-Narad-Client header", []string{"X-Narad-Client:"}},
		row{"GET /v1/topics/{t}/consume?max=1", "", 204, "", []string{"X-Narad-Client: x"}},
	),
	"C-7a": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		p.produce(s, topic, "", "1")
		p.ask(s, "HEAD /v1/topics/"+topic+"/consume?wait=5s", "").is(405, "").has("Allow", "GET")
		p.ask(s, "HEAD /v1/topics/"+topic+"/consume?max=1", "").is(405, "").has("Allow", "GET")
		if m := p.take(s, topic, ""); m.Count != 1 {
			p.Errorf("HEAD leased the message: delivery_count %d", m.Count)
		}
	},
	"C-9":  rows(row{"GET /v1/topics/missing/consume", "", 404, "topic not found", nil}, row{"GET /v1/topics/missing/consume?wait=5s&partition=0", "", 404, "topic not found", nil}),
	"C-11": inFlightCap,
	"C-12": ackedAheadCap,
	"C-17": func(p *probe) {
		s := p.tight()
		topic := p.newTopic(s)
		p.fillConsumes(s, topic)
		p.ask(s, "GET /v1/topics/"+topic+"/consume", "").is(429, "too many in-flight consume requests for this identity…").has("Retry-After", "1")
	},
	"C-20": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		poll := p.later(s, "GET /v1/topics/"+topic+"/consume?wait=10s", "")
		p.parked()
		p.ask(s, "DELETE /v1/topics/"+topic, "").is(204, "")
		if a := poll.wait().within(3 * time.Second); a.status != 204 {
			a.is(404, "topic not found")
		}
	},
	"C-21": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		for i := range 5 {
			p.abandon(s, "GET /v1/topics/"+topic+"/consume?wait=10s")
			p.produce(s, topic, "", "1")
			if m := p.take(s, topic, ""); m.Count > 2 {
				p.Errorf("round %d: delivery_count %d", i, m.Count)
			}
		}
	},
	"C-22": backToTheQueue,
	"C-23": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		const n = 12
		polls := []*pending{}
		for range n + 3 {
			polls = append(polls, p.later(s, "GET /v1/topics/"+topic+"/consume?wait=2s", ""))
		}
		for range n {
			p.produce(s, topic, "", "1")
		}
		seen, idle := map[string]bool{}, 0
		for _, poll := range polls {
			a := poll.wait()
			if a.status == 204 {
				idle++
				continue
			}
			var m message
			a.wants(200, &m)
			if at := fmt.Sprint(m.Partition, ":", m.Offset); seen[at] {
				p.Errorf("%s was given to two consumers", at)
			} else {
				seen[at] = true
			}
		}
		if len(seen) != n || idle != 3 {
			p.Errorf("%d messages reached a consumer and %d consumers none, want %d and 3", len(seen), idle, n)
		}
	},
	"C-24": corrupt(func(p *probe, s *server, topic string) {
		p.empty(s, topic, "&partition=0")
		p.produce(s, topic, "?partition=0", `"after"`)
		if m := p.take(s, topic, "&partition=0"); string(m.Payload) != `"after"` {
			p.Errorf("got %s at offset %d, want the message after the damage", m.Payload, m.Offset)
		}
	}),
}

// consumeMessage: the fields of a message, each kind of payload and key (section 10.4),
// the handle, and the length of the lease.
func consumeMessage(p *probe) {
	s := p.server()
	topic := p.newTopic(s, `"visibility_timeout_ms":31536000000`)
	for i, c := range []struct{ key, payload, want string }{
		{"", ` {"a": 1 } `, `"payload": {"a": 1 } `},
		{"k", `plain <text>`, `"key":"k","payload":"plain \u003ctext\u003e"`},
		{"a\x01\"", `"quoted"`, `"key":"a\u0001\"","payload":"quoted"`},
		{"\xff", "\xff\x00", `"key":"/w==","key_encoding":"base64","payload":"/wA=","payload_encoding":"base64"`},
		{"", `{"a":1}{"b":2}`, `"payload":"{\"a\":1}{\"b\":2}"`},
		{"", `1e999`, `"payload":1e999`},
		{"", "\"\xff\"", `"payload":"Iv8i","payload_encoding":"base64"`},
	} {
		p.produce(s, topic, "?partition=0&key="+escape(c.key), c.payload)
		a := p.ask(s, "GET /v1/topics/"+topic+"/consume?wait=10s", "")
		if prefix := fmt.Sprintf(`{"topic":%q,"partition":0,"offset":%d,%s`, topic, i, c.want); a.status != 200 || !strings.HasPrefix(a.body, prefix) {
			a.fatalf("want to begin with %s", prefix)
		}
		var m message
		a.wants(200, &m)
		tail := fmt.Sprintf(`,"timestamp":%d,"receipt_handle":%q,"delivery_count":1}`+"\n", m.Timestamp, m.Handle)
		if !strings.HasSuffix(a.body, tail) {
			a.fatalf("want to end with %s", tail)
		}
		if !regexp.MustCompile(fmt.Sprintf(`^0:%d:[1-9][0-9]{0,18}$`, i)).MatchString(m.Handle) {
			p.Errorf("receipt_handle %q of offset %d", m.Handle, i)
		}
	}
	p.empty(s, topic, "")  // all are leased
	const deepest = 10_000 // nesting that still counts as JSON; more is text
	for n, want := range map[int]string{deepest: `,"payload":[[`, deepest + 1: `,"payload":"[[`} {
		p.produce(s, topic, "", strings.Repeat("[", n)+strings.Repeat("]", n))
		if a := p.ask(s, "GET /v1/topics/"+topic+"/consume?wait=10s", ""); a.status != 200 || !strings.Contains(a.body, want) {
			a.fatalf("nesting %d: want %s", n, want)
		}
	}
}

func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02x", s[i])
	}
	return b.String()
}

// inFlightCap: a partition with all its leases out yields nothing.
func inFlightCap(p *probe) {
	s := p.server()
	topic := p.newTopic(s, `"max_in_flight_per_partition":2`)
	for range 3 {
		p.produce(s, topic, "?partition=0", "1")
	}
	first := p.take(s, topic, "&partition=0")
	p.take(s, topic, "&partition=0")
	p.stored(s, topic, 0, 3)
	p.empty(s, topic, "&partition=0")
	p.empty(s, topic, "")
	p.empty(s, topic, "&max=5")
	p.produce(s, topic, "?partition=1", "1")
	if m := p.take(s, topic, ""); m.Partition != 1 {
		p.Errorf("partition %d, want 1", m.Partition)
	}
	p.settle(s, topic, first.Handle, "").is(204, "")
	if m := p.take(s, topic, "&partition=0"); m.Offset != 2 {
		p.Errorf("offset %d, want 2", m.Offset)
	}
}

// ackedAheadCap: with as many acks above the oldest unacked message as may be held, only
// that message is offered.
func ackedAheadCap(p *probe) {
	s := p.server()
	topic := p.newTopic(s, `"max_acked_ahead_per_partition":2`)
	for range 5 {
		p.produce(s, topic, "?partition=0", "1")
	}
	p.stored(s, topic, 0, 5)
	hole := p.take(s, topic, "")
	for range 2 {
		p.settle(s, topic, p.take(s, topic, "").Handle, "").is(204, "")
	}
	p.empty(s, topic, "") // only the hole might be offered, and it is leased
	p.settle(s, topic, hole.Handle, "0").is(204, "")
	again := p.take(s, topic, "")
	if again.Offset != hole.Offset || again.Count != 2 {
		p.Errorf("offset %d, delivery %d; want the hole %d a second time", again.Offset, again.Count, hole.Offset)
	}
	p.empty(s, topic, "")
	p.settle(s, topic, again.Handle, "").is(204, "")
	if m := p.take(s, topic, ""); m.Offset != 3 {
		p.Errorf("offset %d once the hole is closed, want 3", m.Offset)
	}
}

// backToTheQueue: a nack and the end of a lease reach a waiting consumer.
func backToTheQueue(p *probe) {
	s := p.server()
	topic := p.newTopic(s)
	p.produce(s, topic, "", "1")
	m := p.take(s, topic, "")
	poll := p.later(s, "GET /v1/topics/"+topic+"/consume?wait=10s", "")
	p.parked()
	p.settle(s, topic, m.Handle, "0").is(204, "")
	var again message
	poll.wait().within(3*time.Second).wants(200, &again)
	if again.Offset != m.Offset || again.Count != 2 || again.Handle == m.Handle {
		p.Errorf("after the nack: %+v, before: %+v", again, m)
	}

	brief := p.newTopic(s, `"visibility_timeout_ms":300`)
	p.produce(s, brief, "", "1")
	m = p.take(s, brief, "")
	p.ask(s, "GET /v1/topics/"+brief+"/consume?wait=10s", "").within(4*time.Second).wants(200, &again)
	if again.Offset != m.Offset || again.Count != 2 {
		p.Errorf("after the lease: %+v, before: %+v", again, m)
	}
	p.settle(s, brief, m.Handle, "").is(410, "")
}

// corrupt makes a check of a topic whose one message on partition 0 no longer reads.
func corrupt(show func(p *probe, s *server, topic string)) check {
	return func(p *probe) {
		s := p.files()
		topic := p.newTopic(s)
		p.produce(s, topic, "?partition=0", `"before"`)
		p.stored(s, topic, 0, 1)
		logs, err := filepath.Glob(filepath.Join(p.owner(s, topic, 0).Dir, "topics", topic, "p00000", "*.log"))
		if err != nil || len(logs) != 1 {
			p.Fatalf("logs of %s: %v, %v", topic, logs, err)
		}
		b, err := os.ReadFile(logs[0])
		if err != nil {
			p.Fatal(err)
		}
		at := strings.Index(string(b), "before")
		if at < 0 {
			p.Fatal("the message is not in the log")
		}
		f, err := os.OpenFile(logs[0], os.O_WRONLY, 0)
		if err != nil {
			p.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte("B"), int64(at)); err != nil {
			p.Fatal(err)
		}
		show(p, s, topic)
	}
}

// clamped: a wait over the cap is one of the cap, and the answer says so.
func clamped(p *probe) {
	s, longest := p.server(), 10*time.Second
	if !p.suite.cluster {
		s, longest = p.tight(), tightWait
	}
	topic := p.newTopic(s)
	consume := func(query string) string { return "GET /v1/topics/" + topic + "/consume?wait=" + query }
	over := []*pending{p.later(s, consume("1h"), ""), p.later(s, consume("1h&partition=0"), ""), p.later(s, consume("1h&partition=1"), "")}
	exact := p.later(s, consume(longest.String()+"&partition=2"), "")
	for _, poll := range over {
		a := poll.wait().is(204, "").has("X-Narad-Wait-Clamped", longest.String())
		if a.took < longest || a.took > longest+4*time.Second {
			a.fatalf("waited %v, want %v", a.took, longest)
		}
	}
	exact.wait().is(204, "").has("X-Narad-Wait-Clamped", "")
	for i := range 3 {
		p.produce(s, topic, fmt.Sprint("?partition=", i), "1")
		p.ask(s, consume(fmt.Sprint(longest+time.Millisecond, "&partition=", i)), "").is(200, "").has("X-Narad-Wait-Clamped", longest.String())
	}
}

// batchConsumeChecks are CB (section 10.3).
var batchConsumeChecks = map[string]check{
	"CB-1": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		p.ask(s, "GET /v1/topics/"+topic+"/consume?max=1", "").is(204, "")
		p.produce(s, topic, "", "1")
		if ms := p.takeBatch(s, topic, "&max=1"); len(ms) != 1 || ms[0].Handle == "" || ms[0].Count != 1 {
			p.Errorf("%+v", ms)
		}
	},
	"CB-2": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		for range 3 {
			p.produce(s, topic, "?partition=1", "1")
		}
		p.stored(s, topic, 1, 3)
		a := p.ask(s, "GET /v1/topics/"+topic+"/consume?max=100&wait=10s", "").within(6 * time.Second)
		var b struct{ Messages []message }
		a.wants(200, &b)
		for i, m := range b.Messages {
			if m.Offset != int64(i) {
				p.Errorf("message %d has offset %d", i, m.Offset)
			}
		}
		if len(b.Messages) != 3 {
			a.fatalf("want the three messages there are")
		}
	},
	"CB-3": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		for range 6 {
			p.produce(s, topic, "?partition=0", `"`+long(1<<20-2)+`"`)
		}
		p.stored(s, topic, 0, 6)
		if ms := p.takeBatch(s, topic, "&max=100"); len(ms) != 4 {
			p.Errorf("%d messages of 1 MiB, want 4", len(ms))
		}
		if ms := p.takeBatch(s, topic, "&max=100"); len(ms) != 2 || ms[0].Count != 1 {
			p.Errorf("then %d messages, delivery %d; want the other 2, first delivery", len(ms), ms[0].Count)
		}
	},
	"CB-4": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		for range 2 {
			p.produce(s, topic, "?partition=0", strings.Repeat("\x01", 1<<20)) // 6 MiB as a JSON string
		}
		p.stored(s, topic, 0, 2)
		first := p.takeBatch(s, topic, "&max=2")
		second := p.takeBatch(s, topic, "&max=2")
		if len(first) != 1 || len(second) != 1 || first[0].Offset != 0 || second[0].Offset != 1 {
			p.Errorf("%d and %d messages, want one each: the second is given back before the answer", len(first), len(second))
		}
	},
	"CB-5": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s, `"max_in_flight_per_partition":3`)
		for range 5 {
			p.produce(s, topic, "?partition=0", "1")
		}
		p.stored(s, topic, 0, 5)
		ms := p.takeBatch(s, topic, "&max=100")
		handles := map[string]bool{}
		for _, m := range ms {
			handles[m.Handle] = true
		}
		if len(ms) != 3 || len(handles) != 3 {
			p.Fatalf("%d messages, %d handles; want 3 of each", len(ms), len(handles))
		}
		p.settle(s, topic, ms[1].Handle, "0").is(204, "")
		if again := p.takeBatch(s, topic, "&max=100"); len(again) != 1 || again[0].Offset != ms[1].Offset {
			p.Errorf("%+v, want the one given back", again)
		}
	},
	"CB-7": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		p.produce(s, topic, "?partition=0", "1")
		if a := p.ask(s, "GET /v1/topics/"+topic+"/consume?max=5&partition=1&wait=300ms", "").is(204, ""); a.took < 300*time.Millisecond {
			a.fatalf("waited %v", a.took)
		}
		poll := p.later(s, "GET /v1/topics/"+topic+"/consume?max=5&partition=1&wait=10s", "")
		p.produce(s, topic, "?partition=1", "1")
		var b struct{ Messages []message }
		poll.wait().wants(200, &b)
		if len(b.Messages) != 1 || b.Messages[0].Partition != 1 {
			p.Errorf("%+v", b)
		}
	},
}

func replay(topic string, offset any) string {
	return fmt.Sprintf("GET /v1/topics/%s/consume?partition=0&offset=%v", topic, offset)
}

// replayChecks are R (section 10.3).
var replayChecks = map[string]check{
	"R-1": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		for i := range 3 {
			p.produce(s, topic, "?partition=0&key=k", fmt.Sprint(i))
		}
		p.stored(s, topic, 0, 3)
		for i := range 3 {
			a := p.ask(s, replay(topic, i), "")
			var m message
			a.wants(200, &m)
			want := []string{"topic", "partition", "offset", "key", "payload", "timestamp"}
			if string(m.Payload) != fmt.Sprint(i) || !slices.Equal(fieldsOf(a.body), want) {
				a.fatalf("want the fields %v", want)
			}
		}
	},
	"R-2": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		p.ask(s, replay(topic, 0)+"&wait=10s", "").is(204, "").within(5 * time.Second)
		p.produce(s, topic, "?partition=0", "1")
		p.stored(s, topic, 0, 1)
		p.ask(s, replay(topic, 0), "").is(200, "")
		p.ask(s, replay(topic, 1), "").is(204, "")
		p.ask(s, replay(topic, int64(1)<<62), "").is(204, "")
	},
	"R-4": corrupt(func(p *probe, s *server, topic string) {
		p.ask(s, replay(topic, 0), "").is(410, "")
		p.ask(s, replay(topic, 1), "").is(204, "")
	}),
	"R-5": rows(consumeRefused("partition=0&offset=-1", "invalid argument: …"), consumeRefused("partition=0&offset=99999999999999999999", "invalid argument: …")),
	"R-6": rows(consumeRefused("partition=3&offset=0", textRange), consumeRefused("partition=-1&offset=0", textRange)),
	"R-8": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		p.produce(s, topic, "?partition=0", "1")
		p.stored(s, topic, 0, 1)
		before := p.ask(s, replay(topic, 0), "").is(200, "")
		m := p.take(s, topic, "")
		if m.Count != 1 {
			p.Errorf("delivery_count %d after a replay, want 1", m.Count)
		}
		p.ask(s, replay(topic, 0), "").is(200, "").equals(strings.TrimSuffix(before.body, "\n"))
		p.settle(s, topic, m.Handle, "").is(204, "")
		p.ask(s, replay(topic, 0), "").is(200, "").equals(strings.TrimSuffix(before.body, "\n"))
		p.empty(s, topic, "")
	},
}
