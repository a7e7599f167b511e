package model

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Limits of a topic (spec/http-api sections 5.2 and 8). Times are milliseconds.
const (
	TopicNameMax             = 200               // bytes, for names created now
	TopicNameStoredMax       = 255               // bytes, for names that already exist
	PartitionsMin            = 3                 // per topic
	PartitionsMax            = 108               // per topic, the default of topic.max_partitions
	RetentionMSMin     int64 = 3_600_000         // one hour; 0 keeps forever
	RetentionMSMax     int64 = 9_223_372_036_854 // the largest that fits a time.Duration
	VisibilityMSMax    int64 = 31_536_000_000    // one year
	PayloadBytesMax          = 1 << 20           // of one message
	ScanMessagesMax          = 100               // messages of one batch consume, handles of one batch ack
	BatchMessagesMax         = 1000              // messages of one batch produce
)

// Incarnation is one life of a topic name: 16 lowercase hex characters made by
// the proposer at create and kept by every update. The zero value "" means
// "unknown" and never equals a known one for the purpose of refusing data
// (spec/storage-and-produce section 3).
type Incarnation string

// NewIncarnation draws a fresh incarnation id from the system's CSPRNG.
func NewIncarnation() Incarnation {
	var b [8]byte
	rand.Read(b[:]) // never fails since Go 1.24: it crashes the program instead
	return Incarnation(hex.EncodeToString(b[:]))
}

// ParseIncarnation accepts exactly 16 lowercase hex characters.
func ParseIncarnation(s string) (Incarnation, error) {
	if len(s) != 16 {
		return "", fmt.Errorf("incarnation %q: %d characters, want 16", s, len(s))
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", fmt.Errorf("incarnation %q: character %d is not lowercase hex", s, i)
		}
	}
	return Incarnation(s), nil
}

// Bytes returns the id as the 8 bytes that binary formats carry; unknown is all
// zero. An id that does not parse reads as unknown.
func (i Incarnation) Bytes() (b [8]byte) {
	if len(i) == 16 {
		if raw, err := hex.DecodeString(string(i)); err == nil {
			copy(b[:], raw)
		}
	}
	return b
}

// IncarnationFromBytes is the inverse of Bytes.
func IncarnationFromBytes(b [8]byte) Incarnation {
	if b == ([8]byte{}) {
		return ""
	}
	return Incarnation(hex.EncodeToString(b[:]))
}

// Differs reports whether both sides are known and not the same: the only case
// in which data is refused or set aside for belonging to another life.
func (i Incarnation) Differs(j Incarnation) bool { return i != "" && j != "" && i != j }

// Topic is the replicated record of a topic. Field order is the order of
// emission in JSON (spec/http-api section 7.1). Values are immutable once they
// come from a metastore view: copy before changing.
type Topic struct {
	Name                string      `json:"name"`
	ID                  Incarnation `json:"id"`
	Partitions          int         `json:"partitions"`
	RetentionMS         int64       `json:"retention_ms"` // 0 keeps forever
	VisibilityTimeoutMS int64       `json:"visibility_timeout_ms"`
	MaxInFlight         int         `json:"max_in_flight_per_partition"`
	MaxAckedAhead       int         `json:"max_acked_ahead_per_partition"`
	CreatedAt           int64       `json:"created_at"` // Unix seconds
	Owner               string      `json:"owner,omitempty"`
	Role                Role        `json:"role,omitempty"`
	Children            []string    `json:"children,omitempty"`
	Parent              string      `json:"parent,omitempty"`
	AttachEpoch         string      `json:"attach_epoch,omitempty"`
	FanoutDelayMS       int64       `json:"fanout_delay_ms,omitempty"`
	AttachOffsets       []int64     `json:"attach_offsets,omitempty"`
	// Remote makes the topic the stub of a remote child: it has no partitions here.
	Remote *RemoteChild `json:"remote,omitempty"`
}

// Role is a topic's place in a fan-out link.
type Role string

// The roles of spec/http-api section 7.1.
const (
	RoleStandalone Role = "standalone"
	RoleParent     Role = "parent"
	RoleChild      Role = "child"
)

// LinkRole derives the role from the links the topic holds.
func (t *Topic) LinkRole() Role {
	switch {
	case t.Parent != "":
		return RoleChild
	case len(t.Children) > 0:
		return RoleParent
	}
	return RoleStandalone
}

var errName = errors.New("topic name")

// ValidateTopicName applies the rule for names created now: 1 to 200 bytes of
// A-Z a-z 0-9 . _ -, and not "." or ".." (spec/http-api section 8).
func ValidateTopicName(name string) error {
	if name == "" || len(name) > TopicNameMax {
		return fmt.Errorf("%w: %d bytes, want 1 to %d", errName, len(name), TopicNameMax)
	}
	if name == "." || name == ".." {
		return fmt.Errorf("%w %q is not allowed", errName, name)
	}
	for i := range len(name) {
		if !nameByte(name[i]) {
			return fmt.Errorf("%w %q: byte %d is not one of A-Z a-z 0-9 . _ -", errName, name, i)
		}
	}
	return nil
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// PathElement refuses a name that is not exactly one path element, whatever was
// checked above; every function that turns a topic name into a path calls it
// (spec/storage-and-produce section 2).
func PathElement(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > TopicNameStoredMax ||
		strings.ContainsAny(name, "/\\\x00") {
		return fmt.Errorf("%w %q is not one path element", errName, name)
	}
	return nil
}

// Assignment is the replicated placement of one partition.
type Assignment struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Owner     string `json:"owner"`            // member id; "" = unassigned
	Target    string `json:"target,omitempty"` // member id a move is taking it to
}

// TopicView is one topic with its placement as the local replica knows it: an
// immutable value, shared between all readers, replaced as a whole when the topic
// or its placement changes. Hot paths hold and compare pointers.
type TopicView struct {
	Topic
	Owners        []string     // member id per partition; "" = unassigned
	Targets       []string     // member id a move takes the partition to; nil when none moves
	SchemaVersion int          // newest schema version, 0 = no schema
	Versions      ViewVersions // of this node only
}

// ViewVersions are the counters of one name in the local replica: each moves with
// every change of its part, and a name that is deleted and created again never
// repeats one. They say nothing on another node, or after a restart.
type ViewVersions struct {
	Topic      uint64 // the record: settings, owner, links
	Assignment uint64 // owners and move targets
	Schema     uint64 // the schema history: the key of a loaded schema
}

// OwnerOf returns the member that owns partition p, "" when p is out of range or
// unassigned.
func (v *TopicView) OwnerOf(p int) string {
	if p < 0 || p >= len(v.Owners) {
		return ""
	}
	return v.Owners[p]
}

// PartitionKey names one partition of a topic by name.
type PartitionKey struct {
	Topic     string
	Partition int
}

func (k PartitionKey) String() string { return fmt.Sprintf("%s/%d", k.Topic, k.Partition) }
