// Package partition is one owned partition at work: its log, the leases and the
// settled position of its queue, and the combiner that turns many commits into one
// fsync. The produce lock serialises everything that changes the log's end.
//
// # Locks
//
// Three locks, taken in this order and never in another:
//
//	produce lock   one commit cycle, or one close, freeze or retention pass
//	shard lock     the lease table; held for arithmetic only, never across I/O
//	combiner lock  the queue of waiting batches; held for list work only
//
// Readers of the log (consume, replay) take none of them for the read itself: a
// record is reserved under the shard lock first and read afterwards, so no two
// consumers read the same live copy (spec/consume section 5.1).
//
// # Queue state
//
// The lease table is built from disk at the first queue touch and lives as long as
// the Partition. Leases are memory only; what was settled reaches the disk through
// the position committer, which is told after the shard lock was released.
package partition
