package reclaim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// Swept is what a sweep did and left.
type Swept struct {
	Removed          int   // directories removed
	OrphanDirs       int   // directories of unknown topics left in place
	QuarantinedDirs  int   // directories set aside and left in place
	QuarantinedBytes int64 // their size
}

// Bytes is the size of the copies the last sweep left set aside.
func (r *Reclaimer) Bytes() int64 {
	if s := r.inventory.last.Load(); s != nil {
		return s.QuarantinedBytes
	}
	return 0
}

// Sweep walks topics/ and removes what the leader confirms gone: stale directories,
// and directories of incarnations no topic has any more (a delete whose purge did
// not finish, or never reached this node). Everything else is kept and counted. The
// error joins what failed or could not be confirmed; the rest was still done.
func (r *Reclaimer) Sweep(ctx context.Context) (Swept, error) {
	if err := r.acquire(ctx); err != nil {
		return Swept{}, err
	}
	defer r.release()
	entries, err := r.fs.List(r.root)
	if errors.Is(err, fs.ErrNotExist) {
		r.inventory.set(Swept{})
		return Swept{}, nil
	}
	if err != nil {
		return Swept{}, err
	}
	var s Swept
	var failed []error
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		if !e.IsDir {
			continue
		}
		err := r.sweepDir(ctx, e, &s)
		switch {
		case err == nil:
		case keptForGood(err):
			r.log.Warn("reclaim: keeping a directory that cannot be told to be a deleted topic's", "dir", e.Name, "err", err)
		case len(failed) < failuresMax:
			failed = append(failed, err)
		}
	}
	r.inventory.set(s)
	return s, errors.Join(failed...)
}

// failuresMax bounds the errors one sweep reports.
const failuresMax = 16

// errMore: the sweep reached its bound; another one goes on.
var errMore = fmt.Errorf("more than %d directories to remove", sweepMax)

// errMoved: an open set the directory aside after the sweep had listed it, under a name
// the sweep has not seen; the next one finds it.
var errMoved = errors.New("directory was set aside meanwhile")

// sweepDir judges one directory under topics/.
func (r *Reclaimer) sweepDir(ctx context.Context, e disk.Info, s *Swept) error {
	dir := path.Join(r.root, e.Name)
	marker, err := commitlog.ReadMarker(r.fs, dir)
	if err != nil {
		s.OrphanDirs++
		return err
	}
	view, live := r.topics.Topic(e.Name)
	if live && !marker.Differs(view.ID) {
		return nil
	}
	topic, id, stale := parseStale(e.Name)
	switch {
	case stale && !live:
		return r.sweepStale(ctx, dir, topic, id, s)
	case marker == "":
		s.OrphanDirs++
		return nil
	case s.Removed >= sweepMax:
		s.OrphanDirs++
		return errMore
	}
	removed, err := r.purge(ctx, e.Name, marker, "no topic has this incarnation")
	if err == nil && !removed {
		err = errMoved
	}
	if removed {
		s.Removed++
	} else {
		s.OrphanDirs++
	}
	return err
}

func (r *Reclaimer) sweepStale(ctx context.Context, dir, topic string, id model.Incarnation, s *Swept) error {
	err := errMore
	if s.Removed < sweepMax {
		err = r.confirm(ctx, topic, id)
	}
	if err == nil {
		_, err = r.removeStale(ctx, dir, topic, id, "set aside as stale")
	}
	if err != nil {
		s.QuarantinedDirs++
		s.QuarantinedBytes += r.treeSize(dir, 0)
		return err
	}
	s.Removed++
	return nil
}

// inventory exports the last sweep's counts; the series are absent before the
// first one (spec/metrics section 2).
type inventory struct {
	last                  atomic.Pointer[Swept]
	orphans, copies, size *prometheus.Desc
}

func newInventory() *inventory {
	return &inventory{
		orphans: prometheus.NewDesc("narad_orphan_topic_dirs", "Directories of unknown topics left in place.", nil, nil),
		copies:  prometheus.NewDesc("narad_quarantined_copies", "Copies set aside on this node.", nil, nil),
		size:    prometheus.NewDesc("narad_quarantined_bytes", "Size of the copies set aside on this node.", nil, nil),
	}
}

func (i *inventory) set(s Swept) { i.last.Store(&s) }

// Describe implements prometheus.Collector.
func (i *inventory) Describe(ch chan<- *prometheus.Desc) {
	ch <- i.orphans
	ch <- i.copies
	ch <- i.size
}

// Collect implements prometheus.Collector.
func (i *inventory) Collect(ch chan<- prometheus.Metric) {
	s := i.last.Load()
	if s == nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(i.orphans, prometheus.GaugeValue, float64(s.OrphanDirs))
	ch <- prometheus.MustNewConstMetric(i.copies, prometheus.GaugeValue, float64(s.QuarantinedDirs))
	ch <- prometheus.MustNewConstMetric(i.size, prometheus.GaugeValue, float64(s.QuarantinedBytes))
}
