package membership

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// All initial members start at once on empty volumes: one cluster of them all.
func TestInitialMembersFormOneCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 3)
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() { must(t, w.tryStart(i)) })
	}
	wg.Wait()
	w.settled(3)
	w.mark("one")
	for i := range 3 {
		w.eventually(func() bool { return w.marked(i, "one") }, w.nodes[i].id+" to have what the cluster has")
	}
}

// A node that is no initial member waits for the cluster, follows a follower's word to
// the leader, is staged, is ready once it has caught up, and then gets its vote.
func TestJoinerIsStagedThenPromoted(t *testing.T) {
	t.Parallel()
	w := formed(t, 4, 3)
	w.mark("before")
	lead := w.leader()
	for i := range 3 { // the joiner reaches followers only, until one names the leader
		if i == lead {
			w.cut(3, i, refused)
		}
	}
	staged := make(chan struct{})
	var once sync.Once
	w.start(3)
	if w.store(3).Ready() == nil {
		t.Error("ready before it was admitted")
	}
	w.eventually(func() bool { return w.logged(3, "cluster join attempt failed") > 0 }, "the hint to be followed")
	if got := w.suffrage(3); got != "" {
		t.Fatalf("admitted by a follower: %s", got)
	}
	w.heal()
	w.eventually(func() bool {
		once.Do(func() { close(staged) })
		return w.suffrage(3) != ""
	}, "the joiner to be staged")
	<-staged
	w.eventually(func() bool { return w.store(3).Ready() == nil && w.marked(3, "before") }, "the joiner to be ready")
	w.settled(4)
	if n := w.logged(3, "cluster join: the leader has this node"); n == 0 {
		t.Error("no line about its admission")
	}
}

// A joiner whose Raft nobody reaches, admitted while one of three voters is down, never
// counts: the two that are left go on committing.
func TestUnreachableJoinerCostsNoQuorum(t *testing.T) {
	t.Parallel()
	w := formed(t, 4, 3)
	lead := w.leader()
	down := (lead + 1) % 3
	w.stop(down)
	for i := range 3 {
		w.cut(i, 3, dropped)
	}
	w.start(3)
	w.eventually(func() bool { return w.suffrage(3) == "non-voter" }, "the joiner to be staged")
	_, m := w.running(w.leader())
	must(t, m.Register(context.Background(), peer.MemberReport{ID: "n3", APIAddr: w.nodes[3].api})) // node RPC works
	sent := len(w.joins(3))
	w.eventually(func() bool { return len(w.joins(3)) > sent+20 }, "the joiner to ask again and again")
	w.eventually(func() bool { return w.store(w.leader()).LedFor() > hurried.led }, "the leader to have led long enough")
	for range 3 { // one that does not declare an empty volume; no heartbeat to it has failed yet
		if a := w.join(3, false); a.Admission != admissionDeferred {
			t.Fatalf("%+v", a)
		}
	}
	if got := w.suffrage(3); got != "non-voter" {
		t.Errorf("the unreachable joiner is a %s", got)
	}
	w.mark("committed")
	w.eventually(func() bool { return w.logged(w.leader(), "promotion deferred") > 0 }, "the deferral to be logged")
}

// A node without peer in view of a leader that joined later finds it by a hint, and
// remembers it when every pinned peer is gone.
func TestLeaderOutsideThePeerList(t *testing.T) {
	t.Parallel()
	w := formed(t, 6, 3)
	w.start(3)
	w.start(4)
	w.settled(5)
	w.eventually(func() bool {
		if w.leader() >= 3 {
			return true
		}
		_ = w.store(w.leader()).TransferLeadership(context.Background())
		return false
	}, "a leader that no peer list names")
	lead := w.leader()
	for i := range 5 {
		w.cut(i, 5, dropped) // stages, and never gets through
	}
	w.start(5)
	w.eventually(func() bool { return w.suffrage(5) == "non-voter" }, "the joiner to be staged by way of a hint")
	for i := range 3 {
		w.cut(5, i, refused) // it has lost every pinned peer
	}
	sent := len(w.joins(5))
	w.eventually(func() bool { return len(w.joins(5)) > sent+8 }, "the joiner to ask on")
	w.eventually(func() bool {
		_, m := w.running(5)
		return m != nil && w.logged(lead, "promotion deferred") > 0
	}, "the leader to be asked without any peer")
}

