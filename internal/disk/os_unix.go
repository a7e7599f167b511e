//go:build unix

package disk

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func fileID(fi fs.FileInfo) ID {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return ID{Dev: uint64(st.Dev), Ino: uint64(st.Ino)}
	}
	return ID{}
}

func space(name string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(name, &st); err != nil {
		return Space{}, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	bsize := uint64(st.Bsize)
	return Space{Available: uint64(st.Bavail) * bsize, Total: uint64(st.Blocks) * bsize}, nil
}

func syncDir(f *os.File) error { return f.Sync() }
