package ingress

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

// A refusal that lag explains is checked again once the replica has caught up; any other,
// and one whose replica does not catch up, stands at once or in time.
func TestSettledAsksAgain(t *testing.T) {
	for _, c := range []struct {
		name    string
		refusal error
		settles bool
		want    error
		commits int
	}{
		{"topic not known yet", fmt.Errorf("%w: t", model.ErrTopicNotFound), true, nil, 2},
		{"another life known", model.ErrIncarnation, true, nil, 2},
		{"placement not known yet", model.ErrNotOwner, true, nil, 2},
		{"no leader to ask", model.ErrTopicNotFound, false, model.ErrTopicNotFound, 1},
		{"disk", model.ErrLogPoisoned, true, model.ErrLogPoisoned, 1},
		{"not caught up", model.ErrUnavailable, true, model.ErrUnavailable, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			w.create("t", idA, 1)
			n := w.node(self)
			behind, commits := true, 0
			n.set(func(n *node) {
				n.refuse = func(string, int, []model.Record) error {
					if commits++; behind {
						return c.refusal
					}
					return nil
				}
			})
			s := NewSettled(n, func(context.Context) error {
				if !c.settles {
					return model.ErrUnavailable
				}
				behind = false
				return nil
			})
			_, err := s.Commit(t.Context(), "t", 0, []model.Record{{Payload: []byte("m"), Incarnation: idA}})
			if !errors.Is(err, c.want) || commits != c.commits {
				t.Errorf("%v after %d commits, want %v after %d", err, commits, c.want, c.commits)
			}
		})
	}
}

// Few wait at once, and none for long.
func TestSettledIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld() // without the topic
		waiting := 0
		s := NewSettled(w.node(self), func(ctx context.Context) error {
			waiting++
			<-ctx.Done()
			return ctx.Err()
		})
		ended := make(chan error, 100)
		start := time.Now()
		for range cap(ended) {
			go func() {
				_, err := s.Commit(t.Context(), "t", 0, nil)
				ended <- err
			}()
			synctest.Wait()
		}
		if waiting != settlingMax || len(ended) != cap(ended)-settlingMax {
			t.Errorf("%d wait, %d were refused at once", waiting, len(ended))
		}
		for range cap(ended) {
			if err := <-ended; !errors.Is(err, model.ErrTopicNotFound) {
				t.Error(err)
			}
		}
		if took := time.Since(start); took != settleBudget {
			t.Errorf("waited %v", took)
		}
	})
}
