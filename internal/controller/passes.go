package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

// markSilent marks members dead that were silent for 30 s. Who looks silent is judged
// again behind a barrier: a heartbeat that is committed counts, applied or not.
func (c *Controller) markSilent(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	if len(c.silent(c.store.Members())) > 0 {
		if err := c.store.Barrier(ctx); err != nil {
			c.log.Debug("controller: barrier before dead marking", "err", err)
			return
		}
	}
	members := c.store.Members()
	v := judge(c.silent(members), c.store.Servers(), members, c.self)
	c.breaker(v)
	for _, m := range v.dead {
		_, err := c.store.Accept(ctx, metastore.MarkSilent{ID: m.ID, HeartbeatAt: m.HeartbeatAt})
		switch {
		case err == nil:
			c.log.Info("controller: member marked dead", "member", m.ID,
				"silent_for", c.reign.ran-c.reign.heard[m.ID].since, "heartbeat_at", m.HeartbeatAt)
		case errors.Is(err, model.ErrUnavailable):
			c.log.Debug("controller: could not mark a member dead", "member", m.ID, "err", err)
			return
		default: // heard meanwhile, or removed
			c.log.Debug("controller: a dead mark was refused", "member", m.ID, "err", err)
		}
	}
}

// breaker says once per streak that voters are spared, and when that is over.
func (c *Controller) breaker(v verdict) {
	refuses := len(v.refused) > 0
	switch {
	case refuses && !c.reign.refusing:
		c.metrics.refused.Set(1)
		c.log.Error("controller: refusing to mark voters dead: fewer than a quorum would stay alive, so their heartbeats fail to reach this leader",
			"refused", v.refused, "alive_voters_after", v.aliveAfter, "quorum", v.quorum, "voters", v.voters)
	case !refuses && c.reign.refusing:
		c.metrics.refused.Set(0)
		c.log.Info("controller: dead-marking breaker cleared", "voters", v.voters)
	}
	c.reign.refusing = refuses
}

// sweep places partitions that have no owner, of up to sweepTopics topics.
func (c *Controller) sweep(ctx context.Context) {
	r := c.reign
	r.unswept = false
	version := c.store.Version(metastore.DomainTopics)
	if r.scanned && version == r.placed {
		return
	}
	left, colocated := c.scan()
	c.metrics.colocated.Set(float64(colocated))
	r.placed, r.scanned = version, len(left) == 0
	if r.scanned {
		r.drained = false
		return
	}
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	if err := c.assign.Acquire(ctx, assignWhole); err != nil {
		return // creates held on to it; the next tick tries again
	}
	defer c.assign.Release(assignWhole)
	ids, err := receivers(c.store.Members())
	if err != nil {
		c.unplaced(len(left), err)
		return
	}
	r.drained = false
	if err := c.fill(ctx, left, ids); err != nil {
		c.log.Debug("controller: placement pass ended early", "err", err)
		return
	}
	r.unswept = len(left) == sweepTopics
}

// unplaced says, once per episode, that partitions have no owner for want of members
// that do not drain.
func (c *Controller) unplaced(topics int, why error) {
	if errors.Is(why, model.ErrAllDraining) && !c.reign.drained {
		c.reign.drained = true
		c.log.Error("every live member is being decommissioned, so new partitions have no owner until a member is back, "+
			"a decommission is canceled or a node is added", "topics", topics)
	}
}

// scan walks all topics: up to sweepTopics names with partitions without owner, and how
// many child partitions lie with their parent's of the same index.
func (c *Controller) scan() (left []string, colocated int) {
	c.store.Range(func(v *model.TopicView) bool {
		unowned := false
		parents := c.parentOwners(v)
		for p, id := range v.Owners {
			switch {
			case id == "":
				unowned = true
			case p < len(parents) && parents[p] == id:
				colocated++
			}
		}
		if unowned && len(left) < sweepTopics {
			left = append(left, v.Name)
		}
		return true
	})
	return left, colocated
}

// parentOwners are the owners of the partitions of a child's parent, nil without one.
func (c *Controller) parentOwners(v *model.TopicView) []string {
	if v.Parent == "" {
		return nil
	}
	parent, ok := c.store.Topic(v.Parent)
	if !ok {
		return nil
	}
	return parent.Owners
}

// fill places the partitions without owner of the named topics. The assignment lock is
// held, and each topic is read under it.
func (c *Controller) fill(ctx context.Context, topics, receivers []string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for _, entry := range c.plan(topics, receivers) {
		g.Go(func() error { return c.insert(ctx, entry) })
	}
	return g.Wait()
}

