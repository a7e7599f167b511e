package fanout

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/narad-mq/narad/internal/disk"
)

// sweeper looks for cursor files that nobody keeps: left by a crash between a detach
// and the removal, or by a copy of an old volume. Each look goes through a bounded
// number of topics, the next one continues.
type sweeper struct {
	fs      disk.FS
	dataDir string
	after   string // the last topic looked at
}

// look adds the files no wanted cursor keeps to the orphans.
func (r *reconciler) look(wanted map[place]*link) {
	found, err := r.sweeper.next()
	if err != nil {
		r.e.limiter.Warn(r.e.log, "sweep", "fanout: looking for orphaned cursor files failed", "err", err)
	}
	for _, k := range found {
		if wanted[k] == nil {
			r.orphans[k] = struct{}{}
		}
	}
}

// next lists the cursor files of the next topics.
func (s *sweeper) next() (found []place, err error) {
	root := path.Join(s.dataDir, "topics")
	topics, err := s.fs.List(root)
	if err != nil {
		return nil, nil // no topic has a directory yet
	}
	from, _ := slices.BinarySearchFunc(topics, s.after+"\x00", func(i disk.Info, name string) int { return strings.Compare(i.Name, name) })
	batch := topics[from:min(from+sweepTopicsMax, len(topics))]
	s.after = ""
	if from+len(batch) < len(topics) {
		s.after = batch[len(batch)-1].Name
	}
	for _, t := range batch {
		if !t.IsDir || strings.Contains(t.Name, ".stale-") {
			continue
		}
		more, ferr := s.topic(path.Join(root, t.Name), t.Name)
		if ferr != nil && err == nil {
			err = ferr
		}
		found = append(found, more...)
	}
	return found, err
}

func (s *sweeper) topic(dir, name string) (found []place, err error) {
	parts, err := s.fs.List(dir)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		digits, ok := strings.CutPrefix(part.Name, "p")
		p, perr := strconv.Atoi(digits)
		if !ok || !part.IsDir || perr != nil || p < 0 {
			continue
		}
		files, err := s.fs.List(path.Join(dir, part.Name))
		if err != nil {
			return found, err
		}
		for _, f := range files {
			if child, ok := childOf(f.Name); ok {
				found = append(found, place{name, p, child})
			}
		}
	}
	return found, nil
}
