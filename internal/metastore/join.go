package metastore

import (
	"fmt"
	"slices"

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
