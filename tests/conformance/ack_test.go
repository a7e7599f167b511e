package conformance

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

const textGone = "receipt handle no longer matches an active reservation"

// settle acks a handle; extend is the parameter of that name, if any.
func (p *probe) settle(s *server, topic, handle, extend string) *answer {
	p.Helper()
	q := url.Values{"receipt_handle": {handle}}
	if extend != "" {
		q.Set("extend", extend)
	}
	return p.ask(s, "POST /v1/topics/"+topic+"/ack?"+q.Encode(), "")
}

// settleAll is the batch form; results are status and text.
func (p *probe) settleAll(s *server, topic, query string, handles ...string) []settled {
	p.Helper()
	for i, h := range handles {
		handles[i] = quoted(h)
	}
	var b struct {
		Results []settled `json:"results"`
	}
	a := p.ask(s, "POST /v1/topics/"+topic+"/ack"+query, `{"receipt_handles":[`+strings.Join(handles, ",")+`]}`).wants(200, &b)
	if !slices.Equal(fieldsOf(a.body), []string{"results"}) || len(b.Results) != len(handles) {
		a.fatalf("want %d results", len(handles))
	}
	for _, r := range b.Results {
		if (r.Status == 204) != (r.Error == "") {
			a.fatalf("want an error exactly on what is not 204")
		}
	}
	return b.Results
}

type settled struct {
	Status int    `json:"status"`
	Error  string `json:"error"`
}

// leased makes a topic with n leased messages on partition 0.
func (p *probe) leased(s *server, n int, fields ...string) (string, []message) {
	p.Helper()
	topic := p.newTopic(s, fields...)
	var ms []message
	for range n {
		p.produce(s, topic, "?partition=0", "1")
		ms = append(ms, p.take(s, topic, "&partition=0"))
	}
	return topic, ms
}

