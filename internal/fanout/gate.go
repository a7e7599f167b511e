package fanout

import "time"

// The delay gate (founding document, "Delay gate"): a cursor with a delay reads only
// records committed at or before now minus the delay, by this node's wall clock.
// Commit times never decrease along a partition, so the first record that is not due
// says when to look again, and all behind it cost nothing.

// gateAt is the newest commit time, in Unix milliseconds, that is due; 0 = no gate.
func gateAt(nowMS, delayMS int64) int64 {
	if delayMS <= 0 {
		return 0
	}
	return max(nowMS-delayMS, 1) // 0 would lift the gate
}

// dueIn is how long to sleep until a record committed at committedMS is due: at most
// dueWakeMax, because a wall clock may be set meanwhile; 0 when it is due.
func dueIn(nowMS, committedMS, delayMS int64) time.Duration {
	left := committedMS - gateAt(nowMS, delayMS)
	if delayMS <= 0 || left <= 0 {
		return 0
	}
	return min(time.Duration(min(left, int64(dueWakeMax/time.Millisecond)))*time.Millisecond, dueWakeMax)
}

// dueLag is how many seconds a record is overdue; 0 while it is not due.
func dueLag(nowMS, committedMS, delayMS int64) float64 {
	return float64(max(nowMS-delayMS-committedMS, 0)) / 1000
}
