package model

import (
	"errors"
	"fmt"
)

// Sentinel errors. Wrap them with %w and context; test with errors.Is. One table
// in httpapi turns them into statuses and texts.
var (
	// ErrTopicNotFound: no topic of that name in the local replica.
	ErrTopicNotFound = errors.New("topic not found")
	// ErrTopicExists: a create names a topic that exists.
	ErrTopicExists = errors.New("topic already exists")
	// ErrNameTaken: a create differs from an existing name only by letter case.
	ErrNameTaken = errors.New("topic name differs from an existing one only by case")
	// ErrNotLinked: a detach names a topic that is no child of the parent.
	ErrNotLinked = errors.New("no such fan-out link")
	// ErrTopicChanged: a compare-and-set missed twice.
	ErrTopicChanged = errors.New("topic changed since it was read")
	// ErrInvalid: the request breaks a rule; the text names field and values.
	ErrInvalid = errors.New("invalid argument")
	// ErrHeldBack: a member's release does not know what the request needs (412);
	// see HeldBackError.
	ErrHeldBack = errors.New("not every cluster member runs a release that applies this")
	// ErrTrailingData: a peer of an older release met fields it does not know; send
	// the request again without them.
	ErrTrailingData = errors.New("trailing data")
	// ErrOlderRelease: a joiner applies fewer entry types than the cluster may use.
	ErrOlderRelease = errors.New("the joiner runs an older release than the cluster")
	// ErrConflict: the request is well-formed but the current state refuses it.
	ErrConflict = errors.New("conflict")
	// ErrSchemaVersion: a schema change names a base version that is not the current.
	ErrSchemaVersion = errors.New("schema version conflict")
	// ErrVersionExists: a schema version is not the one after the newest; read the
	// history again and propose the next.
	ErrVersionExists = errors.New("schema version already exists")
	// ErrDelayedChild: a produce names a delay child.
	ErrDelayedChild = errors.New("direct produce to a delayed child topic is not allowed")
	// ErrBadHandle: a receipt handle does not decode.
	ErrBadHandle = errors.New("invalid receipt handle")
	// ErrNoLease: no live lease carries this handle's nonce.
	ErrNoLease = errors.New("receipt handle no longer matches an active reservation")
	// ErrOffsetGone: a replay read below the oldest retained offset; see AgedOut.
	ErrOffsetGone = errors.New("aged out of retention")
	// ErrUnreadable: the record's bytes are damaged; never transient.
	ErrUnreadable = errors.New("record is unreadable")
	// ErrNotOwner: this node does not own the partition, or a handoff froze it.
	ErrNotOwner = errors.New("this node does not own the requested partition")
	// ErrOwnerDown: membership calls the owner of the partition dead, so it was not asked;
	// nothing was applied.
	ErrOwnerDown = errors.New("partition owner is down; retry later")
	// ErrOwnerUnreachable: a consume or read went to the owner of the partition and no
	// answer came.
	ErrOwnerUnreachable = errors.New("the partition owner did not answer; retry")
	// ErrAckNotDelivered: a settlement never left this node; nothing was applied.
	ErrAckNotDelivered = errors.New("the ack did not reach the partition owner and was not applied; retry")
	// ErrAckUnanswered: a settlement was sent and no answer came; it may have been applied.
	ErrAckUnanswered = errors.New("the partition owner did not answer; the ack may have been applied; retry")
	// ErrIncarnation: records accepted for another life of the topic's name.
	ErrIncarnation = errors.New("records were accepted for another topic incarnation")
	// ErrUnavailable: the control plane cannot answer now (no leader, not caught up).
	ErrUnavailable = errors.New("control plane temporarily unavailable")
	// ErrPurgeDeferred: this node's replica still shows the topic incarnation that is to
	// be purged (503, code purge_deferred).
	ErrPurgeDeferred = errors.New("purge deferred: the local metastore still shows the topic incarnation")
	// ErrNotLeader: the call needs the leader of the metastore, and this node is not. It
	// is an ErrUnavailable for every caller that cannot ask the leader instead.
	ErrNotLeader = fmt.Errorf("%w: not the metastore leader", ErrUnavailable)
	// ErrOutcomeUnknown: a metadata write may still be applied.
	ErrOutcomeUnknown = errors.New("the change may still be applied, read it back before retrying")
	// ErrShuttingDown: the node is stopping.
	ErrShuttingDown = errors.New("shutting down")
	// ErrLogClosed: a closed partition log was used; transient, resolve it again.
	ErrLogClosed = errors.New("partition log is closed")
	// ErrLogPoisoned: an fsync of the partition log failed; final until reopened.
	ErrLogPoisoned = errors.New("partition log is poisoned")
	// ErrWALFailed: a write or fsync of the ingress WAL failed; latched until restart.
	ErrWALFailed = errors.New("ingress WAL has failed")
	// ErrDiskReserve: free space is below storage.reserve_bytes; nothing was written.
	ErrDiskReserve = errors.New("disk almost full")
	// ErrTooLarge: a message, key and payload together, does not fit a WAL record.
	ErrTooLarge = errors.New("message too large")
	// ErrSchemaBusy: no slot to check a payload in came free in time; nothing was
	// stored.
	ErrSchemaBusy = errors.New("schema: validation capacity busy, retry")
	// ErrCorrupt: bytes on disk do not decode; wrapped with file, position and reason.
	ErrCorrupt = errors.New("corrupt")
)

// AgedOutError says which offset is the oldest one still retained. It matches
// ErrOffsetGone.
type AgedOutError struct {
	Offset, Oldest int64
}

func (e *AgedOutError) Error() string {
	return fmt.Sprintf("offset %d aged out of retention (oldest retained: %d)", e.Offset, e.Oldest)
}

// Is makes the error match ErrOffsetGone.
func (e *AgedOutError) Is(target error) bool { return target == ErrOffsetGone }
