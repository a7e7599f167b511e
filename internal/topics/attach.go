package topics

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

// Tails tells where the partitions of a parent end now: what an attach records, so that
// the child's copy begins there. The owner is asked, whichever node it is; an error means
// that it cannot be.
type Tails interface {
	HighWatermark(ctx context.Context, parent *model.TopicView, partition int) (int64, error)
}

// Bounds of a link (spec/remote-replication section A1). Milliseconds.
const (
	delayMSMax      int64 = 31_536_000_000 // one year
	delayHeadroomMS int64 = 3_600_000      // a delay child's parent keeps records this much longer than the delay
	tailsInFlight         = 16             // owners asked at once

	ownerLagMax   = 3 * time.Second // what an owner gets to hear of a topic that was just made
	ownerLagPause = 25 * time.Millisecond
)

// AttachRequest links an existing child under an existing parent (spec/http-api section
// 14.1).
type AttachRequest struct {
	Parent, Child string
	DelayMS       int64  // fixed for the life of the link; 0 = immediate
	Caller        string // username; "" with security off
}

// CheckAttach applies the rules a request breaks or keeps by itself (AC-2).
func (m *Manager) CheckAttach(r AttachRequest) error {
	switch {
	case r.Child == "":
		return invalid("child is required")
	case r.Child == r.Parent:
		return invalid("child %q, must differ from its parent", r.Child)
	}
	return checkDelay("delay_ms", r.DelayMS)
}

func checkDelay(field string, ms int64) error { return checkRange(field, ms, 0, delayMSMax) }

// checkParent is the part of a create that is about its parent.
func checkParent(r CreateRequest) error {
	switch {
	case r.Parent == "" && r.DelayMS != 0:
		return invalid("fanout_delay_ms needs parent")
	case r.Parent != "" && r.Parent == r.Name:
		return invalid("parent %q, must differ from the topic", r.Parent)
	}
	return checkDelay("fanout_delay_ms", r.DelayMS)
}

// Attach links a child and returns the parent. What is committed to the parent from here
// on is copied; nothing before is, also not after a detach (AC-11, AC-12).
func (m *Manager) Attach(ctx context.Context, r AttachRequest) (*model.TopicView, error) {
	if err := m.CheckAttach(r); err != nil {
		return nil, err
	}
	err := m.changeLink(ctx, r.Parent, r.Child, func(parent, child *model.TopicView) error {
		if err := m.mayAttach(r.Caller, parent, child); err != nil {
			return err
		}
		if err := checkHeadroom(parent.RetentionMS, r.DelayMS); err != nil {
			return err
		}
		offsets, err := m.attachPoint(ctx, parent)
		if err != nil {
			return err
		}
		return m.propose(ctx, metastore.LinkChild{
			Parent: parent.Name, ParentID: parent.ID, Child: child.Name, ChildID: child.ID,
			Epoch: newEpoch(), DelayMS: r.DelayMS, Offsets: offsets,
		})
	})
	if err != nil {
		return nil, err
	}
	v, ok := m.store.Topic(r.Parent)
	if !ok {
		return nil, model.ErrTopicNotFound
	}
	return v, nil
}

// Detach unlinks a child, which keeps its messages, schemas and consumers (DC-1).
func (m *Manager) Detach(ctx context.Context, parent, child, caller string) error {
	return m.changeLink(ctx, parent, child, func(p, c *model.TopicView) error {
		if err := m.mayDetach(caller, p, c); err != nil {
			return err
		}
		if c.Parent != p.Name {
			return fmt.Errorf("%w: %q is not a child of %q", model.ErrNotLinked, c.Name, p.Name)
		}
		return m.propose(ctx, metastore.UnlinkChild{Parent: p.Name, ParentID: p.ID, Child: c.Name, ChildID: c.ID})
	})
}

// changeLink runs a change against both ends as they stand, and once more when one
// changed under it.
func (m *Manager) changeLink(ctx context.Context, parent, child string, change func(p, c *model.TopicView) error) error {
	unlock, err := m.locks.lockBoth(ctx, foldName(parent), foldName(child))
	if err != nil {
		return err
	}
	defer unlock()
	for try := 0; ; try++ {
		if err := m.store.Writable(); err != nil {
			return err
		}
		p, ok := m.store.Topic(parent)
		if !ok {
			return model.ErrTopicNotFound
		}
		c, ok := m.store.Topic(child)
		if !ok {
			return model.ErrTopicNotFound
		}
		if err := change(p, c); try > 0 || !errors.Is(err, model.ErrTopicChanged) {
			return err
		}
	}
}

