package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// Segment names (spec/storage-and-produce section 4.1).
const (
	segmentDigits       = 20
	segmentSuffix       = ".log"
	SegmentBytesDefault = 64 << 20 // size past which the active segment is rolled
	recentSegments      = 2        // sealed segments that keep index and descriptor
)

func segmentName(base int64) string { return fmt.Sprintf("%0*d%s", segmentDigits, base, segmentSuffix) }

// parseSegmentName accepts exactly 20 digits and ".log".
func parseSegmentName(name string) (base int64, ok bool) {
	digits, found := strings.CutSuffix(name, segmentSuffix)
	if !found || len(digits) != segmentDigits {
		return 0, false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, false
		}
		if base > offsetMax/10 {
			return 0, false
		}
		base = base*10 + int64(digits[i]-'0')
	}
	return base, base <= offsetMax
}

// segment is one file of the log. The one with the highest base is active, the
// others are sealed: immutable, ending where their successor begins.
type segment struct {
	base  int64
	size  int64 // bytes of frames, hidden ones included
	first int64 // Unix nanoseconds of the first write, for the roll age
	last  int64 // Unix nanoseconds of the last write
	idx   *index
	file  *handle // nil while nobody needed it
}

// handle is an open segment file, closed when its last user lets go.
type handle struct {
	f    disk.File
	refs int // guarded by Log.mu
}

// listSegments returns the segments of a directory, ascending.
func listSegments(fsys disk.FS, dir string) ([]segment, error) {
	infos, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	var segs []segment
	for _, i := range infos {
		base, ok := parseSegmentName(i.Name)
		if !ok || i.IsDir {
			continue
		}
		at := i.ModTime.UnixNano()
		segs = append(segs, segment{base: base, size: i.Size, first: at, last: at})
	}
	slices.SortFunc(segs, func(a, b segment) int { return int(min(max(a.base-b.base, -1), 1)) })
	return segs, nil
}

func (l *Log) segmentPath(base int64) string { return path.Join(l.opt.Dir, segmentName(base)) }

// enter makes the first segment a log writes, and every directory entry on the way
// to it, durable. An empty active segment found at open goes through it as well:
// the process that made it may have died before it synced the entry.
func (l *Log) enter(base int64) error {
	if err := disk.MkdirDurable(l.opt.FS, l.opt.Dir); err != nil {
		return err
	}
	if err := l.create(base); err != nil {
		return err
	}
	l.mu.Lock()
	l.tail.born = true
	l.mu.Unlock()
	l.tail.entered = true
	return nil
}

// create makes the empty segment at base and its directory entry durable. One that
// an earlier, failed attempt left behind is replaced by a new empty file, so that
// there is a change for the directory's fsync to write: the one that failed has
// already let go of the first.
func (l *Log) create(base int64) error {
	name := l.segmentPath(base)
	target := name
	info, err := l.opt.FS.Stat(name)
	switch {
	case err == nil && info.Size != 0:
		return fmt.Errorf("%w: new segment %s holds %d bytes already", model.ErrCorrupt, segmentName(base), info.Size)
	case err == nil:
		target += ".tmp"
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f, err := l.opt.FS.Open(target, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if target != name {
		if err := l.opt.FS.Rename(target, name); err != nil {
			return err
		}
	}
	return disk.SyncDir(l.opt.FS, l.opt.Dir)
}
