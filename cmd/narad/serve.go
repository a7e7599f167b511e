package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/narad-mq/narad/internal/access"
	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/controller"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/fanout"
	"github.com/narad-mq/narad/internal/httpapi"
	"github.com/narad-mq/narad/internal/ingress"
	"github.com/narad-mq/narad/internal/membership"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/reclaim"
	"github.com/narad-mq/narad/internal/router"
	"github.com/narad-mq/narad/internal/schema"
	"github.com/narad-mq/narad/internal/telemetry"
	"github.com/narad-mq/narad/internal/topics"
	"github.com/narad-mq/narad/internal/users"
	"github.com/narad-mq/narad/internal/wal"
)

// node is the running parts of a process. Each is closed by the step that stop lists
// for it; a part that was never opened is nil.
type node struct {
	cfg   config.Config
	log   *slog.Logger
	clk   clock.Clock
	reg   *prometheus.Registry
	start time.Time

	self   membership.Self
	unlock func() error
	fronts *fronts
	net    network
	api    *httpapi.API
	people
	store *metastore.Store
	plane
	router  *router.Router
	duties  *controller.Controller
	startup reconciliation
}

// plane are the parts that hold messages, and those that remove them.
type plane struct {
	broker    *broker.Broker
	ingress   *ingress.Ingress
	fanout    *fanout.Engine
	reclaimer *reclaim.Reclaimer
	creates   *reclaim.Gate      // armed until the startup sweep is over
	purges    *reclaim.Broadcast // of deletes, to the other nodes
	poller    *telemetry.Poller  // reads what a sick volume may hang on
}

// people are the parts that know users.
type people struct {
	auth   *access.Authenticator
	seeder *users.Seeder // nil with security off
}

// serve runs a node until ctx ends (a graceful stop: nil), or until it cannot go on.
func serve(ctx context.Context, cfg config.Config, out stdio) error {
	if err := errors.Join(cfg.Validate(), cfg.CheckPosture(os.Getenv(clusterSecretEnv) != "")); err != nil {
		return err
	}
	log, err := newLogger(cfg.Log, out.out)
	if err != nil {
		return err
	}
	// What libraries print through package log (quic-go, of small socket buffers) is a line
	// of the node's log like any other.
	slog.SetDefault(log)
	n := &node{cfg: cfg, log: log, clk: clock.Real(), reg: prometheus.NewRegistry(), plane: plane{creates: reclaim.NewGate()}}
	n.start = n.clk.Now()
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	if err := n.boot(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = nil // told to stop before it was up: a graceful stop too
		}
		return errors.Join(err, n.stop())
	}
	var failed error
	select {
	case <-ctx.Done():
		exitOnSecondSignal()
	case <-n.store.Done():
		failed = n.store.Err()
	case failed = <-n.fronts.failed:
	case failed = <-n.startup.failed:
	}
	return errors.Join(failed, n.stop())
}

// exitOnSecondSignal ends the process at once when the graceful stop is not wanted
// after all.
func exitOnSecondSignal() {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	go func() {
		if s, ok := (<-again).(syscall.Signal); ok {
			os.Exit(128 + int(s))
		}
	}()
}

// boot brings the node up, in an order in which each step relies on the ones before.
func (n *node) boot(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		n.takeDataDir,    // before anything reads or writes data: one process at a time
		n.listen,         // health answers from here on, so that liveness never waits for a recovery
		n.openClients,    // before the metastore: an empty node asks its peers whether there is a cluster
		n.openMetastore,  // everything below asks it who owns what
		n.openMembership, // as early as it can: others may be waiting for this node's word
		n.openAccess,     // users are in the metastore; it only reads them
		n.seedRoot,       // whoever leads does it, in the background where that is not known yet
		n.openBroker,     // before the ingress: dispatched records go to it
		n.openFanout,     // before the routes: they list its children
		n.openIngress,    // it dispatches what the WAL still holds as soon as owners are known
		n.openRoutes,     // from here on the node answers requests; creates wait for the gate
		n.join,           // after the routes: once a member, others send it work
		n.reconcile,      // last: it may wait for a leader, and produces must not wait with it
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) takeDataDir(context.Context) error {
	dir := n.cfg.Storage.DataDir
	if err := disk.MkdirDurable(disk.OS{}, filepath.ToSlash(dir)); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	unlock, err := disk.Lock(filepath.Join(dir, "LOCK"))
	if err != nil {
		return fmt.Errorf("data directory %s: %w", dir, err)
	}
	n.unlock = unlock
	setMemoryLimit(n.log)
	n.log.Info("narad serve starting", "version", version(), "commit", commit(), "node", n.cfg.Cluster.NodeID)
	return nil
}

