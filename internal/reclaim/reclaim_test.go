package reclaim

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	idOld model.Incarnation = "00000000000000aa"
	idNew model.Incarnation = "00000000000000bb"
)

// leader is the control plane of a test: live topics by name, and whether it can
// be asked.
type leader struct {
	mu    sync.Mutex
	live  map[string]model.Incarnation
	local map[string]model.Incarnation // nil = as live
	mute  bool
	asked int

	behind error // why the replica is not current
}

func (l *leader) ConfirmGone(_ context.Context, name string, id model.Incarnation) (metastore.Confirmation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if l.mute {
		return metastore.Unknown, model.ErrUnavailable
	}
	if cur, ok := l.live[name]; ok && !id.Differs(cur) {
		return metastore.Live, nil
	}
	return metastore.Gone, nil
}

func (l *leader) replica() map[string]model.Incarnation {
	if l.local != nil {
		return l.local
	}
	return l.live
}

func (l *leader) Topic(name string) (*model.TopicView, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, ok := l.replica()[name]
	return &model.TopicView{Topic: model.Topic{Name: name, ID: id}}, ok
}

func (l *leader) Range(f func(*model.TopicView) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, id := range l.replica() {
		if !f(&model.TopicView{Topic: model.Topic{Name: name, ID: id}}) {
			return
		}
	}
}

func (l *leader) AppliedCaughtUp() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.behind
}

// change lets the leader's topics, and the replica's with them, become others.
func (l *leader) change(f func(live map[string]model.Incarnation)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l.live)
}

func (l *leader) setMute(mute bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mute = mute
}

// owner renames like the data plane: only a directory whose marker is the id.
type owner struct {
	fs     disk.FS
	root   string
	fail   error
	before func() // runs before a Retire looks
}

func (o *owner) Retire(name string, id model.Incarnation) (string, error) {
	if o.fail != nil {
		return "", o.fail
	}
	if o.before != nil {
		o.before()
	}
	dir := path.Join(o.root, name)
	marker, err := commitlog.ReadMarker(o.fs, dir)
	if err != nil || marker != id {
		return "", err
	}
	return commitlog.SetAside(o.fs, dir, id, time.Unix(0, 42))
}

type rig struct {
	*Reclaimer
	fs     disk.FS
	root   string
	leader *leader
	owner  *owner
	reg    *prometheus.Registry
}