// plan deals the partitions without owner of the named topics, parents before children,
// then by name.
func (c *Controller) plan(topics, receivers []string) (entries []metastore.InsertPlacement) {
	var views []*model.TopicView
	for _, name := range topics {
		if v, ok := c.store.Topic(name); ok {
			views = append(views, v)
		}
	}
	slices.SortFunc(views, func(a, b *model.TopicView) int {
		return cmp.Or(cmp.Compare(min(len(a.Parent), 1), min(len(b.Parent), 1)), cmp.Compare(a.Name, b.Name))
	})
	dealt := map[string]int{}
	owned := func(id string) int { return c.store.OwnedPartitions(id) + dealt[id] }
	planned := map[string][]string{} // owners by topic, with what is dealt here
	for _, v := range views {
		parents, ok := planned[v.Parent]
		if !ok {
			parents = c.parentOwners(v)
		}
		entry, owners := insertion(v, receivers, owned, parents)
		for _, id := range entry.Owners {
			dealt[id]++
		}
		planned[v.Name] = owners
		if entry.Owners != nil {
			entries = append(entries, entry)
		}
	}
	return entries
}

// insertion is the entry that gives every partition without owner one, and the owners
// with it; the entry names none when nothing is left to place.
func insertion(v *model.TopicView, receivers []string, owned func(id string) int, parents []string) (metastore.InsertPlacement, []string) {
	var free []int
	var away []string // of each free partition
	for p, id := range v.Owners {
		if id != "" {
			continue
		}
		free = append(free, p)
		off := ""
		if p < len(parents) {
			off = parents[p]
		}
		away = append(away, off)
	}
	entry := metastore.InsertPlacement{Topic: v.Name, ID: v.ID}
	if free == nil {
		return entry, v.Owners
	}
	entry.First = free[0]
	entry.Owners = make([]string, free[len(free)-1]-free[0]+1)
	owners := slices.Clone(v.Owners)
	for i, id := range deal(len(free), receivers, owned, away) {
		entry.Owners[free[i]-entry.First] = id
		owners[free[i]] = id
	}
	return entry, owners
}

// insert proposes a placement. What was refused (the topic is gone or another one, a
// member was removed) is read anew by the next pass.
func (c *Controller) insert(ctx context.Context, entry metastore.InsertPlacement) error {
	_, err := c.store.Accept(ctx, entry)
	if err != nil && !errors.Is(err, model.ErrUnavailable) {
		c.log.Debug("controller: a placement was refused", "topic", entry.Topic, "err", err)
		return nil
	}
	return err
}

// prune deletes assignment rows that belong to no partition. While a member does not
// apply that entry, each is reported once; the row names no data.
func (c *Controller) prune(ctx context.Context) {
	rows, err := c.store.OrphanPlacements(pruneRows)
	if err != nil {
		c.log.Error("controller: could not read the assignment rows", "err", err)
		return
	}
	if len(rows) == 0 {
		return
	}
	if err := c.store.Applies(metastore.TypePrunePlacement); err != nil {
		c.reportOrphans(rows)
		return
	}
	pruned, err := c.pruneAll(ctx, rows)
	if err != nil {
		c.log.Debug("controller: pruning ended early", "err", err)
	}
	if pruned > 0 {
		c.log.Info("controller: pruned assignment rows that belonged to no partition", "rows", pruned)
	}
}

// pruneAll proposes the prune of each row and counts those that went. One that is
// refused belongs to a partition by now.
func (c *Controller) pruneAll(ctx context.Context, rows []model.PartitionKey) (pruned int, err error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	for _, row := range rows {
		_, err := c.store.Accept(ctx, metastore.PrunePlacement{Topic: row.Topic, Partition: row.Partition})
		if errors.Is(err, model.ErrUnavailable) {
			return pruned, err
		}
		if err == nil {
			pruned++
		}
	}
	return pruned, nil
}

// reportOrphans names each row once, in a term, while it is there.
func (c *Controller) reportOrphans(rows []model.PartitionKey) {
	known := make(map[model.PartitionKey]bool, len(rows))
	for _, row := range rows {
		if !c.reign.orphans[row] {
			c.log.Error(fmt.Sprintf("orphan assignment row for %s; it is pruned once every member runs 3.1.0", row))
		}
		known[row] = true
	}
	c.reign.orphans = known
}
