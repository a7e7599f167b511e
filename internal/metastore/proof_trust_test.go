package metastore

import (
	"context"
	"errors"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/narad-mq/narad/internal/model"
	narad "github.com/narad-mq/narad/internal/testutil"
)

// The double kill: a node is killed and comes back from a snapshot of long ago, and
// before it hears from the leader, the leader is killed too. Its log is complete, so
// it is elected; its state is the snapshot's. It sees a topic that was deleted, and
// misses one that was created: without its barrier it would say that one is gone.
func TestDoubleKillConfirmsNothingBeforeTheBarrier(t *testing.T) {
	t.Parallel()
	var patient [3]bool // never stands for election by itself
	c := newCluster(t, 3, func(i int, o *Options) {
		tune := o.Tune
		o.Tune = func(conf *raft.Config) {
			tune(conf)
			if patient[i] {
				conf.HeartbeatTimeout, conf.ElectionTimeout = clusterWait, clusterWait
			}
		}
	})
	old := c.follower()
	c.propose(old, linked("deleted", idA, nil, nil))
	c.converge()
	c.snapshotNow(old)
	c.propose(old, RemoveTopic{Name: "deleted", ID: idA})
	c.propose(old, linked("created", idB, nil, nil))
	c.converge()

	c.kill(old)
	editFSM(t, c.nodes[old].dir, nothing) // so that the snapshot is restored over it
	leader := c.waitLeader()
	witness := 3 - old - leader
	c.kill(leader)
	c.kill(witness)
	s := c.start(old)
	release := c.block(old) // the replay has not begun: nothing is known to be committed
	patient[witness] = true
	c.start(witness)
	narad.Eventually(t, clusterWait, s.IsLeader, "the restored node to lead")

	unguarded := func(name string, id model.Incarnation) Confirmation {
		if v, ok := s.Topic(name); ok && !id.Differs(v.ID) {
			return Live
		}
		return Gone
	}
	if got := unguarded("created", idB); got != Gone {
		t.Fatalf("an unguarded leader says %s of a live topic; the test proves nothing", got)
	}
	if got := unguarded("deleted", idA); got != Live {
		t.Fatalf("an unguarded leader says %s of a deleted topic; the test proves nothing", got)
	}
	for name, id := range map[string]model.Incarnation{"created": idB, "deleted": idA, "never": idA} {
		for _, i := range []int{old, witness} {
			ctx, cancel := context.WithTimeout(context.Background(), leadRetry)
			if got, err := c.nodes[i].store.ConfirmGone(ctx, name, id); got != Unknown || err == nil {
				t.Errorf("%s asked before the barrier says %s of %q, %v", c.nodes[i].id, got, name, err)
			}
			cancel()
		}
	}
	if _, err := s.Assignment("deleted", 0); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("ownership from the snapshot: %v", err)
	}
	if _, err := s.Accept(context.Background(), create("new")); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("a write before the barrier: %v", err)
	}

	release()
	c.waitLeader()
	for name, want := range map[string]Confirmation{"created": Live, "deleted": Gone, "never": Gone} {
		for _, i := range []int{old, witness} {
			id := map[string]model.Incarnation{"created": idB}[name]
			c.eventually(func() error { // the witness hears of the commits in between
				got, err := c.nodes[i].store.ConfirmGone(context.Background(), name, id)
				if err == nil && got != want {
					t.Errorf("%s says %s of %q after the barrier, want %s", c.nodes[i].id, got, name, want)
				}
				return err
			}, "the leader's word")
		}
	}
	c.converge()
}
