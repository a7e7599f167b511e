package metastore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
)

// Store is the metastore of one node. All methods are safe for concurrent use.
type Store struct {
	fsm       *fsm
	collector *collector
	clock     clock.Clock
	log       *slog.Logger
	self      Options
	started   time.Time
	gate      gate

	quit chan struct{} // closed by Close; the state machine's too
	done chan struct{} // closed when the state machine stopped
	down chan struct{} // closed once Raft is shut down
	consensus
	leadership
	background
}

// consensus is Raft and what it stands on.
type consensus struct {
	raft      *raft.Raft
	logs      *raftboltdb.BoltStore
	stream    *stream
	transport *transport
}

// reign is one term of this node as the leader.
type reign struct {
	term  uint64
	since time.Time
}

// leadership is what this node knows of its own, and of its replica.
type leadership struct {
	term      atomic.Uint64         // term whose barrier passed and record is written; 0 = none
	reign     atomic.Pointer[reign] // the newest one, over or not
	quiet     atomic.Uint64         // committed index with no command between it and what is stored
	caughtUp  chan struct{}         // closed once the replica was current
	latchOnce sync.Once
}

// background holds the goroutines of a Store.
type background struct {
	mu       sync.Mutex // guards closed, and with it that nothing starts after it
	closed   bool
	wg       sync.WaitGroup // the notifier and the leadership watch
	inflight sync.WaitGroup // waits on futures of Raft

	closeOnce, raftOnce sync.Once
	closeErr, raftErr   error
}

// begin starts f on a goroutine counted in g; false once closed.
func (b *background) begin(g *sync.WaitGroup, f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		g.Go(f)
	}
	return !b.closed
}

// refuse lets nothing start any more.
func (b *background) refuse() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// Result is the outcome of an applied command.
type Result struct {
	Index uint64 // Raft index of the entry
}

// Topic returns the view of a topic: one map load, no lock, no database.
func (s *Store) Topic(name string) (*model.TopicView, bool) { return s.fsm.catalog.topic(name) }

// Range calls f with every topic, in no order, until it returns false. Topics
// that change meanwhile may or may not be seen.
func (s *Store) Range(f func(*model.TopicView) bool) { s.fsm.catalog.forEach(f) }

// ListTopics returns up to limit topics whose names follow after, in byte order,
// and whether another one follows them (spec/http-api section 8.2).
func (s *Store) ListTopics(after string, limit int) (page []*model.TopicView, more bool) {
	names := s.fsm.catalog.sortedNames()
	i, found := slices.BinarySearch(names, after)
	if found {
		i++
	}
	for ; i < len(names); i++ {
		v, ok := s.Topic(names[i])
		if !ok {
			continue // deleted since the names were sorted
		}
		if len(page) >= limit {
			return page, true
		}
		page = append(page, v)
	}
	return page, false
}

// NameTaken returns the topic whose name is this one, or differs from it only by
// letter case.
func (s *Store) NameTaken(name string) (existing string, ok bool) {
	return s.fsm.catalog.nameTaken(name)
}

// Members returns the member records, ascending by id; the slice is shared.
func (s *Store) Members() []model.Member { return *s.fsm.catalog.members.Load() }

// OwnedPartitions is how many partitions a member owns.
func (s *Store) OwnedPartitions(member string) int { return s.fsm.catalog.ownedBy(member) }

// Subscribe calls f with every topic that changed, in the order of the changes, on
// one goroutine of the store; v is the view at the time of the call, nil when the
// topic is gone. Changes of one topic that pile up are told once, so a delete and
// recreate may show as another incarnation only. f must not block for long: later
// subscribers wait.
func (s *Store) Subscribe(f func(name string, v *model.TopicView)) (cancel func()) {
	return s.fsm.catalog.notify.subscribe(func(name string) {
		v, _ := s.Topic(name)
		f(name, v)
	})
}

// Schemas reads a topic's schema history; version n is at index n-1.
func (s *Store) Schemas(topic string) (history [][]byte, err error) {
	err = s.fsm.view(func(tx *bbolt.Tx) (err error) {
		history, err = readSchemas(tx, topic)
		return err
	})
	return history, err
}

// LatestSchema reads the newest schema version of a topic and nothing of the older
// ones; version 0 is a topic without schema.
func (s *Store) LatestSchema(topic string) (doc []byte, version int, err error) {
	err = s.fsm.view(func(tx *bbolt.Tx) error {
		if version = latestSchema(tx, topic); version > 0 {
			doc = bytes.Clone(tx.Bucket(bucketSchemas).Get(numbered(topic, version)))
		}
		return nil
	})
	return doc, version, err
}

