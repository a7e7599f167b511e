package wal

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	harness "github.com/narad-mq/narad/internal/testutil"
)

// lying announces another size than it writes.
type lying struct {
	blob
	announced int
}

func (e lying) Size() int { return e.announced }

// panicking does not get as far as its body.
type panicking struct{ blob }

func (e panicking) AppendTo(dst []byte) []byte { panic("no body") }

func TestRefusedBeforeStaging(t *testing.T) {
	l := mustOpen(t, options(disk.NewSim(1), testDir))
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	half := make(blob, BodyMax)
	many := make([]Entry, stagedMax/BodyMax)
	for i := range many {
		many[i] = half
	}
	for name, c := range map[string]struct {
		ctx  context.Context
		es   []Entry
		want error
	}{
		"empty body":            {context.Background(), []Entry{blob{}}, model.ErrInvalid},
		"body too large":        {context.Background(), []Entry{rec(1, 8), make(blob, BodyMax+1)}, model.ErrTooLarge},
		"batch too large":       {context.Background(), many, model.ErrTooLarge},
		"context ended":         {ended, []Entry{rec(1, 8)}, context.Canceled},
		"writes less than said": {context.Background(), []Entry{rec(1, 8), lying{rec(2, 8), 9}}, model.ErrInvalid},
		"writes more than said": {context.Background(), []Entry{rec(1, 8), lying{rec(2, 8), 7}}, model.ErrInvalid},
	} {
		if err := l.AppendMany(c.ctx, c.es); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the entry's panic did not reach the caller")
			}
		}()
		l.AppendMany(context.Background(), []Entry{rec(1, 8), panicking{rec(2, 8)}})
	}()
	if err := l.AppendMany(context.Background(), nil); err != nil {
		t.Errorf("no records: %v", err)
	}
	mustAppend(t, l, rec(1, 8), rec(2, BodyMax))
	wantRecs(t, l, 1, 3)
}

// TestLargestBatch: what the staging bound admits fits, over several segments.
func TestLargestBatch(t *testing.T) {
	l := mustOpen(t, options(disk.NewSim(1), testDir))
	var es []Entry
	body := make(blob, BodyMax)
	for total := 0; total+frameHeaderSize+BodyMax <= stagedMax; total += frameHeaderSize + BodyMax {
		es = append(es, body)
	}
	mustAppend(t, l, rec(len(es)+1, 8))
	if err := l.AppendMany(context.Background(), es); err != nil {
		t.Fatal(err)
	}
	if want := uint64(len(es) + 2); l.Next() != want {
		t.Fatalf("next %d, want %d", l.Next(), want)
	}
}

// gate makes the first sync of a segment wait, so that a test can pile up what comes
// behind it.
type gate struct {
	disk.FS
	entered chan struct{}
	open    chan struct{}
	once    *sync.Once
}

type gatedFile struct {
	disk.File
	g *gate
}

func newGate(fsys disk.FS) *gate {
	return &gate{fsys, make(chan struct{}), make(chan struct{}), new(sync.Once)}
}

func (g *gate) Open(name string, flag int) (disk.File, error) {
	f, err := g.FS.Open(name, flag)
	if err == nil && strings.HasSuffix(name, segmentSuffix) {
		f = gatedFile{f, g}
	}
	return f, err
}

func (f gatedFile) Sync() error {
	f.g.once.Do(func() { close(f.g.entered); <-f.g.open })
	return f.File.Sync()
}

// TestBackpressure: at the staging bound an append waits, its context still counts,
// and it goes on when a sync has ended. Once staged the context no longer counts.
func TestBackpressure(t *testing.T) {
	g := newGate(disk.NewSim(1))
	l := mustOpen(t, options(g, testDir))
	errs := make(chan error, 64)
	staged, cancel := context.WithCancel(context.Background())
	go func() { errs <- l.Append(staged, make(blob, BodyMax)) }()
	<-g.entered
	cancel()
	n := 1
	for size := frameHeaderSize + BodyMax; (n+1)*size <= stagedMax; n++ {
		go func() { errs <- l.Append(context.Background(), make(blob, BodyMax)) }()
	}
	stagedBytes := func() int {
		l.stage.mu.Lock()
		defer l.stage.mu.Unlock()
		return l.stage.staged
	}
	harness.Eventually(t, waitMax, func() bool { return stagedBytes() == n*(frameHeaderSize+BodyMax) }, "all are staged")
	ctx, cancel2 := context.WithCancel(context.Background())
	waiting := make(chan error, 1)
	go func() { waiting <- l.Append(ctx, make(blob, BodyMax)) }()
	cancel2()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Fatalf("append past the bound: %v, want context.Canceled", err)
	}
	go func() { errs <- l.Append(context.Background(), make(blob, BodyMax)) }()
	close(g.open)
	for range n + 1 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if l.Next() != uint64(n+2) || stagedBytes() != 0 {
		t.Fatalf("next %d, staged %d, want %d and 0", l.Next(), stagedBytes(), n+2)
	}
}

