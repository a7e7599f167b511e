package nodes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/ingress"
	"github.com/narad-mq/narad/internal/model"
)

// accepted is what was answered 202, by topic.
type accepted map[string][]string

// produce accepts a message on a node, and notes it if it was.
func (a accepted) produce(n *node, topic string, m ingress.Message) {
	n.w.t.Helper()
	if err := n.in.Accept(context.Background(), topic, m); err != nil {
		n.w.t.Fatalf("%s refuses: %v", n.id, err)
	}
	a[topic] = append(a[topic], string(m.Payload))
}

// judge checks that everything accepted is stored, and nothing else; it returns how many
// copies there are beyond the first.
func (a accepted) judge(w *world) (repeated int) {
	w.t.Helper()
	for topic, payloads := range a {
		counts := w.counts(topic)
		for _, p := range payloads {
			if counts[p] == 0 {
				w.t.Errorf("%s: %s was accepted and is lost", topic, p)
			}
			repeated += max(counts[p]-1, 0)
			delete(counts, p)
		}
		for p := range counts {
			w.t.Errorf("%s: %s is stored and was never accepted", topic, p)
		}
	}
	if n := w.backlog(); n != 0 {
		w.t.Errorf("%d records are left in the dispatchers", n)
	}
	return repeated
}

// A reply that is lost makes a copy more, never a record less; a key's records keep their
// order, by where each shows up first.
func TestLostRepliesRepeatAndLoseNothing(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		w.create("orders", "n1")
		a := accepted{}
		for i := range 400 {
			switch i {
			case 100:
				w.link("n0", "n1", fault{lose: true})
			case 200: // 2 s later: less than the grace
				w.link("n0", "n1", fault{})
			}
			a.produce(w.nodes[0], "orders", ingress.Message{Payload: []byte(text("m%03d", i)), Key: []byte("k"), Partition: ingress.AnyPartition})
			pass(20 * time.Millisecond)
		}
		pass(10 * time.Second)
		if a.judge(w) == 0 {
			t.Error("no reply was lost: the test proves nothing")
		}
		if got := firsts(w.stored("orders", 0)); !slices.Equal(got, a["orders"]) {
			t.Errorf("order of first appearance: %v", got)
		}
	})
}

// stuckPartitions is how many of one topic the stuck owner has.
const stuckPartitions = 100

// However an owner is stuck, what goes elsewhere is not held up; what goes to it arrives
// once it is well again, or elsewhere.
func TestStuckRemoteOwnerHoldsUpNoOther(t *testing.T) {
	for name, f := range map[string]fault{
		"refuses":       {refuse: true},
		"silent":        {silent: true},
		"loses replies": {lose: true},
		"slow":          {delay: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				w.create("stuck", slices.Repeat([]string{"n1"}, stuckPartitions)...)
				w.create("here", "n0")
				w.create("there", "n2")
				w.reach("n1", f)
				a := accepted{}
				for i := range 200 {
					for _, topic := range []string{"stuck", "here", "there"} {
						p := 0
						if topic == "stuck" {
							p = i % stuckPartitions
						}
						a.produce(w.nodes[0], topic, ingress.Message{Payload: []byte(text("m%03d", i)), Partition: p})
					}
					pass(50 * time.Millisecond)
					for _, topic := range []string{"here", "there"} {
						if got := len(w.stored(topic, 0)); got != i+1 {
							t.Fatalf("%s holds %d of %d records 50 ms after the last", topic, got, i+1)
						}
					}
				}
				w.reach("n1", fault{})
				pass(70 * time.Second)
				a.judge(w)
			})
		})
	}
}

// A dead owner's records go to the next partition at once; once it is alive again they
// come to it.
func TestDeadRemoteOwner(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.create("orders", "n0", "n1", "n2")
		w.reach("n1", fault{silent: true})
		a := accepted{}
		a.produce(w.nodes[0], "orders", ingress.Message{Payload: []byte("in flight"), Partition: 1})
		pass(1500 * time.Millisecond) // hung by now
		w.setDead("n1", true)
		for i := range 50 {
			a.produce(w.nodes[0], "orders", ingress.Message{Payload: []byte(text("m%02d", i)), Key: []byte("k"), Partition: 1})
		}
		pass(time.Second)
		if got := w.stored("orders", 2); len(got) != 50 || !slices.IsSorted(got) {
			t.Errorf("the next partition holds %v", got)
		}
		w.setDead("n1", false)
		w.reach("n1", fault{})
		pass(40 * time.Second) // the commit that hung is given up after 30 s
		a.produce(w.nodes[0], "orders", ingress.Message{Payload: []byte("after"), Key: []byte("k"), Partition: 1})
		pass(time.Second)
		if got := w.stored("orders", 1); !slices.Contains(got, "after") {
			t.Errorf("the owner that came back holds %v", got)
		}
		a.judge(w)
	})
}

