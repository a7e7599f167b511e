package metastore

import (
	"github.com/narad-mq/narad/internal/model"
)

// InsertPlacement (type 29) places partitions First, First+1 and so on of the
// incarnation it was computed for. It never replaces an owner: partitions that have
// one are passed over, and an entry that would place nothing is refused with
// ErrConflict. Refused also with ErrTopicChanged, ErrMemberRemoved and ErrInvalid.
type InsertPlacement struct {
	Topic  string            `json:"topic"`
	ID     model.Incarnation `json:"id"`
	First  int               `json:"first,omitempty"`
	Owners []string          `json:"owners"` // "" passes a partition over
}

// Type implements Command.
func (InsertPlacement) Type() EntryType { return TypeInsertPlacement }

func (c InsertPlacement) apply(t *txn) error {
	rec, err := t.topicOf(c.Topic, c.ID)
	if err != nil {
		return err
	}
	if c.First < 0 || c.First >= rec.Partitions {
		return refusef(model.ErrInvalid, "first partition %d of %q, want 0 to %d", c.First, c.Topic, rec.Partitions-1)
	}
	if err := t.checkOwners(c.Owners, rec.Partitions-c.First); err != nil {
		return err
	}
	free := 0
	for i, id := range c.Owners {
		a, err := t.placement(c.Topic, c.First+i)
		if err != nil {
			return err
		}
		if id != "" && a.Owner == "" {
			free++
		}
	}
	if free == 0 {
		return refusef(model.ErrConflict, "no partition of %q from %d on is without owner", c.Topic, c.First)
	}
	return t.place(c.Topic, c.First, c.Owners)
}

// PrunePlacement (type 30) deletes an assignment row that belongs to no partition:
// its topic is gone, or its partition is past the topic's count. A row that belongs
// to one is refused with ErrConflict.
type PrunePlacement struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
}

// Type implements Command.
func (PrunePlacement) Type() EntryType { return TypePrunePlacement }

func (c PrunePlacement) apply(t *txn) error {
	rec, ok, err := getJSON[model.Topic](t.tx, bucketTopics, []byte(c.Topic))
	if err != nil {
		return err
	}
	if ok && c.Partition >= 0 && c.Partition < rec.Partitions {
		return refusef(model.ErrConflict, "%s/%d is a partition of the topic", c.Topic, c.Partition)
	}
	if err := model.PathElement(c.Topic); err != nil || c.Partition < 0 {
		return refusef(model.ErrInvalid, "no assignment row can be that of %q/%d", c.Topic, c.Partition)
	}
	return t.remove(bucketAssignments, numbered(c.Topic, c.Partition))
}

// MarkSilent (type 31) marks a member dead, unless its record shows another
// heartbeat than the one the decision was made from: refused with ErrConflict.
type MarkSilent struct {
	ID          string `json:"id"`
	HeartbeatAt int64  `json:"heartbeat_at"` // Unix milliseconds, as on the record judged
}

// Type implements Command.
func (MarkSilent) Type() EntryType { return TypeMarkSilent }

func (c MarkSilent) apply(t *txn) error {
	m, err := t.member(c.ID)
	if err != nil {
		return err
	}
	if m.HeartbeatAt != c.HeartbeatAt {
		return refusef(model.ErrConflict, "member %q was heard at %d, not last at %d", c.ID, m.HeartbeatAt, c.HeartbeatAt)
	}
	m.Status = model.MemberDead
	return t.putMember(m)
}
