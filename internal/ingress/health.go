package ingress

import "time"

// state is how a destination takes part (spec/storage-and-produce section 16.1).
type state uint8

const (
	ready state = iota
	hung
	failing
	unresolved
)

func (s state) String() string {
	return [...]string{"ready", "hung", "failing", "unresolved"}[s]
}

// action is what the scheduler has to do after a transition.
type action uint8

const (
	// returnQueue: what is queued goes back to the WAL.
	returnQueue action = 1 << iota
	// keepProbe: with returnQueue, the first record stays queued.
	keepProbe
	// rescan: records left in the WAL may be placed again.
	rescan
)

// outcome is how a commit ended.
type outcome uint8

const (
	committed outcome = iota
	// refused: the owner has another incarnation; not a failure.
	refused
	failed
)

// health is the state machine of one destination: no I/O, no clock, every call
// is told what time it is.
type health struct {
	inFlight bool
	isHung   bool
	started  time.Time // of the commit in flight

	failingSince time.Time // start of the first failed attempt; zero = not failing
	retryAt      time.Time // of the probe, while failing
	dead         bool      // membership reported the owner dead, while failing or hung

	lookAt       time.Time // of the next owner lookup; zero = resolved
	blockedUntil time.Time // takes nothing before: refused or unconfirmed records
}

func (h *health) state() state {
	switch {
	case h.isHung:
		return hung
	case !h.failingSince.IsZero():
		return failing
	case !h.lookAt.IsZero():
		return unresolved
	}
	return ready
}

// launched notes that a commit left.
func (h *health) launched(now time.Time) { h.inFlight, h.started = true, now }

// tick notes the passing of time: a commit in flight for longer than a second
// makes the destination hung.
func (h *health) tick(now time.Time) action {
	if !h.inFlight || h.isHung || now.Sub(h.started) <= hungAfter {
		return 0
	}
	h.isHung = true
	return returnQueue
}

// landed notes the end of the commit in flight.
func (h *health) landed(o outcome, now time.Time) action {
	started := h.started
	h.inFlight, h.isHung, h.started = false, false, time.Time{}
	switch o {
	case committed:
		h.failingSince, h.retryAt, h.dead = time.Time{}, time.Time{}, false
		return rescan
	case refused:
		h.failingSince, h.retryAt, h.dead = time.Time{}, time.Time{}, false
		h.blockedUntil = now.Add(rescanBackstop)
		return returnQueue
	}
	if h.failingSince.IsZero() {
		h.failingSince = started
	}
	h.retryAt = now.Add(failureBackoff)
	return returnQueue | keepProbe
}

// unowned notes that no owner is known or may be asked now. It is not a failure.
func (h *health) unowned(now time.Time) action {
	h.lookAt = now.Add(unresolvedRetry)
	return returnQueue | keepProbe
}

// owned notes that an owner is known, and whether membership says it is alive.
// A dead owner makes the destination failing at once; one seen alive again is
// probed without waiting for the backoff.
func (h *health) owned(alive bool, now time.Time) action {
	var act action
	if !h.lookAt.IsZero() {
		h.lookAt = time.Time{}
		act = rescan
	}
	switch {
	case alive && h.dead:
		h.dead, h.retryAt = false, now
	case !alive && !h.dead:
		h.dead = true
		if h.failingSince.IsZero() {
			h.failingSince, h.retryAt = now, now
		}
		act |= returnQueue | keepProbe | rescan
	}
	return act
}

// block keeps the destination from taking anything for a while.
func (h *health) block(until time.Time) { h.blockedUntil = until }

// rerouting reports whether records of this destination go elsewhere: its owner
// is dead, or commits have failed for the grace.
func (h *health) rerouting(now time.Time) bool {
	if h.dead {
		return true
	}
	return !h.failingSince.IsZero() && now.Sub(h.failingSince) >= rerouteGrace
}

// takes reports whether a destination that has queued records waiting may queue
// one more.
func (h *health) takes(queued, queueCap int, now time.Time) bool {
	if now.Before(h.blockedUntil) {
		return false
	}
	switch h.state() {
	case hung:
		return false
	case failing, unresolved:
		return queued == 0 && !h.inFlight
	}
	return queued < queueCap
}

// wantsProbe reports whether a rerouting destination should get the next record
// itself, to find out whether its owner is back.
func (h *health) wantsProbe(queued int, now time.Time) bool {
	return queued == 0 && !h.inFlight && !now.Before(h.retryAt) && !now.Before(h.blockedUntil)
}

// budget is how long the next commit may take.
func (h *health) budget() time.Duration {
	if h.failingSince.IsZero() {
		return commitBudget
	}
	return probeBudget
}
