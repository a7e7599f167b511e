package disk

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// each runs every kind of call once and returns their errors by kind.
func each(s *Sim) map[Op]error {
	errs := map[Op]error{}
	errs[OpMkdir] = s.Mkdir("m")
	_, errs[OpList] = s.List("d")
	_, errs[OpSpace] = s.Space("d")
	d, err := s.OpenDir("d")
	errs[OpOpenDir] = err
	if err == nil {
		errs[OpSyncDir] = d.Sync()
	}
	f, err := s.Open("d/f", os.O_RDWR)
	errs[OpOpen] = err
	if err == nil {
		_, errs[OpWrite] = f.WriteAt([]byte("new"), 0)
		_, errs[OpRead] = f.ReadAt(make([]byte, 1), 0)
		errs[OpTruncate] = f.Truncate(2)
		errs[OpSync] = f.Sync()
	}
	errs[OpRename] = s.Rename("d/f", "d/g")
	errs[OpRemove] = s.Remove("d/g")
	return errs
}

// prepared is a volume with the durable file d/f.
func prepared(t *testing.T, seed int64) *Sim {
	t.Helper()
	s := NewSim(seed)
	must(t, MkdirDurable(s, "d"))
	f := create(t, s, "d/f", "old")
	must(t, f.Sync())
	must(t, f.Close())
	must(t, SyncDir(s, "d"))
	return s
}

func TestEveryCallCounts(t *testing.T) {
	s := prepared(t, 1)
	before := s.Calls()
	for op, err := range each(s) {
		if err != nil {
			t.Errorf("%s: %v", op, err)
		}
	}
	if got := s.Calls() - before; got != 12 {
		t.Errorf("%d calls counted, want 12", got)
	}
	before = s.Calls()
	f := create(t, s, "x", "")
	d, err := s.OpenDir("/")
	must(t, err)
	opened := s.Calls() - before
	for _, stat := range []func() (Info, error){f.Stat, d.Stat, func() (Info, error) { return s.Stat("x") }} {
		_, err := stat()
		must(t, err)
	}
	must(t, errors.Join(f.Close(), d.Close()))
	if got := s.Calls() - before; got != opened {
		t.Error("Close or Stat counted as a call")
	}
}

func TestRuleHitsItsOpOnly(t *testing.T) {
	for op := OpOpen; op <= OpSpace; op++ {
		t.Run(op.String(), func(t *testing.T) {
			s := prepared(t, 1)
			s.Fail(Rule{Op: op})
			errs := each(s)
			wantErr(t, errs[op], syscall.EIO)
			var pe *fs.PathError
			var le *os.LinkError
			if !errors.As(errs[op], &pe) && !errors.As(errs[op], &le) {
				t.Errorf("%v names no path", errs[op])
			}
			for other, err := range errs {
				follows := errors.Is(err, fs.ErrNotExist) && op == OpRename && other == OpRemove
				if other != op && err != nil && !follows {
					t.Errorf("%s failed too: %v", other, err)
				}
			}
			if s.Fired() != 1 {
				t.Errorf("fired %d times", s.Fired())
			}
			s.ClearRules()
			s.Mkdir("d")
			create(t, s, "d/f", "x")
			s.Remove("d/g")
			for other, err := range each(s) {
				if err != nil {
					t.Errorf("rules cleared, still %s: %v", other, err)
				}
			}
		})
	}
}

func TestFailedCallHasNoEffect(t *testing.T) {
	for _, op := range []Op{OpMkdir, OpOpen, OpWrite, OpTruncate, OpRename, OpRemove} {
		s := prepared(t, 1)
		before := describe(t, s, "/")
		s.Fail(Rule{Op: op})
		s.Mkdir("new/dir")
		s.Open("d/new", os.O_RDWR|os.O_CREATE)
		if f, err := s.Open("d/f", os.O_RDWR); err == nil {
			if op == OpWrite {
				f.WriteAt([]byte("xxxxxx"), 0)
			}
			if op == OpTruncate {
				f.Truncate(0)
			}
		}
		if op == OpRename {
			s.Rename("d/f", "g")
		}
		if op == OpRemove {
			s.Remove("d/f")
		}
		s.ClearRules()
		if op != OpOpen {
			s.Remove("d/new")
		}
		if op != OpMkdir {
			s.Remove("new/dir")
			s.Remove("new")
		}
		if got := describe(t, s, "/"); got != before {
			t.Errorf("%s failed and changed\n%sto\n%s", op, before, got)
		}
	}
}

