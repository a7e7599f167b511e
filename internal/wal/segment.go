package wal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/narad-mq/narad/internal/disk"
)

const (
	segmentSuffix = ".wal"
	// markSpacing is the distance between two entries of a segment's sparse index,
	// in bytes: what a Seek may have to walk over.
	markSpacing = 256 << 10
)

func segmentName(base uint64) string { return fmt.Sprintf("%020d%s", base, segmentSuffix) }

// parseSegmentName reports false for a file that is no segment.
func parseSegmentName(name string) (base uint64, ok bool) {
	digits, found := strings.CutSuffix(name, segmentSuffix)
	if !found || len(digits) != 20 {
		return 0, false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, false
		}
	}
	base, err := strconv.ParseUint(digits, 10, 64)
	return base, err == nil
}

// mark is one entry of a sparse index: the frame of seq starts at pos.
type mark struct {
	seq uint64
	pos int64
}

// segment is one file of the log.
type segment struct {
	base    uint64
	path    string
	saltSum uint32 // set before the segment enters the catalog, unless unread
	unread  bool   // wholly below the checkpoint at start, so its header was not read

	// end is the file position after the last durable frame. The committer stores
	// it before it stores Log.next, so whoever loaded next sees an end past it.
	end atomic.Int64
	// until is the base of the next segment, 0 while there is none. It is stored
	// before anything is written there.
	until atomic.Uint64
	// size is the file's length, for the metric.
	size atomic.Int64

	marksMu sync.Mutex // guards marks
	marks   []mark     // ascending; may be empty

	// Below: guarded by catalog.mu.
	file     disk.File // open while the committer or a reader uses the segment
	attached int       // users that keep file open
	pins     int       // reads under way; the file may not be reused or closed
	retired  bool      // taken out of the log
}

// addMark records that the frame of seq starts at pos, if the last mark is far enough.
func (s *segment) addMark(seq uint64, pos int64) {
	s.marksMu.Lock()
	defer s.marksMu.Unlock()
	if n := len(s.marks); n == 0 || pos-s.marks[n-1].pos >= markSpacing {
		s.marks = append(s.marks, mark{seq, pos})
	}
}

// holds reports whether a durable seq belongs to this segment.
func (s *segment) holds(seq uint64) bool {
	until := s.until.Load()
	return s.base <= seq && (until == 0 || seq < until)
}

// near is the last known frame at or before seq.
func (s *segment) near(seq uint64) mark {
	s.marksMu.Lock()
	defer s.marksMu.Unlock()
	i, found := slices.BinarySearchFunc(s.marks, seq, func(m mark, seq uint64) int {
		switch {
		case m.seq < seq:
			return -1
		case m.seq > seq:
			return 1
		}
		return 0
	})
	if found {
		return s.marks[i]
	}
	if i == 0 {
		return mark{s.base, headerSize}
	}
	return s.marks[i-1]
}

// catalog is the ordered list of the log's segments and the rules of their files:
// a segment's file is open while someone is attached, and it leaves the log only at
// a moment when nobody is in the middle of a read. The list is never empty once the
// log is open; its last segment is the active one.
type catalog struct {
	fs  disk.FS
	dir string

	mu     sync.Mutex // guards list and the marked fields of its segments
	list   []*segment // ascending bases
	waited bool       // a retire found a pinned segment

	// leaving was taken out of list and its file is still there: a failed removal is
	// tried again before the next segment's turn. The keeper's own.
	leaving *segment
}

// find returns the segment that holds seq or will hold it: the last one whose base
// is at or below. nil means seq is below the oldest.
func (c *catalog) find(seq uint64) *segment {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := len(c.list)
	for i > 0 && c.list[i-1].base > seq {
		i--
	}
	if i == 0 {
		return nil
	}
	return c.list[i-1]
}

// oldest is the base of the first segment.
func (c *catalog) oldest() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list[0].base
}

// activeEnd is the durable end of the last segment, a file position.
func (c *catalog) activeEnd() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list[len(c.list)-1].end.Load()
}

// undone is about how many bytes of records lie at seq and above: exact to the
// spacing of the marks.
func (c *catalog) undone(seq uint64) (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.list) - 1; i >= 0; i-- {
		s := c.list[i]
		if s.base > seq {
			n += s.end.Load() - headerSize
			continue
		}
		return n + max(0, s.end.Load()-s.near(seq).pos)
	}
	return n
}

// bytes is the length of all segment files together.
func (c *catalog) bytes() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.list {
		n += s.size.Load()
	}
	return n
}

// push makes s the active segment; the caller stays attached to it through f.
func (c *catalog) push(s *segment, f disk.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.file, s.attached = f, 1
	if n := len(c.list); n > 0 {
		c.list[n-1].until.Store(s.base)
	}
	c.list = append(c.list, s)
}

// attach opens the segment's file for one more user. false means it left the log.
func (c *catalog) attach(s *segment) (ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.retired {
		return false, nil
	}
	if s.file == nil {
		if s.file, err = c.fs.Open(s.path, os.O_RDONLY); err != nil {
			return false, err
		}
	}
	s.attached++
	return true, nil
}

// detach undoes attach or push; the last user closes the file.
func (c *catalog) detach(s *segment) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.attached--
	if s.attached > 0 || s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	return f.Close()
}

// pin lets an attached user read; unpin ends it. false means the segment left.
func (c *catalog) pin(s *segment) (io.ReaderAt, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.retired {
		return nil, false
	}
	s.pins++
	return s.file, true
}

// unpin reports whether a retire waits for this.
func (c *catalog) unpin(s *segment) (waited bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.pins--
	if s.pins == 0 && c.waited {
		c.waited = false
		return true
	}
	return false
}

// retire takes the oldest segment out of the log if it lies wholly below seq and
// nobody reads it right now, and closes its file. From then on no reader touches the
// file again, so the caller may rename or remove it. The active one always stays.
func (c *catalog) retire(seq uint64) (*segment, error) {
	if c.leaving != nil {
		return c.leaving, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) < 2 || c.list[1].base > seq {
		return nil, nil
	}
	s := c.list[0]
	if s.pins > 0 {
		c.waited = true
		return nil, nil
	}
	c.list = slices.Delete(c.list, 0, 1)
	s.retired = true
	c.leaving = s
	f := s.file
	s.file = nil
	if f == nil {
		return s, nil
	}
	return s, f.Close()
}

// pathOf is the path of a file of this log.
func (c *catalog) pathOf(name string) string { return path.Join(c.dir, name) }

// remove removes a file that may be gone already.
func (c *catalog) remove(name string) error {
	if err := c.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
