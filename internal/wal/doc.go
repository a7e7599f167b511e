// Package wal is the ingress write-ahead log of a node: what the node has accepted
// and not yet handed to the owners. A record is acknowledged after its group was
// synced; it stays until the checkpoint has passed it.
//
// # 1 Scope and version
//
// Format NWSEG001/NWF1 (spec/storage-and-produce section 14.1). Integers are big
// endian, checksums CRC-32C. Only the node that wrote a log reads it.
//
// # 2 Files and names
//
//	<20 digits>.wal        segment, named by its first seq; created by a roll, retired
//	                       once all of it lies below the synced checkpoint
//	next-segment.prep      retired segments waiting for reuse; at most these two;
//	next-segment-2.prep    removed by a clean stop
//	new-segment.tmp        a segment being built; removed at the next start
//	dispatch.checkpoint    small durable fact NCP1: first seq not done
//
// Other files are left alone. Seqs start at 1 and are consecutive.
//
// # 3 Segment header
//
//	 0          8        16         24       28      32
//	+----------+--------+----------+--------+-------+
//	| NWSEG001 | salt   | base seq | zero   | CRC   |   CRC over bytes 0..27
//	+----------+--------+----------+--------+-------+
//
// The salt is random for each use of a file. The base seq equals the name.
//
// # 4 Frame
//
//	 0      4        12       16      20
//	+------+--------+--------+-------+---------...
//	| NWF1 | seq    | word   | CRC   | body          CRC over salt, bytes 4..15, body
//	+------+--------+--------+-------+---------...
//
//	word:  bit 31      the group goes on with the next frame
//	       bits 22-30  number of the group in its segment, modulo 512
//	       bits 0-21   body length, 1 to 2 MiB
//
// A group is what one write and one sync covered. The first group of a segment has
// number 0, so a segment's first frame, alone in its group, has a plain length there
// (the specification's vector). Bodies are opaque. No frame spans two segments.
//
// # 5 Checksums
//
// A frame's is verified by recovery, unless its whole segment lies below the
// checkpoint, and again by every read. The salt keeps frames of a file's earlier use,
// and payloads that contain frame bytes, from ever verifying.
//
// # 6 Limits
//
// Body 2 MiB; 64 MiB of frames a segment (one frame at least); 64 MiB staged, past
// which appends wait; two spares; one group unsynced at a time.
//
// # 7 Write order and sync points
//
// A new segment is built under another name (a spare, or new-segment.tmp), its header
// written and synced, then renamed, then the directory is synced; only then frames go
// into it. Appends: one write, one sync, then next moves, OnDurable is called, waiters
// wake. The next group is written only after the sync of the one before. Checkpoint:
// overwritten in place within 10 ms of a move, synced within 250 ms; segments are
// retired behind the synced value only, oldest first, the directory synced after each.
//
// Growing files: a sync of a growing file costs a journal commit. Zeros are written
// ahead of the tail in steps of 256 KiB, as part of the group that reaches the edge,
// and retired segments are used again with all their length. Measured here (ext4,
// syncs a second, groups of 256 B / 64 KiB): growing 6,900 / 4,900; zero steps of
// 64 KiB to 1 MiB 9,700 / 5,900; 4 MiB steps 9,600 / 4,200 with stalls of 10 ms;
// a file zero-filled before or used again 9,700 / 7,400. A seldom used node thus writes
// 256 KiB of zeros, not 64 MiB, and nothing runs in the background for it.
//
// # 8 Recovery
//
// Nothing on disk changes before all was checked. Segments are sorted by name.
//
//  1. A segment whose successor starts at or below the checkpoint is not read.
//  2. One with a successor must have a valid header and every frame up to the
//     successor's base. What follows is outside the log, except that a frame of that
//     base seq there means the successor does not belong here.
//  3. The newest one is judged by the table below. It is never appended to again: its
//     last group is written over itself and synced (a process that died after a failed
//     sync leaves pages that only look stored), and a new segment starts behind it.
//  4. The checkpoint: missing, short or damaged, dispatch starts at the oldest segment;
//     below the oldest, likewise, with a warning; above the next seq, refused. With no
//     segment the next seq is the checkpoint.
//
// The newest segment, row by row; "refuse" is an error with file and position:
//
//	header             then                                         decision
//	R1 valid           frames to the end of the file                end there
//	R2 valid           bad bytes, no valid frame behind             torn: end at the bad frame
//	R3 valid           bad frame, behind it valid ones, all of the  torn: end at the bad frame
//	                   group the bad one is of
//	R4 valid           bad frame, behind it a valid one of another  refuse: that group was
//	                   group                                        written after a sync of this
//	R5 valid           valid frame of a seq or group not due there, refuse
//	                   or of a passed seq behind
//	R6 valid           bad frame and more look-alikes behind than   refuse
//	                   16 times the file's bytes can be checked
//	R7 none, zeros     no frame header of this seq range behind     never started: made anew
//	R8 of a lower seq  no frame header of this seq range behind     reused, not started: made anew
//	R9 R7 or R8        such a frame header behind                   refuse
//	R10 anything else  -                                            refuse
//
// The group a bad frame is of follows from the frame before it: the same if that one's
// group goes on, else the next; 0 at the start of the segment.
//
// # 9 Assumptions
//
// Those of package disk. A write torn by a crash leaves any mix of old and new sectors
// within it, and nothing else.
//
// # 10 What is not detected
//
// Damage to the last group of a log that was not closed: it looks like a group that was
// never synced. A clean Close starts an empty segment, so that after it all damage to
// undone records is found. A newest segment that vanished, or was cut to nothing, is
// found only if the checkpoint had reached into it. A device that lied about a sync is
// found if a later segment or the checkpoint had built on it. A segment of another node
// under a fitting name is refused unless its base and all its frames fit exactly.
//
// # 11 Compatibility
//
// A log whose frames all carry group 0 and no flag, as the specification describes,
// is not written by this package. An unknown magic is refused (R10).
//
// # 12 Worked example
//
// Salt 0001020304050607, base 1, and one record of 56 bytes:
//
//	4e57534547303031 0001020304050607 0000000000000001 00000000 8b811607
//	4e574631 0000000000000001 00000038 df5a1087 <56 bytes>
package wal
