package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
)

// cutFor is longer than a request between nodes waits for its answer to be resent.
const cutFor = 8 * time.Second

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
