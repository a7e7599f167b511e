package metastore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
	narad "github.com/narad-mq/narad/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const node = "narad-0"

func testOptions(dir string) Options {
	return Options{
		Dir: dir, NodeID: node, BindAddr: "127.0.0.1:0", APIAddr: "127.0.0.1:7942", Build: "test", TrailingLogs: DefaultTrailingLogs,
	}
}

// openStore opens a store on a real volume and waits until it is ready.
func openStore(t testing.TB, dir string, edit ...func(*Options)) *Store {
	t.Helper()
	o := testOptions(dir)
	for _, f := range edit {
		f(&o)
	}
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	waitReady(t, s)
	return s
}

func waitReady(t testing.TB, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		t.Fatalf("not ready: %v", err)
	}
}

func topicNamed(name string, partitions int) model.Topic {
	return model.Topic{
		Name: name, ID: model.NewIncarnation(), Partitions: partitions, RetentionMS: 604_800_000,
		VisibilityTimeoutMS: 30_000, MaxInFlight: 1024, MaxAckedAhead: 1024, CreatedAt: 1_700_000_000,
	}
}

func create(name string) CreateTopic {
	return CreateTopic{Topic: topicNamed(name, 3), Owners: []string{node, node, node}}
}

func mustPropose(t testing.TB, s *Store, c Command) Result {
	t.Helper()
	r, err := s.Propose(context.Background(), c)
	if err != nil {
		t.Fatalf("%s: %v", c.Type(), err)
	}
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// machine is a state machine without Raft, on a real database.
type machine struct {
	*fsm
	t    testing.TB
	next uint64
}

func newMachine(t testing.TB, dir string) *machine {
	t.Helper()
	f, err := openMachine(Options{Dir: dir, NodeID: node, Build: "test", Clock: clock.Real(), Logger: telemetry.Discard()})
	must(t, err)
	t.Cleanup(func() {
		sameRows(t, f)
		f.close()
	})
	return &machine{fsm: f, t: t, next: f.applied.Load() + 1}
}

// sameRows checks that every write kept the sum of the rows.
func sameRows(t testing.TB, f *fsm) {
	_ = f.view(func(tx *bbolt.Tx) error { // fails once the database was closed
		if sum, err := sumRows(tx); err != nil || sum != f.rows {
			t.Errorf("rows add up to %x, kept is %x, %v", sum, f.rows, err)
		}
		return nil
	})
}

// logOf makes the next log entry; it is not applied.
func (m *machine) logOf(c Command) *raft.Log {
	b, err := encodeEntry(c)
	must(m.t, err)
	l := &raft.Log{Index: m.next, Term: 1, Type: raft.LogCommand, Data: b}
	m.next++
	return l
}

// do applies one command and returns its refusal.
func (m *machine) do(c Command) error {
	m.t.Helper()
	return m.Apply(m.logOf(c)).(outcome).err
}

func (m *machine) ok(cs ...Command) {
	m.t.Helper()
	for _, c := range cs {
		if err := m.do(c); err != nil {
			m.t.Fatalf("%s %+v: %v", c.Type(), c, err)
		}
	}
}

// hash sums the data buckets, without the bookkeeping.
func (m *machine) hash() string {
	m.t.Helper()
	return hashOf(m.t, m.fsm)
}

func hashOf(t testing.TB, f *fsm) string {
	t.Helper()
	h := sha256.New()
	must(t, f.view(func(tx *bbolt.Tx) error {
		for _, name := range dataBuckets {
			fmt.Fprintf(h, "[%s]", name)
			if err := tx.Bucket(name).ForEach(func(k, v []byte) error {
				fmt.Fprintf(h, "%q=%q;", k, v)
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	}))
	return fmt.Sprintf("%x", h.Sum(nil))
}

// sameViews compares the catalog with one rebuilt from the database.
func (m *machine) sameViews() {
	m.t.Helper()
	must(m.t, m.db.View(func(tx *bbolt.Tx) error {
		ch, err := readAll(tx, m.catalog)
		if err != nil {
			return err
		}
		n := 0
		m.catalog.forEach(func(v *model.TopicView) bool {
			n++
			plain := *v // without the counters, which no database holds
			if want := ch.topics[v.Name]; want != nil {
				plain.Versions = want.Versions
			}
			if want := ch.topics[v.Name]; want == nil || !reflect.DeepEqual(*want, plain) {
				m.t.Errorf("view of %q is %+v, the database says %+v", v.Name, v, want)
			}
			return true
		})
		if n != len(ch.topics) {
			m.t.Errorf("%d views, %d topics in the database", n, len(ch.topics))
		}
		if got := fmt.Sprint(*m.catalog.members.Load()); got != fmt.Sprint(ch.members) {
			m.t.Errorf("members %s, the database says %v", got, ch.members)
		}
		if got := m.catalog.schemaBytes.Load(); got != ch.schemaBytes {
			m.t.Errorf("%d bytes of schemas counted, the database holds %d", got, ch.schemaBytes)
		}
		owned := map[string]int{}
		for _, v := range ch.topics {
			for _, id := range v.Owners {
				if id != "" {
					owned[id]++
				}
			}
		}
		if fmt.Sprint(owned) != fmt.Sprint(m.catalog.owned) {
			m.t.Errorf("owned counts %v, want %v", m.catalog.owned, owned)
		}
		return nil
	}))
}

// syncBuffer is a buffer a logger writes while a test reads.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// waitTimers waits until n timers of a fake clock are armed.
func waitTimers(t testing.TB, clk *clock.Fake, n int) {
	t.Helper()
	narad.Eventually(t, testWait, func() bool { return clk.Timers() == n }, "the timer to be armed")
}

// snapshots is the snapshot store of a store that is closed.
func (s *Store) snapshots(t testing.TB) *raft.FileSnapshotStore {
	t.Helper()
	snaps, err := raft.NewFileSnapshotStoreWithLogger(s.self.Dir, snapshotsKept, newRaftLogger(telemetry.Discard()))
	must(t, err)
	return snaps
}

// commandAt is the command of a log entry, nil when it is none.
func commandAt(t testing.TB, s *Store, index uint64) Command {
	t.Helper()
	var l raft.Log
	must(t, s.logs.GetLog(index, &l))
	if l.Type != raft.LogCommand {
		return nil
	}
	c, err := decodeEntry(l.Data, NewestType)
	must(t, err)
	return c
}
