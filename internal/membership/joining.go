package membership

import (
	"context"
	"time"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/peer"
)

// codeOlderRelease is the code of a 409 to a joiner of an older release.
const codeOlderRelease = "older_release"

// standing is how a node stands to its cluster, by its own Raft.
type standing uint8

const (
	outside    standing = iota // nobody has admitted it
	following                  // it sees a leader; it has a vote, or has not caught up yet
	promotable                 // it sees a leader, has caught up, and has no vote
	leaderless                 // it was admitted once, and sees no leader
)

// joining is the loop that has this node admitted, asks for its vote, and joins again
// when it has lost its leader. Its owner is one goroutine.
type joining struct {
	m    *Membership
	walk walker

	lost   time.Time // since when it is leaderless; zero = it is not
	warned bool      // the line of this leaderless stretch is written
	said   string    // the last outcome a line was written of
}

func (j *joining) run() {
	j.m.every(func() time.Duration {
		j.step(j.m.ctx)
		return j.m.pace.join
	})
}

// step looks once, and asks once where asking may help.
func (j *joining) step(ctx context.Context) {
	s, own := j.standing()
	if s != leaderless {
		j.lost, j.warned = time.Time{}, false
	}
	switch s {
	case outside:
		j.ask(ctx, s)
	case following:
		if own != nil && own.Voter {
			j.said = ""
		}
	case promotable:
		j.ask(ctx, s)
	case leaderless:
		if j.overdue(own != nil && !own.Voter) {
			j.ask(ctx, s)
		}
	}
}

// standing reads it from this node's Raft, with this node's own server, nil when it is
// not in the configuration. An admitted node is one whose Raft has a configuration: only
// a bootstrap or a leader gives it one.
func (j *joining) standing() (s standing, own *metastore.Server) {
	servers := j.m.store.Servers()
	own = find(servers, j.m.self.ID)
	leader, _ := j.m.store.Leader()
	switch {
	case leader == "" && len(servers) == 0:
		return outside, nil
	case leader == "":
		return leaderless, own
	case own != nil && !own.Voter && j.m.store.AppliedCaughtUp() == nil:
		return promotable, own
	}
	return following, own
}

// find is a server of the configuration, nil when it is not in it.
func find(servers []metastore.Server, id string) *metastore.Server {
	for i := range servers {
		if servers[i].ID == id {
			return &servers[i]
		}
	}
	return nil
}

// overdue reports whether this node has been without a leader for so long that it joins
// again, as an initial member too: it may have been removed meanwhile, or moved to
// another address.
func (j *joining) overdue(nonvoter bool) bool {
	now := j.m.clock.Now()
	if j.lost.IsZero() {
		j.lost = now
	}
	if now.Sub(j.lost) < j.m.pace.leaderless {
		return false
	}
	if !j.warned {
		j.warned = true
		line := "no raft leader for a while; running the cluster join loop"
		if nonvoter {
			line = "raft non-voter has had no leader for a while; running the cluster join loop"
		}
		j.m.log.Warn(line, "leaderless_for", now.Sub(j.lost))
	}
	return true
}

// ask has the cluster asked once: the leader this node knows, the configured peers, and
// the leaders it has learned of.
func (j *joining) ask(ctx context.Context, s standing) {
	req := peer.JoinRequest{
		ID: j.m.self.ID, RaftAddr: j.m.self.RaftAddr, EntryTypes: j.m.store.Report().EntryTypes,
		// Once anything has arrived here the declaration would be a lie that costs a
		// later vote, or lifts a later tombstone.
		Empty: j.m.self.Empty && j.m.store.Blank(),
	}
	var targets []string
	if _, addr := j.m.Hint(); validHint(addr) {
		targets = append(targets, addr)
	}
	targets = append(targets, addresses(j.m.peers, req.ID)...)
	targets = append(targets, j.walk.known...)
	if d, ok := j.walk.attempt(ctx, req, targets, map[string]bool{}); ok {
		j.say(d, s, req.EntryTypes)
	}
}

// say writes a line about a decision that differs from the one before.
func (j *joining) say(d decision, s standing, entryTypes int) {
	key := d.Admission + " " + d.Reason
	if d.refused() {
		key = "refused " + d.Code
	}
	if key == j.said {
		return
	}
	j.said = key
	log := j.m.log
	switch {
	case d.refused() && d.Code == codeOlderRelease:
		log.Error("cluster join refused: this node runs an older release than every member of the cluster",
			"via", d.via, "entry_types", entryTypes, "body", d.Body)
	case d.refused():
		log.Error("cluster join refused: this node was decommissioned and removed", "via", d.via, "body", d.Body)
	case d.Admission == admissionDeferred && s == promotable:
		log.Info("cluster join: caught up as a raft non-voter; the leader defers promotion", "via", d.via, "reason", d.Reason)
	default:
		log.Info("cluster join: the leader has this node", "via", d.via, "status", d.Admission, "reason", d.Reason)
	}
}
