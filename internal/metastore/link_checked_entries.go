package metastore

import "github.com/narad-mq/narad/internal/model"

// LinkChild (type 27) is AttachChild for the incarnations it was checked against.
// Histories are compared as JSON values, and one the child adopts must fit its
// budgets. Refused with ErrTopicChanged, ErrConflict, and as AttachChild.
type LinkChild struct {
	Parent   string            `json:"parent"`
	ParentID model.Incarnation `json:"parent_id"`
	Child    string            `json:"child"`
	ChildID  model.Incarnation `json:"child_id"`
	Epoch    string            `json:"epoch"` // 16 hex, made by the proposer
	DelayMS  int64             `json:"delay_ms,omitempty"`
	Offsets  []int64           `json:"offsets,omitempty"` // start offset per parent partition
}

// Type implements Command.
func (LinkChild) Type() EntryType { return TypeLinkChild }

func (c LinkChild) apply(t *txn) error {
	parent, child, err := t.pair(c.Parent, c.ParentID, c.Child, c.ChildID)
	if err != nil {
		return err
	}
	if err := linkable(&parent, &child); err != nil {
		return err
	}
	have, err := readSchemas(t.tx, c.Child)
	if err != nil {
		return err
	}
	history, err := t.adopt(c.Parent, c.Child, have, sameJSON)
	if err != nil {
		return err
	}
	if err := t.checkBudgetsOfNew(c.Child, history); err != nil {
		return err
	}
	return t.link(parent, child, c.attach(), history)
}

// attach is the same link as a base entry.
func (c LinkChild) attach() AttachChild {
	return AttachChild{Parent: c.Parent, Child: c.Child, Epoch: c.Epoch, DelayMS: c.DelayMS, Offsets: c.Offsets}
}

// pair reads both ends of a link, of exactly these lives.
func (t *txn) pair(parent string, parentID model.Incarnation, child string, childID model.Incarnation) (p, c model.Topic, err error) {
	if p, err = t.topicOf(parent, parentID); err != nil {
		return p, c, err
	}
	c, err = t.topicOf(child, childID)
	return p, c, err
}

// UnlinkChild (type 28) is DetachChild for the incarnations it was checked against.
type UnlinkChild struct {
	Parent   string            `json:"parent"`
	ParentID model.Incarnation `json:"parent_id"`
	Child    string            `json:"child"`
	ChildID  model.Incarnation `json:"child_id"`
}

// Type implements Command.
func (UnlinkChild) Type() EntryType { return TypeUnlinkChild }

func (c UnlinkChild) apply(t *txn) error {
	parent, child, err := t.pair(c.Parent, c.ParentID, c.Child, c.ChildID)
	if err != nil {
		return err
	}
	return t.unlink(parent, child)
}
