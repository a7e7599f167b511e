package metastore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
	narad "github.com/narad-mq/narad/internal/testutil"
)

func TestReadyFast(t *testing.T) {
	best := time.Hour
	var s *Store
	for range 3 { // a busy machine may be slow once; an ordinary election takes 1 s every time
		start := time.Now()
		s = openStore(t, t.TempDir())
		best = min(best, time.Since(start))
	}
	if best > 400*time.Millisecond {
		t.Errorf("ready after %s; the lone voter waited for a leader", best)
	}
	must(t, s.Ready())
	must(t, s.Writable())
	if !s.IsLeader() || !s.CaughtUp() {
		t.Error("ready, but not the leader or not caught up")
	}
	m := s.Members()
	if len(m) != 1 || m[0].ID != node || m[0].Addr != "127.0.0.1:7942" || m[0].Status != model.MemberAlive ||
		m[0].RaftAddr == "" || m[0].EntryTypes != int(NewestType) || m[0].Build != "test" {
		t.Errorf("registered as %+v", m)
	}
}

func TestReadinessTexts(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		id   string
		c    contact
		want string
	}{
		{"H-6", contact{now: now}, "metastore: node is not ready: no raft leader known"},
		{"H-7", contact{hasLeader: true, now: now}, "metastore: node is not ready: no contact with the raft leader yet"},
		{"H-8", contact{hasLeader: true, last: now.Add(-5001 * time.Millisecond), now: now, caughtUp: true}, "metastore: node is not ready: last raft leader contact 5.001s ago"},
		{"H-9", contact{hasLeader: true, last: now.Add(-5 * time.Second), now: now}, "metastore: node is not ready: replica has not caught up with the leader since start"},
		{"H-9 leader", contact{hasLeader: true, leads: true, now: now}, "metastore: node is not ready: replica has not caught up with the leader since start"},
		{"ready follower", contact{hasLeader: true, last: now, now: now, caughtUp: true}, "<nil>"},
		{"ready leader", contact{hasLeader: true, leads: true, now: now, caughtUp: true}, "<nil>"},
	} {
		if got := fmt.Sprint(readiness(c.c)); got != c.want {
			t.Errorf("%s: %q, want %q", c.id, got, c.want)
		}
	}
}

func TestProposeAnswersWithItsEffectVisible(t *testing.T) {
	s := openStore(t, t.TempDir())
	version := s.TopicsVersion()
	r := mustPropose(t, s, create("orders"))
	v, ok := s.Topic("orders")
	if !ok || v.OwnerOf(0) != node || v.OwnerOf(2) != node || v.Role != model.RoleStandalone || r.Index == 0 {
		t.Fatalf("%+v at %d", v, r.Index)
	}
	if s.TopicsVersion() == version {
		t.Error("the version did not move")
	}
	version = s.TopicsVersion()
	if _, err := s.Propose(context.Background(), create("orders")); err == nil || err.Error() != "topic already exists" {
		t.Errorf("refused with %v", err)
	}
	if s.TopicsVersion() != version {
		t.Error("a refusal moved the version")
	}
	if s.OwnedPartitions(node) != 3 {
		t.Errorf("owns %d", s.OwnedPartitions(node))
	}
	mustPropose(t, s, CreateUser{Username: "u", PasswordHash: "h"})
	if u, ok, err := s.User("u"); err != nil || !ok || u.PasswordHash != "h" {
		t.Errorf("%+v %t %v", u, ok, err)
	}
	mustPropose(t, s, PutSchema{Topic: "orders", Version: 1, Schema: schema(1)})
	if h, err := s.Schemas("orders"); err != nil || len(h) != 1 {
		t.Errorf("%q %v", h, err)
	}
}

func TestProposeWithCancelledContext(t *testing.T) {
	s := openStore(t, t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Propose(ctx, create("t")); !errors.Is(err, model.ErrUnavailable) || errors.Is(err, model.ErrOutcomeUnknown) {
		t.Errorf("before anything was written: %v", err)
	}
	if _, ok := s.Topic("t"); ok {
		t.Error("written all the same")
	}
	must(t, s.Close())
	if _, err := s.Propose(context.Background(), create("t")); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("after close: %v", err)
	}
	if _, ok := s.Topic("t"); ok {
		t.Error("written after close")
	}
}

