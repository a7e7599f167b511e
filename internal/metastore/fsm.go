package metastore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
)

// Retries of a write the disk refuses (spec/operations section 5, fail-stop).
const (
	writeRetryFirst  = 100 * time.Millisecond
	writeRetryMax    = 5 * time.Second
	writeRetryBudget = 30 * time.Second
)

// ErrStopped: this node stopped applying entries and must be restarted. It is an
// ErrUnavailable for every caller.
var ErrStopped = fmt.Errorf("%w: the metastore stopped applying raft entries", model.ErrUnavailable)

// fsm is the state machine Raft drives. Its Raft methods run on one goroutine,
// Raft's, which alone writes the database and swaps it.
type fsm struct {
	dir     string
	build   string
	clock   clock.Clock
	log     *slog.Logger
	metrics *metrics
	catalog *catalog
	quit    chan struct{} // closed by Close: ends a retry

	dbMu sync.RWMutex // guards db against a swap; held by readers for their transaction
	db   *bbolt.DB

	// update runs one synced transaction on db; a field so that a test can be the
	// disk that refuses.
	update func(func(*bbolt.Tx) error) error

	knows  EntryType     // newest entry type this node applies
	newest atomic.Uint32 // newest entry type the database has applied
	rows   uint64        // what all rows add up to; Raft's goroutine only
	handed uint64        // newest index Raft handed over since the start; Raft's goroutine only
	progress
	halt
}

// halt is the end of applying.
type halt struct {
	stopOnce sync.Once
	stopped  chan struct{} // closed once err is set
	err      error
}

// outcome is the response to one entry: nil or a refusal once the entry counts as
// applied, otherwise an ErrStopped.
type outcome struct {
	index uint64
	err   error
}

// pending is one entry of a batch on its way into a transaction.
type pending struct {
	slot  int // in the batch
	index uint64
	cmd   Command // nil = undecodable, only its index is recorded
	err   error   // of the decoding
}

// Apply implements raft.FSM.
func (f *fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM: all entries of a batch share one
// transaction, so that concurrent proposals share its sync.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	if f.stopErr() != nil {
		return f.fail(out, logs, 0)
	}
	todo, unknown := f.prepare(logs)
	if len(todo) > 0 {
		if err := f.writeRetrying(todo, out); err != nil {
			last := todo[len(todo)-1]
			f.stop("storage", last.index, entryTypeOf(last.cmd), err)
			return f.fail(out, logs, todo[0].slot)
		}
	}
	if unknown < len(logs) {
		_, err := decodeEntry(logs[unknown].Data, f.knows)
		f.stop("unknown_entry_type", logs[unknown].Index, EntryType(logs[unknown].Data[0]), err)
		return f.fail(out, logs, unknown)
	}
	if len(logs) > 0 {
		f.handed = logs[len(logs)-1].Index
	}
	return out
}

// prepare decodes the entries that are not held yet, up to the first one of an
// unknown type, whose place it returns.
func (f *fsm) prepare(logs []*raft.Log) (todo []pending, unknown int) {
	todo = make([]pending, 0, len(logs))
	for i, l := range logs {
		if l.Type != raft.LogCommand || l.Index <= f.applied.Load() {
			continue
		}
		cmd, err := decodeEntry(l.Data, f.knows)
		if errors.Is(err, errUnknownType) {
			return todo, i
		}
		if err != nil {
			f.metrics.applyErrors.WithLabelValues("undecodable").Inc()
			f.log.Error("metastore: raft entry does not decode; every node refuses it", "index", l.Index, "err", err)
		}
		todo = append(todo, pending{slot: i, index: l.Index, cmd: cmd, err: err})
	}
	return todo, len(logs)
}

// fail answers every entry from slot on with ErrStopped.
func (f *fsm) fail(out []any, logs []*raft.Log, slot int) []any {
	for i := slot; i < len(logs); i++ {
		out[i] = outcome{index: logs[i].Index, err: ErrStopped}
	}
	return out
}

