package cluster

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// cutFor is longer than a request between nodes waits for its answer to be resent.
const cutFor = 5 * time.Second

// O7: what one node sends to another is lost for a while, so that commits of a slab
// arrive whose answers do not; and then the other way round, so that no commit arrives.
// The children end up whole and in order, and what is repeated is the slab in flight of
// each cursor and cut.
func TestO7FanoutThroughDirectedCuts(t *testing.T) {
	needCuts(t)
	c := form(t, 3, fmt.Sprint("NARAD_FANOUT_MAX_BATCH_RECORDS=", killSlab), "NARAD_FANOUT_LINGER_MS=1")
	c.family(client.CreateTopic{Name: "p", Partitions: killParts},
		client.CreateTopic{Name: "same", Partitions: killParts},
		client.CreateTopic{Name: "late", Partitions: 4, FanoutDelayMS: killDelay.Milliseconds()})
	s := c.stream("p", 20*time.Millisecond, 0)
	s.flows("before", 100)
	cuts := 0
	for range rounds(1, 4) {
		followers := c.followers()
		a, b := followers[0], followers[1]
		for _, dir := range [][2]*node{{a, b}, {b, a}} {
			mend := c.cut(dir[0], dir[1], allPlanes)
			cuts++
			for end := time.Now().Add(cutFor); time.Now().Before(end); {
				s.flows("cut", 50)
			}
			mend()
			s.flows("mended", 50)
		}
	}
	s.end()
	c.dispatched("p", s.accepted)
	c.settled("p", "same", "late")
	parent := c.living()[0].contentsOf("p")
	t.Logf("%d cuts, %d accepted, %d in the parent", cuts, s.count(), len(parent))
	judgeCopy(t, "same", parent, c.living()[1].contentsOf("same"), 0, cuts*killParts*killSlab)
	judgeCopy(t, "late", parent, c.living()[2].contentsOf("late"), killDelay, cuts*killParts*killSlab)
}

// Cursors that have begun need no leader: with all Raft traffic cut off, so that there is none,
// what is produced through any node reaches the children, a delay child as well.
func TestFanoutGoesOnWithoutALeader(t *testing.T) {
	needCuts(t)
	c := form(t, 3)
	c.family(client.CreateTopic{Name: "p", Partitions: killParts},
		client.CreateTopic{Name: "same", Partitions: killParts},
		client.CreateTopic{Name: "late", Partitions: 4, FanoutDelayMS: killDelay.Milliseconds()})
	s := c.stream("p", 20*time.Millisecond, 0)
	s.flows("before", 100)
	for p, owner := range c.owners("p") { // to begin a cursor needs the leader's word
		for _, child := range []string{"same", "late"} {
			testutil.Eventually(t, patience, func() bool {
				_, err := os.Stat(cursorFile(owner, p, child))
				return err == nil
			}, "every cursor to have begun")
		}
	}
	var mends []func()
	for _, n := range c.initial {
		for _, m := range c.initial {
			if m != n {
				mends = append(mends, c.cut(n, m, raftPlane))
			}
		}
	}
	testutil.Eventually(t, patience, func() bool {
		for _, n := range c.initial {
			if n.isReady() {
				return false
			}
		}
		return true
	}, "every node to miss the leader")
	s.flows("without a leader", 200)
	s.end()
	c.dispatched("p", s.accepted)
	for _, n := range c.initial {
		n.caughtUp("p", "same")
		n.caughtUp("p", "late")
		if n.isReady() {
			t.Errorf("%s has found a leader: the run proves nothing", n.ID)
		}
	}
	parent := c.initial[0].contentsOf("p")
	judgeCopy(t, "same", parent, c.initial[1].contentsOf("same"), 0, 0)
	judgeCopy(t, "late", parent, c.initial[2].contentsOf("late"), killDelay, 0)
	all(mends)()
	c.ready(c.initial...)
}
