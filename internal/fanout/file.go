package fanout

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/narad-mq/narad/internal/disk"
)

// Cursor files lie beside the log they index: fanout-<child>.offset.
const (
	filePrefix = "fanout-"
	fileSuffix = ".offset"
)

func fileName(child string) string { return filePrefix + child + fileSuffix }

// childOf is the inverse of fileName.
func childOf(name string) (child string, ok bool) {
	child, ok = strings.CutPrefix(name, filePrefix)
	if !ok {
		return "", false
	}
	child, ok = strings.CutSuffix(child, fileSuffix)
	return child, ok && child != ""
}

// errForeign: the file on disk is not the one this cursor keeps. It was replaced or
// removed behind its back, and only the leader's word allows to begin again.
var errForeign = errors.New("cursor file is not this cursor's")

// cursorFile is the file of one cursor. Its methods are the cursor's alone. The open
// file is held only while the cursor is busy, see release.
type cursorFile struct {
	fs   disk.FS
	name string
	held disk.File // nil = not open
	// replace makes the next write an atomic one: the record is not of the fixed form,
	// or a sync failed, after which this file is never synced again.
	replace bool
	buf     []byte
}

// read reads and decodes the file once. fs.ErrNotExist when there is none,
// model.ErrCorrupt when it does not check out.
func (f *cursorFile) read() (record, error) {
	b, err := readUpTo(f.fs, f.name)
	if err != nil {
		return record{}, err
	}
	r, fixed, err := decodeRecord(b)
	if err != nil {
		return record{}, fmt.Errorf("%s: %w", f.name, err)
	}
	f.replace = !fixed
	return r, nil
}

// readUpTo reads a cursor file, and one byte more than it may have.
func readUpTo(fsys disk.FS, name string) ([]byte, error) {
	h, err := fsys.Open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	b := make([]byte, cursorFileMax+1)
	n, err := h.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], errors.Join(err, h.Close())
}

// anchor makes r the durable position whatever the file held before: a new file by
// rename. It creates no directory.
func (f *cursorFile) anchor(r record) error {
	f.release()
	f.buf = appendRecord(f.buf[:0], r)
	if err := disk.WriteFileAtomic(f.fs, f.name, f.buf); err != nil {
		f.replace = true
		return fmt.Errorf("write cursor file: %w", err)
	}
	f.replace = len(f.buf) != recordSize
	return nil
}

// advance moves the durable position: one write and one sync, in place. Whatever fails
// leaves the old position or the new one, or a file that reads as damaged, which is
// less position, never more.
func (f *cursorFile) advance(r record) error {
	if f.replace {
		return f.anchor(r)
	}
	f.buf = appendRecord(f.buf[:0], r)
	if len(f.buf) != recordSize {
		return f.anchor(r)
	}
	if err := f.hold(r.epoch); err != nil {
		return err
	}
	_, err := f.held.WriteAt(f.buf, 0)
	if err == nil {
		err = f.held.Sync()
	}
	if err != nil {
		f.replace = true
		f.release()
		return fmt.Errorf("advance cursor %s: %w", f.name, err)
	}
	return nil
}

// hold opens the file for writing, once it is seen to be of this epoch.
func (f *cursorFile) hold(epoch string) error {
	if f.held != nil {
		return nil
	}
	h, err := f.fs.Open(f.name, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	if err != nil {
		return err
	}
	var b [recordSize + 1]byte
	n, err := h.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return errors.Join(err, h.Close())
	}
	if r, fixed, err := decodeRecord(b[:n]); err != nil || !fixed || r.epoch != epoch {
		return errors.Join(fmt.Errorf("%w: %s", errForeign, f.name), h.Close())
	}
	f.held = h
	return nil
}

// release closes the file until the next advance. What had to be durable was synced, so
// its error says nothing.
func (f *cursorFile) release() {
	if f.held != nil {
		_ = f.held.Close()
		f.held = nil
	}
}

// exists reports whether the partition's directory is there to hold the file.
func (f *cursorFile) placed() (bool, error) {
	_, err := f.fs.Stat(path.Dir(f.name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
