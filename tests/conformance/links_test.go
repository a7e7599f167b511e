package conformance

import (
	"fmt"
	"strings"
)

// children is the answer to GET /v1/topics/{parent}/children.
type children struct {
	Parent   string `json:"parent"`
	ParentID string `json:"parent_id"`
	Children []struct {
		Name        string `json:"name"`
		DelayMS     int64  `json:"delay_ms"`
		LagMessages int64  `json:"lag_messages"`
		LagComplete bool   `json:"lag_complete"`
	} `json:"children"`
}

func childrenLine(method, parent string) string {
	return method + " /v1/topics/" + parent + "/children"
}

// attach links two topics; fields are further body fields.
func (p *probe) attach(s *server, parent, child string, fields ...string) *answer {
	p.Helper()
	return p.ask(s, childrenLine("POST", parent), "{"+strings.Join(append([]string{fmt.Sprintf(`"child":%q`, child)}, fields...), ",")+"}")
}

func (p *probe) detach(s *server, parent, child string) *answer {
	p.Helper()
	return p.ask(s, childrenLine("DELETE", parent)+"/"+child, "")
}

// pair is a parent with a child.
func (p *probe) pair(s *server, fields ...string) (parent, child string) {
	p.Helper()
	parent, child = p.newTopic(s), p.newTopic(s)
	p.attach(s, parent, child, fields...).is(200, "…")
	return parent, child
}

// caughtUp waits until a child has everything that is committed to its parent.
func (p *probe) caughtUp(s *server, parent, child string) {
	p.Helper()
	p.eventually(func() bool {
		var list children
		p.ask(s, childrenLine("GET", parent), "").wants(200, &list)
		for _, c := range list.Children {
			if c.Name == child {
				return c.LagComplete && c.LagMessages == 0
			}
		}
		return false
	}, "the child has caught up")
}

