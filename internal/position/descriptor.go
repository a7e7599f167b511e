package position

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/narad-mq/narad/internal/disk"
)

// with runs do on the primed file: through the held descriptor, through one that
// is opened again and held, or, when as many are held as may be and none can be
// closed, through a one-off. Opening again never creates, and takes only the same
// file in the same directory. Caller holds t.mu.
func (t *Tracked) with(do func(disk.File) error) error {
	if t.file.f != nil {
		return do(t.file.f)
	}
	f, err := t.reopen()
	if err != nil {
		return err
	}
	if t.c.room() {
		t.hold(f)
		return do(f)
	}
	return errors.Join(do(f), f.Close())
}

func (t *Tracked) reopen() (disk.File, error) {
	dir, err := t.pin()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := open(dir, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.ID != t.file.fileID {
		err = errReplaced
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// hold keeps f open for later ticks. Caller holds t.mu.
func (t *Tracked) hold(f disk.File) {
	t.file.f = f
	t.c.mu.Lock()
	t.c.shared.held[t] = true
	t.c.mu.Unlock()
}

// busy takes t out of the line of descriptors that may be closed.
func (t *Tracked) busy() {
	if t.file.idleAt == nil {
		return
	}
	t.c.mu.Lock()
	t.c.shared.idle.Remove(t.file.idleAt)
	t.c.mu.Unlock()
	t.file.idleAt = nil
}

// idle puts t at the end of that line: its window is durable.
func (t *Tracked) idle() {
	if t.file.f == nil || t.file.idleAt != nil {
		return
	}
	t.c.mu.Lock()
	t.file.idleAt = t.c.shared.idle.PushBack(t)
	t.c.mu.Unlock()
}

// release closes the descriptor, if one is held. Its error says nothing: what had
// to be durable was synced. Caller holds t.mu.
func (t *Tracked) release() {
	if t.file.f == nil {
		return
	}
	t.busy()
	t.c.mu.Lock()
	delete(t.c.shared.held, t)
	t.c.mu.Unlock()
	_ = t.file.f.Close()
	t.file.f = nil
}

// open opens consumer.ahead in a pinned directory. That it is missing, or cannot be
// created because the directory itself was removed, means it was replaced.
func open(dir disk.Dir, flag int) (disk.File, error) {
	f, err := dir.Open(AheadName, flag)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", errReplaced, err)
	}
	return f, err
}

// pin opens the partition's directory, if it is still the one this partition began
// in. The first directory seen is that one.
func (t *Tracked) pin() (disk.Dir, error) {
	dir, err := t.c.opts.FS.OpenDir(t.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", errReplaced, err)
	}
	if err != nil {
		return nil, err
	}
	info, err := dir.Stat()
	if err == nil && t.file.dirID == (disk.ID{}) {
		t.file.dirID = info.ID
	}
	if err == nil && info.ID != t.file.dirID {
		err = errReplaced
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// named checks that the path still names the file that was primed. Where files
// have no ID (disk.ID) only that something is there is checked.
func (t *Tracked) named() error {
	info, err := t.c.opts.FS.Stat(path.Join(t.dir, AheadName))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errReplaced, err)
	}
	if err == nil && info.ID != t.file.fileID {
		return errReplaced
	}
	return err
}