func TestRuleCounts(t *testing.T) {
	for _, c := range []struct {
		name string
		rule Rule
		want string // x = failed
	}{
		{"every", Rule{Op: OpWrite}, "xxxxx"},
		{"third", Rule{Op: OpWrite, N: 3}, "..x.."},
		{"from third", Rule{Op: OpWrite, N: 3, Sticky: true}, "..xxx"},
		{"any op", Rule{N: 2}, ".x..."},
		{"other op", Rule{Op: OpSync}, "....."},
		{"base name", Rule{Path: "*.log"}, "xxxxx"},
		{"other base name", Rule{Path: "*.dat"}, "....."},
		{"base pattern sees no directory", Rule{Path: "d*"}, "....."},
		{"whole path", Rule{Path: "/d/*.log"}, "xxxxx"},
		{"relative path", Rule{Path: "d/f.log"}, "xxxxx"},
		{"other directory", Rule{Path: "/e/*"}, "....."},
		{"too few levels", Rule{Path: "/*"}, "....."},
	} {
		s := NewSim(1)
		must(t, s.Mkdir("d"))
		f := create(t, s, "d/f.log", "")
		s.Fail(c.rule)
		got := ""
		for range 5 {
			if _, err := f.WriteAt([]byte("x"), 0); err != nil {
				got += "x"
			} else {
				got += "."
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestRuleMatchesEitherNameOfARename(t *testing.T) {
	for _, pattern := range []string{"f", "g", "/d/f", "/g"} {
		s := prepared(t, 1)
		s.Fail(Rule{Op: OpRename, Path: pattern, Err: syscall.EXDEV})
		wantErr(t, s.Rename("d/f", "g"), syscall.EXDEV)
	}
}

func TestRuleMatchesThroughADirHandle(t *testing.T) {
	s := prepared(t, 1)
	d, err := s.OpenDir("d")
	must(t, err)
	s.Fail(Rule{Op: OpWrite, Path: "/d/f"})
	f, err := d.Open("f", os.O_RDWR)
	must(t, err)
	_, err = f.WriteAt([]byte("x"), 0)
	wantErr(t, err, syscall.EIO)
}

// All rules count every matching call, whichever of them decides it.
func TestFirstRuleDecides(t *testing.T) {
	s := NewSim(1)
	f := create(t, s, "f", "")
	s.Fail(Rule{Op: OpWrite, N: 1, Err: syscall.EACCES})
	s.Fail(Rule{Op: OpWrite, N: 2, Err: syscall.ENOSPC})
	s.Fail(Rule{Op: OpWrite, N: 2, Err: syscall.EIO})
	for _, want := range []error{syscall.EACCES, syscall.ENOSPC, nil} {
		_, err := f.WriteAt([]byte("x"), 0)
		wantErr(t, err, want)
	}
}

func TestMalformedPatternPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	NewSim(1).Fail(Rule{Path: "["})
}

func TestShortWrite(t *testing.T) {
	for _, c := range []struct {
		short int
		want  string
	}{{0, "......"}, {2, "ab...."}, {6, "abcdef"}, {100, "abcdef"}, {-1, "......"}} {
		s := NewSim(1)
		f := create(t, s, "f", "......")
		s.Fail(Rule{Op: OpWrite, Short: c.short, Err: syscall.ENOSPC})
		n, err := f.WriteAt([]byte("abcdef"), 0)
		wantErr(t, err, syscall.ENOSPC)
		if got := contentOf(t, s, "f"); got != c.want || n != strings.Count(c.want, "")-1-strings.Count(c.want, ".") {
			t.Errorf("short %d: wrote %d, file %q, want %q", c.short, n, got, c.want)
		}
	}
}

// A lying sync says yes and keeps nothing; an honest one later still keeps all.
func TestLyingSync(t *testing.T) {
	lost, dirLost := 0, 0
	for seed := range int64(60) {
		s := prepared(t, seed)
		s.Fail(Rule{Lie: true, Op: OpSync})
		s.Fail(Rule{Lie: true, Op: OpSyncDir})
		f, err := s.Open("d/f", os.O_RDWR)
		must(t, err)
		_, err = f.WriteAt([]byte("new"), 0)
		must(t, err)
		must(t, f.Sync())
		must(t, create(t, s, "d/g", "").Close())
		must(t, SyncDir(s, "d"))
		after := s.Crash(seed)
		if contentOf(t, after, "d/f") == "old" {
			lost++
		}
		if _, err := after.Stat("d/g"); err != nil {
			dirLost++
		}
	}
	if lost == 0 || dirLost == 0 {
		t.Errorf("of 60 lying syncs %d lost bytes and %d an entry; want some of each", lost, dirLost)
	}
	for seed := range int64(30) {
		s := prepared(t, seed)
		f, err := s.Open("d/f", os.O_RDWR)
		must(t, err)
		_, err = f.WriteAt([]byte("new"), 0)
		must(t, err)
		s.Fail(Rule{Lie: true, Op: OpSync, N: 1})
		must(t, f.Sync())
		must(t, f.Sync())
		if got := contentOf(t, s.Crash(seed), "d/f"); got != "new" {
			t.Fatalf("seed %d: an honest sync after a lie kept %q", seed, got)
		}
	}
}

// A lie about anything but a sync is an ordinary failure.
func TestLieIsForSyncsOnly(t *testing.T) {
	s := prepared(t, 1)
	s.Fail(Rule{Lie: true, Op: OpRemove})
	wantErr(t, s.Remove("d/f"), syscall.EIO)
}

// After a failed sync a second one succeeds and yet does not bring the bytes to
// disk; written again, they can be synced.
func TestFailedSyncMustNotBeRetried(t *testing.T) {
	lost, kept, reverted := 0, 0, 0
	for seed := range int64(60) {
		s := prepared(t, seed)
		f, err := s.Open("d/f", os.O_RDWR)
		must(t, err)
		_, err = f.WriteAt([]byte("new"), 0)
		must(t, err)
		s.Fail(Rule{Op: OpSync, N: 1})
		wantErr(t, f.Sync(), syscall.EIO)
		seen := contentOf(t, s, "d/f")
		must(t, f.Sync())
		switch got := seen + " " + contentOf(t, s.Crash(seed), "d/f"); got {
		case "old old":
			reverted++
		case "new old":
			lost++
		case "new new":
			kept++
		default:
			t.Fatalf("seed %d: read and found after the crash: %s", seed, got)
		}

		s = prepared(t, seed)
		f, err = s.Open("d/f", os.O_RDWR)
		must(t, err)
		s.Fail(Rule{Op: OpSync, N: 1})
		for _, want := range []error{syscall.EIO, nil} {
			_, err = f.WriteAt([]byte("new"), 0)
			must(t, err)
			wantErr(t, f.Sync(), want)
		}
		if got := contentOf(t, s.Crash(seed), "d/f"); got != "new" {
			t.Fatalf("seed %d: rewritten after a failed sync, then synced: %q", seed, got)
		}
	}
	if lost == 0 || kept == 0 || reverted == 0 {
		t.Errorf("of 60 failed syncs: %d lost, %d kept, %d reverted in the cache; want some of each", lost, kept, reverted)
	}
}

// CrashAt(n) counts from now, and everything after the n-th call is dead.
func TestCrashAt(t *testing.T) {
	s := prepared(t, 1)
	f, err := s.Open("d/f", os.O_RDWR)
	must(t, err)
	d, err := s.OpenDir("d")
	must(t, err)
	s.CrashAt(2)
	_, err = f.WriteAt([]byte("1"), 0)
	must(t, err)
	_, err = f.WriteAt([]byte("2"), 0)
	wantErr(t, err, ErrCrashed)
	if !s.Crashed() {
		t.Fatal("not crashed")
	}
	calls := s.Calls()
	for op, err := range each(s) {
		if !errors.Is(err, ErrCrashed) {
			t.Errorf("%s after the crash: %v", op, err)
		}
	}
	_, openErr := d.Open("f", os.O_RDWR)
	_, readErr := f.ReadAt(make([]byte, 1), 0)
	_, writeErr := f.WriteAt([]byte("3"), 0)
	_, statErr := f.Stat()
	_, dirStatErr := d.Stat()
	_, pathStatErr := s.Stat("d")
	for _, err := range []error{openErr, readErr, writeErr, statErr, dirStatErr, pathStatErr, f.Sync(), f.Truncate(0), d.Sync()} {
		wantErr(t, err, ErrCrashed)
	}
	must(t, errors.Join(f.Close(), d.Close()))
	if s.Calls() != calls {
		t.Error("calls on a dead volume were counted")
	}

	s = prepared(t, 1)
	s.CrashAt(1)
	s.CrashAt(0)
	must(t, s.Mkdir("x"))
}

// The call the power goes in may have taken effect, or not.
func TestCrashAtIsUndecided(t *testing.T) {
	for _, op := range []Op{OpMkdir, OpOpen, OpWrite, OpTruncate, OpRename, OpRemove, OpSync, OpSyncDir} {
		outcomes := map[string]bool{}
		for seed := range int64(80) {
			s := prepared(t, seed)
			f, err := s.Open("d/f", os.O_RDWR)
			must(t, err)
			d, err := s.OpenDir("d")
			must(t, err)
			switch op {
			case OpSync:
				_, err = f.WriteAt([]byte("new"), 0)
			case OpSyncDir:
				err = s.Rename("d/f", "d/g")
			}
			must(t, err)
			s.CrashAt(1)
			switch op {
			case OpMkdir:
				err = s.Mkdir("m")
			case OpOpen:
				_, err = s.Open("d/new", os.O_RDWR|os.O_CREATE)
			case OpWrite:
				_, err = f.WriteAt([]byte("new"), 0)
			case OpTruncate:
				err = f.Truncate(0)
			case OpRename:
				err = s.Rename("d/f", "d/g")
			case OpRemove:
				err = s.Remove("d/f")
			case OpSync:
				err = f.Sync()
			case OpSyncDir:
				err = d.Sync()
			}
			wantErr(t, err, ErrCrashed)
			outcomes[describe(t, s.Crash(seed), "/")] = true
		}
		if len(outcomes) < 2 {
			t.Errorf("%s: always the same outcome", op)
		}
	}
}

func TestCapacity(t *testing.T) {
	s := NewSim(1)
	s.SetCapacity(4 * sectorSize)
	room := func() int64 {
		sp, err := s.Space("/")
		must(t, err)
		if sp.Total != 4*sectorSize {
			t.Errorf("total %d", sp.Total)
		}
		return int64(sp.Available) / sectorSize
	}
	f := create(t, s, "f", strings.Repeat("x", 2*sectorSize))
	if room() != 2 {
		t.Fatalf("room for %d sectors, want 2", room())
	}
	n, err := f.WriteAt(make([]byte, 3*sectorSize), 2*sectorSize)
	wantErr(t, err, syscall.ENOSPC)
	if n != 2*sectorSize || room() != 0 {
		t.Fatalf("wrote %d bytes, room for %d sectors", n, room())
	}
	_, err = f.WriteAt([]byte("in place"), 100)
	must(t, err) // overwriting takes no room
	g := create(t, s, "g", "")
	must(t, g.Truncate(100*sectorSize)) // neither does a hole
	_, err = g.WriteAt([]byte("x"), 50*sectorSize)
	wantErr(t, err, syscall.ENOSPC)

	must(t, f.Truncate(2*sectorSize+1))
	if room() != 1 {
		t.Fatalf("after truncate room for %d sectors, want 1", room())
	}
	must(t, s.Remove("f"))
	if room() != 1 {
		t.Fatalf("removed but open: room for %d sectors, want 1", room())
	}
	must(t, f.Close())
	if room() != 4 {
		t.Fatalf("removed and closed: room for %d sectors, want 4", room())
	}
	must(t, g.Close())
	must(t, create(t, s, "h", "x").Close())
	must(t, create(t, s, "i", "x").Close())
	must(t, s.Rename("h", "i"))
	if room() != 3 {
		t.Fatalf("replaced by a rename: room for %d sectors, want 3", room())
	}
	must(t, create(t, s, "i", "").Close())
	if room() != 4 {
		t.Fatalf("O_TRUNC: room for %d sectors, want 4", room())
	}
	s.SetCapacity(0)
	must(t, create(t, s, "big", strings.Repeat("x", 100*sectorSize)).Close())
	s.SetCapacity(10)
	if sp, err := s.Space("/"); err != nil || sp.Available != 0 {
		t.Errorf("overfull volume: %+v, %v", sp, err)
	}
}

// The room counted along the way is the room taken, also after a crash.
func TestCapacityAfterCrash(t *testing.T) {
	for seed := range int64(50) {
		s := NewSim(seed)
		s.SetCapacity(1 << 20)
		scribble(t, s, seed, 60)
		for _, v := range []*Sim{s, s.Crash(seed)} {
			var sectors int64
			for _, n := range nodesOf(v) {
				if n.content != nil {
					sectors += int64(len(n.cur))
				}
			}
			if v.sectors != sectors {
				t.Fatalf("seed %d: %d sectors counted, %d taken", seed, v.sectors, sectors)
			}
		}
	}
}

func nodesOf(s *Sim) []*node {
	seen := map[*node]bool{}
	var out []*node
	var walk func(*node)
	walk = func(n *node) {
		if seen[n] {
			return
		}
		seen[n] = true
		out = append(out, n)
		for _, child := range n.entries {
			walk(child)
		}
	}
	walk(s.root)
	return out
}

func TestCorruptAndDump(t *testing.T) {
	s := prepared(t, 1)
	must(t, s.Corrupt("d/f", func(b []byte) []byte {
		b[1] ^= 0xff
		return append(b, strings.Repeat("z", 2*sectorSize)...)
	}))
	want := "o\x93d" + strings.Repeat("z", 2*sectorSize)
	for seed := range int64(10) {
		after := s.Crash(seed)
		b, err := after.Dump("d/f")
		must(t, err)
		if string(b) != want || contentOf(t, after, "d/f") != want {
			t.Fatalf("seed %d: damage is not at rest", seed)
		}
	}
	if b, err := s.Dump("d/f"); err != nil || string(b) != want {
		t.Errorf("Dump of a dead volume: %d bytes, %v", len(b), err)
	}
	_, err := s.Dump("d")
	wantErr(t, err, syscall.EISDIR)
	_, err = s.Dump("absent")
	wantErr(t, err, fs.ErrNotExist)
	wantErr(t, s.Corrupt("absent", func(b []byte) []byte { return b }), fs.ErrNotExist)
}

func TestModTimes(t *testing.T) {
	s := NewSim(1)
	modOf := func(name string) time.Time {
		info, err := s.Stat(name)
		must(t, err)
		return info.ModTime
	}
	f := create(t, s, "f", "x")
	first := modOf("f")
	must(t, f.Sync())
	if !modOf("f").Equal(first) {
		t.Error("a sync moved the modification time")
	}
	_, err := f.WriteAt([]byte("y"), 0)
	must(t, err)
	if !modOf("f").After(first) {
		t.Error("a write did not move the modification time")
	}
	old := time.Unix(1000, 0)
	must(t, s.SetModTime("f", old))
	if !modOf("f").Equal(old) {
		t.Error("SetModTime had no effect")
	}
	wantErr(t, s.SetModTime("absent", old), fs.ErrNotExist)
	fixed := time.Unix(5000, 0)
	s.SetNow(func() time.Time { return fixed })
	must(t, f.Truncate(0))
	if !modOf("f").Equal(fixed) {
		t.Errorf("stamped %s by an injected clock", modOf("f"))
	}
	must(t, s.Mkdir("d"))
	if !modOf("d").Equal(fixed) || !modOf("/").Equal(fixed) {
		t.Error("directories are not stamped")
	}
}

func TestNamesAreRooted(t *testing.T) {
	s := NewSim(1)
	must(t, s.Mkdir("a/b"))
	must(t, create(t, s, "/a/b/f", "x").Close())
	for _, name := range []string{"a/b/f", "/a/b/f", "./a//b/../b/f", "../a/b/f"} {
		if got := contentOf(t, s, name); got != "x" {
			t.Errorf("%s holds %q", name, got)
		}
	}
	_, err := s.Open("/", os.O_RDWR)
	wantErr(t, err, syscall.EISDIR)
	wantErr(t, s.Remove("/"), syscall.EBUSY)
	wantErr(t, s.Rename("/", "/x"), syscall.EINVAL)
	wantErr(t, s.Rename("/a", "/"), syscall.EINVAL)
}

func TestConcurrentUse(t *testing.T) {
	s := NewSim(1)
	f := create(t, s, "shared", "")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name := "f" + string(rune('a'+i))
			g, err := s.Open(name, os.O_RDWR|os.O_CREATE)
			if err != nil {
				t.Error(err)
				return
			}
			for j := range 50 {
				f.WriteAt([]byte{byte(i)}, int64(i*50+j))
				g.WriteAt([]byte{byte(j)}, int64(j))
				g.Sync()
				s.List("/")
			}
			g.Close()
		})
	}
	wg.Wait()
	b, err := s.Dump("shared")
	must(t, err)
	for i, v := range b {
		if int(v) != i/50 {
			t.Fatalf("byte %d is %d", i, v)
		}
	}
}

func TestOpNames(t *testing.T) {
	if OpAny.String() != "any" || OpSpace.String() != "space" || Op(99).String() != "op 99" {
		t.Errorf("%s %s %s", OpAny, OpSpace, Op(99))
	}
}