var linkChecks = map[string]check{
	"AC-1": func(p *probe) {
		s := p.server()
		parent, child := p.newTopic(s), p.newTopic(s)
		var got struct {
			Name, Role string
			Children   []string
		}
		p.attach(s, parent, child, `"delay_ms":1000`).wants(200, &got)
		if got.Name != parent || got.Role != "parent" || len(got.Children) != 1 || got.Children[0] != child {
			p.Fatalf("%+v, want the parent", got)
		}
		var list children
		p.ask(s, childrenLine("GET", parent)+"?partitions=true", "").wants(200, &list)
		if list.Parent != parent || list.ParentID == "" || len(list.Children) != 1 || list.Children[0].Name != child || list.Children[0].DelayMS != 1000 {
			p.Fatalf("%+v", list)
		}
		p.ask(s, childrenLine("GET", parent)+"?partitions=1", "").is(400, "invalid argument: …")
	},
	"AC-2": func(p *probe) {
		s := p.server()
		parent := p.newTopic(s)
		for _, body := range []string{
			`{}`, fmt.Sprintf(`{"child":%q}`, parent), `{"child":"x","delay_ms":-1}`, `{"child":"x","delay_ms":31536000001}`,
			`{"child":"` + strings.Repeat("x", 1<<20) + `"}`,
		} {
			p.ask(s, childrenLine("POST", parent), body).is(400, "invalid argument: …")
		}
		p.ask(s, childrenLine("POST", parent), `{"child":"x","fanout_delay_ms":1}`).is(400, `invalid json: json: unknown field "fanout_delay_ms"`)
	},
	"AC-4": func(p *probe) {
		s := p.server()
		p.attach(s, p.newTopic(s), "missing").is(404, "topic not found")
		p.attach(s, "missing", p.newTopic(s)).is(404, "topic not found")
	},
	"AC-5": func(p *probe) {
		s := p.server()
		parent, child := p.pair(s)
		third := p.newTopic(s)
		p.attach(s, parent, child).is(409, "conflict: …")
		p.attach(s, third, child).is(409, "conflict: …")
		p.attach(s, third, parent).is(409, "conflict: …")
		p.attach(s, child, third).is(409, "conflict: …")
	},
	"AC-6": schemasMustMatch,
	"SC-7": schemasMustMatch,
	"AC-7": func(p *probe) {
		s := p.server()
		hour, forever := p.newTopic(s, `"retention_ms":3600000`), p.newTopic(s, `"retention_ms":0`)
		p.attach(s, hour, p.newTopic(s), `"delay_ms":1`).is(409, "conflict: …")
		p.attach(s, hour, p.newTopic(s), `"delay_ms":0`).is(200, "…")
		p.attach(s, forever, p.newTopic(s), `"delay_ms":31536000000`).is(200, "…")
	},
	"SC-6": func(p *probe) {
		s := p.server()
		parent, child := p.newTopic(s, `"schema":{"type":"object"}`), p.newTopic(s)
		p.attach(s, parent, child).is(200, "…")
		alter := func(topic, doc string) *answer { return p.ask(s, "PATCH /v1/topics/"+topic, `{"schema":`+doc+`}`) }
		alter(child, `{"type":["object","array"]}`).is(409, "conflict: …")
		alter(parent, `{"type":["object","array"]}`).is(200, "…")
		if h := p.history(s, child); h.Version != 2 {
			p.Fatalf("the parent's change reached the child as %+v", h)
		}
		p.detach(s, parent, child).is(204, "")
		alter(child, `{"type":["object","array","string"]}`).is(200, "…")
	},
	"LIM-12": func(p *probe) {
		s := p.server()
		parent := p.newTopic(s)
		create := func() *answer {
			name := p.name()
			p.dropAtEnd(name)
			return p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"parent":%q}`, name, parent))
		}
		for range 108 {
			create().is(201, "")
		}
		create().is(409, "…has 108 children, at most 108")
		p.attach(s, parent, p.newTopic(s)).is(409, "…has 108 children, at most 108")
	},
	"LIM-13": func(p *probe) {
		s := p.server()
		forever := p.newTopic(s, `"retention_ms":0`)
		p.attach(s, forever, p.newTopic(s), `"delay_ms":31536000000`).is(200, "…")
		p.attach(s, forever, p.newTopic(s), `"delay_ms":31536000001`).is(400, "invalid argument: …")
	},
	"AC-11": func(p *probe) {
		s := p.server()
		parent, child := p.newTopic(s), p.newTopic(s)
		p.produce(s, parent, "?partition=0", `"before"`)
		p.stored(s, parent, 0, 1)
		p.attach(s, parent, child).is(200, "…")
		p.produce(s, parent, "?partition=0", `"after"`)
		if m := p.take(s, child, ""); string(m.Payload) != `"after"` {
			p.Fatalf("the child's first message is %s", m.Payload)
		}
		p.caughtUp(s, parent, child)
		p.empty(s, child, "")
	},
	"AC-12": func(p *probe) {
		s := p.server()
		parent, child := p.pair(s)
		var first, second struct {
			Epoch string `json:"attach_epoch"`
		}
		p.ask(s, "GET /v1/topics/"+child, "").wants(200, &first)
		p.detach(s, parent, child).is(204, "")
		p.produce(s, parent, "?partition=0", `"meanwhile"`)
		p.stored(s, parent, 0, 1)
		p.attach(s, parent, child).is(200, "…")
		p.ask(s, "GET /v1/topics/"+child, "").wants(200, &second)
		if first.Epoch == "" || first.Epoch == second.Epoch {
			p.Fatalf("epochs %q and %q", first.Epoch, second.Epoch)
		}
		p.produce(s, parent, "?partition=0", `"after"`)
		if m := p.take(s, child, ""); string(m.Payload) != `"after"` {
			p.Fatalf("the child got %s", m.Payload)
		}
	},
	"AC-3": attachRights,
	"AZ-5": attachRights,
	"AZ-6": detachRights,
	"DC-7": detachRights,
	"AZ-4": createRights,
	"TC-6": createRights,
	"DC-1": func(p *probe) {
		s := p.server()
		parent, child := p.pair(s)
		p.produce(s, parent, "", `1`)
		p.take(s, child, "")
		p.detach(s, parent, child).is(204, "")
		if d := p.describe(s, child); d.Role != "standalone" {
			p.Fatalf("role %q", d.Role)
		}
		p.produce(s, child, "", `2`)
		p.take(s, child, "")
	},
	"DC-5": func(p *probe) {
		s := p.server()
		parent, child := p.pair(s)
		p.detach(s, parent, child+"?force=true").is(204, "")
	},
	"DC-6": func(p *probe) {
		s := p.server()
		parent, child := p.pair(s)
		p.detach(s, child, parent).is(404, "no such fan-out link")
		p.detach(s, "missing", "nobody").is(404, "topic not found")
		p.detach(s, parent, child).is(204, "")
		p.detach(s, parent, child).is(404, "no such fan-out link")
	},
	"DC-8": func(p *probe) {
		s := p.server()
		parent, child := p.pair(s)
		p.detach(s, parent, child+"?force=maybe").is(400, "invalid argument: …")
	},
	"TC-2": func(p *probe) {
		s := p.server()
		parent := p.newTopic(s, `"partitions":4`)
		name := p.name()
		var got struct {
			Role, Parent string
			Epoch        string  `json:"attach_epoch"`
			Offsets      []int64 `json:"attach_offsets"`
			Partitions   int
			Delay        int64 `json:"fanout_delay_ms"`
		}
		p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"parent":%q,"fanout_delay_ms":5}`, name, parent)).wants(201, &got)
		p.dropAtEnd(name)
		if got.Role != "child" || got.Parent != parent || len(got.Epoch) != 16 || len(got.Offsets) != 4 || got.Partitions != 4 || got.Delay != 5 {
			p.Fatalf("%+v", got)
		}
		p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"fanout_delay_ms":5}`, p.name())).is(400, "invalid argument: …")
		p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"parent":%q,"delay_ms":5}`, p.name(), parent)).is(400, `invalid json: json: unknown field "delay_ms"`)
	},
	"TC-7": func(p *probe) {
		s := p.server()
		p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"parent":"missing"}`, p.name())).is(404, "topic not found")
	},
	"TC-10": func(p *probe) {
		s := p.server()
		_, child := p.pair(s)
		p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"parent":%q}`, p.name(), child)).is(409, "conflict: …")
		hour := p.newTopic(s, `"retention_ms":3600000`)
		p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"parent":%q,"fanout_delay_ms":1}`, p.name(), hour)).is(409, "conflict: …")
	},
	"TC-12": func(p *probe) {
		s := p.server()
		parent := p.newTopic(s, `"schema":{"type":"object"}`)
		p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"parent":%q,"schema":{"type":"array"}}`, p.name(), parent)).is(409, "conflict: …")
	},
	"TA-9": func(p *probe) {
		s := p.server()
		parent, _ := p.pair(s, `"delay_ms":60000`)
		line := "PATCH /v1/topics/" + parent
		p.ask(s, line, `{"retention_ms":3659999}`).is(409, "conflict: …")
		p.ask(s, line, `{"retention_ms":3660000}`).is(200, "…")
		p.ask(s, line, `{"retention_ms":0}`).is(200, "…")
	},
	"TD-2": func(p *probe) {
		s := p.server()
		parent, child := p.pair(s)
		p.ask(s, "DELETE /v1/topics/"+parent, "").is(204, "")
		if d := p.describe(s, child); d.Role != "standalone" {
			p.Fatalf("role %q", d.Role)
		}
	},
	"TD-3": func(p *probe) {
		s := p.server()
		parent, child := p.pair(s)
		p.ask(s, "DELETE /v1/topics/"+child, "").is(204, "")
		if d := p.describe(s, parent); d.Role != "standalone" {
			p.Fatalf("role %q", d.Role)
		}
	},
	"P-8": func(p *probe) {
		s := p.server()
		_, child := p.pair(s, `"delay_ms":60000`)
		const text = "direct produce to a delayed child topic is not allowed"
		p.ask(s, "POST /v1/topics/"+child+"/produce", "1").is(409, text)
		p.ask(s, "POST /v1/topics/"+child+"/produce/batch", batch(`{"payload":1}`)).is(409, "…"+text)
	},
	"P-16": func(p *probe) {
		s := p.server()
		_, child := p.pair(s)
		p.ask(s, "POST /v1/topics/"+child+"/produce", "1").is(202, "")
	},
}