func newRig(t testing.TB, fsys disk.FS, dataDir string, clk clock.Clock, edit ...func(*Options)) *rig {
	t.Helper()
	root := path.Join(dataDir, "topics")
	g := &rig{
		fs: fsys, root: root, leader: &leader{live: map[string]model.Incarnation{}},
		owner: &owner{fs: fsys, root: root}, reg: prometheus.NewRegistry(),
	}
	o := Options{
		FS: fsys, DataDir: dataDir, Topics: g.leader, Confirmer: g.leader, Retirer: g.owner, Clock: clk, Registry: g.reg,
	}
	for _, f := range edit {
		f(&o)
	}
	var err error
	g.Reclaimer, err = New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// mkTopic makes a topic directory with two partitions; "" writes no marker.
func mkTopic(t testing.TB, fsys disk.FS, dir, marker string) {
	t.Helper()
	for _, p := range []string{"p00000", "p00001"} {
		must(t, disk.MkdirDurable(fsys, path.Join(dir, p)))
		must(t, disk.WriteFileAtomic(fsys, path.Join(dir, p, "00000000000000000000.log"), []byte("records")))
	}
	if marker != "" {
		must(t, disk.WriteFileAtomic(fsys, path.Join(dir, markerName), []byte(marker)))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func present(t testing.TB, fsys disk.FS, name string) bool {
	t.Helper()
	_, err := fsys.Stat(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// TestSweepTable puts one directory under topics/ and states what a sweep may do.
func TestSweepTable(t *testing.T) {
	cases := []struct {
		name   string
		dir    string
		marker string
		live   map[string]model.Incarnation
		local  map[string]model.Incarnation
		mute   bool
		gone   bool // the data is removed
		retry  bool // and the sweep asks for another one
	}{
		{name: "live topic", dir: "orders", marker: string(idNew), live: map[string]model.Incarnation{"orders": idNew}},
		{name: "live topic without marker", dir: "orders", live: map[string]model.Incarnation{"orders": idNew}},
		{name: "deleted topic", dir: "orders", marker: string(idOld), gone: true},
		{name: "deleted topic, marker with white space", dir: "orders", marker: string(idOld) + "\n", gone: true},
		{name: "deleted topic, leader unknown", dir: "orders", marker: string(idOld), mute: true, retry: true},
		{name: "deleted topic without marker", dir: "orders"},
		{name: "damaged marker", dir: "orders", marker: "not an incarnation"},
		{name: "recreated, old life under the name", dir: "orders", marker: string(idOld), live: map[string]model.Incarnation{"orders": idNew}, gone: true},
		{
			name: "recreated, replica still shows the old life", dir: "orders", marker: string(idOld),
			live: map[string]model.Incarnation{"orders": idNew}, local: map[string]model.Incarnation{"orders": idOld},
		},
		{
			name: "replica lacks a topic the leader has", dir: "orders", marker: string(idNew),
			live: map[string]model.Incarnation{"orders": idNew}, local: map[string]model.Incarnation{},
		},
		{name: "directory of a live topic under a foreign name", dir: "backup", marker: string(idNew), live: map[string]model.Incarnation{"orders": idNew}},
		{name: "stale, gone", dir: "orders.stale-" + string(idOld), marker: string(idOld), gone: true},
		{name: "stale with time, gone", dir: "orders.stale-" + string(idOld) + ".17", marker: string(idOld), gone: true},
		{name: "stale, recreated", dir: "orders.stale-" + string(idOld), marker: string(idOld), live: map[string]model.Incarnation{"orders": idNew}, gone: true},
		{name: "stale of the live incarnation", dir: "orders.stale-" + string(idNew), marker: string(idNew), live: map[string]model.Incarnation{"orders": idNew}},
		{name: "stale, leader unknown", dir: "orders.stale-" + string(idOld), marker: string(idOld), mute: true, retry: true},
		{name: "stale with another marker", dir: "orders.stale-" + string(idOld), marker: string(idNew)},
		{name: "stale without marker", dir: "orders.stale-" + string(idOld)},
		{
			name: "live topic named like a stale directory", dir: "orders.stale-" + string(idOld), marker: string(idNew),
			live: map[string]model.Incarnation{"orders.stale-" + string(idOld): idNew},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			sim := disk.NewSim(1)
			g := newRig(t, sim, "data", nil)
			if c.live != nil {
				g.leader.live = c.live
			}
			g.leader.local, g.leader.mute = c.local, c.mute
			dir := path.Join(g.root, c.dir)
			mkTopic(t, sim, dir, c.marker)
			s, err := g.Sweep(context.Background())
			if (err != nil) != c.retry {
				t.Errorf("sweep: %v, retry wanted %t", err, c.retry)
			}
			entries, lerr := sim.List(g.root)
			must(t, lerr)
			if gone := len(entries) == 0; gone != c.gone {
				t.Fatalf("removed %t, want %t; left %v", gone, c.gone, entries)
			}
			if c.gone != (s.Removed == 1) {
				t.Errorf("counted %d removals", s.Removed)
			}
			_, live := c.live[c.dir]
			kept := s.OrphanDirs + s.QuarantinedDirs
			if wantKept := !c.gone && !live; (kept == 1) != wantKept && c.local == nil {
				t.Errorf("counted %d kept, want it counted: %t", kept, wantKept)
			}
		})
	}
}

func TestPurgeRemovesTheDeletedIncarnation(t *testing.T) {
	sim := disk.NewSim(1)
	g := newRig(t, sim, "data", nil)
	mkTopic(t, sim, path.Join(g.root, "orders"), string(idOld))
	mkTopic(t, sim, path.Join(g.root, "orders-2"), string(idNew))
	g.leader.live["orders-2"] = idNew
	must(t, g.Purge(context.Background(), "orders", idOld))
	if present(t, sim, path.Join(g.root, "orders")) || !present(t, sim, path.Join(g.root, "orders-2")) {
		t.Fatal("purge removed the wrong directory")
	}
	must(t, g.Purge(context.Background(), "orders", idOld)) // nothing left is success
}

func TestPurgeKeeps(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(g *rig)
		want  error
	}{
		{"leader unknown", func(g *rig) { g.leader.mute = true }, ErrUnconfirmed},
		{"still live", func(g *rig) { g.leader.live["orders"], g.leader.local = idOld, map[string]model.Incarnation{} }, ErrKept},
		{"incarnation lives under another name", func(g *rig) { g.leader.live["other"] = idOld }, ErrKept},
		{"retire fails", func(g *rig) { g.owner.fail = errors.New("busy") }, errAny},
	} {
		t.Run(c.name, func(t *testing.T) {
			sim := disk.NewSim(1)
			g := newRig(t, sim, "data", nil)
			mkTopic(t, sim, path.Join(g.root, "orders"), string(idOld))
			c.setup(g)
			err := g.Purge(context.Background(), "orders", idOld)
			if err == nil || c.want != errAny && !errors.Is(err, c.want) {
				t.Fatalf("got %v", err)
			}
			if !present(t, sim, path.Join(g.root, "orders", "p00001", "00000000000000000000.log")) {
				t.Fatal("data is gone")
			}
		})
	}
}

var errAny = errors.New("any error")

func TestPurgeRefusesBadArguments(t *testing.T) {
	g := newRig(t, disk.NewSim(1), "data", nil)
	for _, c := range []struct {
		name string
		id   model.Incarnation
	}{{"../etc", idOld}, {"", idOld}, {"a/b", idOld}, {"orders", "xyz"}} {
		if err := g.Purge(context.Background(), c.name, c.id); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("purge of %q %q: %v", c.name, c.id, err)
		}
	}
	if g.leader.asked != 0 {
		t.Error("the leader was asked about nonsense")
	}
}

// A Retirer that returns another path must not get that path removed.
func TestRemoveStaleRefusesForeignPaths(t *testing.T) {
	sim := disk.NewSim(1)
	g := newRig(t, sim, "data", nil)
	for _, dir := range []string{
		path.Join(g.root, "orders"), "data", "data/ingress.stale-" + string(idOld), path.Join(g.root, "x", "orders.stale-"+string(idOld)),
		path.Join(g.root, "other.stale-"+string(idOld)), path.Join(g.root, "orders.stale-"+string(idNew)),
	} {
		mkTopic(t, sim, dir, string(idOld))
		if _, err := g.removeStale(context.Background(), dir, "orders", idOld, "test"); !errors.Is(err, ErrKept) {
			t.Errorf("%s: %v", dir, err)
		}
		if !present(t, sim, path.Join(dir, "p00000")) {
			t.Errorf("%s: removed", dir)
		}
	}
}

// On the real file system: links inside go, what they point at stays; a link in the
// directory's place is not followed.
func TestLinksAreNotFollowed(t *testing.T) {
	data := t.TempDir()
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "precious"), []byte("x"), 0o600))
	must(t, os.WriteFile(filepath.Join(outside, markerName), []byte(idOld), 0o600))
	g := newRig(t, disk.OS{}, data, nil)
	dir := filepath.Join(g.root, "orders")
	mkTopic(t, disk.OS{}, dir, string(idOld))
	must(t, os.Symlink(outside, filepath.Join(dir, "p00002")))
	must(t, os.Symlink(outside, filepath.Join(g.root, "linked.stale-"+string(idOld))))
	must(t, g.Purge(context.Background(), "orders", idOld))
	if present(t, disk.OS{}, dir+staleInfix+string(idOld)) {
		t.Error("directory is still there")
	}
	if _, err := g.removeStale(context.Background(), filepath.Join(g.root, "linked.stale-"+string(idOld)), "linked", idOld, "test"); !errors.Is(err, ErrKept) {
		t.Errorf("link in the directory's place: %v", err)
	}
	if _, err := g.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !present(t, disk.OS{}, filepath.Join(outside, "precious")) {
		t.Fatal("a link was followed out of the data directory")
	}
}

