package model

import "errors"

// Sentinels of members and users; see errors.go for the rules.
var (
	// ErrMemberNotFound: no member record of that id.
	ErrMemberNotFound = errors.New("member not found")
	// ErrMemberRemoved: the id was decommissioned and is tombstoned until readmitted.
	ErrMemberRemoved = errors.New("member was decommissioned")
	// ErrAllDraining: placement found live members, all of them draining; nothing
	// was written (E-DRAIN2 of spec/http-api section 16).
	ErrAllDraining = errors.New("every live member is being decommissioned, so no member can take new partitions; " +
		"wait for restarting members to come back, abort a decommission or add a node")
	// ErrNoMember: no member is alive, so new partitions stay unassigned until one is
	// (spec/http-api TC-17).
	ErrNoMember = errors.New("metastore: no alive member to own new partitions")
	// ErrUserNotFound: no user of that name.
	ErrUserNotFound = errors.New("user not found")
	// ErrUserExists: a user create names one that exists.
	ErrUserExists = errors.New("user already exists")
)

// MemberStatus is what the controller last decided about a member.
type MemberStatus string

// The two statuses of spec/cluster-and-network section 14.2.
const (
	MemberAlive MemberStatus = "alive"
	MemberDead  MemberStatus = "dead"
)

// Member is the replicated record of a cluster member. Values that come from a
// metastore are shared: copy before changing.
type Member struct {
	ID          string       `json:"id"`
	Addr        string       `json:"addr"`                // API address, host:port
	RaftAddr    string       `json:"raft_addr,omitempty"` // host:port peers dial for Raft
	Status      MemberStatus `json:"status"`
	Draining    bool         `json:"draining,omitempty"`
	HeartbeatAt int64        `json:"heartbeat_at"`          // Unix milliseconds, the sender's clock
	Build       string       `json:"build,omitempty"`       // release it reported last
	EntryTypes  int          `json:"entry_types,omitempty"` // newest Raft entry type it applies; 0 reads as the base set
}

// Receives reports whether new partitions may be placed on the member.
func (m *Member) Receives() bool { return m.Status == MemberAlive && !m.Draining }
