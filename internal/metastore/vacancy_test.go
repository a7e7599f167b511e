package metastore

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	narad "github.com/narad-mq/narad/internal/testutil"
)

func hasState(t *testing.T, dir string) bool {
	t.Helper()
	has, err := HasState(dir)
	must(t, err)
	return has
}

// A directory holds state from the first entry on, and not before: a term, a vote or
// half a snapshot is nothing to resume from.
func TestHasStateFromTheFirstEntryOn(t *testing.T) {
	c := newCluster(t, 3, nil)
	i := c.grow()
	dir := c.nodes[i].dir
	if hasState(t, dir) || hasState(t, filepath.Join(dir, "missing")) {
		t.Fatal("an empty directory holds state")
	}
	s := c.start(i, func(o *Options) { o.Join = true })
	if !s.Blank() {
		t.Error("a joiner nobody admitted is not blank")
	}
	c.kill(i)
	if hasState(t, dir) {
		t.Error("a joiner's directory holds state before it was admitted")
	}
	must(t, os.MkdirAll(filepath.Join(dir, snapshotsName, "1-1-1.tmp"), 0o750))
	if hasState(t, dir) {
		t.Error("half a snapshot is state")
	}
	s = c.start(i, func(o *Options) { o.Join = true })
	c.admit(i)
	if s.Blank() {
		t.Error("an admitted node is blank")
	}
	c.snapshotNow(i)
	c.kill(i)
	if !hasState(t, dir) {
		t.Error("an admitted node's directory holds no state")
	}
	must(t, os.Remove(filepath.Join(dir, raftName)))
	if !hasState(t, dir) {
		t.Error("a snapshot alone is no state")
	}
}

func TestRemovedUntilReadmitted(t *testing.T) {
	s := openStore(t, t.TempDir())
	removed := func() bool {
		yes, err := s.Removed("narad-7")
		must(t, err)
		return yes
	}
	mustPropose(t, s, RegisterMember{ID: "narad-7", Addr: "narad-7:7942"})
	if removed() {
		t.Error("a member counts as removed")
	}
	mustPropose(t, s, RemoveMember{ID: "narad-7"})
	if !removed() {
		t.Error("a removed member has no tombstone")
	}
	mustPropose(t, s, ReadmitMember{ID: "narad-7"})
	if removed() {
		t.Error("a readmitted id has a tombstone")
	}
}

// A server answers while its heartbeats are answered at the address on record, and for
// no more than 2 s after.
func TestAnswersOnlyRecentlyAndAtItsAddress(t *testing.T) {
	clk := clock.NewFake(time.Unix(1_000, 0))
	w := watchedTransport(clk)
	const a, b = raft.ServerAddress("a:1"), raft.ServerAddress("b:1")
	if w.answers("n", a) {
		t.Error("answers before any heartbeat")
	}
	w.heard("n", a, nil)
	if !w.answers("n", a) || w.answers("n", b) || w.answers("m", a) {
		t.Error("an answer counts for its server at its address, and for nothing else")
	}
	clk.Advance(heartbeatFresh - 1)
	if !w.answers("n", a) {
		t.Error("an answer is forgotten early")
	}
	w.heard("n", a, model.ErrUnavailable)
	clk.Advance(1)
	if w.answers("n", a) {
		t.Error("an answer counts for too long")
	}
	w.heard("n", a, nil)
	w.forget()
	if w.answers("n", a) {
		t.Error("an answer of an earlier term counts")
	}
}

func TestClusterAnswers(t *testing.T) {
	c := newCluster(t, 3, nil)
	lead, i := c.waitLeader(), c.follower()
	answers := func() bool {
		return c.nodes[lead].store.Answers(Server{ID: c.nodes[i].id, Addr: c.addr(i)})
	}
	narad.Eventually(t, clusterWait, answers, "the follower to answer")
	c.kill(i)
	narad.Eventually(t, clusterWait, func() bool { return !answers() }, "the dead follower to stop answering")
	must(t, c.nodes[lead].store.Barrier(context.Background()))
}
