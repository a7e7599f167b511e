package ingress

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// chaos is one random life of a node: producers, four topics, three members that
// fail, hang, die and come back, topics deleted and recreated, a leader that is
// away at times, restarts. Seqs are the order of acceptance, so the checkpoint can
// be held against what the members really stored.
type chaos struct {
	t       *testing.T
	r       *rand.Rand
	w       *world
	sim     *disk.Sim
	in      *Ingress
	records []accepted // by seq-1
	lives   int
}

type accepted struct {
	payload string
	id      identity
}

func (c *chaos) step() {
	r := c.r
	switch n := r.IntN(100); {
	case n < 50:
		c.produce(1 + r.IntN(5))
	case n < 55:
		c.produce(500)
	case n < 70:
		member := c.w.node(fmt.Sprint("n", r.IntN(3)))
		mode := r.IntN(6)
		member.set(func(n *node) { c.mode(n, mode) })
	case n < 75:
		c.w.setUnowned(fmt.Sprint("t", r.IntN(4)), r.IntN(3), r.IntN(3) == 0)
	case n < 80:
		c.w.own(fmt.Sprint("t", r.IntN(4)), r.IntN(3), fmt.Sprint("n", r.IntN(3)))
	case n < 84:
		c.w.setLeader(r.IntN(3) > 0)
	case n < 88:
		name := fmt.Sprint("t", r.IntN(4))
		c.w.remove(name)
		if r.IntN(2) == 0 {
			c.create(name)
		}
	case n < 90:
		c.restart()
	default:
		after(time.Duration(r.IntN(4000)) * time.Millisecond)
	}
	synctest.Wait() // nobody is between a check and its commit while the world changes
	c.check()
}

// mode makes a member fail, hang, die, be slow, refuse, or work.
func (c *chaos) mode(n *node, mode int) {
	n.alive, n.block, n.refuse = true, nil, nil
	switch mode {
	case 0:
		n.refuse = refuseAll
	case 1:
		n.block = func(ctx context.Context, _ string, _ int) { <-ctx.Done() }
	case 2:
		n.alive, n.refuse = false, refuseAll
	case 3:
		n.block = func(context.Context, string, int) { <-time.After(1500 * time.Millisecond) } // the bubble's clock
	case 4:
		n.refuse = func(string, int, []model.Record) error { return model.ErrNotOwner }
	}
}

func (c *chaos) create(name string) {
	c.lives++
	c.w.create(name, model.Incarnation(fmt.Sprintf("%016x", c.lives)), 3)
}

func (c *chaos) produce(n int) {
	name := fmt.Sprint("t", c.r.IntN(4))
	v, ok := c.w.Topic(name)
	if !ok {
		return
	}
	ms := make([]Message, n)
	for i := range ms {
		payload := fmt.Sprintf("%s/%s/%d", name, v.ID, len(c.records))
		c.records = append(c.records, accepted{payload, identity{name, v.ID}})
		ms[i] = Message{Payload: []byte(payload), Partition: c.r.IntN(3)}
	}
	if err := c.in.AcceptMany(bg, name, ms); err != nil {
		c.t.Fatal(err)
	}
}

func (c *chaos) restart() {
	mustClose(c.t, c.in)
	c.sim = c.sim.Crash(c.r.Int64())
	c.in = mustOpen(c.t, smallSegmentsOf(c.w.options(c.sim, clock.Real()), 4096))
}

func smallSegmentsOf(o Options, n int64) Options {
	o.SegmentBytes = n
	return o
}

// live reports whether the record's topic is still the one it was accepted for.
func (c *chaos) live(a accepted) bool {
	v, ok := c.w.Topic(a.id.topic)
	return ok && v.ID == a.id.id
}

// check is P4: nothing below the checkpoint is undone.
func (c *chaos) check() {
	all := c.w.all()
	for i := range c.in.log.Checkpoint() - 1 {
		if a := c.records[i]; all[a.payload] == 0 && c.live(a) {
			c.t.Fatalf("P4: checkpoint %d passed seq %d (%s), which is stored nowhere", c.in.log.Checkpoint(), i+1, a.payload)
		}
	}
}

// heal ends every fault and lets the node drain; then O1, O2 and O8 must hold.
func (c *chaos) heal() {
	c.w.setLeader(true)
	for i := range 3 {
		c.w.node(fmt.Sprint("n", i)).set(func(n *node) { c.mode(n, 5) })
	}
	for i := range 4 {
		for p := range 3 {
			c.w.setUnowned(fmt.Sprint("t", i), p, false)
		}
	}
	after(commitBudget + 10*time.Second)
	if c.in.Backlog() != 0 {
		c.t.Errorf("O8: backlog %d of %d after everything healed", c.in.Backlog(), len(c.records))
	}
	all := c.w.all()
	known := map[string]bool{}
	for _, a := range c.records {
		known[a.payload] = true
		if c.live(a) && all[a.payload] == 0 {
			c.t.Errorf("O1: %s is lost", a.payload)
		}
	}
	for p := range all {
		if !known[p] {
			c.t.Errorf("O2: %q was never produced", p)
		}
	}
}

func TestP4P5P6RandomLives(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				c := &chaos{t: t, r: rand.New(rand.NewPCG(seed, 1)), w: w, sim: disk.NewSim(int64(seed))}
				for i := range 3 {
					w.node(fmt.Sprint("n", i))
				}
				for i := range 4 {
					c.create(fmt.Sprint("t", i))
				}
				c.in = mustOpen(t, smallSegmentsOf(w.options(c.sim, clock.Real()), 4096))
				defer func() { mustClose(t, c.in) }()
				for range 150 {
					c.step()
				}
				c.heal()
			})
		})
	}
}
