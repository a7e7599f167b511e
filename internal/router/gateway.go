package router

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/telemetry"
)

// shunTime is how long consumes pass by an owner that stalled or failed.
const shunTime = time.Second

// askWarnEvery limits the lines about an owner that fails consumes.
const askWarnEvery = time.Minute

// gateway is the rest of the cluster for this node's queue consumers: broker.Elsewhere. It
// probes and claims on their behalf, and keeps tokens with the owners of the topics they
// are parked on (see tokens.go).
type gateway struct {
	node  string
	table *Table
	peers Peers
	local Wakes
	give  func(topic string, h model.Handle)
	clock clock.Clock
	log   *slog.Logger
	warn  *telemetry.Limiter
	crew  *crew

	next    atomic.Uint32 // where the next round of probes starts
	shunned sync.Map      // owner id -> time.Time until which probes pass it by

	registry
}

func newGateway(r *Router) *gateway {
	return &gateway{
		node: r.Node, table: r.Table, peers: r.Peers, local: r.Local, give: r.Release,
		clock: r.Clock, log: r.Logger, warn: telemetry.NewLimiter(r.Clock, askWarnEvery), crew: &r.crew,
		registry: newRegistry(),
	}
}

// Probe asks the other owners of a topic one after the other, starting at another one each
// time; the first that has something answers for all.
func (g *gateway) Probe(ctx context.Context, topic string, limit int) []model.Delivery {
	view, err := g.table.topic(topic)
	if err != nil {
		return nil
	}
	others := g.table.route(view).others
	if len(others) == 0 {
		return nil
	}
	start := int(g.next.Add(1) % uint32(len(others)))
	for i := range others {
		o := others[(start+i)%len(others)]
		if !o.Alive || g.shuns(o) {
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if got := g.ask(ctx, o, peer.ConsumeRequest{Topic: topic, Partition: -1, Max: limit}); len(got) > 0 {
			return got
		}
	}
	return nil
}

// Claim asks the owner that announced a record. What it yields shows that there is more to
// wait for: the token it cost is renewed at once while others are parked.
func (g *gateway) Claim(ctx context.Context, topic, owner string, limit int) []model.Delivery {
	o := g.table.member(owner)
	if o.Addr == "" {
		return nil
	}
	got := g.ask(ctx, o, peer.ConsumeRequest{Topic: topic, Partition: -1, Max: limit, Claim: true})
	if len(got) > 0 {
		g.renew(topic)
	}
	return got
}

// ask sends one consume that does not wait. An owner that gives no answer, or fails, is
// passed by for a while. Records for a client that left meanwhile are given back.
func (g *gateway) ask(ctx context.Context, o Target, r peer.ConsumeRequest) []model.Delivery {
	limit, cancel := context.WithTimeout(ctx, probeBudget)
	defer cancel()
	got, err := g.peers.Consume(limit, o.Addr, r)
	if ctx.Err() != nil {
		for i := range got {
			g.give(r.Topic, got[i].Handle)
		}
		return nil
	}
	if err != nil {
		if !refused(err) {
			g.shunned.Store(o.ID, g.clock.Now().Add(shunTime))
		}
		g.warn.Warn(g.log, o.ID, "owner did not serve a consume", "owner", o.ID, "topic", r.Topic, "err", err)
		return nil
	}
	return got
}

func (g *gateway) shuns(o Target) bool {
	until, ok := g.shunned.Load(o.ID)
	if !ok {
		return false
	}
	if g.clock.Now().Before(until.(time.Time)) {
		return true
	}
	g.shunned.CompareAndDelete(o.ID, until)
	return false
}
