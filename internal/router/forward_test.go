package router

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/testutil"
)

// take consumes n records of topic t through a node.
func (c *cluster) take(node, n int) []model.Delivery {
	c.t.Helper()
	var out []model.Delivery
	for len(out) < n {
		a := c.consume(c.t.Context(), node, broker.ConsumeRequest{Topic: "t", Partition: -1, Max: n - len(out)})
		if a.err != nil || len(a.got) == 0 {
			c.t.Fatalf("%d of %d records: %v", len(out), n, a)
		}
		out = append(out, a.got...)
	}
	slices.SortFunc(out, func(a, b model.Delivery) int {
		return a.Partition*100 + int(a.Offset) - b.Partition*100 - int(b.Offset)
	})
	return out
}

// TestA7_A8_A9_A10_Settle: the classes of a settlement that has to go elsewhere, and how
// long each may take.
func TestA7_A8_A9_A10_Settle(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		c.create("t", "n1")
		c.commit(1, "t", 0, "a", "b", "c", "d")
		ds := c.take(0, 4)
		r := c.nodes[0].router
		settle := func(i int, op model.SettleOp, want error, took time.Duration) {
			t.Helper()
			began := time.Now()
			if err := r.Settle(t.Context(), "t", ds[i].Handle, op); !errors.Is(err, want) || time.Since(began) != took {
				t.Fatalf("%s of %d: %v after %s, want %v after %s", op, i, err, time.Since(began), want, took)
			}
		}
		const trip = 2 * time.Millisecond
		settle(0, model.Extend, nil, trip)
		settle(0, model.Ack, nil, trip)
		settle(0, model.Ack, model.ErrNoLease, trip)
		settle(1, model.Nack, nil, trip)
		c.fault("n0>n1", swallows)
		settle(2, model.Ack, model.ErrAckUnanswered, settleBudget)
		c.fault("n0>n1", forgets)
		settle(2, model.Ack, model.ErrAckUnanswered, settleBudget)
		c.fault("n0>n1", 0)
		settle(2, model.Ack, model.ErrNoLease, trip) // it had been applied
		c.fault("n0>n1", refuses)
		settle(3, model.Ack, model.ErrAckNotDelivered, trip/2)
		c.fault("n0>n1", 0)
		c.mark("n1", model.MemberDead)
		c.reset()
		settle(3, model.Ack, model.ErrOwnerDown, 0)
		if c.calls("ack") != 0 {
			t.Fatal("a dead owner was asked")
		}
		c.mark("n1", model.MemberAlive)
		settle(3, model.Ack, nil, trip)
		c.nodes[1].replica.behind.Store(true)
		ctx, leave := context.WithTimeout(t.Context(), trip/2)
		defer leave()
		if err := r.Settle(ctx, "t", ds[3].Handle, model.Ack); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, model.ErrAckUnanswered) {
			t.Fatalf("A-15: the client left: %v", err)
		}
	})
}

// moved is a member whose replica shows another placement.
type moved struct {
	Directory
	view *model.TopicView
}

func (m moved) Topic(string) (*model.TopicView, bool) { return m.view, true }

// TestA10_MovedMeanwhile: the owner this node knows of is the owner no more.
func TestA10_MovedMeanwhile(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		c.create("t", "n0")
		v, _ := c.all.Topic("t")
		stale := *v
		stale.Owners = []string{"n1"}
		m := c.nodes[0]
		o := m.router.Options
		o.Directory, o.Table = moved{m.replica, &stale}, nil
		r := New(o)
		defer r.Close()
		if err := r.Settle(t.Context(), "t", model.Handle{Nonce: 1}, model.Ack); !errors.Is(err, model.ErrNotOwner) {
			t.Fatalf("A-10: %v", err)
		}
		if _, err := r.Consume(t.Context(), broker.ConsumeRequest{Topic: "t", Partition: 0, Max: 1, Wait: time.Second}); !errors.Is(err, model.ErrNotOwner) {
			t.Fatalf("C-15: %v", err)
		}
		if _, _, err := r.Read(t.Context(), "t", 0, 0); !errors.Is(err, model.ErrNotOwner) {
			t.Fatalf("R-7: %v", err)
		}
	})
}

// TestAB8_Batch: owners in parallel, each with its own outcome, in the order of the
// request; a handle listed twice is settled once.
func TestAB8_Batch(t *testing.T) {
	inCluster(t, 5, func(t *testing.T, c *cluster) {
		c.create("t", "n0", "n1", "n2", "n3", "n4")
		for p := range 5 {
			c.commit(p, "t", p, "x", "y")
		}
		ds := c.take(0, 10)
		c.fault("n0>n2", swallows)
		c.fault("n0>n3", refuses)
		c.mark("n4", model.MemberDead)
		var hs []model.Handle
		for _, p := range []int{4, 1, 3, 0, 2} {
			hs = append(hs, ds[2*p].Handle, ds[2*p+1].Handle)
		}
		hs = append(hs, ds[2].Handle, ds[0].Handle) // n1's and n0's first again
		want := []error{
			model.ErrOwnerDown, model.ErrOwnerDown, nil, nil, model.ErrAckNotDelivered, model.ErrAckNotDelivered, nil, nil,
			model.ErrAckUnanswered, model.ErrAckUnanswered, model.ErrNoLease, model.ErrNoLease,
		}
		c.reset()
		began := time.Now()
		errs, err := c.nodes[0].router.SettleMany(t.Context(), "t", hs, model.Ack)
		if err != nil || len(errs) != len(want) || time.Since(began) != settleBudget {
			t.Fatalf("%v, %v after %s", errs, err, time.Since(began))
		}
		for i := range want {
			if !errors.Is(errs[i], want[i]) {
				t.Errorf("handle %d: %v, want %v", i, errs[i], want[i])
			}
		}
		if c.calls("batch n1") != 1 || c.calls("batch n4") != 0 {
			t.Errorf("%d requests to n1, %d to the dead n4", c.calls("batch n1"), c.calls("batch n4"))
		}
		c.reset()
		if errs, _ := c.nodes[1].router.SettleMany(t.Context(), "t", []model.Handle{ds[6].Handle}, model.Ack); errs[0] != nil || c.calls("ack n3") != 1 {
			t.Errorf("a group of one: %v, %d acks", errs[0], c.calls("ack n3"))
		}
	})
}

