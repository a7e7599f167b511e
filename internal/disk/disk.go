// Package disk is the file-system seam. Everything durable goes through it, so
// that the same code runs on the real file system (OS) and on a simulated one
// (Sim) that crashes, tears writes, fails on the n-th call and fills up.
//
// Assumptions about the system below, shared by every user of this package: a
// write may be torn at 512-byte sectors, in any order, until the file is synced;
// a create, rename or remove may be undone until its directory is synced; bytes
// outside the region being written are not changed by it; a failed Sync leaves
// the file's contents unknown and must never be retried.
package disk

import (
	"io"
	"time"
)

// FS is a file system. Names are slash-separated paths; flags are those of
// package os (os.O_RDWR, os.O_CREATE, os.O_EXCL, os.O_TRUNC, os.O_RDONLY).
// Files are created with mode 0600 and directories with 0700; existing modes are
// never changed. Errors match io/fs sentinels (fs.ErrNotExist, fs.ErrExist) and,
// for a full volume, syscall.ENOSPC.
type FS interface {
	// Open opens or creates a file.
	Open(name string, flag int) (File, error)
	// OpenDir pins a directory: the handle keeps naming it even if its path is
	// renamed or replaced.
	OpenDir(name string) (Dir, error)
	// Mkdir creates a directory and its missing parents. A created directory is
	// durable once its parent was synced; see MkdirDurable.
	Mkdir(name string) error
	// Rename replaces newname atomically; durable once both directories were synced.
	Rename(oldname, newname string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// List returns a directory's entries sorted by name.
	List(name string) ([]Info, error)
	// Stat describes a path; it follows no link that leaves the directory.
	Stat(name string) (Info, error)
	// Space reports the room on the volume that holds name.
	Space(name string) (Space, error)
}

// File is an open file. All I/O is positional. ReadAt and WriteAt are safe for
// concurrent use; Truncate, Sync and Close are the owner's.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Truncate sets the size; growing fills with zeros.
	Truncate(size int64) error
	// Sync makes data and size durable by the cheapest call that does (fdatasync
	// on Linux, F_FULLFSYNC on macOS, FlushFileBuffers on Windows).
	Sync() error
	// Stat describes the open file, whatever its path names by now.
	Stat() (Info, error)
}

// Dir is a pinned directory. Names are single path elements; anything else is
// fs.ErrInvalid.
type Dir interface {
	io.Closer
	// Open opens or creates a file inside this directory and nowhere else.
	Open(name string, flag int) (File, error)
	// Sync makes creates, renames and removes in this directory durable.
	Sync() error
	// Stat describes the pinned directory itself.
	Stat() (Info, error)
}

// Info describes a file or directory.
type Info struct {
	Name    string // last path element
	Size    int64  // bytes
	ModTime time.Time
	IsDir   bool
	ID      ID
}

// ID identifies a file or directory independent of its path: two Infos with the
// same non-zero ID are the same object. On Windows, where the cheap calls do not
// give one, it is zero and equality by ID must not be relied on.
type ID struct {
	Dev, Ino uint64
}

// Space is the room on a volume, in bytes. Available is what an unprivileged
// process may still write.
type Space struct {
	Available, Total uint64
}
