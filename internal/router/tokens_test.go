package router

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/model"
)

// trips is what word of a record and its claim take on the wire of a test.
const trips = 4 * time.Millisecond

// TestWaitingCostsNothing: what 600 consumers parked on four nodes cost in a minute is what
// four would: a registration per node and owner every 5 s, two looks a second by each
// keeper, and where a node owns nothing of the topic, one round of probes every 2 s.
func TestWaitingCostsNothing(t *testing.T) {
	for _, owners := range [][]string{{"n0", "n1", "n2", "n3"}, {"n0", "n1", "n2"}} {
		inCluster(t, 4, func(t *testing.T, c *cluster) {
			c.create("t", owners...)
			ctx, leave := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for i := range 600 {
				wg.Go(func() {
					c.consume(ctx, i%4, broker.ConsumeRequest{Topic: "t", Partition: -1, Wait: time.Hour})
				})
			}
			pause(time.Second)
			synctest.Wait()
			c.reset()
			c.wire.timers.Store(0)
			pause(time.Minute)
			links := 0 // from a node to an owner
			for n := range 4 {
				for _, o := range owners {
					if o != c.nodes[n].id {
						links++
					}
				}
			}
			if n, most := c.calls("tokens"), links*12; n > most || n < most/2 {
				t.Errorf("%d registrations, want %d at most", n, most)
			}
			probes := 0
			if len(owners) == 3 {
				probes = 30 * 3
			}
			if n := c.calls("consume"); n > probes+3 || n < probes-3 {
				t.Errorf("%d probes, want %d", n, probes)
			}
			// Keepers twice a second, and a consumer that comes back from a round.
			if n := int(c.wire.timers.Load()); n > 4*2*60+probes+40 {
				t.Errorf("%d wakeups in a minute", n)
			}
			leave()
			wg.Wait()
			pause(2 * time.Second)
			c.reset()
			c.wire.timers.Store(0)
			pause(time.Minute)
			if n := c.wire.timers.Load(); n > 40 || c.calls("tokens") > 0 { // brokers look after their logs
				t.Errorf("%d wakeups, %d registrations in a minute with nobody parked", n, c.calls("tokens"))
			}
		})
	}
}

// TestNeverAnnouncedTwice: a record goes to one of the nodes that wait for it.
func TestNeverAnnouncedTwice(t *testing.T) {
	inCluster(t, 4, func(t *testing.T, c *cluster) {
		c.create("t", "n3")
		out := make(chan answer, 30)
		for i := range 30 {
			go func() { out <- c.any(i%3, time.Minute) }()
		}
		pause(time.Second)
		c.reset()
		for i := range 12 {
			c.commit(3, "t", 0, fmt.Sprint(i))
			pause(600 * time.Millisecond) // the keepers have renewed what was spent
			if told, claims, got := c.calls("notify"), c.calls("claim"), len(out); told != i+1 || claims != i+1 || got != i+1 {
				t.Fatalf("%d records, %d announcements, %d claims, %d consumers served", i+1, told, claims, got)
			}
		}
		c.nodes[3].broker.ReleaseWaiters()
		for _, m := range c.nodes {
			m.broker.ReleaseWaiters()
		}
	})
}

// TestBurstReachesEveryParkedConsumer: a served consumer leaves word for the next, so that
// a burst does not wait for a keeper per record.
func TestBurstReachesEveryParkedConsumer(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		c.create("t", "n2")
		out := make(chan answer, 40)
		for i := range 40 {
			go func() { out <- c.any(i%2, time.Minute) }()
		}
		pause(time.Second)
		var all []string
		for i := range 40 {
			all = append(all, fmt.Sprint(i))
		}
		began := time.Now()
		c.commit(2, "t", 0, all...)
		for range 40 {
			if a := <-out; len(a.got) != 1 {
				t.Fatal(a)
			}
		}
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("40 records took %s", took)
		}
	})
}

