package topics

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

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

// Where a replica child can be kept apart from its parent, it is, and the deal of
// partitions to members stays as it was.
func TestSeparate(t *testing.T) {
	owners := []string{"a", "b", "c"}
	separate(owners, []string{"a", "b", "c"})
	for p, o := range owners {
		if o == []string{"a", "b", "c"}[p] {
			t.Errorf("%v: partition %d lies with its parent's", owners, p)
		}
	}
	alone := []string{"a", "a"}
	separate(alone, []string{"a", "a"})
	if alone[0] != "a" || alone[1] != "a" {
		t.Errorf("%v", alone)
	}
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SampledFrom([]string{"a", "b", "c"})
		parents := rapid.SliceOfN(ids, 1, 12).Draw(t, "parents")
		owners := rapid.SliceOfN(ids, len(parents), len(parents)).Draw(t, "owners")
		count := func(list []string) map[string]int {
			n := map[string]int{}
			for _, id := range list {
				n[id]++
			}
			return n
		}
		clashes := func() (n int) {
			for p := range owners {
				if owners[p] == parents[p] {
					n++
				}
			}
			return n
		}
		dealt, before := count(owners), clashes()
		separate(owners, parents)
		if !reflect.DeepEqual(dealt, count(owners)) || clashes() > before {
			t.Fatalf("parents %v, owners %v", parents, owners)
		}
	})
}
