package fanout

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	narad "github.com/narad-mq/narad/internal/testutil"
)

// Each child holds exactly what was committed from the attach on, byte for byte, in the
// order of each key.
func TestExactInQuiet(t *testing.T) {
	r := newRig(t)
	r.topic("p", 3)
	r.topic("same", 3)
	r.topic("other", 5)
	for p := range 3 {
		r.commit("p", p, numbered(fmt.Sprintf("old%d-", p), 4)...)
	}
	r.attach("p", "same", 0)
	var want []string
	for i, round := range [][]string{numbered("a", 40), numbered("b", 40)} {
		if i == 1 {
			r.attach("p", "other", 0)
		}
		for p := range 3 {
			r.commit("p", p, round...)
			want = append(want, round...)
		}
		r.has("same", want...)
	}
	r.has("other", want[len(want)/2:]...)
	v, _ := r.rep.Topic("other")
	for p := range v.Partitions {
		last := map[string]int64{}
		for _, s := range r.stored("other", p) {
			if got := model.KeyPartition(s.Key, 5); got != p {
				t.Errorf("key %s of partition %d is in %d", s.Key, got, p)
			}
			if s.Offset <= last[string(s.Key)] && last[string(s.Key)] > 0 {
				t.Errorf("key %s out of order", s.Key)
			}
			last[string(s.Key)] = s.Offset
		}
	}
	r.caughtUp("p", "same")
	if f, ok := r.position("p", 1, "same"); !ok || f.next != 84 {
		t.Errorf("position %+v, %v", f, ok)
	}
	r.reopen()
	r.commit("p", 0, "after")
	r.has("same", append(want, "after")...)
}

func TestPartitionAddedLaterStartsAtZero(t *testing.T) {
	r := newRig(t)
	r.topic("p", 3)
	r.topic("c", 3)
	r.attach("p", "c", 0)
	v, _ := r.rep.Topic("p")
	grown := *v
	grown.Partitions, grown.Owners = 4, slices.Repeat([]string{node}, 4)
	r.rep.change(map[string]*model.TopicView{"p": &grown})
	r.commit("p", 3, "early") // before any cursor of the partition runs
	r.has("c", "early")
}

// Nothing from before the new attach is copied, whatever the old cursor had left to do.
func TestReattachNeverBackfills(t *testing.T) {
	r := newRig(t)
	r.topic("p", 3)
	r.topic("c", 3)
	r.attach("p", "c", 0)
	r.commit("p", 0, "first")
	r.has("c", "first")
	r.detach("p", "c")
	r.commit("p", 0, "between")
	r.attach("p", "c", 0) // at once: the old cursor has not even been told to stop
	r.commit("p", 0, "second")
	r.has("c", "first", "second")
	r.detach("p", "c")
	r.pump(func() bool { return !r.exists(r.file("p", 0, "c")) }, "the cursor file goes with the link")
	r.commit("p", 0, "between again")
	r.attach("p", "c", 0)
	r.commit("p", 0, "third")
	r.has("c", "first", "second", "third")
}

