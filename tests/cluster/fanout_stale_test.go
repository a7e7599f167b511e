package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// staleDelay is the delay of the child whose backlog is at stake.
const staleDelay = 6 * time.Second

// staleLink is a cluster whose metadata says of two children something else than it did:
// they were detached, messages came, and they were attached again.
type staleLink struct {
	c      *cluster
	victim *node
	old    string   // copy of the victim's metadata of the first attachment
	share  contents // what belongs to the children of it: nothing of the time between

	produced int64    // messages
	accepted []string // of them, their payloads
}

// staleEnv makes slabs small, so that what a kill repeats is little.
func staleEnv() []string {
	return append([]string{fmt.Sprint("NARAD_FANOUT_MAX_BATCH_RECORDS=", killSlab)}, snapshots...)
}

// newStaleLink has a backlog in the delay child when it returns, and positions of both
// children on every node.
func newStaleLink(t *testing.T) *staleLink {
	c := form(t, 3, staleEnv()...)
	s := &staleLink{c: c, victim: c.initial[2]}
	c.family(client.CreateTopic{Name: "p", Partitions: killParts},
		client.CreateTopic{Name: "copy", Partitions: killParts},
		client.CreateTopic{Name: "late", Partitions: killParts, FanoutDelayMS: staleDelay.Milliseconds()})
	s.load(400)
	first := c.dispatched("p", s.accepted)
	c.settled("p", "copy", "late")
	over := c.stop(s.victim)
	s.old = c.copyOf(s.victim)
	s.victim.own = []string{"NARAD_CLUSTER_RAFT_SNAPSHOT_THRESHOLD=1000000"} // from here on it keeps its log
	c.revive(over, s.victim)

	cl := c.leader().client()
	for _, child := range []string{"copy", "late"} {
		if err := cl.Detach(t.Context(), "p", child); err != nil {
			t.Fatal(err)
		}
	}
	c.agree()
	s.load(400)
	between := c.dispatched("p", s.accepted)
	for child, delay := range map[string]time.Duration{"copy": 0, "late": staleDelay} {
		if _, err := cl.Attach(t.Context(), "p", child, delay); err != nil {
			t.Fatal(err)
		}
	}
	c.manyTopics(rounds(60, 400))
	c.agree()
	s.load(400)
	all := c.dispatched("p", s.accepted)
	s.share = append(first, since(all, between)...)
	testutil.Eventually(t, patience, func() bool { return s.placed("copy") && s.placed("late") }, "a position of this attachment in every cursor file")
	return s
}

// placed reports whether every cursor of a child has a file of the live attachment.
func (s *staleLink) placed(child string) bool {
	d, err := s.c.leader().client().DescribeTopic(s.c.t.Context(), child)
	if err != nil {
		return false
	}
	for p, owner := range s.c.owners("p") {
		b, err := os.ReadFile(cursorFile(owner, p, child))
		if err != nil || !bytes.Contains(b, []byte(d.AttachEpoch)) {
			return false
		}
	}
	return true
}

// load produces so many more messages through all nodes.
func (s *staleLink) load(n int) {
	next := s.c.stream("p", 5*time.Millisecond, s.produced)
	testutil.Eventually(s.c.t, patience, func() bool { return next.count() >= n }, "the load")
	next.end()
	s.produced = next.next.Load()
	s.accepted = append(s.accepted, next.accepted...)
}

// positions are the victim's cursor files.
func (s *staleLink) positions() map[string][]byte {
	s.c.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.victim.Dir, "topics", "p", "p*", "fanout-*.offset"))
	if err != nil {
		s.c.t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, f := range files {
		if out[f], err = os.ReadFile(f); err != nil {
			s.c.t.Fatal(err)
		}
	}
	return out
}

// unmoved checks that nobody wrote or removed a position of the victim.
func (s *staleLink) unmoved(want map[string][]byte, why string) {
	s.c.t.Helper()
	is := s.positions()
	for f, b := range want {
		if !bytes.Equal(is[f], b) {
			s.c.t.Errorf("%s: %s was %.70q and is %.70q", why, f, b, is[f])
		}
	}
}