func TestUnknownOutcomeText(t *testing.T) {
	want := "control plane temporarily unavailable: the change may still be applied, read it back before retrying: boom"
	if got := unknownOutcome(errors.New("boom")).Error(); got != want {
		t.Errorf("E-CP2 is %q", got)
	}
}

func TestConfirmGone(t *testing.T) {
	s := openStore(t, t.TempDir())
	mustPropose(t, s, create("t"))
	v, _ := s.Topic("t")
	for _, c := range []struct {
		name string
		id   model.Incarnation
		want Confirmation
	}{
		{"t", v.ID, Live}, {"t", "", Live}, {"t", idA, Gone}, {"other", idA, Gone}, {"other", "", Gone},
	} {
		if got, err := s.ConfirmGone(context.Background(), c.name, c.id); got != c.want || err != nil {
			t.Errorf("%s %q: %s, %v", c.name, c.id, got, err)
		}
	}
	must(t, s.Close())
	if got, err := s.ConfirmGone(context.Background(), "other", idA); got != Unknown || err == nil {
		t.Errorf("without raft: %s, %v", got, err)
	}
}

func TestListTopicsPages(t *testing.T) {
	s := openStore(t, t.TempDir())
	if page, more := s.ListTopics("", 10); len(page) != 0 || more {
		t.Errorf("%v %t", page, more)
	}
	for _, name := range []string{"b", "B", "a-1", "a", "a.b"} {
		mustPropose(t, s, create(name))
	}
	var got []string
	after := ""
	for {
		page, more := s.ListTopics(after, 2)
		for _, v := range page {
			got = append(got, v.Name)
			after = v.Name
		}
		if !more {
			break
		}
	}
	if want := []string{"B", "a", "a-1", "a.b", "b"}; !reflect.DeepEqual(got, want) {
		t.Errorf("bytewise order %v, want %v", got, want)
	}
	if page, more := s.ListTopics("aa", 1); len(page) != 1 || page[0].Name != "b" || more {
		t.Errorf("after a name that is not there: %v %t", page, more)
	}
	if page, _ := s.ListTopics("b", 10); len(page) != 0 {
		t.Errorf("after the last: %v", page)
	}
}

func TestNameTaken(t *testing.T) {
	s := openStore(t, t.TempDir())
	mustPropose(t, s, create("Orders"))
	mustPropose(t, s, create("ORDERS")) // the state machine allows what an older leader let through
	for _, c := range []struct {
		name, existing string
		ok             bool
	}{{"Orders", "Orders", true}, {"ORDERS", "ORDERS", true}, {"orders", "Orders", true}, {"order", "", false}} {
		if got, ok := s.NameTaken(c.name); got != c.existing || ok != c.ok {
			t.Errorf("%s: %q %t", c.name, got, ok)
		}
	}
	mustPropose(t, s, DeleteTopic{Name: "Orders"})
	if got, ok := s.NameTaken("orders"); got != "ORDERS" || !ok {
		t.Errorf("%q %t", got, ok)
	}
	mustPropose(t, s, DeleteTopic{Name: "ORDERS"})
	if _, ok := s.NameTaken("orders"); ok {
		t.Error("taken by nobody")
	}
}

func TestSubscribe(t *testing.T) {
	s := openStore(t, t.TempDir())
	var mu sync.Mutex
	var seen []string
	entered, release := make(chan struct{}), make(chan struct{})
	var first sync.Once
	cancel := s.Subscribe(func(name string, v *model.TopicView) {
		first.Do(func() { close(entered); <-release })
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf("%s %t", name, v != nil))
	})
	mustPropose(t, s, create("a"))
	<-entered // a slow subscriber holds up nobody
	mustPropose(t, s, create("b"))
	mustPropose(t, s, DeleteTopic{Name: "a"})
	mustPropose(t, s, create("c"))
	mustPropose(t, s, DeleteTopic{Name: "c"})
	close(release)
	narad.Eventually(t, testWait, func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == 4 }, "four notices")
	if want := []string{"a true", "b true", "a false", "c false"}; !reflect.DeepEqual(seen, want) {
		t.Errorf("%v, want %v", seen, want)
	}
	cancel()
	mustPropose(t, s, create("d"))
	if len(seen) != 4 {
		t.Errorf("told after cancel: %v", seen)
	}
}

