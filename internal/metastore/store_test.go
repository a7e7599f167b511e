package metastore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/narad-mq/narad/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openStore(t testing.TB, dir string, edit ...func(*Options)) *Store {
	t.Helper()
	o := Options{Dir: dir, NodeID: "narad-0", BindAddr: "127.0.0.1:0", APIAddr: "127.0.0.1:7942", Build: "test", TrailingLogs: DefaultTrailingLogs}
	for _, f := range edit {
		f(&o)
	}
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		t.Fatalf("not ready: %v", err)
	}
	return s
}

func topicNamed(name string, partitions int) model.Topic {
	return model.Topic{
		Name: name, ID: model.NewIncarnation(), Partitions: partitions, RetentionMS: 604_800_000,
		VisibilityTimeoutMS: 30_000, MaxInFlight: 1024, MaxAckedAhead: 1024, CreatedAt: 1_700_000_000,
	}
}

func ownersOf(node string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = node
	}
	return out
}

func create(name string) CreateTopic {
	return CreateTopic{Topic: topicNamed(name, 3), Owners: ownersOf("narad-0", 3)}
}

func mustPropose(t testing.TB, s *Store, c Command) Result {
	t.Helper()
	r, err := s.Propose(context.Background(), c)
	if err != nil {
		t.Fatalf("%s: %v", c.Type(), err)
	}
	return r
}

func TestSmokeTiming(t *testing.T) {
	dir := t.TempDir()
	start := time.Now()
	s := openStore(t, dir)
	t.Logf("fresh ready in %s", time.Since(start))
	start = time.Now()
	var wg sync.WaitGroup
	const n = 10_000
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < n; i += 64 {
				if _, err := s.Propose(context.Background(), create(fmt.Sprintf("topic-%05d", i))); err != nil {
					t.Errorf("create: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d creates in %s", n, time.Since(start))
	s.Close()
	start = time.Now()
	s = openStore(t, dir)
	t.Logf("restart ready in %s", time.Since(start))
	if got := len(s.Members()); got != 1 {
		t.Fatal(got)
	}
}
