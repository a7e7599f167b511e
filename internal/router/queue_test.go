package router

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/model"
)

// one checks that a consume answered one record, no later than most.
func one(t *testing.T, a answer, payload string, most time.Duration) {
	t.Helper()
	if a.err != nil || len(a.got) != 1 || string(a.got[0].Payload) != payload || a.took > most {
		t.Fatalf("%v, want [%s] within %s", a, payload, most)
	}
}

// TestRT2_HereThenProbesThenWait: no request leaves for a record that is here, one round
// trip finds one that is elsewhere, and a consumer that waits is served by word of the
// owner, without asking anybody again.
func TestRT2_HereThenProbesThenWait(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		c.create("t", "n0", "n1", "n2")
		c.commit(0, "t", 0, "here")
		one(t, c.any(0, time.Second), "here", 0)
		if n := c.calls("consume"); n != 0 {
			t.Fatalf("%d requests for a record that is here", n)
		}
		c.commit(2, "t", 2, "there")
		one(t, c.any(0, time.Second), "there", 4*time.Millisecond)
		if n := c.calls("consume"); n > 2 {
			t.Fatalf("%d probes of two owners", n)
		}
		if a := c.any(0, 0); a.err != nil || a.got != nil || a.took > 4*time.Millisecond {
			t.Fatalf("no wait: %v", a)
		}
		c.reset()
		for _, at := range []int{0, 1, 2} {
			ch := c.pollAny(0, 10*time.Second)
			pause(1500 * time.Millisecond)
			c.commit(at, "t", at, "word")
			one(t, <-ch, "word", 1500*time.Millisecond+4*time.Millisecond)
		}
		if probes, claims := c.calls("consume"), c.calls("claim"); probes != 6 || claims != 2 {
			t.Fatalf("%d probes of two owners by three consumes, %d claims of two records", probes, claims)
		}
		if a := c.any(0, time.Second); a.err != nil || a.got != nil || a.took != time.Second {
			t.Fatalf("nothing comes: %v", a)
		}
	})
}

// TestC18_DeadAndSilentOwners: a dead owner is not asked; one that gives no answer costs
// 500 ms, once, and is then passed by for a second.
func TestC18_DeadAndSilentOwners(t *testing.T) {
	inCluster(t, 4, func(t *testing.T, c *cluster) {
		c.create("t", "n1", "n2", "n3")
		c.mark("n1", model.MemberDead)
		c.commit(3, "t", 2, "a", "b", "c", "d")
		for _, p := range []string{"a", "b"} {
			one(t, c.any(0, 0), p, 4*time.Millisecond)
		}
		if n := c.calls("consume n1"); n != 0 {
			t.Fatalf("a dead owner got %d requests", n)
		}
		c.fault("n0>n2", swallows)
		// The round that starts at n2 waits for it; the next one does not.
		for _, p := range []string{"c", "d"} {
			one(t, c.any(0, 0), p, probeBudget+2*time.Millisecond)
		}
		if n := c.calls("consume n2"); n > 3 {
			t.Fatalf("a silent owner got %d requests", n)
		}
		c.any(0, 0) // finds out, if none of the last two did
		c.reset()
		if a := c.any(0, 0); a.took > 4*time.Millisecond || c.calls("consume n2") != 0 {
			t.Fatalf("the silent owner is asked again at once: %v", a)
		}
		c.fault("n0>n2", 0)
		pause(shunTime)
		c.any(0, 0)
		if c.calls("consume n2") != 1 {
			t.Fatal("the owner is passed by for good")
		}
	})
}

// TestC19_HeldWithoutAnOwner: no owner that lives holds a consume for its wait; one that
// comes back, or partitions that come here, serve it within a look at the routes.
func TestC19_HeldWithoutAnOwner(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		c.create("t", "n1")
		c.commit(1, "t", 0, "a", "b")
		c.mark("n1", model.MemberDead)
		if a := c.any(0, 2*time.Second); a.err != nil || a.got != nil || a.took != 2*time.Second {
			t.Fatalf("all owners dead: %v", a)
		}
		if n := c.calls("consume"); n != 0 {
			t.Fatalf("%d requests to the dead", n)
		}
		ch := c.pollAny(0, 10*time.Second)
		pause(time.Second)
		c.mark("n1", model.MemberAlive)
		one(t, <-ch, "a", time.Second+routePoll+2*time.Millisecond)
		c.mark("n1", model.MemberDead)
		ch = c.pollAny(0, 10*time.Second)
		pause(time.Second)
		c.create("t", "n0")
		pause(2 * routePoll)
		c.commit(0, "t", 0, "here")
		one(t, <-ch, "here", time.Second+2*routePoll)
		c.create("u", "")
		ch = c.poll(t.Context(), 0, broker.ConsumeRequest{Topic: "u", Partition: -1, Wait: time.Minute})
		pause(time.Second)
		c.nodes[0].router.ReleaseWaiters()
		if a := <-ch; a.err != nil || a.got != nil || a.took != time.Second {
			t.Fatalf("released: %v", a)
		}
	})
}

