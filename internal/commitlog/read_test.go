package commitlog

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// Readers by the dozen while commits, rolls, sweeps and a close go on: each read is
// right, past the end, or says that the log is closed.
func TestReadersDuringCommits(t *testing.T) {
	l := openTest(t, disk.NewSim(1), func(o *Options) { o.SegmentBytes = 8 << 10; o.Cache = NewCache(64 << 10) })
	var wg sync.WaitGroup
	var reads atomic.Int64
	for g := range 6 {
		wg.Go(func() {
			var dst []Stored
			for at := int64(0); ; {
				recs, err := l.ReadRun(dst[:0], at, 1+g*7, 0)
				switch {
				case errors.Is(err, ErrPastEnd):
					at = int64(g) // start over: cold reads and tail reads mix
					runtime.Gosched()
				case errors.Is(err, model.ErrLogClosed):
					return
				case err != nil:
					t.Errorf("read %d: %v", at, err)
					return
				}
				for i := range recs {
					checkStored(t, recs[i], at, 60)
					at++
				}
				reads.Add(int64(len(recs)))
			}
		})
	}
	for i := range 150 {
		commit(t, l, 1+i%9, 60)
		_ = l.Stats()
	}
	for reads.Load() < 2000 {
		runtime.Gosched()
	}
	closeLog(t, l)
	wg.Wait()
	if l.opt.Cache.Used() != 0 {
		t.Fatalf("%d bytes cached after close", l.opt.Cache.Used())
	}
}

// Readers while retention takes segments away under them: each read is right or
// says what is the oldest offset, which never comes back above what is retained.
func TestReadersDuringSweeps(t *testing.T) {
	clk := clock.NewFake(start)
	fsys := disk.NewSim(1)
	fsys.SetNow(clk.Now)
	l := openTest(t, fsys, func(o *Options) {
		o.Clock, o.MaxAge, o.SegmentBytes, o.Cache = clk, time.Hour, 1<<10, NewCache(16<<10)
	})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for g := range 4 {
		wg.Go(func() {
			for at := int64(g); ; at++ {
				select {
				case <-stop:
					return
				default:
				}
				s, err := l.Read(at)
				var aged *model.AgedOutError
				switch {
				case err == nil:
					checkStored(t, s, at, 60)
				case errors.As(err, &aged):
					if aged.Oldest <= at {
						t.Errorf("offset %d refused with oldest %d", at, aged.Oldest)
						return
					}
					at = aged.Oldest - 1
				case errors.Is(err, ErrPastEnd):
					at = l.OldestOffset() - 1
					runtime.Gosched()
				default:
					t.Errorf("read %d: %v", at, err)
					return
				}
			}
		})
	}
	for range 120 {
		commit(t, l, 5, 60)
		clk.Advance(10 * time.Minute)
		if _, err := l.Sweep(clk.Now()); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
	if s := l.Stats(); s.OldestOffset == 0 || s.Segments > 20 {
		t.Fatalf("%+v", s)
	}
	closeLog(t, l)
}

// hookFS runs before once, when the next segment is opened.
type hookFS struct {
	disk.FS
	before func()
}

func (f *hookFS) Open(name string, flag int) (disk.File, error) {
	if b := f.before; b != nil {
		f.before = nil
		b()
	}
	return f.FS.Open(name, flag)
}

// A segment swept, or a log closed, between a read's look-up and its open says so,
// not that a file is missing (section 8).
func TestReadThatLosesARace(t *testing.T) {
	clk := clock.NewFake(start)
	build := func() (*Log, *hookFS) {
		fsys := disk.NewSim(1)
		fsys.SetNow(clk.Now)
		hook := &hookFS{FS: fsys}
		l := openTest(t, hook, func(o *Options) { o.Clock, o.MaxAge, o.SegmentBytes = clk, time.Hour, 300 })
		commit(t, l, 4, 100)
		commit(t, l, 4, 100)
		clk.Advance(2 * time.Hour)
		return l, hook
	}
	l, hook := build()
	hook.before = func() {
		if _, err := l.Sweep(clk.Now()); err != nil {
			t.Error(err)
		}
	}
	var gone *model.AgedOutError
	if _, err := l.Read(1); !errors.As(err, &gone) || gone.Oldest != 8 {
		t.Fatalf("swept meanwhile: %v", err)
	}
	closeLog(t, l)
	l, hook = build()
	sim := hook.FS.(*disk.Sim)
	hook.before = func() {
		closeLog(t, l)
		if err := sim.Rename("data/topics/t", "data/topics/t.stale-x"); err != nil {
			t.Error(err)
		}
	}
	if _, err := l.Read(1); !errors.Is(err, model.ErrLogClosed) {
		t.Fatalf("closed and set aside meanwhile: %v", err)
	}
}

// Once somebody reads, what is committed is read back without touching the disk,
// many small commits and one of more than a frame alike.
func TestTailReadsTouchNoDisk(t *testing.T) {
	fsys := disk.NewSim(1)
	l := openTest(t, fsys)
	commit(t, l, 1, 100)
	if _, err := l.Read(0); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		commit(t, l, 1, 100)
	}
	commit(t, l, 3000, 1000) // three frames
	calls := fsys.Calls()
	checkRange(t, l, 1, 41, 100)
	checkRange(t, l, 41, 3041, 1000)
	if n := fsys.Calls() - calls; n != 0 {
		t.Fatalf("%d I/O calls for tail reads", n)
	}
	closeLog(t, l)
}

