package reclaim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

const (
	staleInfix = ".stale-"
	markerName = "incarnation" // commitlog's; removed last

	// depthMax bounds the directories below a topic's: there is one level of
	// partitions, and nothing of ours below it.
	depthMax = 8
)

// parseStale splits the name of a directory set aside: <topic>.stale-<id>[.<ns>].
func parseStale(dir string) (topic string, id model.Incarnation, ok bool) {
	i := strings.LastIndex(dir, staleInfix)
	if i < 1 {
		return "", "", false
	}
	rest, ns, hasNS := strings.Cut(dir[i+len(staleInfix):], ".")
	if hasNS && (ns == "" || strings.Trim(ns, "0123456789") != "") {
		return "", "", false
	}
	id, err := model.ParseIncarnation(rest)
	return dir[:i], id, err == nil
}

// removeStale removes a directory set aside, once its place, name and marker all
// say that it is the incarnation just confirmed gone. It reports whether there was
// one.
func (r *Reclaimer) removeStale(ctx context.Context, dir, name string, id model.Incarnation, reason string) (bool, error) {
	topic, staleID, ok := parseStale(path.Base(dir))
	if path.Clean(path.Dir(dir)) != path.Clean(r.root) || !ok || topic != name || staleID != id {
		return false, fmt.Errorf("%w: %s is not the stale directory of %q, incarnation %s", ErrKept, dir, name, id)
	}
	info, err := r.fs.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.IsDir {
		return false, fmt.Errorf("%w: %s is not a directory", ErrKept, dir)
	}
	if err := r.checkMarker(dir, id); err != nil {
		return false, err
	}
	bytes, err := r.removeTree(ctx, dir)
	if err != nil {
		return false, fmt.Errorf("remove %s: %w", dir, err)
	}
	if err := disk.SyncDir(r.fs, r.root); err != nil {
		return false, err
	}
	r.log.Info("reclaim: removed the data of a deleted topic", "topic", name, "topic_id", id, "dir", dir,
		"bytes", bytes, "reason", reason, "confirmation", "gone: the leader's, after a barrier")
	return true, nil
}

// checkMarker refuses a directory that does not say it is the incarnation's. An
// empty one that says nothing is a removal that crashed before its last step.
func (r *Reclaimer) checkMarker(dir string, id model.Incarnation) error {
	marker, err := commitlog.ReadMarker(r.fs, dir)
	if err != nil || marker == id {
		return err
	}
	if marker == "" {
		if entries, err := r.fs.List(dir); err != nil || len(entries) == 0 {
			return err
		}
	}
	return fmt.Errorf("%w: the marker of %s is %q, not %s", ErrKept, dir, marker, id)
}

// removeTree removes a topic directory: everything but the marker, a sync, then the
// marker and the directory itself. Links are removed, never followed.
func (r *Reclaimer) removeTree(ctx context.Context, dir string) (bytes int64, err error) {
	bytes, err = r.removeEntries(ctx, dir, 0)
	if err != nil {
		return bytes, err
	}
	if err := disk.SyncDir(r.fs, dir); err != nil {
		return bytes, err
	}
	err = r.fs.Remove(path.Join(dir, markerName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return bytes, err
	}
	return bytes, r.fs.Remove(dir)
}

// removeEntries empties a directory, but for the marker at the top. ctx ends it
// between two files.
func (r *Reclaimer) removeEntries(ctx context.Context, dir string, depth int) (bytes int64, err error) {
	if depth > depthMax {
		return 0, fmt.Errorf("%w: %s is more than %d directories deep", ErrKept, dir, depthMax)
	}
	entries, err := r.fs.List(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return bytes, err
		}
		name := path.Join(dir, e.Name)
		switch {
		case depth == 0 && e.Name == markerName:
			continue
		case e.IsDir:
			n, err := r.removeEntries(ctx, name, depth+1)
			bytes += n
			if err != nil {
				return bytes, err
			}
		default:
			bytes += e.Size
		}
		if err := r.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return bytes, err
		}
	}
	return bytes, nil
}

// treeSize sums the files below a directory; what cannot be read counts nothing.
func (r *Reclaimer) treeSize(dir string, depth int) (bytes int64) {
	entries, err := r.fs.List(dir)
	if err != nil || depth > depthMax {
		return 0
	}
	for _, e := range entries {
		if e.IsDir {
			bytes += r.treeSize(path.Join(dir, e.Name), depth+1)
		} else {
			bytes += e.Size
		}
	}
	return bytes
}
