package metastore

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/model"
)

// CheckJoiner refuses a server that is not in the Raft configuration yet and runs
// an older release than the cluster, with ErrOlderRelease: it applies fewer entry
// types than every member on record, this node included, or fewer than the newest
// this replica has applied. entryTypes is the newest type it reported, 0 = none.
// A server without member record is left out: its release is unknown.
func (s *Store) CheckJoiner(id string, entryTypes int) error {
	if slices.ContainsFunc(s.Servers(), func(server Server) bool { return server.ID == id }) {
		return nil
	}
	joiner := reported(model.Member{EntryTypes: entryTypes})
	least := s.gate.newest
	for _, m := range s.Members() {
		if m.ID != s.self.NodeID && m.ID != id {
			least = min(least, reported(m))
		}
	}
	used := EntryType(s.fsm.newest.Load())
	if joiner >= least && joiner >= used {
		return nil
	}
	if s.gate.lines.Allow("joiner " + id) {
		s.log.Error("cluster join refused: the joiner runs an older release than the cluster", "id", id,
			"joiner_entry_types", int(joiner), "member_entry_types_min", int(least), "cluster_entry_type_used", int(used))
	}
	return fmt.Errorf("%w: %q applies entry types up to %d, every member up to %d at least, the cluster has used %d",
		model.ErrOlderRelease, id, joiner, least, used)
}

// bucketLogs is where Raft's log store keeps its entries.
var bucketLogs = []byte("logs")

// HasState reports whether a metastore directory holds Raft state to resume from, a
// log entry or a snapshot, without writing to it. A term or a vote alone is none.
func HasState(dir string) (bool, error) {
	snapshots, err := volume.List(filepath.Join(dir, snapshotsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, e := range snapshots {
		if e.IsDir && !strings.HasSuffix(e.Name, ".tmp") {
			return true, nil
		}
	}
	path := filepath.Join(dir, raftName)
	if ok, err := exists(path); err != nil || !ok {
		return false, err
	}
	has := false
	err = inspect(path, func(tx *bbolt.Tx) error {
		if b := tx.Bucket(bucketLogs); b != nil {
			first, _ := b.Cursor().First()
			has = first != nil
		}
		return nil
	})
	return has, err
}

// Blank reports whether this node still has no Raft state: HasState of a node that
// runs.
func (s *Store) Blank() bool { return s.raft.LastIndex() == 0 }

// Removed reports whether an id is tombstoned: its node was decommissioned, and has
// not been readmitted.
func (s *Store) Removed(id string) (removed bool, err error) {
	err = s.fsm.view(func(tx *bbolt.Tx) error {
		removed = tx.Bucket(bucketRemoved).Get([]byte(id)) != nil
		return nil
	})
	return removed, err
}
