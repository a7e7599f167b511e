package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

// pruning has the leader's store show rows of no partition until they are pruned; no
// entry of this release leaves any behind.
func (r *rig) pruning(n *rigNode, rows ...model.PartitionKey) {
	n.seam.set(func(s *seam) {
		s.orphans = rows
		s.accept = func(ctx context.Context, c metastore.Command) (metastore.Result, error) {
			res, err := s.Store.Accept(ctx, c)
			if p, ok := c.(metastore.PrunePlacement); ok && err == nil {
				s.set(func(s *seam) {
					s.orphans = slices.DeleteFunc(slices.Clone(s.orphans), func(k model.PartitionKey) bool {
						return k == model.PartitionKey{Topic: p.Topic, Partition: p.Partition}
					})
				})
			}
			return res, err
		}
	})
}

func (r *rig) orphans(n *rigNode) (left int) {
	n.seam.set(func(s *seam) { left = len(s.orphans) })
	return left
}

// Orphan rows go when a leader takes over, and about a minute later. A row that belongs
// to a partition stays, whatever this node thought.
func TestOrphanRowsArePruned(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	r.propose(metastore.CreateTopic{Topic: topicOf("live", 2), Owners: []string{leader.id, leader.id}})
	r.pruning(leader, model.PartitionKey{Topic: "gone", Partition: 0}, model.PartitionKey{Topic: "live", Partition: 1}, model.PartitionKey{Topic: "live", Partition: 2})
	r.govern()
	if got := r.orphans(leader); got != 1 {
		t.Errorf("%d rows left at the start of the term, want the live one", got)
	}
	if got := r.owners("live"); got[1] != leader.id {
		t.Error("a live row was pruned")
	}
	r.wantLines(1, "controller: pruned assignment rows that belonged to no partition")
	r.wantLines(1, "rows=2")
	r.pruning(leader, model.PartitionKey{Topic: "gone", Partition: 1})
	r.pass(pruneTicks*tickEvery - watchEvery)
	if got := r.orphans(leader); got != 1 {
		t.Error("pruned before a minute was over")
	}
	r.pass(watchEvery)
	if got := r.orphans(leader); got != 0 {
		t.Error("not pruned after a minute")
	}
}

// Until every member applies the prune, each row is reported once.
func TestOrphanRowsAreReportedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	r.pruning(leader, model.PartitionKey{Topic: "gone", Partition: 0}, model.PartitionKey{Topic: "gone", Partition: 7})
	leader.seam.set(func(s *seam) { s.applies = errors.New("narad-9 runs 3.0") })
	r.govern()
	r.pass(3 * time.Minute)
	r.wantLines(1, "orphan assignment row for gone/0; it is pruned once every member runs 3.1.0")
	r.wantLines(1, "orphan assignment row for gone/7; it is pruned once every member runs 3.1.0")
	if got := r.orphans(leader); got != 2 {
		t.Errorf("%d rows left", got)
	}
	leader.seam.set(func(s *seam) { s.applies = nil })
	r.pass(time.Minute)
	if got := r.orphans(leader); got != 0 {
		t.Errorf("%d rows left once everybody applies the prune", got)
	}
}

// At most pruneRows rows a pass.
func TestPruneIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	rows := make([]model.PartitionKey, pruneRows+1)
	for p := range rows {
		rows[p] = model.PartitionKey{Topic: "gone", Partition: p}
	}
	r.pruning(leader, rows...)
	proposed := 0
	leader.seam.set(func(s *seam) {
		s.accept = func(context.Context, metastore.Command) (metastore.Result, error) {
			proposed++
			return metastore.Result{}, nil
		}
	})
	r.govern()
	if proposed != pruneRows {
		t.Errorf("%d rows proposed in one pass, want %d", proposed, pruneRows)
	}
}
