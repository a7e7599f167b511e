package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	narad "github.com/narad-mq/narad/internal/testutil"
)

// place calls Place in the background; what it returns comes on the channel.
func place(n *rigNode, partitions int) <-chan []string {
	out := make(chan []string, 1)
	go func() {
		owners, done, err := n.duties.Place(context.Background(), partitions, nil)
		if err == nil {
			done()
		}
		out <- owners
	}()
	return out
}

// answered waits for what place returns.
func answered(t testing.TB, out <-chan []string) []string {
	t.Helper()
	select {
	case owners := <-out:
		return owners
	case <-time.After(clusterWait):
		t.Fatal("Place did not return")
	}
	return nil
}

// waiting checks that creates wait, and nothing was placed so far.
func (r *rig) waiting(n int, outs ...<-chan []string) {
	r.t.Helper()
	narad.Eventually(r.t, clusterWait, func() bool { return r.clk.Timers() == r.loops()+n }, "creates to wait")
	for _, out := range outs {
		if len(out) != 0 {
			r.t.Errorf("placed on %v", <-out)
		}
	}
}

// A create made while the cluster is forming waits for the rest, and is spread.
func TestFormingClusterIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 3)
	leader := r.leader()
	r.govern()
	r.beat(r.others(leader)[0].id)
	out := place(leader, 3)
	r.waiting(1, out)
	r.clk.Advance(formingPoll)
	r.waiting(1, out)
	r.beat(r.others(leader)[1].id)
	r.clk.Advance(formingPoll)
	owners := answered(t, out)
	slices.Sort(owners)
	if fmt.Sprint(owners) != "[narad-0 narad-1 narad-2]" {
		t.Errorf("placed on %v", owners)
	}
}

// The wait is 2 s from when a forming cluster was first seen: a voter that never
// registers costs one wait, not one per create.
func TestFormingWaitIsPaidOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 2)
	leader := r.leader()
	duties := New(Options{Store: leader.seam, Self: leader.id, Clock: r.clk}) // no loop: creates alone move its time
	leader.duties = duties
	t.Cleanup(func() { duties.Close() })
	r.beat(r.others(leader)[0].id)
	first := place(leader, 3)
	narad.Eventually(t, clusterWait, func() bool { return r.clk.Timers() == 1 }, "a create to wait")
	for range int(formingWait/formingPoll) - 1 {
		r.clk.Advance(formingPoll)
		narad.Eventually(t, clusterWait, func() bool { return r.clk.Timers() == 1 }, "the create to wait on")
	}
	if len(first) != 0 {
		t.Error("placed before 2 s were over")
	}
	r.clk.Advance(formingPoll)
	if owners := answered(t, first); len(owners) != 3 {
		t.Errorf("placed on %v", owners)
	}
	if owners := answered(t, place(leader, 3)); len(owners) != 3 { // the clock stands
		t.Errorf("placed on %v", owners)
	}
	r.beat(r.nodes[2].id) // formed: the next forming cluster is waited for again
	answered(t, place(leader, 3))
	if !duties.forming.IsZero() {
		t.Error("a cluster that formed is still waited for")
	}
}

// The loop sees a forming cluster before the first create does.
func TestFormingWaitBeginsWithTheTerm(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 2)
	leader := r.leader()
	r.govern()
	r.pass(3 * time.Second)
	if owners := answered(t, place(leader, 3)); len(owners) != 3 {
		t.Errorf("placed on %v", owners)
	}
}

func TestFormingWaitEndsWithItsRequestAndWithClose(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 2)
	leader := r.leader()
	r.govern()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := leader.duties.Place(ctx, 3, nil); !errors.Is(err, model.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	out := place(leader, 3)
	r.waiting(1, out)
	must(t, leader.duties.Close())
	if owners := answered(t, out); len(owners) != 3 {
		t.Errorf("placed on %v", owners)
	}
}

// Voters of whom none has a record are no forming cluster: there is nobody to place on.
func TestNobodyRegisteredIsNotForming(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	r.propose(metastore.RemoveMember{ID: leader.id})
	duties := New(Options{Store: leader.seam, Self: leader.id, Clock: r.clk}) // a wait would not end
	defer duties.Close()
	ctx, cancel := context.WithTimeout(context.Background(), clusterWait)
	defer cancel()
	if _, _, err := duties.Place(ctx, 3, nil); !errors.Is(err, model.ErrNoMember) {
		t.Errorf("%v, want %v", err, model.ErrNoMember)
	}
}

