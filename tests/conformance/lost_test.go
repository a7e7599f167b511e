package conformance

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/narad-mq/narad/internal/testutil"
)

// Texts of section 16, and of C-14.
const (
	textOwnerDown   = "partition owner is down; retry later"
	textNoAnswer    = "the partition owner did not answer; retry"
	textAckLost     = "the partition owner did not answer; the ack may have been applied; retry"
	textAckUnsent   = "the ack did not reach the partition owner and was not applied; retry"
	textUnavailable = "control plane temporarily unavailable"
)

// plainTexts are the refusals about another node that are plain text (BODY-4).
var plainTexts = []string{textOwnerDown, textNoAnswer, textAckLost, textAckUnsent}

// ackStreams is how many streams to an owner acks take in turn, each opened by its first.
const ackStreams = 16

// leasesTaken is how many handles of the victim's partition the scenario spends.
const leasesTaken = 9

// lost is a cluster of four that loses one node after the other. asked neither leads nor
// owns a partition of topic; victim owns one and does not lead.
type lost struct {
	*crew
	s               *server // asked
	asked, victim   *testutil.Node
	topic           string
	gone, here      int       // the victim's partition, and another one
	leases          []message // of the victim's partition
	kept            message   // of the other one
	parent, child   string    // linked
	single, single2 string    // topics that are not
}

var lostOwner = scenario{
	ids: []string{
		"C-14", "C-25", "A-9", "E-502A", "A-15", "P-15", "C-18", "TG-2", "TC-19", "AC-10",
		"A-8", "E-OWN2",
		"C-13", "E-OWN1", "R-7", "A-7", "AB-8",
		"H-6", "RT-5", "RT-6", "E-CP1", "TD-17", "TC-15", "DC-15", "U-17", "F-9", "RT-1", "C-19",
		"RT-7", "TG-6",
	},
	run: func(p *probe) {
		l := p.newLost()
		l.paused()
		l.unreached()
		l.dead()
		l.leaderless()
		l.started()
	},
}

func (p *probe) newLost() *lost {
	l := &lost{crew: p.newCrew(4, 4, p.T)}
	l.start(l.nodes...)
	for _, n := range l.nodes {
		p.listed(reach(n), "n1", "n2", "n3", "n4")
	}
	leader := ""
	for _, m := range p.members(reach(l.nodes[0])) {
		if m.Leader {
			leader = m.ID
		}
	}
	for _, n := range l.nodes {
		switch {
		case n.ID == leader:
		case l.asked == nil:
			l.asked, l.s = n, reach(n)
		default:
			l.victim = n
		}
	}
	for range 8 { // placed on the three that own fewest
		l.topic = p.newTopic(l.s, `"visibility_timeout_ms":600000`)
		l.gone, l.here = -1, -1
		clear := true
		for i, st := range p.describe(l.s, l.topic).Stats {
			switch st.Owner {
			case l.asked.ID:
				clear = false
			case l.victim.ID:
				l.gone = i
			default:
				l.here = i
			}
		}
		if clear && l.gone >= 0 {
			break
		}
	}
	l.parent, l.child = p.pair(l.s)
	l.single, l.single2 = p.newTopic(l.s), p.newTopic(l.s)
	for range leasesTaken {
		p.produce(l.s, l.topic, fmt.Sprint("?partition=", l.gone), "1")
		l.leases = append(l.leases, p.take(l.s, l.topic, fmt.Sprint("&partition=", l.gone)))
	}
	for range ackStreams { // so that what is sent to the victim later gets under way
		p.ask(l.s, l.ack(l.leases[0].Handle)+"&extend=1", "").is(204, "")
	}
	p.produce(l.s, l.topic, fmt.Sprint("?partition=", l.here), "1")
	l.kept = p.take(l.s, l.topic, fmt.Sprint("&partition=", l.here))
	for range 4 {
		p.produce(l.s, l.topic, fmt.Sprint("?partition=", l.here), "1")
	}
	p.stored(l.s, l.topic, l.here, 5)
	return l
}

// lease is a handle of the victim's partition that nothing else uses.
func (l *lost) lease() string {
	m := l.leases[0]
	l.leases = l.leases[1:]
	return m.Handle
}

// pinned is a consume of the victim's partition.
func (l *lost) pinned(query string) string {
	return fmt.Sprintf("GET /v1/topics/%s/consume?partition=%d%s", l.topic, l.gone, query)
}

func (l *lost) ack(handle string) string {
	return "POST /v1/topics/" + l.topic + "/ack?receipt_handle=" + handle
}

// liveness wants the victim's partition as a placeholder of this kind, and the others.
func (l *lost) liveness(p *probe, want string) {
	p.Helper()
	var d struct {
		Partial bool `json:"partial"`
		Stats   []struct {
			Status   string `json:"status"`
			Liveness string `json:"owner_liveness"`
		} `json:"partition_stats"`
	}
	p.ask(l.s, "GET /v1/topics/"+l.topic, "").wants(200, &d).within(4 * time.Second)
	if !d.Partial || len(d.Stats) != 3 || d.Stats[l.gone].Status != "owner_unavailable" || d.Stats[l.gone].Liveness != want || d.Stats[l.here].Status != "ok" {
		p.Errorf("%+v, want partition %d %s", d, l.gone, want)
	}
}

