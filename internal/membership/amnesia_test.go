package membership

import (
	"fmt"
	"math/rand/v2"
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

// No order of starts with empty or old volumes makes two clusters: whatever the first
// leader had committed, everybody has in the end. One volume at a time is lost, while a
// node that holds the cluster runs: where nobody who knows of a cluster can be asked,
// nobody can say that there is one.
func TestRivalClustersNeverForm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rivals(t, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

func rivals(t *testing.T, r *rand.Rand) {
	const nodes, initial = 4, 3
	w := newWorld(t, nodes, initial)
	var wg sync.WaitGroup
	for _, i := range r.Perm(nodes) { // a new install, in any order and at any distance
		wg.Go(func() { must(t, w.tryStart(i)) })
		if r.IntN(2) == 0 {
			wg.Wait()
		}
	}
	wg.Wait()
	w.mark("first")
	w.settled(nodes)
	for round := range 3 {
		order := r.Perm(nodes)
		down := order[:1+r.IntN(nodes)]
		wiped := -1
		for _, i := range down {
			w.stop(i)
		}
		if len(down) < nodes && r.IntN(3) > 0 {
			wiped = down[0]
			w.wipe(wiped)
		}
		for _, i := range down {
			wg.Go(func() { must(t, w.tryStart(i)) })
			if r.IntN(3) == 0 {
				wg.Wait()
			}
		}
		wg.Wait()
		w.settled(nodes)
		w.mark(fmt.Sprintf("round-%d", round))
	}
	for i := range nodes {
		w.eventually(func() bool { return w.marked(i, "first") && w.marked(i, "round-2") }, w.nodes[i].id+" to have everything")
		w.eventually(func() bool { return w.store(i).AppliedCaughtUp() == nil }, w.nodes[i].id+" to be current")
	}
	if n := len(w.store(w.leader()).Servers()); n != nodes {
		t.Errorf("%d servers, want %d", n, nodes)
	}
}