// TestGroupCommit: what is staged during a sync shares the next one, and OnDurable
// gets the very entries, in order, before the appends return.
func TestGroupCommit(t *testing.T) {
	g := newGate(disk.NewSim(1))
	o := options(g, testDir)
	var mu sync.Mutex
	var groups [][]Entry
	next := uint64(1)
	o.OnDurable = func(first uint64, es []Entry) {
		mu.Lock()
		defer mu.Unlock()
		if first != next {
			t.Errorf("group starts at %d, want %d", first, next)
		}
		next += uint64(len(es))
		groups = append(groups, es)
	}
	l := mustOpen(t, o)
	var wg sync.WaitGroup
	wg.Go(func() { mustAppend(t, l, rec(1, 8)) })
	<-g.entered
	pair := []Entry{rec(2, 8), rec(3, 8)}
	for range 20 {
		wg.Go(func() {
			if err := l.AppendMany(context.Background(), pair); err != nil {
				t.Error(err)
			}
		})
	}
	harness.Eventually(t, waitMax, func() bool {
		l.stage.mu.Lock()
		defer l.stage.mu.Unlock()
		return len(l.stage.open.entries) == 40
	}, "all are staged")
	close(g.open)
	wg.Wait()
	if len(groups) != 2 || len(groups[0]) != 1 || len(groups[1]) != 40 {
		t.Fatalf("%d groups, want one of 1 and one of 40", len(groups))
	}
	for i, e := range groups[1] {
		if &e.(blob)[0] != &pair[i%2].(blob)[0] {
			t.Fatalf("entry %d is not the one handed in, or batches are mixed", i)
		}
	}
}

// TestLatch: a failed write or sync fails its batch and every later append with the
// same error, for good, and shows in the gauge; reads go on (F12).
func TestLatch(t *testing.T) {
	for _, op := range []disk.Op{disk.OpWrite, disk.OpSync} {
		t.Run(op.String(), func(t *testing.T) {
			s := disk.NewSim(1)
			reg := prometheus.NewRegistry()
			o := options(s, testDir)
			o.Registry = reg
			l := mustOpen(t, o)
			appendRecs(t, l, 1, 4, 100)
			s.Fail(disk.Rule{Op: op, Path: "*.wal", N: 1})
			first := l.Append(context.Background(), rec(4, 100))
			if !errors.Is(first, model.ErrWALFailed) || !errors.Is(first, syscall.EIO) {
				t.Fatalf("append over the failure: %v", first)
			}
			if err := l.Append(context.Background(), rec(4, 100)); err != first || l.Failed() != first {
				t.Fatalf("later append: %v, Failed: %v, want %v", err, l.Failed(), first)
			}
			if got := gauge(t, reg, "narad_ingress_wal_failed"); got != 1 {
				t.Errorf("gauge %v, want 1", got)
			}
			wantRecs(t, l, 1, 4)
			if err := l.Advance(4); err != nil {
				t.Errorf("checkpoint of a failed log: %v", err)
			}
			mustClose(t, l)
			l = mustOpen(t, o)
			if err := l.Failed(); err != nil || gauge(t, reg, "narad_ingress_wal_failed") != 0 {
				t.Errorf("after the restart: %v", err)
			}
			mustAppend(t, l, rec(int(l.Next()), 100))
		})
	}
}

// gauge reads one gauge of a registry.
func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	o := options(disk.NewSim(1), testDir)
	o.Registry = reg
	l := mustOpen(t, o)
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 2 {
		t.Fatalf("%d series, %v, want 2", n, err)
	}
	if got := gauge(t, reg, "narad_ingress_wal_bytes"); got != zeroStep {
		t.Errorf("bytes of a fresh log: %v, want %d", got, zeroStep)
	}
	mustAppend(t, l, rec(1, zeroStep))
	if got := gauge(t, reg, "narad_ingress_wal_bytes"); got != 2*zeroStep {
		t.Errorf("bytes after one step: %v, want %d", got, 2*zeroStep)
	}
	if _, err := Open(Options{FS: disk.NewSim(1), Dir: testDir, Clock: o.Clock, Logger: o.Logger, Registry: reg}); err == nil {
		t.Error("a second log in one registry opened")
	}
}

