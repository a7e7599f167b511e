package nodes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/fanout"
	"github.com/narad-mq/narad/internal/model"
)

// attach links a child, from where the parent's owners say it ends.
func (w *world) attach(parent, child string, delay time.Duration) {
	w.t.Helper()
	pv, _ := w.Topic(parent)
	var offsets []int64
	for p := range pv.Partitions {
		high, err := w.node(pv.OwnerOf(p)).running().HighWatermark(parent, pv.ID, p)
		must(w.t, err)
		offsets = append(offsets, high)
	}
	w.change(func(views map[string]*model.TopicView) {
		w.ids++
		np, nc := *views[parent], *views[child]
		np.Children = append(slices.Clone(np.Children), child)
		nc.Parent, nc.AttachEpoch, nc.FanoutDelayMS, nc.AttachOffsets = parent, fmt.Sprintf("%016x", w.ids), delay.Milliseconds(), offsets
		views[parent], views[child] = &np, &nc
	})
}

// commit stores records keyed by themselves in a parent partition, on its owner.
func (w *world) commit(topic string, p int, payloads ...string) {
	w.t.Helper()
	v, _ := w.Topic(topic)
	recs := make([]model.Record, len(payloads))
	for i, s := range payloads {
		recs[i] = model.Record{Key: []byte(s), Payload: []byte(s), Incarnation: v.ID}
	}
	_, err := w.node(v.OwnerOf(p)).running().Commit(w.t.Context(), topic, p, recs)
	must(w.t, err)
}

// lag is a child's listing as a node gives it.
func (n *node) lag(parent, child string) fanout.Child {
	n.w.t.Helper()
	v, _ := n.w.Topic(parent)
	for _, c := range n.e.Children(n.w.t.Context(), v) {
		if c.Name == child {
			return c
		}
	}
	n.w.t.Fatalf("%s does not list %s under %s", n.id, child, parent)
	return fanout.Child{}
}

// copied checks that a child holds what was committed to the parent after the attach:
// nothing less, nothing else; it returns how many copies there are beyond the first.
func (w *world) copied(child string, want []string) (repeated int) {
	w.t.Helper()
	counts := w.counts(child)
	for _, s := range want {
		if counts[s] == 0 {
			w.t.Errorf("%s lacks %s", child, s)
		}
		repeated += max(counts[s]-1, 0)
		delete(counts, s)
	}
	for s := range counts {
		w.t.Errorf("%s holds %s, which is not its", child, s)
	}
	return repeated
}

// Cursors run where the parent's partitions are and commit to wherever the child's are:
// exactly once while nothing fails, from the attach on, by key.
func TestCopiesAcrossNodes(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.create("p", "n0", "n1", "n2", "n0")
		w.create("c", "n1", "n2", "n0", "n2")
		w.create("narrow", "n2", "n1")
		for p := range 4 {
			w.commit("p", p, text("before%d", p))
		}
		w.attach("p", "c", 0)
		w.attach("p", "narrow", 0)
		var want []string
		for i := range 50 {
			for p := range 4 {
				s := text("m%02d-%d", i, p)
				w.commit("p", p, s)
				want = append(want, s)
			}
			pass(10 * time.Millisecond)
		}
		pass(3 * time.Second)
		for _, child := range []string{"c", "narrow"} {
			if n := w.copied(child, want); n != 0 {
				t.Errorf("%s holds %d records twice", child, n)
			}
			v, _ := w.Topic(child)
			for p := range v.Partitions {
				for _, s := range w.stored(child, p) {
					if at := model.KeyPartition([]byte(s), v.Partitions); at != p {
						t.Errorf("%s lies in %s/%d, its key belongs to %d", s, child, p, at)
					}
				}
			}
			for _, n := range w.nodes {
				if l := n.lag("p", child); !l.LagComplete || l.LagMessages != 0 {
					t.Errorf("%s lists %+v", n.id, l)
				}
			}
		}
	})
}

// A child partition whose owner is killed holds up its own records alone, and none of them
// goes elsewhere; the commits are tried until it is back.
func TestChildOwnerIsKilled(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.create("p", "n0")
		w.create("c", "n1", "n2")
		w.attach("p", "c", 0)
		pass(2 * time.Second)
		w.nodes[1].kill(7)
		w.setDead("n1", true)
		var want []string
		other := 0
		for i := range 100 {
			s := text("m%02d", i)
			want = append(want, s)
			if model.KeyPartition([]byte(s), 2) == 1 {
				other++
			}
		}
		w.commit("p", 0, want...)
		pass(time.Minute)
		if n := len(w.stored("c", 1)); n != other {
			t.Errorf("the partition whose owner lives holds %d records, want %d", n, other)
		}
		w.nodes[1].start()
		w.setDead("n1", false)
		pass(5 * time.Second)
		w.copied("c", want)
		if got := w.stored("c", 1); len(got) != other {
			t.Errorf("records of the dead owner's partition lie elsewhere: %v", got)
		}
	})
}

