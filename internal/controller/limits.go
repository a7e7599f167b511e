package controller

import "time"

// Times of the loop (spec/cluster-and-network section 23; "Leader and controller" of
// the metastore's design).
const (
	watchEvery = 250 * time.Millisecond // the membership watch
	tickEvery  = 10 * time.Second       // dead marking and sweep
	pruneTicks = 6                      // ticks between two prunes
	stallMax   = time.Second            // what a gap between two looks counts for at most
	deadAfter  = 30 * time.Second       // of silence in this loop's own time

	settleWait  = time.Second           // the sweep waits this long after the last arrival
	formingWait = 2 * time.Second       // creates wait this long for a forming cluster
	formingPoll = 25 * time.Millisecond // how often such a create looks again
)

// Bounds of one pass.
const (
	barrierTimeout = 5 * time.Second
	passTimeout    = 5 * time.Second // of everything a pass proposes
	sweepTopics    = 256             // topics placed in one pass; the next look goes on
	pruneRows      = 1000            // orphan rows handled in one pass
	inFlight       = 16              // entries proposed at once, so that they share syncs
)

// assignWhole is the whole of the assignment lock: what a sweep holds. A create holds 1.
const assignWhole = 1 << 20
