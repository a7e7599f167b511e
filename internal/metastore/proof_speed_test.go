package metastore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// pausedSink is a snapshot file whose disk has stopped: it says once that the first
// bytes have come, and takes them when it is let go.
type pausedSink struct {
	sink
	begun chan struct{}
	free  chan struct{}
	once  sync.Once
}

func (s *pausedSink) Write(b []byte) (int, error) {
	s.once.Do(func() { close(s.begun) })
	<-s.free
	return len(b), nil
}

// A lookup takes no lock and no memory while a snapshot is written, and neither
// applying nor the reads of the database wait for it.
func TestReadsAndAppliesGoOnDuringASnapshot(t *testing.T) {
	m := newMachine(t, t.TempDir())
	fill(t, m, 500)
	s := &Store{fsm: m.fsm}
	snap, err := m.Snapshot()
	must(t, err)
	defer snap.Release()
	paused := &pausedSink{begun: make(chan struct{}), free: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- snap.Persist(paused) }()
	<-paused.begun
	if n := testing.AllocsPerRun(1000, func() {
		if _, ok := s.Topic("topic-00471"); !ok {
			t.Error("missing")
		}
	}); n != 0 {
		t.Errorf("a lookup allocates %v times", n)
	}
	m.ok(linked("during", idA, schema(1), nil))
	if doc, version, err := s.LatestSchema("during"); err != nil || version != 1 || string(doc) != string(schema(1)) {
		t.Errorf("schema %q, version %d, %v", doc, version, err)
	}
	select {
	case err := <-done:
		t.Errorf("the snapshot ended before its disk went on: %v", err)
	default:
	}
	close(paused.free)
	must(t, <-done)
}

// createConcurrently has n topics created by workers at once.
func createConcurrently(t testing.TB, s *Store, prefix string, n, workers int) {
	t.Helper()
	names := make(chan string)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for name := range names {
				if _, err := s.Propose(context.Background(), create(name)); err != nil {
					t.Errorf("create %s: %v", name, err)
				}
			}
		})
	}
	for i := range n {
		names <- fmt.Sprintf("%s-%06d", prefix, i)
	}
	close(names)
	wg.Wait()
}

// transactions is how many writes fsm.db has seen.
func transactions(t testing.TB, s *Store) (n int) {
	must(t, s.fsm.view(func(tx *bbolt.Tx) error { n = tx.ID(); return nil }))
	return n
}

// Creates that come at once share their syncs: what bounds them is not one sync each.
// How many share one depends on the machine; BenchmarkCreatesBesideTheDisk tells. On one
// processor Raft's loop may run in step with its callers, one entry at a time, whenever a
// sync is over before the scheduler looks: the test gives itself two.
func TestConcurrentCreatesShareSyncs(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	s := openStore(t, t.TempDir())
	const creates = 1000
	before := transactions(t, s)
	createConcurrently(t, s, "topic", creates, 64)
	if took := transactions(t, s) - before; took >= creates {
		t.Errorf("%d creates took %d transactions of fsm.db: none shared one", creates, took)
	}
}

// Creates per second beside the syncs per second of the same disk: the aim is 2,000 a
// second, or what the disk's syncs allow.
func BenchmarkCreatesBesideTheDisk(b *testing.B) {
	dir := b.TempDir()
	file, err := os.Create(filepath.Join(dir, "probe"))
	must(b, err)
	page := make([]byte, 4096)
	const probes = 200
	start := time.Now()
	for range probes {
		if _, err := file.Write(page); err != nil {
			b.Fatal(err)
		}
		must(b, file.Sync())
	}
	syncs := probes / time.Since(start).Seconds()
	must(b, file.Close())
	s := openStore(b, filepath.Join(dir, "metastore"))
	before := transactions(b, s)
	b.ReportAllocs()
	b.ResetTimer()
	createConcurrently(b, s, fmt.Sprintf("n%d", b.N), b.N, 128)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
	b.ReportMetric(float64(b.N)/float64(max(1, transactions(b, s)-before)), "creates/transaction")
	b.ReportMetric(syncs, "syncs/s")
}

// The lookup of the produce path while one snapshot after the other is taken; what
// the snapshots allocate counts here too.
func BenchmarkTopicLookupDuringSnapshots(b *testing.B) {
	m := newMachine(b, b.TempDir())
	fill(b, m, 10_000)
	s := &Store{fsm: m.fsm}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			snap, err := m.Snapshot()
			if err != nil {
				b.Error(err)
				return
			}
			free := make(chan struct{})
			close(free)
			if err := snap.Persist(&pausedSink{begun: make(chan struct{}), free: free}); err != nil {
				b.Error(err)
			}
			snap.Release()
		}
	}()
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		if _, ok := s.Topic("topic-04711"); !ok {
			b.Error("missing")
		}
	}
	b.StopTimer()
	close(stop)
	<-done
}
