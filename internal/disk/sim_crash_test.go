package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A run of crashes must show every outcome that is allowed and none that is not.
type outcomes map[string]int

func (o outcomes) check(t *testing.T, what string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(o)); !slices.Equal(got, want) {
		t.Errorf("%s: outcomes %q, want exactly %q", what, got, want)
	}
}

const crashes = 300

func TestSyncedBytesSurvive(t *testing.T) {
	for seed := range int64(crashes) {
		s := NewSim(seed)
		f := create(t, s, "f", string(bytes.Repeat([]byte("a"), 1300)))
		must(t, f.Sync())
		must(t, SyncDir(s, "/"))
		if got := contentOf(t, s.Crash(seed), "f"); got != string(bytes.Repeat([]byte("a"), 1300)) {
			t.Fatalf("seed %d: %d bytes survive", seed, len(got))
		}
	}
}

// Unsynced appends: any length, each sector there or zero, the synced part whole.
func TestUnsyncedAppendTears(t *testing.T) {
	zeros, holes, lengths := 0, 0, map[int]bool{}
	for seed := range int64(crashes) {
		s := NewSim(seed)
		f := create(t, s, "f", string(bytes.Repeat([]byte("a"), 700)))
		must(t, f.Sync())
		must(t, SyncDir(s, "/"))
		_, err := f.WriteAt(bytes.Repeat([]byte("b"), 2000), 700)
		must(t, err)
		got := []byte(contentOf(t, s.Crash(seed), "f"))
		lengths[len(got)] = true
		if len(got) < 700 || len(got) > 2700 || !bytes.Equal(got[:700], bytes.Repeat([]byte("a"), 700)) {
			t.Fatalf("seed %d: %d bytes, or the synced part is damaged", seed, len(got))
		}
		sawZero := false
		for from := 700; from < len(got); from = (from/sectorSize + 1) * sectorSize {
			part := got[from:min((from/sectorSize+1)*sectorSize, len(got))]
			if n := bytes.Count(part, []byte("b")); n != 0 && n != len(part) {
				t.Fatalf("seed %d: sector at %d is torn inside", seed, from)
			} else if n == 0 {
				zeros++
				sawZero = true
			} else if sawZero {
				holes++
			}
		}
	}
	if zeros == 0 || holes == 0 || len(lengths) < 20 || !lengths[700] || !lengths[2700] {
		t.Errorf("%d zero sectors, %d written ones behind them, %d lengths", zeros, holes, len(lengths))
	}
}

// An overwritten sector is old, new, or something written in between; never zero.
func TestOverwriteOutcomes(t *testing.T) {
	o := outcomes{}
	for seed := range int64(crashes) {
		s := prepared(t, seed)
		f, err := s.Open("d/f", os.O_RDWR)
		must(t, err)
		for _, v := range []string{"aaa", "bbb", "ccc"} {
			_, err := f.WriteAt([]byte(v), 0)
			must(t, err)
		}
		o[contentOf(t, s.Crash(seed), "d/f")]++
	}
	o.check(t, "overwrite", "old", "aaa", "bbb", "ccc")
}

func TestUnsyncedTruncate(t *testing.T) {
	o := outcomes{}
	for seed := range int64(crashes) {
		s := prepared(t, seed)
		f, err := s.Open("d/f", os.O_RDWR)
		must(t, err)
		must(t, f.Truncate(1))
		o[contentOf(t, s.Crash(seed), "d/f")]++
	}
	o.check(t, "truncate", "old", "o")

	o = outcomes{}
	for seed := range int64(crashes) {
		s := prepared(t, seed)
		f, err := s.Open("d/f", os.O_RDWR|os.O_TRUNC)
		must(t, err)
		_, err = f.WriteAt([]byte("N"), 0)
		must(t, err)
		o[fmt.Sprintf("%.1q", contentOf(t, s.Crash(seed), "d/f")+"-")]++
	}
	o.check(t, "truncate and write", `"o"`, `"N"`, `"\x00"`, `"-"`)
}