// For every I/O call: crash there in the middle of a purge, restart, sweep. The
// deleted incarnation ends up gone, nothing of the live one is touched.
func TestPurgeCrashAtEveryCall(t *testing.T) {
	const dead, alive = "data/topics/orders", "data/topics/payments"
	newSim := func() *disk.Sim {
		sim := disk.NewSim(7)
		mkTopic(t, sim, dead, string(idOld))
		mkTopic(t, sim, alive, string(idNew))
		return sim
	}
	testutil.CrashPoints(t, newSim, func(sim *disk.Sim) error {
		g := newRig(t, sim, "data", nil)
		defer g.Close()
		g.leader.live["payments"] = idNew
		return g.Purge(context.Background(), "orders", idOld)
	}, func(sim *disk.Sim, k int) {
		g := newRig(t, sim, "data", nil)
		defer g.Close()
		g.leader.live["payments"] = idNew
		if _, err := g.Sweep(context.Background()); err != nil {
			t.Fatalf("crash at %d: sweep: %v", k, err)
		}
		entries, err := sim.List("data/topics")
		must(t, err)
		if len(entries) != 1 || entries[0].Name != "payments" {
			t.Fatalf("crash at %d: left %v", k, entries)
		}
		for _, p := range []string{"p00000", "p00001"} {
			b, err := disk.ReadFile(sim, path.Join(alive, p, "00000000000000000000.log"), 64)
			if err != nil || string(b) != "records" {
				t.Fatalf("crash at %d: live partition %s: %q, %v", k, p, b, err)
			}
		}
	})
}

