package load

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// The figures of TestIdleTopicsCostNothing.
const (
	idleTopics  = 10_000
	idleStart   = 3 * time.Second // from exec to ready
	idleMemory  = 150 << 20
	idleWindow  = 5 * time.Second
	idleShare   = 0.01 // of one core
	idleWorkers = 32
)

func idleName(i int) string { return fmt.Sprintf("idle-%05d", i) }

// each calls f for every idle topic, several at once.
func each(t *testing.T, f func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range idleWorkers {
		wg.Go(func() {
			for i := w; i < idleTopics && !t.Failed(); i += idleWorkers {
				if err := f(i); err != nil {
					t.Errorf("topic %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// figures starts the node and holds it to the figures of idle topics.
func figures(t *testing.T, node *testutil.Node, what string) {
	t.Helper()
	began := time.Now()
	node.Start()
	took := time.Since(began)
	p := processOf(t, node)
	booted := p.rss()
	used := p.cpuOver(idleWindow)
	share := used.Seconds() / idleWindow.Seconds()
	t.Logf("%s: ready after %v, %s resident at boot and %s later, %.2f %% of a core over %v, %d descriptors",
		what, took.Round(time.Millisecond), mib(booted), mib(p.rss()), 100*share, idleWindow, p.files())
	if took >= idleStart {
		t.Errorf("%s: ready after %v, want less than %v", what, took, idleStart)
	}
	if rss := max(booted, p.rss()); rss >= idleMemory {
		t.Errorf("%s: %s resident, want less than %s", what, mib(rss), mib(idleMemory))
	}
	if share >= idleShare {
		t.Errorf("%s: %.2f %% of a core while idle, want less than %.0f %%", what, 100*share, 100*idleShare)
	}
}

// volume is a directory in memory where one can be mounted: most of the test's time
// would be the syncs that make ten thousand partitions.
func volume(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		testutil.SmallVolume(t, dir, 1<<30)
	}
	return dir
}

func stop(t *testing.T, node *testutil.Node) {
	t.Helper()
	began := time.Now()
	if code := node.Stop(); code != 0 {
		t.Fatalf("stop: exit code %d", code)
	}
	t.Logf("stopped after %v", time.Since(began).Round(time.Millisecond))
}

// O12: ten thousand topics that nobody uses cost a node little at start and nothing
// after it, whether they never held a message or each holds one.
func TestIdleTopicsCostNothing(t *testing.T) {
	needLinux(t)
	needFiles(t, idleTopics+1000)
	node := testutil.NewNode(t, volume(t))
	node.Start()
	c := node.Client(client.WithIdleConnections(idleWorkers))
	began := time.Now()
	each(t, func(i int) error {
		_, err := c.CreateTopic(t.Context(), client.CreateTopic{Name: idleName(i)})
		return err
	})
	t.Logf("%d topics created in %v, %s resident", idleTopics, time.Since(began).Round(time.Millisecond), mib(processOf(t, node).rss()))
	stop(t, node)
	figures(t, node, "topics without a message")

	c = node.Client(client.WithIdleConnections(idleWorkers))
	each(t, func(i int) error {
		return c.Produce(t.Context(), idleName(i), client.Message{Payload: []byte(`1`)})
	})
	testutil.Eventually(t, patience, func() bool {
		v, ok := node.Metric("narad_ingress_dispatch_backlog_records")
		return ok && v == 0
	}, "every message to be in its partition")
	p := processOf(t, node)
	t.Logf("each topic with a message: %s resident, %d descriptors", mib(p.rss()), p.files())
	stop(t, node)
	dirs, err := filepath.Glob(filepath.Join(node.Dir, "topics", "*", "p*"))
	if err != nil || len(dirs) != idleTopics {
		t.Errorf("%d partition directories, want %d: %v", len(dirs), idleTopics, err)
	}
	figures(t, node, "topics with a message each")

	node.Kill() // nothing was written since: the next start has nothing to recover
	figures(t, node, "after a kill")
}