// A log nobody reads caches nothing.
func TestNothingIsCachedWithoutReaders(t *testing.T) {
	l := openTest(t, disk.NewSim(1), func(o *Options) { o.Cache = NewCache(0) })
	commit(t, l, 10, 100)
	if n := l.opt.Cache.Used(); n != 0 {
		t.Fatalf("%d bytes cached", n)
	}
	if _, err := l.Read(0); err != nil {
		t.Fatal(err)
	}
	used := l.opt.Cache.Used()
	for range unreadCommitsMax + 10 {
		commit(t, l, 1, 100)
	}
	cachedUp := l.opt.Cache.Used()
	commit(t, l, 1, 100)
	if used == 0 || cachedUp <= used || l.opt.Cache.Used() != cachedUp {
		t.Fatalf("cached %d after a read, %d at the bound, %d past it", used, cachedUp, l.opt.Cache.Used())
	}
	closeLog(t, l)
}

// The caches keep their bounds: per log in blocks and bytes, per process in bytes.
func TestCacheBounds(t *testing.T) {
	c := NewCache(3 << 20)
	fsys := disk.NewSim(1)
	a := openTest(t, fsys, func(o *Options) { o.Cache = c })
	b := openTest(t, fsys, func(o *Options) { o.Cache = c; o.Dir = "data/topics/t/p00001" })
	for _, l := range []*Log{a, b} {
		for range 24 {
			commit(t, l, 500, 500)
		}
	}
	for range 2 {
		for _, l := range []*Log{a, b} {
			checkRange(t, l, 0, 12000, 500)
			if n := len(l.view.blocks); n > logBlocksMax {
				t.Fatalf("%d blocks", n)
			}
			if len(l.view.nav) > navPlacesMax {
				t.Fatalf("%d nav places", len(l.view.nav))
			}
			if n := c.Used(); n > 3<<20 || n == 0 {
				t.Fatalf("%d bytes cached", n)
			}
		}
	}
	closeLog(t, a)
	closeLog(t, b)
	if c.Used() != 0 {
		t.Fatalf("%d bytes cached after close", c.Used())
	}
}

// Descriptors do not grow with retained history: two sealed segments and the
// active one keep theirs.
func TestDescriptorsAreBounded(t *testing.T) {
	files := &countingFS{FS: disk.NewSim(1)}
	l := openTest(t, files, func(o *Options) { o.SegmentBytes = 1000 })
	for range 20 {
		commit(t, l, 10, 100)
	}
	if n := files.open.Load(); n > 1 {
		t.Fatalf("%d files open after writing only", n)
	}
	checkRange(t, l, 0, 200, 100)
	for o := int64(199); o >= 0; o -= 7 {
		if _, err := l.Read(o); err != nil {
			t.Fatal(err)
		}
	}
	if n := files.open.Load(); n > recentSegments+1 {
		t.Fatalf("%d files open", n)
	}
	closeLog(t, l)
	if n := files.open.Load(); n != 0 {
		t.Fatalf("%d files open after close", n)
	}
}

type countingFS struct {
	disk.FS
	open atomic.Int64
}

func (f *countingFS) Open(name string, flag int) (disk.File, error) {
	file, err := f.FS.Open(name, flag)
	if err == nil {
		f.open.Add(1)
		file = &countedFile{File: file, fs: f}
	}
	return file, err
}

type countedFile struct {
	disk.File
	fs *countingFS
}

func (f *countedFile) Close() error {
	f.fs.open.Add(-1)
	return f.File.Close()
}

// An open log that nobody uses costs no descriptor and under 2 KiB.
func TestIdleLogIsCheap(t *testing.T) {
	fsys := disk.NewSim(1)
	l := openTest(t, fsys)
	commit(t, l, 100, 100)
	closeLog(t, l)
	const logs = 200
	m := NewMetrics(nil)
	files := &countingFS{FS: fsys}
	open := make([]*Log, logs)
	open[0] = openTest(t, files, func(o *Options) { o.Metrics = m })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC() // twice: the first only retires what pools hold
	runtime.ReadMemStats(&before)
	for i := 1; i < logs; i++ {
		open[i] = openTest(t, files, func(o *Options) { o.Metrics = m })
	}
	runtime.GC()
	runtime.GC() // twice: the first only retires what pools hold
	runtime.ReadMemStats(&after)
	if n := int64(after.HeapAlloc-before.HeapAlloc) / (logs - 1); n > 2<<10 {
		t.Fatalf("%d bytes per idle log", n)
	}
	if n := files.open.Load(); n != 0 {
		t.Fatalf("%d files open", n)
	}
	for _, l := range open {
		closeLog(t, l)
	}
}