// Snapshots by Raft itself: taken at the threshold, restored when fsm.db is lost,
// not restored when it is not.
func TestRaftSnapshots(t *testing.T) {
	dir := t.TempDir()
	small := func(o *Options) { o.TrailingLogs = 2 }
	s := openStore(t, dir, small)
	for i := range 30 {
		mustPropose(t, s, create(fmt.Sprintf("t%02d", i)))
	}
	must(t, s.raft.Snapshot().Error())
	if s.fsm.metrics.snapshotBytes.Load() == 0 {
		t.Error("the snapshot is not reported")
	}
	mustPropose(t, s, create("tail"))
	must(t, s.Close())
	if first, err := firstLogIndex(dir); err != nil || first <= 1 {
		t.Fatalf("the log begins at %d, %v; want it compacted", first, err)
	}

	lost := copyDir(t, dir)
	must(t, os.Remove(filepath.Join(lost, fsmName)))
	for _, d := range []string{dir, lost} {
		s := openStore(t, d, small)
		page, more := s.ListTopics("", 100)
		if len(page) != 31 || more {
			t.Errorf("%d topics", len(page))
		}
		must(t, s.Close())
	}
}

func firstLogIndex(dir string) (uint64, error) {
	logs, err := openLog(filepath.Join(dir, raftName))
	if err != nil {
		return 0, err
	}
	first, err := logs.FirstIndex()
	return first, errors.Join(err, logs.Close())
}

func TestMetricsAreCompleteAndGoAway(t *testing.T) {
	reg := prometheus.NewRegistry()
	dir := t.TempDir()
	s := openStore(t, dir, func(o *Options) { o.Registry = reg })
	families, err := reg.Gather()
	must(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += "/" + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"narad_raft_state/leader": 1, "narad_raft_state/follower": 0, "narad_raft_state/candidate": 0, "narad_raft_state/shutdown": 0,
		"narad_raft_has_leader": 1, "narad_raft_last_contact_seconds": 0, "narad_raft_voters": 1, "narad_raft_nonvoters": 0,
		"narad_raft_fsm_pending": 0, "narad_metastore_apply_stalled": 0, "narad_metastore_apply_stopped": 0,
		"narad_metastore_apply_errors_total/storage": 0, "narad_metastore_apply_errors_total/unknown_entry_type": 0,
		"narad_metastore_apply_errors_total/undecodable": 0, "narad_metastore_apply_errors_total/newer_database": 0,
		"narad_metastore_snapshot_failures_total": 0, "narad_metastore_snapshot_bytes": 0, "narad_metastore_snapshot_duration_seconds": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s = %v (present %t), want %v", name, v, ok, want)
		}
	}
	for _, name := range []string{
		"narad_raft_term", "narad_raft_last_log_index", "narad_raft_commit_index", "narad_raft_applied_index",
		"narad_metastore_fsm_bytes", "narad_metastore_applied_index",
	} {
		if got[name] <= 0 {
			t.Errorf("%s = %v", name, got[name])
		}
	}
	must(t, s.Close())
	openStore(t, dir, func(o *Options) { o.Registry = reg }) // the registry is free again
}

func TestAdvertise(t *testing.T) {
	for _, bind := range []string{"0.0.0.0:0", ":0"} {
		o := testOptions(t.TempDir())
		o.BindAddr = bind
		if s, err := Open(context.Background(), o); !errors.Is(err, errNotAdvertisable) {
			if err == nil {
				s.Close()
			}
			t.Errorf("%s: %v", bind, err)
		}
	}
	// A wildcard listener with a name nobody resolves: the lone voter still leads.
	s := openStore(t, t.TempDir(), func(o *Options) { o.BindAddr, o.Advertise = "127.0.0.1:0", "narad-0.invalid:7943" })
	if got := s.Members()[0].RaftAddr; got != "narad-0.invalid:7943" {
		t.Errorf("registered as %s", got)
	}
}

