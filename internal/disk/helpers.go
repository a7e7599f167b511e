package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// SyncDir makes creates, renames and removes in the directory name durable.
func SyncDir(fsys FS, name string) error {
	d, err := fsys.OpenDir(name)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

// MkdirDurable creates name and its missing parents, and syncs every directory
// that got a new entry, outermost first.
func MkdirDurable(fsys FS, name string) error {
	name = path.Clean(name)
	var made []string
	for p := name; ; p = path.Dir(p) {
		if _, err := fsys.Stat(p); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		made = append(made, p)
		if p == path.Dir(p) {
			break
		}
	}
	if err := fsys.Mkdir(name); err != nil {
		return err
	}
	for i := len(made) - 1; i >= 0; i-- {
		if err := SyncDir(fsys, path.Dir(made[i])); err != nil {
			return err
		}
	}
	return nil
}

// ReadFile reads at most limit bytes of a file; a larger one is an error, so that
// a damaged size allocates nothing.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size > limit {
		return nil, fmt.Errorf("read %s: %d bytes, at most %d", name, info.Size, limit)
	}
	b := make([]byte, info.Size)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}

// WriteFileAtomic replaces name with data by the full protocol: a temporary file
// beside it, written and synced, renamed over it, directory synced. A crash leaves
// the old content or the new one; a leftover temporary file has the suffix ".tmp".
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	tmp := name + ".tmp"
	f, err := fsys.Open(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, fsys.Remove(tmp))
	}
	if err := fsys.Rename(tmp, name); err != nil {
		return errors.Join(err, fsys.Remove(tmp))
	}
	return SyncDir(fsys, path.Dir(name))
}
