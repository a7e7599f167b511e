package disk_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/testutil"
)

var contents = []string{"one", strings.Repeat("two", 500), "", "four"}

// writer replaces a file again and again and remembers how far it got.
type writer struct{ begun, done int }

func (w *writer) run(s *disk.Sim) error {
	*w = writer{}
	if err := disk.MkdirDurable(s, "a/b"); err != nil {
		return err
	}
	for _, c := range contents {
		w.begun++
		if err := disk.WriteFileAtomic(s, "a/b/f", []byte(c)); err != nil {
			return err
		}
		w.done++
	}
	return nil
}

// check: what was written completely is there, or what was being written after it.
func (w *writer) check(s *disk.Sim) error {
	b, err := disk.ReadFile(s, "a/b/f", 1<<20)
	if errors.Is(err, fs.ErrNotExist) && w.done == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	for i := max(w.done, 1); i <= w.begun; i++ {
		if string(b) == contents[i-1] {
			return nil
		}
	}
	return fmt.Errorf("%d of %d writes done, found %.20q (%d bytes)", w.done, w.begun, b, len(b))
}

func newSim() *disk.Sim { return disk.NewSim(1) }

func TestWriteFileAtomicAtEveryCrash(t *testing.T) {
	var w writer
	testutil.CrashPoints(t, newSim, w.run, func(s *disk.Sim, _ int) {
		if err := w.check(s); err != nil {
			t.Error(err)
		}
	})
}

// A failure at any call leaves the old content or the new, also after a crash, and
// no temporary file.
func TestWriteFileAtomicAtEveryFailure(t *testing.T) {
	var w writer
	testutil.FailPoints(t, newSim, disk.Rule{}, w.run, func(s *disk.Sim, _ int, failed error) {
		if failed != nil {
			if _, err := s.Stat("a/b/f.tmp"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("temporary file left behind (%v)", err)
			}
		}
		for seed := range int64(4) {
			if err := w.check(s.Crash(seed)); err != nil {
				t.Error(err)
			}
		}
	})
}

// A directory that MkdirDurable made is there after any crash.
func TestMkdirDurableAtEveryCrash(t *testing.T) {
	var done bool
	run := func(s *disk.Sim) error {
		done = false
		if err := s.Mkdir("a"); err != nil { // a is not durable, its children must be
			return err
		}
		if err := disk.SyncDir(s, "/"); err != nil {
			return err
		}
		err := disk.MkdirDurable(s, "a/b/c/d")
		done = err == nil
		return err
	}
	testutil.CrashPoints(t, newSim, run, func(s *disk.Sim, _ int) {
		if _, err := s.Stat("a/b/c/d"); done && err != nil {
			t.Error(err)
		}
	})
}

// Making it again after a failure, or after the process died, is enough: nothing of
// the first attempt is taken for durable.
func TestMkdirDurableAgain(t *testing.T) {
	mkdir := func(s *disk.Sim) error { return disk.MkdirDurable(s, "a/b/c") }
	testutil.FailPoints(t, newSim, disk.Rule{}, mkdir, func(s *disk.Sim, _ int, _ error) {
		if err := mkdir(s); err != nil {
			t.Fatal(err)
		}
		for seed := range int64(20) {
			if _, err := s.Crash(seed).Stat("a/b/c"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A directory whose parent is closed to us can still be used.
func TestMkdirDurableBelowAClosedParent(t *testing.T) {
	s := newSim()
	if err := s.Mkdir("srv/data"); err != nil {
		t.Fatal(err)
	}
	s.Fail(disk.Rule{Op: disk.OpOpenDir, Path: "srv", Err: fs.ErrPermission})
	if err := disk.MkdirDurable(s, "srv/data"); err != nil {
		t.Error(err)
	}
	if err := disk.MkdirDurable(s, "srv/data/topics"); err != nil {
		t.Error(err)
	}
	if err := disk.MkdirDurable(s, "srv/other"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("made an entry that cannot be synced: %v", err)
	}
}
