package membership

import (
	"fmt"
	"time"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

// candidate is what the leader knows of a non-voter that asks for a vote.
type candidate struct {
	led     time.Duration // how long this node has led
	ledMin  time.Duration
	failing error         // why heartbeats to it fail; nil = none failed of late
	record  *model.Member // nil = none
}

// deferral is why a non-voter is not promoted yet, "" when it may be. Nothing is asked
// about the other voters: if the configuration can commit at all, those the leader
// reaches are a quorum of it, and with one more that it reaches a quorum of the larger
// one too.
func (c candidate) deferral() string {
	switch {
	case c.led < c.ledMin:
		// A heartbeat to a node that drops packets fails only after the transport's 10 s:
		// a younger leader cannot tell such a node from a healthy one.
		return fmt.Sprintf("the leader has led for less than %s", c.ledMin)
	case c.failing != nil:
		return fmt.Sprintf("the leader's heartbeats to it are failing: %v", c.failing)
	case c.record == nil:
		return "it has no member record yet"
	case c.record.Status != model.MemberAlive:
		return fmt.Sprintf("its member record says %s", c.record.Status)
	case c.record.Draining:
		return "it is draining"
	}
	return ""
}

// sufficient reports whether the voters but one can commit what the leader proposes: those
// that answer it and the leader itself are a majority of them. The leader is a voter.
func sufficient(servers []metastore.Server, leader, without string, answers reach) bool {
	voters, reached := 0, 0
	for _, s := range servers {
		if !s.Voter || s.ID == without {
			continue
		}
		voters++
		if s.ID == leader || answers(s) {
			reached++
		}
	}
	return 2*reached > voters
}