func (n *node) listen(context.Context) error {
	registerProcess(n.reg)
	n.api = httpapi.New(httpapi.Options{
		Config: n.cfg.HTTP, Secured: n.cfg.Security.Enabled, Clock: n.clk, Logger: n.log, Registry: n.reg,
		Metrics: promhttp.HandlerFor(n.reg, promhttp.HandlerOpts{EnableOpenMetrics: true}),
	})
	n.fronts = newFronts(n.log)
	return n.fronts.open(n.api, n.cfg.HTTP, n.bindRPC)
}

func (n *node) openMetastore(ctx context.Context) (err error) {
	var tls *metastore.TLS
	if sec := n.cfg.Security; n.cfg.RaftTLS() {
		tls = &metastore.TLS{CertFile: sec.ClusterTLSCertFile, KeyFile: sec.ClusterTLSKeyFile, CAFile: sec.ClusterTLSCAFile}
		n.log.Info("raft metadata transport secured with mutual TLS")
	} else {
		n.log.Warn("raft metadata transport is plaintext", "reason", n.cfg.PlaintextReason())
	}
	cl := &n.cfg.Cluster
	n.self = membership.Self{ID: cl.NodeID, APIAddr: n.cfg.AdvertiseAPI(n.fronts.addr()), RaftAddr: cl.Advertise()}
	dir := filepath.Join(n.cfg.Storage.DataDir, "metastore")
	joins, err := n.probe(ctx, dir)
	if err != nil {
		return err
	}
	n.store, err = metastore.Open(ctx, metastore.Options{
		Dir: dir, NodeID: cl.NodeID, BindAddr: cl.Addr, Advertise: cl.Advertise(), Join: joins, Initial: initialServers(cl),
		APIAddr: n.self.APIAddr, Build: version(), Clock: n.clk, Logger: n.log, Registry: n.reg,
		SnapshotThreshold: uint64(cl.SnapshotThreshold), SnapshotInterval: cl.SnapshotInterval,
		TrailingLogs: uint64(cl.TrailingLogs), TLS: tls, Forwarder: leaderRPC{n}, Reader: leaderRPC{n},
		Bootstrap: func() error { return refuseOrphans(disk.OS{}, filepath.ToSlash(n.cfg.Storage.DataDir)) },
	})
	if err != nil || len(cl.Peers) > 0 {
		return err
	}
	return n.store.WaitReady(ctx) // nobody else to wait for: it leads at once
}

func (n *node) openAccess(context.Context) error {
	n.auth = access.New(access.Options{Users: n.store, Clock: n.clk, Logger: n.log, Registry: n.reg})
	return nil
}

// adminPassword is the variable that holds root's first password. It is no setting:
// nothing keeps it, and nothing shows it.
const adminPassword = "NARAD_ADMIN_PASSWORD"

// seedRoot makes the first user of a secured cluster. It is no reason to fail a start:
// where it cannot be done yet it goes on in the background.
func (n *node) seedRoot(context.Context) error {
	if !n.cfg.Security.Enabled {
		return nil
	}
	n.seeder = users.NewSeeder(users.SeederOptions{
		Store: n.store, Hash: n.auth.Hash, FS: disk.OS{}, DataDir: filepath.ToSlash(n.cfg.Storage.DataDir),
		Node: n.cfg.Cluster.NodeID, Password: os.Getenv(adminPassword), Clock: n.clk, Logger: n.log,
	})
	n.seeder.Start()
	return nil
}

// callers is whom the topic manager asks who a caller is; nobody with security off.
func (n *node) callers() access.Reader {
	if !n.cfg.Security.Enabled {
		return nil
	}
	return n.store
}

