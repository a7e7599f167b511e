package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	narad "github.com/narad-mq/narad/internal/testutil"
)

// 30 s of silence mark a member dead, not before; its next heartbeat turns it alive, and
// its partitions stay its own.
func TestSilentMemberIsMarkedDead(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 3)
	leader := r.leader()
	r.beat(r.ids()...)
	others := r.others(leader)
	quiet, loud := others[0].id, others[1].id
	r.propose(metastore.CreateTopic{Topic: topicOf("t", 3), Owners: []string{quiet, loud, quiet}})
	r.govern()
	r.pass(29_750*time.Millisecond, loud)
	r.wantStatus(model.MemberAlive, quiet, loud)
	r.pass(250*time.Millisecond, loud)
	r.wantStatus(model.MemberDead, quiet)
	r.wantStatus(model.MemberAlive, loud, leader.id) // the leader never judges itself
	r.wantLines(1, "controller: member marked dead")
	r.pass(20*time.Second, loud)
	if got := r.owners("t"); got[0] != quiet || got[1] != loud || got[2] != quiet {
		t.Errorf("partitions of a dead owner went to %v", got)
	}
	r.beat(quiet)
	r.pass(watchEvery)
	r.wantStatus(model.MemberAlive, quiet)
	r.wantLines(1, "controller: member seen alive again")
	r.wantLines(1, "controller: member marked dead")
}

// A heartbeat that falls silent in the middle of a term gets its 30 s from the last one.
func TestSilenceIsCountedFromTheLastHeartbeat(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	r.leader()
	r.beat("narad-9")
	r.govern()
	r.pass(35*time.Second, "narad-9")
	r.pass(29 * time.Second) // the last tick is at 60 s: 25 s after the last heartbeat
	r.wantStatus(model.MemberAlive, "narad-9")
	r.pass(6 * time.Second) // 70 s
	r.wantStatus(model.MemberDead, "narad-9")
}

// Nobody stamps heartbeats while there is no leader. The next one gives every member a
// full 30 s of its own loop, however old the stamps are.
func TestNewLeaderAfterALeaderlessStretchMarksNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 3)
	leader := r.leader()
	r.beat(r.ids()...)
	r.govern()
	r.pass(25 * time.Second)
	for i, n := range r.nodes {
		if n != leader {
			r.kill(i)
		}
	}
	narad.Eventually(t, clusterWait, func() bool { return leader.store.LeaderTerm() == 0 }, "the leader to step down")
	r.pass(5 * time.Minute)
	r.wantLines(1, "controller: leadership lost")
	for i, n := range r.nodes {
		if n.store == nil {
			r.start(i)
		}
	}
	r.leader()
	r.govern()
	// The term a controller saw may begin a look late, so its 30 s end later than here.
	r.pass(29 * time.Second)
	r.wantStatus(model.MemberAlive, r.ids()...)
	r.pass(time.Minute, r.ids()...)
	r.wantStatus(model.MemberAlive, r.ids()...)
	r.wantLines(0, "marked dead")
}

// A stretch in which the loop did not get to look is no silence of the members.
func TestStalledLoopMarksNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	r.leader()
	r.beat("narad-9")
	r.govern()
	r.pass(20 * time.Second)
	r.idle()
	r.clk.Advance(time.Hour)
	r.pass(8 * time.Second)
	r.wantStatus(model.MemberAlive, "narad-9")
	r.pass(2 * time.Second)
	r.wantStatus(model.MemberDead, "narad-9")
}

// The member table is read only behind the barrier of the term.
func TestTermBeginsBehindItsBarrier(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	r.beat("narad-9")
	leader.seam.set(func(s *seam) {
		s.barrier = func(context.Context) error { return errors.New("not applied yet") }
	})
	r.govern()
	r.pass(45 * time.Second)
	leader.seam.set(func(s *seam) {
		if s.reads != 0 {
			t.Errorf("the member table was read %d times before the barrier", s.reads)
		}
		s.barrier = nil
	})
	r.wantLines(0, "leadership gained")
	r.pass(29 * time.Second) // the term's 30 s begin only now
	r.wantLines(1, "leadership gained")
	r.wantStatus(model.MemberAlive, "narad-9")
	r.pass(2 * time.Second)
	r.wantStatus(model.MemberDead, "narad-9")
}

