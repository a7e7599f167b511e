package membership

import "time"

// Cadences and bounds of the cluster lifecycle document and spec/cluster-and-network
// sections 5.3 and 23.
const (
	joinEvery       = 2 * time.Second        // a join attempt, a promotion request
	joinTimeout     = 2 * time.Second        // what one peer gets to answer a join
	leaderlessAfter = 15 * time.Second       // without a leader, a member joins again
	hintsFollowed   = 4                      // leader addresses followed in one attempt
	leadersKept     = 8                      // leader addresses remembered for later ones
	hintBytesMax    = 261                    // of a leader address, host:port
	probeRounds     = 3                      // before an initial member bootstraps
	probePause      = time.Second            // between two of them
	beatEvery       = 5 * time.Second        // a heartbeat
	beatFirstEvery  = 250 * time.Millisecond // the same, until the first one arrived
	beatTimeout     = 5 * time.Second        // what the leader gets to store one
	failingBeats    = 3                      // failed heartbeats in a row that are worth a line,
	failingFor      = 10 * time.Second       // if they took as long as this
	failingEvery    = time.Minute            // and again after that
	ledMin          = 12 * time.Second       // what a leader has led before it trusts its heartbeats
	hearFor         = time.Second            // what servers get to answer a heartbeat before a vote is given or taken
	hearPoll        = 20 * time.Millisecond  // and how often that is looked at
	rejectedEvery   = time.Minute            // a line per peer and status of an odd answer
	idBytesMax      = 128                    // of a node id (spec/operations section 2.4)
)

// pace is the cadences of one node; tests over real Raft hurry them.
type pace struct {
	join, leaderless, led time.Duration
	beat, beatFirst       time.Duration
}

func lifecyclePace() pace {
	return pace{join: joinEvery, leaderless: leaderlessAfter, led: ledMin, beat: beatEvery, beatFirst: beatFirstEvery}
}
