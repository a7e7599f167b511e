package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/ingress"
	"github.com/narad-mq/narad/internal/membership"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/router"
)

// clusterSecretEnv is the variable that holds the cluster secret. It is no setting:
// nothing keeps it, and nothing shows it.
const clusterSecretEnv = "NARAD_CLUSTER_SECRET"

// secretBytes is the length of a secret that a lone node makes up.
const secretBytes = 32

// network is the node's traffic with other nodes. Main carries what is short, transfer
// what may be long, so that the one never queues behind the other.
type network struct {
	secret         []byte
	server         *noderpc.Server
	main, transfer *noderpc.Client
	peers          *peer.Client
	table          *router.Table // from openMembership on
	members        *membership.Membership
}

// clusterSecret is what nodes prove to each other; empty with security off and none given
// (spec/cluster-and-network section 1.1).
func clusterSecret(cfg *config.Config, addr string, log *slog.Logger) ([]byte, error) {
	if s := os.Getenv(clusterSecretEnv); s != "" {
		return []byte(s), nil
	}
	if !cfg.Security.Enabled {
		log.Warn("node RPC plane is unauthenticated: security is off and NARAD_CLUSTER_SECRET is not set; fence the port",
			"component", "audit", "addr", addr)
		return nil, nil
	}
	s := make([]byte, secretBytes)
	if _, err := rand.Read(s); err != nil {
		return nil, fmt.Errorf("cluster secret: %w", err)
	}
	log.Info("single node with no cluster secret: generated a per-process secret, so node RPC is closed to other processes")
	return s, nil
}

// bindRPC opens the port for other nodes: UDP, at the address the API was bound at.
func (n *node) bindRPC(addr string) (err error) {
	if n.net.secret == nil {
		if n.net.secret, err = clusterSecret(&n.cfg, addr, n.log); err != nil {
			return err
		}
	}
	n.net.server, err = noderpc.Listen(noderpc.ServerOptions{
		Addr: addr, Secret: n.net.secret, Secured: n.cfg.Security.Enabled, AllowLegacy: n.cfg.Security.AllowLegacyClusterAuth,
		Clock: n.clk, Logger: n.log, Registry: n.reg,
	})
	return err
}

// openClients makes what asks other nodes; nothing is dialled yet.
func (n *node) openClients(context.Context) (err error) {
	metrics := noderpc.NewMetrics(n.reg)
	open := func(name string) (*noderpc.Client, error) {
		return noderpc.NewClient(noderpc.ClientOptions{
			Name: name, Secret: n.net.secret, Secured: n.cfg.Security.Enabled, AllowLegacy: n.cfg.Security.AllowLegacyClusterAuth,
			Clock: n.clk, Logger: n.log, Metrics: metrics,
		})
	}
	if n.net.main, err = open("main"); err != nil {
		return err
	}
	if n.net.transfer, err = open("transfer"); err != nil {
		return err
	}
	n.net.peers = peer.NewClient(peer.Options{
		Main: n.net.main, Transfer: n.net.transfer, Self: n.cfg.Cluster.NodeID, Clock: n.clk, Logger: n.log,
	})
	return nil
}

// openMembership serves what a node answers as a member, the leader's part included, and
// what the leader reads for others. It joins nothing yet.
func (n *node) openMembership(context.Context) error {
	n.net.table = router.NewTable(n.cfg.Cluster.NodeID, n.store)
	n.net.members = membership.New(membership.Options{
		Self: n.self, Peers: n.cfg.Cluster.Peers, Store: n.store, Client: n.net.peers,
		Clock: n.clk, Logger: n.log, Registry: n.reg,
	})
	peer.ServeMembers(n.net.server, model.LevelNewest, n.net.members, n.net.members.Hint)
	peer.ServeForget(n.net.server, model.LevelNewest, n.net.members, n.net.members.Hint)
	peer.ServeMetadata(n.net.server, model.LevelNewest, leaderReads{n.store}, n.net.members.Hint)
	return nil
}

// servePeers opens the operations of the data plane and of metadata writes.
func (n *node) servePeers() {
	s, here := n.net.server, n.router.Here()
	peer.ServeCommits(s, model.LevelNewest, ingress.NewSettled(n.broker, n.store.Settle))
	peer.ServeQueue(s, model.LevelNewest, here)
	peer.ServeTokens(s, model.LevelNewest, here)
	peer.ServeStats(s, model.LevelNewest, here, n.broker)
	peer.ServeCursors(s, model.LevelNewest, n.fanout)
	peer.ServePurge(s, model.LevelNewest, n.reclaimer)
	peer.ServeStatus(s, model.LevelNewest, vitals{n})
	peer.ServeChanges(s, model.LevelNewest, n.api, n.net.members.Hint)
	s.Ready()
}

