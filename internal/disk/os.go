package disk

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Modes of what OS creates (spec/storage-and-produce section 2).
const (
	fileMode fs.FileMode = 0o600
	dirMode  fs.FileMode = 0o700
)

// OS is the real file system.
type OS struct{}

// Open implements FS.
func (OS) Open(name string, flag int) (File, error) {
	f, err := openFile(name, flag)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// OpenDir implements FS.
func (OS) OpenDir(name string) (Dir, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		// OpenRoot's own error for a file matches no sentinel.
		if fi, serr := os.Stat(name); serr == nil && !fi.IsDir() {
			err = &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
		}
		return nil, err
	}
	return osDir{root}, nil
}

// Mkdir implements FS.
func (OS) Mkdir(name string) error { return os.MkdirAll(name, dirMode) }

// Rename implements FS.
func (OS) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// List implements FS.
func (OS) List(name string) ([]Info, error) {
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	out := make([]Info, 0, len(entries))
	for _, e := range entries {
		fi, err := e.Info()
		if os.IsNotExist(err) {
			continue // removed since the directory was read
		}
		if err != nil {
			return nil, err
		}
		out = append(out, infoOf(fi))
	}
	slices.SortFunc(out, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Stat implements FS.
func (OS) Stat(name string) (Info, error) {
	fi, err := os.Lstat(name)
	if err != nil {
		return Info{}, err
	}
	return infoOf(fi), nil
}

// Space implements FS.
func (OS) Space(name string) (Space, error) { return space(name) }

// isElement reports whether name is a single path element, as Dir.Open wants it.
func isElement(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\\x00")
}

func infoOf(fi fs.FileInfo) Info {
	return Info{Name: fi.Name(), Size: fi.Size(), ModTime: fi.ModTime(), IsDir: fi.IsDir(), ID: fileID(fi)}
}

type osFile struct{ *os.File }

func (f osFile) Sync() error { return syncData(f.File) }

func (f osFile) Stat() (Info, error) {
	fi, err := f.File.Stat()
	if err != nil {
		return Info{}, err
	}
	return infoOf(fi), nil
}

type osDir struct{ root *os.Root }

func (d osDir) Open(name string, flag int) (File, error) {
	if !isElement(name) {
		return nil, &fs.PathError{Op: "openat", Path: name, Err: fs.ErrInvalid}
	}
	f, err := d.root.OpenFile(name, flag, fileMode)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (d osDir) Sync() error {
	f, err := d.root.Open(".")
	if err != nil {
		return err
	}
	err = syncDir(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func (d osDir) Stat() (Info, error) {
	fi, err := d.root.Stat(".")
	if err != nil {
		return Info{}, err
	}
	info := infoOf(fi)
	info.Name = filepath.Base(d.root.Name()) // Stat(".") calls it "."
	return info, nil
}

func (d osDir) Close() error { return d.root.Close() }
