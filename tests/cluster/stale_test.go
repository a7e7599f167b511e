package cluster

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
	"github.com/narad-mq/narad/tests/ledger"
)

// snapshots makes nodes take snapshots of their metadata often and keep little log
// beside them.
var snapshots = []string{
	"NARAD_CLUSTER_RAFT_SNAPSHOT_THRESHOLD=20",
	"NARAD_CLUSTER_RAFT_SNAPSHOT_INTERVAL=1s",
	"NARAD_CLUSTER_RAFT_TRAILING_LOGS=20",
}

// wholeLog goes after snapshots: an old state can be brought up to date from the log.
const wholeLog = "NARAD_CLUSTER_RAFT_TRAILING_LOGS=10000"

// lateBy is the delay of the child whose backlog a bad start could skip.
const lateBy = 6 * time.Second

func metastore(n *node) string { return filepath.Join(n.Dir, "metastore") }

// copyOf is a copy of a stopped node's metadata.
func (c *cluster) copyOf(n *node) string {
	c.t.Helper()
	to := filepath.Join(c.t.TempDir(), "metastore")
	if err := os.CopyFS(to, os.DirFS(metastore(n))); err != nil {
		c.t.Fatal(err)
	}
	return to
}

// putBack replaces a stopped node's metadata by a copy, whole or the parts named.
func (c *cluster) putBack(n *node, from string, parts ...string) {
	c.t.Helper()
	if len(parts) == 0 {
		parts = []string{"."}
	}
	for _, part := range parts {
		at, from := filepath.Join(metastore(n), part), filepath.Join(from, part)
		err := os.RemoveAll(at)
		if info, e := os.Stat(from); err == nil && e == nil && info.IsDir() {
			err = os.CopyFS(at, os.DirFS(from))
		} else if err == nil && e == nil {
			var b []byte
			if b, err = os.ReadFile(from); err == nil {
				err = os.WriteFile(at, b, 0o600)
			}
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

// topicFiles are the topic files a node has: segments, markers, cursors. Nothing of it
// may go because of what the node believes.
func (c *cluster) topicFiles(n *node) (names []string) {
	c.t.Helper()
	root := filepath.Join(n.Dir, "topics")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasSuffix(path, ".tmp") {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return names
}

// keeps checks that the node still has these files (O13).
func (c *cluster) keeps(n *node, files []string) {
	c.t.Helper()
	for _, f := range files {
		if _, err := os.Stat(f); err != nil {
			c.t.Errorf("O13: %s lost a file: %v", n.ID, err)
		}
	}
}

// manyTopics makes topics, so that there is a log to replay.
func (c *cluster) manyTopics(n int) {
	c.t.Helper()
	var wg sync.WaitGroup
	for w := range 4 {
		cl := c.living()[w%len(c.living())].client()
		wg.Go(func() {
			for i := w; i < n; i += 4 {
				if _, err := cl.CreateTopic(c.t.Context(), client.CreateTopic{Name: fmt.Sprintf("many-%d", i)}); err != nil {
					c.t.Errorf("topic %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
}

// staleLoad is a cluster whose node will come back with old metadata: a topic with a
// delay child that was attached anew since, and a topic made since.
type staleLoad struct {
	c             *cluster
	victim        *node
	old           string // copy of the victim's old metadata
	orders, young *load
	files         []string // topic files of the victim at its death
}

// newStaleLoad forms the cluster, copies the victim's metadata, and then changes what
// the metadata says.
func newStaleLoad(t *testing.T, env ...string) *staleLoad {
	c := form(t, 3, append(slices.Clone(snapshots), env...)...)
	s := &staleLoad{c: c, victim: c.initial[2]}
	s.orders = c.newLoad("orders", 6, client.CreateTopic{Name: "orders-late", FanoutDelayMS: lateBy.Milliseconds()})
	c.agree()
	over := c.stop(s.victim)
	s.old = c.copyOf(s.victim)
	c.revive(over, s.victim)
	cl := c.leader().client()
	if err := cl.Detach(t.Context(), "orders", "orders-late"); err != nil {
		t.Fatal(err)
	}
	s.between(cl)
	if _, err := cl.Attach(t.Context(), "orders", "orders-late", lateBy); err != nil {
		t.Fatal(err)
	}
	s.young = c.newLoad("young", 6)
	c.manyTopics(rounds(60, 400))
	c.agree()
	s.orders.run(c.initial...)
	s.young.run(c.initial...)
	s.orders.through("before")
	s.young.through("before")
	return s
}

// between sends messages while the child is detached: it must never have them, and would
// by a cursor that began where the attachment before began (O7).
func (s *staleLoad) between(cl *client.Client) {
	s.c.t.Helper()
	book := s.orders.paths["orders"]
	for i := range 60 {
		id := fmt.Sprint("between-", i)
		payload := book.Sending(id, ledger.BodyMin)
		err := cl.Produce(s.c.t.Context(), "orders", client.Message{Payload: payload, Pin: client.Partition(i % 6)})
		book.Answered(err, id)
		if err != nil {
			s.c.t.Fatal(err)
		}
	}
	testutil.Eventually(s.c.t, patience, func() bool { // committed before the child is attached again
		d, err := cl.DescribeTopic(s.c.t.Context(), "orders")
		if err != nil {
			return false
		}
		var stored int64
		for _, p := range d.PartitionStats {
			stored += p.HighWatermark
		}
		return stored == 60
	}, "the messages between to be committed")
}

// others are the initial members but one.
func (c *cluster) others(n *node) []*node {
	return slices.DeleteFunc(slices.Clone(c.initial), func(m *node) bool { return m == n })
}

// fall kills two nodes under load, lets the victim accept messages nobody takes from it,
// and kills it as well.
func (s *staleLoad) fall() (over func()) {
	c := s.c
	c.agree() // each of the others has all metadata
	first := c.kill(c.others(s.victim)...)
	s.young.through("alone")
	s.orders.through("alone")
	// What it accepted for the others' partitions is in its WAL alone.
	if v, _ := s.victim.metric("narad_ingress_dispatch_backlog_records"); v == 0 {
		c.t.Error("the victim's WAL is empty: the run proves little")
	}
	last := c.kill(s.victim)
	s.files = c.topicFiles(s.victim)
	return all([]func(){first, last})
}

// The first three of the crash recovery bugs, staged: the victim comes back with
// metadata from before a topic was made and a child attached anew, and while nobody can
// tell it better. It deletes no topic directory, discards no accepted record, skips
// nothing of the delay child, and says it is not ready. F28 with O1 O2 O3 O7 O13.
func TestF28OldMetadataDestroysNothing(t *testing.T) {
	s := newStaleLoad(t)
	c := s.c
	for range rounds(1, 5) {
		over := s.fall()
		c.putBack(s.victim, s.old)
		c.launch(s.victim)
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			if s.victim.isReady() {
				t.Fatal("a node with old metadata and without a leader is ready")
			}
			<-time.After(100 * time.Millisecond)
		}
		c.keeps(s.victim, s.files)
		for topic, err := range s.victim.client().Topics(t.Context()) {
			if err != nil || topic.Name == s.young.topic {
				t.Fatalf("the victim knows %q, %v: its metadata is not old", topic.Name, err)
			}
		}
		c.launch(c.others(s.victim)...)
		c.ready(c.initial...)
		over()
		c.keeps(s.victim, s.files)
		s.orders.through("after")
		s.orders.drain()
		s.young.drain()
	}
	c.agree()
}

// The fourth of the bugs, staged: after a double kill the node that wins the election
// has the whole log and a state machine that is behind it. It destroys nothing on what
// it believes before the barrier. F28 with O1 O2 O3 O7 O13.
func TestF28LeaderBehindItsLogDestroysNothing(t *testing.T) {
	needCuts(t)
	s := newStaleLoad(t, wholeLog)
	c := s.c
	other := c.initial[1]
	led := 0
	for range rounds(2, 8) {
		over := s.fall()
		c.putBack(s.victim, s.old, "fsm.db", "snapshots") // the log stays what it was
		mend := c.cut(other, s.victim, raftPlane)         // it can vote, and not ask for votes
		c.launch(s.victim, other)
		c.ready(s.victim)
		if c.leader() == s.victim {
			led++
		}
		mend()
		c.ready(other)
		c.start(c.initial[0])
		over()
		c.keeps(s.victim, s.files)
		s.orders.through("after")
		s.orders.drain()
		s.young.drain()
	}
	if led == 0 {
		t.Error("the node with the old state never led: the run proves nothing")
	}
	c.agree()
}

// F26 with O1 O11 O13: the metadata of one node of three is damaged. It rebuilds from
// the others, or stays out and says why; topic data is deleted nowhere, and with its
// metadata put back the node is as it was.
func TestF26DamagedMetadataOfOne(t *testing.T) {
	c := form(t, 3, snapshots...)
	l := c.newLoad("orders", 6)
	l.run(c.initial...)
	c.manyTopics(30)
	zero := func(name string) func(dir string) error {
		return func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, name), make([]byte, len(b)), 0o600)
		}
	}
	remove := func(name string) func(dir string) error {
		return func(dir string) error { return os.RemoveAll(filepath.Join(dir, name)) }
	}
	for i, d := range []struct {
		name   string
		damage func(dir string) error
	}{
		{"fsm.db zeroed", zero("fsm.db")},
		{"fsm.db removed", remove("fsm.db")},
		{"raft.db zeroed", zero("raft.db")},
		{"snapshots removed", remove("snapshots")},
		{"all removed", remove("")},
	} {
		n := c.initial[i%3]
		l.through(d.name)
		over := c.kill(n)
		files := map[*node][]string{n: c.topicFiles(n)}
		whole := c.copyOf(n)
		if err := d.damage(metastore(n)); err != nil {
			t.Fatalf("%s: %v", d.name, err)
		}
		n.Env = c.environment(n)
		if n.Launch() && c.comesBack(n) {
			t.Logf("%s: rebuilt", d.name)
		} else {
			t.Logf("%s: stays out: %s", d.name, n.LastWords())
			c.keeps(n, files[n])
			c.putBack(n, whole)
			c.launch(n)
		}
		c.ready(n)
		over()
		c.keeps(n, files[n])
		l.drain()
	}
	c.agree()
}

// comesBack reports whether a node becomes ready; otherwise it has ended, by itself or
// here.
func (c *cluster) comesBack(n *node) bool {
	ready := false
	testutil.Eventually(c.t, patience, func() bool {
		ready = n.isReady()
		return ready || n.Ended()
	}, n.ID+" to become ready or to stay out")
	return ready
}