// A decommissioned node with its old volume stays out, and says so once; with an empty
// one it comes back.
func TestDecommissionedIDComesBackOnlyEmpty(t *testing.T) {
	t.Parallel()
	w := formed(t, 4, 3)
	w.start(3)
	w.settled(4)
	w.eventually(func() bool {
		s := w.store(w.leader())
		if s.Remove(context.Background(), "n3") != nil {
			return false
		}
		_, err := s.Propose(context.Background(), metastore.RemoveMember{ID: "n3"})
		return err == nil
	}, "n3 to be removed")
	refusals := func() int {
		return w.logged(3, "cluster join refused: this node was decommissioned and removed")
	}
	w.eventually(func() bool { return refusals() > 0 }, "the running node to be told")
	w.stop(3)
	w.start(3)
	w.eventually(func() bool { return refusals() > 1 }, "the restarted node to be told")
	if w.logged(3, "no raft leader for a while; running the cluster join loop") != 2 {
		t.Error("want one line about the lost leader for each start")
	}
	sent := len(w.joins(3))
	w.eventually(func() bool { return len(w.joins(3)) > sent+6 }, "the node to ask on")
	if n := refusals(); n != 2 {
		t.Errorf("%d lines about the refusal, want one for each start", n)
	}
	if got := w.suffrage(3); got != "" {
		t.Fatalf("a decommissioned node is back as a %s", got)
	}
	w.stop(3)
	w.wipe(3)
	w.start(3)
	w.settled(4)
	if removed, err := w.store(w.leader()).Removed("n3"); removed || err != nil {
		t.Errorf("tombstone is there: %v, %v", removed, err)
	}
}

// The heartbeats of a removed node are refused, and do not bring its record back.
func TestHeartbeatOfARemovedMemberIsRefused(t *testing.T) {
	t.Parallel()
	w := formed(t, 3, 3)
	lead := w.leader()
	i := (lead + 1) % 3
	w.eventually(func() bool {
		_, err := w.store(w.leader()).Propose(context.Background(), metastore.RemoveMember{ID: w.nodes[i].id})
		return err == nil
	}, "the member record to go")
	w.eventually(func() bool { return w.logged(i, "member heartbeat refused") == 1 }, "the refusal to be logged")
	sent := w.logged(i, "member heartbeat failed")
	w.eventually(func() bool { return w.logged(i, "member heartbeat failed") > sent+3 }, "heartbeats to go on")
	if n := w.logged(i, "member heartbeat refused"); n != 1 {
		t.Errorf("%d lines, want one", n)
	}
	_, m := w.running(w.leader())
	if m.record(w.nodes[i].id) != nil {
		t.Error("the record of a removed member is back")
	}
}

// Tells of a joiner of an older release than every member: refused, one line on each
// side, and let in once it is upgraded.
func TestOlderReleaseIsRefusedUntilUpgraded(t *testing.T) {
	t.Parallel()
	w := formed(t, 4, 3)
	w.nodes[3].level = model.Level31
	w.start(3)
	w.eventually(func() bool { return len(w.joins(3)) > 12 }, "the joiner to ask on")
	if n := w.logged(3, "cluster join refused: this node runs an older release than every member of the cluster"); n != 1 {
		t.Errorf("%d lines on the joiner, want one", n)
	}
	if got := w.suffrage(3); got != "" {
		t.Errorf("the older joiner is a %s", got)
	}
	if n := w.logged(w.leader(), "cluster join refused: the joiner runs an older release than the cluster"); n != 1 {
		t.Errorf("%d lines on the leader, want one", n)
	}
	w.stop(3)
	w.nodes[3].level = model.LevelNewest
	w.start(3)
	w.settled(4)
}

// A node that moved to another address finds no leader there, and has its address
// changed by the join loop; its vote stays.
func TestAddressChangesByAJoin(t *testing.T) {
	t.Parallel()
	w := formed(t, 3, 3)
	i := (w.leader() + 1) % 3
	w.stop(i)
	w.readdress(i, "moved.test:7943")
	w.start(i)
	w.eventually(func() bool {
		s := find(w.store(w.leader()).Servers(), w.nodes[i].id)
		return s != nil && s.Addr == "moved.test:7943" && s.Voter
	}, "the address to change")
	w.settled(3)
	before := w.store(w.leader()).Servers()
	if a := w.join(i, false); a.Status != http.StatusOK || a.Admission != admissionVoter {
		t.Errorf("a join of a voter: %+v", a)
	}
	if after := w.store(w.leader()).Servers(); len(after) != len(before) {
		t.Errorf("configuration %v, was %v", after, before)
	}
}

