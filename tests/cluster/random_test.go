package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
)

// harm does something to a node under load and returns what undoes it.
type harm struct {
	name string
	do   func(c *cluster, n *node) (undo func())
}

// harms are what may befall a node.
func harms() []harm {
	out := []harm{
		{"killed", func(c *cluster, n *node) func() {
			over := c.kill(n)
			return func() { c.revive(over, n) }
		}},
		{"stopped", func(c *cluster, n *node) func() {
			over := c.stop(n)
			return func() { c.revive(over, n) }
		}},
		{"paused", (*cluster).pause},
	}
	if inside() {
		out = append(out,
			harm{"cut off", (*cluster).isolate},
			harm{"not heard", func(c *cluster, n *node) func() { return c.oneWay(n, true, allPlanes) }},
			harm{"deaf", func(c *cluster, n *node) func() { return c.oneWay(n, false, allPlanes) }},
			harm{"without calls to others", func(c *cluster, n *node) func() { return c.oneWay(n, true, rpcPlane) }},
			harm{"without raft to others", func(c *cluster, n *node) func() { return c.oneWay(n, true, raftPlane) }},
		)
	}
	return out
}

// oneWay cuts a node's links to all others, or all others' links to it.
func (c *cluster) oneWay(n *node, from bool, p plane) (undo func()) {
	c.t.Helper()
	n.setUp(false)
	var mends []func()
	for _, m := range c.nodes {
		switch {
		case m == n:
		case from:
			mends = append(mends, c.cut(n, m, p))
		default:
			mends = append(mends, c.cut(m, n, p))
		}
	}
	return func() {
		c.t.Helper()
		all(mends)()
		c.ready(n)
	}
}

// Whatever befalls two of five nodes at a time, in whatever order it begins and ends,
// nothing is lost, invented, or delivered again after its ack; the other three accept
// messages and change metadata all the while. F34 F35 F39 with O1 O2 O3 O4 O5 O8 O11.
func TestRandomFaultsOnTwoOfFive(t *testing.T) {
	c := form(t, 5)
	l := c.newLoad("orders", 10, client.CreateTopic{Name: "orders-copy"})
	l.run(c.initial...)
	kinds := harms()
	for round := range rounds(4, 60) {
		var undo []func()
		name := fmt.Sprintf("round %d:", round)
		for _, i := range c.rng.Perm(len(c.initial))[:1+c.rng.IntN(2)] {
			n, h := c.initial[i], kinds[c.rng.IntN(len(kinds))]
			name += fmt.Sprintf(" %s %s", n.ID, h.name)
			undo = append(undo, h.do(c, n))
			l.rest(time.Duration(c.rng.IntN(2000)) * time.Millisecond)
		}
		l.step(name, func() {
			l.through(name)
			took := c.writes(fmt.Sprintf("in-round-%d", round))
			l.rest(time.Duration(c.rng.IntN(5000)) * time.Millisecond)
			l.through(name)
			t.Logf("%s: metadata writes after %v", name, took.Round(time.Millisecond))
			for _, i := range c.rng.Perm(len(undo)) {
				undo[i]()
			}
		})
	}
	c.agree()
}