func schemasMustMatch(p *probe) {
	s := p.server()
	with := func(doc string) string { return p.newTopic(s, `"schema":`+doc) }
	p.attach(s, with(`{"type":"object"}`), with(`{"type":"array"}`)).is(409, "conflict: …")
	p.attach(s, p.newTopic(s), with(`{"type":"object"}`)).is(409, "conflict: …")
	p.attach(s, with(`{"type":"object"}`), with(`{ "type" : "object" }`)).is(200, "…")
	child := p.newTopic(s)
	p.attach(s, with(`{"type":"object"}`), child).is(200, "…")
	if h := p.history(s, child); h.Version != 1 {
		p.Fatalf("the child adopted %+v", h)
	}
}

func attachRights(p *probe) {
	s := p.secured()
	alice := p.newUser(s, grant("create", "*"))
	own1, own2, other := p.newTopic(alice), p.newTopic(alice), p.newTopic(s)
	p.attach(alice, own1, other).is(403, textManage)
	p.attach(alice, other, own1).is(403, textManage)
	p.attach(alice, own1, own2).is(200, "…")
	p.attach(s, own1, other).is(200, "…")
}

func detachRights(p *probe) {
	s := p.secured()
	alice, bob := p.newUser(s, grant("create", "*")), p.newUser(s)
	own, other := p.newTopic(alice), p.newTopic(s)
	p.attach(s, own, other).is(200, "…")
	p.detach(bob, own, other).is(403, textManage)
	p.detach(alice, own, other).is(204, "")
	p.attach(s, other, own).is(200, "…")
	p.detach(alice, other, own).is(204, "")
}

func createRights(p *probe) {
	s := p.secured()
	alice := p.newUser(s, grant("create", "*"))
	own, other := p.newTopic(alice), p.newTopic(s)
	create := func(as *server, parent string) *answer {
		name := p.name()
		p.dropAtEnd(name)
		return p.ask(as, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"parent":%q}`, name, parent))
	}
	create(alice, other).is(403, textManage)
	create(p.newUser(s), own).is(403, "create not allowed for this topic name")
	create(alice, own).is(201, "…")
}