// What a listing says while owners of the parent cannot be asked.
func TestListingAcrossNodes(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.create("p", "n0", "n1", "n2")
		w.create("c", "n0", "n0", "n0")
		w.attach("p", "c", 0)
		pass(2 * time.Second)
		w.reach("n0", fault{refuse: true}) // the child's owner: cursors elsewhere fall behind
		for p := range 3 {
			w.commit("p", p, text("a%d", p), text("b%d", p))
		}
		pass(time.Second)
		listed := func(what string, want fanout.Child, within time.Duration) {
			t.Helper()
			want.Name = "c"
			start := time.Now()
			if got := w.nodes[0].lag("p", "c"); got != want || time.Since(start) > within {
				t.Errorf("%s: %+v after %v, want %+v within %v", what, got, time.Since(start), want, within)
			}
		}
		listed("every owner reports", fanout.Child{LagMessages: 4, LagComplete: true}, 0)
		w.link("n0", "n1", fault{delay: 1900 * time.Millisecond})
		w.link("n0", "n2", fault{delay: 1900 * time.Millisecond})
		listed("owners report late", fanout.Child{LagMessages: 4, LagComplete: true}, 1900*time.Millisecond)
		w.link("n0", "n1", fault{silent: true})
		listed("one owner is silent", fanout.Child{LagMessages: 2}, 2*time.Second)
		w.setDead("n1", true)
		w.link("n0", "n2", fault{})
		listed("one owner is dead", fanout.Child{LagMessages: 2}, 0)
		w.setDead("n1", false)
		w.link("n0", "n1", fault{})
		w.change(func(views map[string]*model.TopicView) { // attached again: what ran before reports nothing
			nc := *views["c"]
			nc.AttachEpoch = "ffffffffffffffff"
			views["c"] = &nc
		})
		listed("cursors of another epoch", fanout.Child{}, 0)
	})
}

// Owners of child partitions that are cut off, slow, killed or lose replies at random, and
// owners of parent partitions that are killed: nothing is missing in the end.
func TestFanoutUnderRandomFaults(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				r := rand.New(rand.NewPCG(seed, 2))
				w.create("p", "n0", "n1", "n2")
				w.create("c", "n1", "n2", "n0")
				w.create("late", "n2", "n1")
				w.attach("p", "c", 0)
				w.attach("p", "late", 5*time.Second)
				var want []string
				for i := range 120 {
					if i%4 == 0 {
						w.chaos(r)
					}
					p := r.IntN(3)
					if w.nodes[p].running() != nil {
						s := text("m%03d", i)
						w.commit("p", p, s)
						want = append(want, s)
					}
					pass(time.Duration(r.IntN(500)) * time.Millisecond)
				}
				w.heal()
				w.copied("c", want)
				w.copied("late", want)
				for _, n := range w.nodes {
					for _, child := range []string{"c", "late"} {
						if l := n.lag("p", child); !l.LagComplete || l.LagMessages != 0 {
							t.Errorf("%s lists %+v", n.id, l)
						}
					}
				}
			})
		})
	}
}

// A delay child's records are in the child within a second of being due, never before, by
// the clock of the parent partition's owner.
func TestDelayAcrossNodesIsPunctual(t *testing.T) {
	const delay = 30 * time.Second
	bubble(t, 3, func(t *testing.T, w *world) {
		r := rand.New(rand.NewPCG(1, 3))
		w.create("p", "n0", "n1", "n2")
		w.create("c", "n1", "n2", "n0")
		w.attach("p", "c", delay)
		due := map[string]int64{} // Unix ms
		for i := range 1000 {
			s := text("m%04d", i)
			w.commit("p", r.IntN(3), s)
			due[s] = time.Now().Add(delay).UnixMilli()
			pass(time.Duration(r.IntN(200)) * time.Millisecond)
		}
		pass(delay + 2*time.Second)
		var late []int64
		v, _ := w.Topic("c")
		for p := range v.Partitions {
			s, err := w.node(v.OwnerOf(p)).running().Slab("c", v.ID, p, nil, 0, commitlog.SlabLimit{MaxRecords: 4096, MaxBytes: 1 << 20})
			must(t, err)
			for _, rec := range s.Records {
				late = append(late, rec.CommittedAt-due[string(rec.Payload)])
			}
		}
		slices.Sort(late)
		if len(late) != 1000 || late[0] < 0 || late[990] >= 1000 || late[999] >= 2000 {
			t.Errorf("%d records, from %d ms late; 99 of 100 within %d ms, all within %d ms", len(late), late[0], late[len(late)*99/100], late[len(late)-1])
		}
		t.Logf("lateness: half within %d ms, 99 of 100 within %d ms", late[500], late[990])
	})
}