// ackChecks are A and AB (section 10.5).
var ackChecks = map[string]check{
	"A-1": func(p *probe) {
		s := p.server()
		topic, ms := p.leased(s, 4)
		p.settle(s, topic, ms[0].Handle, "").is(204, "")
		p.settle(s, topic, ms[1].Handle, "false").is(204, "")
		p.settle(s, topic, ms[2].Handle, "true").is(204, "")
		p.settle(s, topic, ms[2].Handle, "1").is(204, "")
		p.settle(s, topic, ms[3].Handle, "0").is(204, "")
		if m := p.take(s, topic, ""); m.Offset != 3 || m.Count != 2 {
			p.Errorf("%+v, want the message given back", m)
		}
		p.empty(s, topic, "")
		p.ask(s, "POST /v1/topics/"+topic+"/ack?receipt_handle="+ms[2].Handle, "not json").is(204, "") // the body is ignored
	},
	"A-2": leaseGone,
	"A-3": rows(
		row{"POST /v1/topics/{t}/ack", "", 400, "receipt_handle required", nil},
		row{"POST /v1/topics/{t}/ack?extend=0", "", 400, "receipt_handle required", nil},
		row{"POST /v1/topics/{t}/ack?receipt_handle=", "", 400, "receipt_handle required", nil},
	),
	"A-4": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		for _, h := range []string{"x", "0:0", "0:0:0:1", "0:0:x", "-1:0:1", "0:-1:1", "+0:0:1", "00:0:1", "0:01:1", "0: 0:1", "0:0:99999999999999999999", "٠:0:1"} {
			p.settle(s, topic, h, "").is(400, "invalid receipt handle")
			p.settle(s, topic, h, "true").is(400, "invalid receipt handle")
		}
	},
	"A-5": rows(
		row{"POST /v1/topics/{t}/ack?receipt_handle=0:0:1&extend=2", "", 400, "invalid argument: …", nil},
		row{"POST /v1/topics/{t}/ack?receipt_handle=0:0:1&extend=", "", 400, "invalid argument: …", nil},
		row{"POST /v1/topics/{t}/ack?receipt_handle=0:0:1&extend=True", "", 400, "invalid argument: …", nil},
		row{"POST /v1/topics/{t}/ack?extend=yes", `{"receipt_handles":["0:0:1"]}`, 400, "invalid argument: …", nil},
	),
	"A-6": func(p *probe) {
		p.run(p.server(),
			row{"POST /v1/topics/missing/ack?receipt_handle=0:0:1", "", 404, "topic not found", nil},
			row{"POST /v1/topics/missing/ack", `{"receipt_handles":["0:0:1"]}`, 404, "topic not found", nil})
	},
	"A-12": func(p *probe) {
		s := p.server()
		const n = 6 // the sum of both caps
		topic, ms := p.leased(s, n, `"max_in_flight_per_partition":6,"max_acked_ahead_per_partition":1`)
		slices.Reverse(ms)
		for _, m := range ms {
			p.settle(s, topic, m.Handle, "").is(204, "")
		}
		p.empty(s, topic, "")
	},
	"A-13": func(p *probe) {
		s := p.server()
		const lease = 1500 * time.Millisecond
		topic, ms := p.leased(s, 1, fmt.Sprintf(`"visibility_timeout_ms":%d`, lease.Milliseconds()))
		began := time.Now()
		for time.Since(began) < lease+lease/3 { // past the end of the lease as it was given
			p.settle(s, topic, ms[0].Handle, "true").is(204, "")
			<-time.After(lease / 4)
		}
		p.settle(s, topic, ms[0].Handle, "").is(204, "")
		p.empty(s, topic, "")
	},
	"A-14": func(p *probe) {
		s := p.server()
		topic, ms := p.leased(s, 1)
		p.settle(s, topic, ms[0].Handle, "0").is(204, "")
		p.settle(s, topic, ms[0].Handle, "").is(410, textGone)
		if m := p.take(s, topic, ""); m.Count != 2 {
			p.Errorf("delivery_count %d, want 2", m.Count)
		}
	},

	"AB-1": func(p *probe) {
		s := p.server()
		topic, ms := p.leased(s, 3)
		got := p.settleAll(s, topic, "", ms[2].Handle, "0:1:7", ms[0].Handle, "x")
		want := []settled{{204, ""}, {410, textGone}, {204, ""}, {400, "invalid receipt handle"}}
		if !slices.Equal(got, want) {
			p.Errorf("%v, want %v", got, want)
		}
	},
	"AB-2": func(p *probe) {
		s := p.server()
		topic, ms := p.leased(s, 4)
		for i, h := range []string{ms[0].Handle, "0:0:1", "9:0:1", "", "a:b:c", "0:99:1"} {
			for _, extend := range []string{"true", ""} {
				query := strings.TrimSuffix("?extend="+extend, "?extend=")
				batch := p.settleAll(s, topic, query, h)[0]
				if i == 0 && extend == "" { // settled by the batch: the next one settles another
					h = ms[1].Handle
				}
				single := p.settle(s, topic, h, extend)
				if h == "" { // not a handle in a list, no handle at all in the query
					single.is(400, "receipt_handle required")
					continue
				}
				single.is(batch.Status, batch.Error)
			}
		}
	},
	"AB-3": func(p *probe) {
		s := p.server()
		topic, ms := p.leased(s, 3)
		for _, r := range slices.Concat(p.settleAll(s, topic, "?extend=1", ms[0].Handle, ms[1].Handle), p.settleAll(s, topic, "?extend=0", ms[0].Handle, ms[1].Handle)) {
			if r.Status != 204 {
				p.Errorf("%+v", r)
			}
		}
		if again := p.takeBatch(s, topic, "&max=10"); len(again) != 2 || again[0].Offset != 0 || again[1].Offset != 1 {
			p.Errorf("%+v, want both given back", again)
		}
	},
	"AB-4": rows(
		row{"POST /v1/topics/{t}/ack", `{"receipt_handles":["0:0:1"]`, 400, "invalid json: …", nil},
		row{"POST /v1/topics/{t}/ack", `{"receipt_handles":["0:0:1"],"extend":true}`, 400, `invalid json: json: unknown field "extend"`, nil},
		row{"POST /v1/topics/{t}/ack", `{"receipt_handles":[]}`, 400, "receipt_handle required", nil},
		row{"POST /v1/topics/{t}/ack", `{}`, 400, "receipt_handle required", nil},
		row{"POST /v1/topics/{t}/ack", handles(`"0:0:1"`, 101), 400, "too many receipt_handles: more than 100", nil},
	),
	"AB-5": rows(row{"POST /v1/topics/{t}/ack", padded(`{"receipt_handles":["0:0:1"]}`, 64<<10+1), 413, "request body too large", nil}),
	"AB-6": func(p *probe) {
		s := p.server()
		topic, ms := p.leased(s, 2)
		got := p.settleAll(s, topic, "", ms[0].Handle, "not:a:handle", ms[1].Handle)
		if want := []settled{{204, ""}, {400, "invalid receipt handle"}, {204, ""}}; !slices.Equal(got, want) {
			p.Errorf("%v, want %v", got, want)
		}
	},
	"AB-7": func(p *probe) {
		s := p.server()
		topic, ms := p.leased(s, 1)
		got := p.settleAll(s, topic, "", ms[0].Handle, ms[0].Handle)
		if want := []settled{{204, ""}, {410, textGone}}; !slices.Equal(got, want) {
			p.Errorf("%v, want %v", got, want)
		}
	},
}

// leaseGone: every way in which a handle is no longer, or never was, that of a lease.
func leaseGone(p *probe) {
	s := p.server()
	topic, ms := p.leased(s, 2, `"visibility_timeout_ms":60000`)
	other, _ := p.leased(s, 1)
	handle := ms[0].Handle
	wrong := handle[:strings.LastIndex(handle, ":")+1] + "1"
	for _, extend := range []string{"", "true", "0"} {
		p.settle(s, topic, wrong, extend).is(410, textGone)
		p.settle(s, other, handle, extend).is(410, textGone)
		p.settle(s, topic, "107:0:1", extend).is(410, textGone)
		p.settle(s, topic, "2147483647:0:1", extend).is(410, textGone)
		p.settle(s, topic, "0:9223372036854775807:1", extend).is(410, textGone)
	}
	p.settle(s, topic, handle, "").is(204, "")
	p.settle(s, topic, handle, "").is(410, textGone) // settled
	p.settle(s, topic, ms[1].Handle, "0").is(204, "")
	again := p.take(s, topic, "")
	p.settle(s, topic, ms[1].Handle, "").is(410, textGone) // redelivered
	p.settle(s, topic, again.Handle, "").is(204, "")

	brief, ms := p.leased(s, 1, `"visibility_timeout_ms":200`)
	p.take(s, brief, "") // the lease ended
	p.settle(s, brief, ms[0].Handle, "").is(410, textGone)
}