func TestOpenRefusesBadOptions(t *testing.T) {
	for _, id := range []string{"", strings.Repeat("x", idBytesMax+1)} {
		o := testOptions(t.TempDir())
		o.NodeID = id
		if _, err := Open(context.Background(), o); err == nil {
			t.Errorf("node id of %d bytes accepted", len(id))
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Open(ctx, testOptions(t.TempDir())); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled open: %v", err)
	}
}

// Creates, deletes, lookups and listings at once: a view is always whole, and a
// lookup after an answered create finds it.
func TestConcurrentChangesAndLookups(t *testing.T) {
	s := openStore(t, t.TempDir())
	cancel := s.Subscribe(func(name string, v *model.TopicView) {
		if v != nil && v.Name != name {
			t.Errorf("told %q about %q", name, v.Name)
		}
	})
	defer cancel()
	var writers, readers sync.WaitGroup
	var stop atomic.Bool
	for r := range 2 {
		readers.Go(func() {
			for !stop.Load() {
				name := fmt.Sprintf("w%d", r)
				if v, ok := s.Topic(name); ok && (v.Name != name || len(v.Owners) != v.Partitions || v.OwnerOf(1) != node) {
					t.Errorf("half a view: %+v", v)
				}
				s.ListTopics("", 10)
				s.NameTaken("W0")
				s.Range(func(*model.TopicView) bool { return true })
				runtime.Gosched()
			}
		})
	}
	for w := range 4 {
		writers.Go(func() {
			name := fmt.Sprintf("w%d", w)
			for range 25 {
				c := create(name)
				mustPropose(t, s, c)
				if v, ok := s.Topic(name); !ok || v.ID != c.Topic.ID {
					t.Errorf("%s is not visible after its create", name)
				}
				mustPropose(t, s, DeleteTopic{Name: name, ID: c.Topic.ID})
				if _, ok := s.Topic(name); ok {
					t.Errorf("%s is visible after its delete", name)
				}
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
}

// Close in the middle of traffic: every proposal answers, every goroutine ends.
func TestCloseUnderLoad(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	var wg sync.WaitGroup
	var answered sync.Map
	for w := range 8 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testWait)
			defer cancel()
			for i := range 10_000 {
				name := fmt.Sprintf("w%d-%d", w, i)
				_, err := s.Propose(ctx, create(name))
				if err == nil {
					answered.Store(name, true)
					continue
				}
				if !errors.Is(err, model.ErrUnavailable) {
					t.Errorf("answered %v", err)
				}
				return
			}
		})
	}
	narad.Eventually(t, testWait, func() bool { p, _ := s.ListTopics("", 50); return len(p) == 50 }, "traffic")
	must(t, s.Close())
	wg.Wait()
	s = openStore(t, dir)
	answered.Range(func(name, _ any) bool {
		if _, ok := s.Topic(name.(string)); !ok {
			t.Errorf("%s was answered and is gone", name)
		}
		return true
	})
}

// 10,000 topics of 3 partitions: loaded in one pass, under 20 MiB of heap.
func TestTenThousandTopics(t *testing.T) {
	const topics = 10_000
	dir := t.TempDir()
	m := newMachine(t, dir)
	fill(t, m, topics)
	must(t, m.close())
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	m = newMachine(t, dir)
	took := time.Since(start)
	runtime.GC()
	runtime.ReadMemStats(&after)
	heap := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("loaded in %s, %d KiB of heap", took, heap>>10)
	if heap > 20<<20 {
		t.Errorf("%d bytes of heap", heap)
	}
	if took > 5*time.Second { // the aim is 500 ms; the race detector is slow
		t.Errorf("loaded in %s", took)
	}
	if v, ok := m.catalog.topic("topic-09999"); !ok || v.OwnerOf(2) != node {
		t.Errorf("%+v", v)
	}
	runtime.KeepAlive(m)
}

func TestRaftLoggerIsQuietAtInfo(t *testing.T) {
	l := newRaftLogger(telemetry.Discard())
	if l.IsError() || l.GetLevel() == 0 {
		t.Error("a discarded logger is enabled")
	}
	var out strings.Builder
	log, err := telemetry.NewLogger(&out, "info", "text")
	must(t, err)
	l = newRaftLogger(log).With("peer", "a").Named("net")
	l.Info("narration")
	l.Debug("chatter")
	l.Trace("noise")
	if out.Len() != 0 {
		t.Errorf("at info: %s", out.String())
	}
	l.Warn("trouble", "n", 1)
	l.Error("failure")
	for _, want := range []string{"component=raft", "peer=a", "msg=trouble", "n=1", "msg=failure"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %s: %s", want, out.String())
		}
	}
	if l.IsInfo() || !l.IsWarn() || l.Name() != "net" || len(l.ImpliedArgs()) != 2 {
		t.Error("levels, name or arguments are lost")
	}
}