// TestFailedRollLatchesNothing: no room for the next segment fails the append that
// needed it, and only that (F14).
func TestFailedRollLatchesNothing(t *testing.T) {
	for _, r := range []disk.Rule{
		{Op: disk.OpOpen, Path: newSegmentName, Err: syscall.EMFILE},
		{Op: disk.OpWrite, Path: newSegmentName, Err: syscall.ENOSPC},
		{Op: disk.OpSync, Path: newSegmentName},
		{Op: disk.OpRename, Path: newSegmentName, Err: syscall.EROFS},
		{Op: disk.OpOpen, Path: segmentName(3), Err: syscall.EMFILE},
	} {
		t.Run(r.Op.String()+" "+r.Path, func(t *testing.T) {
			s := disk.NewSim(1)
			o := options(s, testDir)
			o.SegmentBytes = 1000
			l := mustOpen(t, o)
			appendRecs(t, l, 1, 3, 400)
			r.N = 1
			s.Fail(r)
			if err := l.Append(context.Background(), rec(3, 400)); err == nil || errors.Is(err, model.ErrWALFailed) {
				t.Fatalf("append at the failed roll: %v", err)
			}
			if s.Fired() != 1 {
				t.Fatalf("%d calls failed, want 1", s.Fired())
			}
			if _, err := s.Stat(testDir + "/" + newSegmentName); err == nil {
				t.Error("an unfinished segment was left behind")
			}
			appendRecs(t, l, 3, 9, 400)
			wantRecs(t, l, 1, 9)
			mustClose(t, l)
			wantRecs(t, mustOpen(t, o), 1, 9)
		})
	}
}

// TestDiskFull: a full volume refuses or latches, never acknowledges what is not
// there, and after a restart with room everything acknowledged is read (F14).
func TestDiskFull(t *testing.T) {
	for spare := 0; spare < 40_000; spare += 1777 {
		s := disk.NewSim(1)
		o := options(s, testDir)
		o.SegmentBytes = 8192
		l := mustOpen(t, o)
		s.SetCapacity(int64(8192 + 1024 + spare))
		acked := 0
		for id := 1; id < 100; id++ {
			if l.Append(context.Background(), rec(id, 700)) != nil {
				break
			}
			acked = id
		}
		if acked == 99 {
			t.Fatalf("room of %d bytes was never used up", spare)
		}
		l.Close()
		s.SetCapacity(0)
		l = mustOpen(t, o)
		if l.Next() < uint64(acked+1) || l.Next() > uint64(acked+2) {
			t.Fatalf("room %d: next %d, acknowledged up to %d", spare, l.Next(), acked)
		}
		wantRecs(t, l, 1, l.Next())
		mustClose(t, l)
	}
}

// TestConcurrentCrash: 64 producers, batches among them, when the power goes at some
// call; every answered record is there once, those of a batch in a row (O1 O2 O5).
func TestConcurrentCrash(t *testing.T) {
	for seed := range int64(8) {
		s := newVolume(seed)()
		o := options(s, testDir)
		o.SegmentBytes = 20_000
		o.OnDurable = func(uint64, []Entry) {}
		l := mustOpen(t, o)
		s.CrashAt(40 + int(seed)*17)
		var mu sync.Mutex
		acked := map[int]bool{}
		var wg sync.WaitGroup
		for p := range 64 {
			wg.Go(func() {
				for i := 0; ; i += 3 {
					id := p*100_000 + i
					es := []Entry{rec(id, 100), rec(id+1, 900), rec(id+2, 20)}[:1+2*(p%2)]
					if l.AppendMany(context.Background(), es) != nil {
						return
					}
					mu.Lock()
					for j := range es {
						acked[id+j] = true
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		l.Close()
		l = mustOpen(t, options(s.Crash(seed), testDir))
		recs, err := readAll(l, 1)
		if err != nil {
			t.Fatal(err)
		}
		checkLedger(t, recs, acked)
		mustClose(t, l)
	}
}

func checkLedger(t *testing.T, recs []got, acked map[int]bool) {
	t.Helper()
	seen := map[int]bool{}
	last := map[int]int{} // by producer
	for i, r := range recs {
		if r.seq != uint64(i+1) || seen[r.id] {
			t.Fatalf("record %d: seq %d, id %d seen before: %v", i, r.seq, r.id, seen[r.id])
		}
		seen[r.id] = true
		p := r.id / 100_000
		if prev, ok := last[p]; ok && r.id <= prev {
			t.Fatalf("producer %d: id %d after %d", p, r.id, prev)
		}
		last[p] = r.id
		if p%2 == 1 && r.id%100_000%3 > 0 && recs[i-1].id != r.id-1 {
			t.Fatalf("id %d of a batch follows id %d", r.id, recs[i-1].id)
		}
	}
	if len(acked) == 0 {
		t.Fatal("nothing was acknowledged: the crash came too early to say anything")
	}
	for id := range acked {
		if !seen[id] {
			t.Errorf("acknowledged record %d is lost", id)
		}
	}
}