// Commits of an owner that fails are tried once a second with one record, on a budget of
// 5 s; after 3 s its records go elsewhere.
func TestFailingRemoteOwnerIsProbed(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		w.create("orders", "n0", "n1")
		w.reach("n1", fault{refuse: true})
		a := accepted{}
		for i := range 20 {
			a.produce(w.nodes[0], "orders", ingress.Message{Payload: []byte(text("m%02d", i)), Partition: 1})
		}
		pass(2900 * time.Millisecond)
		if n := len(w.stored("orders", 0)); n != 0 {
			t.Errorf("%d records went elsewhere within the grace", n)
		}
		pass(1200 * time.Millisecond)
		if n := len(w.stored("orders", 0)); n != 20 {
			t.Errorf("%d records went elsewhere after the grace, want 20", n)
		}
		a.judge(w)
	})
}

// No commit to another node is larger than 8 MiB (the harness checks each); what is
// larger goes as several.
func TestRemoteCommitsAreBounded(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		w.create("orders", "n1")
		w.link("n0", "n1", fault{refuse: true})
		for i := range 40 {
			p := make([]byte, 1<<20-64)
			copy(p, text("m%02d", i))
			must(t, w.nodes[0].in.Accept(t.Context(), "orders", ingress.Message{Payload: p, Partition: 0}))
		}
		pass(1500 * time.Millisecond)
		w.link("n0", "n1", fault{})
		pass(10 * time.Second)
		if n := w.nodes[1].calls.Load(); n < 5 || n > 41 {
			t.Errorf("%d commits for 40 MiB", n)
		}
		if got := len(w.stored("orders", 0)); got != 40 || w.backlog() != 0 {
			t.Errorf("%d of 40 records, %d left behind", got, w.backlog())
		}
	})
}

// A topic that is deleted and made again while its records wait for a remote owner: none
// of the old life is ever stored under the new one.
func TestRecreatedWhileTheOwnerIsAway(t *testing.T) {
	for _, f := range []fault{{refuse: true}, {silent: true}, {lose: true}, {delay: 2 * time.Second}} {
		bubble(t, 2, func(t *testing.T, w *world) {
			w.create("orders", "n1")
			w.link("n0", "n1", f)
			for i := range 30 {
				must(t, w.nodes[0].in.Accept(t.Context(), "orders", ingress.Message{Payload: []byte(text("old%d", i)), Partition: 0}))
				pass(50 * time.Millisecond)
			}
			w.change(func(views map[string]*model.TopicView) { delete(views, "orders") })
			w.create("orders", "n1")
			a := accepted{}
			for i := range 30 {
				a.produce(w.nodes[0], "orders", ingress.Message{Payload: []byte(text("new%d", i)), Partition: 0})
			}
			pass(time.Second)
			w.link("n0", "n1", fault{})
			pass(70 * time.Second)
			a.judge(w) // "never accepted" is what an old record would be called
		})
	}
}

// chaos does one random thing to the cluster.
func (w *world) chaos(r *rand.Rand) {
	n := w.nodes[r.IntN(len(w.nodes))]
	switch r.IntN(8) {
	case 0:
		w.reach(n.id, fault{silent: true})
	case 1:
		w.reach(n.id, fault{refuse: true})
	case 2:
		w.reach(n.id, fault{lose: true})
	case 3:
		w.link(w.nodes[r.IntN(len(w.nodes))].id, n.id, fault{lose: r.IntN(2) == 0, delay: time.Duration(r.IntN(3000)) * time.Millisecond})
	case 4:
		w.setDead(n.id, !w.isDead(n.id))
	case 5:
		if n.running() != nil {
			n.kill(r.Int64())
		}
	case 6:
		if n.running() == nil {
			n.start()
		}
	case 7:
		w.reach(n.id, fault{})
	}
}

// heal ends every fault and lets everything settle.
func (w *world) heal() {
	for _, n := range w.nodes {
		w.reach(n.id, fault{})
		w.setDead(n.id, false)
		if n.running() == nil {
			n.start()
		}
	}
	pass(2 * time.Minute)
}

// Three nodes that are cut off, slow, killed, marked dead and lose replies at random:
// whatever was accepted is stored in the end, and nothing else is.
func TestDispatchUnderRandomFaults(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				r := rand.New(rand.NewPCG(seed, 1))
				w.create("three", "n0", "n1", "n2")
				w.create("one", "n1")
				w.create("wide", slices.Repeat([]string{"n0", "n1", "n2"}, 20)...)
				a := accepted{}
				for i := range 300 {
					if i%5 == 0 {
						w.chaos(r)
					}
					for _, n := range w.nodes {
						if n.running() == nil {
							continue
						}
						topic := []string{"three", "one", "wide"}[r.IntN(3)]
						m := ingress.Message{Payload: []byte(text("%s-%d", n.id, i)), Partition: ingress.AnyPartition}
						if r.IntN(2) == 0 {
							m.Key = []byte(text("k%d", r.IntN(5)))
						}
						if err := n.in.Accept(context.Background(), topic, m); err == nil {
							a[topic] = append(a[topic], string(m.Payload))
						} else if !errors.Is(err, model.ErrWALFailed) {
							t.Fatal(err)
						}
					}
					pass(time.Duration(r.IntN(300)) * time.Millisecond)
				}
				w.heal()
				a.judge(w)
			})
		})
	}
}
