package metastore

import (
	"slices"

	"github.com/narad-mq/narad/internal/model"
)

// CreateTopic (type 1) creates a topic. Rows left under the name by an earlier
// topic are dropped. Refused with ErrTopicExists, ErrMemberRemoved or ErrInvalid.
type CreateTopic struct {
	Topic  model.Topic `json:"topic"`            // links and role are ignored
	Owners []string    `json:"owners,omitempty"` // by partition, "" or missing = unassigned
}

// Type implements Command.
func (CreateTopic) Type() EntryType { return TypeCreateTopic }

func (c CreateTopic) apply(t *txn) error {
	rec := unlinked(c.Topic)
	rec.Children = nil
	if err := t.checkNewTopic(&rec, c.Owners); err != nil {
		return err
	}
	if err := t.clearName(rec.Name); err != nil {
		return err
	}
	if err := t.putTopic(rec); err != nil {
		return err
	}
	return t.place(rec.Name, 0, c.Owners)
}

// checkNewTopic refuses a topic that cannot be created, or is there already.
func (t *txn) checkNewTopic(rec *model.Topic, owners []string) error {
	if err := model.PathElement(rec.Name); err != nil {
		return refusef(model.ErrInvalid, "%w", err)
	}
	if _, err := model.ParseIncarnation(string(rec.ID)); err != nil {
		return refusef(model.ErrInvalid, "%w", err)
	}
	if rec.Partitions < 1 || rec.Partitions > partitionsStoredMax {
		return refusef(model.ErrInvalid, "partitions %d, want 1 to %d", rec.Partitions, partitionsStoredMax)
	}
	if t.tx.Bucket(bucketTopics).Get([]byte(rec.Name)) != nil {
		return refuse(model.ErrTopicExists)
	}
	return t.checkOwners(owners, rec.Partitions)
}

// clearName drops the rows under a topic's name, for its end or a new beginning.
func (t *txn) clearName(name string) error {
	t.touch(name, touchAll)
	if err := t.dropRows(bucketAssignments, name); err != nil {
		return err
	}
	return t.dropSchemas(name)
}

// checkOwners refuses more owners than partitions, and owners that may not own.
func (t *txn) checkOwners(owners []string, partitions int) error {
	if len(owners) > partitions {
		return refusef(model.ErrInvalid, "%d owners for %d partitions", len(owners), partitions)
	}
	for i, id := range owners {
		if i > 0 && id == owners[i-1] {
			continue
		}
		if err := t.checkOwner(id); err != nil {
			return err
		}
	}
	return nil
}

// place writes the owners of partitions first, first+1 and so on; it never
// replaces an owner.
func (t *txn) place(topic string, first int, owners []string) error {
	for i, id := range owners {
		if id == "" {
			continue
		}
		a, err := t.placement(topic, first+i)
		if err != nil {
			return err
		}
		if a.Owner != "" {
			continue
		}
		a.Owner = id
		if err := t.putPlacement(topic, first+i, a); err != nil {
			return err
		}
	}
	return nil
}

// UpdateTopic (type 2) changes the fields that are set and keeps the rest. With ID
// set it is a compare-and-set: another life of the name, or a partition count that
// is not PartitionsFrom, is refused with ErrTopicChanged. The count never shrinks.
type UpdateTopic struct {
	Name           string            `json:"name"`
	ID             model.Incarnation `json:"id,omitempty"`
	RetentionMS    *int64            `json:"retention_ms,omitempty"`
	MaxInFlight    *int              `json:"max_in_flight,omitempty"`
	MaxAckedAhead  *int              `json:"max_acked_ahead,omitempty"`
	Owner          *string           `json:"owner,omitempty"` // username
	Partitions     *int              `json:"partitions,omitempty"`
	PartitionsFrom int               `json:"partitions_from,omitempty"` // count the owners were computed from
	Owners         []string          `json:"owners,omitempty"`          // of the added partitions
}

// Type implements Command.
func (UpdateTopic) Type() EntryType { return TypeUpdateTopic }

func (c UpdateTopic) apply(t *txn) error {
	rec, err := t.topicLife(c.Name, c.ID)
	if err != nil {
		return err
	}
	return t.alter(rec, c)
}

