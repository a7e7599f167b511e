package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

func TestRecreateStartsEmptyAndSetsTheOldDirectoryAside(t *testing.T) { // C11
	r := newRig(t)
	old := r.create(view("orders", 1))
	r.commit("orders", 0, "old a", "old b")
	lease := r.one("orders")
	r.remove("orders")
	fresh := r.create(view("orders", 1))
	r.none("orders")
	wantErr(t, r.settle(lease, model.Ack), model.ErrNoLease)
	if off := r.commit("orders", 0, "new"); off != 0 {
		t.Fatalf("first offset of the new life is %d", off)
	}
	if d := r.one("orders"); string(d.Payload) != "new" || d.Offset != 0 {
		t.Fatalf("delivered %q at %d", d.Payload, d.Offset)
	}
	if marker, err := commitlog.ReadMarker(r.sim, "/data/topics/orders"); err != nil || marker != fresh.ID {
		t.Fatalf("marker %q, %v; want %s", marker, err, fresh.ID)
	}
	stale := "/data/topics/orders.stale-" + string(old.ID)
	if marker, err := commitlog.ReadMarker(r.sim, stale); err != nil || marker != old.ID {
		t.Fatalf("set-aside directory: marker %q, %v", marker, err)
	}
	if !strings.Contains(r.log.String(), "level=ERROR") {
		t.Error("a foreign directory was set aside without an error line")
	}
}

func TestRecreateWhileConsumersAreParked(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	r.commit("orders", 0, "old")
	r.ack(r.one("orders"))
	ch := r.poll(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour})
	r.awaitParked("orders", 1)
	r.create(view("orders", 1)) // the replica applied delete and create before it told us
	testutil.Eventually(t, 10*time.Second, func() bool {
		e := r.b.entry("orders")
		return !e.gone.Load() && e.waiters.parked.Load() == 1
	}, "the consumer to park on the new life")
	r.commit("orders", 0, "new")
	if p := receive(t, ch); len(p.ds) != 1 || string(p.ds[0].Payload) != "new" {
		t.Fatalf("%v %v", payloads(p.ds), p.err)
	}
}

func TestCommitRefusesAnotherIncarnation(t *testing.T) {
	r := newRig(t)
	v := r.create(view("orders", 1))
	ctx := context.Background()
	other := model.Record{Payload: []byte("x"), Incarnation: model.NewIncarnation()}
	_, err := r.b.Commit(ctx, "orders", 0, []model.Record{rec("by name"), other})
	wantErr(t, err, model.ErrIncarnation)
	if _, err = r.b.Commit(ctx, "orders", 0, []model.Record{{Payload: []byte("ok"), Incarnation: v.ID}, rec("by name")}); err != nil {
		t.Fatal(err)
	}
	if ds := r.consume("orders", 10); len(ds) != 2 {
		t.Fatalf("stored %v", payloads(ds))
	}
}

func TestF47_DeleteAndRecreateUnderLoad(t *testing.T) { // C11, O2
	r := newRig(t)
	r.create(view("orders", 2))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for p := range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				v, ok := r.topic.Topic("orders")
				if !ok {
					continue
				}
				rs := []model.Record{{Payload: []byte(v.ID), Incarnation: v.ID}}
				if _, err := r.b.Commit(ctx, "orders", p, rs); err != nil && !expectedInRecreate(err) {
					t.Errorf("commit: %v", err)
				}
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				before, _ := r.topic.Topic("orders")
				ds, err := r.b.Consume(ctx, ConsumeRequest{Topic: "orders", Partition: -1, Max: 10, Wait: time.Hour})
				if err != nil && !expectedInRecreate(err) {
					t.Errorf("consume: %v", err)
				}
				after, _ := r.topic.Topic("orders")
				for i := range ds {
					// Delivered under one life throughout: it must be that life's record.
					if before != nil && before == after && string(ds[i].Payload) != string(before.ID) {
						t.Errorf("life %s delivered a record of %s", before.ID, ds[i].Payload)
					}
					if err := r.settle(ds[i], model.Ack); err != nil && !expectedInRecreate(err) {
						t.Errorf("ack: %v", err)
					}
				}
			}
		})
	}
	for i := range 40 {
		old, _ := r.topic.Topic("orders")
		r.remove("orders")
		if i%2 == 0 {
			if _, err := r.b.Retire("orders", old.ID); err != nil {
				t.Errorf("retire: %v", err)
			}
		}
		v := r.create(view("orders", 2))
		testutil.Eventually(t, 10*time.Second, func() bool {
			st, err := r.b.Describe(v, 0)
			return err == nil && st.HighWatermark > 2
		}, "the new life to take records")
	}
	cancel()
	wg.Wait()
	// No record of another life in any directory.
	v, _ := r.topic.Topic("orders")
	for p := range 2 {
		for off := int64(0); ; off++ {
			m, ok, err := r.b.Read(context.Background(), "orders", p, off)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			if string(m.Payload) != string(v.ID) {
				t.Fatalf("%d/%d holds a record of life %s, want %s", p, off, m.Payload, v.ID)
			}
		}
	}
}

func expectedInRecreate(err error) bool {
	for _, ok := range []error{
		model.ErrTopicNotFound, model.ErrIncarnation, model.ErrNotOwner, model.ErrNoLease,
		model.ErrUnavailable, context.Canceled,
	} {
		if errors.Is(err, ok) {
			return true
		}
	}
	return false
}

