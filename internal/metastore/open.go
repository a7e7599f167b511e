package metastore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

// Defaults of spec/cluster-and-network section 9.
const (
	DefaultSnapshotThreshold = 8192
	DefaultSnapshotInterval  = 120 * time.Second
	DefaultTrailingLogs      = 10240

	snapshotsKept   = 2
	snapshotImage   = "state.bin" // of a snapshot, in the directory Raft gives it
	logCacheEntries = 512         // newest log entries kept in memory for the appliers
)

// Options configures a Store.
type Options struct {
	Dir       string // the metastore directory; created when missing
	NodeID    string // Raft server id and member id
	BindAddr  string // Raft's TCP listener, host:port
	Advertise string // host:port peers dial for Raft; "" = the bound address
	APIAddr   string // host:port of this node's API, for its member record
	Build     string // release, for its member record and the stop line

	Clock    clock.Clock           // nil = the real one
	Logger   *slog.Logger          // nil = none
	Registry prometheus.Registerer // nil = unregistered

	// Join starts the node join-only: it bootstraps nothing and waits until a leader
	// admits it. A node that has Raft state resumes with it either way.
	Join bool
	// Initial is the Raft configuration a node without state bootstraps, this node
	// included, the same on each; nil = this node alone.
	Initial []Server
	// Level is the release to act as, for tests; 0 = this one.
	Level model.ReleaseLevel

	Forwarder Forwarder    // carries writes to the leader; nil = refuse them elsewhere
	Reader    LeaderReader // reads the leader's state; nil = only the leader confirms
	TLS       *TLS         // Raft's mutual TLS; nil = plaintext

	SnapshotThreshold uint64        // entries since the last snapshot; 0 = the default
	SnapshotInterval  time.Duration // how often that is checked; 0 = the default
	TrailingLogs      uint64        // entries kept behind a snapshot, as given

	// Bootstrap, if set, is asked before a directory without any state starts a
	// cluster of its own; an error refuses that.
	Bootstrap func() error

	Dial func(addr string, timeout time.Duration) (net.Conn, error) // nil = TCP; for tests
	Tune func(*raft.Config)                                         // nil = as set here; for tests
}

func (o *Options) setDefaults() error {
	if o.NodeID == "" || len(o.NodeID) > idBytesMax {
		return fmt.Errorf("metastore: node id of %d bytes, want 1 to %d", len(o.NodeID), idBytesMax)
	}
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	if o.Logger == nil {
		o.Logger = telemetry.Discard()
	}
	if o.SnapshotThreshold == 0 {
		o.SnapshotThreshold = DefaultSnapshotThreshold
	}
	if o.SnapshotInterval == 0 {
		o.SnapshotInterval = DefaultSnapshotInterval
	}
	return nil
}

// raftDisk is Raft's own state on disk.
type raftDisk struct {
	logs  *raftboltdb.BoltStore // nil while raft.db does not exist
	snaps *raft.FileSnapshotStore
}

// Open opens the metastore and starts Raft: a directory without state bootstraps a
// cluster of this node alone. It returns before a leader is known; see WaitReady.
func Open(ctx context.Context, o Options) (_ *Store, err error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	if err := disk.MkdirDurable(volume, filepath.Join(o.Dir, snapshotsName)); err != nil {
		return nil, err
	}
	if err := removeLeftovers(o.Dir); err != nil {
		return nil, err
	}
	logger := newRaftLogger(o.Logger)
	rd, action, err := prepare(o, logger)
	if err != nil {
		return nil, fmt.Errorf("metastore %s: %w", o.Dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, rd.logs.Close())
		}
	}()
	machine, err := openMachine(o)
	if err != nil {
		return nil, err
	}
	s := &Store{
		fsm: machine, clock: o.Clock, log: o.Logger, self: o, started: o.Clock.Now(),
		quit: machine.quit, done: make(chan struct{}), down: make(chan struct{}),
		consensus: consensus{logs: rd.logs}, leadership: leadership{caughtUp: make(chan struct{})},
		gate: gate{
			level: o.Level, newest: machine.knows, used: map[EntryType]bool{},
			lines: telemetry.NewLimiter(o.Clock, gateLineEvery),
		},
	}
	if err = errors.Join(s.startRaft(o, rd, action, logger), ctx.Err()); err != nil {
		return nil, errors.Join(err, s.stopRaft(), machine.close())
	}
	if err = s.register(o.Registry); err != nil {
		return nil, errors.Join(err, s.stopRaft(), machine.close())
	}
	s.warnOfAddress()
	s.begin(&s.wg, func() { s.fsm.catalog.notify.run(s.quit) })
	s.begin(&s.wg, s.watch)
	s.begin(&s.wg, s.latch)
	if secure := s.stream.tls; secure != nil {
		s.begin(&s.wg, func() { secure.watchCertificates(s.clock, s.log, s.quit) })
	}
	return s, nil
}

