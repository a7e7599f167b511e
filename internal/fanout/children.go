package fanout

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

// Bounds of a listing (spec/cluster-and-network section 5.3, spec/remote-replication
// section A7).
const (
	askBudget  = 2 * time.Second // for the other owners of a parent, all of them
	askAtOnce  = 16
	lagUnknown = -1
)

// Peers reaches the cursors of other nodes; node is a member id. A node that is dead or
// unknown is an error at once.
type Peers interface {
	Cursors(ctx context.Context, node, parent, child string) ([]peer.CursorLag, error)
}

// Child is one child of a parent as a listing shows it; field order is the order of
// emission (spec/remote-replication section A7).
type Child struct {
	Name    string `json:"name"`
	DelayMS int64  `json:"delay_ms"`
	// LagMessages is the sum of parent high watermark minus cursor over the partitions
	// that report; LagComplete is false while some do not, and the sum a lower bound.
	LagMessages int64 `json:"lag_messages"`
	LagComplete bool  `json:"lag_complete"`
}

// Children lists a parent's children in attach order. It opens no log and counts as a
// use of none, here or on another node. Owners that do not answer within 2 s do not
// report.
func (e *Engine) Children(ctx context.Context, parent *model.TopicView) []Child {
	out := make([]Child, 0, len(parent.Children))
	remote := e.askOwners(ctx, parent)
	for _, name := range parent.Children {
		view, ok := e.opts.Replica.Topic(name)
		if !ok || view.Parent != parent.Name {
			continue
		}
		child := Child{Name: name, DelayMS: view.FanoutDelayMS, LagComplete: true}
		for p := range parent.Partitions {
			lag := int64(lagUnknown)
			if parent.OwnerOf(p) == e.opts.Node {
				lag = e.lag(parent, view, p).lag()
			} else if l, ok := remote[place{parent.Name, p, name}]; ok && l.Epoch == view.AttachEpoch {
				lag = l.lag()
			}
			child.LagMessages += max(lag, 0)
			child.LagComplete = child.LagComplete && lag != lagUnknown
		}
		out = append(out, child)
	}
	return out
}

// Cursors reports this node's cursors of a parent to another node: of one child, or of
// all when child is "". Cursors whose lag is not known are left out.
func (e *Engine) Cursors(_ context.Context, parent, child string) ([]peer.CursorLag, error) {
	view, ok := e.opts.Replica.Topic(parent)
	if !ok {
		return nil, fmt.Errorf("%w: %s", model.ErrTopicNotFound, parent)
	}
	var out []peer.CursorLag
	for _, name := range view.Children {
		of, ok := e.opts.Replica.Topic(name)
		if !ok || of.Parent != parent || child != "" && child != name {
			continue
		}
		for p := range view.Partitions {
			if l := e.lag(view, of, p); l.lag() != lagUnknown {
				out = append(out, peer.CursorLag(l))
			}
		}
	}
	return out, nil
}

// cursorLag is what is known of one cursor; the zero Epoch says nothing.
type cursorLag peer.CursorLag

// lag is how far the cursor is behind.
func (l cursorLag) lag() int64 {
	if l.Epoch == "" {
		return lagUnknown
	}
	return max(l.HighWatermark-l.Next, 0)
}

// lag looks at one cursor of this node.
func (e *Engine) lag(parent, child *model.TopicView, p int) cursorLag {
	c := e.set.get(place{parent.Name, p, child.Name})
	if c == nil || !c.link.same(parent, child) {
		return cursorLag{}
	}
	next := c.next.Load() // before the high watermark: it only grows
	high, exact, err := e.opts.Parents.Tail(parent.Name, parent.ID, p)
	if next == notStarted || !exact || err != nil {
		return cursorLag{}
	}
	return cursorLag{Child: child.Name, Epoch: c.link.epoch, Partition: p, Next: next, HighWatermark: high, OldestPendingMS: c.head.Load()}
}

// askOwners collects what the other owners of a parent's partitions report, each asked
// once about all children.
func (e *Engine) askOwners(ctx context.Context, parent *model.TopicView) map[place]cursorLag {
	var owners []string
	for p := range parent.Partitions {
		if o := parent.OwnerOf(p); o != "" && o != e.opts.Node && !slices.Contains(owners, o) {
			owners = append(owners, o)
		}
	}
	if len(owners) == 0 || e.opts.Peers == nil || len(parent.Children) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askBudget)
	defer cancel()
	var mu sync.Mutex // guards found
	found := map[place]cursorLag{}
	var group sync.WaitGroup
	slots := make(chan struct{}, askAtOnce)
	for _, owner := range owners {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			cursors, err := e.opts.Peers.Cursors(ctx, owner, parent.Name, "")
			if err != nil {
				e.log.Debug("fanout: an owner did not report its cursors", "parent", parent.Name, "owner", owner, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, l := range cursors {
				if parent.OwnerOf(l.Partition) == owner {
					found[place{parent.Name, l.Partition, l.Child}] = cursorLag(l)
				}
			}
		})
	}
	group.Wait()
	return found
}