func (n *node) openBroker(context.Context) error {
	s := n.cfg.Storage
	codec, err := commitlog.NewCodec(s.Codec, s.CompressionLevel)
	if err != nil {
		return err
	}
	n.broker, err = broker.Open(broker.Options{
		FS: disk.OS{}, DataDir: filepath.ToSlash(s.DataDir), Node: n.cfg.Cluster.NodeID, Topics: n.store,
		Clock: n.clk, Logger: n.log, Registry: n.reg, Codec: codec,
		IdleEviction:   time.Duration(s.IdleLogEvictionMS) * time.Millisecond,
		ColdWalk:       time.Duration(s.ColdRetentionWalkMS) * time.Millisecond,
		OffsetInterval: time.Duration(s.OffsetCommitIntervalMS) * time.Millisecond,
		OffsetFiles:    offsetFiles(), CaughtUp: n.store.CaughtUp, Notifier: n.net.peers,
	})
	if err != nil {
		return err
	}
	// Ends with the store.
	n.store.Subscribe(n.broker.TopicChanged)
	n.reclaimer, err = reclaim.New(reclaim.Options{
		FS: disk.OS{}, DataDir: filepath.ToSlash(s.DataDir), Topics: n.store, Confirmer: n.store, Retirer: n.broker,
		Clock: n.clk, Logger: n.log, Registry: n.reg,
	})
	if err != nil {
		return err
	}
	n.store.Subscribe(n.reclaimer.TopicChanged)
	return nil
}

func (n *node) openIngress(context.Context) (err error) {
	s := n.cfg.Storage
	spare := wal.SpareRecycle
	if !s.IngressWALPrealloc {
		spare = wal.SpareNone
	}
	reserve, err := reserveBytes(s)
	if err != nil {
		return err
	}
	schemas := topics.NewSchemas(n.store, schema.NewValidator(runtime.GOMAXPROCS(0), n.clk, n.reg))
	n.store.Subscribe(schemas.TopicChanged) // ends with the store
	n.ingress, err = ingress.Open(ingress.Options{
		FS: disk.OS{}, Dir: filepath.ToSlash(filepath.Join(s.DataDir, "ingress", "produce")), Node: n.cfg.Cluster.NodeID,
		Clock: n.clk, Logger: n.log, Registry: n.reg, Directory: n.store, Schemas: schemas,
		Placement: placement{n}, Confirmer: confirmer{n.store}, Spare: spare, ReserveBytes: reserve,
	})
	return err
}

func (n *node) openFanout(context.Context) (err error) {
	f := n.cfg.Fanout
	n.fanout, err = fanout.Open(fanout.Options{
		FS: disk.OS{}, DataDir: filepath.ToSlash(n.cfg.Storage.DataDir), Node: n.cfg.Cluster.NodeID,
		Replica: n.store, Leader: n.store, Parents: n.broker, Placement: children{placement{n}}, Peers: cursors{n},
		Clock: n.clk, Logger: n.log, Registry: n.reg,
		MaxBatchRecords: f.MaxBatchRecords, MaxBatchBytes: f.MaxBatchBytes, Linger: time.Duration(f.LingerMS) * time.Millisecond,
	})
	return err
}

