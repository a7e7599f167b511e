package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"syscall"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

// history is what a client of the workload knows.
type history struct {
	tried     map[string]bool  // produced, with whatever answer
	committed map[string]int64 // answered well, at this offset
	acked     map[string]bool  // an ack was tried; it may or may not be on disk
}

func newHistory() *history {
	return &history{tried: map[string]bool{}, committed: map[string]int64{}, acked: map[string]bool{}}
}

// newVolume is a volume with the data directory that the node's start makes.
func newVolume(seed int64) *disk.Sim {
	sim := disk.NewSim(seed)
	if err := disk.MkdirDurable(sim, "/data"); err != nil {
		panic(err)
	}
	return sim
}

func openOn(sim *disk.Sim, topics *replica) (*Broker, *clock.Fake, error) {
	clk := clock.NewFake(start)
	b, err := Open(Options{FS: sim, DataDir: "/data", Node: node, Topics: topics, Clock: clk, Logger: slog.New(slog.DiscardHandler)})
	return b, clk, err
}

func (h *history) clone() *history {
	return &history{tried: maps.Clone(h.tried), committed: maps.Clone(h.committed), acked: maps.Clone(h.acked)}
}

// workload commits, consumes and acks out of order, with a clean restart in between.
func (h *history) workload(sim *disk.Sim, topics *replica) (err error) {
	n := 0
	for range 2 {
		b, clk, err := openOn(sim, topics)
		if err != nil {
			return err
		}
		err = errors.Join(b.Recover(context.Background(), topics.all()), h.load(b, clk, &n))
		if err = errors.Join(err, b.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (h *history) load(b *Broker, clk *clock.Fake, n *int) error {
	ctx := context.Background()
	for round := range 3 {
		var rs []model.Record
		for range 3 {
			p := fmt.Sprintf("m%d", *n)
			*n++
			rs = append(rs, rec(p))
			h.tried[p] = true
		}
		first, err := b.Commit(ctx, "orders", 0, rs)
		if err != nil {
			return err
		}
		for i := range rs {
			h.committed[string(rs[i].Payload)] = first + int64(i)
		}
		ds, err := b.Consume(ctx, ConsumeRequest{Topic: "orders", Partition: -1, Max: 3})
		if err != nil {
			return err
		}
		for i := len(ds) - 1; i >= 0; i-- {
			if i == 1 && round == 1 {
				continue // a hole that stays open
			}
			h.acked[string(ds[i].Payload)] = true
			if err := b.Settle(ctx, "orders", ds[i].Handle, model.Ack); err != nil {
				return err
			}
		}
		clk.Advance(1500 * time.Millisecond) // lets the offset committer write
	}
	return nil
}

// check drains what a restarted broker has and holds it against the history.
func (h *history) check(t *testing.T, sim *disk.Sim, topics *replica) {
	t.Helper()
	b, _, err := openOn(sim, topics)
	if err != nil {
		t.Fatalf("reopen: %v", err)
	}
	defer b.Close()
	ctx := context.Background()
	if err := b.Recover(ctx, topics.all()); err != nil {
		t.Fatalf("recover: %v", err)
	}
	stored := map[string]int64{}
	for off := int64(0); ; off++ { // O5: no gap below the high watermark
		m, ok, err := b.Read(ctx, "orders", 0, off)
		if err != nil {
			t.Fatalf("read offset %d: %v", off, err)
		}
		if !ok {
			break
		}
		if !h.tried[string(m.Payload)] {
			t.Fatalf("O2: offset %d holds %q, which nobody produced", off, m.Payload)
		}
		stored[string(m.Payload)] = off
	}
	for p, off := range h.committed {
		if got, ok := stored[p]; !ok || got != off {
			t.Fatalf("O1: %q was committed at offset %d, found %v at %d", p, off, ok, got)
		}
	}
	delivered := map[string]bool{}
	for {
		ds, err := b.Consume(ctx, ConsumeRequest{Topic: "orders", Partition: -1, Max: 100})
		if err != nil {
			t.Fatalf("consume: %v", err)
		}
		if len(ds) == 0 {
			break
		}
		for i := range ds {
			delivered[string(ds[i].Payload)] = true
			if err := b.Settle(ctx, "orders", ds[i].Handle, model.Ack); err != nil {
				t.Fatalf("ack: %v", err)
			}
		}
	}
	for p := range h.committed {
		if !delivered[p] && !h.acked[p] {
			t.Fatalf("O1: %q was neither acked nor delivered", p)
		}
	}
	for p := range delivered {
		h.acked[p] = true
	}
	last := rec(fmt.Sprintf("after recovery %d", len(h.tried)))
	h.tried[string(last.Payload)] = true
	off, err := b.Commit(ctx, "orders", 0, []model.Record{last}) // O8
	if err != nil {
		t.Fatalf("commit after recovery: %v", err)
	}
	h.committed[string(last.Payload)] = off
}

func crashTopics() *replica {
	topics := &replica{views: map[string]*model.TopicView{}}
	topics.set("orders", view("orders", 1, func(v *model.TopicView) { v.ID = "00112233aabbccdd" }))
	return topics
}

func TestF1_F3_F4_CrashAtEveryCall(t *testing.T) {
	topics := crashTopics()
	var h *history
	testutil.CrashPoints(t, func() *disk.Sim {
		h = newHistory()
		return newVolume(1)
	}, func(sim *disk.Sim) error {
		return h.workload(sim, topics)
	}, func(crashed *disk.Sim, k int) {
		h.clone().check(t, crashed, topics)
	})
}

func TestF6_CrashInRecoveryAtEveryCall(t *testing.T) {
	topics := crashTopics()
	for seed := range int64(6) {
		h := newHistory()
		sim := newVolume(seed)
		sim.CrashAt(40 + 13*int(seed))
		_ = h.workload(sim, topics) // dies somewhere in the middle
		for k := 1; k < 40; k++ {
			sim = sim.Crash(seed + int64(k))
			sim.CrashAt(k)
			if b, _, err := openOn(sim, topics); err == nil {
				_ = b.Recover(context.Background(), topics.all())
				_, _ = b.Consume(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 1})
				b.Close()
			}
		}
		h.check(t, sim.Crash(99), topics)
	}
}

func TestC6_GracefulStopAtTheEndOfTheWorkload(t *testing.T) {
	topics, h := crashTopics(), newHistory()
	sim := newVolume(1)
	if err := h.workload(sim, topics); err != nil {
		t.Fatal(err)
	}
	b, _, err := openOn(sim.Crash(5), topics) // the graceful stop synced everything
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ds, err := b.Consume(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 100})
	if err != nil {
		t.Fatal(err)
	}
	for i := range ds {
		if h.acked[string(ds[i].Payload)] {
			t.Errorf("O3: %q was acked before the graceful stop", ds[i].Payload)
		}
	}
	if len(ds) != len(h.committed)-len(h.acked) {
		t.Errorf("%d delivered, want %d", len(ds), len(h.committed)-len(h.acked))
	}
}

func TestF14_DiskFull(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	r.commit("orders", 0, "a", "b")
	ds := r.consume("orders", 2)
	r.ack(ds[0])
	r.settleDown()
	used := r.usage()
	r.sim.SetCapacity(used + 64)
	_, err := r.b.Commit(context.Background(), "orders", 0, []model.Record{{Payload: make([]byte, 4096)}})
	wantErr(t, err, syscall.ENOSPC)
	r.ack(ds[1]) // acks go on
	r.none("orders")
	r.sim.SetCapacity(0)
	if off := r.commit("orders", 0, "c"); off != 2 {
		t.Fatalf("the first record after the disk had room again is at %d, want 2", off)
	}
	r.ack(r.one("orders"))
	r.reopen()
	r.none("orders")
}

func TestF12_FailedFsyncPoisonsUntilReopened(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	r.commit("orders", 0, "a", "b")
	ds := r.consume("orders", 1)
	eio := errors.New("EIO")
	r.sim.Fail(disk.Rule{Op: disk.OpSync, Path: "*.log", N: 1, Err: eio})
	_, err := r.b.Commit(context.Background(), "orders", 0, recs(0, 1))
	wantErr(t, err, eio)
	_, err = r.b.Commit(context.Background(), "orders", 0, recs(0, 1))
	wantErr(t, err, model.ErrLogPoisoned) // the fsync would succeed now; it is not asked
	r.ack(ds[0])
	r.ack(r.one("orders")) // what was visible is still served
	r.sim.ClearRules()
	r.reopen()
	r.none("orders")
	if off := r.commit("orders", 0, "c"); off != 2 {
		t.Fatalf("offset %d after the restart, want 2", off)
	}
}

// settleDown lets the offset committer write everything.
func (r *rig) settleDown() {
	r.t.Helper()
	testutil.Eventually(r.t, 10*time.Second, func() bool {
		r.clk.Advance(time.Second)
		for _, e := range r.b.names.Range {
			for _, s := range e.(*topic).all() {
				if pt := s.part.Load(); pt != nil && pt.Gauges().InFlight == 0 && !pt.Resting() {
					return false
				}
			}
		}
		return true
	}, "acks to be written")
}

func (r *rig) usage() int64 {
	r.t.Helper()
	var sum int64
	var walk func(string)
	walk = func(dir string) {
		infos, err := r.sim.List(dir)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, i := range infos {
			if i.IsDir {
				walk(dir + "/" + i.Name)
			}
			sum += i.Size
		}
	}
	walk("/data")
	return sum
}
