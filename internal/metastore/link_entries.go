package metastore

import (
	"bytes"
	"slices"

	"github.com/narad-mq/narad/internal/model"
)

// childrenMax bounds the children of one parent (spec/http-api LIM-12).
const childrenMax = 108

// AttachChild (type 6) links a standalone topic under a parent. The child adopts
// the parent's schema history when it has none. Refused with ErrConflict when
// either end cannot take the link.
type AttachChild struct {
	Parent  string  `json:"parent"`
	Child   string  `json:"child"`
	Epoch   string  `json:"epoch"` // 16 hex, made by the proposer
	DelayMS int64   `json:"delay_ms,omitempty"`
	Offsets []int64 `json:"offsets,omitempty"` // start offset per parent partition
}

// Type implements Command.
func (AttachChild) Type() EntryType { return TypeAttachChild }

func (c AttachChild) apply(t *txn) error {
	parent, err := t.topic(c.Parent)
	if err != nil {
		return err
	}
	child, err := t.topic(c.Child)
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
	history, err := t.adopt(c.Parent, c.Child, have, bytes.Equal)
	if err != nil {
		return err
	}
	return t.link(parent, child, c, history)
}

// link writes a link that was checked; history is what the child adopts.
func (t *txn) link(parent, child model.Topic, c AttachChild, history [][]byte) error {
	if err := t.adoptHistory(c.Child, history); err != nil {
		return err
	}
	parent.Children = append(parent.Children, c.Child)
	child.Parent, child.AttachEpoch, child.FanoutDelayMS, child.AttachOffsets = c.Parent, c.Epoch, c.DelayMS, c.Offsets
	if err := t.putTopic(parent); err != nil {
		return err
	}
	return t.putTopic(child)
}

// linkable refuses a link that would nest, repeat or overfill.
func linkable(parent, child *model.Topic) error {
	switch {
	case parent.Name == child.Name:
		return refusef(model.ErrConflict, "%q cannot be its own child", child.Name)
	case parent.Parent != "":
		return refusef(model.ErrConflict, "%q is itself a child of %q", parent.Name, parent.Parent)
	case child.Parent != "":
		return refusef(model.ErrConflict, "%q is already a child of %q", child.Name, child.Parent)
	case len(child.Children) > 0:
		return refusef(model.ErrConflict, "%q has %d children of its own", child.Name, len(child.Children))
	case len(parent.Children) >= childrenMax:
		return refusef(model.ErrConflict, "%q has %d children, at most %d", parent.Name, len(parent.Children), childrenMax)
	}
	return nil
}

// DetachChild (type 7) unlinks a child; both topics and their data stay.
type DetachChild struct {
	Parent string `json:"parent"`
	Child  string `json:"child"`
}

// Type implements Command.
func (DetachChild) Type() EntryType { return TypeDetachChild }

func (c DetachChild) apply(t *txn) error {
	parent, err := t.topic(c.Parent)
	if err != nil {
		return err
	}
	child, err := t.topic(c.Child)
	if err != nil {
		return err
	}
	return t.unlink(parent, child)
}

// unlink ends a link, refused with ErrConflict when there is none.
func (t *txn) unlink(parent, child model.Topic) error {
	if child.Remote != nil {
		return refusef(model.ErrConflict, "remote child %q is deleted, not detached", child.Name)
	}
	if child.Parent != parent.Name || !slices.Contains(parent.Children, child.Name) {
		return refusef(model.ErrConflict, "%q is not a child of %q", child.Name, parent.Name)
	}
	if err := t.forgetChild(parent.Name, child.Name); err != nil {
		return err
	}
	return t.putTopic(unlinked(child))
}
