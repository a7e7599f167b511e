package membership

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/telemetry"
	"github.com/narad-mq/narad/internal/testutil"
)

// quicNode is a node as the process puts it together: metastore, membership, and real
// node RPC between them.
type quicNode struct {
	server *noderpc.Server
	rpc    *noderpc.Client
	client *peer.Client
	store  *metastore.Store
	member *Membership
}

// quicForwarder carries heartbeats to the leader.
type quicForwarder struct{ n *quicNode }

func (f quicForwarder) Propose(ctx context.Context, _ string, c metastore.Command) (metastore.Result, error) {
	r := c.(metastore.RegisterMember)
	_, addr := f.n.member.Hint()
	return metastore.Result{}, f.n.client.Register(ctx, addr, peer.MemberReport{ID: r.ID, APIAddr: r.Addr, RaftAddr: r.RaftAddr, Build: r.Build, EntryTypes: r.EntryTypes})
}

func (f quicForwarder) AppliedIndex(ctx context.Context, _ string) (uint64, error) {
	_, addr := f.n.member.Hint()
	return f.n.client.AppliedIndex(ctx, addr)
}

func listenQUIC(t *testing.T, log *slog.Logger) *quicNode {
	t.Helper()
	n := &quicNode{}
	secret := []byte("secret of the tests")
	var err error
	n.server, err = noderpc.Listen(noderpc.ServerOptions{Addr: "127.0.0.1:0", Secret: secret, Secured: true, Clock: clock.Real(), Logger: log})
	must(t, err)
	n.rpc, err = noderpc.NewClient(noderpc.ClientOptions{Name: "main", Secret: secret, Secured: true, Clock: clock.Real(), Logger: log})
	must(t, err)
	n.client = peer.NewClient(peer.Options{Main: n.rpc, Transfer: n.rpc, Clock: clock.Real(), Logger: log})
	t.Cleanup(func() {
		if n.member != nil {
			must(t, errors.Join(n.member.Close(), n.server.Close(), n.store.Close()))
		}
		must(t, errors.Join(n.server.Close(), n.rpc.Close()))
	})
	return n
}

// freeAddr is an address on loopback that nothing listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// Three nodes form a cluster and a fourth joins it, over real node RPC, with the
// lifecycle's own cadences where they are not 12 s.
func TestOverQUIC(t *testing.T) {
	t.Parallel()
	log := telemetry.Discard()
	ids := []string{"n0", "n1", "n2", "n3"}
	nodes := make([]*quicNode, len(ids))
	rafts := make([]string, len(ids))
	var peers []config.Peer
	for i, id := range ids {
		nodes[i], rafts[i] = listenQUIC(t, log), freeAddr(t)
		if i < 3 {
			peers = append(peers, config.Peer{ID: id, RaftAddr: rafts[i], APIAddr: nodes[i].server.Addr()})
		}
	}
	start := func(i int) {
		n := nodes[i]
		join, err := Probe(context.Background(), ProbeOptions{
			Self: ids[i], APIAddr: n.server.Addr(), RaftAddr: rafts[i], Peers: peers, Empty: true, EntryTypes: int(metastore.NewestType),
			Client: n.client, pause: time.Millisecond,
		})
		must(t, err)
		if want := i > 0; join != want {
			t.Errorf("%s joins: %v, want %v", ids[i], join, want)
		}
		o := metastore.Options{
			Dir: t.TempDir(), NodeID: ids[i], BindAddr: rafts[i], Advertise: rafts[i], APIAddr: n.server.Addr(), Build: "test",
			Join: join, TrailingLogs: metastore.DefaultTrailingLogs, Forwarder: quicForwarder{n},
		}
		for _, p := range peers {
			o.Initial = append(o.Initial, metastore.Server{ID: p.ID, Addr: p.RaftAddr, Voter: true})
		}
		n.store, err = metastore.Open(context.Background(), o)
		must(t, err)
		pace := lifecyclePace()
		pace.led = time.Second
		n.member = New(Options{
			Self: Self{ID: ids[i], APIAddr: n.server.Addr(), RaftAddr: rafts[i], Empty: true}, Peers: peers, Store: n.store, Client: n.client, pace: pace,
		})
		peer.ServeMembers(n.server, model.LevelNewest, n.member, n.member.Hint)
		peer.ServeForget(n.server, model.LevelNewest, n.member, n.member.Hint)
		n.server.Ready()
		n.member.Start()
	}
	for i := range ids {
		start(i) // the second finds the first's configuration, and joins what it bootstrapped
	}
	testutil.Eventually(t, waitMax, func() bool {
		for i, n := range nodes {
			own := find(n.store.Servers(), ids[i])
			if n.store.Ready() != nil || own == nil || !own.Voter || n.member.record(ids[i]) == nil {
				return false
			}
		}
		return true
	}, "four voters, ready and registered")

	ctx := context.Background()
	_, leader := nodes[0].member.Hint()
	if _, err := nodes[3].client.Forget(ctx, leader, "nobody", "root"); !errors.Is(err, model.ErrMemberNotFound) {
		t.Errorf("forget an unknown server: %v", err)
	}
	if _, err := nodes[3].client.Forget(ctx, leader, "n3", "root"); !errors.Is(err, model.ErrConflict) {
		t.Errorf("forget a member: %v", err)
	}
	for i, n := range nodes {
		if n.server.Addr() == leader {
			_, err := n.store.Propose(ctx, metastore.RemoveMember{ID: ids[(i+1)%4]})
			must(t, err)
			err = nodes[(i+1)%4].store.Heartbeat(ctx)
			if !errors.Is(err, model.ErrMemberRemoved) {
				t.Errorf("the heartbeat of a removed member: %v", err)
			}
		}
	}
}
