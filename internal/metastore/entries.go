package metastore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/narad-mq/narad/internal/model"
)

// EntryType numbers a Raft entry. Numbers are never reused and never change their
// meaning: a log written by one release is replayed by the next.
type EntryType uint8

// The base entry types, which every release applies.
const (
	// TypeCreateTopic creates a topic and, in the same entry, places its partitions.
	TypeCreateTopic EntryType = 1
	// TypeUpdateTopic changes retention, caps or owner, or adds partitions.
	TypeUpdateTopic EntryType = 2
	// TypeDeleteTopic deletes a topic with its assignments, schemas and links.
	TypeDeleteTopic EntryType = 3
	// TypePutSchema appends a schema version: exactly the latest plus one.
	TypePutSchema EntryType = 4
	// TypeDropSchemas deletes a topic's schema history.
	TypeDropSchemas EntryType = 5
	// TypeAttachChild links a standalone topic under a parent.
	TypeAttachChild EntryType = 6
	// TypeDetachChild unlinks a child from its parent.
	TypeDetachChild EntryType = 7
	// TypeAssignPartition sets the owner of one partition.
	TypeAssignPartition EntryType = 8
	// TypeSetTarget starts a move of a partition to another member.
	TypeSetTarget EntryType = 9
	// TypeClearTarget ends a move without a change of owner.
	TypeClearTarget EntryType = 10
	// TypeFlipPartition makes a partition's move target its owner.
	TypeFlipPartition EntryType = 11
	// TypeRegisterMember writes a member's record: registration and heartbeat.
	TypeRegisterMember EntryType = 12
	// TypeMarkDead marks a member dead.
	TypeMarkDead EntryType = 13
	// TypeMarkDraining starts a decommission.
	TypeMarkDraining EntryType = 14
	// TypeCancelDraining cancels a decommission.
	TypeCancelDraining EntryType = 15
	// TypeRemoveMember deletes a member's record and tombstones its id.
	TypeRemoveMember EntryType = 16
	// TypeReadmitMember lifts the tombstone of an id.
	TypeReadmitMember EntryType = 17
	// TypeCreateUser creates a user.
	TypeCreateUser EntryType = 18
	// TypeSetPassword replaces a user's password hash.
	TypeSetPassword EntryType = 19
	// TypeSetGrants replaces a user's grants.
	TypeSetGrants EntryType = 20
	// TypeDeleteUser deletes a user.
	TypeDeleteUser EntryType = 21
	// TypePlacePartitions places the unowned partitions of a topic in one entry.
	TypePlacePartitions EntryType = 22

	// NewestType is the highest type this build applies.
	NewestType = TypeDeleteRemote
)

// The entry types of release 3.1: each carries what it was checked against.
const (
	// TypeCreateLinkedTopic creates a topic with its first schema version and link.
	TypeCreateLinkedTopic EntryType = 23
	// TypeAlterTopic is a compare-and-set topic update.
	TypeAlterTopic EntryType = 24
	// TypeRemoveTopic is a compare-and-set topic delete.
	TypeRemoveTopic EntryType = 25
	// TypePutSchemaVersion is a compare-and-set schema version.
	TypePutSchemaVersion EntryType = 26
	// TypeLinkChild is a compare-and-set fan-out attach.
	TypeLinkChild EntryType = 27
	// TypeUnlinkChild is a compare-and-set fan-out detach.
	TypeUnlinkChild EntryType = 28
	// TypeInsertPlacement places partitions without owner, insert-only.
	TypeInsertPlacement EntryType = 29
	// TypePrunePlacement deletes an assignment row that belongs to no partition.
	TypePrunePlacement EntryType = 30
	// TypeMarkSilent marks a member dead from an observed heartbeat.
	TypeMarkSilent EntryType = 31
	// TypeRemoveUser deletes a user and releases its topics.
	TypeRemoveUser EntryType = 32
)

// The entry types of release 3.2: remotes. They have nothing to fall back to.
const (
	// TypeAttachRemote creates a remote child's stub and links it.
	TypeAttachRemote EntryType = 33
	// TypeChangeRemoteChild pauses, resumes or skips on a remote child.
	TypeChangeRemoteChild EntryType = 34
	// TypeCreateRemote stores a remote.
	TypeCreateRemote EntryType = 35
	// TypeChangeRemote changes a remote or its credential.
	TypeChangeRemote EntryType = 36
	// TypeDeleteRemote deletes a remote.
	TypeDeleteRemote EntryType = 37
)

// EntryBytesMax bounds one encoded entry. The largest payload is a schema document
// (256 KiB, spec/http-api LIM-14) with room to spare.
const EntryBytesMax = 4 << 20

var (
	errUnknownType = errors.New("unknown raft entry type")
	errUndecodable = fmt.Errorf("raft entry does not decode: %w", model.ErrCorrupt)
)

// Command is a change of the replicated state. The commands of this package are
// its only implementations.
type Command interface {
	// Type is the entry type the command is logged as.
	Type() EntryType
	// apply performs the change inside t, or refuses it before writing anything.
	apply(t *txn) error
}

