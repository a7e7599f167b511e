package metastore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/model"
	narad "github.com/narad-mq/narad/internal/testutil"
)

// block stops a node's replica before its next entry until the returned function is
// called: the log goes on, the state machine does not.
func (c *cluster) block(i int) (release func()) {
	c.t.Helper()
	f := c.nodes[i].store.fsm
	gate := make(chan struct{})
	commit := f.update
	f.update = func(fn func(*bbolt.Tx) error) error {
		<-gate
		return commit(fn)
	}
	open := false
	release = func() {
		if !open {
			open = true
			close(gate)
		}
	}
	c.t.Cleanup(release)
	return release
}

func short(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// A replica that lags behind what it knows to be committed does not vouch for
// itself, and asks nobody: nothing is confirmed gone.
func TestClusterLaggingReplicaConfirmsNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	i, leader := c.follower(), c.waitLeader()
	s := c.nodes[i].store
	c.propose(i, linked("gone", idA, nil, nil))
	c.converge()
	narad.Eventually(t, clusterWait, func() bool { return s.AppliedCaughtUp() == nil }, "the follower to be current")
	release := c.block(i)
	c.propose(leader, RemoveTopic{Name: "gone", ID: idA})
	narad.Eventually(t, clusterWait, func() bool { return errors.Is(s.AppliedCaughtUp(), ErrBehind) }, "the follower to know that it lags")
	if got, err := s.ConfirmGone(context.Background(), "gone", idA); got != Unknown || !errors.Is(err, ErrBehind) {
		t.Errorf("a lagging replica says %s, %v", got, err)
	}
	if err := s.Settle(short(t, 50*time.Millisecond)); !errors.Is(err, ErrNotSettled) {
		t.Errorf("settled: %v", err)
	}
	release()
	c.converge()
	narad.Eventually(t, clusterWait, func() bool { return s.AppliedCaughtUp() == nil }, "the follower to be current again")
	if err := s.Settle(context.Background()); err != nil {
		t.Errorf("not settled: %v", err)
	}
	confirm := func(id model.Incarnation, want Confirmation) {
		t.Helper()
		c.eventually(func() error { // an index heard in between makes it unsure for a moment
			got, err := s.ConfirmGone(context.Background(), "gone", id)
			if err == nil && got != want {
				t.Errorf("%q is %s, want %s", id, got, want)
			}
			return err
		}, "the leader's word")
	}
	confirm(idA, Gone)
	confirm("", Gone)
	c.propose(leader, linked("gone", idB, nil, nil))
	c.converge()
	confirm(idA, Gone)
	confirm(idB, Live)
	confirm("", Live)
}

// A forwarded write is answered after 3 s although this node's replica does not show
// it yet: it is committed.
func TestClusterForwardedWriteIsAnsweredAfterItsWait(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	i := c.follower()
	c.converge()
	release := c.block(i)
	start := time.Now()
	c.propose(i, create("t"))
	if took := time.Since(start); took < settleTimeout || took > 2*settleTimeout {
		t.Errorf("answered after %s", took)
	}
	if _, ok := c.nodes[i].store.Topic("t"); ok {
		t.Error("the replica was not blocked")
	}
	release()
	c.converge()
}

// Without contact a replica knows nothing, however well its own figures agree; and
// a leader that cannot be asked confirms nothing.
func TestClusterIsolatedReplicaConfirmsNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	i := c.follower()
	s := c.nodes[i].store
	c.propose(i, create("t"))
	c.converge()
	c.isolate(i)
	narad.Eventually(t, clusterWait, func() bool { return s.AppliedCaughtUp() != nil }, "the follower to notice")
	start := time.Now()
	if got, err := s.ConfirmGone(context.Background(), "never", ""); got != Unknown || err == nil {
		t.Errorf("an isolated replica says %s, %v", got, err)
	}
	if err := s.Settle(context.Background()); !errors.Is(err, ErrNotSettled) {
		t.Errorf("settled: %v", err)
	}
	if _, err := s.Propose(context.Background(), create("u")); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("a write without leader: %v", err)
	}
	if took := time.Since(start); took > settleTimeout/2 {
		t.Errorf("the answers took %s; there was nobody to wait for", took)
	}
	if _, ok := s.Topic("t"); !ok {
		t.Error("a read needs the leader")
	}
	c.heal(i)
	narad.Eventually(t, clusterWait, func() bool { return s.AppliedCaughtUp() == nil }, "the follower to be current again")
}