// join has the node heartbeat and, where it is not admitted yet, ask for it.
func (n *node) join(context.Context) error {
	n.net.members.Start()
	return nil
}

// errLeaderUnknown: nothing can be sent to a leader whose address this node does not know.
var errLeaderUnknown = fmt.Errorf("%w: the raft leader's address is not known", model.ErrUnavailable)

// leaderRPC asks the Raft leader, as the metastore's Forwarder, LeaderReader and
// LinkReader.
type leaderRPC struct{ n *node }

// addr is the API address of a member, by its record, else by the configured peers: a node
// that was just admitted has no records yet.
func (n *node) addr(id string) (string, error) {
	for _, m := range n.net.table.Members() {
		if m.ID == id && m.Addr != "" {
			return m.Addr, nil
		}
	}
	for _, p := range n.cfg.Cluster.Peers {
		if p.ID == id {
			return p.APIAddr, nil
		}
	}
	return "", fmt.Errorf("%w: member %q", errLeaderUnknown, id)
}

// Propose implements metastore.Forwarder. Heartbeats are all that is forwarded as an entry;
// every other change goes to the leader as its client sent it.
func (l leaderRPC) Propose(ctx context.Context, leader string, c metastore.Command) (metastore.Result, error) {
	m, ok := c.(metastore.RegisterMember)
	if !ok {
		return metastore.Result{}, fmt.Errorf("%w: %s is decided on the leader", metastore.ErrNotLeader, c.Type())
	}
	addr, err := l.n.addr(leader)
	if err != nil {
		return metastore.Result{}, err
	}
	return metastore.Result{}, l.n.net.peers.Register(ctx, addr, peer.MemberReport{
		ID: m.ID, APIAddr: m.Addr, RaftAddr: m.RaftAddr, Build: m.Build, EntryTypes: m.EntryTypes,
	})
}

// AppliedIndex implements metastore.Forwarder.
func (l leaderRPC) AppliedIndex(ctx context.Context, leader string) (uint64, error) {
	addr, err := l.n.addr(leader)
	if err != nil {
		return 0, err
	}
	return l.n.net.peers.AppliedIndex(ctx, addr)
}

// Topic implements metastore.LeaderReader.
func (l leaderRPC) Topic(ctx context.Context, leader, name string) (model.Incarnation, bool, error) {
	addr, err := l.n.addr(leader)
	if err != nil {
		return "", false, err
	}
	t, exists, err := l.n.net.peers.Topic(ctx, addr, name)
	return t.ID, exists, err
}

// Link implements metastore.LinkReader.
func (l leaderRPC) Link(ctx context.Context, leader, child string) (parent, epoch string, err error) {
	addr, err := l.n.addr(leader)
	if err != nil {
		return "", "", err
	}
	t, _, err := l.n.net.peers.Topic(ctx, addr, child)
	return t.Parent, t.AttachEpoch, err
}

// leaderReads is what the leader reads behind its barrier for other nodes.
type leaderReads struct{ store *metastore.Store }

// Topic implements peer.Metadata.
func (l leaderReads) Topic(ctx context.Context, name string) (model.Topic, bool, error) {
	if err := l.store.Barrier(ctx); err != nil {
		return model.Topic{}, false, err
	}
	v, ok := l.store.Topic(name)
	if !ok {
		return model.Topic{}, false, nil
	}
	return v.Topic, true, nil
}

// Assignment implements peer.Metadata.
func (l leaderReads) Assignment(ctx context.Context, topic string, partition int) (model.Assignment, error) {
	return l.store.LeaderAssignment(ctx, topic, partition)
}

// AppliedIndex implements peer.Metadata.
func (l leaderReads) AppliedIndex() (uint64, error) { return l.store.LeaderApplied() }

// forward carries metadata writes to the leader: httpapi.Forward and httpapi.Nodes.
type forward struct{ n *node }

// LeaderIsHere implements httpapi.Forward.
func (f forward) LeaderIsHere() bool { return f.n.store.IsLeader() }

