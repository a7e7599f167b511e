package metastore

import (
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

// An answer counts from when its heartbeat was sent, for its server at its address, and
// in the term it came in.
func TestAnsweredSince(t *testing.T) {
	clk := clock.NewFake(time.Unix(1_000, 0))
	w := watchedTransport(clk)
	const a, b = raft.ServerAddress("a:1"), raft.ServerAddress("b:1")
	t0 := clk.Now()
	if w.answeredSince("n", a, t0) {
		t.Error("answered before any heartbeat")
	}
	w.heard("n", answer{t0, a}, nil)
	if !w.answeredSince("n", a, t0) || w.answeredSince("n", a, t0.Add(1)) {
		t.Error("want it to count until it was sent, and not after")
	}
	if w.answeredSince("n", b, t0) || w.answeredSince("m", a, t0) {
		t.Error("it counts for another address or server")
	}
	w.heard("n", answer{t0.Add(1), a}, model.ErrUnavailable)
	if !w.answeredSince("n", a, t0) || w.answeredSince("n", a, t0.Add(1)) {
		t.Error("a failure counts as an answer, or undoes one")
	}
	w.forget()
	if w.answeredSince("n", a, t0) {
		t.Error("an answer of an earlier term counts")
	}
}

func TestClusterAnswered(t *testing.T) {
	c := newCluster(t, 3, nil)
	lead, i := c.waitLeader(), c.follower()
	s := c.nodes[lead].store
	answered := func(since time.Time) bool {
		return s.Answered(Server{ID: c.nodes[i].id, Addr: c.addr(i)}, since)
	}
	since := s.clock.Now()
	narad.Eventually(t, clusterWait, func() bool { return answered(since) }, "the follower to answer")
	c.kill(i)
	since = s.clock.Now()
	narad.Eventually(t, clusterWait, func() bool { return s.HeartbeatFailing(c.nodes[i].id) != nil }, "heartbeats to fail")
	if answered(since) {
		t.Error("a dead follower answered")
	}
}
