package metastore

import (
	"encoding/json"

	"github.com/narad-mq/narad/internal/model"
)

// ParentLink is the fan-out link a topic is created with.
type ParentLink struct {
	Name    string            `json:"name"`
	ID      model.Incarnation `json:"id"`    // the life the create was checked against
	Epoch   string            `json:"epoch"` // 16 hex, made by the proposer
	DelayMS int64             `json:"delay_ms,omitempty"`
	Offsets []int64           `json:"offsets,omitempty"` // start offset per parent partition
}

// CreateLinkedTopic (type 23) creates a topic, its first schema version and its
// link to a parent, all or none. A topic without schema of its own adopts its
// parent's history. Refused as CreateTopic, with ErrNameTaken for a name that
// differs from another only by letter case, and with ErrTopicNotFound,
// ErrTopicChanged or ErrConflict when the parent cannot take it.
type CreateLinkedTopic struct {
	Topic  model.Topic     `json:"topic"`            // links and role are ignored
	Owners []string        `json:"owners,omitempty"` // by partition, "" or missing = unassigned
	Schema json.RawMessage `json:"schema,omitempty"` // version 1; none when empty
	Parent *ParentLink     `json:"parent,omitempty"`
}

// Type implements Command.
func (CreateLinkedTopic) Type() EntryType { return TypeCreateLinkedTopic }

func (c CreateLinkedTopic) apply(t *txn) error {
	rec := unlinked(c.Topic)
	rec.Children = nil
	if err := t.checkNewTopic(&rec, c.Owners); err != nil {
		return err
	}
	if twin, taken := t.caseTwin(rec.Name); taken {
		return refusef(model.ErrNameTaken, "%q exists", twin)
	}
	var history [][]byte
	if len(c.Schema) > 0 {
		history = [][]byte{c.Schema}
	}
	var parent model.Topic
	if c.Parent != nil {
		var err error
		if parent, err = t.topicOf(c.Parent.Name, c.Parent.ID); err != nil {
			return err
		}
		if err := linkable(&parent, &rec); err != nil {
			return err
		}
		adopted, err := t.adopt(parent.Name, rec.Name, history, sameJSON)
		if err != nil {
			return err
		}
		history = append(history, adopted...)
	}
	if err := t.checkBudgetsOfNew(rec.Name, history); err != nil {
		return err
	}
	return t.createLinked(rec, c, parent, history)
}

// createLinked writes what apply has checked.
func (t *txn) createLinked(rec model.Topic, c CreateLinkedTopic, parent model.Topic, history [][]byte) error {
	if err := t.clearName(rec.Name); err != nil {
		return err
	}
	if p := c.Parent; p != nil {
		rec.Parent, rec.AttachEpoch, rec.FanoutDelayMS, rec.AttachOffsets = p.Name, p.Epoch, p.DelayMS, p.Offsets
		parent.Children = append(parent.Children, rec.Name)
		if err := t.putTopic(parent); err != nil {
			return err
		}
	}
	if err := t.putTopic(rec); err != nil {
		return err
	}
	if err := t.adoptHistory(rec.Name, history); err != nil {
		return err
	}
	return t.place(rec.Name, 0, c.Owners)
}

// checkBudgetsOfNew is checkBudgets for a topic whose versions are all new.
func (t *txn) checkBudgetsOfNew(topic string, history [][]byte) error {
	var add int64
	for _, doc := range history {
		add += int64(len(doc))
	}
	if err := checkSchemaBudget("topic "+topic, 0, add, SchemaTopicBytesMax); err != nil {
		return err
	}
	return checkSchemaBudget("the cluster", t.before.schemaBytes.Load()+t.schemaBytes, add, SchemaClusterBytesMax)
}

// caseTwin finds a topic whose name differs from name only by letter case.
func (t *txn) caseTwin(name string) (twin string, found bool) {
	key := foldName(name)
	consider := func(other string) {
		if other == name || foldName(other) != key || t.tx.Bucket(bucketTopics).Get([]byte(other)) == nil {
			return
		}
		if !found || other < twin {
			twin, found = other, true
		}
	}
	for _, other := range t.before.foldsOf(key) {
		consider(other)
	}
	for other := range t.touched {
		consider(other)
	}
	return twin, found
}

// AlterTopic (type 24) changes the fields that are set, of the incarnation it was
// read from and no other. The partition count never shrinks; owner, creation time,
// visibility timeout and links stay as stored. Refused with ErrTopicChanged or
// ErrInvalid, and with ErrConflict where remote children forbid it.
type AlterTopic struct {
	Name           string            `json:"name"`
	ID             model.Incarnation `json:"id"`
	RetentionMS    *int64            `json:"retention_ms,omitempty"`
	MaxInFlight    *int              `json:"max_in_flight,omitempty"`
	MaxAckedAhead  *int              `json:"max_acked_ahead,omitempty"`
	Partitions     *int              `json:"partitions,omitempty"`
	PartitionsFrom int               `json:"partitions_from,omitempty"` // count the owners were computed from
	Owners         []string          `json:"owners,omitempty"`          // of the added partitions
}

// Type implements Command.
func (AlterTopic) Type() EntryType { return TypeAlterTopic }

func (c AlterTopic) apply(t *txn) error {
	rec, err := t.topicOf(c.Name, c.ID)
	if err != nil {
		return err
	}
	return t.alter(rec, c.update())
}

// update is the same change as a base entry.
func (c AlterTopic) update() UpdateTopic {
	return UpdateTopic{
		Name: c.Name, ID: c.ID, RetentionMS: c.RetentionMS, MaxInFlight: c.MaxInFlight, MaxAckedAhead: c.MaxAckedAhead,
		Partitions: c.Partitions, PartitionsFrom: c.PartitionsFrom, Owners: c.Owners,
	}
}

// RemoveTopic (type 25) deletes a topic as DeleteTopic does, but only the
// incarnation the delete was checked against.
type RemoveTopic struct {
	Name string            `json:"name"`
	ID   model.Incarnation `json:"id"`
}

// Type implements Command.
func (RemoveTopic) Type() EntryType { return TypeRemoveTopic }

func (c RemoveTopic) apply(t *txn) error {
	rec, err := t.topicOf(c.Name, c.ID)
	if err != nil {
		return err
	}
	return t.deleteTopic(rec)
}
