package reclaim

import (
	"errors"
	"io/fs"
	"path"
	"time"
)

// Copy is a directory set aside: the data of a topic incarnation that is not known to be
// gone. Nothing serves it.
type Copy struct {
	Topic   string
	Dir     string // path from the root of the volume
	Bytes   int64
	ModTime time.Time
}

// Quarantined lists the copies set aside on this node, ascending by name. It reads the
// directory of topics and every copy's, so it is for people, not for a hot path.
func (r *Reclaimer) Quarantined() ([]Copy, error) {
	entries, err := r.fs.List(r.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nothing was ever stored here
	}
	var out []Copy
	for _, e := range entries {
		topic, _, ok := parseStale(e.Name)
		if _, live := r.topics.Topic(e.Name); !ok || live || !e.IsDir {
			continue
		}
		dir := path.Join(r.root, e.Name)
		out = append(out, Copy{Topic: topic, Dir: dir, Bytes: r.treeSize(dir, 0), ModTime: e.ModTime})
	}
	return out, err
}