// TC-17: a topic created while nobody is alive is placed about a second after a member
// turns alive.
func TestUnplacedTopicsArePlacedTC17(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	r.govern()
	r.pass(time.Second)
	r.propose(metastore.MarkDead{ID: leader.id})
	if _, _, err := leader.duties.Place(context.Background(), 3, nil); !errors.Is(err, model.ErrNoMember) {
		t.Errorf("%v, want %v", err, model.ErrNoMember)
	}
	r.propose(metastore.CreateTopic{Topic: topicOf("t", 3)})
	r.pass(25 * time.Second)
	if got := r.owners("t"); got[0] != "" {
		t.Fatalf("placed on %v", got)
	}
	r.beat(leader.id)
	r.pass(watchEvery)
	if got := r.owners("t"); slices.Contains(got, "") {
		t.Errorf("still on %q", got)
	}
}

// The sweep for arrivals waits until every voter is alive, or for 1 s after the last one.
func TestSweepWaitsForTheVoters(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 3)
	leader := r.leader()
	r.propose(metastore.CreateTopic{Topic: topicOf("t", 3)})
	r.govern()
	r.pass(500 * time.Millisecond)
	r.beat(r.others(leader)[0].id)
	r.pass(time.Second) // seen with the first look
	if got := r.owners("t"); got[0] != "" {
		t.Fatalf("placed on %v before the last voter was there", got)
	}
	r.pass(watchEvery)
	if got := r.owners("t"); slices.Contains(got, "") || slices.Contains(got, r.others(leader)[1].id) {
		t.Errorf("1 s after the last arrival: on %q", got)
	}
	r.propose(metastore.CreateTopic{Topic: topicOf("u", 3)})
	r.beat(r.others(leader)[1].id)
	r.pass(watchEvery)
	if got := r.owners("u"); slices.Contains(got, "") || !slices.Contains(got, r.others(leader)[1].id) {
		t.Errorf("with every voter alive: on %q", got)
	}
}

// The sweep gives owners to those without, keeps every other, and keeps children off
// their parents.
func TestSweepPlacesWhatHasNoOwner(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	r.beat("narad-8", "narad-9")
	parent, child := topicOf("parent", 6), topicOf("child", 6)
	r.propose(
		metastore.CreateTopic{Topic: parent, Owners: []string{"narad-9", "", "narad-8", "", "narad-9"}},
		metastore.CreateTopic{Topic: child, Owners: []string{"", "narad-8"}},
		metastore.AttachChild{Parent: "parent", Child: "child", Epoch: "0123456789abcdef", Offsets: make([]int64, 6)},
	)
	r.propose(metastore.MarkDead{ID: "narad-9"})
	r.govern()
	r.pass(10*time.Second, "narad-8")
	p, c := r.owners("parent"), r.owners("child")
	if p[0] != "narad-9" || p[2] != "narad-8" || p[4] != "narad-9" || c[1] != "narad-8" {
		t.Errorf("owners were replaced: %v, %v", p, c)
	}
	if slices.Contains(p, "") || slices.Contains(c, "") {
		t.Errorf("left without owner: %q, %q", p, c)
	}
	r.pass(10*time.Second, "narad-8")
	clashes := 0
	for i := range c {
		if p[i] != c[i] {
			continue
		}
		clashes++
		if i != 1 { // the child's there was placed before its parent's
			t.Errorf("partition %d: parent %v, child %v", i, p, c)
		}
	}
	if got := colocated(leader); got != float64(clashes) {
		t.Errorf("narad_colocated_child_partitions is %v, %d are", got, clashes)
	}
}

// An older member does not apply insert-only placement: the fallback places all the same.
func TestSweepBesideAnOlderMember(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	r.propose(
		metastore.RegisterMember{ID: "narad-9", Addr: "narad-9:7942", At: 1},
		metastore.CreateTopic{Topic: topicOf("t", 4), Owners: []string{"", "narad-9"}},
	)
	if leader.store.Applies(metastore.TypeInsertPlacement) == nil {
		t.Fatal("insert-only placement may be used")
	}
	r.govern()
	r.pass(watchEvery)
	if got := r.owners("t"); slices.Contains(got, "") || got[1] != "narad-9" {
		t.Errorf("on %q", got)
	}
}

// More than one pass may place is placed over the looks that follow.
func TestSweepGoesOnPastItsBound(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	for i := range sweepTopics + 5 {
		r.propose(metastore.CreateTopic{Topic: topicOf(fmt.Sprintf("t%04d", i), 1)})
	}
	left := func() (n int) {
		leader.store.Range(func(v *model.TopicView) bool {
			if v.Owners[0] == "" {
				n++
			}
			return true
		})
		return n
	}
	r.govern() // its first look sweeps: the only voter is alive
	if got := left(); got != 5 {
		t.Errorf("%d left after one pass, want 5", got)
	}
	r.pass(watchEvery)
	if got := left(); got != 0 {
		t.Errorf("%d left after two", got)
	}
}

// Topics placed by one pass count for each other: the pass is even as a whole.
func TestSweepIsEvenOverItsTopics(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	r.beat("narad-9")
	for i := range 4 {
		r.propose(metastore.CreateTopic{Topic: topicOf(fmt.Sprintf("t%d", i), 1)})
	}
	r.govern()
	if a, b := leader.store.OwnedPartitions(leader.id), leader.store.OwnedPartitions("narad-9"); a != 2 || b != 2 {
		t.Errorf("%d and %d partitions, want 2 each", a, b)
	}
}

