package fanout

import "time"

// Bounds and cadences (the table "Fan-out constants" of the design; spec/remote-replication
// section A8).
const (
	reconcileEvery   = time.Second      // wanted cursors against running ones
	reconcileForced  = 30 * time.Second // a full pass at least this often
	sweepTicks       = 30               // caught-up ticks between two looks for orphaned cursor files
	sweepTopicsMax   = 256              // topic directories one such look goes through; the next continues
	commitsInFlight  = 16               // child partitions of one slab committed to at once
	quickTries       = 3                // of a failing commit, before the slab backs off
	quickRetryFirst  = 100 * time.Millisecond
	retryBackoff     = time.Second      // between rounds over what failed
	dueWakeMax       = 30 * time.Second // longest sleep of a delay cursor: wall clocks step
	commitRecordsMax = 65_536           // of one commit; its bytes are the node-RPC's to bound
	commitTimeout    = 30 * time.Second // of one commit to a child partition's owner
	confirmTimeout   = 5 * time.Second  // of one question to the leader
	stopGrace        = 5 * time.Second  // for the slabs in flight when the engine closes
	tornReads        = 3                // reads of a cursor file that does not check out
	tornReadsApart   = 10 * time.Millisecond
	startsAtOnce     = 16 // cursors reading their files at the same time
	warnEvery        = time.Minute
	cursorFileMax    = 4096 // bytes of a cursor file that are looked at
	nativeBucketsMax = 100
)

// Defaults of Options (spec/remote-replication section A8, settings).
const (
	DefaultMaxBatchRecords = 4096
	DefaultMaxBatchBytes   = 4 << 20
	DefaultLinger          = 25 * time.Millisecond
)