// TestC13_LostTokensAndWords: an owner that restarted has no tokens, and word can be lost:
// the keeper, and where a node owns nothing the safety probe, bound what that costs.
func TestC13_LostTokensAndWords(t *testing.T) {
	lose := map[string]func(c *cluster){
		"owner restarts": func(c *cluster) {
			c.stop(c.nodes[1])
			c.start(c.nodes[1])
		},
		"word":          func(c *cluster) { c.fault("n1>n0 notify", swallows); c.fault("n1>n2 notify", swallows) },
		"registrations": func(c *cluster) { c.fault("n0>n1 tokens", swallows); c.fault("n2>n1 tokens", swallows) },
	}
	for what, f := range lose {
		for node, most := range map[int]time.Duration{0: renewAfter + keeperEvery, 2: safetyEvery} {
			inCluster(t, 3, func(t *testing.T, c *cluster) {
				c.create("t", "n0", "n1")
				ch := c.pollAny(node, time.Minute)
				pause(1100 * time.Millisecond)
				f(c)
				began := time.Now()
				c.commit(1, "t", 1, "a")
				pause(time.Second)
				for _, n := range []string{"n0", "n2"} {
					c.fault("n1>"+n+" notify", 0)
					c.fault(n+">n1 tokens", 0)
				}
				if a := <-ch; len(a.got) != 1 || time.Since(began) > most+time.Second+trips {
					t.Errorf("%s lost, at n%d: %v, %s after the commit", what, node, a, time.Since(began))
				}
			})
		}
	}
}

// TestFirstRegistrationFails: it is sent again at the keeper's next round, not after 5 s.
func TestFirstRegistrationFails(t *testing.T) {
	for _, how := range []fault{swallows, refuses, forgets} {
		inCluster(t, 2, func(t *testing.T, c *cluster) {
			c.create("t", "n0", "n1")
			c.fault("n0>n1 tokens", how)
			ch := c.pollAny(0, time.Minute)
			pause(100 * time.Millisecond)
			c.fault("n0>n1 tokens", 0)
			c.commit(1, "t", 1, "a")
			one(t, <-ch, "a", probeBudget+keeperEvery+2*trips)
		})
	}
}

// TestRegistrationsDoNotQueue: an owner that is slow to answer a registration does not hold
// up the next, up to a bound; past it the keeper goes on when one ends.
func TestRegistrationsDoNotQueue(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		c.create("t", "n0", "n1")
		c.fault("n0>n1 tokens", forgets)
		for i := range sendingMax + 1 {
			most := trips
			if i == sendingMax {
				most = probeBudget
			}
			ch := c.pollAny(0, time.Minute)
			pause(10 * time.Millisecond)
			c.commit(1, "t", 1, "a")
			one(t, <-ch, "a", 10*time.Millisecond+most)
			if n := c.calls("tokens"); n > i+1 || n > sendingMax+1 {
				t.Fatalf("%d registrations for %d consumers", n, i+1)
			}
		}
	})
}

// TestRegistrationsAreShared: consumers that come and go do not each send a registration.
func TestRegistrationsAreShared(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		c.create("t", "n0", "n1")
		for range 200 {
			go c.any(0, 5*time.Second)
			pause(25 * time.Millisecond)
		}
		if n := c.calls("tokens"); n < 10 || n > 5000/250+2 {
			t.Errorf("%d registrations in 5 s", n)
		}
		pause(5 * time.Second)
	})
}

