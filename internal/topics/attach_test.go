package topics

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

// ends are tails as a test wants them, by partition.
type ends struct {
	at  []int64
	err map[int]error
}

func (e ends) HighWatermark(_ context.Context, _ *model.TopicView, p int) (int64, error) {
	if err := e.err[p]; err != nil {
		return 0, err
	}
	return e.at[p], nil
}

func newLinkRig(t testing.TB, tails Tails) *rig {
	t.Helper()
	g := newRig(t)
	g.Manager.tails = tails
	for _, name := range []string{"p", "c"} {
		_, err := g.Create(context.Background(), CreateRequest{Name: name})
		must(t, err)
	}
	return g
}

func TestAttachRecordsWhereTheParentEnds(t *testing.T) {
	g := newLinkRig(t, ends{at: []int64{19, 10, 9}})
	v, err := g.Attach(context.Background(), AttachRequest{Parent: "p", Child: "c", DelayMS: 60_000})
	must(t, err)
	if v.Name != "p" || v.LinkRole() != model.RoleParent {
		t.Errorf("answered %+v, want the parent", v.Topic)
	}
	first, _ := g.store.Topic("c")
	if !reflect.DeepEqual(first.AttachOffsets, []int64{19, 10, 9}) || first.Parent != "p" || first.FanoutDelayMS != 60_000 || len(first.AttachEpoch) != 16 {
		t.Errorf("%+v", first.Topic)
	}
	must(t, g.Detach(context.Background(), "p", "c", ""))
	if v, _ := g.store.Topic("c"); v.LinkRole() != model.RoleStandalone || v.AttachOffsets != nil || v.FanoutDelayMS != 0 {
		t.Errorf("after the detach: %+v", v.Topic)
	}
	_, err = g.Attach(context.Background(), AttachRequest{Parent: "p", Child: "c"})
	must(t, err)
	if again, _ := g.store.Topic("c"); again.AttachEpoch == first.AttachEpoch {
		t.Error("AC-12: the epoch of the first attach came back")
	}
}

// One owner that cannot be asked: 503, and no link.
func TestAttachNeedsEveryTail(t *testing.T) {
	g := newLinkRig(t, ends{at: []int64{1, 2, 3}, err: map[int]error{2: errors.New("owner is down")}})
	_, err := g.Attach(context.Background(), AttachRequest{Parent: "p", Child: "c"})
	if !errors.Is(err, model.ErrUnavailable) || errors.Is(err, model.ErrOutcomeUnknown) {
		t.Errorf("attach: %v", err)
	}
	_, err = g.Create(context.Background(), CreateRequest{Name: "n", Parent: "p"})
	if !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("create: %v", err)
	}
	if v, _ := g.store.Topic("p"); len(v.Children) > 0 {
		t.Error("linked all the same")
	}
	if _, ok := g.store.Topic("n"); ok {
		t.Error("created all the same")
	}
}

// Both ends are compared and set: changed once is tried again, changed twice refused.
func TestAttachTwiceChanged(t *testing.T) {
	for _, name := range []string{"p", "c"} {
		for times := 1; times <= 2; times++ {
			g := newLinkRig(t, ends{at: []int64{0, 0, 0}})
			left := times
			m := g.over(&racing{g.store, func() {
				if left--; left < 0 {
					return
				}
				v, _ := g.store.Topic(name)
				g.propose(t, metastore.DeleteTopic{Name: name, ID: v.ID})
				rec := v.Topic
				rec.ID = model.NewIncarnation()
				g.propose(t, metastore.CreateTopic{Topic: rec, Owners: v.Owners})
			}})
			m.tails = g.Manager.tails
			_, err := m.Attach(context.Background(), AttachRequest{Parent: "p", Child: "c"})
			if times == 1 && err != nil || times == 2 && !errors.Is(err, model.ErrTopicChanged) {
				t.Errorf("%s changed %d times: %v", name, times, err)
			}
		}
	}
}

func TestLockBothOrders(t *testing.T) {
	l := newNameLocks()
	done := make(chan struct{})
	for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}, {"a", "a"}, {"a", ""}} {
		go func() {
			for range 200 {
				unlock, err := l.lockBoth(context.Background(), pair[0], pair[1])
				if err != nil {
					t.Error(err)
					break
				}
				unlock()
			}
			done <- struct{}{}
		}()
	}
	for range 4 {
		<-done
	}
	if len(l.held) != 0 {
		t.Errorf("%d locks are kept", len(l.held))
	}
}

