package disk

import (
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// simFile is an open file; it keeps naming its node whatever happens to the path.
type simFile struct {
	s      *Sim
	n      *node
	name   string // as opened, for errors and rules
	flag   int
	closed bool // guarded by s.mu
}

const accessMask = os.O_RDONLY | os.O_WRONLY | os.O_RDWR

// call is Sim.call for an open file; write says what access it needs.
func (f *simFile) call(op Op, write bool, apply func(verdict) error) error {
	return f.s.call(op, []string{f.name}, func(v verdict) error {
		if f.closed {
			return fs.ErrClosed
		}
		access := f.flag & accessMask
		if write && access == os.O_RDONLY || op == OpRead && access == os.O_WRONLY {
			return syscall.EBADF
		}
		return apply(v)
	})
}

// ReadAt implements io.ReaderAt.
func (f *simFile) ReadAt(p []byte, off int64) (n int, err error) {
	eof := false
	err = f.call(OpRead, false, func(verdict) error {
		if off < 0 {
			return syscall.EINVAL
		}
		n = int(min(max(f.n.size-off, 0), int64(len(p))))
		f.n.readAt(p[:n], off)
		eof = n < len(p)
		return nil
	})
	if err != nil {
		return 0, err
	}
	if eof {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements io.WriterAt.
func (f *simFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.call(OpWrite, true, func(v verdict) error {
		if off < 0 {
			return syscall.EINVAL
		}
		part := p
		switch {
		case v.dying:
			part = p[:f.s.rng.IntN(len(p)+1)]
		case v.err != nil:
			part = p[:min(max(v.short, 0), len(p))]
		}
		var allocated int64
		n, allocated = f.n.writeAt(part, off, f.s.room())
		f.s.sectors += allocated
		if n > 0 {
			f.n.mod = f.s.now()
		}
		if v.err == nil && n < len(part) {
			return syscall.ENOSPC
		}
		return v.err
	})
	return n, err
}

// Truncate implements File.
func (f *simFile) Truncate(size int64) error {
	return f.call(OpTruncate, true, func(verdict) error {
		if size < 0 {
			return syscall.EINVAL
		}
		f.s.sectors -= f.n.truncate(size)
		f.n.mod = f.s.now()
		return nil
	})
}

// Sync implements File. A Sync the power goes in makes nothing durable for sure.
func (f *simFile) Sync() error {
	return f.call(OpSync, false, func(v verdict) error {
		switch {
		case v.err != nil:
			f.s.sectors -= f.n.failSync(f.s.rng)
		case !v.lie && !v.dying:
			f.n.sync()
		}
		return v.err
	})
}

// Stat implements File.
func (f *simFile) Stat() (Info, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if err := f.s.usable(f.closed); err != nil {
		return Info{}, pathError("stat", f.name, err)
	}
	return f.n.info(path.Base(f.name)), nil
}

// Close implements io.Closer.
func (f *simFile) Close() error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.closed {
		return pathError("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	f.n.opens--
	f.s.release(f.n)
	return nil
}

// usable is the error a handle answers calls with that count no call.
func (s *Sim) usable(closed bool) error {
	if s.crashed {
		return ErrCrashed
	}
	if closed {
		return fs.ErrClosed
	}
	return nil
}

// simDir is a pinned directory.
type simDir struct {
	s      *Sim
	n      *node
	name   string
	closed bool // guarded by s.mu
}

// Open implements Dir.
func (d *simDir) Open(name string, flag int) (File, error) {
	var f *simFile
	full := d.name + "/" + name
	err := d.s.call(OpOpen, []string{full}, func(verdict) (err error) {
		if d.closed {
			return fs.ErrClosed
		}
		if !isElement(name) {
			return fs.ErrInvalid
		}
		f, err = d.s.openIn(d.n, name, full, flag)
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Sync implements Dir.
func (d *simDir) Sync() error {
	return d.s.call(OpSyncDir, []string{d.name}, func(v verdict) error {
		if d.closed {
			return fs.ErrClosed
		}
		if !v.lie && !v.dying {
			d.n.commit(len(d.n.pending))
		}
		return nil
	})
}

// Stat implements Dir.
func (d *simDir) Stat() (Info, error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if err := d.s.usable(d.closed); err != nil {
		return Info{}, pathError("stat", d.name, err)
	}
	return d.n.info(path.Base(d.name)), nil
}

// Close implements io.Closer; like the real one's it may be called again.
func (d *simDir) Close() error {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.closed = true
	return nil
}
