package fanout

import (
	"time"

	"github.com/narad-mq/narad/internal/metastore"
)

// versions are the counters of the replica that a pass depends on. Member heartbeats
// and drain flags are not among them.
type versions struct {
	topics, assignments, schemas, users uint64
}

func versionsOf(r Replica) versions {
	return versions{
		topics:      r.Version(metastore.DomainTopics),
		assignments: r.Version(metastore.DomainAssignments),
		schemas:     r.Version(metastore.DomainSchemas),
		users:       r.Version(metastore.DomainUsers),
	}
}

// schedule decides which ticks make a pass (founding document, "Cursor placement").
type schedule struct {
	seen   versions  // as of the last pass
	last   time.Time // of the last pass
	again  bool      // the last pass failed or left work behind
	behind bool      // the replica was not current at the last tick
	ticks  int       // caught-up ones, skipped ones included
}

func newSchedule() schedule { return schedule{again: true} }

// tick says what this tick does. current is whether the replica is provably so; exited,
// whether some cursor has ended since the last pass.
func (s *schedule) tick(now time.Time, v versions, current, exited bool) (pass, sweep bool) {
	if !current {
		s.behind = true
		s.again = s.again || exited
		return false, false
	}
	s.ticks++
	sweep = s.ticks%sweepTicks == 0
	pass = sweep || s.again || exited || s.behind || v != s.seen || now.Sub(s.last) >= reconcileForced
	s.behind = false
	if pass {
		s.seen, s.last, s.again = v, now, false
	}
	return pass, sweep
}

// unfinished has the next tick make another pass.
func (s *schedule) unfinished() { s.again = true }