// Whoever looks silent is judged again behind a barrier: a heartbeat that is committed
// counts, even where no entry could refuse the mark.
func TestCommittedHeartbeatPreventsTheMark(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	r.beat("narad-9")
	r.govern()
	r.pass(29 * time.Second)
	var marks int
	leader.seam.set(func(s *seam) {
		s.barrier = func(ctx context.Context) error {
			r.beat("narad-9")
			return s.Store.Barrier(ctx)
		}
		s.accept = func(ctx context.Context, c metastore.Command) (metastore.Result, error) {
			if _, ok := c.(metastore.MarkSilent); ok {
				marks++
			}
			return s.Store.Accept(ctx, c)
		}
	})
	r.pass(2 * time.Second)
	leader.seam.set(func(*seam) {
		if marks != 0 {
			t.Errorf("%d marks proposed", marks)
		}
	})
	r.wantStatus(model.MemberAlive, "narad-9")
}

// A heartbeat that commits between the judgement and the mark wins.
func TestMarkIsRefusedOverANewerHeartbeat(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	r.beat("narad-9")
	r.govern()
	leader.seam.set(func(s *seam) {
		s.accept = func(ctx context.Context, c metastore.Command) (metastore.Result, error) {
			if _, ok := c.(metastore.MarkSilent); ok {
				r.beat("narad-9")
			}
			return s.Store.Accept(ctx, c)
		}
	})
	r.pass(31 * time.Second)
	r.wantStatus(model.MemberAlive, "narad-9")
	r.wantLines(0, "marked dead")
}

// The breaker: marking both followers would leave one of three voters, so no voter is
// marked. Other members are, and the line comes once per streak.
func TestBreakerRefusesToMarkVotersDead(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 3)
	leader := r.leader()
	r.beat(r.ids()...)
	r.beat("narad-9") // a member without a vote
	r.govern()
	r.pass(61 * time.Second)
	r.wantStatus(model.MemberAlive, r.ids()...)
	r.wantStatus(model.MemberDead, "narad-9")
	r.wantLines(1, "controller: refusing to mark voters dead")
	r.wantLines(1, "alive_voters_after=1 quorum=2 voters=3")
	if refused(leader) != 1 {
		t.Errorf("narad_dead_marking_refused is %v", refused(leader))
	}
	followers := r.others(leader)
	r.beat(followers[0].id)
	r.pass(10*time.Second, followers[0].id)
	r.wantLines(1, "controller: dead-marking breaker cleared")
	r.wantStatus(model.MemberDead, followers[1].id) // one of three: a quorum stays alive
	r.wantStatus(model.MemberAlive, followers[0].id, leader.id)
	if refused(leader) != 0 {
		t.Errorf("narad_dead_marking_refused is %v", refused(leader))
	}
}

// A streak ends with the leadership; the node shows 0 from then on.
func TestBreakerEndsWithTheTerm(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, 2)
	leader := r.leader()
	r.beat(r.ids()...)
	r.govern()
	r.pass(31 * time.Second)
	if refused(leader) != 1 {
		t.Fatal("the breaker is not open")
	}
	must(t, leader.store.TransferLeadership(context.Background()))
	narad.Eventually(t, clusterWait, func() bool { return leader.store.LeaderTerm() == 0 }, "the hand-over")
	r.leader()
	r.pass(time.Second)
	if refused(leader) != 0 || colocated(leader) != 0 {
		t.Errorf("a node that does not lead shows %v, %v", refused(leader), colocated(leader))
	}
	r.wantLines(1, "controller: leadership lost")
	r.wantLines(2, "controller: leadership gained")
	r.pass(28 * time.Second)
	r.wantLines(1, "controller: refusing to mark voters dead") // a new term, a new grace
}