// prepare reads what is on the disk, decides what becomes of fsm.db, and does it.
// Until the decision nothing is written, so a refusal leaves every file untouched.
func prepare(o Options, logger hclog.Logger) (raftDisk, restartAction, error) {
	fsmPath, raftPath := filepath.Join(o.Dir, fsmName), filepath.Join(o.Dir, raftName)
	facts, err := inspectFSM(fsmPath, newestOf(o.Level))
	if err != nil {
		return raftDisk{}, 0, err
	}
	rd := raftDisk{}
	if rd.snaps, err = raft.NewFileSnapshotStoreWithLogger(o.Dir, snapshotsKept, logger); err != nil {
		return raftDisk{}, 0, err
	}
	hasLog, err := exists(raftPath)
	if err != nil {
		return raftDisk{}, 0, err
	}
	if hasLog {
		if err := inspectLog(raftPath); err != nil {
			return raftDisk{}, 0, err
		}
		if rd.logs, err = openLog(raftPath); err != nil {
			return raftDisk{}, 0, err
		}
	}
	action, fresh, err := rd.decide(o, facts)
	if err == nil && fresh && !o.Join && o.Bootstrap != nil {
		err = o.Bootstrap()
	}
	if err == nil && rd.logs == nil {
		if err = createDB(raftPath, filepath.Join(o.Dir, raftCreateName)); err == nil {
			rd.logs, err = openLog(raftPath)
		}
	}
	if err == nil {
		err = rd.act(o, action, facts)
	}
	if err != nil && rd.logs != nil {
		err = errors.Join(err, rd.logs.Close())
	}
	return rd, action, err
}

func openLog(path string) (*raftboltdb.BoltStore, error) {
	options := boltOptions(false)
	options.NoFreelistSync = true // opened once per process, and written at every entry
	logs, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: options})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return logs, nil
}

// decide completes the facts with Raft's side of them. fresh says that there is
// neither metadata nor Raft state.
func (rd raftDisk) decide(o Options, facts fsmFacts) (action restartAction, fresh bool, err error) {
	f := restartFacts{holds: facts.holds, index: facts.meta.index, trusted: facts.trusted, joins: o.Join}
	snaps, err := rd.snaps.List()
	if err != nil {
		return 0, false, err
	}
	if len(snaps) > 0 {
		f.snapshotIndex = snaps[0].Index
	}
	if rd.logs != nil {
		if f.logFirst, err = rd.logs.FirstIndex(); err != nil {
			return 0, false, err
		}
		if f.logLast, err = rd.logs.LastIndex(); err != nil {
			return 0, false, err
		}
	}
	action, err = decideRestart(f)
	if err == nil && action == restoreSnapshot {
		err = rd.restorable(o, f, snaps)
	}
	return action, !f.holds && !f.raftState(), err
}

