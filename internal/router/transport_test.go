package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/telemetry"
)

// realNode is a node that others reach over the real transport on loopback.
type realNode struct {
	server *noderpc.Server
	broker *broker.Broker
	router *Router
}

func startReal(t *testing.T, all *registryOfAll, id string, level model.ReleaseLevel) *realNode {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	log, clk := telemetry.Discard(), clock.Real()
	server, err := noderpc.Listen(noderpc.ServerOptions{Addr: "127.0.0.1:0", Clock: clk, Logger: log})
	must(err)
	main, err := noderpc.NewClient(noderpc.ClientOptions{Name: "main", Clock: clk, Logger: log})
	must(err)
	peers := peer.NewClient(peer.Options{Main: main, Transfer: main, Level: level, Self: id, Clock: clk, Logger: log})
	rep := &replica{registryOfAll: all}
	b, err := broker.Open(broker.Options{
		FS: disk.OS{}, DataDir: t.TempDir(), Node: id, Topics: rep, Clock: clk, Logger: log, Notifier: peers,
	})
	must(err)
	r := New(Options{Node: id, Directory: rep, Local: b, Stats: b, Peers: peers, Clock: clk, Logger: log})
	peer.ServeQueue(server, level, r.Here())
	peer.ServeTokens(server, level, r.Here())
	peer.ServeStats(server, level, r.Here(), b)
	server.Ready()
	t.Cleanup(func() {
		b.ReleaseWaiters()
		server.Close()
		r.Close()
		b.Close()
		main.Close()
	})
	all.mu.Lock()
	all.members = append(all.members, model.Member{ID: id, Addr: server.Addr(), Status: model.MemberAlive})
	all.mu.Unlock()
	return &realNode{server, b, r}
}

// TestOverTheRealTransport: every kind of request, between releases too.
func TestOverTheRealTransport(t *testing.T) {
	for _, level := range []model.ReleaseLevel{model.LevelNewest, model.Level30} {
		t.Run(fmt.Sprint("level ", level), func(t *testing.T) {
			all := &registryOfAll{views: map[string]*model.TopicView{}}
			n0 := startReal(t, all, "n0", model.LevelNewest)
			n1 := startReal(t, all, "n1", level)
			all.version[metastore.DomainMembers].Add(1)
			c := &cluster{t: t, all: all, nodes: []*member{{id: "n0", broker: n0.broker, router: n0.router}, {id: "n1", broker: n1.broker, router: n1.router}}}
			c.create("t", "n1", "n0")
			ctx := t.Context()
			ack := func(a answer) {
				t.Helper()
				if err := n0.router.Settle(ctx, "t", a.got[0].Handle, model.Ack); err != nil {
					t.Fatalf("ack: %v", err)
				}
				if err := n0.router.Settle(ctx, "t", a.got[0].Handle, model.Ack); !errors.Is(err, model.ErrNoLease) {
					t.Fatalf("second ack: %v", err)
				}
			}
			const most = 20 * time.Second // of a busy machine
			c.commit(1, "t", 0, "probed")
			a := c.any(0, time.Second)
			one(t, a, "probed", most)
			ack(a)
			words := 20
			if level == model.Level30 {
				words = 2 // whose holds end by their deadline
			}
			for i := range words {
				ch := c.pollAny(0, 10*time.Second)
				c.commit(1, "t", 0, fmt.Sprint(i))
				a = <-ch
				one(t, a, fmt.Sprint(i), 8*time.Second)
				ack(a)
			}
			pinned := c.poll(ctx, 0, broker.ConsumeRequest{Topic: "t", Partition: 0, Max: 1, Wait: 10 * time.Second})
			c.commit(1, "t", 0, "pinned")
			a = <-pinned
			one(t, a, "pinned", most)
			ack(a)
			if m, ok, err := n0.router.Read(ctx, "t", 0, 0); err != nil || !ok || string(m.Payload) != "probed" {
				t.Fatalf("replay: %q %v %v", m.Payload, ok, err)
			}
			c.commit(1, "t", 0, "x", "y")
			hs := []model.Handle{c.any(0, 0).got[0].Handle, c.any(0, 0).got[0].Handle}
			errs, err := n0.router.SettleMany(ctx, "t", append(hs, hs[0]), model.Ack)
			if err != nil || errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], model.ErrNoLease) {
				t.Fatalf("batch: %v %v", errs, err)
			}
			d, err := n0.router.Describe(ctx, "t", -1)
			if err != nil || d.Partial || d.Stats[0].HighWatermark != int64(words+4) {
				t.Fatalf("describe: %+v %v", d, err)
			}
			_, err = n0.router.Consume(ctx, broker.ConsumeRequest{Topic: "t", Partition: 7, Max: 1})
			if !errors.Is(err, model.ErrInvalid) {
				t.Fatalf("out of range: %v", err)
			}
			n1.server.Close()
			if err := n0.router.Settle(ctx, "t", hs[0], model.Ack); !errors.Is(err, model.ErrAckNotDelivered) && !errors.Is(err, model.ErrAckUnanswered) {
				t.Fatalf("a node that is gone: %v", err)
			}
			if a := c.any(0, 100*time.Millisecond); a.err != nil || a.got != nil {
				t.Fatalf("a node that is gone: %v", a)
			}
		})
	}
}

// TestDisconnectsOverTheRealTransport: consumers that leave at any moment of a claim or a
// forwarded long poll leave no record behind.
func TestDisconnectsOverTheRealTransport(t *testing.T) {
	all := &registryOfAll{views: map[string]*model.TopicView{}}
	n0, n1 := startReal(t, all, "n0", model.LevelNewest), startReal(t, all, "n1", model.LevelNewest)
	all.version[metastore.DomainMembers].Add(1)
	c := &cluster{t: t, all: all, nodes: []*member{{id: "n0", broker: n0.broker, router: n0.router}, {id: "n1", broker: n1.broker, router: n1.router}}}
	c.create("t", "n1")
	for i := range 60 {
		ctx, leave := context.WithCancel(t.Context())
		ch := c.poll(ctx, 0, broker.ConsumeRequest{Topic: "t", Partition: -(i % 2), Max: 1, Wait: 10 * time.Second})
		var wg sync.WaitGroup
		wg.Go(func() {
			pause(time.Duration(i) * 50 * time.Microsecond)
			leave()
		})
		c.commit(1, "t", 0, fmt.Sprint(i))
		a := <-ch
		wg.Wait()
		if a.err != nil {
			a = c.any(1, 5*time.Second)
		}
		one(t, a, fmt.Sprint(i), 5*time.Second)
		if err := n1.router.Settle(t.Context(), "t", a.got[0].Handle, model.Ack); err != nil {
			t.Fatal(err)
		}
	}
}
