package broker

import (
	"context"
	"errors"
	"testing"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/model"
)

// A replica that was not current since the start may show partitions that went
// elsewhere: until it is, nothing is committed, served or read here, and no directory
// is made (founding document, "Ownership after a restart").
func TestNothingIsOwnedBeforeTheFirstCatchUp(t *testing.T) {
	r := newRig(t)
	v := view("orders", 1)
	r.create(v)
	r.commit("orders", 0, "a")
	r.b.Close()
	caught := false
	r.open(func(o *Options) { o.CaughtUp = func() bool { return caught } })
	ctx := context.Background()
	calls := map[string]func() error{
		"commit": func() error {
			_, err := r.b.Commit(ctx, "orders", 0, []model.Record{{Payload: []byte("b"), Incarnation: v.ID}})
			return err
		},
		"consume": func() error {
			_, err := r.b.Consume(ctx, ConsumeRequest{Topic: "orders", Partition: 0, Max: 1})
			return err
		},
		"read": func() error {
			_, _, err := r.b.Read(ctx, "orders", 0, 0)
			return err
		},
		"slab": func() error {
			_, err := r.b.Slab("orders", v.ID, 0, nil, 0, commitlog.SlabLimit{MaxRecords: 1, MaxBytes: 1})
			return err
		},
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("%s before the first catch-up: %v", name, err)
		}
	}
	if n := r.b.openLogs.Load(); n != 0 {
		t.Errorf("%d logs are open", n)
	}
	caught = true
	for name, call := range calls {
		if err := call(); err != nil {
			t.Errorf("%s after it: %v", name, err)
		}
	}
}
