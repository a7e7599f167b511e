package metastore

import (
	"encoding/json"
	"fmt"

	"github.com/narad-mq/narad/internal/model"
)

// RegisterMember (type 12) writes a member's record: its first registration and
// every heartbeat. It turns the member alive and keeps the draining mark; the rest
// of the record is replaced. A tombstoned id is refused with ErrMemberRemoved.
type RegisterMember struct {
	ID         string `json:"id"`
	Addr       string `json:"addr"`                // API address
	RaftAddr   string `json:"raft_addr,omitempty"` // address peers dial for Raft
	At         int64  `json:"at"`                  // Unix milliseconds, the member's clock
	Build      string `json:"build,omitempty"`
	EntryTypes int    `json:"entry_types,omitempty"` // newest type it applies
}

// reports tells whether the record carries what release 3.0 does not know.
func (c RegisterMember) reports() bool { return c.Build != "" || c.EntryTypes != 0 }

// Type implements Command.
func (RegisterMember) Type() EntryType { return TypeRegisterMember }

func (c RegisterMember) apply(t *txn) error {
	if err := checkID("member id", c.ID); err != nil {
		return err
	}
	if t.tx.Bucket(bucketRemoved).Get([]byte(c.ID)) != nil {
		return refusef(model.ErrMemberRemoved, "%q cannot register", c.ID)
	}
	old, _, err := getJSON[model.Member](t.tx, bucketMembers, []byte(c.ID))
	if err != nil {
		return err
	}
	return t.putMember(model.Member{
		ID: c.ID, Addr: c.Addr, RaftAddr: c.RaftAddr, Status: model.MemberAlive, Draining: old.Draining,
		HeartbeatAt: c.At, Build: c.Build, EntryTypes: c.EntryTypes,
	})
}

func (t *txn) putMember(m model.Member) error {
	t.moved[DomainMembers] = true
	return t.put(bucketMembers, []byte(m.ID), m)
}

// member reads a record, or refuses with ErrMemberNotFound.
func (t *txn) member(id string) (model.Member, error) {
	m, ok, err := getJSON[model.Member](t.tx, bucketMembers, []byte(id))
	if err == nil && !ok {
		err = refusef(model.ErrMemberNotFound, "%q", id)
	}
	return m, err
}

// editMember changes a record that exists.
func (t *txn) editMember(id string, edit func(*model.Member)) error {
	m, err := t.member(id)
	if err != nil {
		return err
	}
	edit(&m)
	return t.putMember(m)
}

// MarkDead (type 13) marks a member dead; its partitions stay its own.
type MarkDead struct {
	ID string `json:"id"`
}

// Type implements Command.
func (MarkDead) Type() EntryType { return TypeMarkDead }

func (c MarkDead) apply(t *txn) error {
	return t.editMember(c.ID, func(m *model.Member) { m.Status = model.MemberDead })
}

// MarkDraining (type 14) takes a member out of placement; it survives heartbeats.
type MarkDraining struct {
	ID string `json:"id"`
}

// Type implements Command.
func (MarkDraining) Type() EntryType { return TypeMarkDraining }

func (c MarkDraining) apply(t *txn) error {
	return t.editMember(c.ID, func(m *model.Member) { m.Draining = true })
}

// CancelDraining (type 15) lets a draining member receive partitions again.
type CancelDraining struct {
	ID string `json:"id"`
}

// Type implements Command.
func (CancelDraining) Type() EntryType { return TypeCancelDraining }

func (c CancelDraining) apply(t *txn) error {
	return t.editMember(c.ID, func(m *model.Member) { m.Draining = false })
}

// RemoveMember (type 16) deletes a member's record and tombstones its id. A member
// that still owns a partition is refused with ErrConflict.
type RemoveMember struct {
	ID string `json:"id"`
}

// Type implements Command.
func (RemoveMember) Type() EntryType { return TypeRemoveMember }

func (c RemoveMember) apply(t *txn) error {
	if _, err := t.member(c.ID); err != nil {
		return err
	}
	if err := t.ownsNothing(c.ID); err != nil {
		return err
	}
	t.moved[DomainMembers] = true
	if err := t.remove(bucketMembers, []byte(c.ID)); err != nil {
		return err
	}
	return t.store(bucketRemoved, []byte(c.ID), []byte{1})
}

// ownsNothing refuses a member that some assignment names as owner. It walks every
// row: a removal happens a few times in a cluster's life.
func (t *txn) ownsNothing(id string) error {
	return t.tx.Bucket(bucketAssignments).ForEach(func(k, v []byte) error {
		var a placement
		if err := json.Unmarshal(v, &a); err != nil {
			return fmt.Errorf("fsm.db: assignment %q: %w: %w", k, model.ErrCorrupt, err)
		}
		if topic, p, ok := splitNumbered(k); ok && a.Owner == id {
			return refusef(model.ErrConflict, "member %q still owns %s/%d", id, topic, p)
		}
		return nil
	})
}

// ReadmitMember (type 17) lifts the tombstone of an id, for a node that comes back
// with an empty volume.
type ReadmitMember struct {
	ID string `json:"id"`
}

// Type implements Command.
func (ReadmitMember) Type() EntryType { return TypeReadmitMember }

func (c ReadmitMember) apply(t *txn) error {
	if err := checkID("member id", c.ID); err != nil {
		return err
	}
	if t.tx.Bucket(bucketRemoved).Get([]byte(c.ID)) == nil {
		return refusef(model.ErrMemberNotFound, "%q was not removed", c.ID)
	}
	return t.remove(bucketRemoved, []byte(c.ID))
}
