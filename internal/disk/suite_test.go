package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// volume is a file system under test and the directory in which a test works.
type volume struct {
	FS
	root string
}

func (v volume) at(name string) string { return path.Join(v.root, name) }

// onBoth runs one behavioural test on the real file system and on the simulated one.
func onBoth(t *testing.T, test func(t *testing.T, v volume)) {
	t.Run("OS", func(t *testing.T) { test(t, volume{OS{}, filepath.ToSlash(t.TempDir())}) })
	t.Run("Sim", func(t *testing.T) {
		s := NewSim(1)
		must(t, s.Mkdir("/vol"))
		test(t, volume{s, "/vol"})
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func create(t *testing.T, fsys FS, name, data string) File {
	t.Helper()
	f, err := fsys.Open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	must(t, err)
	if data != "" {
		n, err := f.WriteAt([]byte(data), 0)
		must(t, err)
		if n != len(data) {
			t.Fatalf("wrote %d of %d bytes", n, len(data))
		}
	}
	return f
}

func contentOf(t *testing.T, fsys FS, name string) string {
	t.Helper()
	b, err := ReadFile(fsys, name, 1<<20)
	must(t, err)
	return string(b)
}

func names(t *testing.T, fsys FS, dir string) []string {
	t.Helper()
	infos, err := fsys.List(dir)
	must(t, err)
	var out []string
	for _, i := range infos {
		out = append(out, i.Name)
	}
	return out
}

func TestOpenFlags(t *testing.T) {
	onBoth(t, func(t *testing.T, v volume) {
		_, err := v.Open(v.at("f"), os.O_RDWR)
		wantErr(t, err, fs.ErrNotExist)
		_, err = v.Open(v.at("no/f"), os.O_RDWR|os.O_CREATE)
		wantErr(t, err, fs.ErrNotExist)

		f := create(t, v, v.at("f"), "content")
		must(t, f.Close())
		_, err = v.Open(v.at("f"), os.O_RDWR|os.O_CREATE|os.O_EXCL)
		wantErr(t, err, fs.ErrExist)
		_, err = v.Open(v.at("f/below"), os.O_RDWR|os.O_CREATE)
		wantErr(t, err, syscall.ENOTDIR)
		_, err = v.Open(v.root, os.O_RDWR)
		wantErr(t, err, syscall.EISDIR)

		var pe *fs.PathError
		if _, err = v.Open(v.at("absent"), os.O_RDONLY); !errors.As(err, &pe) || pe.Path != v.at("absent") {
			t.Errorf("error %v does not name the path", err)
		}

		f, err = v.Open(v.at("f"), os.O_RDWR|os.O_CREATE)
		must(t, err)
		must(t, f.Close())
		if got := contentOf(t, v, v.at("f")); got != "content" {
			t.Errorf("opening with O_CREATE left %q", got)
		}
		f, err = v.Open(v.at("f"), os.O_RDWR|os.O_TRUNC)
		must(t, err)
		must(t, f.Close())
		if got := contentOf(t, v, v.at("f")); got != "" {
			t.Errorf("opening with O_TRUNC left %q", got)
		}
	})
}

func TestAccessModes(t *testing.T) {
	onBoth(t, func(t *testing.T, v volume) {
		must(t, create(t, v, v.at("f"), "content").Close())
		r, err := v.Open(v.at("f"), os.O_RDONLY)
		must(t, err)
		_, err = r.WriteAt([]byte("x"), 0)
		wantErr(t, err, syscall.EBADF)
		if err := r.Truncate(0); err == nil {
			t.Error("truncated through a read-only handle")
		}
		must(t, r.Sync())
		must(t, r.Close())
		w, err := v.Open(v.at("f"), os.O_WRONLY)
		must(t, err)
		_, err = w.ReadAt(make([]byte, 1), 0)
		wantErr(t, err, syscall.EBADF)
		must(t, w.Close())
	})
}

func TestClosedHandles(t *testing.T) {
	onBoth(t, func(t *testing.T, v volume) {
		f := create(t, v, v.at("f"), "content")
		must(t, f.Close())
		wantErr(t, f.Close(), fs.ErrClosed)
		_, err := f.WriteAt([]byte("x"), 0)
		wantErr(t, err, fs.ErrClosed)
		_, err = f.ReadAt(make([]byte, 1), 0)
		wantErr(t, err, fs.ErrClosed)
		wantErr(t, f.Sync(), fs.ErrClosed)
		wantErr(t, f.Truncate(0), fs.ErrClosed)
		_, err = f.Stat()
		wantErr(t, err, fs.ErrClosed)

		d, err := v.OpenDir(v.root)
		must(t, err)
		must(t, d.Close())
		_, err = d.Open("f", os.O_RDWR)
		wantErr(t, err, fs.ErrClosed)
		wantErr(t, d.Sync(), fs.ErrClosed)
		_, err = d.Stat()
		wantErr(t, err, fs.ErrClosed)
		must(t, d.Close())
	})
}

func TestReadAtEnds(t *testing.T) {
	onBoth(t, func(t *testing.T, v volume) {
		f := create(t, v, v.at("f"), "0123456789")
		defer f.Close()
		for _, c := range []struct {
			size int
			off  int64
			want string
			err  error
		}{
			{10, 0, "0123456789", nil}, {4, 3, "3456", nil}, {3, 7, "789", nil},
			{4, 7, "789", io.EOF}, {1, 10, "", io.EOF}, {1, 1 << 40, "", io.EOF}, {0, 10, "", nil}, {0, 20, "", nil},
		} {
			b := make([]byte, c.size)
			n, err := f.ReadAt(b, c.off)
			if err != c.err || string(b[:n]) != c.want {
				t.Errorf("ReadAt(%d bytes, %d) = %q, %v; want %q, %v", c.size, c.off, b[:n], err, c.want, c.err)
			}
		}
		if _, err := f.ReadAt(make([]byte, 1), -1); err == nil || err == io.EOF {
			t.Errorf("ReadAt(-1): %v", err)
		}
		if _, err := f.WriteAt([]byte("x"), -1); err == nil {
			t.Error("WriteAt(-1) succeeded")
		}
		wantErr(t, f.Truncate(-1), syscall.EINVAL)
	})
}

// Holes, shrinking and growing again read as zeros, at every alignment to sectors.
func TestSizesAndZeros(t *testing.T) {
	onBoth(t, func(t *testing.T, v volume) {
		f := create(t, v, v.at("f"), "")
		defer f.Close()
		want := []byte{}
		write := func(off int64, n int, fill byte) {
			b := bytes.Repeat([]byte{fill}, n)
			_, err := f.WriteAt(b, off)
			must(t, err)
			if end := int(off) + n; n > 0 && end > len(want) {
				want = append(want, make([]byte, end-len(want))...)
			}
			copy(want[min(int(off), len(want)):], b)
		}
		cutTo := func(size int) {
			must(t, f.Truncate(int64(size)))
			want = append(want[:min(size, len(want))], make([]byte, max(size-len(want), 0))...)
		}
		check := func(what string) {
			t.Helper()
			info, err := f.Stat()
			must(t, err)
			got := make([]byte, info.Size)
			if len(got) > 0 {
				_, err = f.ReadAt(got, 0)
				must(t, err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("%s: %d bytes differ from the %d expected", what, len(got), len(want))
			}
		}
		write(700, 100, 'a')
		check("hole before the first write")
		write(5000, 0, 'x')
		check("empty write past the end")
		cutTo(750)
		cutTo(2000)
		check("shrunk inside a sector, grown")
		write(511, 2, 'b')
		write(1024, 512, 'c')
		check("sector edges")
		cutTo(1024)
		cutTo(4096)
		check("shrunk at a sector edge, grown")
		cutTo(0)
		check("empty")
		cutTo(1)
		check("one zero")
	})
}

func TestMkdir(t *testing.T) {
	onBoth(t, func(t *testing.T, v volume) {
		must(t, v.Mkdir(v.at("a/b/c")))
		must(t, v.Mkdir(v.at("a/b/c")))
		info, err := v.Stat(v.at("a/b"))
		must(t, err)
		if !info.IsDir || info.Name != "b" {
			t.Errorf("Stat = %+v", info)
		}
		must(t, create(t, v, v.at("f"), "x").Close())
		wantErr(t, v.Mkdir(v.at("f")), syscall.ENOTDIR)
		wantErr(t, v.Mkdir(v.at("f/below")), syscall.ENOTDIR)
		must(t, MkdirDurable(v, v.at("a/b/d/e")))
		must(t, MkdirDurable(v, v.at("a/b/d/e")))
		if got := names(t, v, v.at("a/b")); !slices.Equal(got, []string{"c", "d"}) {
			t.Errorf("names %q", got)
		}
	})
}

func TestRename(t *testing.T) {
	onBoth(t, func(t *testing.T, v volume) {
		must(t, v.Mkdir(v.at("d/sub")))
		must(t, v.Mkdir(v.at("e")))
		must(t, create(t, v, v.at("one"), "1").Close())
		must(t, create(t, v, v.at("two"), "2").Close())

		must(t, v.Rename(v.at("one"), v.at("two")))
		if got := contentOf(t, v, v.at("two")); got != "1" {
			t.Errorf("replaced file holds %q", got)
		}
		_, err := v.Stat(v.at("one"))
		wantErr(t, err, fs.ErrNotExist)
		must(t, v.Rename(v.at("two"), v.at("two")))
		must(t, v.Rename(v.at("two"), v.at("d/three")))
		if got := names(t, v, v.root); !slices.Equal(got, []string{"d", "e"}) {
			t.Errorf("names %q", got)
		}

		wantErr(t, v.Rename(v.at("absent"), v.at("x")), fs.ErrNotExist)
		wantErr(t, v.Rename(v.at("d/three"), v.at("absent/x")), fs.ErrNotExist)
		wantErr(t, v.Rename(v.at("d/three"), v.at("e")), fs.ErrExist)
		wantErr(t, v.Rename(v.at("d"), v.at("e")), fs.ErrExist)
		wantErr(t, v.Rename(v.at("e"), v.at("d/three")), syscall.ENOTDIR)
		wantErr(t, v.Rename(v.at("d"), v.at("d/sub/d")), syscall.EINVAL)
		wantErr(t, v.Rename(v.at("d/three/x"), v.at("x")), syscall.ENOTDIR)
		var le *os.LinkError
		if err := v.Rename(v.at("absent"), v.at("x")); !errors.As(err, &le) || le.Old != v.at("absent") || le.New != v.at("x") {
			t.Errorf("error %v does not name both paths", err)
		}

		must(t, v.Rename(v.at("d"), v.at("e/d")))
		if got := contentOf(t, v, v.at("e/d/three")); got != "1" {
			t.Errorf("file in a moved directory holds %q", got)
		}
	})
}

func TestRemove(t *testing.T) {
	onBoth(t, func(t *testing.T, v volume) {
		must(t, v.Mkdir(v.at("d")))
		must(t, create(t, v, v.at("d/f"), "x").Close())
		wantErr(t, v.Remove(v.at("absent")), fs.ErrNotExist)
		if err := v.Remove(v.at("d")); err == nil {
			t.Fatal("removed a directory that was not empty")
		}
		must(t, v.Remove(v.at("d/f")))
		must(t, v.Remove(v.at("d")))
		if got := names(t, v, v.root); len(got) != 0 {
			t.Errorf("left %q", got)
		}
	})
}

// A handle names the file it opened, not the path.
func TestHandlesOutliveTheirPath(t *testing.T) {
	onBoth(t, func(t *testing.T, v volume) {
		f := create(t, v, v.at("f"), "old")
		before, err := f.Stat()
		must(t, err)
		must(t, v.Rename(v.at("f"), v.at("g")))
		must(t, create(t, v, v.at("f"), "another").Close())
		_, err = f.WriteAt([]byte("new"), 0)
		must(t, err)
		if got := contentOf(t, v, v.at("g")); got != "new" {
			t.Errorf("renamed file holds %q", got)
		}
		moved, err := v.Stat(v.at("g"))
		must(t, err)
		other, err := v.Stat(v.at("f"))
		must(t, err)
		if moved.ID != before.ID || other.ID == before.ID {
			t.Errorf("IDs: opened %v, moved %v, other %v", before.ID, moved.ID, other.ID)
		}
		must(t, v.Remove(v.at("g")))
		b := make([]byte, 3)
		_, err = f.ReadAt(b, 0)
		must(t, err)
		if string(b) != "new" {
			t.Errorf("removed file reads %q", b)
		}
		must(t, f.Sync())
		must(t, f.Close())
	})
}

func TestListAndStat(t *testing.T) {
	onBoth(t, func(t *testing.T, v volume) {
		must(t, v.Mkdir(v.at("d")))
		for _, n := range []string{"b", "a", "B", "a.log", "~"} {
			must(t, create(t, v, v.at("d/"+n), n+n).Close())
		}
		must(t, v.Mkdir(v.at("d/c")))
		infos, err := v.List(v.at("d"))
		must(t, err)
		got := ""
		for _, i := range infos {
			if !i.IsDir && i.Size != int64(2*len(i.Name)) || i.IsDir != (i.Name == "c") || i.ModTime.IsZero() {
				t.Errorf("entry %+v", i)
			}
			got += i.Name + " "
		}
		if got != "B a a.log b c ~ " {
			t.Errorf("order %q", got)
		}
		_, err = v.List(v.at("absent"))
		wantErr(t, err, fs.ErrNotExist)
		_, err = v.List(v.at("d/a"))
		wantErr(t, err, syscall.ENOTDIR)
		_, err = v.Stat(v.at("absent"))
		wantErr(t, err, fs.ErrNotExist)
	})
}

// A directory handle pins the directory it opened.
func TestDirHandle(t *testing.T) {
	onBoth(t, func(t *testing.T, v volume) {
		must(t, v.Mkdir(v.at("d")))
		d, err := v.OpenDir(v.at("d"))
		must(t, err)
		defer d.Close()
		info, err := d.Stat()
		must(t, err)
		if byPath, err := v.Stat(v.at("d")); err != nil || !info.IsDir || info.Name != "d" || info.ID != byPath.ID {
			t.Errorf("handle %+v, path %+v, %v", info, byPath, err)
		}

		must(t, v.Rename(v.at("d"), v.at("aside")))
		must(t, v.Mkdir(v.at("d")))
		f, err := d.Open("f", os.O_RDWR|os.O_CREATE)
		must(t, err)
		must(t, f.Close())
		must(t, d.Sync())
		if _, err := v.Stat(v.at("aside/f")); err != nil {
			t.Error("the file is not in the pinned directory:", err)
		}
		if got := names(t, v, v.at("d")); len(got) != 0 {
			t.Errorf("the directory now at that path has %q", got)
		}
		for _, bad := range []string{"", ".", "..", "a/b", "../d/f", "/f"} {
			_, err := d.Open(bad, os.O_RDWR|os.O_CREATE)
			wantErr(t, err, fs.ErrInvalid)
		}
		_, err = d.Open("absent", os.O_RDWR)
		wantErr(t, err, fs.ErrNotExist)
		_, err = d.Open("f", os.O_RDWR|os.O_CREATE|os.O_EXCL)
		wantErr(t, err, fs.ErrExist)

		must(t, v.Remove(v.at("aside/f")))
		must(t, v.Remove(v.at("aside")))
		_, err = d.Open("late", os.O_RDWR|os.O_CREATE)
		wantErr(t, err, fs.ErrNotExist)

		_, err = v.OpenDir(v.at("absent"))
		wantErr(t, err, fs.ErrNotExist)
		must(t, create(t, v, v.at("f"), "").Close())
		_, err = v.OpenDir(v.at("f"))
		wantErr(t, err, syscall.ENOTDIR)
	})
}

func TestSpace(t *testing.T) {
	onBoth(t, func(t *testing.T, v volume) {
		sp, err := v.Space(v.root)
		must(t, err)
		if sp.Total == 0 || sp.Available > sp.Total {
			t.Errorf("space %+v", sp)
		}
		_, err = v.Space(v.at("absent"))
		wantErr(t, err, fs.ErrNotExist)
	})
}

func TestReadFileLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, v volume) {
		must(t, create(t, v, v.at("f"), "0123456789").Close())
		if b, err := ReadFile(v, v.at("f"), 10); err != nil || len(b) != 10 {
			t.Errorf("at the limit: %d bytes, %v", len(b), err)
		}
		if b, err := ReadFile(v, v.at("f"), 9); err == nil {
			t.Errorf("past the limit: %d bytes", len(b))
		}
		_, err := ReadFile(v, v.at("absent"), 9)
		wantErr(t, err, fs.ErrNotExist)
	})
}

func TestWriteFileAtomicReplaces(t *testing.T) {
	onBoth(t, func(t *testing.T, v volume) {
		for _, data := range []string{"first", "", "third one"} {
			must(t, WriteFileAtomic(v, v.at("f"), []byte(data)))
			if got := contentOf(t, v, v.at("f")); got != data {
				t.Errorf("holds %q, want %q", got, data)
			}
		}
		if got := names(t, v, v.root); !slices.Equal(got, []string{"f"}) {
			t.Errorf("left %q", got)
		}
	})
}

// Files and directories are for the owner alone (spec/storage-and-produce section 2).
func TestOSModes(t *testing.T) {
	if os.PathSeparator != '/' {
		t.Skip("modes are a Unix matter")
	}
	root := t.TempDir()
	must(t, OS{}.Mkdir(root+"/d/e"))
	must(t, create(t, OS{}, root+"/d/f", "").Close())
	d, err := OS{}.OpenDir(root + "/d")
	must(t, err)
	g, err := d.Open("g", os.O_RDWR|os.O_CREATE)
	must(t, err)
	must(t, errors.Join(g.Close(), d.Close()))
	for name, want := range map[string]fs.FileMode{"d": 0o700, "d/e": 0o700, "d/f": 0o600, "d/g": 0o600} {
		fi, err := os.Stat(root + "/" + name)
		must(t, err)
		if got := fi.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", name, got, want)
		}
	}
	must(t, os.Chmod(root+"/d/f", 0o640))
	must(t, create(t, OS{}, root+"/d/f", "x").Close())
	fi, err := os.Stat(root + "/d/f")
	must(t, err)
	if fi.Mode().Perm() != 0o640 {
		t.Errorf("opening changed the mode to %o", fi.Mode().Perm())
	}
}