// While no topic changes, ticks do not walk them.
func TestIdleTicksDoNotWalkTheTopics(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	r.propose(metastore.CreateTopic{Topic: topicOf("t", 1), Owners: []string{leader.id}})
	r.govern()
	scans := func() (n int) {
		leader.seam.set(func(s *seam) { n = s.scans })
		return n
	}
	before := scans()
	r.pass(30 * time.Second)
	if got := scans(); got != before {
		t.Errorf("%d walks over topics that stand still", got-before)
	}
	r.propose(metastore.CreateTopic{Topic: topicOf("u", 1)})
	r.pass(10 * time.Second)
	if got := r.owners("u"); got[0] == "" {
		t.Error("a new topic is not walked")
	}
}

// All draining: nothing is placed, and that is said once per episode.
func TestSweepWhileEveryLiveMemberDrains(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	const line = "every live member is being decommissioned, so new partitions have no owner"
	r.propose(metastore.CreateTopic{Topic: topicOf("t", 3)}, metastore.MarkDraining{ID: leader.id})
	r.govern()
	r.pass(30 * time.Second)
	r.wantLines(1, line)
	if _, _, err := leader.duties.Place(context.Background(), 3, nil); !errors.Is(err, model.ErrAllDraining) {
		t.Errorf("TC-16: %v", err)
	}
	r.propose(metastore.CancelDraining{ID: leader.id})
	r.pass(10 * time.Second)
	if got := r.owners("t"); slices.Contains(got, "") {
		t.Errorf("on %q", got)
	}
	r.propose(metastore.CreateTopic{Topic: topicOf("u", 3)}, metastore.MarkDraining{ID: leader.id})
	r.pass(20 * time.Second)
	r.wantLines(2, line)
}

// A sweep runs alone: a create in flight holds it off, and waits for one that runs.
func TestAssignmentLock(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	r.govern()
	r.pass(watchEvery)
	_, done, err := leader.duties.Place(context.Background(), 1, nil)
	must(t, err)
	r.propose(metastore.CreateTopic{Topic: topicOf("t", 3)})
	r.pass(10*time.Second - 2*watchEvery)
	r.clk.Advance(watchEvery) // the tick: it waits for the create
	again, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	<-again.Done()
	if got := r.owners("t"); got[0] != "" {
		t.Errorf("placed on %v beside a create", got)
	}
	sweeping := make(chan struct{})
	once := sync.OnceFunc(func() { close(sweeping) })
	held := make(chan struct{})
	leader.seam.set(func(s *seam) {
		s.accept = func(ctx context.Context, c metastore.Command) (metastore.Result, error) {
			once()
			<-held
			return s.Store.Accept(ctx, c)
		}
	})
	done()
	select {
	case <-sweeping:
	case <-time.After(clusterWait):
		t.Fatal("the sweep does not place once the create is done")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := leader.duties.Place(ctx, 1, nil); !errors.Is(err, model.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a create beside a sweep: %v", err)
	}
	out := place(leader, 1)
	close(held)
	answered(t, out)
	r.idle()
	if got := r.owners("t"); slices.Contains(got, "") {
		t.Errorf("on %q", got)
	}
}

// Creates run side by side, and what one has chosen counts for the next, once.
func TestPlaceCountsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	r.beat("narad-9")
	duties := New(Options{Store: leader.seam, Self: leader.id, Clock: clock.Real()})
	defer duties.Close()
	first, done1, err := duties.Place(context.Background(), 1, nil)
	must(t, err)
	second, done2, err := duties.Place(context.Background(), 1, nil)
	must(t, err)
	if first[0] != leader.id || second[0] != "narad-9" {
		t.Errorf("%v then %v", first, second)
	}
	done1()
	done2()
	done2() // counts once
	if len(duties.pending) != 0 {
		t.Errorf("pending %v", duties.pending)
	}
	third, done3, err := duties.Place(context.Background(), 2, []string{leader.id, "narad-9"})
	must(t, err)
	defer done3()
	if third[0] != "narad-9" || third[1] != leader.id {
		t.Errorf("a child of [%s narad-9] went to %v", leader.id, third)
	}
}

func TestCloseIsIdempotent(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	leader := r.leader()
	never := New(Options{Store: leader.seam, Self: leader.id})
	must(t, never.Close())
	looked := 0
	leader.seam.set(func(s *seam) {
		s.barrier = func(ctx context.Context) error { looked++; return s.Store.Barrier(ctx) }
	})
	never.Start()
	must(t, never.Close())
	if looked != 0 {
		t.Error("started after Close")
	}
	r.govern()
	leader.duties.Start()
	must(t, leader.duties.Close())
	must(t, leader.duties.Close())
}