// Winning an election proves the log, not the state: a new leader whose replica
// still lags does not see a topic that was created, and would call it gone. The
// barrier keeps it from saying so; once the replica has caught up it is live.
func TestClusterNewLeaderConfirmsOnlyBehindItsBarrier(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	first, next := c.waitLeader(), c.follower()
	c.converge()
	release := c.block(next)
	c.propose(first, linked("fresh", idA, nil, nil))
	s := c.nodes[next].store
	narad.Eventually(t, clusterWait, func() bool { return s.raft.LastIndex() >= c.nodes[first].store.fsm.applied.Load() }, "the log to arrive")
	must(t, c.nodes[first].store.raft.LeadershipTransferToServer(raft.ServerID(c.nodes[next].id), raft.ServerAddress(c.addr(next))).Error())
	c.kill(first)
	narad.Eventually(t, clusterWait, s.IsLeader, "the lagging node to lead")
	if _, ok := s.Topic("fresh"); ok {
		t.Fatal("the replica does not lag; the unguarded read would be right")
	}
	if got, err := s.ConfirmGone(short(t, 200*time.Millisecond), "fresh", idA); got != Unknown || err == nil {
		t.Errorf("a leader that lags says %s, %v", got, err)
	}
	if err := s.Writable(); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("a leader that lags takes writes: %v", err)
	}
	release()
	c.waitLeader()
	if got, err := s.ConfirmGone(context.Background(), "fresh", idA); got != Live || err != nil {
		t.Errorf("after its barrier the leader says %s, %v", got, err)
	}
}

// What membership needs of the leader: stage, promote, demote, remove, hand over,
// and know who cannot be reached.
func TestClusterConfigurationChanges(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := newCluster(t, 3, nil)
	leader := c.waitLeader()
	i := c.follower()
	if err := c.nodes[i].store.AddNonvoter(ctx, "x", "x:1", 37); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a follower changed the configuration: %v", err)
	}
	s := c.nodes[leader].store
	if err := s.Remove(ctx, "nobody"); !errors.Is(err, ErrServerNotFound) {
		t.Errorf("removed nobody: %v", err)
	}
	if err := s.AddNonvoter(ctx, "old", "old:1", 0); !errors.Is(err, model.ErrOlderRelease) {
		t.Errorf("an older joiner: %v", err)
	}
	must(t, s.Demote(ctx, c.nodes[i].id))
	narad.Eventually(t, clusterWait, func() bool { return !c.nodes[i].store.Servers()[i].Voter }, "the vote to be gone")
	must(t, s.AddVoter(ctx, c.nodes[i].id, c.addr(i)))
	if err := s.HeartbeatFailing(c.nodes[i].id); err != nil {
		t.Errorf("heartbeats fail: %v", err)
	}
	if s.LedFor() <= 0 || c.nodes[i].store.LedFor() != 0 {
		t.Errorf("led for %s, the follower for %s", s.LedFor(), c.nodes[i].store.LedFor())
	}
	term := s.LeaderTerm()
	if term == 0 || c.nodes[i].store.LeaderTerm() != 0 {
		t.Errorf("leads in term %d, the follower in %d", term, c.nodes[i].store.LeaderTerm())
	}
	c.isolate(i)
	narad.Eventually(t, clusterWait, func() bool { return s.HeartbeatFailing(c.nodes[i].id) != nil }, "heartbeats to fail")
	c.heal(i)
	narad.Eventually(t, clusterWait, func() bool { return s.HeartbeatFailing(c.nodes[i].id) == nil }, "heartbeats to succeed")
	must(t, c.nodes[c.waitLeader()].store.TransferLeadership(ctx))
	narad.Eventually(t, clusterWait, func() bool { return !s.IsLeader() || c.waitLeader() != leader }, "another leader")
	next := c.waitLeader()
	if now := c.nodes[next].store.LeaderTerm(); now <= term {
		t.Errorf("a later leader leads in term %d, the first in %d", now, term)
	}
	other := c.follower()
	c.eventually(func() error { return c.nodes[c.waitLeader()].store.Remove(ctx, c.nodes[other].id) }, "a removal")
	narad.Eventually(t, clusterWait, func() bool {
		id, addr := c.nodes[next].store.Leader()
		l := next
		for i, n := range c.nodes {
			if n.store.IsLeader() {
				l = i
			}
		}
		return id == c.nodes[l].id && addr == c.addr(l)
	}, "the leader to be known by id and address")
}

// Release 3.0 knows no report in a heartbeat: its leader refuses the longer record
// as trailing data, and gets the one it knows at once.
func TestClusterHeartbeatToAnOlderLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(i int, o *Options) {
		if i == 0 {
			o.Level = model.Level30
		}
		tune := o.Tune
		o.Tune = func(conf *raft.Config) {
			tune(conf)
			if i != 0 { // the oldest leads
				conf.HeartbeatTimeout, conf.ElectionTimeout = clusterWait, clusterWait
			}
		}
	})
	if c.waitLeader() != 0 {
		t.Fatal("another node leads")
	}
	s := c.nodes[0].store
	if _, err := s.Accept(context.Background(), c.nodes[1].store.Report()); !errors.Is(err, model.ErrTrailingData) {
		t.Errorf("the longer record is answered %v", err)
	}
	for _, m := range s.Members() {
		if m.EntryTypes != 0 || m.Build != "" {
			t.Errorf("a leader of 3.0 recorded %+v", m)
		}
	}
	c.propose(1, linked("t", idA, schema(1), nil)) // as base entries
	c.converge()
	if newest := EntryType(s.fsm.newest.Load()); newest > newest30 {
		t.Errorf("entry type %d was used", newest)
	}
}