func TestRetire(t *testing.T) {
	r := newRig(t)
	v := r.create(view("orders", 1))
	r.commit("orders", 0, "a")
	if _, err := r.b.Retire("orders", v.ID); !errors.Is(err, model.ErrUnavailable) {
		t.Fatalf("retired a live topic: %v", err)
	}
	r.remove("orders")
	if p, err := r.b.Retire("orders", model.NewIncarnation()); err != nil || p != "" {
		t.Fatalf("retired another life's directory: %q %v", p, err)
	}
	p, err := r.b.Retire("orders", v.ID)
	if err != nil || p != "/data/topics/orders.stale-"+string(v.ID) {
		t.Fatalf("stale path %q, %v", p, err)
	}
	if _, err := r.sim.Stat("/data/topics/orders"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("directory still there: %v", err)
	}
	if r.b.entry("orders") != nil || r.b.openLogs.Load() != 0 {
		t.Fatal("state left behind")
	}
	if p, err := r.b.Retire("orders", v.ID); err != nil || p != "" {
		t.Fatalf("second time: %q %v", p, err)
	}
	if r.b.entry("orders") != nil {
		t.Fatal("an entry was left for a retired name")
	}
}

func TestConsumeMakesNoDirectories(t *testing.T) {
	r := newRig(t)
	v := r.create(view("orders", 3))
	r.none("orders")
	if _, _, err := r.b.Read(context.Background(), "orders", 1, 0); err != nil {
		t.Fatal(err)
	}
	if st, err := r.b.Describe(v, 2); err != nil || st.Status != "ok" || st.OwnerNode != node || st.Index != 2 {
		t.Fatalf("describe: %+v %v", st, err)
	}
	if _, err := r.sim.Stat("/data/topics"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("topics directory exists: %v", err)
	}
	calls := r.sim.Calls()
	r.none("orders")
	if n := r.sim.Calls() - calls; n != 0 {
		t.Errorf("an idle consume made %d I/O calls, want 0", n)
	}
}

func TestRecoverOpensOnlyWhatWasNotClosed(t *testing.T) {
	r := newRig(t)
	for i := range 20 {
		name := fmt.Sprintf("t%d", i)
		r.create(view(name, 3))
		r.commit(name, i%3, "a")
	}
	r.reopen()
	r.commit("t7", 1, "b")
	r.sim = r.sim.Crash(3)
	r.b.Close() // its volume is gone
	r.open()
	if err := r.b.Recover(context.Background(), r.topic.all()); err != nil {
		t.Fatal(err)
	}
	if n := r.b.openLogs.Load(); n != 1 {
		t.Fatalf("%d logs open, want the one that was in use", n)
	}
	if got := payloads(r.consume("t7", 10)); len(got) != 2 {
		t.Fatalf("recovered %v", got)
	}
}

func TestRecoverOfManyTopicsWithoutFilesIsCheap(t *testing.T) {
	r := newRig(t)
	for i := range 10_000 {
		v := view(fmt.Sprintf("t%d", i), 3)
		r.topic.set(v.Name, v)
	}
	calls, began := r.sim.Calls(), time.Now()
	if err := r.b.Recover(context.Background(), r.topic.all()); err != nil {
		t.Fatal(err)
	}
	t.Logf("10,000 topics without files: %v", time.Since(began))
	if n := r.sim.Calls() - calls; n > 2 {
		t.Errorf("%d I/O calls, want one listing", n)
	}
	if n := r.b.owned.count(); n != 30_000 {
		t.Errorf("%d partitions owned, want 30,000", n)
	}
}

func TestRecoverSkipsWhatCannotBeOpened(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"bad", "good"} {
		r.create(view(name, 1))
		r.commit(name, 0, "a")
	}
	r.sim = r.sim.Crash(1)
	r.b.Close()
	r.open()
	r.sim.Fail(disk.Rule{Op: disk.OpRead, Path: "/data/topics/bad/p00000/*", Sticky: true, N: 1, Err: errors.New("EIO")})
	if err := r.b.Recover(context.Background(), r.topic.all()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.log.String(), "partition left closed at startup") {
		t.Errorf("no warning: %s", r.log)
	}
	if got := payloads(r.consume("good", 1)); len(got) != 1 {
		t.Fatal("the good one suffers")
	}
	r.sim.ClearRules()
	if got := payloads(r.consume("bad", 1)); len(got) != 1 {
		t.Fatal("not tried again at its first use")
	}
}

func TestOwnershipLostAndGained(t *testing.T) {
	r := newRig(t)
	v := r.create(view("orders", 1))
	r.commit("orders", 0, "a")
	d := r.one("orders")
	moved := *v
	moved.Owners = []string{"n2"}
	r.create(&moved)
	_, err := r.b.Commit(context.Background(), "orders", 0, recs(0, 1))
	wantErr(t, err, model.ErrNotOwner)
	wantErr(t, r.settle(d, model.Ack), model.ErrNotOwner)
	r.none("orders")
	ch := r.poll(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour})
	r.awaitParked("orders", 1)
	back := *v
	r.create(&back)
	r.b.Release("orders", d.Handle)
	if p := receive(t, ch); len(p.ds) != 1 {
		t.Fatalf("a gained partition does not serve the parked: %+v", p)
	}
}

// A commit that resolved its log before the recreate must not land in it afterwards,
// even when its records name no life.
func TestC11_CommitIntoTheOldLogIsRefused(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	r.commit("orders", 0, "old")
	old := r.b.entry("orders").slot(0).part.Load()
	r.topic.set("orders", view("orders", 1)) // nobody told the broker yet
	_, err := old.Commit(context.Background(), recs(0, 1))
	wantErr(t, err, model.ErrLogClosed)
	if off := r.commit("orders", 0, "new"); off != 0 {
		t.Fatalf("the new life starts at offset %d", off)
	}
}
