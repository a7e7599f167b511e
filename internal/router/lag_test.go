package router

import (
	"errors"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

// TestOwnerHearsLater: an owner that has not heard of a topic, or of a partition added to
// it, is asked again until it has; its ignorance is nobody's answer (RT-3).
func TestOwnerHearsLater(t *testing.T) {
	ways := map[string]func(t *testing.T, r *Router) error{
		"consume": func(t *testing.T, r *Router) error {
			_, err := r.Consume(t.Context(), broker.ConsumeRequest{Topic: "t", Partition: 1, Max: 1})
			return err
		},
		"replay": func(t *testing.T, r *Router) error {
			_, _, err := r.Read(t.Context(), "t", 1, 0)
			return err
		},
		"ack": func(t *testing.T, r *Router) error {
			if err := r.Settle(t.Context(), "t", model.Handle{Partition: 1, Nonce: 1}, model.Ack); !errors.Is(err, model.ErrNoLease) {
				return errors.Join(errors.New("want no lease"), err)
			}
			return nil
		},
		"batch ack": func(t *testing.T, r *Router) error {
			h := model.Handle{Partition: 1, Nonce: 1}
			errs, err := r.SettleMany(t.Context(), "t", []model.Handle{h, h}, model.Ack)
			if err != nil || !errors.Is(errs[0], model.ErrNoLease) || !errors.Is(errs[1], model.ErrNoLease) {
				return errors.Join(append(errs, err, errors.New("want no lease"))...)
			}
			return nil
		},
		"description": func(t *testing.T, r *Router) error {
			if d, err := r.Describe(t.Context(), "t", 1); err != nil || d.Partial {
				return errors.Join(errors.New("want all of it"), err)
			}
			return nil
		},
	}
	for name, ask := range ways {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 2, func(t *testing.T, c *cluster) {
				c.create("t", "n0")
				small, _ := c.all.Topic("t")
				c.create("t", "n0", "n1")
				for _, older := range []*model.TopicView{nil, small} {
					late := &c.nodes[1].replica.older
					if late.Store("t", older); older != nil && name != "consume" && name != "replay" {
						break // of a partition that it does not know it says that it has no lease, and is not its own
					}
					time.AfterFunc(time.Second, func() { late.Delete("t") })
					began := time.Now()
					if err := ask(t, c.nodes[0].router); err != nil || time.Since(began) < time.Second || time.Since(began) > time.Second+2*lagPause {
						t.Fatalf("owner shows %v: %v after %v", older, err, time.Since(began))
					}
				}
			})
		})
	}
}

// TestOwnerNeverHears: what exists is not denied.
func TestOwnerNeverHears(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		c.create("t", "n1")
		c.nodes[1].replica.older.Store("t", (*model.TopicView)(nil))
		began := time.Now()
		_, err := c.nodes[0].router.Consume(t.Context(), broker.ConsumeRequest{Topic: "t", Partition: 0, Max: 1, Wait: time.Minute})
		if took := time.Since(began); !errors.Is(err, model.ErrUnavailable) || errors.Is(err, model.ErrTopicNotFound) || took < lagMax || took > lagMax+2*lagPause {
			t.Fatalf("%v after %v", err, took)
		}
		if err := c.nodes[0].router.Settle(t.Context(), "t", model.Handle{Nonce: 1}, model.Ack); !errors.Is(err, model.ErrUnavailable) || errors.Is(err, model.ErrTopicNotFound) {
			t.Fatalf("ack: %v", err)
		}
		c.create("t") // deleted: then the owner was right
		if err := c.nodes[0].router.Settle(t.Context(), "t", model.Handle{Nonce: 1}, model.Ack); !errors.Is(err, model.ErrTopicNotFound) {
			t.Fatalf("ack to a deleted topic: %v", err)
		}
	})
}

// TestTokenOfATopicTheOwnerHearsOfLater: consumers come right after a create. A token whose
// owner does not show the topic yet counts as soon as it does, not at its renewal, and
// those that would be too many at once are dropped.
func TestTokenOfATopicTheOwnerHearsOfLater(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		c.create("t", "n1", "n1", "n1")
		late := &c.nodes[1].replica.older
		late.Store("t", (*model.TopicView)(nil))
		waiting := c.pollAny(0, 10*time.Second)
		pause(lagMax / 2)
		late.Delete("t")
		pause(2 * lagPause)
		c.commit(1, "t", 0, "a")
		began := time.Now()
		if got := <-waiting; got.err != nil || len(got.got) != 1 || time.Since(began) > 100*time.Millisecond {
			t.Fatalf("%+v after %v", got, time.Since(began))
		}
	})
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		here := c.nodes[1].router.Here()
		for range lateMax + 1 {
			here.RegisterTokens("n0", "n0:1", []peer.Token{{Topic: "never", TTL: time.Minute}})
		}
		if n := len(c.nodes[1].router.late); n != lateMax {
			t.Fatalf("%d registrations wait, want %d", n, lateMax)
		}
		pause(lagMax + 2*lagPause)
		if n := len(c.nodes[1].router.late); n != 0 {
			t.Fatalf("%d registrations still wait", n)
		}
	})
}