// A replica child, and what it grows by, is placed off the parent's owners of the same
// indexes.
func TestChildrenArePlacedOffTheirParent(t *testing.T) {
	g := newLinkRig(t, ends{at: make([]int64, 5)})
	ctx := context.Background()
	g.propose(t, metastore.RegisterMember{ID: "narad-1", At: 1})
	parent, err := g.Create(ctx, CreateRequest{Name: "parent", Partitions: 5})
	must(t, err)
	apart := func(child *model.TopicView) {
		t.Helper()
		for p, id := range child.Owners {
			if id == "" || id == parent.Owners[p] {
				t.Errorf("child %v, parent %v", child.Owners, parent.Owners)
			}
		}
	}
	child, err := g.Create(ctx, CreateRequest{Name: "child", Parent: "parent"})
	must(t, err)
	apart(child)
	small, err := g.Create(ctx, CreateRequest{Name: "small", Parent: "parent", Partitions: 3})
	must(t, err)
	apart(small)
	small, err = g.Alter(ctx, "small", AlterRequest{Partitions: ptr(5)})
	must(t, err)
	apart(small)
}

// asked are tails whose owner answers as f says, given how often it was asked.
type asked struct {
	calls atomic.Int64
	f     func(call int64) (int64, error)
}

func (a *asked) HighWatermark(_ context.Context, _ *model.TopicView, _ int) (int64, error) {
	return a.f(a.calls.Add(1))
}

// An owner that has not heard of the parent yet is asked again for a while, and is then
// unavailable: the topic is there, so nobody is told that it is not.
func TestAttachWaitsForAnOwnerThatIsBehind(t *testing.T) {
	for _, behind := range []error{model.ErrTopicNotFound, model.ErrTopicChanged} {
		a := &asked{f: func(call int64) (int64, error) {
			if call <= 5 {
				return 0, fmt.Errorf("owner: %w", behind)
			}
			return 7, nil
		}}
		g := newLinkRig(t, a)
		g.Manager.clock = clock.Real()
		_, err := g.Create(context.Background(), CreateRequest{Name: "n", Parent: "p"})
		must(t, err)
		if v, _ := g.store.Topic("n"); !reflect.DeepEqual(v.AttachOffsets, []int64{7, 7, 7}) {
			t.Errorf("attached at %v", v.AttachOffsets)
		}

		fake := clock.NewFake(time.Unix(1_700_000_000, 0))
		forever := &asked{f: func(int64) (int64, error) {
			fake.Advance(ownerLagMax)
			return 0, fmt.Errorf("owner: %w", behind)
		}}
		g = newLinkRig(t, forever)
		g.Manager.clock = fake
		_, err = g.Attach(context.Background(), AttachRequest{Parent: "p", Child: "c"})
		if !errors.Is(err, model.ErrUnavailable) || errors.Is(err, model.ErrTopicNotFound) || errors.Is(err, model.ErrTopicChanged) {
			t.Errorf("attach: %v, want only that the owner is not available", err)
		}
		if n := forever.calls.Load(); n != 3 {
			t.Errorf("asked %d times, want each owner once", n)
		}
	}
}

// TC-13, DC-9: the parent is recreated under a create with a parent, and under a detach.
func TestCreateAndDetachTwiceChanged(t *testing.T) {
	for _, do := range []string{"create", "detach"} {
		for times := 1; times <= 2; times++ {
			g := newLinkRig(t, ends{at: []int64{0, 0, 0}})
			_, err := g.Attach(context.Background(), AttachRequest{Parent: "p", Child: "c"})
			must(t, err)
			left := times
			m := g.over(&racing{g.store, func() {
				if left--; left < 0 {
					return
				}
				v, _ := g.store.Topic("p")
				g.propose(t, metastore.DeleteTopic{Name: "p", ID: v.ID})
				rec := v.Topic
				rec.ID, rec.Children = model.NewIncarnation(), nil
				g.propose(t, metastore.CreateTopic{Topic: rec, Owners: v.Owners})
				if c, _ := g.store.Topic("c"); do == "detach" {
					g.propose(t, metastore.AttachChild{Parent: "p", Child: c.Name, Epoch: newEpoch(), Offsets: []int64{0, 0, 0}})
				}
			}})
			m.tails = g.Manager.tails
			if do == "create" {
				_, err = m.Create(context.Background(), CreateRequest{Name: "n", Parent: "p"})
			} else {
				err = m.Detach(context.Background(), "p", "c", "")
			}
			if times == 1 && err != nil || times == 2 && !errors.Is(err, model.ErrTopicChanged) {
				t.Errorf("%s, parent changed %d times: %v", do, times, err)
			}
			_, made := g.store.Topic("n")
			if c, _ := g.store.Topic("c"); do == "create" && made != (times == 1) || do == "detach" && (c.Parent == "") != (times == 1) {
				t.Errorf("%s, parent changed %d times: created %v, child of %q", do, times, made, c.Parent)
			}
		}
	}
}
