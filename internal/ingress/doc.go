// Package ingress accepts messages on this node and dispatches them.
//
// Accepting is a pure choice of partition and one append to the WAL: a nil return
// is the promise behind a 202. Dispatching moves every record of the WAL to the
// owner of its partition until it is committed, or lawfully discarded; the WAL's
// checkpoint is the first seq that is neither (spec/storage-and-produce sections
// 15, 16 and 19).
//
// # Parts
//
// Pure cores, told the time and doing no I/O: model.KeyPartition and rotations (which
// partition), tracker (state of every seq, checkpoint), health (state machine of
// a destination), rerouteChoice, lingerUntil and owner (pacing), confirmations
// (what the leader said), scan (records to be read again), and the scheduler that
// puts them together. No owner but this node takes every slot (crowd.go): one that falls
// silent delays what goes to it. Around them one goroutine, the dispatcher's loop, which
// owns all of it without a lock; one goroutine per commit in flight, at most 16
// plus the hung ones; and the handover, a bounded queue that carries fresh
// records from the WAL's sync to the loop without reading them back.
//
// # Record body
//
// Scope: the body of one WAL frame. Integers are big-endian; every string and
// byte field is a 4-byte length and its bytes.
//
//	format 1: 01 topic         key partition(i32) acceptedAt(i64, Unix ms) payload
//	format 2: 02 topic topicID key partition(i32) acceptedAt(i64, Unix ms) payload
//
// Format 2 is written for a topic with an id (16 lowercase hex characters), 1 for
// one without; zero is no format. An empty key is no key. The frame around it has
// the checksum. A body that does not account for each of its bytes, names another
// format, or holds a partition outside 0..2^31-1 stops the dispatcher: nothing is
// skipped, the checkpoint stays before it. Largest body: 2 MiB. An older binary
// refuses format 2; a newer one reads both.
//
// # Duplicates
//
// A record is committed again after a crash between its commit and the stored
// checkpoint, and when a commit succeeded after its sender had given it up. A
// crash repeats at most lookaheadRecords records.
package ingress