// SchemaBytes is what the versions of a topic, and of all topics, add up to.
func (s *Store) SchemaBytes(topic string) (ofTopic, ofCluster int64, err error) {
	err = s.fsm.view(func(tx *bbolt.Tx) (err error) {
		ofTopic, err = schemaSize(tx, topic)
		return err
	})
	return ofTopic, s.fsm.catalog.schemaBytes.Load(), err
}

// Propose commits a command and returns once this node's replica shows it. A
// refusal of the state machine is the command's sentinel (model.ErrTopicExists and
// so on). ErrUnavailable alone means nothing was written; together with
// ErrOutcomeUnknown the change may still be applied.
//
// A node that does not lead has the leader commit the command, and waits up to 3 s
// for its own replica to show it. An entry type that some member does not apply yet
// is proposed as the older entries it falls back to, after the same checks on this
// replica; one without older entries is refused with ErrHeldBack.
func (s *Store) Propose(ctx context.Context, c Command) (Result, error) {
	if err := s.fsm.stopErr(); err != nil {
		return Result{}, err
	}
	if s.self.Forwarder != nil && !s.IsLeader() {
		return s.forward(ctx, c)
	}
	return s.Accept(ctx, c)
}

func (s *Store) propose(ctx context.Context, c Command) (Result, error) {
	b, err := encodeEntry(c)
	if err != nil {
		return Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("%w: %w", model.ErrUnavailable, err)
	}
	var future raft.ApplyFuture
	if err := s.await(ctx, func() raft.Future { future = s.raft.Apply(b, enqueueTimeout); return future }); err != nil {
		return Result{}, err
	}
	out, ok := future.Response().(outcome)
	switch {
	case !ok: // only an entry that was held already has no outcome
		return Result{Index: future.Index()}, nil
	case errors.Is(out.err, ErrStopped):
		return Result{}, unknownOutcome(out.err)
	}
	return Result{Index: out.index}, out.err
}

// Bounds of waiting for Raft.
const (
	enqueueTimeout = 5 * time.Second // for room in Raft's queue
	configTimeout  = 5 * time.Second // the same, for a change of the configuration
	barrierTimeout = 5 * time.Second // spec: barrier timeout
	drainTimeout   = 5 * time.Second // for what is in flight when Raft shuts down
)

// await asks Raft for something and waits for its answer, or for ctx. Errors are
// ErrUnavailable, with ErrOutcomeUnknown unless nothing was appended for certain.
// What ask stores may be read only after nil.
func (s *Store) await(ctx context.Context, ask func() raft.Future) error {
	answered := make(chan error, 1)
	if !s.begin(&s.inflight, func() { answered <- ask().Error() }) {
		return fmt.Errorf("%w: %w", model.ErrUnavailable, model.ErrShuttingDown)
	}
	select {
	case err := <-answered:
		return raftError(err)
	case <-s.down:
		return unknownOutcome(model.ErrShuttingDown)
	case <-ctx.Done():
		return unknownOutcome(ctx.Err())
	}
}

func raftError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w: %w", model.ErrUnavailable, err)
	}
	return unknownOutcome(err)
}

func unknownOutcome(cause error) error {
	return fmt.Errorf("%w: %w: %w", model.ErrUnavailable, model.ErrOutcomeUnknown, cause)
}

// Done is closed when the node stopped applying entries (an entry type it does not
// know, a write its disk refuses): the process must exit non-zero. Err says why.
func (s *Store) Done() <-chan struct{} { return s.done }

// Err is why the node stopped applying entries, nil while it applies.
func (s *Store) Err() error { return s.fsm.stopErr() }

// Close stops Raft and closes every file. It is idempotent.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.quit)
		err := s.stopRaft()
		s.wg.Wait()
		if s.collector != nil {
			s.self.Registry.Unregister(s.collector)
		}
		s.closeErr = errors.Join(err, s.logs.Close(), s.fsm.close())
	})
	return s.closeErr
}

// stopRaft shuts down whatever startRaft got to start, and waits for it. Raft never
// answers a future that its queues still hold when it shuts down, so what is in
// flight is let through first: a leader answers it within a commit, or within its
// lease once it cannot.
func (s *Store) stopRaft() error {
	s.raftOnce.Do(func() {
		defer close(s.down)
		s.refuse()
		switch {
		case s.raft != nil:
			s.drain()
			stopped := s.raft.Shutdown()
			s.transport.hangUp()
			s.stream.hangUp()
			s.raftErr = stopped.Error() // closes the transport too
		case s.transport != nil:
			s.raftErr = s.transport.Close()
		}
	})
	return s.raftErr
}

func (s *Store) drain() {
	drained := make(chan struct{})
	go func() { s.inflight.Wait(); close(drained) }()
	timer := s.clock.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C():
		s.log.Error("metastore: raft did not answer what was in flight; shutting it down all the same")
	}
}
