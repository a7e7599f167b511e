package router

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/narad-mq/narad/internal/model"
)

// Statuses and livenesses of a described partition (spec/http-api section 7.3).
const (
	statusOK            = "ok"
	statusUnavailable   = "owner_unavailable"
	livenessDead        = "dead"
	livenessUnreachable = "unreachable"
	livenessUnknown     = "unknown"
	livenessUnassigned  = "unassigned"
)

// Bounds of asking other owners for a description (spec/cluster-and-network section 5.3).
const (
	statsBudget = 2 * time.Second
	statsMax    = 16 // owners asked at once
)

// Details is a topic with the state of its partitions.
type Details struct {
	View    *model.TopicView
	Stats   []model.PartitionStats // in partition order
	Partial bool                   // some entry is a placeholder with zero numbers
}

// Describe reports a topic and its partitions, or the one asked for (-1 = all).
// Assignment rows past the partition count add nothing. A partition whose owner cannot be
// asked or does not answer in time, or whose directory cannot be read, is a placeholder:
// reading a description never fails for the state of one partition (spec/http-api TG-2).
func (r *Router) Describe(ctx context.Context, topic string, partition int) (Details, error) {
	view, err := r.Table.topic(topic)
	if err != nil {
		return Details{}, err
	}
	if partition < -1 || partition >= view.Partitions {
		return Details{}, errPartitionRange()
	}
	first, end := 0, view.Partitions
	if partition >= 0 {
		first, end = partition, partition+1
	}
	d := Details{View: view, Stats: make([]model.PartitionStats, end-first)}
	asked := make(map[string][]int) // owner that can be asked -> partitions
	for p := first; p < end; p++ {
		if err := ctx.Err(); err != nil {
			return Details{}, err
		}
		s := &d.Stats[p-first]
		if *s = r.describe(view, p); s.OwnerLiveness == livenessUnreachable {
			asked[s.OwnerNode] = append(asked[s.OwnerNode], p)
		}
	}
	r.describeOthers(ctx, view, asked, d.Stats, first)
	if err := ctx.Err(); err != nil {
		return Details{}, err
	}
	for i := range d.Stats {
		d.Partial = d.Partial || d.Stats[i].Status != statusOK
	}
	return d, nil
}

// describe reports a partition this node owns, and else a placeholder: unreachable, until
// its owner has answered, when that one can be asked.
func (r *Router) describe(view *model.TopicView, p int) model.PartitionStats {
	owner := view.OwnerOf(p)
	s := model.PartitionStats{Index: p, OwnerNode: owner, Status: statusUnavailable}
	if owner == r.Node {
		have, err := r.Stats.Describe(view, p)
		if err != nil {
			r.warnDescribe(view, p, err)
			s.OwnerLiveness = livenessUnknown
			return s
		}
		have.Index, have.OwnerNode, have.Status = p, owner, statusOK
		return have
	}
	switch t := r.Table.member(owner); {
	case owner == "":
		s.OwnerLiveness = livenessUnassigned
	case t.Addr == "" || r.Peers == nil:
		s.OwnerLiveness = livenessUnknown
	case !t.Alive:
		s.OwnerLiveness = livenessDead
	default:
		s.OwnerLiveness = livenessUnreachable
	}
	return s
}

// describeOthers asks owners for their partitions and puts the answers into stats, whose
// first entry is partition first.
func (r *Router) describeOthers(ctx context.Context, view *model.TopicView, asked map[string][]int, stats []model.PartitionStats, first int) {
	ctx, cancel := context.WithTimeout(ctx, statsBudget)
	defer cancel()
	var calls errgroup.Group
	calls.SetLimit(statsMax)
	for owner, partitions := range asked {
		calls.Go(func() error {
			one := -1
			if len(partitions) == 1 {
				one = partitions[0]
			}
			var got []model.PartitionStats
			err := r.abreast(ctx, view, func() (err error) {
				got, err = r.Peers.Stats(ctx, r.Table.member(owner).Addr, view.Name, one)
				return err
			})
			if err != nil {
				r.Logger.Debug("owner did not describe its partitions",
					slog.String("topic", view.Name), slog.String("owner", owner), slog.Any("err", err))
				return nil // the placeholders stand
			}
			for _, s := range got {
				// Only what it was asked for: an owner may have more by its own replica.
				if p := s.Index; view.OwnerOf(p) == owner && p >= first && p-first < len(stats) {
					s.OwnerNode, s.Status, s.OwnerLiveness = owner, statusOK, ""
					stats[p-first] = s
				}
			}
			return nil
		})
	}
	_ = calls.Wait()
}

func (r *Router) warnDescribe(view *model.TopicView, p int, err error) {
	r.Logger.Warn("partition could not be described",
		slog.String("topic", view.Name), slog.Int("partition", p), slog.Any("err", err))
}
