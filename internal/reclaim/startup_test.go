package reclaim

import (
	"context"
	"errors"
	"fmt"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

func TestGateHoldsBackUntilOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Wait(ctx); !errors.Is(err, model.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("through an armed gate: %v", err)
		}
		done := make(chan error, 1)
		go func() { done <- g.Wait(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("did not wait: %v", err)
		default:
		}
		g.Open()
		g.Open()
		must(t, <-done)
		cancelled, stop := context.WithCancel(t.Context())
		stop()
		must(t, g.Wait(cancelled)) // an open gate refuses nobody
	})
}

// The startup sweep waits for a replica that is current and opens the gate after it.
func TestStartupWaitsForACurrentReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newBubbleRig(t)
		gate := NewGate()
		g.leader.behind, g.leader.mute = errors.New("behind"), true
		mkTopic(t, g.fs, path.Join(g.root, "orders"), string(idOld))
		mkTopic(t, g.fs, path.Join(g.root, "kept.stale-"+string(idOld)), string(idNew))
		done := make(chan error, 1)
		go func() {
			_, err := g.Startup(t.Context(), gate)
			done <- err
		}()
		time.Sleep(startupWait - time.Second)
		synctest.Wait()
		if g.leader.asked != 0 || gate.open() {
			t.Fatal("swept, or opened the gate, on a replica that is behind")
		}
		g.leader.change(func(map[string]model.Incarnation) { g.leader.behind, g.leader.mute = nil, false })
		must(t, <-done)
		if present(t, g.fs, path.Join(g.root, "orders")) || !gate.open() {
			t.Error("did not sweep, or left the gate armed")
		}
		if l.count("quarantined partition copy on this node") != 1 || l.count("kind=topic_incarnation topic=kept") != 1 {
			t.Errorf("the copy set aside is not listed: %s", l.b.String())
		}
		g.Close()
	})
}

func (g *Gate) open() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// A replica that is not current within 60 s skips the sweep; the gate opens, and the
// sweep is made up for in the background.
func TestStartupSkipsRatherThanHurries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newBubbleRig(t)
		gate := NewGate()
		dir := path.Join(g.root, "orders")
		mkTopic(t, g.fs, dir, string(idOld))
		g.leader.behind, g.leader.mute = errors.New("behind"), true
		start := time.Now()
		if _, err := g.Startup(t.Context(), gate); err == nil {
			t.Error("a skipped sweep is no error")
		}
		if took := time.Since(start); took != startupWait || !gate.open() || !present(t, g.fs, dir) {
			t.Errorf("after %v: gate open %t", took, gate.open())
		}
		if l.count("startup sweep of deleted topics skipped") != 1 {
			t.Error("the line is missing")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if !present(t, g.fs, dir) {
			t.Fatal("removed without the leader's word")
		}
		g.leader.change(func(map[string]model.Incarnation) { g.leader.behind, g.leader.mute = nil, false })
		time.Sleep(retryMax)
		synctest.Wait()
		if present(t, g.fs, dir) {
			t.Error("the skipped sweep is not made up for")
		}
		g.Close()
	})
}

func TestStartupListsAtMostTwenty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newBubbleRig(t)
		for i := range listedMax + 5 {
			mkTopic(t, g.fs, path.Join(g.root, fmt.Sprintf("t%02d.stale-%s", i, idOld)), string(idNew))
		}
		_, err := g.Startup(t.Context(), NewGate())
		must(t, err)
		if n := l.count("quarantined partition copy on this node"); n != listedMax {
			t.Errorf("%d lines, want %d", n, listedMax)
		}
		if l.count("quarantined copies on this node in all") != 1 || l.count(fmt.Sprintf("copies=%d", listedMax+5)) != 1 {
			t.Error("no totals")
		}
		g.Close()
	})
}

// A change of topics is followed by one sweep within 30 s, which finds what a missed
// purge left, by whatever name; without a change nothing happens.
func TestSweepFollowsAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newBubbleRig(t)
		g.leader.change(func(live map[string]model.Incarnation) { live["orders"] = idOld })
		dir, aside := path.Join(g.root, "orders"), path.Join(g.root, "orders.stale-00000000000000cc")
		mkTopic(t, g.fs, dir, string(idOld))
		mkTopic(t, g.fs, aside, "00000000000000cc")
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if g.leader.asked != 0 || g.inventory.last.Load() != nil {
			t.Fatal("an idle node sweeps")
		}
		g.leader.change(func(live map[string]model.Incarnation) { live["orders"] = idNew }) // recreated; no purge arrived
		for range 1000 {
			g.TopicChanged("orders", nil)
		}
		time.Sleep(sweepEvery - time.Second)
		synctest.Wait()
		if !present(t, g.fs, dir) {
			t.Error("swept at once for each change")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if present(t, g.fs, dir) || present(t, g.fs, aside) {
			t.Error("the sweep after the change left the old life")
		}
		asked := g.leader.asked
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if g.leader.asked != asked {
			t.Error("it goes on sweeping")
		}
		g.Close()
	})
}

// An open may set a directory aside between the look of the sweep and its removal, under a
// name the sweep has not seen: it asks to be repeated.
func TestSweepComesBackForWhatMoved(t *testing.T) {
	sim := disk.NewSim(1)
	g := newRig(t, sim, "data", nil)
	g.leader.live["orders"] = idNew
	dir := path.Join(g.root, "orders")
	mkTopic(t, sim, dir, string(idOld))
	g.owner.before = func() {
		must(t, sim.Rename(dir, dir+".stale-"+string(idOld)+".99"))
		mkTopic(t, sim, dir, string(idNew))
		g.owner.before = nil
	}
	if _, err := g.Sweep(t.Context()); !errors.Is(err, errMoved) || keptForGood(err) {
		t.Errorf("a sweep that was overtaken: %v", err)
	}
	if s, err := g.Sweep(t.Context()); err != nil || s.Removed != 1 || !present(t, sim, path.Join(dir, "p00000")) {
		t.Errorf("the next one: %+v, %v", s, err)
	}
}

// A leader that cannot be asked costs a sweep one question, however many directories
// wait for its word.
func TestSilentLeaderIsAskedOnce(t *testing.T) {
	sim := disk.NewSim(1)
	g := newRig(t, sim, "data", nil)
	for i := range 50 {
		mkTopic(t, sim, path.Join(g.root, fmt.Sprintf("t%02d", i)), string(idOld))
	}
	g.leader.setMute(true)
	if s, err := g.Sweep(t.Context()); !errors.Is(err, ErrUnconfirmed) || s.OrphanDirs != 50 || g.leader.asked != 1 {
		t.Errorf("%d kept, asked %d times: %v", s.OrphanDirs, g.leader.asked, err)
	}
	g.leader.setMute(false)
	if s, err := g.Sweep(t.Context()); err != nil || s.Removed != 50 {
		t.Errorf("once it can be asked: %+v, %v", s, err)
	}
}