// TestC13_C14_C15_C25_Pinned: a pinned consume at another node.
func TestC13_C14_C15_C25_Pinned(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		c.create("t", "n1", "n0")
		pinned := broker.ConsumeRequest{Topic: "t", Partition: 0, Max: 10, Wait: 5 * time.Second}
		ch := c.poll(t.Context(), 0, pinned)
		pause(time.Second)
		c.commit(1, "t", 0, "a")
		one(t, <-ch, "a", time.Second+2*time.Millisecond)
		if a := c.consume(t.Context(), 0, pinned); a.err != nil || a.got != nil || a.took != 5*time.Second+2*time.Millisecond {
			t.Fatalf("nothing comes: %v", a)
		}
		c.fault("n0>n1", swallows)
		if a := c.consume(t.Context(), 0, pinned); !errors.Is(a.err, model.ErrOwnerUnreachable) || a.took != 7*time.Second {
			t.Fatalf("C-14, C-25: %v", a)
		}
		c.fault("n0>n1", refuses)
		if a := c.consume(t.Context(), 0, pinned); !errors.Is(a.err, model.ErrOwnerUnreachable) {
			t.Fatalf("C-14: %v", a)
		}
		c.fault("n0>n1", 0)
		c.nodes[1].replica.behind.Store(true)
		if a := c.consume(t.Context(), 0, pinned); !errors.Is(a.err, model.ErrUnavailable) {
			t.Fatalf("the owner has not caught up: %v", a)
		}
		c.nodes[0].replica.behind.Store(true)
		if a := c.consume(t.Context(), 0, pinned); !errors.Is(a.err, model.ErrUnavailable) {
			t.Fatalf("RT-7: %v", a)
		}
		c.nodes[0].replica.behind.Store(false)
		c.nodes[1].replica.behind.Store(false)
		c.mark("n1", model.MemberDead)
		c.reset()
		if a := c.consume(t.Context(), 0, pinned); !errors.Is(a.err, model.ErrOwnerDown) || a.took != 0 || c.calls("consume") != 0 {
			t.Fatalf("C-13: %v", a)
		}
	})
}

// TestPinnedMovesAndEnds: what ends a forwarded long poll early.
func TestPinnedMovesAndEnds(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		c.create("t", "n1")
		pinned := broker.ConsumeRequest{Topic: "t", Partition: 0, Max: 1, Wait: 5 * time.Second}
		ctx, leave := context.WithCancel(t.Context())
		ch := c.poll(ctx, 0, pinned)
		pause(time.Second)
		leave()
		if a := <-ch; !errors.Is(a.err, context.Canceled) || a.took != time.Second {
			t.Fatalf("the client left: %v", a)
		}
		c.commit(1, "t", 0, "a") // to nobody who is gone
		one(t, c.any(1, 0), "a", 0)
		ch = c.poll(t.Context(), 0, pinned)
		pause(time.Second)
		c.create("t") // deleted
		if a := <-ch; !errors.Is(a.err, model.ErrTopicNotFound) || a.took > time.Second+2*time.Millisecond {
			t.Fatalf("C-20: %v", a)
		}
		c.create("t", "n1")
		ch = c.poll(t.Context(), 0, pinned)
		pause(time.Second)
		c.nodes[0].router.ReleaseWaiters()
		if a := <-ch; a.err != nil || a.got != nil || a.took != time.Second {
			t.Fatalf("this node stops: %v", a)
		}
	})
}

// TestR7_Replay: served by the owner, and refused like a pinned consume.
func TestR7_Replay(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		c.create("t", "n1", "")
		c.commit(1, "t", 0, "a")
		r := c.nodes[0].router
		if m, ok, err := r.Read(t.Context(), "t", 0, 0); err != nil || !ok || string(m.Payload) != "a" {
			t.Fatalf("%q %v %v", m.Payload, ok, err)
		}
		if _, ok, err := r.Read(t.Context(), "t", 0, 1); err != nil || ok {
			t.Fatalf("past the end: %v %v", ok, err)
		}
		refused := func(p int, want error, most time.Duration) {
			t.Helper()
			began := time.Now()
			if _, _, err := r.Read(t.Context(), "t", p, 0); !errors.Is(err, want) || time.Since(began) > most {
				t.Fatalf("%v after %s, want %v", err, time.Since(began), want)
			}
		}
		refused(1, model.ErrNotOwner, 0)
		c.fault("n0>n1", swallows)
		refused(0, model.ErrOwnerUnreachable, readBudget)
		c.mark("n1", model.MemberDead)
		refused(0, model.ErrOwnerDown, 0)
	})
}

// TestCB6_BatchComesFromOneOwner, in the order of its partition.
func TestCB6_BatchComesFromOneOwner(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		c.create("t", "n1", "n2")
		c.commit(1, "t", 0, "a0", "a1", "a2")
		c.commit(2, "t", 1, "b0", "b1", "b2")
		for range 2 {
			a := c.consume(t.Context(), 0, broker.ConsumeRequest{Topic: "t", Partition: -1, Max: 10})
			if a.err != nil || len(a.got) != 3 {
				t.Fatal(a)
			}
			for i, d := range a.got {
				if d.Partition != a.got[0].Partition || d.Offset != int64(i) {
					t.Fatalf("record %d is %d/%d", i, d.Partition, d.Offset)
				}
			}
		}
	})
}
