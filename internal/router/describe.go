package router

import (
	"context"
	"log/slog"

	"github.com/narad-mq/narad/internal/model"
)

// Statuses and livenesses of a described partition (spec/http-api section 7.3).
const (
	statusOK               = "ok"
	statusOwnerUnavailable = "owner_unavailable"
	livenessUnassigned     = "unassigned"
	livenessUnknown        = "unknown"
)

// Details is a topic with the state of its partitions.
type Details struct {
	View    *model.TopicView
	Stats   []model.PartitionStats // in partition order
	Partial bool                   // some entry is a placeholder with zero numbers
}

// Describe reports a topic and its partitions, or the one asked for (-1 = all).
// Assignment rows past the partition count add nothing. A partition nobody can
// be asked about, or whose directory cannot be read, is a placeholder: reading a
// description never fails for the state of one partition (spec/http-api TG-2).
func (r *Router) Describe(ctx context.Context, topic string, partition int) (Details, error) {
	view, err := r.view(topic)
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
	d := Details{View: view, Stats: make([]model.PartitionStats, 0, end-first)}
	for p := first; p < end; p++ {
		if err := ctx.Err(); err != nil {
			return Details{}, err
		}
		s := r.describe(view, p)
		d.Partial = d.Partial || s.Status != statusOK
		d.Stats = append(d.Stats, s)
	}
	return d, nil
}

func (r *Router) describe(view *model.TopicView, p int) model.PartitionStats {
	owner := view.OwnerOf(p)
	placeholder := model.PartitionStats{Index: p, OwnerNode: owner, Status: statusOwnerUnavailable}
	switch owner {
	case "":
		placeholder.OwnerLiveness = livenessUnassigned
		return placeholder
	case r.Node:
	default:
		placeholder.OwnerLiveness = livenessUnknown
		return placeholder
	}
	s, err := r.Stats.Describe(view, p)
	if err != nil {
		r.Logger.Warn("partition could not be described",
			slog.String("topic", view.Name), slog.Int("partition", p), slog.Any("err", err))
		placeholder.OwnerLiveness = livenessUnknown
		return placeholder
	}
	s.Index, s.OwnerNode, s.Status = p, owner, statusOK
	return s
}