// paused: the victim's process stands still; nobody knows yet.
func (l *lost) paused() {
	p := l.p
	if err := l.victim.Signal(syscall.SIGSTOP); err != nil {
		p.Fatal(err)
	}
	p.eventually(func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.victim.Pid()))
		return err == nil && strings.Contains(string(status), "State:\tT")
	}, "the victim to stand still")
	// All at once: each waits for the victim.
	consume, poll, replay := p.later(l.s, l.pinned(""), ""), p.later(l.s, l.pinned("&wait=1s"), ""), p.later(l.s, l.pinned("&offset=0"), "")
	ack, left := p.later(l.s, l.ack(l.lease()), ""), p.later(l.s, l.ack(l.lease()), "")
	both := p.later(l.s, "POST /v1/topics/"+l.topic+"/ack?extend=1", fmt.Sprintf(`{"receipt_handles":[%q,%q]}`, l.lease(), l.kept.Handle))
	name := p.name()
	create := p.later(l.s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"parent":%q}`, name, l.topic))
	attach := p.later(l.s, childrenLine("POST", l.topic), fmt.Sprintf(`{"child":%q}`, l.single))
	const ackRoute = "POST /v1/topics/{topic}/ack"
	p.show("A-15", func(p *probe) {
		p.parked()
		left.cancel()
		p.eventually(func() bool { return strings.TrimSpace(p.counted(l.s, ackRoute, 499)) == "1" }, "the client that left to be counted as 499")
	})
	p.show("TG-2", func(p *probe) { l.liveness(p, "unreachable") })
	if a := p.ask(l.s, "GET /v1/cluster/members?detail=true", "").is(200, "").within(4 * time.Second); strings.Count(a.body, `"status_error"`) != 1 {
		p.Errorf("%s, want a status of all but %s", a.body, l.victim.ID)
	}
	p.show("P-15", func(p *probe) { p.produce(l.s, l.topic, fmt.Sprint("?partition=", l.gone), "1") })
	p.show("C-18", l.fromOthers)
	p.show("C-14", func(p *probe) { consume.of(p).is(502, textNoAnswer).within(4 * time.Second) })
	// A connection on which nothing comes any more is given up before that.
	p.show("C-25", func(p *probe) { poll.of(p).is(502, textNoAnswer).within(5 * time.Second) })
	p.show("R-7", func(p *probe) { replay.of(p).is(502, textNoAnswer).within(7 * time.Second) })
	for _, id := range []string{"A-9", "E-502A"} {
		p.show(id, func(p *probe) { ack.of(p).is(502, textAckLost).within(4 * time.Second) })
	}
	p.show("AB-8", func(p *probe) {
		var b struct{ Results []settled }
		both.of(p).wants(200, &b).within(4 * time.Second)
		if len(b.Results) != 2 || b.Results[0] != (settled{502, textAckLost}) || b.Results[1].Status != 204 {
			p.Errorf("%+v, want 502 of the owner that does not answer only", b.Results)
		}
	})
	p.show("TC-19", func(p *probe) {
		create.of(p).is(503, textUnavailable)
		p.ask(l.s, "GET /v1/topics/"+name, "").is(404, "topic not found")
	})
	p.show("AC-10", func(p *probe) {
		attach.of(p).is(503, textUnavailable)
		if d := p.describe(l.s, l.single); d.Role != "standalone" {
			p.Errorf("role %q after an attach that was refused", d.Role)
		}
	})
	if err := l.victim.Signal(syscall.SIGCONT); err != nil {
		p.Fatal(err)
	}
	p.eventually(func() bool { return !p.describe(l.s, l.topic).Partial }, "the victim to be back")
}

// fromOthers: an unpinned consume passes by an owner that does not answer.
func (l *lost) fromOthers(p *probe) {
	if m := p.take(l.s, l.topic, ""); m.Partition == l.gone {
		p.Errorf("served from partition %d, whose owner is lost", m.Partition)
	}
}

// unreached: the victim is killed, and the asked node, started anew, has no connection to
// it. It is not marked dead yet.
func (l *lost) unreached() {
	p := l.p
	l.victim.Kill()
	if code := l.asked.Stop(); code != 0 {
		p.Fatalf("the asked node ended with %d", code)
	}
	l.start(l.asked)
	for _, id := range []string{"A-8", "E-OWN2"} {
		p.show(id, func(p *probe) {
			p.ask(l.s, l.ack(l.lease()), "").is(503, textAckUnsent).has("Retry-After", "1").within(4 * time.Second)
		})
	}
	p.show("AB-8", func(p *probe) {
		got := p.settleAll(l.s, l.topic, "?extend=1", l.kept.Handle, l.lease())
		if got[0].Status != 204 || got[1] != (settled{503, textAckUnsent}) {
			p.Errorf("%+v, want 503 of the owner that was not reached only", got)
		}
	})
}

// dead: the leader has marked the victim.
func (l *lost) dead() {
	p := l.p
	testutil.Eventually(p, clusterPatience, func() bool {
		for _, m := range p.members(l.s) {
			if m.ID == l.victim.ID {
				return m.Status == "dead"
			}
		}
		return false
	}, "the victim to be marked dead")
	down := func(line string) func(p *probe) {
		return func(p *probe) {
			p.ask(l.s, line, "").is(503, textOwnerDown).has("Retry-After", "1").within(time.Second)
		}
	}
	p.show("C-13", down(l.pinned("&wait=5s")))
	p.show("E-OWN1", down(l.pinned("")))
	p.show("R-7", down(l.pinned("&offset=0")))
	p.show("A-7", down(l.ack(l.lease())))
	p.show("AB-8", func(p *probe) {
		got := p.settleAll(l.s, l.topic, "", l.lease(), l.kept.Handle, "0:0:1")
		if got[0] != (settled{503, textOwnerDown}) || got[1].Status != 204 || l.gone != 0 && got[2].Status != 410 {
			p.Errorf("%+v", got)
		}
	})
	p.show("TG-2", func(p *probe) { l.liveness(p, "dead") })
	p.show("P-15", func(p *probe) { p.produce(l.s, l.topic, fmt.Sprint("?partition=", l.gone), "1") })
	p.show("C-18", l.fromOthers)
}

// leaderless: only the asked node is left.
func (l *lost) leaderless() {
	p := l.p
	for _, n := range l.nodes {
		if n != l.asked {
			n.Kill()
		}
	}
	const notReady = "metastore: node is not ready: no raft leader known"
	p.show("H-6", func(p *probe) {
		p.eventually(func() bool { return p.ask(l.s, "GET /readyz", "").status == 503 }, "/readyz to turn")
		p.ask(l.s, "GET /readyz", "").is(503, notReady)
		p.ask(l.s, "GET /healthz", "").is(200, "")
	})
	p.show("RT-5", func(p *probe) {
		for _, line := range []string{
			"GET /v1/topics", "GET /v1/topics/" + l.topic, "GET /v1/topics/" + l.topic + "/schema", childrenLine("GET", l.parent),
			"GET /v1/users", "GET /v1/cluster/members",
		} {
			p.ask(l.s, line, "").is(200, "")
		}
	})
	refused := func(lines ...string) func(p *probe) {
		return func(p *probe) {
			for _, l2 := range lines {
				line, body, _ := strings.Cut(l2, " {")
				if body != "" {
					body = "{" + body
				}
				p.ask(l.s, line, body).is(503, textUnavailable).within(12 * time.Second)
			}
		}
	}
	p.show("E-CP1", refused(`PATCH /v1/topics/`+l.topic+` {"retention_ms":7200000}`))
	p.show("RT-6", refused(`PATCH /v1/topics/`+l.topic+` {"partitions":9}`, `PATCH /v1/topics/`+l.topic+` {"schema":true}`))
	p.show("TD-17", refused("DELETE /v1/topics/"+l.topic, "DELETE /v1/topics/missing"))
	p.show("TC-15", refused(`POST /v1/topics {"name":"x"}`, fmt.Sprintf(`POST /v1/topics {"name":"x","parent":%q}`, l.parent)))
	p.show("AC-10", refused(fmt.Sprintf(`%s {"child":%q}`, childrenLine("POST", l.single), l.single2)))
	p.show("DC-15", refused(childrenLine("DELETE", l.parent)+"/"+l.child))
	p.show("U-17", refused(`POST /v1/users {"username":"u","password":"p"}`, `PUT /v1/users/u/grants {"grants":[]}`, `DELETE /v1/users/u`))
	p.show("F-9", refused("POST /v1/cluster/members/nobody/forget"))
	for _, id := range []string{"RT-1", "P-15"} {
		p.show(id, func(p *probe) {
			p.produce(l.s, l.topic, "", "1")
			p.produce(l.s, l.topic, fmt.Sprint("?partition=", l.gone), "1")
		})
	}
	p.show("C-19", func(p *probe) {
		if a := p.ask(l.s, "GET /v1/topics/"+l.topic+"/consume?wait=2s", "").is(204, ""); a.took < 2*time.Second {
			a.fatalf("after %v, want the whole wait", a.took)
		}
	})
}

// started: the asked node starts, and nobody is there to catch up with.
func (l *lost) started() {
	p := l.p
	l.asked.Kill()
	l.launch(l.asked)
	p.eventually(func() bool { return p.ask(l.s, "GET /v1/topics", "").status == 200 }, "the routes to open")
	p.show("RT-7", func(p *probe) {
		for _, line := range []string{
			"GET /v1/topics/" + l.topic + "/consume?wait=5s", l.pinned("&wait=5s"), l.pinned("&offset=0"), l.ack(l.lease()),
		} {
			p.ask(l.s, line, "").is(503, textUnavailable).within(2 * time.Second)
		}
	})
	p.show("TG-6", func(p *probe) { p.ask(l.s, "GET /v1/topics/"+l.topic, "").is(503, textUnavailable) })
	p.show("P-15", func(p *probe) { p.produce(l.s, l.topic, "", "1") })
}