// entryInfo is what the registry knows of a type.
type entryInfo struct {
	name   string // as in log lines
	decode func(payload []byte) (Command, error)
}

func entry[C Command](name string) entryInfo {
	return entryInfo{name: name, decode: func(payload []byte) (Command, error) {
		var c C
		if err := json.Unmarshal(payload, &c); err != nil {
			return nil, err
		}
		return c, nil
	}}
}

// registry lists the types this build applies, indexed by number. Read-only.
var registry = [NewestType + 1]entryInfo{
	TypeCreateTopic:     entry[CreateTopic]("create topic"),
	TypeUpdateTopic:     entry[UpdateTopic]("update topic"),
	TypeDeleteTopic:     entry[DeleteTopic]("delete topic"),
	TypePutSchema:       entry[PutSchema]("put schema version"),
	TypeDropSchemas:     entry[DropSchemas]("delete topic schemas"),
	TypeAttachChild:     entry[AttachChild]("attach child"),
	TypeDetachChild:     entry[DetachChild]("detach child"),
	TypeAssignPartition: entry[AssignPartition]("assign partition"),
	TypeSetTarget:       entry[SetTarget]("set move target"),
	TypeClearTarget:     entry[ClearTarget]("clear move target"),
	TypeFlipPartition:   entry[FlipPartition]("flip partition"),
	TypeRegisterMember:  entry[RegisterMember]("register member"),
	TypeMarkDead:        entry[MarkDead]("mark member dead"),
	TypeMarkDraining:    entry[MarkDraining]("mark member draining"),
	TypeCancelDraining:  entry[CancelDraining]("cancel draining"),
	TypeRemoveMember:    entry[RemoveMember]("remove member"),
	TypeReadmitMember:   entry[ReadmitMember]("readmit member"),
	TypeCreateUser:      entry[CreateUser]("create user"),
	TypeSetPassword:     entry[SetPassword]("set password"),
	TypeSetGrants:       entry[SetGrants]("set grants"),
	TypeDeleteUser:      entry[DeleteUser]("delete user"),
	TypePlacePartitions: entry[PlacePartitions]("place partitions"),

	TypeCreateLinkedTopic: entry[CreateLinkedTopic]("create topic with schema and link"),
	TypeAlterTopic:        entry[AlterTopic]("compare-and-set topic update"),
	TypeRemoveTopic:       entry[RemoveTopic]("compare-and-set topic delete"),
	TypePutSchemaVersion:  entry[PutSchemaVersion]("compare-and-set schema version"),
	TypeLinkChild:         entry[LinkChild]("compare-and-set fan-out attach"),
	TypeUnlinkChild:       entry[UnlinkChild]("compare-and-set fan-out detach"),
	TypeInsertPlacement:   entry[InsertPlacement]("insert-only partition placement"),
	TypePrunePlacement:    entry[PrunePlacement]("orphan assignment prune"),
	TypeMarkSilent:        entry[MarkSilent]("dead mark from an observed heartbeat"),
	TypeRemoveUser:        entry[RemoveUser]("user delete that releases its topics"),

	TypeAttachRemote:      entry[AttachRemote]("remote child attach"),
	TypeChangeRemoteChild: entry[ChangeRemoteChild]("remote child state change"),
	TypeCreateRemote:      entry[CreateRemote]("remote create"),
	TypeChangeRemote:      entry[ChangeRemote]("remote change"),
	TypeDeleteRemote:      entry[DeleteRemote]("remote delete"),
}

// Known reports whether this build applies the type.
func (t EntryType) Known() bool { return t > 0 && t <= NewestType }

func (t EntryType) String() string {
	if t.Known() {
		return registry[t].name
	}
	return fmt.Sprintf("entry type %d", uint8(t))
}

// encodeEntry builds the envelope of a command.
func encodeEntry(c Command) ([]byte, error) {
	buf := bytes.NewBuffer([]byte{byte(c.Type())})
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false) // a schema document is stored as it is, not six times as long
	if err := enc.Encode(c); err != nil {
		return nil, fmt.Errorf("encode %s: %w", c.Type(), err)
	}
	b := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	if len(b) > EntryBytesMax {
		return nil, fmt.Errorf("%w: %s of %d bytes, at most %d", model.ErrInvalid, c.Type(), len(b), EntryBytesMax)
	}
	return b, nil
}

// decodeEntry is the inverse of encodeEntry. The error is errUndecodable, which
// every node's log holds alike, or errUnknownType, which stops this node.
func decodeEntry(b []byte, newest EntryType) (Command, error) {
	if len(b) == 0 || b[0] == 0 {
		return nil, fmt.Errorf("%w: no entry type", errUndecodable)
	}
	if len(b) > EntryBytesMax {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", errUndecodable, len(b), EntryBytesMax)
	}
	t := EntryType(b[0])
	if t > newest {
		return nil, fmt.Errorf("%w %d, this build applies 1 to %d", errUnknownType, b[0], uint8(newest))
	}
	c, err := registry[t].decode(b[1:])
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errUndecodable, t, err)
	}
	return c, nil
}
