package metastore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
)

// errSnapshotEarly: the replay has not handed over everything fsm.db holds, so the
// image would run past the index Raft labels it with.
var errSnapshotEarly = errors.New("metastore: fsm.db is ahead of the raft replay; no snapshot yet")

// Snapshot implements raft.FSM. The copy is made here, under a read transaction
// that ends with it, so the image is exactly the entries applied so far; Raft
// streams it while applying goes on. Nothing of it is held in memory.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if err := f.stopErr(); err != nil {
		return nil, err
	}
	if f.handed < f.applied.Load() {
		return nil, errSnapshotEarly
	}
	start := f.clock.Now()
	path := filepath.Join(f.dir, fsmCopyPrefix+rand.Text())
	if err := f.copyTo(path); err != nil {
		f.metrics.snapshotFailures.Inc()
		f.log.Error("metastore: could not copy the database for a raft snapshot", "err", err)
		return nil, errors.Join(err, removeIfThere(path))
	}
	return &imageCopy{path: path, start: start, clock: f.clock, metrics: f.metrics}, nil
}

func (f *fsm) copyTo(path string) error {
	file, err := volume.Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	err = f.db.View(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(io.NewOffsetWriter(file, 0))
		return err
	})
	return errors.Join(err, file.Close())
}

// imageCopy is a copy of fsm.db on its way into a Raft snapshot.
type imageCopy struct {
	path    string
	start   time.Time
	clock   clock.Clock
	metrics *metrics
}

// Persist implements raft.FSMSnapshot.
func (c *imageCopy) Persist(sink raft.SnapshotSink) error {
	n, err := streamFile(sink, c.path)
	if err != nil {
		c.metrics.snapshotFailures.Inc()
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		c.metrics.snapshotFailures.Inc()
		return err
	}
	c.metrics.snapshotBytes.Store(n)
	c.metrics.snapshotNanos.Store(int64(c.clock.Now().Sub(c.start)))
	return nil
}

// streamFile copies a file without holding it in memory.
func streamFile(to io.Writer, path string) (int64, error) {
	file, err := volume.Open(path, os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return 0, errors.Join(err, file.Close())
	}
	n, err := io.Copy(to, io.NewSectionReader(file, 0, info.Size))
	return n, errors.Join(err, file.Close())
}

// Release implements raft.FSMSnapshot. A copy it cannot delete goes at the next
// start.
func (c *imageCopy) Release() { _ = removeIfThere(c.path) }

func removeIfThere(path string) error {
	if err := volume.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Restore implements raft.FSM: the image is streamed to fsm.db.restore, synced,
// checked, and renamed over fsm.db. Until the rename the old database is untouched.
func (f *fsm) Restore(image io.ReadCloser) error {
	path := filepath.Join(f.dir, fsmRestoreName)
	facts, err := f.receive(path, image)
	if errors.Is(err, errNewerDatabase) {
		f.stop("newer_database", facts.meta.index, facts.meta.newest, err)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("restore snapshot: %w", err), removeIfThere(path))
	}
	if err := f.install(path); err != nil {
		f.stop("storage", facts.meta.index, 0, err)
		return fmt.Errorf("restore snapshot: %w", err)
	}
	f.handed = f.applied.Load()
	return nil
}

func (f *fsm) receive(path string, image io.ReadCloser) (fsmFacts, error) {
	file, err := volume.Open(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return fsmFacts{}, err
	}
	if _, err = io.Copy(io.NewOffsetWriter(file, 0), image); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fsmFacts{}, err
	}
	return inspectFSM(path, f.knows)
}

// install swaps the database and rebuilds every view. Readers wait for the swap.
func (f *fsm) install(path string) error {
	f.dbMu.Lock()
	defer f.dbMu.Unlock()
	if err := f.db.Close(); err != nil {
		return err
	}
	final := filepath.Join(f.dir, fsmName)
	if err := volume.Rename(path, final); err != nil {
		return err
	}
	if err := disk.SyncDir(volume, f.dir); err != nil {
		return err
	}
	db, err := openFSM(final)
	if err != nil {
		return err
	}
	f.db = db
	return f.load()
}

// load takes over what the open database holds: its index if that is trusted, and
// every view. Topics it lacks vanish from the catalog.
func (f *fsm) load() (err error) {
	defer recoverDamage(f.db.Path(), &err)
	return f.db.View(func(tx *bbolt.Tx) error {
		meta, trusted, err := readFSMMeta(tx)
		if err != nil {
			return err
		}
		ch, err := readAll(tx, f.catalog)
		if err != nil {
			return err
		}
		for _, name := range f.catalog.sortedNames() {
			if _, ok := ch.topics[name]; !ok {
				ch.topics[name] = nil
			}
		}
		if f.rows, err = sumRows(tx); err != nil {
			return err
		}
		f.newest.Store(uint32(meta.newest))
		f.metrics.fsmBytes.Store(tx.Size())
		f.catalog.publish(ch)
		if !trusted {
			meta.index = 0
		}
		f.progress.set(meta.index)
		return nil
	})
}