// writeRetrying is write with the retries of a disk that refuses for a while.
func (f *fsm) writeRetrying(todo []pending, out []any) error {
	deadline := f.clock.Now().Add(writeRetryBudget)
	defer f.metrics.applyStalled.Store(false)
	for wait := writeRetryFirst; ; wait = min(2*wait, writeRetryMax) {
		err := f.write(todo, out)
		if err == nil {
			return nil
		}
		f.metrics.applyErrors.WithLabelValues("storage").Inc()
		if !f.metrics.applyStalled.Swap(true) {
			f.log.Warn("metastore: could not write raft entry; retrying", "index", todo[0].index, "err", err)
		}
		if f.clock.Now().Add(wait).After(deadline) {
			return err
		}
		timer := f.clock.NewTimer(wait)
		select {
		case <-timer.C():
		case <-f.quit:
			timer.Stop()
			return err
		}
	}
}

// write applies the entries in one transaction and, once it is durable, publishes
// the views it changed. Nothing is published, and no outcome set, before.
func (f *fsm) write(todo []pending, out []any) error {
	var t *txn
	var ch changes
	newest := EntryType(f.newest.Load())
	errs := make([]error, len(todo))
	last := todo[len(todo)-1].index
	var size int64
	err := f.update(func(tx *bbolt.Tx) error {
		t = newTxn(tx, f.catalog)
		for i, p := range todo {
			if p.cmd == nil {
				errs[i] = p.err
				continue
			}
			newest = max(newest, p.cmd.Type())
			err := p.cmd.apply(t)
			var r *refusal
			if err != nil && !errors.As(err, &r) {
				return fmt.Errorf("apply %s at index %d: %w", p.cmd.Type(), p.index, err)
			}
			errs[i] = err
		}
		var err error
		if ch, err = t.changes(); err != nil {
			return err
		}
		size = tx.Size()
		return writeFSMMeta(tx, fsmMeta{newest: newest, index: last, rows: f.rows + t.rowSum})
	})
	if err != nil {
		return err
	}
	f.newest.Store(uint32(newest))
	f.rows += t.rowSum
	f.metrics.fsmBytes.Store(size)
	f.catalog.publish(ch)
	f.progress.set(last) // after the views: who waits for the index reads them
	for i, p := range todo {
		out[p.slot] = outcome{index: p.index, err: errs[i]}
	}
	return nil
}

func entryTypeOf(c Command) EntryType {
	if c == nil {
		return 0
	}
	return c.Type()
}

// stop ends applying for good: the entry is not counted as applied, so a restart
// meets it again. The Store shuts Raft down when stopped closes.
func (f *fsm) stop(kind string, index uint64, t EntryType, cause error) {
	f.stopOnce.Do(func() {
		select {
		case <-f.quit: // shutting down in the middle of a retry is not a failure
		default:
			if kind != "storage" {
				f.metrics.applyErrors.WithLabelValues(kind).Inc()
			}
			f.log.LogAttrs(context.Background(), slog.LevelError, "metastore: stopped applying raft entries",
				slog.Uint64("index", index), slog.Int("entry_type", int(t)), slog.String("build", f.build), slog.Any("error", cause))
		}
		f.metrics.applyStopped.Store(true)
		f.err = fmt.Errorf("%w at index %d: %w", ErrStopped, index, cause)
		close(f.stopped)
	})
}

// stopErr is nil while the node applies entries.
func (f *fsm) stopErr() error {
	select {
	case <-f.stopped:
		return f.err
	default:
		return nil
	}
}

// view runs a read transaction on the current database.
func (f *fsm) view(fn func(*bbolt.Tx) error) error {
	f.dbMu.RLock()
	defer f.dbMu.RUnlock()
	return f.db.View(fn)
}

// commit is update on the real database.
func (f *fsm) commit(fn func(*bbolt.Tx) error) error { return f.db.Update(fn) }

func (f *fsm) close() error {
	f.dbMu.Lock()
	defer f.dbMu.Unlock()
	return f.db.Close()
}