// judge waits for the children and holds them to their share: a gap is what a bad start
// skipped, something else is what was between the attachments.
func (s *staleLink) judge(kills int) {
	c := s.c
	c.t.Helper()
	c.settled("p", c.attached("p")...)
	judgeCopy(c.t, "copy", s.share, c.initial[0].contentsOf("copy"), 0, kills*killParts*killSlab)
	judgeCopy(c.t, "late", s.share, c.initial[1].contentsOf("late"), staleDelay, kills*killParts*killSlab)
}

// anchored is how often cursors began anywhere but where their files say.
func (c *cluster) anchored() (n int) {
	for _, m := range c.initial {
		n += len(m.LogLines("fanout: cursor anchored"))
	}
	return n
}

// resumed checks that all cursors went on from their files: every one had a file of the
// live attachment.
func (s *staleLink) resumed(before int) {
	s.c.t.Helper()
	if n := s.c.anchored() - before; n != 0 {
		s.c.t.Errorf("%d cursors gave up positions that hold", n)
	}
}

// attached are a parent's children in their order.
func (c *cluster) attached(parent string) (names []string) {
	c.t.Helper()
	d, err := c.living()[0].client().DescribeTopic(c.t.Context(), parent)
	if err != nil {
		c.t.Fatal(err)
	}
	return d.Children
}

// Kill 2 of the crash recovery bugs with O7: all nodes are killed while a delay child has
// a backlog, and one comes back, alone at first, with metadata that names the attachment
// before. It moves no position; nothing is skipped, and what came between the two
// attachments does not reach the children.
func TestO7OldEpochMovesNoPosition(t *testing.T) {
	s := newStaleLink(t)
	c := s.c
	anchors := c.anchored()
	over := c.kill(c.initial...)
	files := s.positions()
	c.putBack(s.victim, s.old)
	c.launch(s.victim)
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		s.unmoved(files, "alone")
		if s.victim.isReady() || t.Failed() {
			t.Fatal("a node with old metadata and without a leader acts on it")
		}
		<-time.After(100 * time.Millisecond)
	}
	c.launch(c.initial[:2]...)
	c.ready(c.initial...)
	over()
	s.judge(3)
	s.resumed(anchors)
}

// slowReplay delays what a node writes to its state machine and its log, so that there is
// time to act on what they hold before they are whole.
const slowReplay = "inject=fdatasync:delay_enter=300000" // microseconds

// Kill 3 of the crash recovery bugs with O7: all nodes are killed, and the one that wins
// the election has the whole log and a state machine from before it, with the attachment
// of then. It confirms no epoch before its barrier: nothing is skipped, nothing older than
// the attachment comes.
func TestO7LeaderBehindItsLogMovesNoPosition(t *testing.T) {
	needCuts(t)
	testutil.NeedStrace(t)
	s := newStaleLink(t)
	c := s.c
	led := 0
	wrap := s.victim.Wrap
	for kills := 3; kills <= 3*rounds(1, 6); kills += 3 {
		anchors := c.anchored()
		over := c.kill(c.initial...)
		c.ageState(s.victim, s.old)
		mend := c.cut(c.initial[1], s.victim, raftPlane) // it can vote, and not ask for votes
		s.victim.Wrap = append(wrap[:len(wrap):len(wrap)], testutil.Straced("/dev/null", "-e", "trace=fdatasync", "-e", slowReplay)...)
		c.launch(s.victim, c.initial[1])
		s.victim.Wrap = wrap
		c.ready(s.victim)
		if c.leader() == s.victim {
			led++
		}
		mend()
		c.ready(c.initial[1])
		c.start(c.initial[0])
		over()
		s.judge(kills)
		s.resumed(anchors)
	}
	if led == 0 {
		t.Error("the node with the old state never led: the run proves nothing")
	}
}

// ageState makes a stopped node's state machine an old one; its log stays what it is.
func (c *cluster) ageState(n *node, old string) {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(old, "fsm.db"))
	if err == nil {
		err = os.WriteFile(filepath.Join(metastore(n), "fsm.db"), b, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