// restorable is nil if a snapshot can be read and the log goes on from it. Raft
// restores the newest one it can read: falling back to an older one it would end the
// process where the log does not reach back to it, and forget what only the newer one
// held where the log is shorter. One of a newer release is refused as fsm.db would be.
func (rd raftDisk) restorable(o Options, f restartFacts, snaps []*raft.SnapshotMeta) error {
	newest := f.snapshotIndex
	var damaged error
	for _, snap := range snaps {
		_, image, err := rd.snaps.Open(snap.ID) // reads all of it, to check its sum
		if err != nil {
			damaged = errors.Join(damaged, fmt.Errorf("snapshot %s: %w: %w", snap.ID, model.ErrCorrupt, err))
			continue
		}
		if err := image.Close(); err != nil {
			return err
		}
		f.snapshotIndex = snap.Index
		if f.baseless() || f.snapshotIndex < newest && f.logLast < newest {
			return errors.Join(f.refusal(errLogGap), damaged)
		}
		_, err = inspectFSM(filepath.Join(o.Dir, snapshotsName, snap.ID, snapshotImage), newestOf(o.Level))
		return err
	}
	return errors.Join(f.refusal(errLogGap), damaged)
}

// act carries out a decision up to the opening of fsm.db.
func (rd raftDisk) act(o Options, action restartAction, facts fsmFacts) error {
	switch action {
	case rebuild:
		stale, err := setAside(o.Dir, o.Clock.Now())
		if err != nil {
			return err
		}
		reason := "its applied index is missing or cannot be trusted"
		if facts.trusted {
			reason = "its raft state is gone or older, and the cluster brings the rest"
		}
		o.Logger.Warn("metastore: set aside fsm.db as fsm.db.stale; the log rebuilds it", "stale", stale, "reason", reason)
	case resumeOnBase:
		return rd.rebase(o, facts.meta.index)
	case replayOnto:
		o.Logger.Error("metastore: fsm.db has no trusted index and the raft log is compacted; replaying onto it as it is",
			"index", facts.meta.index)
		first, err := rd.logs.FirstIndex()
		if err != nil {
			return err
		}
		return rd.rebase(o, first-1)
	}
	return nil
}

// openMachine opens fsm.db, creating it when missing, and reads every view.
func openMachine(o Options) (*fsm, error) {
	path := filepath.Join(o.Dir, fsmName)
	ok, err := exists(path)
	if err != nil {
		return nil, err
	}
	if !ok {
		if err := createDB(path, filepath.Join(o.Dir, fsmRestoreName)); err != nil {
			return nil, err
		}
	}
	db, err := openFSM(path)
	if err != nil {
		return nil, err
	}
	f := &fsm{
		dir: o.Dir, build: o.Build, clock: o.Clock, log: o.Logger, metrics: newMetrics(), catalog: newCatalog(),
		quit: make(chan struct{}), db: db, knows: newestOf(o.Level), halt: halt{stopped: make(chan struct{})},
	}
	f.update = f.commit
	if err := f.load(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return f, nil
}

// startRaft binds the transport, bootstraps a node without state, and starts Raft.
func (s *Store) startRaft(o Options, rd raftDisk, action restartAction, logger hclog.Logger) error {
	var err error
	if s.stream, err = newStream(o); err != nil {
		return err
	}
	s.transport = newTransport(raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: s.stream, MaxPool: transportPool, Timeout: transportTimeout, Logger: logger,
	}), o.Clock)
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(o.NodeID)
	conf.Logger = logger
	conf.BatchApplyCh = true // so that concurrent proposals share a log write
	conf.SnapshotThreshold = o.SnapshotThreshold
	conf.SnapshotInterval = o.SnapshotInterval
	conf.TrailingLogs = o.TrailingLogs
	conf.NoSnapshotRestoreOnStart = action != restoreSnapshot
	conf.NoLegacyTelemetry = true
	if o.Tune != nil {
		o.Tune(conf)
	}
	if err := bootstrap(o, rd, s.stream.advertise); err != nil {
		return fmt.Errorf("bootstrap raft: %w", err)
	}
	cache, err := raft.NewLogCache(logCacheEntries, rd.logs)
	if err != nil {
		return err
	}
	if s.raft, err = raft.NewRaft(conf, s.fsm, cache, rd.logs, rd.snaps, s.transport); err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	servers := s.raft.GetConfiguration().Configuration().Servers
	if len(servers) == 1 && servers[0].ID != conf.LocalID {
		return fmt.Errorf("metastore %s belongs to node %q, this node is %q", o.Dir, servers[0].ID, o.NodeID)
	}
	return nil
}

func (s *Store) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	s.collector = newCollector(s)
	return r.Register(s.collector)
}
