// Package metastore keeps what the whole cluster agrees on (topics, placement,
// members, users, schemas, fan-out links) in a Raft-replicated state machine on
// bbolt. Every node holds a full replica and reads it locally: topics and members
// from immutable values in memory, everything else from the database.
//
// # Files
//
// In the directory handed to Open:
//
//	fsm.db               the replica, one bbolt database
//	raft.db              the Raft log and its stable values (raft-boltdb)
//	snapshots/           Raft's file snapshots, the newest two
//	fsm.db.snapshot-<r>  copy being streamed into a snapshot; transient
//	fsm.db.restore       image being installed, or a database being created; transient
//	raft.db.create       log store being created; transient
//	fsm.db.stale[.<ns>]  a database set aside because the log rebuilds it; never removed
//
// Transient files are deleted at start. A new database is created under its
// transient name and renamed, so a crash never leaves half of one under its own.
//
// # fsm.db
//
// Buckets; numbers in keys are big-endian, so keys sort by name, then number:
//
//	topics           name                     -> JSON of model.Topic, without role
//	assignments      name 0x00 partition u32  -> JSON {"owner","target"}
//	schemas          name 0x00 version u32    -> the schema document as registered
//	members          id                       -> JSON of model.Member
//	removed_members  id                       -> 0x01
//	users            username                 -> JSON of model.Account
//	remotes          "remote/" name           -> JSON of model.Remote
//	                 "meta"                   -> JSON of model.RemoteKeys
//	fsm_meta         "applied"                -> 30 bytes, below
//
//	+---------+--------+-------------+------------+------------+------------+
//	| version | newest | index       | txid       | rows       | CRC-32C    |
//	| u8 = 2  | u8     | u64 BE      | u64 BE     | u64 BE     | u32 BE     |
//	+---------+--------+-------------+------------+------------+------------+
//
// index is the newest Raft entry whose effects the file holds, newest the highest
// entry type it ever applied, txid the bbolt transaction that wrote the value, rows
// the sum of all rows (a CRC-32C over lengths, bucket, key and value of each, counted
// in the upper half), and the CRC covers the 26 bytes before it. All of an entry's
// effects and its index commit in one transaction, so a restart skips what is held.
// The index is trusted only while txid is still the file's last transaction: any other
// writer (a tool, an older release) moves it. A value that does not decode, or a sum
// that is not that of the rows, refuses the start.
//
// # Entries
//
// A Raft command is one envelope: the entry type (one byte, never 0) and a JSON
// payload. entries.go numbers the types; each family has its own file. Apply
// functions read and write one bbolt transaction and nothing else: no clock, no
// randomness, no configuration, so every node computes the same. They check first
// and write after: a refusal leaves the transaction as it was, and is a result, not
// an error. What is not a refusal (bbolt could not write, the entry type is
// unknown) is local to this node, which stops rather than skip the entry.
//
// # Not detected
//
// Damage that the rows' sum happens to agree with, one in 2^32; and damage to a file
// whose index is not trusted, which has no sum to agree with. raft.db's pages carry no
// checksums: a flipped bit of an entry that still decodes is applied, if the entry was
// not held yet.
package metastore
