package metastore

import (
	"maps"
	"slices"

	"github.com/narad-mq/narad/internal/model"
)

// AttachRemote (type 33) creates the stub of a remote child and links it to its
// parent. Applied only if the parent is the checked life and no child itself, its
// retention is at least 24 hours or forever, it has room for another (remote) child,
// the name is free whatever its letter case, the remote is the one checked, and no
// other remote child sends to the same topic through it. Refused with
// ErrTopicNotFound, ErrTopicChanged, ErrTopicExists, ErrNameTaken, ErrRemoteNotFound,
// ErrRemoteChanged, ErrConflict and ErrInvalid.
type AttachRemote struct {
	Parent   string            `json:"parent"`
	ParentID model.Incarnation `json:"parent_id"`
	Child    string            `json:"child"`
	ChildID  model.Incarnation `json:"child_id"`
	RemoteID string            `json:"remote_id"` // of the remote that Remote names
	Remote   model.RemoteChild `json:"remote"`    // pause and skips are ignored
	Epoch    string            `json:"epoch"`     // 16 hex, made by the proposer
	DelayMS  int64             `json:"delay_ms,omitempty"`
	Offsets  []int64           `json:"offsets,omitempty"` // start offset per parent partition
	At       int64             `json:"at"`                // Unix seconds
}

// Type implements Command.
func (AttachRemote) Type() EntryType { return TypeAttachRemote }

func (c AttachRemote) apply(t *txn) error {
	parent, err := t.topicOf(c.Parent, c.ParentID)
	if err != nil {
		return err
	}
	stub := c.stub()
	if err := t.checkStub(&parent, &stub); err != nil {
		return err
	}
	if _, err := t.remote(c.Remote.Name, c.RemoteID); err != nil {
		return err
	}
	if err := t.clearName(c.Child); err != nil {
		return err
	}
	parent.Children = append(parent.Children, c.Child)
	if err := t.putTopic(parent); err != nil {
		return err
	}
	stub.Parent = c.Parent
	return t.putTopic(stub)
}

// stub is the record of the child, not linked yet.
func (c AttachRemote) stub() model.Topic {
	remote := c.Remote
	remote.Paused, remote.PauseReason, remote.PausedBy, remote.PausedAtMS, remote.Skip = false, "", "", 0, nil
	return model.Topic{
		Name: c.Child, ID: c.ChildID, CreatedAt: c.At, AttachEpoch: c.Epoch, FanoutDelayMS: c.DelayMS, AttachOffsets: c.Offsets, Remote: &remote,
	}
}

// checkStub refuses a remote child its parent cannot take.
func (t *txn) checkStub(parent, stub *model.Topic) error {
	if err := model.PathElement(stub.Name); err != nil {
		return refusef(model.ErrInvalid, "%w", err)
	}
	if _, err := model.ParseIncarnation(string(stub.ID)); err != nil {
		return refusef(model.ErrInvalid, "%w", err)
	}
	if stub.Remote.Topic == "" || stub.Remote.Lanes < 1 || stub.Remote.Lanes > model.RemoteLanesMax {
		return refusef(model.ErrInvalid, "remote child %q of topic %q with %d lanes, want 1 to %d", stub.Name, stub.Remote.Topic, stub.Remote.Lanes, model.RemoteLanesMax)
	}
	if t.tx.Bucket(bucketTopics).Get([]byte(stub.Name)) != nil {
		return refuse(model.ErrTopicExists)
	}
	if twin, taken := t.caseTwin(stub.Name); taken {
		return refusef(model.ErrNameTaken, "%q exists", twin)
	}
	if err := linkable(parent, stub); err != nil {
		return err
	}
	if parent.RetentionMS != 0 && parent.RetentionMS < model.RemoteRetentionMin {
		return refusef(model.ErrConflict, "retention of %q is %d ms, a parent of remote children needs %d or forever", parent.Name, parent.RetentionMS, model.RemoteRetentionMin)
	}
	siblings := 0
	return t.eachStub(func(other *model.Topic) error {
		if other.Parent == parent.Name {
			siblings++
		}
		switch {
		case siblings >= model.RemoteChildrenMax:
			return refusef(model.ErrConflict, "%q has %d remote children, at most %d", parent.Name, siblings, model.RemoteChildrenMax)
		case other.Remote.Name == stub.Remote.Name && other.Remote.Topic == stub.Remote.Topic:
			return refusef(model.ErrConflict, "remote child %q sends to topic %q through remote %q already", other.Name, stub.Remote.Topic, stub.Remote.Name)
		}
		return nil
	})
}

