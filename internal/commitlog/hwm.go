package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/narad-mq/narad/internal/disk"
)

const hwmName = "hwm"

// hwmMagic marks the high watermark file (spec/storage-and-produce section 1,
// "Small durable facts").
func hwmMagic() [4]byte { return [4]byte{'N', 'H', 'W', '1'} }

// hwmFile is what the log knows of its high watermark file. The file holds a
// boundary only while the log is closed (spec/storage-and-produce section 7).
type hwmFile struct {
	exists bool
	valid  bool  // it holds value
	value  int64 // what was found at open
	clear  bool  // known to be durably empty, or missing
	failed bool  // an attempt to clear it failed
}

// readHWM reads the file; damaged reports content that is neither empty nor valid.
func readHWM(fsys disk.FS, dir string) (h hwmFile, damaged bool, err error) {
	f, err := fsys.Open(path.Join(dir, hwmName), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return hwmFile{clear: true}, false, nil
	}
	if err != nil {
		return h, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return h, false, err
	}
	h.exists = true
	if info.Size != disk.FactSize {
		return h, info.Size != 0, nil
	}
	var b [disk.FactSize]byte
	if n, err := f.ReadAt(b[:], 0); n < len(b) {
		return h, false, fmt.Errorf("read %s: %w", hwmName, err)
	}
	v, state := disk.DecodeFact(hwmMagic(), b[:])
	if state != disk.FactValid || v < 0 || v > offsetMax {
		return h, true, nil
	}
	h.valid, h.value = true, v
	return h, false, nil
}

// release empties the file durably, so that no stale boundary can hide a record
// committed from now on. It is tried on every commit until it succeeded once; a
// second try first makes the file dirty again, because a failed fsync has already
// let go of the change it did not write.
func (h *hwmFile) release(fsys disk.FS, dir string) error {
	f, err := fsys.Open(path.Join(dir, hwmName), os.O_RDWR)
	if err != nil {
		return err
	}
	if h.failed {
		_, err = f.WriteAt(make([]byte, disk.FactSize), 0)
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	h.failed = err != nil
	h.clear = err == nil
	return err
}

// store writes the boundary in place and syncs it, the directory too when the
// file is new.
func (h *hwmFile) store(fsys disk.FS, dir string, v int64) error {
	f, err := fsys.Open(path.Join(dir, hwmName), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	b := disk.EncodeFact(hwmMagic(), v)
	_, err = f.WriteAt(b[:], 0)
	if err == nil && !h.clear {
		err = f.Truncate(disk.FactSize) // what was found may be longer
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil && !h.exists {
		err = disk.SyncDir(fsys, dir)
	}
	return err
}
