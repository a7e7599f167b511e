package nodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

// settleMax bounds every wait of the staged tests.
const settleMax = 30 * time.Second

// trio is three metastores over real Raft. The staged tests look at the last of them:
// its metastore is put back to what it was some time ago, as by a snapshot restored after a
// crash, while its other files are of today.
type trio struct {
	t     *testing.T
	dirs  [3]string
	mu    sync.Mutex // guards what follows
	store [3]*metastore.Store
}

// subject is the node the staged tests are about.
const subject = 2

func newTrio(t *testing.T) *trio {
	c := &trio{t: t}
	for i := range c.dirs {
		c.dirs[i] = t.TempDir()
	}
	for i := range c.dirs {
		c.start(i)
	}
	for i := range c.dirs {
		s := c.running(i)
		testutil.Eventually(t, settleMax, func() bool { return s.Heartbeat(t.Context()) == nil }, nodeID(i)+" registers")
	}
	c.current(subject)
	return c
}

func nodeID(i int) string { return fmt.Sprintf("n%d", i) }

func raftAddr(i int) string { return nodeID(i) + ":7943" }

func (c *trio) running(i int) *metastore.Store {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.store[i]
}

func (c *trio) start(i int) *metastore.Store {
	c.t.Helper()
	var servers []metastore.Server
	for j := range c.dirs {
		servers = append(servers, metastore.Server{ID: nodeID(j), Addr: raftAddr(j), Voter: true})
	}
	s, err := metastore.Open(c.t.Context(), metastore.Options{
		Dir: filepath.Join(c.dirs[i], "metastore"), NodeID: nodeID(i), BindAddr: "127.0.0.1:0", Advertise: raftAddr(i), APIAddr: nodeID(i) + ":7942",
		Initial: servers, Forwarder: c, Reader: c, Dial: c.dial, TrailingLogs: metastore.DefaultTrailingLogs,
		Tune: func(conf *raft.Config) {
			conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = 300*time.Millisecond, 300*time.Millisecond, 200*time.Millisecond
			conf.CommitTimeout = 10 * time.Millisecond
		},
	})
	must(c.t, err)
	c.t.Cleanup(func() { s.Close() })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store[i] = s
	return s
}

func (c *trio) stop(i int) {
	c.t.Helper()
	c.mu.Lock()
	s := c.store[i]
	c.store[i] = nil
	c.mu.Unlock()
	must(c.t, s.Close())
}

// alone starts the subject with nobody to talk to.
func (c *trio) alone() *metastore.Store {
	c.stop(0)
	c.stop(1)
	return c.start(subject)
}

// reunite starts the others and waits until the subject is current.
func (c *trio) reunite() {
	c.start(0)
	c.start(1)
	c.current(subject)
}

func (c *trio) current(i int) {
	c.t.Helper()
	s := c.running(i)
	testutil.Eventually(c.t, settleMax, func() bool { return s.CaughtUp() && s.AppliedCaughtUp() == nil }, nodeID(i)+" is current")
}

// do commits a change, wherever the leader is, and waits until the subject shows it.
func (c *trio) do(cmd metastore.Command) {
	c.t.Helper()
	testutil.Eventually(c.t, settleMax, func() bool {
		s := c.running(0)
		_, err := s.Propose(c.t.Context(), cmd)
		if err != nil && !errors.Is(err, model.ErrUnavailable) {
			c.t.Fatalf("%s: %v", cmd.Type(), err)
		}
		return err == nil
	}, cmd.Type().String())
	if s := c.running(subject); s != nil {
		testutil.Eventually(c.t, settleMax, func() bool { return s.Settle(c.t.Context()) == nil }, "the subject applies it")
	}
}

func (c *trio) create(name string, id model.Incarnation, owner string) {
	c.t.Helper()
	c.do(metastore.CreateTopic{Topic: model.Topic{
		Name: name, ID: id, Partitions: model.PartitionsMin, VisibilityTimeoutMS: 30_000, MaxInFlight: 100, MaxAckedAhead: 100,
	}, Owners: repeat(owner, model.PartitionsMin)})
}