// TestRegistrationFrames: tokens of many topics go in few requests, in frames of at most
// 1,024.
func TestRegistrationFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, simulated)
		defer c.close()
		const topics = tokenFrameMax + 10
		var served atomic.Int64
		for i := range topics {
			c.create(fmt.Sprint("t", i), "n1")
		}
		for i := range topics {
			go func() {
				if a := c.consume(t.Context(), 0, broker.ConsumeRequest{Topic: fmt.Sprint("t", i), Partition: -1, Wait: 9 * time.Second}); len(a.got) > 0 {
					served.Add(1)
				}
			}()
		}
		pause(time.Second)
		c.stop(c.nodes[1]) // the tokens go with it
		c.start(c.nodes[1])
		c.reset()
		pause(6200 * time.Millisecond)
		if n := c.calls("tokens"); n < 2 || n > 8 {
			t.Errorf("%d requests to renew %d tokens", n, topics)
		}
		for i := range topics {
			c.commit(1, fmt.Sprint("t", i), 0, "a")
		}
		pause(500 * time.Millisecond) // the safety probes are at 6 s and 8 s
		if n := served.Load(); n != topics {
			t.Errorf("word of %d of %d topics", n, topics)
		}
		pause(2 * time.Second)
	})
}

// TestFallbackPolling: an owner that does not know tokens, and a node that cannot be told,
// make consumers ask; at first after 100 ms, then less and less often, and tokens are
// tried again after two minutes.
func TestFallbackPolling(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		c.create("t", "n0", "n1")
		c.fault("n0>n1", tokenless)
		ch := c.pollAny(0, 3*time.Minute)
		served := func(payload string, most time.Duration) {
			t.Helper()
			a := <-ch
			one(t, a, payload, most+trips)
			if err := c.nodes[0].router.Settle(t.Context(), "t", a.got[0].Handle, model.Ack); err != nil {
				t.Fatal(err)
			}
		}
		pause(time.Minute)
		if n := c.calls("tokens n1"); n != 1 {
			t.Errorf("%d registrations at an owner that refuses them", n)
		}
		if n := c.calls("consume n1"); n < 58 || n > 68 {
			t.Errorf("%d probes in a minute of at most a second's pause", n)
		}
		c.commit(1, "t", 1, "a")
		served("a", time.Minute+fallbackMax)
		ch = c.pollAny(0, 3*time.Minute)
		began := time.Now()
		pause(50 * time.Millisecond)
		c.commit(1, "t", 1, "b")
		served("b", fallbackMin)
		c.fault("n0>n1", 0)
		pause(refusedFor - time.Since(began))
		c.reset()
		ch = c.pollAny(0, time.Minute)
		pause(time.Second)
		if c.calls("tokens n1") == 0 {
			t.Error("tokens are not tried again")
		}
		c.commit(1, "t", 1, "c")
		served("c", time.Second)

		c.edit("n0", func(m *model.Member) { m.Addr = "" })
		c.reset()
		ch = c.pollAny(0, time.Minute)
		pause(10 * time.Second)
		c.commit(1, "t", 1, "d")
		served("d", 10*time.Second+fallbackMax)
		if c.calls("tokens") != 0 {
			t.Error("registered without an address to be told at")
		}
	})
}

// TestParkedThroughChanges: what befalls a topic while a consumer of a node that owns
// nothing of it is parked.
func TestParkedThroughChanges(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		c.create("t", "n1", "n1")
		ch := c.pollAny(0, time.Minute)
		pause(time.Second)
		c.create("t", "n1", "n2")
		pause(keeperEvery + trips)
		c.commit(2, "t", 1, "moved on")
		one(t, <-ch, "moved on", time.Second+keeperEvery+2*trips)
		ch = c.pollAny(0, time.Minute)
		pause(time.Second)
		c.create("t", "n0", "n2")
		c.commit(0, "t", 0, "moved here")
		one(t, <-ch, "moved here", time.Second)
		ch = c.pollAny(0, time.Minute)
		pause(time.Second)
		c.mark("n2", model.MemberDead)
		pause(time.Second)
		c.mark("n2", model.MemberAlive)
		c.commit(2, "t", 1, "back again")
		one(t, <-ch, "back again", 2*time.Second+keeperEvery+trips)
		ch = c.pollAny(1, time.Minute)
		pause(time.Second)
		c.create("t")
		if a := <-ch; !errors.Is(a.err, model.ErrTopicNotFound) || a.took != time.Second {
			t.Fatalf("C-20: %v", a)
		}
		c.create("t", "n2")
		ch = c.pollAny(1, time.Minute)
		pause(time.Second)
		c.nodes[1].broker.ReleaseWaiters()
		if a := <-ch; a.err != nil || a.got != nil || a.took != time.Second {
			t.Fatalf("this node stops: %v", a)
		}
	})
}