// What fails is retried by a sweep after a pause, and only then: an idle reclaimer
// holds no timer.
func TestFailedPurgeIsRetried(t *testing.T) {
	clk := clock.NewFake(time.Unix(1000, 0))
	sim := disk.NewSim(1)
	g := newRig(t, sim, "data", clk)
	mkTopic(t, sim, path.Join(g.root, "orders"), string(idOld))
	g.leader.setMute(true)
	g.Deleted("orders", idOld)
	testutil.Eventually(t, 5*time.Second, func() bool { return clk.Timers() == 1 }, "the retry timer")
	clk.Advance(retryFirst)
	testutil.Eventually(t, 5*time.Second, func() bool { return g.inventory.last.Load() != nil }, "the first sweep")
	testutil.Eventually(t, 5*time.Second, func() bool { return clk.Timers() == 1 }, "the second retry timer")
	g.leader.setMute(false)
	clk.Advance(2 * retryFirst)
	testutil.Eventually(t, 5*time.Second, func() bool { return !present(t, sim, path.Join(g.root, "orders")) }, "the removal")
	testutil.Eventually(t, 5*time.Second, func() bool { return clk.Timers() == 0 }, "no timer while idle")
}

func TestDeletedPastTheQueueSweeps(t *testing.T) {
	sim := disk.NewSim(1)
	g := newRig(t, sim, "data", nil)
	mkTopic(t, sim, path.Join(g.root, "orders"), string(idOld))
	must(t, g.acquire(t.Context())) // the worker stands still
	for range queueMax + 1 {
		g.Deleted("nothing-here", idNew)
	}
	g.Deleted("orders", idOld)
	g.release()
	testutil.Eventually(t, 10*time.Second, func() bool { return !present(t, sim, path.Join(g.root, "orders")) }, "the sweep")
}

func TestMetricsAreAbsentBeforeTheFirstSweep(t *testing.T) {
	sim := disk.NewSim(1)
	g := newRig(t, sim, "data", nil)
	mkTopic(t, sim, path.Join(g.root, "unmarked"), "")
	mkTopic(t, sim, path.Join(g.root, "a.stale-"+string(idOld)), string(idNew))
	if mf, err := g.reg.Gather(); err != nil || len(mf) != 0 {
		t.Fatalf("series before the first sweep: %v, %v", mf, err)
	}
	_, err := g.Sweep(context.Background())
	must(t, err)
	mf, err := g.reg.Gather()
	must(t, err)
	got := map[string]float64{}
	for _, f := range mf {
		got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	want := map[string]float64{"narad_orphan_topic_dirs": 1, "narad_quarantined_copies": 1, "narad_quarantined_bytes": 2*7 + 16}
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s = %v, want %v", name, got[name], v)
		}
	}
}

func TestSweepOfNothing(t *testing.T) {
	g := newRig(t, disk.NewSim(1), "data", nil)
	if s, err := g.Sweep(context.Background()); err != nil || s != (Swept{}) {
		t.Fatalf("%v, %v", s, err)
	}
}

