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

// MkdirDurable makes name and its missing parents, one after the other, each
// durable before the next. That a directory exists does not say that its entry is
// durable: whoever made it may have died before the sync. So the entry of the last
// one that exists is synced too, unless its parent may not be read: then it is not
// ours.
func MkdirDurable(fsys FS, name string) error {
	exists := path.Clean(name)
	var missing []string
	for {
		_, err := fsys.Stat(exists)
		if err == nil || exists == path.Dir(exists) {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, exists)
		exists = path.Dir(exists)
	}
	if err := SyncDir(fsys, path.Dir(exists)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := fsys.Mkdir(missing[i]); err != nil {
			return err
		}
		if err := SyncDir(fsys, path.Dir(missing[i])); err != nil {
			return err
		}
	}
	return fsys.Mkdir(name) // refuses a name that is taken by a file
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
