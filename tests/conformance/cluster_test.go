package conformance

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/testutil"
)

// Every node of a cluster has an address of its own, so all use the same ports.
const (
	clusterAPIPort  = "7942"
	clusterRaftPort = "7943"
	clusterSecret   = "a secret of the conformance suite only"
)

// clusterPatience is what one step of a cluster gets on a busy machine.
const clusterPatience = 60 * time.Second

// crews counts the clusters of this process.
var crews atomic.Int32

// crew is the nodes of one cluster.
type crew struct {
	p       *probe
	initial int // the first ones form the cluster; the others join
	nodes   []*testutil.Node
}

// newCrew prepares a cluster of size nodes, of which the first initial form it; none runs
// yet. env is added to the environment of every node. tb is what the nodes end with.
func (p *probe) newCrew(size, initial int, tb testing.TB, env ...string) *crew {
	p.Helper()
	c := &crew{p: p, initial: initial}
	number := crews.Add(1)
	addr := func(i int) string { return fmt.Sprintf("127.%d.%d.%d", 192+os.Getpid()%60, number, i+1) }
	var peers, ids []string
	for i := range size {
		ids = append(ids, fmt.Sprint("n", i+1))
		peers = append(peers, fmt.Sprintf("%s@%s:%s/%s", ids[i], addr(i), clusterRaftPort, clusterAPIPort))
	}
	dir := tb.TempDir()
	for i := range size {
		n := testutil.NewNode(tb, filepath.Join(dir, fmt.Sprint("n", i+1)))
		n.ID, n.Addr = fmt.Sprint("n", i+1), addr(i)+":"+clusterAPIPort
		n.URL = "http://" + n.Addr
		n.Env = append([]string{
			"NARAD_CLUSTER_ADDR=" + addr(i) + ":" + clusterRaftPort,
			"NARAD_CLUSTER_ADVERTISE_ADDR=" + addr(i) + ":" + clusterRaftPort,
			"NARAD_CLUSTER_PEERS=" + strings.Join(peers, ","),
			"NARAD_CLUSTER_INITIAL_MEMBERS=" + strings.Join(ids[:initial], ","),
			"NARAD_CLUSTER_SECRET=" + clusterSecret,
			"NARAD_SECURITY_ALLOW_INSECURE_CLUSTER=true",
			"NARAD_SECURITY_ALLOW_PLAINTEXT_RAFT=true",
		}, env...)
		c.nodes = append(c.nodes, n)
	}
	return c
}

// launch starts nodes; they may not be ready yet.
func (c *crew) launch(nodes ...*testutil.Node) {
	c.p.Helper()
	for _, n := range nodes {
		if !n.Launch() {
			c.p.Fatalf("%s exited with code %d: %s", n.ID, n.ExitCode(), n.LastWords())
		}
	}
}

// start starts nodes and waits until they are ready.
func (c *crew) start(nodes ...*testutil.Node) {
	c.p.Helper()
	c.launch(nodes...)
	for _, n := range nodes {
		testutil.Eventually(c.p, clusterPatience, n.Ready, n.ID+" to become ready")
	}
}

// member is an entry of GET /v1/cluster/members.
type member struct {
	ID, Status    string
	Voter, Leader bool
}

// members is the listing of one node.
func (p *probe) members(s *server) []member {
	p.Helper()
	var list struct{ Members []member }
	p.ask(s, "GET /v1/cluster/members", "").wants(200, &list)
	return list.Members
}

// listed waits until a node shows all these members alive.
func (p *probe) listed(s *server, ids ...string) {
	p.Helper()
	testutil.Eventually(p, clusterPatience, func() bool {
		members := p.members(s)
		return !slices.ContainsFunc(ids, func(id string) bool {
			return !slices.ContainsFunc(members, func(m member) bool { return m.ID == id && m.Status == "alive" })
		})
	}, fmt.Sprint(ids, " to be members"))
}

// Ballast: partitions that the bystander of formBystander owns before any check runs, so
// many that no later topic is placed on it.
const (
	ballastTopics     = 16
	ballastPartitions = 108
)

