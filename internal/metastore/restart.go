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
	raftState     bool   // raft.db or a snapshot holds anything
	snapshotIndex uint64 // of the newest snapshot, 0 = none
	logFirst      uint64 // 0 = empty log
	logLast       uint64
	joins         bool // the node joins a running cluster instead of being one
}

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
	case f.holds && !f.raftState:
		if f.joins {
			return rebuild, nil
		}
		return 0, fmt.Errorf("fsm.db %w", errNoRaftState)
	case !f.holds && !f.raftState:
		return resume, nil
	case f.trusted && f.index > max(f.logLast, f.snapshotIndex):
		if f.joins {
			return rebuild, nil
		}
		return 0, fmt.Errorf("%w: fsm.db has applied index %d, the log ends at %d, the newest snapshot is at %d",
			errRaftStateOld, f.index, f.logLast, f.snapshotIndex)
	case f.trusted && f.index >= f.snapshotIndex && f.logFirst <= f.index+1:
		return resume, nil
	case f.snapshotIndex > 0:
		return restoreSnapshot, nil
	case f.logFirst > 1:
		return replayOnto, nil
	case f.holds:
		return rebuild, nil
	}
	return resume, nil
}