// A cursor whose file is gone, or damaged, copies from the attach point again: never
// from the end.
func TestLostFileReplays(t *testing.T) {
	for name, lose := range map[string]func(*rig, string) error{
		"removed": func(r *rig, name string) error { return r.fs.Remove(name) },
		"damaged": func(r *rig, name string) error {
			return r.fs.Corrupt(name, func(b []byte) []byte { b[30] ^= 1; return b })
		},
		"empty": func(r *rig, name string) error { return r.fs.Corrupt(name, func(b []byte) []byte { return nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.topic("p", 3)
			r.topic("c", 3)
			r.commit("p", 0, "old")
			r.attach("p", "c", 0)
			r.commit("p", 0, "a", "b")
			r.has("c", "a", "b")
			r.caughtUp("p", "c")
			r.close()
			must(t, lose(r, r.file("p", 0, "c")))
			r.open()
			r.has("c", "a", "a", "b", "b")
		})
	}
}

// The position of an older release is taken over, and its file gets the fixed form.
func TestOlderFileIsMigrated(t *testing.T) {
	r := newRig(t)
	r.topic("p", 3)
	r.topic("c", 3)
	epoch := r.attach("p", "c", 0)
	r.commit("p", 0, "a")
	r.has("c", "a")
	r.caughtUp("p", "c")
	r.close()
	must(t, r.fs.Corrupt(r.file("p", 0, "c"), func([]byte) []byte {
		return fmt.Appendf(nil, `{"epoch":%q,"next_offset":1}`+"\n", epoch)
	}))
	r.open()
	r.commit("p", 0, "b")
	r.has("c", "a", "b")
	r.caughtUp("p", "c")
	if b, err := readUpTo(r.fs, r.file("p", 0, "c")); err != nil || len(b) != recordSize {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// A stale replica shows an epoch that is over: its cursor writes nothing and copies
// nothing, and the position of the live epoch stays (lifecycle document, kills 2 and 3).
func TestAnchorWaitsForTheLeader(t *testing.T) {
	r := newRig(t)
	r.topic("p", 3)
	r.topic("c", 3)
	live := r.attach("p", "c", 0)
	r.commit("p", 0, "a", "b")
	r.has("c", "a", "b")
	r.caughtUp("p", "c")
	r.close()
	before, _ := r.position("p", 0, "c")
	fresh, _ := r.rep.Topic("c")
	stale := *fresh
	stale.AttachEpoch, stale.AttachOffsets = "00000000deadbeef", []int64{0, 0, 0}
	r.rep.change(map[string]*model.TopicView{"c": &stale})
	r.rep.set(func() { r.rep.leader = func(string) (string, string) { return "p", live } })
	r.open()
	r.commit("p", 0, "backlog")
	r.pass(5 * time.Second)
	if got, ok := r.position("p", 0, "c"); !ok || got != before {
		t.Fatalf("the live position was overwritten: %+v, was %+v", got, before)
	}
	if got := r.sorted("c"); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("the stale epoch copied: %v", got)
	}
	r.rep.change(map[string]*model.TopicView{"c": fresh}) // the replica catches up
	r.has("c", "a", "b", "backlog")

	t.Run("no leader", func(t *testing.T) {
		r := newRig(t)
		r.topic("p", 3)
		r.topic("c", 3)
		r.rep.set(func() { r.rep.silent = errors.New("no leader") })
		r.attach("p", "c", 0)
		r.commit("p", 0, "a")
		r.pass(3 * time.Second)
		if r.exists(r.file("p", 0, "c")) || len(r.keys("c")) > 0 {
			t.Error("an unconfirmed cursor wrote")
		}
		r.rep.set(func() { r.rep.silent = nil })
		r.has("c", "a")
	})
}

func TestOrphanIsRemovedOnlyWhenGone(t *testing.T) {
	r := newRig(t)
	r.topic("p", 3)
	r.topic("c", 3)
	epoch := r.attach("p", "c", 0)
	r.commit("p", 0, "a")
	r.has("c", "a")
	r.caughtUp("p", "c")
	r.rep.set(func() { r.rep.silent = errors.New("no leader") })
	r.detach("p", "c")
	r.pass(3 * time.Second)
	if !r.exists(r.file("p", 0, "c")) {
		t.Fatal("removed without the leader's word")
	}
	r.rep.set(func() { r.rep.silent, r.rep.leader = nil, func(string) (string, string) { return "p", epoch } })
	r.pass(3 * time.Second)
	if !r.exists(r.file("p", 0, "c")) {
		t.Fatal("removed though the leader says live")
	}
	r.rep.set(func() { r.rep.leader = nil })
	r.pump(func() bool { return !r.exists(r.file("p", 0, "c")) }, "removed once the leader says gone")
}

// What a crash between a detach and the removal left is found by the sweep.
func TestSweepFindsOrphans(t *testing.T) {
	r := newRig(t)
	r.topic("p", 3)
	r.topic("c", 3)
	r.attach("p", "c", 0)
	r.commit("p", 0, "a")
	r.has("c", "a")
	r.caughtUp("p", "c")
	r.close()
	r.detach("p", "c")
	r.open()
	r.pump(func() bool { return !r.exists(r.file("p", 0, "c")) }, "the orphan goes")
}

func TestSweepGoesOnWhereItEnded(t *testing.T) {
	fs := disk.NewSim(1)
	for i := range sweepTopicsMax + 3 {
		dir := fmt.Sprintf("%s/topics/t%04d/p00000", dataDir, i)
		must(t, fs.Mkdir(dir))
		f, err := fs.Open(dir+"/"+fileName("c"), os.O_RDWR|os.O_CREATE)
		must(t, err)
		must(t, f.Close())
	}
	s := sweeper{fs: fs, dataDir: dataDir}
	for i, want := range []int{sweepTopicsMax, 3, sweepTopicsMax} {
		found, err := s.next()
		must(t, err)
		if len(found) != want {
			t.Errorf("look %d found %d files, want %d", i, len(found), want)
		}
	}
}

func TestReconcilerStartsAndStopsCursors(t *testing.T) {
	r := newRig(t)
	r.topic("p", 3)
	r.topic("c", 3)
	running := func() (n int) { r.e.set.each(func(*cursor) { n++ }); return n }
	r.attach("p", "c", 0)
	r.pump(func() bool { return running() == 3 }, "a cursor for each partition")
	v, _ := r.rep.Topic("p")
	moved := *v
	moved.Owners = []string{node, "n2", ""}
	r.rep.change(map[string]*model.TopicView{"p": &moved})
	r.pump(func() bool { return running() == 1 }, "only those of owned partitions")
	r.rep.change(map[string]*model.TopicView{"p": v})
	r.pump(func() bool { return running() == 3 }, "ownership comes back")
	r.rep.set(func() { r.rep.behind = errors.New("behind") })
	r.detach("p", "c")
	r.pass(3 * time.Second)
	if running() != 3 {
		t.Error("a replica that is not current was acted on")
	}
	r.rep.set(func() { r.rep.behind = nil })
	r.pump(func() bool { return running() == 0 }, "stopped on detach")
}

// A parent deleted and made again has other cursors, and its child is free.
func TestParentRecreated(t *testing.T) {
	r := newRig(t)
	r.topic("p", 3)
	r.topic("c", 3)
	r.attach("p", "c", 0)
	r.commit("p", 0, "a")
	r.has("c", "a")
	r.detach("p", "c")
	r.rep.change(map[string]*model.TopicView{"p": nil})
	r.topic("p", 3)
	r.commit("p", 0, "of another life")
	r.attach("p", "c", 0)
	r.commit("p", 0, "b")
	r.has("c", "a", "b")
}

// One child partition takes nothing: its records wait, the others are committed once,
// and so are they when it is back.
func TestFailedBucketAlone(t *testing.T) {
	r := newRig(t)
	r.topic("p", 1)
	r.topic("c", 3)
	r.topic("d", 3)
	r.attach("p", "c", 0)
	r.attach("p", "d", 0)
	down := model.PartitionKey{Topic: "c", Partition: 1}
	r.own.failing(down, errors.New("owner is down"))
	all := numbered("k", 60)
	r.commit("p", 0, all...)
	var others, held []string
	for _, k := range all {
		if model.KeyPartition([]byte(k), 3) == 1 {
			held = append(held, k)
		} else {
			others = append(others, k)
		}
	}
	r.has("c", others...)
	r.has("d", all...) // another child keeps its pace
	r.pass(5 * time.Second)
	r.has("c", others...)
	if p, ok := r.position("p", 0, "c"); !ok || p.next != 0 {
		t.Fatalf("the position passed what is not committed: %+v", p)
	}
	calls := func(p int) int {
		r.own.mu.Lock()
		defer r.own.mu.Unlock()
		return r.own.calls[model.PartitionKey{Topic: "c", Partition: p}]
	}
	if calls(0) != 1 || calls(2) != 1 || calls(1) < 2*quickTries {
		t.Errorf("calls %d, %d, %d: want the failed one alone tried again", calls(0), calls(1), calls(2))
	}
	r.own.failing(down, nil)
	r.has("c", all...)
	var got []string
	for _, s := range r.stored("c", 1) {
		got = append(got, string(s.Key))
	}
	if !slices.Equal(got, held) {
		t.Errorf("held records arrived as %v", got)
	}
	r.caughtUp("p", "c")
}

// What failed is dealt anew when the child has more partitions by then.
func TestRetryRebuckets(t *testing.T) {
	r := newRig(t)
	r.topic("p", 1)
	r.topic("c", 3)
	r.attach("p", "c", 0)
	for p := range 3 {
		r.own.failing(model.PartitionKey{Topic: "c", Partition: p}, errors.New("down"))
	}
	all := numbered("k", 40)
	r.commit("p", 0, all...)
	r.pass(2 * time.Second)
	v, _ := r.rep.Topic("c")
	grown := *v
	grown.Partitions, grown.Owners = 7, slices.Repeat([]string{node}, 7)
	r.rep.change(map[string]*model.TopicView{"c": &grown})
	for p := range 3 {
		r.own.failing(model.PartitionKey{Topic: "c", Partition: p}, nil)
	}
	r.has("c", all...)
	for p := range 7 {
		for _, s := range r.stored("c", p) {
			if want := model.KeyPartition(s.Key, 7); want != p {
				t.Errorf("%s in %d, want %d", s.Key, p, want)
			}
		}
	}
}

func TestRetryEndsWithTheLink(t *testing.T) {
	r := newRig(t)
	r.topic("p", 1)
	r.topic("c", 1)
	r.attach("p", "c", 0)
	r.own.failing(model.PartitionKey{Topic: "c"}, errors.New("down"))
	r.commit("p", 0, "a")
	r.pass(2 * time.Second)
	r.detach("p", "c")
	r.pump(func() bool { return r.e.set.get(place{"p", 0, "c"}) == nil }, "the cursor ends")
	r.own.failing(model.PartitionKey{Topic: "c"}, nil)
	r.pass(3 * time.Second)
	if got := r.keys("c"); len(got) > 0 {
		t.Errorf("a detached child got %v", got)
	}
}

// A child that falls behind retention loses what aged out, and the loss is counted.
func TestDropBehind(t *testing.T) {
	r := newRig(t)
	p := r.topic("p", 1)
	aging := *p
	aging.RetentionMS = model.RetentionMSMin
	r.rep.change(map[string]*model.TopicView{"p": &aging})
	r.topic("c", 1)
	r.commit("p", 0, "copied")
	r.link("p", "c", 0, []int64{0})
	r.has("c", "copied")
	r.caughtUp("p", "c")
	r.e.Close()
	r.commit("p", 0, "lost1", "lost2")
	for range 150 { // past the retention, a sweep at a time
		r.clk.Advance(time.Minute)
		r.pass(20 * time.Millisecond)
	}
	r.pump(func() bool {
		_, err := r.b.Slab("p", p.ID, 0, nil, 0, commitlog.SlabLimit{MaxRecords: 1})
		var aged *model.AgedOutError
		return errors.As(err, &aged) && aged.Oldest == 3
	}, "the records age out")
	r.close()
	r.open()
	r.commit("p", 0, "kept")
	r.has("c", "copied", "kept")
	r.caughtUp("p", "c")
	if got := testutil.ToFloat64(r.e.metrics.dropped.WithLabelValues("p", "c")); got != 2 {
		t.Errorf("%v dropped, want 2", got)
	}
}

// delayed checks that no record of a delay child came before its time.
func (r *rig) delayed(parent, child string, delay time.Duration) (n int) {
	r.t.Helper()
	committed := map[string]int64{}
	v, _ := r.rep.Topic(parent)
	for p := range v.Partitions {
		for _, s := range r.stored(parent, p) {
			committed[string(s.Key)] = s.CommittedAt
		}
	}
	v, _ = r.rep.Topic(child)
	for p := range v.Partitions {
		for _, s := range r.stored(child, p) {
			n++
			if early := committed[string(s.Key)] + delay.Milliseconds() - s.CommittedAt; early > 0 {
				r.t.Fatalf("%s came %d ms early", s.Key, early)
			}
		}
	}
	return n
}

// Never early over 50,000 records, with restarts in between, and all of it in the end.
func TestDelayNeverEarly(t *testing.T) {
	const delay = 10 * time.Second
	r := newRig(t)
	r.topic("p", 3)
	r.topic("c", 3)
	r.attach("p", "c", delay)
	var want []string
	for round := range 12 {
		for p := range 3 {
			keys := numbered(fmt.Sprintf("r%02d-%d-", round, p), 1400)
			r.commit("p", p, keys...)
			want = append(want, keys...)
		}
		r.pass(time.Duration(round%4) * 700 * time.Millisecond)
		if round%3 == 2 {
			r.delayed("p", "c", delay)
			r.reopen()
		}
	}
	r.pass(delay)
	r.caughtUp("p", "c")
	if n := r.delayed("p", "c", delay); n != len(want) {
		t.Errorf("%d records, want %d", n, len(want))
	}
	r.has("c", want...)
}

// What came due while the node was down arrives at the start, without a new publish.
func TestDueWhileDown(t *testing.T) {
	const delay = time.Hour
	r := newRig(t)
	r.topic("p", 3)
	r.topic("c", 3)
	r.attach("p", "c", delay)
	r.commit("p", 0, numbered("due", 20)...)
	r.pass(2 * time.Second)
	r.close()
	r.clk.Advance(delay)
	r.open()
	narad.Eventually(t, 20*time.Second, func() bool { return len(r.keys("c")) == 20 }, "all of it, while the clock stands")
	r.delayed("p", "c", delay)
}

// A pending record costs a sleep of at most 30 s and no read, however many are behind it.
func TestDelayCursorSleeps(t *testing.T) {
	r := newRig(t)
	r.topic("p", 1)
	r.topic("c", 1)
	r.attach("p", "c", time.Hour)
	r.commit("p", 0, numbered("k", 100)...)
	k := place{"p", 0, "c"}
	r.pump(func() bool { c := r.e.set.get(k); return c != nil && c.head.Load() != 0 }, "the cursor sleeps at the head")
	reads := r.slabs.Load()
	r.pass(29 * time.Second)
	r.commit("p", 0, "another") // does not wake it
	r.pass(time.Minute)
	if got := r.slabs.Load() - reads; got > 0 {
		t.Errorf("%d reads in a minute and a half of sleep", got)
	}
	r.pump(func() bool { return r.e.set.get(k).high.Load() == 101 }, "the lag is refreshed meanwhile")
}

// A child that has caught up does nothing and lets its parent's log be closed; the next
// commit wakes it.
func TestIdleCostsNothing(t *testing.T) {
	r := newRig(t)
	r.topic("p", 3)
	r.topic("c", 3)
	r.attach("p", "c", 0)
	r.commit("p", 0, "a")
	r.has("c", "a")
	r.caughtUp("p", "c")
	reads := r.slabs.Load()
	r.pass(25 * time.Second)
	if got := r.slabs.Load() - reads; got != 0 {
		t.Errorf("%d reads while idle", got)
	}
	r.commit("p", 0, "b")
	r.has("c", "a", "b")
}

// The listing opens no log: a closed one answers from its files, and one whose files do
// not vouch for its end does not report.
func TestListingOpensNothing(t *testing.T) {
	r := newRig(t)
	r.topic("p", 1)
	r.topic("c", 1)
	r.attach("p", "c", 0)
	r.commit("p", 0, "a")
	r.has("c", "a")
	r.caughtUp("p", "c")
	r.reopen() // every log is closed cleanly, and stays so
	r.caughtUp("p", "c")
	v, _ := r.rep.Topic("p")
	if list := r.e.Children(t.Context(), v); len(list) != 1 || list[0] != (Child{Name: "c", LagComplete: true}) {
		t.Errorf("%+v", list)
	}
	if err := testutil.GatherAndCompare(r.reg, strings.NewReader("# HELP narad_open_partition_logs Partition logs open now.\n"+
		"# TYPE narad_open_partition_logs gauge\nnarad_open_partition_logs 0\n"), "narad_open_partition_logs"); err != nil {
		t.Error(err)
	}
}

func TestSeriesGoWithTheCursor(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := newRig(t, func(r *rig) { r.opt.Registry = reg })
	r.topic("p", 1)
	r.topic("c", 1)
	r.topic("d", 1)
	r.attach("p", "c", 0)
	r.attach("p", "d", time.Hour)
	r.own.failing(model.PartitionKey{Topic: "c"}, errors.New("down"))
	r.commit("p", 0, "a", "b")
	series := func(name string) int {
		n, err := testutil.GatherAndCount(reg, name)
		must(t, err)
		return n
	}
	r.pump(func() bool { return series("narad_fanout_lag_messages") == 2 }, "a lag for each cursor")
	if got := series("narad_fanout_due_lag_seconds"); got != 1 {
		t.Errorf("%d due lags, want that of the delay child", got)
	}
	c := r.e.set.get(place{"p", 0, "c"})
	if lag := c.high.Load() - c.next.Load(); lag != 2 {
		t.Errorf("lag %d, want 2", lag)
	}
	r.own.failing(model.PartitionKey{Topic: "c"}, nil)
	r.has("c", "a", "b")
	if got := testutil.ToFloat64(r.e.metrics.committed.WithLabelValues("p", "c")); got != 2 {
		t.Errorf("%v committed, want 2", got)
	}
	r.detach("p", "c")
	r.detach("p", "d")
	r.pump(func() bool {
		return series("narad_fanout_lag_messages")+series("narad_fanout_due_lag_seconds")+series("narad_fanout_committed_total") == 0
	}, "no series is left")
}

// A torn read is read again.
func TestTornReadIsRetried(t *testing.T) {
	s := disk.NewSim(1)
	clk := clock.NewFake(epoch0)
	e := &Engine{opts: Options{FS: s, Clock: clk}}
	must(t, s.Mkdir("d"))
	c := &cursor{e: e, file: cursorFile{fs: s, name: "d/f"}, link: &link{}}
	must(t, c.file.anchor(record{someEpoch, 4}))
	must(t, s.Corrupt("d/f", func(b []byte) []byte { b[60] ^= 1; return b }))
	got := make(chan *record, 1)
	go func() {
		r, err := c.load(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	narad.Eventually(t, 10*time.Second, func() bool { return clk.Timers() > 0 }, "the reader waits")
	must(t, s.Corrupt("d/f", func(b []byte) []byte { b[60] ^= 1; return b }))
	clk.Advance(tornReadsApart)
	if r := <-got; r == nil || r.next != 4 {
		t.Errorf("%+v", r)
	}
}