// Stat describes a link itself, and a pinned directory opens none that leaves it.
func TestOSLinks(t *testing.T) {
	root := t.TempDir()
	must(t, OS{}.Mkdir(root+"/d"))
	must(t, create(t, OS{}, root+"/outside", "secret").Close())
	if err := os.Symlink(root+"/outside", root+"/d/link"); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	info, err := OS{}.Stat(root + "/d/link")
	must(t, err)
	if info.IsDir || info.Size == int64(len("secret")) {
		t.Errorf("Stat followed the link: %+v", info)
	}
	d, err := OS{}.OpenDir(root + "/d")
	must(t, err)
	defer d.Close()
	if _, err := d.Open("link", os.O_RDONLY); err == nil {
		t.Error("the pinned directory opened a link that leaves it")
	}
}

// describe renders a tree for comparison between volumes.
func describe(t *testing.T, fsys FS, dir string) string {
	t.Helper()
	var b strings.Builder
	var walk func(string, string)
	walk = func(at, indent string) {
		infos, err := fsys.List(at)
		must(t, err)
		for _, i := range infos {
			if i.IsDir {
				fmt.Fprintf(&b, "%s%s/\n", indent, i.Name)
				walk(at+"/"+i.Name, indent+" ")
				continue
			}
			fmt.Fprintf(&b, "%s%s %d %x\n", indent, i.Name, i.Size, contentOf(t, fsys, at+"/"+i.Name))
		}
	}
	walk(dir, "")
	return b.String()
}
