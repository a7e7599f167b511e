package disk

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrCrashed is what every call on a Sim answers once its power is gone.
var ErrCrashed = errors.New("simulated volume has crashed")

// simEpoch is the start of a Sim's logical clock, which moves a millisecond with
// every modification.
const simEpoch = 1_767_225_600_000 // Unix ms, 2026-01-01 UTC

// simUnlimited is the room a Sim without capacity reports, in bytes.
const simUnlimited = 1 << 50

// Sim is a simulated volume in memory. What it promises after Crash, and nothing
// more:
//
//   - Bytes and size of a file as of its last successful Sync.
//   - Of what was written since: each 512-byte sector is the old one, the newest
//     one, one of the last few written in between, or, where the file had no
//     durable bytes, zero. The size is anything between the ones the file had. A
//     truncate may not have happened.
//   - The entries of a directory as of its last Sync; of the changes since, an
//     ordered prefix per directory. A rename within one directory is atomic. A file
//     moved across directories may be in both; it is in neither only if the source
//     alone was synced. A directory moved across directories is in one of them.
//   - After a failed Sync: anything for the bytes it covered, and no later Sync
//     brings them to disk unless they are written again. Some read back as the old
//     bytes at once.
//
// Relative and absolute names are the same: the volume has one root. Modes, links
// and permissions do not exist. All methods are safe for concurrent use. With the
// same seeds and the same order of calls the outcome is the same.
type Sim struct {
	mu       sync.Mutex // guards all below and every node of the tree
	root     *node
	rng      *rand.Rand
	now      func() time.Time
	inoNext  uint64
	capacity int64 // bytes; 0 = unlimited
	sectors  int64 // allocated, by linked or open files
	calls    int
	crashAt  int // value of calls at which the power goes; 0 = never
	crashed  bool
	rules    []*liveRule
	fired    int
}

// NewSim returns an empty volume. The seed decides what a failed Sync and a write
// cut short by CrashAt leave behind; Crash takes its own.
func NewSim(seed int64) *Sim {
	tick := int64(simEpoch)
	s := &Sim{
		rng: newRand(seed, 0),
		now: func() time.Time {
			tick++
			return time.UnixMilli(tick).UTC()
		},
	}
	s.root = s.newNode(true)
	s.root.links = 1
	return s
}

func newRand(seed int64, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(seed), stream))
}

// SetNow replaces the logical clock that stamps modification times.
func (s *Sim) SetNow(now func() time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
}

// SetModTime sets the modification time of a file or directory.
func (s *Sim) SetModTime(name string, t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.lookup(name)
	if err != nil {
		return pathError("chtimes", name, err)
	}
	n.mod = t
	return nil
}

// SetCapacity limits the volume to so many bytes, counted in whole sectors; <= 0
// is unlimited. Files that already exceed it keep what they have.
func (s *Sim) SetCapacity(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.capacity = max(bytes, 0)
}

// Corrupt damages a file at rest: f gets its current bytes and returns what the
// disk holds from now on, as if synced.
func (s *Sim) Corrupt(name string, f func([]byte) []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.lookupFile(name)
	if err != nil {
		return pathError("corrupt", name, err)
	}
	before := int64(len(n.cur))
	n.replace(f(n.bytes()))
	s.sectors += int64(len(n.cur)) - before
	return nil
}

// Dump returns a file's current bytes, synced or not. It counts no call and works
// on a crashed volume.
func (s *Sim) Dump(name string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.lookupFile(name)
	if err != nil {
		return nil, pathError("dump", name, err)
	}
	return n.bytes(), nil
}

