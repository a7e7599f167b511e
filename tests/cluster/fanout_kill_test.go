package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
)

// The run under kills.
const (
	killSlab  = 40 // records of a slab: what one kill may repeat, per cursor
	killParts = 6  // of the parent
	moreParts = 9  // of the parent that grows
	killDelay = 2 * time.Second
)

// O7 with O1 O2: owners of parent partitions, owners of child partitions, the leader,
// two nodes at once and then all are killed while a parent with two children and a delay
// child takes load from every node. No child has a gap or anything else than its parent;
// what is repeated is at most the slab in flight of each cursor and kill; records of one
// key keep their order, and none reaches the delay child early.
func TestO7FanoutUnderKills(t *testing.T) {
	c := form(t, 3, fmt.Sprint("NARAD_FANOUT_MAX_BATCH_RECORDS=", killSlab), "NARAD_FANOUT_LINGER_MS=1")
	c.family(client.CreateTopic{Name: "p", Partitions: killParts},
		client.CreateTopic{Name: "same", Partitions: killParts},
		client.CreateTopic{Name: "narrow", Partitions: 4},
		client.CreateTopic{Name: "late", Partitions: killParts, FanoutDelayMS: killDelay.Milliseconds()})
	s := c.stream("p", 10*time.Millisecond, 0)
	s.flows("before", 100)
	kills := 0
	fall := func(why string, gone ...*node) {
		t.Helper()
		over := c.kill(gone...)
		kills += len(gone)
		if len(c.living()) > 0 {
			s.flows(why, 50+c.rng.IntN(200))
		}
		c.revive(over, gone...)
		s.flows("after "+why, 50+c.rng.IntN(200))
	}
	for range rounds(1, 6) {
		fall("owner of a parent partition killed", c.owners("p")[c.rng.IntN(killParts)])
		fall("owner of a child partition killed", c.owners("narrow")[c.rng.IntN(4)])
		fall("leader killed", c.leader())
		spared := c.initial[c.rng.IntN(3)]
		fall("two of three killed", slices.DeleteFunc(slices.Clone(c.initial), func(n *node) bool { return n == spared })...)
		fall("all killed", c.initial...)
	}
	s.end()
	c.dispatched("p", s.accepted)
	c.settled("p", "same", "narrow", "late")
	parent := c.living()[0].contentsOf("p")
	t.Logf("%d kills, %d accepted, %d in the parent", kills, s.count(), len(parent))
	// A slab is repeated when its cursor dies, and when the owner it was sent to does.
	most := kills * killParts * killSlab
	for _, child := range []string{"same", "narrow"} {
		judgeCopy(t, child, parent, c.living()[1].contentsOf(child), 0, most)
	}
	judgeCopy(t, "late", parent, c.living()[2].contentsOf("late"), killDelay, most)
	if s.count() < 1000 {
		t.Errorf("only %d messages were accepted: the run proves little", s.count())
	}
}

// O7: parent and child get more partitions under load, and nodes are killed right after.
// A partition made later is copied from its first record, a slab goes where the child's
// partitions are by then, and no child has a gap.
func TestO7FanoutWhileGrowing(t *testing.T) {
	c := form(t, 3, fmt.Sprint("NARAD_FANOUT_MAX_BATCH_RECORDS=", killSlab))
	c.family(client.CreateTopic{Name: "p", Partitions: killParts},
		client.CreateTopic{Name: "same", Partitions: killParts},
		client.CreateTopic{Name: "grown", Partitions: 4})
	s := c.stream("p", 10*time.Millisecond, 0)
	s.flows("before", 100)
	grow := func(topic string, to int) {
		t.Helper()
		if _, err := c.followers()[0].client().AlterTopic(t.Context(), topic, client.AlterTopic{Partitions: &to}); err != nil {
			t.Fatal(err)
		}
	}
	grow("p", moreParts)
	s.flows("the parent has grown", 100)
	grow("grown", 7)
	gone := c.owners("p")[moreParts-1]
	over := c.kill(gone)
	s.flows("killed", 100)
	c.revive(over, gone)
	s.flows("after", 100)
	s.end()
	c.dispatched("p", s.accepted)
	c.settled("p", "same", "grown")
	parent := c.living()[0].contentsOf("p")
	for p := killParts; p < moreParts; p++ {
		if len(parent.part(p)) == 0 {
			t.Errorf("partition %d got nothing: the run proves nothing", p)
		}
	}
	judgeCopy(t, "same", parent, c.living()[1].contentsOf("same"), 0, moreParts*killSlab)
	judgeSet(t, "grown", parent, c.living()[2].contentsOf("grown"), moreParts*killSlab) // keys moved on
}

// Nodes that are stopped in good order and started again, in turn and under load: slabs in
// flight are finished, so that a restart repeats little, and loses nothing (O7).
func TestO7FanoutRestartedInTurn(t *testing.T) {
	c := form(t, 3, fmt.Sprint("NARAD_FANOUT_MAX_BATCH_RECORDS=", killSlab), "NARAD_FANOUT_LINGER_MS=1")
	c.family(client.CreateTopic{Name: "p", Partitions: killParts},
		client.CreateTopic{Name: "same", Partitions: killParts},
		client.CreateTopic{Name: "late", Partitions: 4, FanoutDelayMS: killDelay.Milliseconds()})
	s := c.stream("p", 10*time.Millisecond, 0)
	s.flows("before", 100)
	stops := 0
	for range rounds(1, 4) {
		for _, n := range c.initial {
			over := c.stop(n)
			stops++
			s.flows("stopped", 50)
			c.revive(over, n)
			s.flows("restarted", 50)
		}
	}
	s.end()
	c.dispatched("p", s.accepted)
	c.settled("p", "same", "late")
	parent := c.living()[0].contentsOf("p")
	judgeCopy(t, "same", parent, c.living()[1].contentsOf("same"), 0, stops*killParts*killSlab)
	judgeCopy(t, "late", parent, c.living()[2].contentsOf("late"), killDelay, stops*killParts*killSlab)
}