// eachStub calls f with every remote child there is, in no order, until it fails.
func (t *txn) eachStub(f func(stub *model.Topic) error) error {
	candidates := map[string]struct{}{}
	for name := range t.touched {
		candidates[name] = struct{}{}
	}
	for name := range t.before.stubNames() {
		candidates[name] = struct{}{}
	}
	for _, name := range slices.Sorted(maps.Keys(candidates)) {
		rec, ok, err := getJSON[model.Topic](t.tx, bucketTopics, []byte(name))
		if err != nil {
			return err
		}
		if !ok || rec.Remote == nil {
			continue
		}
		if err := f(&rec); err != nil {
			return err
		}
	}
	return nil
}

// ChangeRemoteChild (type 34) pauses or resumes a remote child, or records that an
// offset is skipped, while its link is of the epoch the change was checked against:
// another is refused with ErrTopicChanged. Refused also with ErrTopicNotFound and
// ErrInvalid.
type ChangeRemoteChild struct {
	Parent   string     `json:"parent"`
	Child    string     `json:"child"`
	Epoch    string     `json:"epoch"`
	Pause    *PauseMark `json:"pause,omitempty"`
	Resume   bool       `json:"resume,omitempty"`
	TargetID *string    `json:"target_id,omitempty"` // with Resume: the target accepted
	Skip     *SkipMark  `json:"skip,omitempty"`
}

// PauseMark is why and by whom a remote child is paused.
type PauseMark struct {
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	At     int64  `json:"at"` // Unix milliseconds
}

// SkipMark is a record of the parent that is not to be sent.
type SkipMark struct {
	Partition int   `json:"partition"`
	Offset    int64 `json:"offset"`
}

// Type implements Command.
func (ChangeRemoteChild) Type() EntryType { return TypeChangeRemoteChild }

func (c ChangeRemoteChild) apply(t *txn) error {
	rec, err := t.topic(c.Child)
	if err != nil {
		return err
	}
	if rec.Remote == nil || rec.Parent != c.Parent {
		return refuse(model.ErrTopicNotFound)
	}
	if rec.AttachEpoch != c.Epoch {
		return refuse(model.ErrTopicChanged)
	}
	parent, err := t.topic(c.Parent)
	if err != nil {
		return err
	}
	switch {
	case c.Pause != nil && !c.Resume && c.Skip == nil && c.TargetID == nil:
		rec.Remote.Paused, rec.Remote.PauseReason, rec.Remote.PausedBy, rec.Remote.PausedAtMS = true, c.Pause.Reason, c.Pause.By, c.Pause.At
	case c.Resume && c.Pause == nil && c.Skip == nil:
		rec.Remote.Paused, rec.Remote.PauseReason, rec.Remote.PausedBy, rec.Remote.PausedAtMS = false, "", "", 0
		setIf(&rec.Remote.TargetID, c.TargetID)
	case c.Skip != nil && c.Pause == nil && !c.Resume && c.TargetID == nil:
		if c.Skip.Partition < 0 || c.Skip.Partition >= parent.Partitions || c.Skip.Offset < 0 {
			return refusef(model.ErrInvalid, "no record %d in partition %d of %q", c.Skip.Offset, c.Skip.Partition, c.Parent)
		}
		rec.Remote.Skip = withSkip(rec.Remote.Skip, *c.Skip)
	default:
		return refusef(model.ErrInvalid, "a change of remote child %q pauses, resumes or skips", c.Child)
	}
	return t.putTopic(rec)
}

// withSkip adds an offset, ascending. Past the bound the lowest of the others goes.
func withSkip(skips map[int][]int64, s SkipMark) map[int][]int64 {
	if skips == nil {
		skips = map[int][]int64{}
	}
	offsets := skips[s.Partition]
	i, found := slices.BinarySearch(offsets, s.Offset)
	if found {
		return skips
	}
	offsets = slices.Insert(offsets, i, s.Offset)
	if len(offsets) > model.RemoteSkipsMax {
		lowest := 0
		if i == 0 {
			lowest = 1 // the newest is kept, even as the lowest
		}
		offsets = slices.Delete(offsets, lowest, lowest+1)
	}
	skips[s.Partition] = offsets
	return skips
}