// The delay gate ends a slab at the first record committed later and says when it was.
func TestSlabGate(t *testing.T) {
	l := openTest(t, disk.NewSim(1))
	commit(t, l, 10, 50) // committed at start, +1 ms, ...
	at := start.UnixMilli()
	for _, tc := range []struct {
		gate   int64
		n      int
		gated  int64
		from   int64
		wanted int
	}{
		{at - 1, 0, at, 0, 100}, {at, 1, at + 1, 0, 100}, {at + 4, 5, at + 5, 0, 100}, {at + 9, 10, 0, 0, 100},
		{0, 10, 0, 0, 100}, {at + 4, 3, 0, 0, 3}, {at + 4, 0, at + 7, 7, 100}, {at + 4, 0, 0, 10, 100},
	} {
		s, err := l.Slab(nil, tc.from, SlabLimit{MaxRecords: tc.wanted, MaxBytes: 1 << 20, MaxCommittedAt: tc.gate})
		if err != nil || len(s.Records) != tc.n || s.Gated != tc.gated || s.Next != tc.from+int64(tc.n) {
			t.Fatalf("gate %d from %d: %d records, next %d, gated %d, %v; want %d and %d",
				tc.gate-at, tc.from, len(s.Records), s.Next, s.Gated, err, tc.n, tc.gated)
		}
	}
	closeLog(t, l)
}

// Commit times never decrease: within a commit, across commits, and across a
// restart with the clock set back (F42).
func TestCommitTimesNeverDecrease_F42(t *testing.T) {
	fsys := disk.NewSim(1)
	l := openTest(t, fsys)
	put := func(times ...int64) {
		recs := make([]Record, len(times))
		for i, at := range times {
			recs[i] = Record{Payload: []byte{1}, CommittedAt: at}
		}
		if _, err := l.Commit(recs); err != nil {
			t.Fatal(err)
		}
	}
	put(100, 90, 120)
	put(50)
	closeLog(t, l)
	l = openTest(t, fsys)
	put(7, 130)
	for o, want := range []int64{100, 100, 120, 120, 120, 130} {
		if s, err := l.Read(int64(o)); err != nil || s.CommittedAt != want {
			t.Fatalf("offset %d: %d, %v; want %d", o, s.CommittedAt, err, want)
		}
	}
	closeLog(t, l)
}

func TestNotify(t *testing.T) {
	l := openTest(t, disk.NewSim(1))
	var woken atomic.Int64
	l.SetWakeNotifier(func() { woken.Add(1) })
	done := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	a, b := l.NotifyC(), l.NotifyC()
	if done(a) || a != b {
		t.Fatal("waiters share one channel until it fires")
	}
	commit(t, l, 1, 10)
	if !done(a) {
		t.Fatal("a commit wakes")
	}
	c := l.NotifyC()
	if done(c) {
		t.Fatal("a new channel waits for the next announcement")
	}
	l.Wake()
	if !done(c) || woken.Load() != 2 {
		t.Fatalf("Wake: notifier called %d times", woken.Load())
	}
	l.SetWakeNotifier(nil)
	d := l.NotifyC()
	closeLog(t, l)
	if !done(d) || !done(l.NotifyC()) || woken.Load() != 2 {
		t.Fatal("Close wakes for good")
	}
}

func TestAnnounceAndCommitAllocateLittle(t *testing.T) {
	l := openTest(t, nullSync{disk.OS{}}, func(o *Options) { o.Dir = t.TempDir() + "/topics/t/p00000" })
	recs := records(0, 100, 100)
	if n := testing.AllocsPerRun(100, l.Wake); n != 0 {
		t.Fatalf("%v allocations to wake nobody", n)
	}
	n := testing.AllocsPerRun(200, func() {
		if _, err := l.Commit(recs); err != nil {
			t.Fatal(err)
		}
	})
	if n > 4 {
		t.Fatalf("%v allocations for a commit of 100", n)
	}
	closeLog(t, l)
}

// nullSync is the real file system without its slowest call, for counting only.
type nullSync struct{ disk.FS }

func (f nullSync) Open(name string, flag int) (disk.File, error) {
	file, err := f.FS.Open(name, flag)
	return nullSyncFile{file}, err
}

type nullSyncFile struct{ disk.File }

func (nullSyncFile) Sync() error { return nil }

func ExampleDamageError() {
	fmt.Println(&DamageError{Offset: 7, Next: 12})
	// Output: offset 7: record is unreadable (next readable offset 12)
}
