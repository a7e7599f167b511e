// Package fanout is the fan-out engine: it copies what is committed to a parent topic
// into its children, from the attach on, at least once, with a delay where the child has
// one. Format, invariants and reasons are in DESIGN.md.
//
// One cursor, a goroutine, runs for each (parent partition, child) on the node that owns
// the parent partition, so that it reads a local log. It commits a slab to the child
// before it moves its own durable position past it. A reconciler starts and stops
// cursors as links and ownership change.
//
// Pure cores, told the time and doing no I/O: decodeRecord, decide, gateAt and dueIn,
// buckets, schedule (when a pass is due) and compare (what it starts and stops).
package fanout