// TestClaimsThatFail: word that finds nobody, a claim that is lost, a client that leaves
// during its claim. The record is there for the next, never later than the end of a hold.
func TestClaimsThatFail(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		c.create("t", "n2")
		ctx, leave := context.WithCancel(t.Context())
		gone := c.poll(ctx, 0, broker.ConsumeRequest{Topic: "t", Partition: -1, Wait: time.Minute})
		pause(100 * time.Millisecond)
		leave()
		<-gone
		ch := c.pollAny(1, time.Minute)
		pause(time.Second)
		c.commit(2, "t", 0, "passed on") // n0's token was first
		one(t, <-ch, "passed on", time.Second+2*trips)
		if c.calls("notify n0") != 1 || c.calls("claim n2") != 1 {
			t.Fatalf("%d words to n0, %d claims", c.calls("notify n0"), c.calls("claim n2"))
		}

		c.fault("n0>n2 claim", swallows)
		lost := c.pollAny(0, time.Minute)
		pause(100 * time.Millisecond)
		ch = c.pollAny(1, time.Minute)
		pause(time.Second)
		c.commit(2, "t", 0, "held")
		one(t, <-ch, "held", time.Second+time.Second+2*trips)
		c.fault("n0>n2 claim", 0)

		c.fault("n0>n2 claim", forgets) // it is leased there, and n0 never hears of it
		c.commit(2, "t", 0, "given back")
		ch = c.pollAny(1, time.Minute)
		a := <-ch
		one(t, a, "given back", probeBudget+2*time.Second+2*trips)
		if a.got[0].Count > 2 {
			t.Fatalf("delivered %d times", a.got[0].Count)
		}
		c.fault("n0>n2 claim", 0)
		c.commit(2, "t", 0, "at last")
		one(t, <-lost, "at last", time.Minute)

		c.jitter(1, 50*time.Millisecond)
		for i := range 20 {
			ctx, leave := context.WithCancel(t.Context())
			ch := c.poll(ctx, 0, broker.ConsumeRequest{Topic: "t", Partition: -1, Wait: time.Minute})
			pause(time.Second)
			c.commit(2, "t", 0, fmt.Sprint(i))
			pause(time.Duration(i) * 5 * time.Millisecond)
			leave()
			if a := <-ch; a.err == nil {
				one(t, a, fmt.Sprint(i), time.Minute)
				continue
			}
			pause(200 * time.Millisecond)
			one(t, c.any(2, 0), fmt.Sprint(i), 0) // at once, not after its lease
		}
	})
}

