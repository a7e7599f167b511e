package controller

import (
	"context"
	"time"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

// reign is what the loop knows in one term of this node as the leader. Times are the
// loop's own: how long it had run in the term.
type reign struct {
	term    uint64
	ran     time.Duration
	looked  time.Time // at the last look
	ticks   int
	heard   map[string]heard // by member id
	members uint64           // version of the member table heard shows
	arrived time.Duration    // when a member last turned alive
	unswept bool             // a sweep is due, for arrivals or for what one pass left

	placed   uint64 // version of the topics that had every partition placed
	scanned  bool   // placed is set
	refusing bool   // the breaker is open
	drained  bool   // the line about draining members was written
	orphans  map[model.PartitionKey]bool
}

// heard is the last heartbeat of a member and when the loop first saw it.
type heard struct {
	at     int64 // as on the record
	since  time.Duration
	status model.MemberStatus
}

// look is one turn of the watch.
func (c *Controller) look(ctx context.Context) {
	term := c.store.LeaderTerm()
	if c.reign != nil && c.reign.term != term {
		c.abdicate()
	}
	if term == 0 || c.reign == nil && !c.ascend(ctx, term) {
		return
	}
	r := c.reign
	now := c.clock.Now()
	r.ran += min(now.Sub(r.looked), stallMax)
	r.looked = now
	c.observe()
	c.formingLeft() // so that the wait begins before the first create
	switch {
	case r.ran >= time.Duration(r.ticks+1)*tickEvery:
		r.ticks++
		c.markSilent(ctx)
		c.sweep(ctx)
		if r.ticks%pruneTicks == 0 {
			c.prune(ctx)
		}
	case r.unswept && c.settled():
		c.sweep(ctx)
	}
}

// ascend begins a term behind its barrier; false when that has not passed yet.
func (c *Controller) ascend(ctx context.Context, term uint64) bool {
	behind, cancel := context.WithTimeout(ctx, barrierTimeout)
	defer cancel()
	if err := c.store.Barrier(behind); err != nil {
		c.log.Debug("controller: barrier of a new term", "term", term, "err", err)
		return false
	}
	c.reign = &reign{term: term, looked: c.clock.Now(), heard: map[string]heard{}, orphans: map[model.PartitionKey]bool{}}
	c.log.Info("controller: leadership gained", "node", c.self, "term", term)
	c.observe()
	c.prune(ctx)
	return true
}

// abdicate ends a term. What was seen in it says nothing in another one.
func (c *Controller) abdicate() {
	c.log.Info("controller: leadership lost", "node", c.self, "term", c.reign.term)
	c.reign = nil
	c.metrics.reset()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forming = time.Time{}
}

// observe notes the heartbeats that are new since the last look, and who turned alive.
func (c *Controller) observe() {
	r := c.reign
	version := c.store.Version(metastore.DomainMembers)
	if len(r.heard) > 0 && version == r.members {
		return
	}
	r.members = version
	members := c.store.Members()
	known := make(map[string]heard, len(members))
	for _, m := range members {
		old, ok := r.heard[m.ID]
		h := heard{at: m.HeartbeatAt, since: r.ran, status: m.Status}
		if ok && old.at == m.HeartbeatAt {
			h.since = old.since
		}
		known[m.ID] = h
		if m.Status != model.MemberAlive || ok && old.status == model.MemberAlive {
			continue
		}
		r.arrived, r.unswept = r.ran, true
		if ok {
			c.log.Info("controller: member seen alive again", "member", m.ID)
		}
	}
	r.heard = known
}

// settled tells whether a sweep for arrivals may begin: every voter is alive, or the
// last arrival was 1 s ago.
func (c *Controller) settled() bool {
	if c.reign.ran-c.reign.arrived >= settleWait {
		return true
	}
	voters, _, alive := registered(c.store.Servers(), c.store.Members())
	return alive == voters
}

// silent are the members on record as alive whose heartbeat has not changed for 30 s of
// this loop's time. One that changed since the last look is none of them.
func (c *Controller) silent(members []model.Member) []model.Member {
	var out []model.Member
	for _, m := range members {
		h, ok := c.reign.heard[m.ID]
		if ok && m.ID != c.self && m.Status == model.MemberAlive && h.at == m.HeartbeatAt && c.reign.ran-h.since >= deadAfter {
			out = append(out, m)
		}
	}
	return out
}
