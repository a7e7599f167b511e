package reclaim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/model"
)

// Purge removes the data of one deleted incarnation on this node, whoever asks: the
// handler of a delete, or a peer. It waits up to 5 s for this node's replica to let go of
// the incarnation. It returns nil when nothing of it is left here, model.ErrPurgeDeferred
// when the replica still shows it, ErrKept when the leader did not confirm it gone, and
// other errors when a step failed; the data is then still whole or findable by a sweep.
//
// An empty id comes from a peer of an older release, which names no incarnation: then
// the one the directory is marked with is meant, and a directory without a marker stays.
func (r *Reclaimer) Purge(ctx context.Context, name string, id model.Incarnation) error {
	if err := model.PathElement(name); err != nil {
		return fmt.Errorf("%w: %w", model.ErrInvalid, err)
	}
	if id == "" {
		marker, err := commitlog.ReadMarker(r.fs, path.Join(r.root, name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && marker == "" {
			return nil
		}
		if err != nil {
			return fmt.Errorf("marker of %s: %w", name, err)
		}
		id = marker
	}
	if _, err := model.ParseIncarnation(string(id)); err != nil {
		return fmt.Errorf("%w: purge of %q: %w", model.ErrInvalid, name, err)
	}
	if err := r.awaitReplica(ctx, name, id); err != nil {
		return err
	}
	return r.purgeNow(ctx, name, id)
}

// awaitReplica waits until the replica shows no topic of that name and incarnation.
func (r *Reclaimer) awaitReplica(ctx context.Context, name string, id model.Incarnation) error {
	if !r.shows(name, id) {
		return nil
	}
	limit := r.clock.NewTimer(purgeWait)
	defer limit.Stop()
	poll := r.clock.NewTimer(replicaPoll)
	defer poll.Stop()
	for {
		select {
		case <-poll.C():
			if !r.shows(name, id) {
				return nil
			}
			poll.Reset(replicaPoll)
		case <-limit.C():
			r.log.Warn("purge deferred: the local metastore still shows the topic incarnation; its data stays until a later purge or sweep",
				"topic", name, "purged_incarnation", id, "waited", purgeWait)
			return fmt.Errorf("%w: %q, incarnation %s", model.ErrPurgeDeferred, name, id)
		case <-ctx.Done():
			return fmt.Errorf("%w: %q, incarnation %s: %w", model.ErrPurgeDeferred, name, id, ctx.Err())
		}
	}
}

func (r *Reclaimer) shows(name string, id model.Incarnation) bool {
	v, ok := r.topics.Topic(name)
	return ok && !id.Differs(v.ID)
}

// purgeNow is Purge without the wait.
func (r *Reclaimer) purgeNow(ctx context.Context, name string, id model.Incarnation) error {
	if err := r.acquire(ctx); err != nil {
		return err
	}
	defer r.release()
	_, err := r.purge(ctx, name, id, "topic deleted")
	return err
}
