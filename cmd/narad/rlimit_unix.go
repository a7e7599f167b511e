//go:build unix

package main

import "golang.org/x/sys/unix"

// Consumer files held open at most (spec/consume section 10 rule 6).
const (
	offsetFilesMax   = 4096
	offsetFilesShare = 4 // one of so many of the process's descriptors
)

// offsetFiles bounds the descriptors kept for consumer positions.
func offsetFiles() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return offsetFilesMax / offsetFilesShare
	}
	return int(max(1, min(offsetFilesMax, uint64(r.Cur)/offsetFilesShare)))
}
