package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// lasting is how long a cut stays: longer than elections, retries and the pause after
// which a message goes to another partition than the one cut off.
const lasting = 5 * time.Second

// F34 F35 with O1 O2 O3 O8 O11: links of a cluster of three are cut under load, whole
// nodes off, one direction, one plane, a bridge, and freed in another order. The nodes
// that are up accept messages throughout, a node without a quorum refuses metadata
// writes, and after the cuts everything is delivered.
func TestCuts(t *testing.T) {
	needCuts(t)
	c := form(t, 3)
	l := c.newLoad("orders", 6)
	l.run(c.initial...)
	l.step("a follower cut off", func() {
		n := c.followers()[0]
		mend := c.isolate(n)
		l.through("follower cut off")
		l.rest(lasting)
		c.refusesChanges(n)
		mend()
	})
	l.step("the leader cut off", func() {
		n := c.leader()
		mend := c.isolate(n)
		took := c.writes("without-the-old-leader")
		l.through("leader cut off")
		c.refusesChanges(n)
		mend()
		t.Logf("metadata writes after %v", took)
	})
	l.step("one direction", func() {
		leader, follower := c.leader(), c.followers()[0]
		follower.setUp(false)
		mend := c.cut(leader, follower, allPlanes)
		l.through("leader's packets to a follower lost")
		l.rest(lasting)
		mend()
		c.ready(follower)
	})
	l.step("node calls only, one direction", func() {
		a, b := c.initial[0], c.initial[1]
		mend := c.cut(a, b, rpcPlane)
		l.rest(lasting)
		l.through("node calls lost")
		mend()
	})
	l.step("a bridge", func() { // two nodes see each other only through the third
		leader := c.leader()
		a := c.followers()[0]
		leader.setUp(false)
		a.setUp(false) // whichever of the two the third does not follow is not ready
		mends := all([]func(){c.cut(leader, a, allPlanes), c.cut(a, leader, allPlanes)})
		c.writes("over-a-bridge")
		l.rest(lasting)
		l.through("over a bridge")
		mends()
		c.ready(leader, a)
		l.through("bridge")
	})
	l.step("stopped one by one, freed in another order", func() {
		for range rounds(1, 5) {
			l.swizzle()
		}
	})
	c.agree()
}

// swizzle cuts every link by itself, in a random order, and frees them in another.
func (l *load) swizzle() {
	c := l.c
	var links [][2]*node
	for _, a := range c.nodes {
		a.setUp(false)
		for _, b := range c.nodes {
			if a != b {
				links = append(links, [2]*node{a, b})
			}
		}
	}
	mends := make([]func(), len(links))
	for _, i := range c.rng.Perm(len(links)) {
		mends[i] = c.cut(links[i][0], links[i][1], allPlanes)
		l.rest(time.Duration(c.rng.IntN(500)) * time.Millisecond)
	}
	for _, i := range c.rng.Perm(len(links)) {
		mends[i]()
		l.rest(time.Duration(c.rng.IntN(500)) * time.Millisecond)
	}
	c.ready(c.nodes...)
	l.through("links freed")
}

// refusesChanges waits until a node that is cut off refuses a metadata write, with 503,
// and says that it is not ready.
func (c *cluster) refusesChanges(n *node) {
	c.t.Helper()
	testutil.Eventually(c.t, patience, func() bool { return !n.isReady() }, n.ID+" to see that it is cut off")
	cl := n.client()
	testutil.Eventually(c.t, patience, func() bool {
		_, err := cl.CreateTopic(c.t.Context(), client.CreateTopic{Name: "on-the-minority"})
		var refused *client.Error
		return errors.As(err, &refused) && refused.Status == 503
	}, n.ID+" to refuse a metadata write with 503")
}

// F29 F30 with O1 O3 O8: a node is paused longer than elections, leases and heartbeats
// take, the leader as well as a follower, and goes on. A paused leader finds another in
// its place and changes nothing on its own.
func TestPaused(t *testing.T) {
	c := form(t, 3)
	l := c.newLoad("orders", 6)
	l.run(c.initial...)
	l.step("a follower paused", func() {
		resume := c.pause(c.followers()[0])
		l.through("follower paused")
		l.rest(visibility)
		resume()
	})
	l.step("the leader paused", func() {
		old := c.leader()
		resume := c.pause(old)
		took := c.writes("without-the-paused")
		l.through("leader paused")
		l.rest(visibility)
		resume()
		t.Logf("metadata writes after %v", took)
	})
	c.agree()
}