// TestReleaseElsewhere: what a client never got is given back to its owner at once, and
// what cannot be, comes back when its lease is over.
func TestReleaseElsewhere(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		c.create("t", "n1")
		c.commit(1, "t", 0, "a")
		d := c.take(0, 1)[0]
		c.nodes[0].router.Release("t", d.Handle)
		pause(5 * time.Millisecond)
		if d = c.take(1, 1)[0]; d.Count != 2 {
			t.Fatalf("delivered %d times", d.Count)
		}
		c.fault("n0>n1", swallows)
		r := c.nodes[0].router
		for range givingMax + 1 { // the last has no slot
			r.Release("t", d.Handle)
		}
		if n := len(r.giving); n != givingMax {
			t.Fatalf("%d being given back", n)
		}
		c.mark("n1", model.MemberDead)
		r.Release("t", d.Handle)
		r.Release("u", d.Handle)
		pause(settleBudget)
		testutil.Eventually(t, 10*time.Second, func() bool { return len(r.giving) == 0 }, "the slots to be free")
		r.Close()
		c.mark("n1", model.MemberAlive)
		r.Release("t", d.Handle) // the router is gone
		if len(r.giving) != 0 {
			t.Fatal("a slot is lost")
		}
	})
}

// TestTG2_Describe: the numbers of other owners are merged; who does not answer in 2 s, is
// dead, unknown or missing is a placeholder.
func TestTG2_Describe(t *testing.T) {
	inCluster(t, 5, func(t *testing.T, c *cluster) {
		c.create("t", "n0", "n1", "n1", "n2", "n3", "n4", "stranger", "")
		for i, p := range []int{0, 1, 3, 4, 5} {
			c.commit(i, "t", p, "a", "b")
		}
		c.fault("n0>n2", swallows)
		c.fault("n0>n3", refuses)
		c.mark("n4", model.MemberDead)
		began := time.Now()
		d, err := c.nodes[0].router.Describe(t.Context(), "t", -1)
		if err != nil || !d.Partial || time.Since(began) != statsBudget {
			t.Fatalf("%+v %v after %s", d, err, time.Since(began))
		}
		for p, want := range []struct {
			owner, liveness string
			high            int64
		}{{"n0", "", 2}, {"n1", "", 2}, {"n1", "", 0}, {"n2", "unreachable", 0}, {"n3", "unreachable", 0}, {"n4", "dead", 0}, {"stranger", "unknown", 0}, {"", "unassigned", 0}} {
			s := d.Stats[p]
			if s.Index != p || s.OwnerNode != want.owner || s.OwnerLiveness != want.liveness || s.HighWatermark != want.high || (s.Status == statusOK) != (want.liveness == "") {
				t.Errorf("partition %d: %+v", p, s)
			}
			if s.Status != statusOK && s != (model.PartitionStats{Index: p, OwnerNode: want.owner, Status: statusUnavailable, OwnerLiveness: want.liveness}) {
				t.Errorf("placeholder of partition %d has numbers: %+v", p, s)
			}
		}
		c.reset()
		d, err = c.nodes[0].router.Describe(t.Context(), "t", 2)
		if err != nil || d.Partial || len(d.Stats) != 1 || d.Stats[0].Index != 2 || c.calls("stats") != 1 {
			t.Fatalf("one partition: %+v %v", d, err)
		}
		c.nodes[0].replica.behind.Store(true)
		if _, err := c.nodes[0].router.Describe(t.Context(), "t", -1); !errors.Is(err, model.ErrUnavailable) {
			t.Fatalf("TG-6: %v", err)
		}
		if _, err := c.nodes[1].router.Here().PartitionStats(t.Context(), "t", 0); !errors.Is(err, model.ErrNotOwner) {
			t.Fatalf("stats of another's partition: %v", err)
		}
	})
}

// leaver is a node whose answer to a consume comes in the instant in which the client
// leaves.
type leaver struct {
	*client
	leave context.CancelFunc
}

func (l *leaver) Consume(ctx context.Context, addr string, r peer.ConsumeRequest) ([]model.Delivery, error) {
	got, err := l.client.Consume(ctx, addr, r)
	l.leave()
	return got, err
}

// TestC21_LeavesAsTheAnswerComes: what was probed for a client that left meanwhile is given
// back at once.
func TestC21_LeavesAsTheAnswerComes(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		c.create("t", "n1")
		c.commit(1, "t", 0, "a")
		m := c.nodes[0]
		ctx, leave := context.WithCancel(t.Context())
		o := m.router.Options
		o.Peers = &leaver{&client{wire: c.wire, from: m}, leave}
		r := New(o)
		defer r.Close()
		if got, err := r.Consume(ctx, broker.ConsumeRequest{Topic: "t", Partition: -1, Max: 1, Wait: time.Minute}); !errors.Is(err, context.Canceled) || got != nil {
			t.Fatalf("%v %v", got, err)
		}
		pause(5 * time.Millisecond)
		one(t, c.any(1, 0), "a", 0)
	})
}