// Settle implements httpapi.Forward.
func (f forward) Settle(ctx context.Context) error { return f.n.store.Settle(ctx) }

// Change implements httpapi.Forward. It gives up, with the outcome unknown, once this node
// sees that the leader it asked leads no more: a leader that died does not answer, and a
// create may wait for over a minute.
func (f forward) Change(ctx context.Context, op noderpc.Op, ch peer.Change) (peer.Answer, error) {
	addr, err := f.leader()
	if err != nil {
		return peer.Answer{}, err
	}
	ctx, cancel := f.whileLeads(ctx)
	defer cancel()
	return f.n.net.peers.Change(ctx, addr, op, ch)
}

// leaderPoll is how often a forwarded change looks whether the leader is still the same.
const leaderPoll = 100 * time.Millisecond

// whileLeads returns a context that ends when the leader known here is another than now,
// or none.
func (f forward) whileLeads(ctx context.Context) (context.Context, context.CancelFunc) {
	asked, _ := f.n.store.Leader()
	ctx, cancel := context.WithCancel(ctx)
	stop := make(chan struct{})
	go func() {
		timer := f.n.clk.NewTimer(leaderPoll)
		defer timer.Stop()
		for {
			select {
			case <-stop:
				return
			case <-timer.C():
			}
			if now, _ := f.n.store.Leader(); now != asked {
				cancel()
				return
			}
			timer.Reset(leaderPoll)
		}
	}()
	return ctx, func() { close(stop); cancel() }
}

// NodeStatus implements httpapi.Nodes.
func (f forward) NodeStatus(ctx context.Context, addr string) (peer.NodeStatus, error) {
	if addr == f.n.self.APIAddr {
		return vitals(f).NodeStatus(ctx), nil
	}
	return f.n.net.peers.NodeStatus(ctx, addr)
}

// Forget implements httpapi.Nodes.
func (f forward) Forget(ctx context.Context, id, caller string) (voter bool, err error) {
	if f.LeaderIsHere() {
		return f.n.net.members.Forget(ctx, id, caller)
	}
	addr, err := f.leader()
	if err != nil {
		return false, err
	}
	return f.n.net.peers.Forget(ctx, addr, id, caller)
}

func (f forward) leader() (string, error) {
	id, addr := f.n.net.members.Hint()
	if addr == "" {
		return "", fmt.Errorf("%w: leader %q", errLeaderUnknown, id)
	}
	return addr, nil
}

// closeClients ends what this node asks of others; nothing asks any more.
func (w *network) closeClients() error {
	var errs []error
	for _, c := range []*noderpc.Client{w.main, w.transfer} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// handOverMax bounds how long a stop waits for another voter to take over.
const handOverMax = 5 * time.Second

// handOver gives up leadership before the node stops, so that metadata writes go on after
// about 150 ms instead of an election (spec/cluster-and-network section 16.1).
func (n *node) handOver() {
	if !n.store.IsLeader() || len(n.cfg.Cluster.Peers) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverMax)
	defer cancel()
	if err := n.store.TransferLeadership(ctx); err != nil {
		n.log.Error("leadership transfer on shutdown failed", "err", err)
		return
	}
	n.log.Info("leadership transferred before shutdown")
}

// initialServers is the Raft configuration that a node without state bootstraps: the
// initial members, the same on each; nil = this node alone.
func initialServers(c *config.Cluster) []metastore.Server {
	var out []metastore.Server
	for _, p := range c.InitialPeers() {
		out = append(out, metastore.Server{ID: p.ID, Addr: p.RaftAddr, Voter: true})
	}
	return out
}

// probe decides whether the metastore starts join-only: always where this node may not
// start a cluster, and where its volume is empty and a peer knows of one.
func (n *node) probe(ctx context.Context, dir string) (joins bool, err error) {
	cl := &n.cfg.Cluster
	has, err := metastore.HasState(filepath.ToSlash(dir))
	if err != nil {
		return false, err
	}
	n.self.Empty = !has
	return membership.Probe(ctx, membership.ProbeOptions{
		Self: n.self.ID, APIAddr: n.self.APIAddr, RaftAddr: n.self.RaftAddr, Peers: cl.Peers, Initial: cl.InitialMembers,
		Empty: n.self.Empty, EntryTypes: int(metastore.NewestType), Client: n.net.peers, Clock: n.clk, Logger: n.log,
	})
}
