package metastore

import (
	"errors"
	"fmt"
)

// restartFacts is what a node finds on its disk before Raft starts.
type restartFacts struct {
	holds         bool   // fsm.db holds anything
	index         uint64 // fsm.db's applied index
	trusted       bool   // and whether it still describes the file
	snapshotIndex uint64 // of the newest snapshot, 0 = none
	logFirst      uint64 // 0 = empty log
	logLast       uint64
	joins         bool // the node may join a running cluster, which brings the rest
}

// raftState says whether Raft has anything to resume from. A term or a vote alone
// is nothing: a joiner gets one before its first entry.
func (f restartFacts) raftState() bool { return f.logLast > 0 || f.snapshotIndex > 0 }

// restartAction is what to do with fsm.db.
type restartAction uint8

const (
	// resume: fsm.db is kept, the snapshot is not restored, the replay skips what
	// fsm.db holds. A fresh node resumes from nothing.
	resume restartAction = iota
	// restoreSnapshot: the newest snapshot replaces fsm.db, then its tail is applied.
	restoreSnapshot
	// rebuild: fsm.db is set aside and built again from the log, or by the cluster.
	rebuild
	// replayOnto: fsm.db is kept as it is and the log replayed onto it; there is
	// nothing to rebuild it from. Logged at error.
	replayOnto
)

// Startup refusals of spec/operations section 2.5; fsm.db is untouched.
var (
	errNoRaftState  = errors.New("holds metadata, but there is no raft state beside it")
	errRaftStateOld = errors.New("raft state is older than fsm.db")
)

// decideRestart is the restart table of the metastore design, row by row.
func decideRestart(f restartFacts) (restartAction, error) {
	switch {
	case !f.raftState() && !f.holds: // a fresh node
		return resume, nil
	case !f.raftState() && f.joins:
		return rebuild, nil
	case !f.raftState():
		return 0, fmt.Errorf("fsm.db %w", errNoRaftState)
	case f.trusted && f.index > max(f.logLast, f.snapshotIndex):
		return decideOlderRaft(f)
	case f.trusted && f.index >= f.snapshotIndex && f.logFirst <= f.index+1:
		return resume, nil
	case f.snapshotIndex > 0: // behind the snapshot, or not trusted
		return restoreSnapshot, nil
	case f.logFirst > 1: // not trusted, or a gap before the log
		return replayOnto, nil
	case f.holds: // not trusted, and the log has every entry
		return rebuild, nil
	}
	return resume, nil
}

// decideOlderRaft is the row of a Raft state that ends before fsm.db: a backup of
// raft.db and the snapshots, without fsm.db. Only a node the cluster can bring up to
// date goes on, and only from a state that is whole.
func decideOlderRaft(f restartFacts) (restartAction, error) {
	switch {
	case f.joins && f.snapshotIndex > 0:
		return restoreSnapshot, nil
	case f.joins && f.logFirst == 1:
		return rebuild, nil
	}
	return 0, fmt.Errorf("%w: fsm.db has applied index %d, the log ends at %d, the newest snapshot is at %d",
		errRaftStateOld, f.index, f.logLast, f.snapshotIndex)
}