// alter writes a record with the fields that are set in c.
func (t *txn) alter(rec model.Topic, c UpdateTopic) error {
	if err := t.checkRemoteRules(&rec, c.RetentionMS); err != nil {
		return err
	}
	before := rec.Partitions
	if c.Partitions != nil {
		if before != c.PartitionsFrom {
			return refuse(model.ErrTopicChanged)
		}
		if *c.Partitions <= before || *c.Partitions > partitionsStoredMax {
			return refusef(model.ErrInvalid, "partitions %d, want %d to %d", *c.Partitions, before+1, partitionsStoredMax)
		}
		if err := t.checkOwners(c.Owners, *c.Partitions-before); err != nil {
			return err
		}
		rec.Partitions = *c.Partitions
	} else if len(c.Owners) > 0 {
		return refusef(model.ErrInvalid, "%d owners without new partitions", len(c.Owners))
	}
	setIf(&rec.RetentionMS, c.RetentionMS)
	setIf(&rec.MaxInFlight, c.MaxInFlight)
	setIf(&rec.MaxAckedAhead, c.MaxAckedAhead)
	setIf(&rec.Owner, c.Owner)
	if err := t.putTopic(rec); err != nil {
		return err
	}
	return t.place(c.Name, before, c.Owners)
}

// checkRemoteRules refuses any change of a remote child's stub, and a retention too
// short for the remote children a topic has.
func (t *txn) checkRemoteRules(rec *model.Topic, retention *int64) error {
	if rec.Remote != nil {
		return refusef(model.ErrConflict, "remote child %q lives on remote %s", rec.Name, rec.Remote.Name)
	}
	if retention == nil || *retention == 0 || *retention >= model.RemoteRetentionMin || rec.RetentionMS != 0 && *retention >= rec.RetentionMS {
		return nil
	}
	for _, name := range rec.Children {
		child, ok, err := getJSON[model.Topic](t.tx, bucketTopics, []byte(name))
		if err != nil {
			return err
		}
		if ok && child.Remote != nil {
			return refusef(model.ErrConflict, "retention_ms %d of %q, a parent of remote children needs %d or 0", *retention, rec.Name, model.RemoteRetentionMin)
		}
	}
	return nil
}

func setIf[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}

// DeleteTopic (type 3) deletes a topic, its assignments and its schemas; children
// become standalone, a parent loses the child. With ID set, another life of the
// name is refused with ErrTopicChanged.
type DeleteTopic struct {
	Name string            `json:"name"`
	ID   model.Incarnation `json:"id,omitempty"`
}

// Type implements Command.
func (DeleteTopic) Type() EntryType { return TypeDeleteTopic }

func (c DeleteTopic) apply(t *txn) error {
	rec, err := t.topicLife(c.Name, c.ID)
	if err != nil {
		return err
	}
	return t.deleteTopic(rec)
}

// deleteTopic deletes a record and everything under its name, and unlinks it.
func (t *txn) deleteTopic(rec model.Topic) error {
	if rec.Parent != "" {
		if err := t.forgetChild(rec.Parent, rec.Name); err != nil {
			return err
		}
	}
	for _, name := range rec.Children {
		child, ok, err := getJSON[model.Topic](t.tx, bucketTopics, []byte(name))
		if err != nil {
			return err
		}
		if !ok || child.Parent != rec.Name {
			continue
		}
		if child.Remote != nil {
			err = t.drop(name) // a stub is nothing without its parent
		} else {
			err = t.putTopic(unlinked(child))
		}
		if err != nil {
			return err
		}
	}
	return t.drop(rec.Name)
}

// drop deletes a record and the rows under its name.
func (t *txn) drop(name string) error {
	if err := t.clearName(name); err != nil {
		return err
	}
	return t.remove(bucketTopics, []byte(name))
}

// forgetChild takes a child out of its parent's list; an absent parent is fine.
func (t *txn) forgetChild(parent, child string) error {
	rec, ok, err := getJSON[model.Topic](t.tx, bucketTopics, []byte(parent))
	if err != nil || !ok {
		return err
	}
	rec.Children = slices.DeleteFunc(rec.Children, func(c string) bool { return c == child })
	return t.putTopic(rec)
}

// unlinked is the record of a child without its link.
func unlinked(rec model.Topic) model.Topic {
	rec.Parent, rec.AttachEpoch, rec.AttachOffsets, rec.FanoutDelayMS, rec.Remote = "", "", nil, 0, nil
	return rec
}