// attachPoint asks every parent partition's owner for its end, in parallel. One that
// cannot be asked fails the attach: a guessed offset would skip records or backfill.
func (m *Manager) attachPoint(ctx context.Context, parent *model.TopicView) ([]int64, error) {
	offsets := make([]int64, parent.Partitions)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(tailsInFlight)
	for p := range offsets {
		g.Go(func() (err error) {
			offsets[p], err = m.tail(ctx, parent, p)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("%w: attach point of %q: %w", model.ErrUnavailable, parent.Name, err)
	}
	return offsets, nil
}

// tail asks the owner of a partition for its end. An owner that does not know the parent,
// or knows an earlier life of it, while this node, which leads, does, is a moment behind.
func (m *Manager) tail(ctx context.Context, parent *model.TopicView, p int) (int64, error) {
	deadline := m.clock.Now().Add(ownerLagMax)
	for {
		at, err := m.tails.HighWatermark(ctx, parent, p)
		if !errors.Is(err, model.ErrTopicNotFound) && !errors.Is(err, model.ErrTopicChanged) {
			return at, err
		}
		if v, ok := m.store.Topic(parent.Name); !ok || v.ID != parent.ID {
			return 0, err
		}
		if !m.clock.Now().Before(deadline) {
			return 0, fmt.Errorf("the owner of partition %d does not know incarnation %s after %v", p, parent.ID, ownerLagMax)
		}
		pause := m.clock.NewTimer(ownerLagPause)
		select {
		case <-pause.C():
		case <-ctx.Done():
			pause.Stop()
			return 0, ctx.Err()
		}
	}
}

// newEpoch draws the id of one attachment: 8 random bytes in hex.
func newEpoch() string {
	var b [8]byte
	rand.Read(b[:]) // never fails since Go 1.24: it crashes the program instead
	return hex.EncodeToString(b[:])
}

// checkHeadroom: a parent keeps its records at least an hour longer than a child delays
// them (AC-7, TC-10, TA-9).
func checkHeadroom(retentionMS, delayMS int64) error {
	if delayMS == 0 || retentionMS == 0 || retentionMS >= delayMS+delayHeadroomMS {
		return nil
	}
	return fmt.Errorf("%w: parent retention_ms %d, must be 0 or at least the child's delay %d + %d", model.ErrConflict, retentionMS, delayMS, delayHeadroomMS)
}

// checkChildren holds a parent's new retention against its children's delays (TA-9).
func (m *Manager) checkChildren(parent *model.TopicView, retentionMS int64) error {
	for _, name := range parent.Children {
		child, ok := m.store.Topic(name)
		if !ok || child.Parent != parent.Name {
			continue
		}
		if err := checkHeadroom(retentionMS, child.FanoutDelayMS); err != nil {
			return err
		}
	}
	return nil
}

// createUnder is Create with a parent: topic, schema history and link in one entry
// (TC-2, TC-21).
func (m *Manager) createUnder(ctx context.Context, r CreateRequest, rec model.Topic) (*model.TopicView, error) {
	parent, ok := m.store.Topic(r.Parent)
	if !ok {
		return nil, model.ErrTopicNotFound
	}
	if err := m.mayManage(r.Caller, parent); err != nil {
		return nil, err
	}
	if err := checkHeadroom(parent.RetentionMS, r.DelayMS); err != nil {
		return nil, err
	}
	if r.Partitions == 0 {
		rec.Partitions = parent.Partitions
	}
	offsets, err := m.attachPoint(ctx, parent)
	if err != nil {
		return nil, err
	}
	owners, done, err := m.place(ctx, rec.Name, rec.Partitions, parent.Owners, createdUnplaced)
	if err != nil {
		return nil, err
	}
	defer done()
	_, err = m.store.Accept(ctx, metastore.CreateLinkedTopic{
		Topic: rec, Owners: owners, Schema: r.Schema,
		Parent: &metastore.ParentLink{Name: parent.Name, ID: parent.ID, Epoch: newEpoch(), DelayMS: r.DelayMS, Offsets: offsets},
	})
	if err != nil {
		return nil, err
	}
	v, ok := m.store.Topic(rec.Name)
	if !ok {
		return nil, model.ErrTopicNotFound
	}
	return v, nil
}