// formBystander is a node that owns no partition of the checks' topics and does not lead:
// everything it answers, it has from others. It is the second of four members, and no
// initial one; the first formed the cluster alone and leads. What a parent's only owner is
// kept off goes to the other member, which gives the bystander its ballast. A topic of more
// than three partitions has one on every member, the bystander too.
func (p *probe) formBystander(tb testing.TB, env ...string) *server {
	p.Helper()
	c := p.newCrew(4, 1, tb, env...)
	leader, bystander := c.nodes[0], c.nodes[1]
	as := func(n *testutil.Node) *server {
		if slices.Contains(env, secure()[0]) {
			return p.asRoot(n, rootPassword)
		}
		return reach(n)
	}
	c.start(leader)
	l := as(leader)
	create := func(name, rest string) {
		p.ask(l, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"partitions":%d%s}`, name, ballastPartitions, rest)).is(201, "")
	}
	create("ballast", "")
	c.start(bystander)
	p.listed(l, bystander.ID)
	for i := range ballastTopics {
		create(fmt.Sprint("ballast-", i), `,"parent":"ballast"`)
	}
	p.ask(l, "DELETE /v1/topics/ballast", "").is(204, "")
	c.start(c.nodes[2:]...)
	s := as(bystander)
	p.listed(s, "n1", "n2", "n3", "n4")
	p.listed(l, "n1", "n2", "n3", "n4")
	p.ask(l, "POST /v1/topics", `{"name":"ballast-for-all","partitions":4}`).is(201, "")
	for _, from := range []*server{l, s} { // each reaches each, after whatever failed while they started
		testutil.Eventually(p, clusterPatience, func() bool {
			a := p.ask(from, "GET /v1/topics/ballast-for-all", "")
			return a.status == 200 && !strings.Contains(a.body, `"partial"`)
		}, "all members to be reached")
	}
	s.mates = c.nodes
	return s
}

// moved reports, of a change that was refused and did nothing, that the leadership has moved
// since the cluster was formed: a busy machine does that, and then the change is to be
// asked for again.
func (s *server) moved(ctx context.Context, a *answer) bool {
	if s.mates == nil || a.status != 503 || !strings.Contains(a.body, `"control_plane_unavailable"`) {
		return false
	}
	for range 25 {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(200 * time.Millisecond):
		}
		elections := 0
		for _, n := range s.mates {
			elections += len(n.LogLines("starting election"))
		}
		if elections > 0 { // the one that formed it is not of this kind: the leader was alone
			return true
		}
	}
	return false
}

// aside fails a check whose node was no bystander after all.
func (p *probe) aside(s *server) {
	p.Helper()
	for _, m := range p.members(s) {
		if m.Leader && m.ID == s.node.ID {
			p.Errorf("%s, which the checks ask, leads", m.ID)
		}
	}
	names, _ := p.listAll(s)
	seen := 0
	for _, name := range names {
		if strings.HasPrefix(name, "ballast") {
			continue
		}
		var d struct {
			Partitions int
			Stats      []stats `json:"partition_stats"`
		}
		p.ask(s, "GET /v1/topics/"+name, "").wants(200, &d)
		for _, st := range d.Stats {
			if d.Partitions > 3 {
				break
			}
			if seen++; st.Owner == s.node.ID {
				p.Errorf("%s, which the checks ask, owns partition %d of %s", st.Owner, st.Index, name)
			}
		}
	}
	if seen == 0 && everything() {
		p.Error("no topic is left to look at")
	}
}

// scenario is checks that need a cluster in a state of its own: run takes one there, and
// shows each of the ids on the way.
type scenario struct {
	ids []string
	run func(p *probe)
}

// scenarios are all of them by name.
var scenarios = map[string]scenario{"lost": lostOwner, "unborn": unborn}

// clusterOnly are the ids that only a cluster shows.
func clusterOnly() map[string]check {
	all := maps.Clone(clusterChecks)
	for _, s := range scenarios {
		for _, id := range s.ids {
			all[id] = nil
		}
	}
	return all
}

// play runs a scenario.
func (s *suite) play(t *testing.T, name string) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		p := &probe{T: t, suite: s, id: name}
		scenarios[name].run(p)
		for _, id := range scenarios[name].ids {
			if everything() && s.result(id) == "" {
				t.Errorf("the scenario does not show %s", id)
			}
		}
	})
}

// everything reports that no test was picked by name.
func everything() bool { return flag.Lookup("test.run").Value.String() == "" }

// show runs one check of a scenario. What comes after it does not depend on it.
func (p *probe) show(id string, c check) {
	p.Helper()
	p.Run(id, func(t *testing.T) {
		q := &probe{T: t, suite: p.suite, id: id}
		t.Cleanup(q.record)
		c(q)
	})
}
