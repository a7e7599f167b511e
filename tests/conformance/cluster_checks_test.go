package conformance

import (
	"fmt"
	"time"

	"github.com/narad-mq/narad/internal/testutil"
)

// clusterChecks need several nodes, all of them well; they ask the bystander.
var clusterChecks = map[string]check{
	"RT-1": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		for i := range 3 {
			p.produce(s, topic, fmt.Sprint("?partition=", i), fmt.Sprint(i))
		}
		for i := range 3 {
			if m := p.take(s, topic, fmt.Sprint("&partition=", i)); string(m.Payload) != fmt.Sprint(i) {
				p.Errorf("partition %d has %s", i, m.Payload)
			}
		}
	},
	"AZ-20": func(p *probe) {
		s := p.secured()
		alice := p.newUser(s, grant("create", "*"))
		leader := reach(s.mates[0]).as(alice.user, alice.password)
		for range 5 { // the bystander may not have heard of it
			topic := p.newTopic(leader)
			p.ask(alice, "PATCH /v1/topics/"+topic, `{"retention_ms":7200000}`).is(200, "")
			child := p.newTopic(leader)
			p.attach(alice, topic, child).is(200, "")
			p.ask(alice, "DELETE /v1/topics/"+child, "").is(204, "")
		}
		for _, line := range []string{"PATCH /v1/topics/missing", "DELETE /v1/topics/missing"} {
			p.ask(alice, line, `{"retention_ms":7200000}`).is(404, "topic not found")
		}
	},
	"BODY-5": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		p.produce(s, topic, "?partition=0", "1")
		m := p.take(s, topic, "&partition=0")
		p.settle(s, topic, m.Handle, "").is(204, "")
		relayed := []*answer{p.settle(s, topic, m.Handle, "").is(410, textGone)}
		corrupt(func(p *probe, s *server, topic string) {
			relayed = append(relayed, p.ask(s, replay(topic, 0), "").is(410, "record is unreadable"))
		})(p)
		for _, a := range relayed {
			a.has("X-Content-Type-Options", "nosniff").has("Content-Type", "application/json")
		}
	},
	"RT-2": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		// What lies there is found; what comes is waited for, at every owner.
		p.produce(s, topic, "?partition=2", "1")
		p.stored(s, topic, 2, 1)
		p.ask(s, "GET /v1/topics/"+topic+"/consume", "").is(200, "")
		for i := range 3 {
			poll := p.later(s, "GET /v1/topics/"+topic+"/consume?wait=10s", "")
			p.parked()
			p.produce(s, topic, fmt.Sprint("?partition=", i), "1")
			poll.wait().is(200, "").within(5 * time.Second)
		}
	},
	"CB-6": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		for i := range 3 {
			for range 3 {
				p.produce(s, topic, fmt.Sprint("?partition=", i), "1")
			}
			p.stored(s, topic, i, 3)
		}
		owners := p.describe(s, topic).Stats
		for range 3 {
			got := p.takeBatch(s, topic, "&max=100")
			for _, m := range got {
				if owners[m.Partition].Owner != owners[got[0].Partition].Owner {
					p.Errorf("one batch of partitions %d and %d, of two owners", got[0].Partition, m.Partition)
				}
			}
			if len(got) != 3 {
				p.Errorf("a batch of %d, want all that one owner has", len(got))
			}
		}
		p.empty(s, topic, "&max=100")
	},
	"AB-8": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		var handles []string
		for i := range 3 {
			p.produce(s, topic, fmt.Sprint("?partition=", i), "1")
			handles = append(handles, p.take(s, topic, fmt.Sprint("&partition=", i)).Handle)
		}
		for i, r := range p.settleAll(s, topic, "", handles[2], handles[0], "1:0:1", handles[1], handles[0]) {
			if want := []int{204, 204, 410, 204, 410}[i]; r.Status != want {
				p.Errorf("result %d: %+v, want %d", i, r, want)
			}
		}
	},
	"F-4": func(p *probe) {
		s := p.server()
		for _, m := range p.members(s) {
			if !m.Leader {
				p.ask(s, "POST /v1/cluster/members/"+m.ID+"/forget", "").is(409, "…has a member record…")
			}
		}
	},
}

// unborn is a cluster one of whose first members never starts.
var unborn = scenario{
	ids: []string{"F-7", "TC-18", "F-1"},
	run: func(p *probe) {
		c := p.newCrew(3, 3, p.T)
		c.start(c.nodes[:2]...)
		s := reach(c.nodes[0])
		for _, m := range p.members(s) {
			if m.Leader && m.ID == "n1" {
				s = reach(c.nodes[1])
			}
		}
		const line = "POST /v1/cluster/members/n3/forget"
		p.show("F-7", func(p *probe) { p.ask(s, line, "").is(409, "…has led for less than 12s…") })
		p.show("TC-18", func(p *probe) {
			create := func() *answer {
				name := p.name()
				return p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q}`, name)).is(201, "")
			}
			create().within(4 * time.Second) // it may have been seen forming before
			create().within(1900 * time.Millisecond)
		})
		p.show("F-1", func(p *probe) {
			testutil.Eventually(p, clusterPatience, func() bool {
				a := p.ask(s, line, "")
				if a.status == 503 {
					a.is(503, textUnavailable) // the leadership has moved
					return false
				}
				if a.status == 409 {
					a.is(409, "…has led for less than 12s…")
					return false
				}
				a.is(200, "").equals(`{"id":"n3","voter":true}`)
				return true
			}, "n3 to be forgotten")
			p.ask(s, line, "").is(404, `no raft server "n3"`)
			if !c.nodes[0].Logged("forgot a raft server with no member record") && !c.nodes[1].Logged("forgot a raft server with no member record") {
				p.Error("the leader's log does not say so")
			}
		})
	},
}
