package metastore

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/raft"
)

// rebase makes a Raft snapshot of fsm.db as of an index, when the one the log follows
// is gone: Raft starts from a snapshot or from the first entry, and from nothing else.
// The file is not open yet, so it is copied as it is.
func (rd raftDisk) rebase(o Options, index uint64) error {
	term, err := rd.termAt(index)
	if err != nil {
		return err
	}
	conf, confIndex, err := rd.configurationAt(o, index)
	if err != nil {
		return err
	}
	_, names := raft.NewInmemTransport("") // addresses are written as they are
	sink, err := rd.snaps.Create(raft.SnapshotVersionMax, index, term, conf, confIndex, names)
	if err != nil {
		return err
	}
	if _, err := streamFile(sink, filepath.Join(o.Dir, fsmName)); err != nil {
		return errors.Join(fmt.Errorf("snapshot of fsm.db at index %d: %w", index, err), sink.Cancel())
	}
	o.Logger.Warn("metastore: the raft log has lost its snapshot; made one of fsm.db", "index", index)
	return sink.Close()
}

// termAt is the term of an entry, or of the one after it when the log begins there.
func (rd raftDisk) termAt(index uint64) (uint64, error) {
	var l raft.Log
	err := rd.logs.GetLog(index, &l)
	if errors.Is(err, raft.ErrLogNotFound) {
		err = rd.logs.GetLog(index+1, &l)
	}
	return l.Term, err
}

// configurationAt is the newest configuration the log still holds up to an index. If
// none is left, a node that joins waits for the leader's; any other has the one it
// bootstrapped with.
func (rd raftDisk) configurationAt(o Options, index uint64) (conf raft.Configuration, at uint64, err error) {
	first, err := rd.logs.FirstIndex()
	if err != nil {
		return conf, 0, err
	}
	for i := index; i >= first; i-- {
		var l raft.Log
		if err := rd.logs.GetLog(i, &l); err != nil {
			return conf, 0, err
		}
		if l.Type == raft.LogConfiguration {
			return raft.DecodeConfiguration(l.Data), i, nil
		}
	}
	if o.Join {
		return conf, 0, nil
	}
	conf, err = initialConfiguration(o, cmp.Or(o.Advertise, o.BindAddr))
	return conf, 1, err
}
