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

// openFile is os.OpenFile without its attempt to have the poller watch the file, which
// costs six system calls and which no file of ours can be: a start opens tens of
// thousands.
func openFile(name string, flag int) (*os.File, error) {
	for {
		fd, err := unix.Open(name, flag|unix.O_CLOEXEC, uint32(fileMode))
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), name), nil
		case unix.EINTR:
		default:
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
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
