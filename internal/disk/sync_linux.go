package disk

import (
	"io/fs"
	"os"
	"syscall"
)

// syncData is fdatasync, retried only when a signal interrupted it before it
// reported an outcome.
func syncData(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = conn.Control(func(fd uintptr) {
		for {
			serr = syscall.Fdatasync(int(fd))
			if serr != syscall.EINTR {
				return
			}
		}
	})
	if err != nil {
		err = fs.ErrClosed // the only way Control fails; its own error matches no sentinel
	} else {
		err = serr
	}
	if err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}
