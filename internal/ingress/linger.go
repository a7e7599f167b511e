package ingress

import "time"

// Pacing of commits to this node's own owner. Its fsyncs share the disk with the
// group commit producers wait for, so commits to it leave together, and after
// they landed the disk is left to the WAL for a few times what they took
// (spec/performance: the second write must commit seldom and much, never in
// lock-step with the WAL's sync).
const (
	restFactor = 3
	restMax    = 20 * time.Millisecond
)

// latencyWeight is the weight of a new measurement in an owner's moving average:
// one in eight (spec/storage-and-produce section 16.2).
const latencyWeight = 8

// owner is what the dispatcher knows of one member it commits to.
type owner struct {
	node      string
	local     bool
	latency   time.Duration // moving average of commits; 0 = not measured
	restUntil time.Time     // local only: no commit leaves before

	inFlight int            // commits to it, hung ones not
	hung     int            // commits to it that hang
	failing  bool           // the last commit that ended failed
	crowd    []*destination // due, and waiting for it to have room
	buried   bool           // its crowd knows that it is dead
}

// measured notes a commit that took d and ended now.
func (o *owner) measured(d time.Duration, now time.Time) {
	d = max(d, 1)
	if o.latency == 0 {
		o.latency = d
	} else {
		o.latency += (d - o.latency) / latencyWeight
	}
	if o.local {
		o.restUntil = now.Add(min(restFactor*o.latency, restMax))
	}
}

// lingerUntil is when a queue may leave although another commit is in flight:
// at once when it is long, nothing is measured yet, or the destination is being
// probed; else after twice the owner's latency, 50 ms at most, counted from the
// oldest record queued.
func lingerUntil(oldest time.Time, queued int, latency time.Duration, probing bool) time.Time {
	if queued >= lingerRecords || latency == 0 || probing {
		return oldest
	}
	return oldest.Add(min(2*latency, lingerMax))
}