func (n *node) openRoutes(context.Context) error {
	t := n.cfg.Topic
	n.duties = controller.New(controller.Options{
		Store: n.store, Self: n.cfg.Cluster.NodeID, Clock: n.clk, Logger: n.log, Registry: n.reg,
	})
	n.duties.Start()
	n.purges = reclaim.NewBroadcast(reclaim.BroadcastOptions{
		Self: n.cfg.Cluster.NodeID, Members: n.store.Members, Peers: n.net.peers, Clock: n.clk, Logger: n.log,
	})
	manager := topics.New(topics.Options{
		Store: n.store, Placer: n.duties, Users: n.callers(), Tails: tails{n}, Node: n.cfg.Cluster.NodeID, Clock: n.clk, Logger: n.log,
		Gate: n.creates,
		OnDeleted: func(name string, id model.Incarnation) {
			n.reclaimer.Deleted(name, id)
			n.purges.Deleted(name, id)
		},
		Defaults: topics.Defaults{
			Partitions: t.DefaultPartitions, MaxPartitions: t.MaxPartitions, RetentionMS: t.DefaultRetentionMS,
			VisibilityMS: t.DefaultVisibilityMS, MaxInFlight: t.DefaultMaxInFlight, MaxAckedAhead: t.DefaultMaxAckedAhead,
		},
	})
	n.router = router.New(router.Options{
		Node: n.cfg.Cluster.NodeID, Directory: n.store, Table: n.net.table, Local: n.broker, Stats: n.broker, Peers: n.net.peers,
		MaxWait: n.cfg.HTTP.MaxConsumeWait, Clock: n.clk, Logger: n.log,
	})
	n.poller = n.startPoller()
	authority := users.NewAuthority(users.AuthorityOptions{Store: n.store, Secured: n.cfg.Security.Enabled, Clock: n.clk})
	n.api.Begin(httpapi.Backends{
		Auth: n.auth, Directory: n.store, Topics: manager, Schemas: n.store,
		Users: users.NewManager(n.store, n.auth, httpapi.NewUserLeader(authority, forward{n})), Authority: authority,
		Links: manager, Children: n.fanout, Router: n.router, Produce: n.ingress, Health: health{n},
		Members: n.store, Nodes: forward{n}, Forward: forward{n},
	})
	n.servePeers()
	registerBoot(n.reg, n.clk.Now().Sub(n.start), health{n}.Ready)
	n.log.Info("http listening", "addr", n.fronts.addr())
	return nil
}

// stop takes the node down, in the reverse order of who relies on whom. A step that
// fails is logged and the next still runs.
func (n *node) stop() error {
	var errs []error
	do := func(what string, f func() error) {
		if err := f(); err != nil {
			n.log.Error("stop: "+what, "err", err)
			errs = append(errs, fmt.Errorf("stop: %s: %w", what, err))
		}
	}
	if n.api != nil {
		n.api.Stop() // balancers look elsewhere from here on
	}
	dispatched := make(chan struct{})
	go func() {
		defer close(dispatched)
		if n.ingress != nil {
			n.ingress.StopDispatch() // what it leaves stays in the WAL for the next start
		}
	}()
	closeIf(do, "stop the leader's duties", n.duties)
	if n.store != nil { // before the drain: the others go on without an election
		n.handOver()
	}
	if n.router != nil { // parked long polls end now, or the drain would wait for them
		n.router.ReleaseWaiters()
	}
	if n.broker != nil {
		n.broker.ReleaseWaiters()
	}
	if n.fronts != nil {
		do("drain http", func() error { return n.fronts.close(n.cfg.HTTP.ShutdownGrace) })
	}
	<-dispatched // it waits for owners that answer late, while the drain does for clients
	do("stop the startup work", n.startup.Close)
	closeIf(do, "leave the membership", n.net.members) // its heartbeats need the clients
	if n.poller != nil {
		n.poller.Stop()
	}
	closeIf(do, "stop serving other nodes", n.net.server) // what they took here and did not get is given back
	closeIf(do, "stop routing", n.router)
	closeIf(do, "stop telling of deletes", n.purges)
	closeIf(do, "stop fan-out", n.fanout) // slabs in flight end before the logs they go to
	closeIf(do, "stop reclaiming", n.reclaimer)
	closeIf(do, "close partitions", n.broker) // acks, then the high watermark of each log
	closeIf(do, "close ingress", n.ingress)   // the last checkpoint: after the commits it stands for
	closeIf(do, "stop seeding", n.seeder)
	closeIf(do, "close access", n.auth)
	do("close the clients to other nodes", n.net.closeClients)
	closeIf(do, "close metastore", n.store) // last: everything above reads it
	if n.unlock != nil {
		do("release the data directory", n.unlock)
		n.log.Info("narad serve stopped")
	}
	return errors.Join(errs...)
}

// closeIf closes a part that was opened.
func closeIf[P interface {
	comparable
	io.Closer
}](do func(string, func() error), what string, part P) {
	var never P
	if part != never {
		do(what, part.Close)
	}
}
