package membership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// A voter that lost its volume has lost its vote before its Raft runs again, and gets it
// back once it has caught up.
func TestAmnesiacVoterIsDemotedBeforeItRuns(t *testing.T) {
	t.Parallel()
	w := formed(t, 3, 3)
	w.mark("kept")
	i := (w.leader() + 1) % 3
	w.stop(i)
	w.wipe(i)
	join, err := w.probe(i)
	if err != nil || !join {
		t.Fatalf("probe of a configured cluster: %v, %v", join, err)
	}
	if got := w.suffrage(i); got != "non-voter" {
		t.Fatalf("the amnesiac is a %s when its Raft starts", got)
	}
	w.open(i, join)
	w.settled(3)
	if !w.marked(i, "kept") {
		t.Error("it has not caught up")
	}
}

// Of three voters two lose their volumes: what the third holds is the cluster's, and all
// three vote again in the end.
func TestTwoOfThreeVolumesLost(t *testing.T) {
	t.Parallel()
	w := formed(t, 3, 3)
	w.mark("kept")
	lead := w.leader()
	a, b := (lead+1)%3, (lead+2)%3
	w.stop(a)
	w.stop(b)
	w.wipe(a)
	w.wipe(b)
	var wg sync.WaitGroup
	for _, i := range []int{a, b} {
		wg.Go(func() { must(t, w.tryStart(i)) })
	}
	wg.Wait()
	w.settled(3)
	for i := range 3 {
		w.eventually(func() bool { return w.marked(i, "kept") }, "what the survivor held")
	}
}

// Two of three lost their volumes and the Raft of the third cannot be reached: they are a
// majority of the initial members, and still no cluster, for the third says that there is
// one.
func TestMajorityOfEmptyVolumesIsNoRival(t *testing.T) {
	t.Parallel()
	w := formed(t, 3, 3)
	w.mark("kept")
	lead := w.leader()
	lost := []int{(lead + 1) % 3, (lead + 2) % 3}
	for _, i := range lost {
		w.stop(i)
		w.wipe(i)
		w.mute(lead, i)
	}
	for _, i := range lost {
		w.start(i)
	}
	for _, i := range lost {
		sent := len(w.joins(i))
		w.eventually(func() bool { return len(w.joins(i)) > sent+12 }, w.nodes[i].id+" to ask on")
		if servers := w.store(i).Servers(); len(servers) > 0 {
			t.Fatalf("%s has started a cluster of %v", w.nodes[i].id, servers)
		}
	}
	w.heal()
	w.settled(3)
	for i := range 3 {
		w.eventually(func() bool { return w.marked(i, "kept") }, "what the survivor held")
	}
}

// mute cuts the Raft of two nodes off each other, and leaves node RPC.
func (w *world) mute(a, b int) {
	w.cut(a, b, muted)
	w.cut(b, a, muted)
}

// The last quorum is never broken: an amnesiac voter keeps its vote where the cluster
// could not commit without it.
func TestAmnesiacVoterOfTheLastQuorumKeepsItsVote(t *testing.T) {
	t.Parallel()
	w := formed(t, 3, 3)
	w.mark("kept")
	lead := w.leader()
	dead, empty := (lead+1)%3, (lead+2)%3
	w.stop(dead)
	w.stop(empty)
	w.wipe(empty)
	w.start(empty)
	w.eventually(func() bool { return w.store(empty).Ready() == nil }, "the two to be a cluster")
	if a := w.join(empty, true); a.Admission != admissionDeferred {
		t.Errorf("it declares an empty volume: %+v", a)
	}
	if got := w.suffrage(empty); got != "voter" {
		t.Errorf("it is a %s", got)
	}
	w.mark("later")
	w.start(dead)
	w.settled(3)
	if !w.marked(dead, "kept") || !w.marked(empty, "kept") {
		t.Error("an entry is lost")
	}
}

// No order of starts with empty or old volumes makes two clusters: whatever has been
// committed, everybody has in the end, in one configuration. Up to two of four volumes at
// a time are lost, while an initial member that holds the cluster runs: where nobody in
// the peer list knows of a cluster, nobody can say that there is one.
func TestRivalClustersNeverForm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(rivalSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rivals(t, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

const rivalSeeds = 6

func rivals(t *testing.T, r *rand.Rand) {
	const nodes, initial, rounds = 4, 3, 3
	w := newWorld(t, nodes, initial)
	w.startAll(r, r.Perm(nodes)) // a new install
	last := "install"
	w.mark(last)
	for round := range rounds {
		w.settled(nodes)
		for i := range nodes {
			w.eventually(func() bool { return w.marked(i, last) && w.marked(i, "install") }, w.nodes[i].id+" to have everything")
		}
		order := r.Perm(nodes)
		down := order[:1+r.IntN(nodes)]
		for _, i := range down {
			w.stop(i)
		}
		if slices.Min(append(slices.Clone(order[len(down):]), initial)) < initial {
			for _, i := range down[:r.IntN(min(len(down), 2)+1)] {
				w.wipe(i)
			}
		}
		if r.IntN(2) == 0 { // those that know of the cluster can say so, and no more
			for _, i := range order[len(down):] {
				for _, j := range down {
					w.mute(i, j)
				}
			}
		}
		w.startAll(r, down)
		w.eventually(func() bool {
			return w.logged(down[0], "entering candidate state") > 0 || w.store(down[0]).Ready() == nil || len(w.joins(down[0])) > 3
		}, "the first node to have done something")
		w.heal()
		last = fmt.Sprintf("round-%d", round)
		w.mark(last)
	}
	w.settled(nodes)
	for i := range nodes {
		w.eventually(func() bool { return w.marked(i, last) && w.marked(i, "install") }, w.nodes[i].id+" to have everything")
		w.eventually(func() bool { return len(w.store(i).Servers()) == nodes }, w.nodes[i].id+" to have one configuration of all")
	}
}

// startAll starts nodes in an order, some at once and some after those before.
func (w *world) startAll(r *rand.Rand, order []int) {
	w.t.Helper()
	var wg sync.WaitGroup
	for _, i := range order {
		wg.Go(func() { must(w.t, w.tryStart(i)) })
		if r.IntN(2) == 0 {
			wg.Wait()
		}
	}
	wg.Wait()
}
