package ingress

import "time"

// The bounds of the dispatcher (spec/storage-and-produce section 16.2).
const (
	windowPerDestination = 64
	windowMin            = 4096
	windowMax            = 65536
	queueMin             = 4096 // least per-destination queue cap, in records

	// lookaheadRecords bounds how far the frontier may run ahead of the
	// checkpoint: what a crash may commit twice, and four bytes each of memory.
	// It is 16 times the largest window at any number of destinations, so that
	// one stuck destination does not stop a small node after 65,536 records.
	lookaheadRecords = 16 * windowMax

	heldBytesMax = 256 << 20 // hung commits included

	handoverRecordsMax = 65536
	handoverBytesMax   = 64 << 20

	slotsMax         = 16 // commits in flight; hung ones do not count
	ownerSlotsMax    = 12 // of these to one other node, so that one that falls silent leaves room
	stuckSlotsMax    = 4  // to one where a commit hangs or failed last
	lingerRecords    = 64 // a queue this long does not linger
	freeFlightsMax   = slotsMax
	freeFlightCap    = 8192 // records; a larger batch's memory is not kept
	confirmsMax      = 4    // confirmations asked at once
	confirmedIDsMax  = 4096
	failedConfirmMax = 4 // distinct ids a failed commit asks about

	readChunk = 1024 // records read before results are looked at again
)

// The times of the dispatcher (spec/storage-and-produce section 16.2).
const (
	hungAfter        = time.Second
	lingerMax        = 50 * time.Millisecond
	commitBudget     = 30 * time.Second
	probeBudget      = 5 * time.Second
	failureBackoff   = time.Second
	rerouteGrace     = 3 * time.Second
	rescanBackstop   = time.Second
	unresolvedRetry  = 10 * time.Millisecond
	unconfirmedFor   = time.Second
	confirmBudget    = 5 * time.Second
	sweepEvery       = 10 * time.Second
	logEvery         = time.Minute // per destination or topic
	stopGrace        = 5 * time.Second
	stopAbandonAfter = 2 * time.Second // after the commits left were cancelled
)

// window is W, the records the dispatcher works on at once.
func window(destinations int) int {
	return min(max(windowPerDestination*destinations, windowMin), windowMax)
}

// queueCap is Q, the records one destination may queue.
func queueCap(destinations int) int { return max(window(destinations)/4, queueMin) }

// heldMax is the number of held records, hung commits aside, at which the
// reader stops.
func heldMax(destinations int) int {
	return max(window(destinations), 4*queueCap(destinations))
}
