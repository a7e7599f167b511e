package metastore

import "github.com/narad-mq/narad/internal/model"

// assigned reads a partition of a topic with its placement, refusing one outside
// the topic's range.
func (t *txn) assigned(topic string, p int) (placement, error) {
	rec, err := t.topic(topic)
	if err != nil {
		return placement{}, err
	}
	if p < 0 || p >= rec.Partitions {
		return placement{}, refusef(model.ErrInvalid, "partition %d of %q, want 0 to %d", p, topic, rec.Partitions-1)
	}
	return t.placement(topic, p)
}

// AssignPartition (type 8) sets the owner of one partition, whoever owned it. A
// move that was taking it to that owner is over.
type AssignPartition struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Owner     string `json:"owner"`
}

// Type implements Command.
func (AssignPartition) Type() EntryType { return TypeAssignPartition }

func (c AssignPartition) apply(t *txn) error {
	a, err := t.assigned(c.Topic, c.Partition)
	if err != nil {
		return err
	}
	if err := t.checkOwner(c.Owner); err != nil {
		return err
	}
	a.Owner = c.Owner
	if a.Target == c.Owner {
		a.Target = ""
	}
	return t.putPlacement(c.Topic, c.Partition, a)
}

// SetTarget (type 9) records that a move takes the partition to a member. The
// owner keeps serving it until the flip.
type SetTarget struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Target    string `json:"target"`
}

// Type implements Command.
func (SetTarget) Type() EntryType { return TypeSetTarget }

func (c SetTarget) apply(t *txn) error {
	a, err := t.assigned(c.Topic, c.Partition)
	if err != nil {
		return err
	}
	switch {
	case c.Target == "":
		return refusef(model.ErrInvalid, "move of %s/%d names no target", c.Topic, c.Partition)
	case a.Owner == "":
		return refusef(model.ErrConflict, "%s/%d has no owner to move from", c.Topic, c.Partition)
	case a.Owner == c.Target:
		return refusef(model.ErrConflict, "%s/%d is owned by %q already", c.Topic, c.Partition, c.Target)
	}
	if err := t.checkOwner(c.Target); err != nil {
		return err
	}
	a.Target = c.Target
	return t.putPlacement(c.Topic, c.Partition, a)
}

// ClearTarget (type 10) ends a move without a change of owner. With Target set,
// only a move to that member is ended.
type ClearTarget struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Target    string `json:"target,omitempty"`
}

// Type implements Command.
func (ClearTarget) Type() EntryType { return TypeClearTarget }

func (c ClearTarget) apply(t *txn) error {
	a, err := t.assigned(c.Topic, c.Partition)
	if err != nil {
		return err
	}
	if a.Target == "" || c.Target != "" && c.Target != a.Target {
		return refusef(model.ErrConflict, "%s/%d moves to %q, not to %q", c.Topic, c.Partition, a.Target, c.Target)
	}
	a.Target = ""
	return t.putPlacement(c.Topic, c.Partition, a)
}

// FlipPartition (type 11) makes the move target the owner; refused with
// ErrConflict unless Target is the target on record.
type FlipPartition struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Target    string `json:"target"`
}

// Type implements Command.
func (FlipPartition) Type() EntryType { return TypeFlipPartition }

func (c FlipPartition) apply(t *txn) error {
	a, err := t.assigned(c.Topic, c.Partition)
	if err != nil {
		return err
	}
	if c.Target == "" || a.Target != c.Target {
		return refusef(model.ErrConflict, "%s/%d moves to %q, not to %q", c.Topic, c.Partition, a.Target, c.Target)
	}
	return t.putPlacement(c.Topic, c.Partition, placement{Owner: c.Target})
}

// PlacePartitions (type 22) places partitions First, First+1 and so on that have
// no owner yet; it never replaces one. With ID set, another life of the name is
// refused with ErrTopicChanged.
type PlacePartitions struct {
	Topic  string            `json:"topic"`
	ID     model.Incarnation `json:"id,omitempty"`
	First  int               `json:"first,omitempty"`
	Owners []string          `json:"owners"`
}

// Type implements Command.
func (PlacePartitions) Type() EntryType { return TypePlacePartitions }

func (c PlacePartitions) apply(t *txn) error {
	rec, err := t.topicLife(c.Topic, c.ID)
	if err != nil {
		return err
	}
	if c.First < 0 || c.First > rec.Partitions {
		return refusef(model.ErrInvalid, "first partition %d of %q, want 0 to %d", c.First, c.Topic, rec.Partitions)
	}
	if err := t.checkOwners(c.Owners, rec.Partitions-c.First); err != nil {
		return err
	}
	return t.place(c.Topic, c.First, c.Owners)
}
