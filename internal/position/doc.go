// Package position keeps the settled frontier of each partition on disk: the two
// state files, their recovery, and the one goroutine per node that writes them
// (spec/consume section 10, spec/storage-and-produce section 12).
//
// # Scope and version
//
// Format 1. Two files in the partition directory, mode 0600, created and written
// by the Committer only. Integers are big-endian.
//
// # consumer.offset
//
// Empty, or one small durable fact with magic NCO1 (package disk) whose value is
// the last offset of the resolved prefix, -1 = none. Overwritten in place, within
// one sector. It trails consumer.ahead by about LevelInterval while the node
// runs and equals it after a graceful stop.
//
// # consumer.ahead
//
// Two slots of 4,096 bytes, at 0 and 4096. The anchor is the newest slot known to
// be durable and is never written while it is the anchor; the other is the window.
// A successful sync of the window makes it the anchor.
//
//	 0      4        6       8     16          24            32     36     40     4092
//	+------+--------+-------+-----+-----------+-------------+------+------+------+------+
//	| NCA1 | format | flags | seq | committed | incarnation | runs | body | body | CRC  |
//	|      | u16=1  | u16   | u64 | i64       | 8 bytes     | u32  | len  | ...0 | u32  |
//	+------+--------+-------+-----+-----------+-------------+------+------+------+------+
//
// The body is one pair of uvarints per run of settled offsets above the prefix,
// ascending: the gap (>= 1) of unresolved offsets since the end of the run before,
// the first one counted from committed + 1, and the length (>= 1). Flag bit 0 says
// that the set did not fit and only its lowest offsets were kept. incarnation is
// the topic's id, zero = unknown. The CRC is CRC-32C over bytes 0 to 4091, checked
// at every read.
//
// # Limits
//
// 4,052 bytes of body; the default caps (at most 1,025 runs) always fit. A larger
// set keeps its lowest offsets: the rest is delivered again after a crash.
//
// # Write order and sync points
//
// First touch after a start or a forget (prime): extend a missing or short file
// with zeros, sync it and its directory. Only then is a window written, because
// the newest slot may have been in the page cache only. Then every tick T writes
// the window of each partition acked since, without sync; once per interval D each
// written partition is synced and the slots swap. A failed sync leaves the anchor
// alone, and nothing is synced again before the window was written again in full.
// consumer.offset follows at most every LevelInterval and at Close, after the sync
// that made its value durable in consumer.ahead.
//
// # Recovery
//
// Read both files. Of the valid slots that are not of another known incarnation
// the one with the larger seq counts. A missing or short file, zeros, a torn or
// damaged slot, an unknown format: that slot does not count. Anything but a valid
// consumer.offset counts as -1. The larger of the two frontiers is taken, and the
// settled offsets above it. With nothing valid the partition starts at -1, which
// delivers again and skips nothing. Only an I/O error is an error.
//
// # Assumptions, and what is not detected
//
// Those of package disk. A file rolled back to an older copy is not detected: acks
// since then are delivered again. consumer.offset carries no incarnation: the
// caller must not let a directory pass from one life of a topic to the next.
//
// # Forgetting, and the create fence
//
// State is written through a directory pinned by identity, never into one that
// appeared under the same path. Whoever drops a partition's consumer state calls
// Tracked.Forget before the directory is replaced or removed. Whoever creates it
// calls Load and Track under one lock (or the read side of one) that the drop
// takes as a whole, so that a position read from a replaced directory is dropped
// with it.
//
// # Compatibility
//
// An unknown format or flag makes a slot invalid. A worked slot is in the test
// TestGoldenSlot.
package position
