package disk

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

func fileID(fs.FileInfo) ID { return ID{} }

func openFile(name string, flag int) (*os.File, error) { return os.OpenFile(name, flag, fileMode) }

func space(name string) (Space, error) {
	p, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return Space{}, err
	}
	var avail, total uint64
	if err := windows.GetDiskFreeSpaceEx(p, &avail, &total, nil); err != nil {
		return Space{}, &fs.PathError{Op: "GetDiskFreeSpaceEx", Path: name, Err: err}
	}
	return Space{Available: avail, Total: total}, nil
}

// syncDir: NTFS journals directory changes; a directory handle cannot be flushed.
func syncDir(*os.File) error { return nil }
