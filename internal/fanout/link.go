package fanout

import (
	"math/rand/v2"
	"path"
	"slices"
	"sync/atomic"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/model"
)

// place is where a cursor runs: one parent partition, one child.
type place struct {
	parent    string
	partition int
	child     string
}

// link is one attachment of a child to a parent, shared by its cursors. It never
// changes: another epoch is another link.
type link struct {
	parent, child     string
	parentID, childID model.Incarnation
	epoch             string
	delayMS           int64
	offsets           []int64 // attach point by parent partition; nil = not recorded
	turn              *atomic.Uint32
	counts            *linkCounts
}

// linkOf reads a link from both ends; false when they do not agree, as views of one
// change may for a moment.
func linkOf(parent, child *model.TopicView) (*link, bool) {
	if child.Parent != parent.Name || child.AttachEpoch == "" || !slices.Contains(parent.Children, child.Name) {
		return nil, false
	}
	turn := new(atomic.Uint32)
	turn.Store(rand.Uint32())
	return &link{
		parent: parent.Name, child: child.Name, parentID: parent.ID, childID: child.ID,
		epoch: child.AttachEpoch, delayMS: child.FanoutDelayMS, offsets: child.AttachOffsets, turn: turn,
	}, true
}

// same reports whether a link is still the one in the views.
func (l *link) same(parent, child *model.TopicView) bool {
	return parent.ID == l.parentID && child.ID == l.childID && child.Parent == l.parent && child.AttachEpoch == l.epoch
}

// roundRobin is the next turn of the keyless records of the child topic.
func (l *link) roundRobin() uint32 { return l.turn.Add(1) }

// cursorPath is the file of a cursor.
func cursorPath(dataDir string, k place) (string, error) {
	if err := model.PathElement(k.child); err != nil {
		return "", err
	}
	dir, err := commitlog.PartitionDir(dataDir, k.parent, k.partition)
	if err != nil {
		return "", err
	}
	return path.Join(dir, fileName(k.child)), nil
}
