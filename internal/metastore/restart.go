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

// baseless says that the log's first entry follows nothing Raft could start from: its
// snapshots are gone, or older than what the log was cut at.
func (f restartFacts) baseless() bool { return f.logFirst > f.snapshotIndex+1 }

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
	// resumeOnBase: as resume, but Raft has lost the snapshot its log follows. One is
	// made of fsm.db first.
	resumeOnBase
	// replayOnto: fsm.db is kept as it is and the log replayed onto it; there is
	// nothing to rebuild it from. Logged at error.
	replayOnto
)

// Startup refusals of spec/operations section 2.5; fsm.db is untouched.
var (
	errNoRaftState  = errors.New("holds metadata, but there is no raft state beside it")
	errRaftStateOld = errors.New("raft state is older than fsm.db")
	errLogGap       = errors.New("raft entries are missing before the log")
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
	case f.baseless():
		return decideBaseless(f)
	case f.trusted && f.index >= f.snapshotIndex:
		return resume, nil
	case f.snapshotIndex > 0: // behind the snapshot, or not trusted
		return restoreSnapshot, nil
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
	case f.joins && f.snapshotIndex > 0 && !f.baseless():
		return restoreSnapshot, nil
	case f.joins && f.logFirst == 1:
		return rebuild, nil
	}
	return 0, f.refusal(errRaftStateOld)
}

// decideBaseless is the rows of a compacted log without its snapshot: what fsm.db is
// known to hold stands in for it; what it may hold is all there is; and where entries
// are missing for certain the node does not start, for it would part from the others.
func decideBaseless(f restartFacts) (restartAction, error) {
	switch {
	case f.trusted && f.logFirst <= f.index+1:
		return resumeOnBase, nil
	case !f.trusted && f.holds && f.snapshotIndex == 0:
		return replayOnto, nil
	}
	return 0, f.refusal(errLogGap)
}

func (f restartFacts) refusal(why error) error {
	return fmt.Errorf("%w: fsm.db has applied index %d, the log holds %d to %d, the newest snapshot is at %d",
		why, f.index, f.logFirst, f.logLast, f.snapshotIndex)
}