func FuzzParseStale(f *testing.F) {
	for _, s := range []string{"a.stale-" + string(idOld), "a.stale-" + string(idOld) + ".12", ".stale-", "a.stale-x", "a.stale-" + string(idOld) + "."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		topic, id, ok := parseStale(s)
		if !ok {
			return
		}
		if topic == "" || !strings.HasPrefix(s, topic+staleInfix+string(id)) {
			t.Fatalf("%q parsed as %q, %q", s, topic, id)
		}
		if _, err := model.ParseIncarnation(string(id)); err != nil {
			t.Fatal(err)
		}
	})
}

// A removal that failed half-way leaves a directory that still says whose it was.
func TestPurgeFailsAtEveryCallThenSucceeds(t *testing.T) {
	const dead = "data/topics/orders"
	newSim := func() *disk.Sim {
		sim := disk.NewSim(3)
		mkTopic(t, sim, dead, string(idOld))
		return sim
	}
	rule := disk.Rule{Op: disk.OpAny, Err: errors.New("input/output error")}
	testutil.FailPoints(t, newSim, rule, func(sim *disk.Sim) error {
		g := newRig(t, sim, "data", nil)
		defer g.Close()
		return g.Purge(context.Background(), "orders", idOld)
	}, func(sim *disk.Sim, k int, failed error) {
		g := newRig(t, sim, "data", nil)
		defer g.Close()
		if err := g.Purge(context.Background(), "orders", idOld); err != nil {
			t.Fatalf("call %d failed with %v; again: %v", k, failed, err)
		}
		if entries, err := sim.List("data/topics"); err != nil || len(entries) != 0 {
			t.Fatalf("call %d failed with %v; left %v, %v", k, failed, entries, err)
		}
	})
}

func TestRemovalIsBounded(t *testing.T) {
	sim := disk.NewSim(1)
	g := newRig(t, sim, "data", nil)
	dir := path.Join(g.root, "orders")
	mkTopic(t, sim, dir, string(idOld))
	deep := path.Join(dir, strings.Repeat("d/", depthMax+2))
	must(t, disk.MkdirDurable(sim, deep))
	if err := g.Purge(context.Background(), "orders", idOld); !errors.Is(err, ErrKept) {
		t.Fatalf("removed a directory deeper than any of ours: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := g.Purge(ctx, "orders", idOld); !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled purge went on: %v", err)
	}
}

// Over a real metastore: what a committed delete hands over goes, what lives stays.
func TestDeletedTopicIsReclaimed(t *testing.T) {
	data := t.TempDir()
	store, err := metastore.Open(context.Background(), metastore.Options{
		Dir: filepath.Join(data, "metastore"), NodeID: "narad-0", BindAddr: "127.0.0.1:0", APIAddr: "127.0.0.1:7942",
	})
	must(t, err)
	t.Cleanup(func() { store.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	must(t, store.WaitReady(ctx))
	root := filepath.Join(data, "topics")
	r, err := New(Options{
		FS: disk.OS{}, DataDir: data, Topics: store, Confirmer: store, Retirer: &owner{fs: disk.OS{}, root: root},
	})
	must(t, err)
	t.Cleanup(func() { r.Close() })
	for name, id := range map[string]model.Incarnation{"orders": idOld, "payments": idNew} {
		_, err := store.Propose(ctx, metastore.CreateTopic{Topic: model.Topic{Name: name, ID: id, Partitions: 3}})
		must(t, err)
		mkTopic(t, disk.OS{}, filepath.Join(root, name), string(id))
	}
	_, err = store.Propose(ctx, metastore.DeleteTopic{Name: "orders", ID: idOld})
	must(t, err)
	r.Deleted("payments", idNew) // not so: it lives
	r.Deleted("orders", idOld)
	testutil.Eventually(t, 10*time.Second, func() bool {
		entries, err := os.ReadDir(root)
		return err == nil && len(entries) == 1 && entries[0].Name() == "payments"
	}, "the deleted topic's directory to go")
	must(t, store.Close())
	if _, err := r.Sweep(ctx); err != nil {
		t.Errorf("sweep with nothing to ask: %v", err)
	}
	if err := r.purgeNow(ctx, "payments", idNew); !errors.Is(err, ErrUnconfirmed) {
		t.Errorf("purge without a leader: %v", err)
	}
	if !present(t, disk.OS{}, filepath.Join(root, "payments", "p00001")) {
		t.Error("the live topic's data is gone")
	}
}
