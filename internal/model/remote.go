package model

import (
	"errors"
	"fmt"
)

// Sentinels of remotes; see errors.go for the rules.
var (
	// ErrRemoteNotFound: no remote of that name.
	ErrRemoteNotFound = errors.New("remote not found")
	// ErrRemoteExists: a remote create names one that exists.
	ErrRemoteExists = errors.New("remote already exists")
	// ErrRemoteChanged: the remote is not the one the change was sealed against.
	ErrRemoteChanged = errors.New("remote changed since it was read")
	// ErrRemoteInUse: a delete without force of a remote that remote children name.
	ErrRemoteInUse = errors.New("remote is used by remote children")
)

// Limits of remotes (spec/remote-replication B3, C2).
const (
	RemotesMax               = 64         // per cluster
	RemoteChildrenMax        = 16         // per parent
	RemoteRetentionMin int64 = 86_400_000 // milliseconds, of a parent with remote children; 0 = forever
	RemoteSkipsMax           = 4000       // kept per parent partition
	RemoteLanesMax           = 8
	RemoteSaltBytes          = 32
)

// Remote is the replicated record of a remote cluster (spec/remote-replication B6).
// Times are Unix milliseconds.
type Remote struct {
	Name              string       `json:"name"`
	ID                string       `json:"id"` // 16 hex, new per create
	URL               string       `json:"url"`
	Username          string       `json:"username"`
	Sealed            Sealed       `json:"sealed"`
	Fingerprint       string       `json:"fingerprint"`
	PasswordSetAtMS   int64        `json:"password_set_at_ms"`
	PasswordSetBy     string       `json:"password_set_by"`
	CredentialVersion int          `json:"credential_version"` // 1 at create, +1 per new ciphertext
	CAPEM             string       `json:"ca_pem,omitempty"`   // "" = the system's roots
	Limits            RemoteLimits `json:"limits"`
	Revision          int          `json:"revision"` // 1 at create, +1 per change
	CreatedAtMS       int64        `json:"created_at_ms"`
	CreatedBy         string       `json:"created_by"`
}

// Sealed is an encrypted credential (spec/remote-replication B5).
type Sealed struct {
	Version    int    `json:"v"`
	KeyVersion string `json:"kv"`
	Nonce      []byte `json:"n"`
	Ciphertext []byte `json:"c"`
}

// RemoteLimits are the limits of the traffic to a remote (spec/remote-replication
// B3). Times are milliseconds.
type RemoteLimits struct {
	MaxInFlight       int    `json:"max_in_flight"`
	RequestTimeoutMS  int64  `json:"request_timeout_ms"`
	IdleConnTimeoutMS int64  `json:"idle_conn_timeout_ms"`
	ConnMaxAgeMS      int64  `json:"conn_max_age_ms"`
	CheckIntervalMS   int64  `json:"check_interval_ms"`
	Compression       string `json:"compression"`
}

// RemoteKeys is what the cluster keeps of its sealing keys; it outlives every
// remote.
type RemoteKeys struct {
	Salt []byte               `json:"salt"` // 32 bytes, of the cluster's first create
	Keys map[string]RemoteKey `json:"keys"` // by key version
}

// RemoteKey counts what a key has sealed: a lower bound.
type RemoteKey struct {
	FirstSealedAtMS int64 `json:"first_sealed_at_ms"` // Unix milliseconds
	Seals           int64 `json:"seals"`
}

// RemoteChild is where a remote child sends, and how it stands (spec/remote-
// replication C1). CreatedBy and PausedBy are for admins only.
type RemoteChild struct {
	Name        string          `json:"name"`                // the remote's
	Topic       string          `json:"topic"`               // there
	TargetID    string          `json:"target_id,omitempty"` // "" = unknown
	From        string          `json:"from,omitempty"`
	Lanes       int             `json:"lanes"`
	Paused      bool            `json:"paused,omitempty"`
	PauseReason string          `json:"pause_reason,omitempty"`
	PausedBy    string          `json:"paused_by,omitempty"`
	PausedAtMS  int64           `json:"paused_at_ms,omitempty"`
	Skip        map[int][]int64 `json:"skip,omitempty"` // offsets by parent partition, ascending
	CreatedBy   string          `json:"created_by,omitempty"`
}

// HeldBackError refuses what some member's release does not know (412). It matches
// ErrHeldBack.
type HeldBackError struct {
	EntryType int
	Name      string   // of the entry type
	Remotes   bool     // it is one of remotes, which have nothing older to fall back to
	Members   []string // ids that hold it back, ascending; the reason names the first
	Reason    string
}

func (e *HeldBackError) Error() string {
	if e.Remotes {
		return "not every cluster member runs a release that applies the remote Raft entry types; " +
			"upgrade or remove the member named here: " + e.Reason
	}
	return fmt.Sprintf("not every cluster member applies raft entry type %d (%s): %s", e.EntryType, e.Name, e.Reason)
}

// Is makes the error match ErrHeldBack.
func (e *HeldBackError) Is(target error) bool { return target == ErrHeldBack }