// storm lets consumers and producers loose on a cluster and checks that every record
// reaches a consumer once, and soon: somebody always waits.
func storm(t *testing.T, seed uint64, faults bool, most time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4, simulated)
		defer c.close()
		rng := rand.New(rand.NewPCG(seed, 2))
		owners := [][]string{{"n0", "n1", "n2", "n3"}, {"n0", "n0"}, {"n1", "n2", "n3"}}[seed%3]
		c.create("t", owners...)
		c.jitter(seed, time.Duration(1+rng.Int64N(8))*time.Millisecond)
		const records = 60
		var born, worst sync.Map
		var seen atomic.Int64
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 12 {
			limit, wait := 1+int(seed+uint64(i))%3*4, time.Duration(1+rng.IntN(20))*time.Second
			wg.Go(func() {
				for ctx.Err() == nil {
					a := c.consume(ctx, i%4, broker.ConsumeRequest{Topic: "t", Partition: -1, Max: limit, Wait: wait})
					for _, d := range a.got {
						if at, ok := born.LoadAndDelete(string(d.Payload)); !ok {
							t.Errorf("seed %d: %q came twice", seed, d.Payload)
						} else if took := time.Since(at.(time.Time)); took > most {
							worst.Store(string(d.Payload), took)
						}
						for c.nodes[i%4].router.Settle(context.Background(), "t", d.Handle, model.Ack) != nil {
							if !faults {
								t.Errorf("seed %d: %q could not be acked", seed, d.Payload)
								break
							}
							pause(10 * time.Millisecond)
						}
						seen.Add(1)
					}
				}
			})
		}
		pause(time.Second)
		for i := range records {
			pause(time.Duration(rng.Int64N(int64(20*time.Millisecond) << rng.IntN(6))))
			p := rng.IntN(len(owners))
			name := fmt.Sprint(i)
			born.Store(name, time.Now())
			c.commit(int(owners[p][1]-'0'), "t", p, name)
			if faults {
				way := fmt.Sprintf("n%d>n%d %s", rng.IntN(4), rng.IntN(4), []string{"notify", "claim", "tokens", "consume"}[rng.IntN(4)])
				c.fault(way, fault(rng.IntN(4)))
			}
		}
		if faults {
			c.wire.mu.Lock()
			clear(c.wire.faults)
			c.wire.mu.Unlock()
		}
		pause(most)
		synctest.Wait()
		if n := seen.Load(); n != records {
			t.Errorf("seed %d: %d of %d records reached a consumer", seed, n, records)
		}
		for name, took := range worst.Range {
			t.Errorf("seed %d: record %s took %s", seed, name, took)
		}
		stop()
		wg.Wait()
	})
}

// TestC13_NoWordIsLost: without faults a record waits for a keeper's round at most.
func TestC13_NoWordIsLost(t *testing.T) {
	for seed := range uint64(30) {
		storm(t, seed, false, keeperEvery+100*time.Millisecond)
	}
}

// TestC13_FaultsDelayAndLoseNothing: with requests and answers between nodes getting lost
// at random, a record waits for a renewed token and the end of a few holds at most.
func TestC13_FaultsDelayAndLoseNothing(t *testing.T) {
	for seed := range uint64(20) {
		storm(t, seed, true, 3*renewAfter)
	}
}

// TestStormInRealTime: the same with the scheduler's own disorder.
func TestStormInRealTime(t *testing.T) {
	c := newCluster(t, 3, simulated)
	defer c.close()
	c.jitter(1, 200*time.Microsecond)
	c.create("t", "n0", "n1", "n2")
	const records = 600
	ctx, stop := context.WithCancel(t.Context())
	var born sync.Map
	var seen atomic.Int64
	var wg sync.WaitGroup
	for i := range 9 {
		wg.Go(func() {
			for ctx.Err() == nil {
				a := c.consume(ctx, i%3, broker.ConsumeRequest{Topic: "t", Partition: -1, Max: 1 + i%2*4, Wait: 5 * time.Second})
				for _, d := range a.got {
					if _, first := born.LoadAndDelete(string(d.Payload)); !first {
						t.Errorf("%q came twice", d.Payload)
					}
					if err := c.nodes[i%3].router.Settle(context.Background(), "t", d.Handle, model.Ack); err != nil {
						t.Errorf("%q could not be acked: %v", d.Payload, err)
					}
					if seen.Add(1) == records {
						stop()
					}
				}
			}
		})
	}
	for i := range records {
		born.Store(fmt.Sprint(i), true)
		c.commit(i%3, "t", i%3, fmt.Sprint(i))
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Errorf("%d of %d records reached a consumer", seen.Load(), records)
	}
	stop()
	<-done
}
