package wal

import (
	"errors"
	"io"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

// TestReader: durable end, going on behind it, seeking both ways, over segments.
func TestReader(t *testing.T) {
	volumes(t, func(t *testing.T, fsys disk.FS, dir string) {
		o := options(fsys, dir)
		o.SegmentBytes = 700_000 // more than one mark each
		l := mustOpen(t, o)
		r := l.NewReader(1)
		defer r.Close()
		if _, _, err := r.Next(); err != io.EOF {
			t.Fatalf("empty log: %v, want io.EOF", err)
		}
		appendRecs(t, l, 1, 3, 50)
		want := func(seq uint64) {
			t.Helper()
			got, body, err := r.Next()
			if err != nil || got != seq {
				t.Fatalf("seq %d, %v, want %d", got, err, seq)
			}
			if id, err := recID(body); err != nil || id != int(seq) {
				t.Fatalf("seq %d holds %d, %v", seq, id, err)
			}
		}
		want(1)
		want(2)
		if _, _, err := r.Next(); err != io.EOF {
			t.Fatalf("durable end: %v, want io.EOF", err)
		}
		for id := 3; id < 300; id++ {
			mustAppend(t, l, rec(id, 20+id*113%9000))
			want(uint64(id))
		}
		for _, seq := range []uint64{1, 299, 150, 151, 149, 10, 298, 2, 200, 77} {
			r.Seek(seq)
			if r.Seq() != seq {
				t.Fatalf("Seq %d after Seek(%d)", r.Seq(), seq)
			}
			want(seq)
			r.Skip()
			if seq+2 < 300 {
				want(seq + 2)
			}
		}
		r.Seek(1000)
		if _, _, err := r.Next(); err != io.EOF {
			t.Fatalf("beyond the end: %v, want io.EOF", err)
		}
		r.Seek(299)
		want(299)
	})
}

// TestReaderDamage: a damaged record is an error with file and position, its
// neighbours are read, and a read error is not taken for damage (F16 F20).
func TestReaderDamage(t *testing.T) {
	s := disk.NewSim(1)
	l := mustOpen(t, options(s, testDir))
	appendRecs(t, l, 1, 6, 1000)
	r := l.NewReader(1)
	defer r.Close()
	s.Fail(disk.Rule{Op: disk.OpRead, N: 1})
	if _, _, err := r.Next(); err == nil || errors.Is(err, model.ErrCorrupt) {
		t.Fatalf("read error: %v", err)
	}
	if err := s.Corrupt(path.Join(testDir, firstName), flip(at(2, 500))); err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq < 6; seq++ {
		got, _, err := r.Next()
		if seq == 3 {
			if !errors.Is(err, model.ErrCorrupt) || !strings.Contains(err.Error(), firstName+" at position 2072") {
				t.Fatalf("damaged record: %v", err)
			}
			r.Skip()
		} else if err != nil || got != seq {
			t.Fatalf("seq %d, %v, want %d", got, err, seq)
		}
	}
}

// TestReaderAcrossRecycling: a reader in the middle of a segment that is retired and
// written anew gets ErrCompacted, never a record of the new use, and goes on from
// the checkpoint.
func TestReaderAcrossRecycling(t *testing.T) {
	s := disk.NewSim(1)
	o, clk := fakeOptions(s)
	o.SegmentBytes = 600_000 // more than a reader reads ahead
	l := mustOpen(t, o)
	appendRecs(t, l, 1, 10, 100_000)
	r := l.NewReader(1)
	defer r.Close()
	if _, _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if err := l.Advance(10); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, waitMax, func() bool {
		clk.Advance(250 * time.Millisecond)
		return l.catalog.oldest() > 1 && len(names(t, s, ".prep")) > 0
	}, "the segment is retired")
	appendRecs(t, l, 10, 30, 100_000)
	for {
		seq, body, err := r.Next()
		if errors.Is(err, ErrCompacted) {
			break
		}
		if id, ierr := recID(body); err != nil || ierr != nil || id != int(seq) || seq > 5 {
			t.Fatalf("seq %d: %v, %v", seq, err, ierr)
		}
	}
	r.Seek(l.Checkpoint())
	if seq, _, err := r.Next(); err != nil || seq != 10 {
		t.Fatalf("from the checkpoint: seq %d, %v", seq, err)
	}
}

// TestReadersDuringAppends reads the tail from several goroutines while segments
// fill, are retired and used again.
func TestReadersDuringAppends(t *testing.T) {
	o := options(disk.OS{}, t.TempDir())
	o.SegmentBytes = 100_000
	l := mustOpen(t, o)
	const last = 3000
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() {
			r := l.NewReader(1)
			defer r.Close()
			for r.Seq() <= last {
				seq, body, err := r.Next()
				switch {
				case errors.Is(err, io.EOF):
				case errors.Is(err, ErrCompacted):
					r.Seek(l.Checkpoint())
				case err != nil:
					errs <- err
					return
				default:
					if id, err := recID(body); err != nil || id != int(seq) {
						errs <- errors.Join(errors.New("foreign record"), err)
						return
					}
				}
			}
			errs <- nil
		}()
	}
	for id := 1; id <= last; id += 10 {
		var es []Entry
		for j := range 10 {
			es = append(es, rec(id+j, 500))
		}
		mustAppend(t, l, es...)
		if id > 100 {
			if err := l.Advance(uint64(id - 50)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// slowRead makes reads of segments wait while it is shut.
type slowRead struct {
	disk.FS
	entered chan struct{}
	open    chan struct{}
}

type slowFile struct {
	disk.File
	g *slowRead
}

func (g *slowRead) Open(name string, flag int) (disk.File, error) {
	f, err := g.FS.Open(name, flag)
	return slowFile{f, g}, err
}

func (f slowFile) ReadAt(b []byte, off int64) (int, error) {
	if len(b) > disk.FactSize+1 {
		f.g.entered <- struct{}{}
		<-f.g.open
	}
	return f.File.ReadAt(b, off)
}

// TestRetireWaitsForRead: a segment is not renamed, removed or closed in the middle
// of a read, however long that takes, and goes right after it.
func TestRetireWaitsForRead(t *testing.T) {
	s := disk.NewSim(1)
	o, clk := fakeOptions(s)
	g := &slowRead{s, make(chan struct{}, 1), make(chan struct{})}
	o.FS, o.SegmentBytes = g, 1000
	l := mustOpen(t, o)
	appendRecs(t, l, 1, 4, 400)
	read := make(chan error)
	go func() {
		r := l.NewReader(1)
		_, _, err := r.Next()
		read <- errors.Join(err, r.Close())
	}()
	<-g.entered
	if err := l.Advance(4); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, waitMax, func() bool { clk.Advance(time.Second); return storedCheckpoint(t, s) == 4 }, "the checkpoint is written")
	settle(t, s, clk)
	if n := names(t, s, ".wal"); l.catalog.oldest() != 1 || len(n) != 2 {
		t.Errorf("retired in the middle of a read: oldest %d, files %v", l.catalog.oldest(), n)
	}
	close(g.open)
	if err := <-read; err != nil {
		t.Error(err)
	}
	testutil.Eventually(t, waitMax, func() bool { return l.catalog.oldest() == 3 }, "it is retired after the read")
}
