package metastore

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// Names in the metastore directory; see the package comment.
const (
	fsmName        = "fsm.db"
	fsmRestoreName = "fsm.db.restore"
	fsmCopyPrefix  = "fsm.db.snapshot-"
	fsmStaleName   = "fsm.db.stale"
	raftName       = "raft.db"
	raftCreateName = "raft.db.create"
	snapshotsName  = "snapshots"
)

const (
	dbMode      = 0o600
	lockTimeout = time.Second // a second process on the same file is refused after it

	// mmapBytes is address space, not memory: growing a mapping waits for readers,
	// so it starts larger than a database of some 100,000 topics.
	mmapBytes = 256 << 20
)

// volume is where the metastore lives: bbolt needs real files.
var volume = disk.OS{}

// boltOptions opens a database of ours. Every commit writes the free list: an open
// that rebuilds it holds a record of every page, and installing a snapshot opens.
func boltOptions(readOnly bool) *bbolt.Options {
	return &bbolt.Options{
		Timeout:         lockTimeout,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: mmapBytes,
		ReadOnly:        readOnly,
	}
}

// createDB makes an empty bbolt file durable under its final name: bbolt writes the
// first pages of a new file one by one, so it is born under another name.
func createDB(path, transient string) error {
	db, err := bbolt.Open(transient, dbMode, boltOptions(false))
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	if err := db.Close(); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	if err := volume.Rename(transient, path); err != nil {
		return err
	}
	return disk.SyncDir(volume, filepath.Dir(path))
}

// exists reports whether path names a file that holds any bytes.
func exists(path string) (bool, error) {
	info, err := volume.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size > 0, err
}

// openFSM opens fsm.db for writing and makes sure its buckets are there. Only a
// database that lacks one is written to.
func openFSM(path string) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, dbMode, boltOptions(false))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err := ensureBuckets(db); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), db.Close())
	}
	return db, nil
}

func ensureBuckets(db *bbolt.DB) error {
	var missing [][]byte
	var meta fsmMeta
	var trusted bool
	err := db.View(func(tx *bbolt.Tx) (err error) {
		for _, name := range append([][]byte{bucketMeta}, dataBuckets...) {
			if tx.Bucket(name) == nil {
				missing = append(missing, name)
			}
		}
		meta, trusted, err = readFSMMeta(tx)
		return err
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	return db.Update(func(tx *bbolt.Tx) error {
		for _, name := range missing {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		if trusted {
			return writeFSMMeta(tx, meta)
		}
		return nil
	})
}

// fsmFacts is what fsm.db says of itself before anything is decided.
type fsmFacts struct {
	holds   bool // some bucket holds a row, or an index is recorded
	trusted bool
	meta    fsmMeta
}

// inspectFSM reads fsm.db without writing a byte to it. A database that applied an
// entry type this build does not know is refused, and so is a damaged one.
func inspectFSM(path string, knows EntryType) (facts fsmFacts, err error) {
	ok, err := exists(path)
	if err != nil || !ok {
		return fsmFacts{}, err
	}
	err = inspect(path, func(tx *bbolt.Tx) (err error) {
		if facts.meta, facts.trusted, err = readFSMMeta(tx); err != nil {
			return err
		}
		if facts.meta.newest > knows {
			return newerDatabase(path, facts.meta.newest, knows)
		}
		sum, err := sumRows(tx)
		if err == nil && facts.trusted && sum != facts.meta.rows {
			err = errRowsChanged
		}
		facts.holds = facts.meta.index > 0 || sum != 0
		return err
	})
	return facts, err
}

// inspectLog reads all of raft.db without writing a byte to it.
func inspectLog(path string) error {
	return inspect(path, func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(_, _ []byte) error { return nil })
		})
	})
}

// inspect hands a read-only transaction on a database to look. What bbolt does with
// pages that are missing or make no sense (fault, or panic) becomes an error here,
// before anything opens the file that would not live through it.
func inspect(path string, look func(*bbolt.Tx) error) (err error) {
	defer recoverDamage(path, &err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	db, err := bbolt.Open(path, dbMode, boltOptions(true))
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.View(func(tx *bbolt.Tx) error {
		err := checkPages(path, tx)
		if err == nil {
			err = look(tx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
}

// errNewerDatabase: the file applied an entry type this build does not know.
var errNewerDatabase = errors.New("written by a newer Narad release than this build")

func newerDatabase(path string, newest, knows EntryType) error {
	return fmt.Errorf("%s: %w: it has applied entry type %d, this build applies 1 to %d",
		path, errNewerDatabase, uint8(newest), uint8(knows))
}

// recoverDamage turns a panic of bbolt, its answer to pages that make no sense,
// into an error: bytes from disk never take the process down.
func recoverDamage(path string, err *error) {
	if r := recover(); r != nil {
		*err = errors.Join(*err, fmt.Errorf("%s: %w: %v", path, model.ErrCorrupt, r))
	}
}

// removeLeftovers deletes the transient files of an earlier process: copies,
// half-installed images and unfinished snapshots, which hold nothing that fsm.db,
// the log or a finished snapshot does not.
func removeLeftovers(dir string) error {
	if err := removeUnfinished(filepath.Join(dir, snapshotsName)); err != nil {
		return err
	}
	entries, err := volume.List(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir {
			continue
		}
		if e.Name == fsmRestoreName || e.Name == raftCreateName || strings.HasPrefix(e.Name, fsmCopyPrefix) {
			if err := volume.Remove(filepath.Join(dir, e.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeUnfinished deletes the snapshots a crash left half-written: directories
// Raft names with this suffix until they are complete, and never looks at again.
func removeUnfinished(dir string) error {
	entries, err := volume.List(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir || !strings.HasSuffix(e.Name, ".tmp") {
			continue
		}
		unfinished := filepath.Join(dir, e.Name)
		files, err := volume.List(unfinished)
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := volume.Remove(filepath.Join(unfinished, f.Name)); err != nil {
				return err
			}
		}
		if err := volume.Remove(unfinished); err != nil {
			return err
		}
	}
	return nil
}

// setAside renames fsm.db to fsm.db.stale, or to fsm.db.stale.<ns> when an earlier
// one is still there, and returns the new name.
func setAside(dir string, now time.Time) (string, error) {
	stale := filepath.Join(dir, fsmStaleName)
	if _, err := volume.Stat(stale); err == nil {
		stale = fmt.Sprintf("%s.%d", stale, now.UnixNano())
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := volume.Rename(filepath.Join(dir, fsmName), stale); err != nil {
		return "", err
	}
	return stale, disk.SyncDir(volume, dir)
}
