package membership

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

func (w *world) request(i int) peer.JoinRequest {
	n := w.nodes[i]
	return peer.JoinRequest{ID: n.id, RaftAddr: n.raft, EntryTypes: int(metastore.NewestType)}
}

// A request that makes no sense is a 400 wherever it arrives, and changes nothing.
func TestJoinRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	w := formed(t, 4, 3)
	lead := w.leader()
	_, m := w.running(lead)
	before := w.store(lead).Servers()
	for _, c := range []struct {
		edit func(*peer.JoinRequest)
		text string
	}{
		{func(r *peer.JoinRequest) { r.ID = "" }, "node id of 0 bytes"},
		{func(r *peer.JoinRequest) { r.ID = strings.Repeat("x", idBytesMax+1) }, "node id of 129 bytes"},
		{func(r *peer.JoinRequest) { r.RaftAddr = "n3.test" }, "cannot be dialled"},
		{func(r *peer.JoinRequest) { r.RaftAddr = "n3.test:0" }, "cannot be dialled"},
		{func(r *peer.JoinRequest) { r.ID = w.nodes[lead].id }, "is the id of the node that was asked"},
		{func(r *peer.JoinRequest) { r.RaftAddr = w.nodes[(lead+1)%3].raft }, `is that of node "` + w.nodes[(lead+1)%3].id},
	} {
		r := w.request(3)
		c.edit(&r)
		if a := m.Join(context.Background(), r); a.Status != http.StatusBadRequest || !strings.Contains(a.Reason, c.text) {
			t.Errorf("%.40q at %q: %d %q, want 400 with %q", r.ID, r.RaftAddr, a.Status, a.Reason, c.text)
		}
	}
	if after := w.store(lead).Servers(); len(after) != len(before) {
		t.Errorf("configuration %v, was %v", after, before)
	}
	r := w.request(3)
	r.ID = strings.Repeat("x", idBytesMax)
	if a := m.Join(context.Background(), r); a.Status != http.StatusOK || a.Admission != admissionStaged {
		t.Errorf("an id of 128 bytes: %+v", a)
	}
}

// A node without Raft configuration answers 412; a follower names the leader, by its
// member record, as in spec/cluster-and-network section 5.2; one that knows no leader
// answers 421 all the same.
func TestJoinElsewhere(t *testing.T) {
	t.Parallel()
	w := formed(t, 4, 3)
	lead := w.leader()
	_, follower := w.running((lead + 1) % 3)
	w.eventually(func() bool {
		a := follower.Join(context.Background(), w.request(3))
		lead = w.leader()
		return a == peer.JoinAnswer{Status: http.StatusMisdirectedRequest, LeaderID: w.nodes[lead].id, LeaderAddr: w.nodes[lead].api}
	}, "a follower to name the leader")
	for i := range 3 {
		w.cut(i, 3, refused)
		w.cut(3, i, refused)
	}
	w.open(3, true)
	_, outside := w.running(3)
	r := w.request(3)
	r.ID, r.RaftAddr = "n9", "n9.test:1"
	if a := outside.Join(context.Background(), r); a.Status != http.StatusPreconditionFailed {
		t.Errorf("outside: %+v", a)
	}
	alone := (lead + 1) % 3
	w.stop(lead)
	w.stop((lead + 2) % 3)
	w.eventually(func() bool {
		id, _ := w.store(alone).Leader()
		return id == ""
	}, "the last node to lose its leader")
	_, m := w.running(alone)
	if a := m.Join(context.Background(), r); a != (peer.JoinAnswer{Status: http.StatusMisdirectedRequest}) {
		t.Errorf("without a leader: %+v", a)
	}
}

// An initial member that starts for the first time when the others lead already was in
// the configuration from the beginning, and keeps its vote: it has lost nothing.
func TestLateInitialMemberKeepsItsVote(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 3)
	w.open(0, false)
	w.open(1, false)
	w.leader()
	w.start(2)
	w.settled(3)
	for i := range 2 {
		if n := w.logged(i, "voter has lost its volume"); n != 0 {
			t.Error("a vote was taken from a node that never ran")
		}
	}
}

// What a joiner is told is what the configuration says: a second join is not a second
// admission, and a lost answer costs nothing.
func TestJoinTwiceIsStagedOnce(t *testing.T) {
	t.Parallel()
	w := formed(t, 4, 3)
	if a := w.join(3, true); a.Admission != admissionStaged {
		t.Fatalf("%+v", a)
	}
	if a := w.join(3, false); a.Admission != admissionDeferred || a.Reason == "" {
		t.Errorf("%+v", a)
	}
	if n := len(w.store(w.leader()).Servers()); n != 4 {
		t.Errorf("%d servers", n)
	}
	w.readdress(3, "other.test:7943")
	if a := w.join(3, false); a.Admission != admissionDeferred || !strings.Contains(a.Reason, "address has just changed") {
		t.Errorf("%+v", a)
	}
	if s := find(w.store(w.leader()).Servers(), "n3"); s == nil || s.Addr != "other.test:7943" || s.Voter {
		t.Errorf("%+v", s)
	}
}

// A release that is refused lifts no tombstone on the way.
func TestOlderReleaseIsNotReadmitted(t *testing.T) {
	t.Parallel()
	w := formed(t, 4, 3)
	w.eventually(func() bool {
		s := w.store(w.leader())
		if _, err := s.Propose(context.Background(), metastore.RegisterMember{ID: "n3", Addr: "n3.test:7942", EntryTypes: int(metastore.NewestType)}); err != nil {
			return false
		}
		_, err := s.Propose(context.Background(), metastore.RemoveMember{ID: "n3"})
		return err == nil
	}, "a tombstone")
	r := w.request(3)
	r.Empty, r.EntryTypes = true, 0 // as release 3.0
	w.eventually(func() bool {
		_, m := w.running(w.leader())
		a := m.Join(context.Background(), r)
		return a.Status == http.StatusConflict && a.Code == codeOlderRelease && strings.Contains(a.Reason, model.ErrOlderRelease.Error())
	}, "the older release to be refused")
	if removed, err := w.store(w.leader()).Removed("n3"); !removed || err != nil {
		t.Errorf("the tombstone is gone: %v, %v", removed, err)
	}
}

// While one decision is under way another waits, and no longer than its caller.
func TestOneDecisionAtATime(t *testing.T) {
	t.Parallel()
	w := formed(t, 4, 3)
	_, m := w.running(w.leader())
	m.deciding <- struct{}{}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if a := m.Join(ctx, w.request(3)); a.Status != http.StatusServiceUnavailable {
		t.Errorf("%+v", a)
	}
	if _, err := m.Forget(ctx, "n3", "root"); err == nil {
		t.Error("forgotten during another decision")
	}
	<-m.deciding
	if a := w.join(3, false); a.Status != http.StatusOK {
		t.Errorf("%+v", a)
	}
}

// Start after Close starts nothing; Close may come twice, and before Start.
func TestCloseIsIdempotent(t *testing.T) {
	t.Parallel()
	w := formed(t, 3, 3)
	store, m := w.running(0)
	must(t, m.Close())
	must(t, m.Close())
	m.Start()
	other := New(Options{Self: m.self, Peers: w.peers(), Store: store, Client: courier{w, 0}, pace: hurried})
	must(t, other.Close())
	other.Start()
	sent := len(w.joins(0))
	if len(w.joins(0)) != sent {
		t.Error("a closed membership asks")
	}
}
