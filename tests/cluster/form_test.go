package cluster

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// one checks that the nodes are one cluster: one of them leads, all see a leader and
// count the same voters, and what is written through any is known to all.
func (c *cluster) one(voters int) {
	c.t.Helper()
	leaders := 0
	for _, n := range c.living() {
		if v, _ := n.metric(`narad_raft_state{state="leader"}`); v == 1 {
			leaders++
		}
		testutil.Eventually(c.t, patience, func() bool {
			v, _ := n.metric("narad_raft_voters")
			return int(v) == voters
		}, fmt.Sprintf("%s to count %d voters", n.ID, voters))
	}
	if leaders != 1 {
		c.t.Errorf("%d nodes lead", leaders)
	}
	for _, n := range c.living() {
		name := fmt.Sprintf("by-%s-%d", n.ID, time.Now().UnixNano())
		if _, err := n.client().CreateTopic(c.t.Context(), client.CreateTopic{Name: name}); err != nil {
			c.t.Fatalf("create through %s: %v", n.ID, err)
		}
	}
	c.agree()
}

// scattered starts nodes in a random order, at random moments.
func (c *cluster) scattered(nodes ...*node) {
	c.t.Helper()
	order := slices.Clone(nodes)
	c.rng.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
	names := ""
	for _, n := range order {
		names += " " + n.ID
		c.launch(n)
		<-time.After(time.Duration(c.rng.IntN(3_000)) * time.Millisecond)
	}
	c.t.Logf("started in the order%s", names)
	c.ready(nodes...)
}

// wipe empties a node's volume.
func (c *cluster) wipe(n *node) {
	c.t.Helper()
	if err := os.RemoveAll(n.Dir); err != nil {
		c.t.Fatal(err)
	}
}

// F9 F10 with O11: whatever the order in which initial members start, with empty
// volumes, with their old ones, or one of them wiped, alone or beside the others, there
// is one cluster, and it knows what it knew.
func TestF9AnyOrderOfStartsIsOneCluster(t *testing.T) {
	c := newCluster(t, 3)
	c.scattered(c.initial...)
	c.one(3)
	first, err := c.leader().client().CreateTopic(t.Context(), client.CreateTopic{Name: "first"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range rounds(3, 30) {
		switch i % 3 {
		case 0: // all with their old volumes
			c.kill(c.initial...)
			c.scattered(c.initial...)
		case 1: // one loses its volume while the others run
			n := c.initial[c.rng.IntN(3)]
			c.kill(n)
			c.wipe(n)
			c.start(n)
		case 2: // one loses its volume while all are down
			c.agree() // each of the others has everything
			n := c.initial[c.rng.IntN(3)]
			c.kill(c.initial...)
			c.wipe(n)
			c.scattered(c.initial...)
		}
		c.one(3)
		for _, n := range c.initial {
			if d, err := n.client().DescribeTopic(t.Context(), first.Name); err != nil || d.ID != first.ID {
				t.Fatalf("round %d: %s knows the first topic as %q, %v; want %q", i, n.ID, d.ID, err, first.ID)
			}
		}
	}
}

// A node that is no initial member never forms a cluster: alone it waits, and joins
// once there is one to join.
func TestJoinerAloneWaits(t *testing.T) {
	c := newCluster(t, 3)
	n := c.add()
	c.launch(n)
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); {
		if n.isReady() {
			t.Fatal("a node that may not form a cluster is ready alone")
		}
		if v, _ := n.metric("narad_raft_has_leader"); v != 0 {
			t.Fatal("a node that may not form a cluster has a leader alone")
		}
		<-time.After(200 * time.Millisecond)
	}
	c.start(c.initial...)
	c.ready(n)
	testutil.Eventually(t, patience, func() bool { return c.voters() == 4 }, "the joiner to become a voter")
	c.one(4)
}

// noQuorum is how long a metadata write takes at most while there is a quorum, on a
// machine so busy that elections are held without a need.
const noQuorum = 15 * time.Second

// staged is how long an unreachable joiner is watched: longer than a leader takes to
// judge it.
const staged = 16 * time.Second

// A joiner that no voter can reach, admitted while one of three voters is down, costs no
// quorum: metadata can be written all the time, and it never becomes a voter.
func TestUnreachableJoinerCostsNoQuorum(t *testing.T) {
	c := form(t, 3)
	down := c.followers()[0]
	over := c.kill(down)
	n := c.add()
	nobody := n.addr[:len(n.addr)-1] + "9" // an address of no node
	n.own = []string{"NARAD_CLUSTER_ADVERTISE_ADDR=" + nobody + ":" + raftPort}
	c.launch(n)
	testutil.Eventually(t, patience, func() bool {
		v, _ := c.leader().metric("narad_raft_nonvoters")
		return v == 1
	}, "the joiner to be admitted as a non-voter")
	writes := 0
	for end := time.Now().Add(staged); time.Now().Before(end); writes++ {
		if took := c.writes(fmt.Sprintf("beside-%d", writes)); took > noQuorum {
			t.Errorf("a metadata write took %v beside an unreachable joiner", took)
		}
		if v := c.voters(); v != 3 {
			t.Fatalf("%d voters, want 3", v)
		}
		if n.isReady() {
			t.Fatal("the unreachable joiner is ready")
		}
		<-time.After(500 * time.Millisecond)
	}
	t.Logf("%d metadata writes in %v", writes, staged)
	c.kill(n)
	c.revive(over, down)
	if v := c.voters(); v != 3 {
		t.Errorf("%d voters, want 3", v)
	}
}

// A secured cluster: the first admin, users and their grants are known to every node,
// whichever took the call; a node with another secret is never admitted, and costs the
// cluster nothing.
func TestSecuredClusterAndAWrongSecret(t *testing.T) {
	const password = "the first admin's password"
	c := newCluster(t, 3, "NARAD_SECURITY_ENABLED=true", "NARAD_SECURITY_ALLOW_PLAINTEXT_RAFT=true",
		"NARAD_HTTP_METRICS_UNAUTHENTICATED=true", "NARAD_ADMIN_PASSWORD="+password)
	c.opts = []client.Option{client.WithBasicAuth("admin", password)}
	c.start(c.initial...)
	for _, n := range c.initial { // the leader seeds the admin a moment after it was elected
		cl := n.client()
		testutil.Eventually(t, patience, func() bool {
			for _, err := range cl.Topics(t.Context()) {
				return err == nil
			}
			return true
		}, n.ID+" to know the first admin")
	}
	l := c.newLoad("orders", 6)
	l.run(c.initial...)
	l.through("secured")
	n := c.add()
	n.own = []string{"NARAD_CLUSTER_SECRET=another secret"}
	c.launch(n)
	for end := time.Now().Add(staged); time.Now().Before(end); {
		if n.isReady() {
			t.Fatal("a node with another secret is ready")
		}
		if v, _ := c.leader().metric("narad_raft_nonvoters"); v != 0 || c.voters() != 3 {
			t.Fatal("a node with another secret was admitted")
		}
		<-time.After(500 * time.Millisecond)
	}
	if !slices.ContainsFunc(c.initial, func(m *node) bool { return m.Logged("cluster stream rejected: invalid auth") }) {
		t.Error("no member says that somebody showed another secret")
	}
	if !n.Logged("cluster join rejected", "invalid auth") {
		t.Error("the node does not say that its secret is refused")
	}
	l.drain()
	c.one(3)
}