// Create, and mkdir: the entry may be gone until the directory is synced, whatever
// was synced in the file.
func TestUnsyncedEntries(t *testing.T) {
	o := outcomes{}
	for seed := range int64(crashes) {
		s := NewSim(seed)
		f := create(t, s, "f", "x")
		must(t, f.Sync())
		must(t, s.Mkdir("d"))
		must(t, create(t, s, "d/g", "").Close())
		must(t, SyncDir(s, "d"))
		o[fmt.Sprint(names(t, s.Crash(seed), "/"))]++
	}
	o.check(t, "creates keep their order", "[]", "[f]", "[d f]")

	o = outcomes{}
	for seed := range int64(crashes) {
		s := NewSim(seed)
		for _, name := range []string{"1", "2", "3", "4"} {
			must(t, create(t, s, name, "").Close())
		}
		o[fmt.Sprint(names(t, s.Crash(seed), "/"))]++
	}
	o.check(t, "every prefix occurs", "[]", "[1]", "[1 2]", "[1 2 3]", "[1 2 3 4]")

	for seed := range int64(crashes) {
		s := NewSim(seed)
		must(t, MkdirDurable(s, "a/b"))
		must(t, create(t, s, "a/b/f", "").Close())
		must(t, SyncDir(s, "a/b"))
		if _, err := s.Crash(seed).Stat("a/b/f"); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func TestRemoveMayBeUndone(t *testing.T) {
	o := outcomes{}
	for seed := range int64(crashes) {
		s := prepared(t, seed)
		must(t, s.Remove("d/f"))
		o[fmt.Sprint(names(t, s.Crash(seed), "d"))]++
	}
	o.check(t, "remove", "[]", "[f]")
	for seed := range int64(crashes) {
		s := prepared(t, seed)
		must(t, s.Remove("d/f"))
		must(t, SyncDir(s, "d"))
		if got := names(t, s.Crash(seed), "d"); len(got) != 0 {
			t.Fatalf("seed %d: removed and synced, found %q", seed, got)
		}
	}
}

// A rename over a file leaves the old content or the new one under the name.
func TestRenameIsAtomic(t *testing.T) {
	o := outcomes{}
	for seed := range int64(crashes) {
		s := prepared(t, seed)
		g := create(t, s, "d/g", "new")
		must(t, g.Sync())
		must(t, SyncDir(s, "d"))
		must(t, s.Rename("d/g", "d/f"))
		after := s.Crash(seed)
		o[fmt.Sprint(names(t, after, "d"))+contentOf(t, after, "d/f")]++
	}
	o.check(t, "rename", "[f g]old", "[f]new")
}

// Renaming what was not synced: the name survives, the bytes need not.
func TestRenameDoesNotSyncContent(t *testing.T) {
	o := outcomes{}
	for seed := range int64(crashes) {
		s := prepared(t, seed)
		must(t, create(t, s, "d/g", "new").Close())
		must(t, s.Rename("d/g", "d/f"))
		must(t, SyncDir(s, "d"))
		o[fmt.Sprintf("%d", len(contentOf(t, s.Crash(seed), "d/f")))]++
	}
	o.check(t, "rename without sync, sizes", "0", "1", "2", "3")
}

func where(t *testing.T, s *Sim, places ...string) string {
	t.Helper()
	out := ""
	for _, p := range places {
		if _, err := s.Stat(p); err == nil {
			out += p + " "
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return out
}

// A file moved across directories: each side is durable by its own directory sync,
// and the source entry goes first only if its directory alone was synced.
func TestMoveFile(t *testing.T) {
	for _, c := range []struct {
		name  string
		syncs []string
		want  []string
	}{
		{"no sync", nil, []string{"a/f ", "a/f b/f ", "b/f "}},
		{"destination", []string{"b"}, []string{"a/f b/f ", "b/f "}},
		{"source", []string{"a"}, []string{"", "b/f "}},
		{"both", []string{"b", "a"}, []string{"b/f "}},
	} {
		o := outcomes{}
		for seed := range int64(crashes) {
			s := NewSim(seed)
			must(t, MkdirDurable(s, "a"))
			must(t, MkdirDurable(s, "b"))
			must(t, create(t, s, "a/f", "").Close())
			must(t, SyncDir(s, "a"))
			must(t, s.Rename("a/f", "b/f"))
			for _, d := range c.syncs {
				must(t, SyncDir(s, d))
			}
			o[where(t, s.Crash(seed), "a/f", "b/f")]++
		}
		o.check(t, c.name, c.want...)
	}
}

// A directory moved across directories is in exactly one place, and once either
// side was synced it is the new one.
func TestMoveDirectory(t *testing.T) {
	for _, c := range []struct {
		name  string
		syncs []string
		want  []string
	}{
		{"no sync", nil, []string{"a/d/f ", "b/d/f "}},
		{"destination", []string{"b"}, []string{"b/d/f "}},
		{"source", []string{"a"}, []string{"b/d/f "}},
	} {
		o := outcomes{}
		for seed := range int64(crashes) {
			s := NewSim(seed)
			must(t, MkdirDurable(s, "a/d"))
			must(t, MkdirDurable(s, "b"))
			must(t, create(t, s, "a/d/f", "").Close())
			must(t, SyncDir(s, "a/d"))
			must(t, s.Mkdir("b/before"))
			must(t, s.Rename("a/d", "b/d"))
			must(t, s.Mkdir("a/after"))
			for _, d := range c.syncs {
				must(t, SyncDir(s, d))
			}
			after := s.Crash(seed)
			if len(c.syncs) > 0 && where(t, after, "b/before") == "" {
				t.Fatalf("%s, seed %d: an earlier change of the other side is gone", c.name, seed)
			}
			o[where(t, after, "a/d/f", "b/d/f")]++
		}
		o.check(t, c.name, c.want...)
	}
}

// Syncing the one side of a moved directory leaves the later changes of the other
// side as they are: not durable yet, and durable by the next sync.
func TestMoveDirectoryKeepsLaterChangesPending(t *testing.T) {
	o := outcomes{}
	for seed := range int64(crashes) {
		s := NewSim(seed)
		must(t, MkdirDurable(s, "a/d"))
		must(t, MkdirDurable(s, "b"))
		must(t, s.Rename("a/d", "b/d"))
		must(t, s.Mkdir("b/later"))
		must(t, SyncDir(s, "a"))
		o[where(t, s.clone(seed), "b/d", "b/later")]++
		must(t, SyncDir(s, "b"))
		if got := where(t, s.Crash(seed), "b/d", "b/later"); got != "b/d b/later " {
			t.Fatalf("seed %d: both sides synced, found %q", seed, got)
		}
	}
	o.check(t, "source synced", "b/d ", "b/d b/later ")
}

// However much was not synced, there are crashes that keep all of it and crashes
// that keep nothing: the cases that fate piece by piece would never show.
func TestExtremesOccur(t *testing.T) {
	all, none := 0, 0
	for seed := range int64(crashes) {
		s := NewSim(seed)
		const files = 40
		for i := range files {
			must(t, create(t, s, fmt.Sprint("f", i), "").Close())
		}
		must(t, SyncDir(s, "/"))
		for i := range files {
			create(t, s, fmt.Sprint("f", i), "x")
		}
		after := s.Crash(seed)
		kept := 0
		for i := range files {
			if contentOf(t, after, fmt.Sprint("f", i)) == "x" {
				kept++
			}
		}
		switch kept {
		case files:
			all++
		case 0:
			none++
		}
	}
	if all == 0 || none == 0 || all+none == crashes {
		t.Errorf("of %d crashes %d kept all and %d nothing", crashes, all, none)
	}
}

// A handle is enough to reach a renamed directory, and syncing it is what counts.
func TestPinnedDirectorySync(t *testing.T) {
	for seed := range int64(crashes) {
		s := NewSim(seed)
		must(t, MkdirDurable(s, "d"))
		d, err := s.OpenDir("d")
		must(t, err)
		must(t, s.Rename("d", "e"))
		must(t, SyncDir(s, "/"))
		_, err = d.Open("f", os.O_RDWR|os.O_CREATE)
		must(t, err)
		must(t, d.Sync())
		if got := where(t, s.Crash(seed), "d/f", "e/f"); got != "e/f " {
			t.Fatalf("seed %d: found %q", seed, got)
		}
	}
}

// The volume after a crash is a volume: usable, and what it shows is durable.
func TestCrashTwice(t *testing.T) {
	for seed := range int64(100) {
		s := NewSim(seed)
		s.SetCapacity(1 << 20)
		scribble(t, s, seed, 40)
		one := s.Crash(seed)
		want := describe(t, one, "/")
		two := one.Crash(seed + 1)
		if got := describe(t, two, "/"); got != want {
			t.Fatalf("seed %d: nothing was written since, yet\n%sbecame\n%s", seed, want, got)
		}
		if _, err := one.List("/"); !errors.Is(err, ErrCrashed) {
			t.Fatalf("the crashed volume answers %v", err)
		}
		if two.Calls() != 0 && two.Fired() != 0 || two.Crashed() {
			t.Fatal("counts carried over")
		}
		if sp, err := two.Space("/"); err != nil || sp.Total != 1<<20 {
			t.Fatalf("capacity did not carry over: %+v, %v", sp, err)
		}
		scribble(t, two, seed, 20)
	}
}

func TestSameSeedsSameOutcome(t *testing.T) {
	for seed := range int64(50) {
		run := func() (string, string) {
			s := NewSim(seed)
			s.Fail(Rule{Op: OpSync, N: 3})
			scribble(t, s, seed, 60)
			return describe(t, s.Crash(seed), "/"), describe(t, s.Crash(seed+1), "/")
		}
		a1, a2 := run()
		b1, b2 := run()
		if a1 != b1 || a2 != b2 {
			t.Fatalf("seed %d: two runs differ", seed)
		}
	}
}

var scribbleNames = []string{"f0", "f1", "d0/f2", "d0/f3", "d1/f4", "d1/d2/f5", "d1/d2", "d0/d3", "d3"}

// scribble does n random operations on a volume; failures of the operations
// themselves are part of it.
func scribble(t *testing.T, fsys FS, seed int64, n int) string {
	t.Helper()
	var log bytes.Buffer
	rng := newRand(seed, 99)
	for _, d := range []string{"d0", "d1/d2"} {
		fmt.Fprintln(&log, errnoOf(fsys.Mkdir(d)))
	}
	for range n {
		name, other := scribbleNames[rng.IntN(len(scribbleNames))], scribbleNames[rng.IntN(len(scribbleNames))]
		op := rng.IntN(8)
		data := bytes.Repeat([]byte{byte('a' + rng.IntN(26))}, rng.IntN(1500))
		off := rng.Int64N(1500)
		var err error
		switch op {
		case 0:
			err = fsys.Rename(name, other)
		case 1:
			err = fsys.Remove(name)
		case 2:
			err = SyncDir(fsys, "d"+fmt.Sprint(rng.IntN(3)))
		case 3:
			err = fsys.Mkdir(name)
		default:
			err = scribbleFile(fsys, name, op, data, off)
		}
		fmt.Fprintf(&log, "%d %s %s %v\n", op, name, other, errnoOf(err))
	}
	return log.String()
}

func scribbleFile(fsys FS, name string, op int, data []byte, off int64) error {
	f, err := fsys.Open(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	switch op {
	case 4, 5:
		_, err = f.WriteAt(data, off)
	case 6:
		err = f.Truncate(off)
	case 7:
		_, err = f.WriteAt(data, off)
		err = errors.Join(err, f.Sync())
	}
	return errors.Join(err, f.Close())
}

// errnoOf is the kind of an error, without the path.
func errnoOf(err error) error {
	var errno syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fs.ErrNotExist
	case errors.As(err, &errno) && errno != syscall.EEXIST:
		return errno
	case errors.Is(err, fs.ErrExist):
		return fs.ErrExist
	}
	return err
}

// chroot lets scribble use relative names on the real file system.
type chroot struct {
	FS
	root string
}

func (c chroot) at(name string) string                    { return c.root + "/" + name }
func (c chroot) Open(name string, flag int) (File, error) { return c.FS.Open(c.at(name), flag) }
func (c chroot) OpenDir(name string) (Dir, error)         { return c.FS.OpenDir(c.at(name)) }
func (c chroot) Mkdir(name string) error                  { return c.FS.Mkdir(c.at(name)) }
func (c chroot) Rename(a, b string) error                 { return c.FS.Rename(c.at(a), c.at(b)) }
func (c chroot) Remove(name string) error                 { return c.FS.Remove(c.at(name)) }

// Without failures the simulation and the real file system do the same.
func TestSimBehavesLikeOS(t *testing.T) {
	for seed := range int64(25) {
		root := t.TempDir()
		real := scribble(t, chroot{OS{}, root}, seed, 60)
		s := NewSim(seed)
		sim := scribble(t, s, seed, 60)
		diff(t, seed, real, sim)
		diff(t, seed, describe(t, OS{}, root), describe(t, s, "/"))
	}
}

// diff fails at the first line in which the real and the simulated report differ.
func diff(t *testing.T, seed int64, real, sim string) {
	t.Helper()
	a, b := strings.Split(real, "\n"), strings.Split(sim, "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			t.Fatalf("seed %d, line %d: real %.200q, simulated %.200q", seed, i+1, a[min(i, len(a)):], b[min(i, len(b)):])
		}
	}
}

// byteModel knows for every byte of one file the values a crash may leave.
type byteModel struct {
	allowed   [][]byte // per position, beyond the file too
	cur       []byte
	stable    []byte
	low, high int
}

const modelSize = 4096

func newByteModel() *byteModel {
	m := &byteModel{allowed: make([][]byte, modelSize)}
	m.sync()
	return m
}

func (m *byteModel) sync() {
	m.stable = bytes.Clone(m.cur)
	m.low, m.high = len(m.cur), len(m.cur)
	for i := range m.allowed {
		m.allowed[i] = []byte{0}
		if i < len(m.stable) {
			m.allowed[i] = []byte{m.stable[i]}
		}
	}
}

func (m *byteModel) write(p []byte, off int) {
	if end := off + len(p); end > len(m.cur) {
		m.cur = append(m.cur, make([]byte, end-len(m.cur))...)
	}
	copy(m.cur[off:], p)
	for i, v := range p {
		m.allowed[off+i] = append(m.allowed[off+i], v)
	}
	m.sized()
}

func (m *byteModel) truncate(size int) {
	for i := size; i < modelSize; i++ {
		m.allowed[i] = append(m.allowed[i], 0)
	}
	m.cur = append(m.cur[:min(size, len(m.cur))], make([]byte, max(size-len(m.cur), 0))...)
	m.sized()
}

func (m *byteModel) sized() { m.low, m.high = min(m.low, len(m.cur)), max(m.high, len(m.cur)) }

func (m *byteModel) check(got []byte) error {
	if len(got) < m.low || len(got) > m.high {
		return fmt.Errorf("%d bytes, the file had %d to %d", len(got), m.low, m.high)
	}
	for i, v := range got {
		if !slices.Contains(m.allowed[i], v) {
			return fmt.Errorf("byte %d is %q, allowed %q", i, v, m.allowed[i])
		}
	}
	return nil
}

// Whatever is done to a file, a crash leaves no byte that was not there since the
// last sync, and no size.
func TestCrashLeavesNoOtherBytes(t *testing.T) {
	for seed := range int64(150) {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		s := NewSim(seed)
		m := newByteModel()
		f := create(t, s, "f", "")
		must(t, SyncDir(s, "/"))
		for range 30 {
			switch op := rng.IntN(10); {
			case op < 5:
				p := bytes.Repeat([]byte{byte(1 + rng.IntN(255))}, 1+rng.IntN(1400))
				off := rng.IntN(modelSize - len(p))
				_, err := f.WriteAt(p, int64(off))
				must(t, err)
				m.write(p, off)
			case op < 7:
				size := rng.IntN(modelSize)
				must(t, f.Truncate(int64(size)))
				m.truncate(size)
			case op == 7:
				must(t, f.Sync())
				m.sync()
			default:
				after := s.clone(rng.Int64())
				b, err := after.Dump("f")
				must(t, err)
				if err := m.check(b); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if b, err := s.Dump("f"); err != nil || !bytes.Equal(b, m.cur) {
				t.Fatalf("seed %d: current bytes differ from the model", seed)
			}
		}
	}
}

// clone is Crash without the crash: the outcome, and the volume goes on.
func (s *Sim) clone(seed int64) *Sim {
	out := s.Crash(seed)
	s.mu.Lock()
	s.crashed = false
	s.mu.Unlock()
	return out
}

// Whatever is done to directories, each of them is after a crash as it was at some
// time since its last sync; no directory is in two places, and a file that was
// durable and never removed is somewhere, unless only its source was synced.
func TestCrashLeavesNoOtherEntries(t *testing.T) {
	dirs := []string{"/", "/a", "/b", "/c"}
	for seed := range int64(150) {
		rng := rand.New(rand.NewPCG(uint64(seed), 8))
		s := NewSim(seed)
		for _, d := range dirs[1:] {
			must(t, MkdirDurable(s, d))
		}
		states := map[string][]string{}
		note := func() {
			for _, d := range dirs {
				if st := fmt.Sprint(inodes(t, s, d)); !slices.Contains(states[d], st) {
					states[d] = append(states[d], st)
				}
			}
		}
		note()
		for range 40 {
			path := func() string { return dirs[1+rng.IntN(3)] + "/" + string(rune('f'+rng.IntN(4))) }
			switch rng.IntN(6) {
			case 0, 1:
				if f, err := s.Open(path(), os.O_RDWR|os.O_CREATE); err == nil {
					must(t, f.Close())
				}
			case 2, 3:
				_ = s.Rename(path(), path())
			case 4:
				_ = s.Remove(path())
			case 5:
				d := dirs[rng.IntN(len(dirs))]
				must(t, SyncDir(s, d))
				states[d] = nil
			}
			note()
			after := s.clone(rng.Int64())
			for _, d := range dirs {
				if st := fmt.Sprint(inodes(t, after, d)); !slices.Contains(states[d], st) {
					t.Fatalf("seed %d: %s is %s after a crash, was %q", seed, d, st, states[d])
				}
			}
		}
	}
}

func inodes(t *testing.T, s *Sim, dir string) []string {
	t.Helper()
	infos, err := s.List(dir)
	must(t, err)
	var out []string
	for _, i := range infos {
		out = append(out, fmt.Sprintf("%s=%d", i.Name, i.ID.Ino))
	}
	return out
}
