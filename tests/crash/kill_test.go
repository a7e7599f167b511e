package crash

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
)

var (
	kills = flag.Int("kills", 6, "how often the node is killed")
	seed  = flag.Uint64("seed", 0, "seed of the kill times (0 = from the clock)")
)

// random is the source of a test's choices; its seed is in the log.
func random(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	return rand.New(rand.NewPCG(s, 2))
}

// F1 F2 F6 F8 with O1 O2 O3 O5: the node is killed again and again in the middle of a
// load; nothing that was answered 202 is lost, nothing is invented, and no ack older
// than the promised window is forgotten.
func TestF1KillLoopLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the real binary for many seconds")
	}
	rng := random(t)
	l := newLoad(t, t.TempDir())
	l.boot()
	l.create(client.CreateTopic{})
	l.run(6)
	for range *kills {
		// The kill falls at a random point of a load that is known to flow.
		l.flow(100 + rng.IntN(3000))
		l.crash()
		l.boot()
	}
	l.halt()
	l.drain()
	c := l.ledger.Counts()
	t.Logf("%d kills: %+v", *kills, c)
	if c.Accepted < *kills*50 {
		t.Errorf("only %d messages were accepted: the run proves little", c.Accepted)
	}
	if code := l.node.Stop(); code != 0 {
		t.Errorf("graceful stop: exit code %d, want 0", code)
	}
}
