package topics

import (
	"context"
	"errors"
	"testing"

	"github.com/narad-mq/narad/internal/model"
)

// doorway is a gate that opens when the channel closes.
type doorway chan struct{}

func (d doorway) Wait(ctx context.Context) error {
	select {
	case <-d:
		return nil
	case <-ctx.Done():
		return model.ErrUnavailable
	}
}

// While the gate is armed no topic is created, and what a request gets wrong by itself is
// still said at once.
func TestCreateWaitsForTheGate(t *testing.T) {
	g := newRig(t)
	d := make(doorway)
	g.Manager.gate = d
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := g.Create(ctx, CreateRequest{Name: "no such name!"}); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("a bad name: %v", err)
	}
	cancel()
	if _, err := g.Create(ctx, CreateRequest{Name: "orders"}); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("its caller left: %v", err)
	}
	if _, ok := g.store.Topic("orders"); ok {
		t.Error("created through an armed gate")
	}
	close(d)
	_, err := g.Create(context.Background(), CreateRequest{Name: "orders"})
	must(t, err)
}