func repeat(s string, n int) (out []string) {
	for range n {
		out = append(out, s)
	}
	return out
}

// saved is a copy of the subject's metastore as it is now.
func (c *trio) saved() string {
	c.t.Helper()
	c.stop(subject)
	copyTo := filepath.Join(c.t.TempDir(), "metastore")
	must(c.t, os.CopyFS(copyTo, os.DirFS(filepath.Join(c.dirs[subject], "metastore"))))
	c.start(subject)
	c.current(subject)
	return copyTo
}

// restore puts the subject's metastore back to what was saved; the subject is stopped.
func (c *trio) restore(from string) {
	c.t.Helper()
	dir := filepath.Join(c.dirs[subject], "metastore")
	must(c.t, os.RemoveAll(dir))
	must(c.t, os.CopyFS(dir, os.DirFS(from)))
}

func (c *trio) dial(addr string, timeout time.Duration) (net.Conn, error) {
	for i := range c.dirs {
		if s := c.running(i); raftAddr(i) == addr && s != nil {
			return net.DialTimeout("tcp", s.Listening(), timeout)
		}
	}
	return nil, fmt.Errorf("%s is down", addr)
}

// reach is a node's store as the others reach it; metastore.Forwarder and LinkReader follow.
func (c *trio) reach(id string) (*metastore.Store, error) {
	for i := range c.dirs {
		if s := c.running(i); nodeID(i) == id && s != nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%w: %s is down", model.ErrUnavailable, id)
}

func (c *trio) Propose(ctx context.Context, leader string, cmd metastore.Command) (metastore.Result, error) {
	s, err := c.reach(leader)
	if err != nil {
		return metastore.Result{}, err
	}
	return s.Accept(ctx, cmd)
}

func (c *trio) AppliedIndex(_ context.Context, leader string) (uint64, error) {
	s, err := c.reach(leader)
	if err != nil {
		return 0, err
	}
	return s.LeaderApplied()
}

func (c *trio) Topic(ctx context.Context, leader, name string) (model.Incarnation, bool, error) {
	s, err := c.reach(leader)
	if err != nil {
		return "", false, err
	}
	return s.LeaderTopic(ctx, name)
}

func (c *trio) Link(ctx context.Context, leader, child string) (parent, epoch string, err error) {
	s, err := c.reach(leader)
	if err != nil {
		return "", "", err
	}
	return s.LeaderLink(ctx, child)
}

// open starts a broker on the subject's files, over its present replica.
func (c *trio) open() *broker.Broker {
	c.t.Helper()
	s := c.running(subject)
	b, err := broker.Open(broker.Options{
		FS: disk.OS{}, DataDir: filepath.ToSlash(c.dirs[subject]), Node: nodeID(subject), Topics: s, Clock: clock.Real(),
		Logger: slog.New(slog.DiscardHandler), CaughtUp: s.CaughtUp,
	})
	must(c.t, err)
	c.t.Cleanup(func() { _ = b.Close() })
	return b
}

// commit stores records in partition 0.
func commit(t *testing.T, b *broker.Broker, topic string, id model.Incarnation, payloads ...string) {
	t.Helper()
	var recs []model.Record
	for _, p := range payloads {
		recs = append(recs, model.Record{Payload: []byte(p), Incarnation: id})
	}
	_, err := b.Commit(t.Context(), topic, 0, recs)
	must(t, err)
}

// held is what partition 0 holds.
func held(t *testing.T, b *broker.Broker, topic string, id model.Incarnation) (payloads []string) {
	t.Helper()
	s, err := b.Slab(topic, id, 0, nil, 0, commitlog.SlabLimit{MaxRecords: 1000, MaxBytes: 1 << 20})
	must(t, err)
	for _, r := range s.Records {
		payloads = append(payloads, string(r.Payload))
	}
	return payloads
}

// topicDirs are the directories of the subject's topics.
func (c *trio) topicDirs() (names []string) {
	c.t.Helper()
	entries, err := os.ReadDir(path.Join(filepath.ToSlash(c.dirs[subject]), "topics"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