// Open implements FS.
func (s *Sim) Open(name string, flag int) (File, error) {
	var f *simFile
	err := s.call(OpOpen, []string{name}, func(verdict) error {
		dir, base, err := s.parent(name)
		if err != nil {
			return err
		}
		f, err = s.openIn(dir, base, clean(name), flag)
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// openIn opens or creates the entry base of dir. Caller holds mu.
func (s *Sim) openIn(dir *node, base, full string, flag int) (*simFile, error) {
	if base == "" {
		return nil, syscall.EISDIR
	}
	n := dir.entries[base]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, fs.ErrNotExist
	case n == nil && dir.links == 0:
		return nil, fs.ErrNotExist // the pinned directory itself was removed
	case n != nil && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, fs.ErrExist
	case n != nil && n.isDir():
		return nil, syscall.EISDIR
	case n == nil:
		n = s.newNode(false)
		s.change(dir, entry{base, n})
	case flag&os.O_TRUNC != 0 && n.size > 0:
		s.sectors -= n.truncate(0)
		n.mod = s.now()
	}
	n.opens++
	return &simFile{s: s, n: n, name: full, flag: flag}, nil
}

// OpenDir implements FS.
func (s *Sim) OpenDir(name string) (Dir, error) {
	var d *simDir
	err := s.call(OpOpenDir, []string{name}, func(verdict) error {
		n, err := s.lookup(name)
		if err == nil && !n.isDir() {
			err = syscall.ENOTDIR
		}
		if err != nil {
			return err
		}
		d = &simDir{s: s, n: n, name: clean(name)}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Mkdir implements FS.
func (s *Sim) Mkdir(name string) error {
	return s.call(OpMkdir, []string{name}, func(verdict) error {
		at := s.root
		for _, el := range elements(name) {
			next := at.entries[el]
			if next == nil {
				next = s.newNode(true)
				s.change(at, entry{el, next})
			}
			if !next.isDir() {
				return syscall.ENOTDIR
			}
			at = next
		}
		return nil
	})
}

// Rename implements FS. Like the real one it never replaces a directory.
func (s *Sim) Rename(oldname, newname string) error {
	err := s.call(OpRename, []string{oldname, newname}, func(verdict) error {
		from, oldbase, err := s.parent(oldname)
		if err != nil {
			return err
		}
		to, newbase, err := s.parent(newname)
		if err != nil {
			return err
		}
		n, over := from.entries[oldbase], to.entries[newbase]
		switch {
		case oldbase == "" || newbase == "":
			return syscall.EINVAL
		case n == nil:
			return fs.ErrNotExist
		case over != nil && over.isDir():
			return fs.ErrExist
		case n == over:
			return nil
		case n.isDir() && inside(clean(newname), clean(oldname)):
			return syscall.EINVAL
		case over != nil && n.isDir():
			return syscall.ENOTDIR
		}
		if from == to {
			s.change(from, entry{newbase, n}, entry{oldbase, nil}) // the file is never without a name
			return nil
		}
		s.move(from, oldbase, to, newbase, n)
		return nil
	})
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return &os.LinkError{Op: pe.Op, Old: oldname, New: newname, Err: pe.Err}
	}
	return err
}

func inside(name, dir string) bool { return strings.HasPrefix(name, dir+"/") }

// Remove implements FS.
func (s *Sim) Remove(name string) error {
	return s.call(OpRemove, []string{name}, func(verdict) error {
		dir, base, err := s.parent(name)
		if err != nil {
			return err
		}
		n := dir.entries[base]
		switch {
		case base == "":
			return syscall.EBUSY
		case n == nil:
			return fs.ErrNotExist
		case len(n.entries) > 0:
			return syscall.ENOTEMPTY
		}
		s.change(dir, entry{base, nil})
		return nil
	})
}

// List implements FS.
func (s *Sim) List(name string) ([]Info, error) {
	var out []Info
	err := s.call(OpList, []string{name}, func(verdict) error {
		n, err := s.lookup(name)
		if err == nil && !n.isDir() {
			err = syscall.ENOTDIR
		}
		if err != nil {
			return err
		}
		for el, child := range n.entries {
			out = append(out, child.info(el))
		}
		slices.SortFunc(out, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Stat implements FS.
func (s *Sim) Stat(name string) (Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed {
		return Info{}, pathError("stat", name, ErrCrashed)
	}
	n, err := s.lookup(name)
	if err != nil {
		return Info{}, pathError("stat", name, err)
	}
	return n.info(path.Base(clean(name))), nil
}

// Space implements FS.
func (s *Sim) Space(name string) (Space, error) {
	var sp Space
	err := s.call(OpSpace, []string{name}, func(verdict) error {
		if _, err := s.lookup(name); err != nil {
			return err
		}
		sp = Space{Available: uint64(s.room()), Total: simUnlimited}
		if s.capacity > 0 {
			sp.Total = uint64(s.capacity)
		}
		return nil
	})
	return sp, err
}

// room is the number of bytes that can still be allocated. Caller holds mu.
func (s *Sim) room() int64 {
	total := s.capacity
	if total == 0 {
		total = simUnlimited
	}
	return max(total-s.sectors*sectorSize, 0)
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}
