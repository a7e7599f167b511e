package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

// An owner may hear of a new topic, or of partitions added to one, a moment after this
// node did, which then knows better: the client that made the change here relies on it
// (spec/http-api RT-3).
const (
	lagMax   = 1500 * time.Millisecond // what the owner gets to catch up, within every budget
	lagPause = 25 * time.Millisecond
)

// abreast asks the owner of a partition of view again while it answers that there is no
// such topic or partition, and this node's replica still shows view. An owner that does
// not catch up is no reason to deny what exists: ErrUnavailable.
func (r *Router) abreast(ctx context.Context, view *model.TopicView, ask func() error) error {
	began := r.Clock.Now()
	for {
		err := ask()
		if !behind(err) {
			return err
		}
		if now, ok := r.Directory.Topic(view.Name); !ok || now.ID != view.ID {
			return err // this node was behind
		}
		if r.Clock.Now().Sub(began) >= lagMax {
			return fmt.Errorf("%w: an owner of %q does not know what this node's replica shows, after %v", model.ErrUnavailable, view.Name, lagMax)
		}
		pause := r.Clock.NewTimer(lagPause)
		select {
		case <-pause.C():
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("%w: an owner of %q does not know what this node's replica shows: %w", model.ErrUnavailable, view.Name, ctx.Err())
		}
	}
}

// behind reports whether an answer is that of an owner whose replica is older than this
// node's: it was asked for nothing that this replica does not show.
func behind(err error) bool {
	return refused(err) && (errors.Is(err, model.ErrTopicNotFound) || errors.Is(err, model.ErrInvalid))
}
