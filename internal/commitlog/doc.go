// Package commitlog is the log of one partition: segments of checksummed frames,
// recovered by walking the newest one, read through small in-memory indexes and
// caches, and aged out segment by segment.
//
// A Log has no goroutine of its own. One write lock serialises everything that
// changes files (Commit, Sweep, Close); readers take a short lock that is never
// held across I/O, and the watermarks are atomics. A record is visible only once
// its frame was written, fsynced, read back and checked.
//
// The bytes on disk, the order they are written in and what recovery does with
// damage are specified in DESIGN.md beside this file
// (spec/storage-and-produce sections 1 to 11).
package commitlog