// The empty volume is declared until something has arrived, over restarts too, and
// never after it.
func TestEmptyIsDeclaredUntilSomethingArrived(t *testing.T) {
	t.Parallel()
	w := formed(t, 4, 3)
	for i := range 3 {
		w.cut(i, 3, refused)
	}
	w.start(3)
	w.eventually(func() bool { return w.suffrage(3) == "non-voter" }, "the joiner to be staged")
	w.stop(3)
	w.start(3)
	sent := len(w.joins(3))
	w.eventually(func() bool { return len(w.joins(3)) > sent+3 }, "the restarted joiner to ask")
	for _, r := range w.joins(3) {
		if !r.Empty {
			t.Fatalf("%+v: nothing has arrived at the joiner", r)
		}
	}
	if a := w.join(3, true); a.Admission != admissionDeferred || !strings.Contains(a.Reason, "empty") {
		t.Errorf("an empty non-voter asks for its vote: %+v", a)
	}
	w.heal()
	w.settled(4)
	sent = len(w.joins(3))
	w.stop(3)
	if state, err := metastore.HasState(w.nodes[3].dir); !state || err != nil {
		t.Fatalf("state %v, %v", state, err)
	}
	for i := range 3 {
		w.cut(i, 3, refused)
	}
	w.start(3)
	w.eventually(func() bool { return len(w.joins(3)) > sent+3 }, "the leaderless node to ask")
	for _, r := range w.joins(3)[sent:] {
		if r.Empty {
			t.Fatalf("%+v: the volume is not empty any more", r)
		}
	}
	if got := w.suffrage(3); got != "voter" {
		t.Errorf("it is a %s now", got)
	}
}

// A server the cluster has staged, and whose node was made a non-voter again, asks again.
func TestNonVoterAsksForItsVoteAgain(t *testing.T) {
	t.Parallel()
	w := formed(t, 3, 3)
	i := (w.leader() + 1) % 3
	w.eventually(func() bool { return w.store(w.leader()).Demote(context.Background(), w.nodes[i].id) == nil }, "a demotion")
	w.settled(3)
	if len(w.joins(i)) == 0 {
		t.Error("it did not ask")
	}
}

// The deferral reason is written once as long as it stands.
func TestDeferralsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	w := formed(t, 4, 3)
	w.start(3)
	w.settled(4)
	w.eventually(func() bool {
		s := w.store(w.leader())
		if _, err := s.Propose(context.Background(), metastore.MarkDraining{ID: "n3"}); err != nil {
			return false
		}
		return s.Demote(context.Background(), "n3") == nil
	}, "n3 to be drained, without a vote")
	sent := len(w.joins(3))
	w.eventually(func() bool { return len(w.joins(3)) > sent+6 }, "the node to ask on")
	if n := w.logged(3, `the leader defers promotion" via`); n > 6 || w.logged(3, `reason="it is draining"`) != 1 {
		t.Errorf("%d deferral lines, %d of them about draining, want one", n, w.logged(3, `reason="it is draining"`))
	}
	if got := w.suffrage(3); got != "non-voter" {
		t.Errorf("a draining node is a %s", got)
	}
}

// The removal of a draining node is in two steps; in between it cannot come back.
func TestJoinCannotUndoAHalfDoneDecommission(t *testing.T) {
	t.Parallel()
	w := formed(t, 4, 3)
	w.start(3)
	w.settled(4)
	w.eventually(func() bool {
		s := w.store(w.leader())
		if _, err := s.Propose(context.Background(), metastore.MarkDraining{ID: "n3"}); err != nil {
			return false
		}
		return s.Remove(context.Background(), "n3") == nil
	}, "the first step")
	for _, empty := range []bool{false, true} {
		if a := w.join(3, empty); a.Status != http.StatusConflict {
			t.Errorf("empty %v: %+v", empty, a)
		}
	}
	if got := w.suffrage(3); got != "" {
		t.Errorf("it is back as a %s", got)
	}
}

// Half an answer of disk: a metastore directory without its log is an empty volume.
func TestHasStateOfAFreshDirectory(t *testing.T) {
	if state, err := metastore.HasState(filepath.Join(t.TempDir(), "none")); state || err != nil {
		t.Errorf("%v, %v", state, err)
	}
}
