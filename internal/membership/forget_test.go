package membership

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

// forget asks the leader, again while an election interrupts.
func (w *world) forget(id string) (voter bool, err error) {
	w.t.Helper()
	w.eventually(func() bool {
		_, m := w.running(w.leader())
		voter, err = m.Forget(context.Background(), id, "root")
		return !errors.Is(err, model.ErrUnavailable)
	}, "an answer about "+id)
	return voter, err
}

func (w *world) refuses(id string, want error, text string) {
	w.t.Helper()
	_, err := w.forget(id)
	if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
		w.t.Errorf("forget %s: %v; want %v with %q", id, err, want, text)
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	w := formed(t, 4, 3)
	lead := w.leader()
	s := w.store(lead)
	ctx := context.Background()
	must(t, s.AddNonvoter(ctx, "ghost", "ghost.test:7943", int(metastore.NewestType)))

	w.refuses(w.nodes[lead].id, model.ErrInvalid, "is the raft leader itself")          // F-2
	w.refuses("nobody", model.ErrMemberNotFound, `"nobody"`)                            // F-3
	w.refuses(w.nodes[(lead+1)%3].id, model.ErrConflict, "has a member record (alive)") // F-4
	topic := model.Topic{Name: "t", ID: model.NewIncarnation(), Partitions: 2, RetentionMS: 1000, VisibilityTimeoutMS: 1000, MaxInFlight: 1, MaxAckedAhead: 1}
	_, err := s.Propose(ctx, metastore.CreateTopic{Topic: topic, Owners: []string{w.nodes[lead].id, "ghost"}})
	must(t, err)
	w.refuses("ghost", model.ErrConflict, "named by the assignment of t/1") // F-5
	_, err = s.Propose(ctx, metastore.DeleteTopic{Name: "t", ID: topic.ID})
	must(t, err)

	voter, err := w.forget("ghost") // F-1, a non-voter
	if err != nil || voter {
		t.Fatalf("%v, %v", voter, err)
	}
	if find(w.store(w.leader()).Servers(), "ghost") != nil {
		t.Error("it is still there")
	}
	if n := w.logged(w.leader(), `level=WARN msg="forgot a raft server with no member record" component=audit id=ghost voter=false actor=root`); n != 1 {
		t.Errorf("%d audit lines", n)
	}
	w.refuses("ghost", model.ErrMemberNotFound, "")

	follower := (w.leader() + 1) % 3
	if _, m := w.running(follower); m != nil {
		if _, err := m.Forget(ctx, "ghost", "root"); !errors.Is(err, metastore.ErrNotLeader) { // F-9
			t.Errorf("on a follower: %v", err)
		}
	}
}

// F-1, F-6, F-7: a voter without member record costs a quorum test, and a leader that can
// judge.
func TestForgetAVoter(t *testing.T) {
	t.Parallel()
	w := formed(t, 3, 3)
	lead := w.leader()
	down, ghost := (lead+1)%3, (lead+2)%3
	ctx := context.Background()
	_, err := w.store(lead).Propose(ctx, metastore.RemoveMember{ID: w.nodes[ghost].id})
	must(t, err)
	_, m := w.running(lead)

	strict := New(Options{Self: m.self, Peers: w.peers(), Store: w.store(lead)})
	if _, err := strict.Forget(ctx, w.nodes[ghost].id, "root"); !errors.Is(err, model.ErrConflict) || !strings.Contains(err.Error(), "has led for less than 12s") {
		t.Errorf("F-7: %v", err)
	}

	w.stop(down) // the leader and the ghost are the last quorum
	w.eventually(func() bool { s := w.store(w.leader()); return s.LedFor() >= hurried.led }, "a leader that has led long enough")
	if w.leader() != lead {
		t.Skip("the ghost leads now, which is F-2")
	}
	w.refuses(w.nodes[ghost].id, model.ErrConflict,
		"forgetting the voter could leave the cluster without a quorum: heartbeats to "+w.nodes[down].id+" are failing")
	w.mark("still")

	w.start(down)
	w.eventually(func() bool {
		voter, err := w.forget(w.nodes[ghost].id)
		return err == nil && voter
	}, "the ghost to be forgotten")
	w.mark("on")
	if n := len(w.store(w.leader()).Servers()); n != 2 {
		t.Errorf("%d servers", n)
	}
}

func TestRegister(t *testing.T) {
	t.Parallel()
	w := formed(t, 3, 3)
	lead := w.leader()
	_, m := w.running(lead)
	ctx := context.Background()
	report := peer.MemberReport{ID: "n8", APIAddr: "n8.test:7942", RaftAddr: "n8.test:7943", Build: "v3.2.0", EntryTypes: 37}
	before := m.clock.Now().UnixMilli()
	must(t, m.Register(ctx, report))
	r := m.record("n8")
	if r == nil || r.Addr != report.APIAddr || r.RaftAddr != report.RaftAddr || r.Build != report.Build || r.EntryTypes != 37 || r.Status != model.MemberAlive {
		t.Fatalf("%+v", r)
	}
	if r.HeartbeatAt < before || r.HeartbeatAt > m.clock.Now().UnixMilli() {
		t.Errorf("stamped %d, the leader's clock said %d", r.HeartbeatAt, before)
	}
	for _, c := range []struct {
		edit func(*peer.MemberReport)
		want error
	}{
		{func(r *peer.MemberReport) { r.APIAddr = "n8.test" }, model.ErrInvalid},
		{func(r *peer.MemberReport) { r.ID = w.nodes[lead].id }, model.ErrConflict},
	} {
		bad := report
		c.edit(&bad)
		if err := m.Register(ctx, bad); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", bad, err, c.want)
		}
	}
	_, err := w.store(lead).Propose(ctx, metastore.RemoveMember{ID: "n8"})
	must(t, err)
	if err := m.Register(ctx, report); !errors.Is(err, model.ErrMemberRemoved) {
		t.Errorf("tombstoned: %v", err)
	}
	_, follower := w.running((lead + 1) % 3)
	if err := follower.Register(ctx, report); !errors.Is(err, metastore.ErrNotLeader) {
		t.Errorf("on a follower: %v", err)
	}
}
