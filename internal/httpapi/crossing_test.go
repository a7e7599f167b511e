package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
	"github.com/narad-mq/narad/internal/peer"
)

// loop is the way from a node to itself: it calls the handlers of what is served.
type loop map[noderpc.Op]noderpc.Handler

func (l loop) Handle(op noderpc.Op, h noderpc.Handler, _ func([]byte) noderpc.Gate) { l[op] = h }

func (l loop) Logger() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (l loop) Call(ctx context.Context, _ string, op noderpc.Op, body []byte) (noderpc.Response, error) {
	return l[op](ctx, body), nil
}

// failingOwner is one whose every commit ends with err.
type failingOwner struct{ err error }

func (f failingOwner) Commit(context.Context, string, int, []model.Record) (int64, error) {
	return 0, f.err
}

// A client reads the same, byte for byte, whether the node it called answers an error or
// the owner or leader behind it does.
func TestRefusalsCrossNodesUnchanged(t *testing.T) {
	// Made by the node the client called, about another one or about the client.
	here := []error{
		model.ErrAuthUnavailable, model.ErrOwnerDown, model.ErrOwnerUnreachable, model.ErrAckNotDelivered, model.ErrAckUnanswered,
	}
	through := func(err error) error {
		way := loop{}
		peer.ServeCommits(way, model.LevelNewest, failingOwner{err})
		c := peer.NewClient(peer.Options{
			Main: way, Transfer: way, Self: "narad-1", Clock: clock.NewFake(time.Unix(1, 0)), Logger: slog.New(slog.DiscardHandler),
		})
		_, got := c.Commit(t.Context(), "127.0.0.1:1", "t", 0, []model.Record{{}})
		return got
	}
	errs := []error{&model.AgedOutError{Offset: 3, Oldest: 17}, model.Forbidden("no"), model.ErrOutcomeUnknown}
	for _, m := range mappings {
		errs = append(errs, m.is)
	}
	for _, err := range errs {
		if isOneOf(err, here) {
			continue
		}
		wrapped := fmt.Errorf("partition t/0 <&>: %w", err)
		want, got := translate("commit", wrapped), translate("commit", through(wrapped))
		body := got.body()
		if got.from != nil {
			body = got.from.body
		}
		if got.status != want.status || got.code != want.code || string(body) != string(want.body()) {
			t.Errorf("%v: through a peer %d %s, here %d %s", err, got.status, body, want.status, want.body())
		}
		if !errors.Is(through(wrapped), err) {
			if _, typed := err.(interface{ Is(error) bool }); !typed {
				t.Errorf("%v does not come out as itself", err)
			}
		}
	}
}

func isOneOf(err error, list []error) bool {
	for _, e := range list {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
