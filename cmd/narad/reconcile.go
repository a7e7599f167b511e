package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/narad-mq/narad/internal/model"
)

// errStarting is the reason of /readyz while startup work is unfinished (spec/http-api
// H-5).
var errStarting = errors.New("not ready")

// reconciliation is the startup work that needs the cluster: the sweep of deleted topics
// and the recovery of what this node owns. It may take as long as there is no leader, so
// it runs behind the open routes: produces are accepted meanwhile, and the node is not
// ready.
type reconciliation struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended
	failed chan error    // why the node cannot go on, at most one
	over   atomic.Bool
}

// reconcile starts the reconciliation; a node without peers waits for it.
func (n *node) reconcile(ctx context.Context) error {
	work, cancel := context.WithCancel(context.Background())
	n.startup.cancel, n.startup.done, n.startup.failed = cancel, make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(n.startup.done)
		n.bringUp(work)
	}()
	if len(n.cfg.Cluster.Peers) > 0 {
		return nil
	}
	select {
	case <-n.startup.done:
	case <-n.store.Done(): // serve says why
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (n *node) bringUp(ctx context.Context) {
	_, _ = n.reclaimer.Startup(ctx, n.creates) // it said what it left; a later sweep goes on
	err := n.store.WaitReady(ctx)              // the sweep gave up waiting; recovery does not
	if err == nil {
		err = n.broker.Recover(ctx, iter.Seq[*model.TopicView](func(yield func(*model.TopicView) bool) { n.store.Range(yield) }))
	}
	switch {
	case err == nil:
		n.startup.over.Store(true)
		n.log.Info("startup reconciled: this node serves its partitions")
	case ctx.Err() == nil: // else it was told to stop
		n.startup.failed <- fmt.Errorf("startup recovery: %w", err)
	}
}

// Close ends the work and waits for it.
func (r *reconciliation) Close() error {
	if r.cancel != nil {
		r.cancel()
		<-r.done
	}
	return nil
}

// health is whether the node is ready: its startup work first, then the metastore's word.
type health struct{ n *node }

// Ready implements httpapi.Health.
func (h health) Ready() error {
	if !h.n.startup.over.Load() {
		return errStarting
	}
	return h.n.store.Ready()
}

// Degraded implements httpapi.Health.
func (h health) Degraded() []string { return h.n.store.Degraded() }
