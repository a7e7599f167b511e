package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

// Place chooses owners for n new partitions of a create or a partition increase, on the
// leader. parentOwners are the owners of the parent's partitions of the same indexes,
// nil when there is no parent. done is called once, when the owners are applied or given
// up.
//
// While the cluster is forming (some voters have a member record, others none) it waits
// for the rest, up to 2 s from when that was first seen. Until done a create holds a
// share of the assignment lock: creates run side by side, and what one has chosen counts
// as owned for the next, but a sweep runs alone. Errors: model.ErrNoMember, which leaves
// the partitions unassigned (TC-17); model.ErrAllDraining (TC-16); model.ErrUnavailable
// when ctx ends first.
func (c *Controller) Place(ctx context.Context, n int, parentOwners []string) (owners []string, done func(), err error) {
	if err := c.awaitFormed(ctx); err != nil {
		return nil, nil, err
	}
	if err := c.assign.Acquire(ctx, 1); err != nil {
		return nil, nil, fmt.Errorf("%w: waiting to place %d partitions: %w", model.ErrUnavailable, n, err)
	}
	owners, err = c.choose(n, parentOwners)
	if err != nil {
		c.assign.Release(1)
		return nil, nil, err
	}
	return owners, sync.OnceFunc(func() {
		c.count(owners, -1)
		c.assign.Release(1)
	}), nil
}

// choose deals, and counts what it dealt as owned.
func (c *Controller) choose(n int, away []string) ([]string, error) {
	ids, err := receivers(c.store.Members())
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	owners := deal(n, ids, c.ownedNow, away)
	c.add(owners, 1)
	return owners, nil
}

// ownedNow is what a member owns or was just given; caller holds mu.
func (c *Controller) ownedNow(id string) int { return c.store.OwnedPartitions(id) + c.pending[id] }

// count counts owners in or out.
func (c *Controller) count(owners []string, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(owners, by)
}

// add is count for a caller that holds mu.
func (c *Controller) add(owners []string, by int) {
	for _, id := range owners {
		if id == "" {
			continue
		}
		if c.pending[id] += by; c.pending[id] == 0 {
			delete(c.pending, id)
		}
	}
}

// awaitFormed waits out a forming cluster; only the end of ctx is an error.
func (c *Controller) awaitFormed(ctx context.Context) error {
	for {
		left := c.formingLeft()
		if left <= 0 {
			return nil
		}
		timer := c.clock.NewTimer(min(left, formingPoll))
		select {
		case <-timer.C():
		case <-c.quit.Done():
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: waiting for a forming cluster: %w", model.ErrUnavailable, ctx.Err())
		}
	}
}

// formingLeft is how much longer a create waits for voters without a member record. The
// time runs from when the cluster was first seen forming, so that a voter that never
// registers costs one wait, not one per create.
func (c *Controller) formingLeft() time.Duration {
	voters, recorded, _ := registered(c.store.Servers(), c.store.Members())
	c.mu.Lock()
	defer c.mu.Unlock()
	if recorded == 0 || recorded == voters {
		c.forming = time.Time{}
		return 0
	}
	now := c.clock.Now()
	if c.forming.IsZero() {
		c.forming = now
	}
	return formingWait - now.Sub(c.forming)
}
