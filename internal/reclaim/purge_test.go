package reclaim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// logs collects log lines.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// newBubbleRig is a rig whose time moves only when everything waits.
func newBubbleRig(t *testing.T) (*rig, *logs) {
	l := &logs{}
	return newRig(t, disk.NewSim(1), "data", nil, func(o *Options) { o.Logger = l.logger() }), l
}

// A purge that arrives before this node has applied the delete waits for it.
func TestPurgeWaitsForTheReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newBubbleRig(t)
		dir := path.Join(g.root, "orders")
		mkTopic(t, g.fs, dir, string(idOld))
		g.leader.local = map[string]model.Incarnation{"orders": idOld}
		done := make(chan error, 1)
		go func() { done <- g.Purge(t.Context(), "orders", idOld) }()
		time.Sleep(purgeWait - time.Second)
		synctest.Wait()
		if !present(t, g.fs, dir) || g.leader.asked != 0 {
			t.Fatal("purged, or the leader asked, while the replica shows the incarnation")
		}
		g.leader.change(func(map[string]model.Incarnation) { g.leader.local["orders"] = idNew }) // recreated by now
		if err := <-done; err != nil || present(t, g.fs, dir) {
			t.Fatalf("after the replica moved on: %v, directory left: %t", err, present(t, g.fs, dir))
		}
		g.Close()
	})
}

func TestPurgeIsDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newBubbleRig(t)
		dir := path.Join(g.root, "orders")
		mkTopic(t, g.fs, dir, string(idOld))
		g.leader.local = map[string]model.Incarnation{"orders": idOld}
		start := time.Now()
		err := g.Purge(t.Context(), "orders", idOld)
		if took := time.Since(start); !errors.Is(err, model.ErrPurgeDeferred) || took != purgeWait {
			t.Errorf("after %v: %v", took, err)
		}
		if l.count("purge deferred: the local metastore still shows the topic incarnation") != 1 {
			t.Error("the line is missing")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Purge(ctx, "orders", idOld); !errors.Is(err, model.ErrPurgeDeferred) {
			t.Errorf("its sender gave up: %v", err)
		}
		if !present(t, g.fs, dir) || g.leader.asked != 0 {
			t.Error("the data is gone, or the leader was asked")
		}
		g.Close()
	})
}

// A purge that waits does not hold up others.
func TestPurgesWaitSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newBubbleRig(t)
		mkTopic(t, g.fs, path.Join(g.root, "gone"), string(idNew))
		g.leader.local = map[string]model.Incarnation{"orders": idOld}
		waiting := make(chan error, 1)
		go func() { waiting <- g.Purge(t.Context(), "orders", idOld) }()
		synctest.Wait()
		start := time.Now()
		if err := g.Purge(t.Context(), "gone", idNew); err != nil || time.Since(start) != 0 {
			t.Errorf("took %v: %v", time.Since(start), err)
		}
		if err := <-waiting; !errors.Is(err, model.ErrPurgeDeferred) {
			t.Error(err)
		}
		g.Close()
	})
}

// A peer of an older release purges by name: the marker says which life is meant, and the
// leader whether it is over.
func TestPurgeByName(t *testing.T) {
	for _, c := range []struct {
		name, marker string
		live         map[string]model.Incarnation
		gone         bool
	}{
		{name: "deleted", marker: string(idOld), gone: true},
		{name: "recreated, old life here", marker: string(idOld), live: map[string]model.Incarnation{"orders": idNew}, gone: true},
		{name: "recreated, new life here", marker: string(idNew), live: map[string]model.Incarnation{"orders": idNew}},
		{name: "unmarked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, _ := newBubbleRig(t)
				if c.live != nil {
					g.leader.live = c.live
				}
				dir := path.Join(g.root, "orders")
				mkTopic(t, g.fs, dir, c.marker)
				err := g.Purge(t.Context(), "orders", "")
				if gone := !present(t, g.fs, dir); gone != c.gone {
					t.Errorf("removed %t, want %t (%v)", gone, c.gone, err)
				}
				must(t, g.Purge(t.Context(), "never-here", ""))
				g.Close()
			})
		})
	}
}

// post is the network of a broadcast: it notes who was asked when, and may fail.
type post struct {
	mu    sync.Mutex
	asked []string
	at    []time.Duration
	start time.Time
	fail  map[string]int // how often asking this address fails; -1 = always
	hang  map[string]bool
	now   int
	most  int
}

func (p *post) Purge(ctx context.Context, addr, topic string, id model.Incarnation) error {
	p.mu.Lock()
	p.asked = append(p.asked, fmt.Sprint(addr, " ", topic, " ", id))
	p.at = append(p.at, time.Since(p.start))
	p.now++
	p.most = max(p.most, p.now)
	hang, failing := p.hang[addr], p.fail[addr]
	if failing > 0 {
		p.fail[addr]--
	}
	p.mu.Unlock()
	defer func() { p.mu.Lock(); p.now--; p.mu.Unlock() }()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if failing != 0 {
		return model.ErrPurgeDeferred
	}
	return nil
}

func newBroadcast(p *post, members ...model.Member) (*Broadcast, *logs) {
	p.start = time.Now()
	l := &logs{}
	return NewBroadcast(BroadcastOptions{Self: "n0", Members: func() []model.Member { return members }, Peers: p, Logger: l.logger()}), l
}

func member(id string, status model.MemberStatus) model.Member {
	return model.Member{ID: id, Addr: id + ":7942", Status: status}
}

// Every live member but this one is asked, at once, with the incarnation.
func TestBroadcastAsksTheLiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &post{fail: map[string]int{"n2:7942": 2}}
		draining := member("n3", model.MemberAlive)
		draining.Draining = true
		b, l := newBroadcast(p, member("n0", model.MemberAlive), member("n1", model.MemberAlive), member("n2", model.MemberAlive),
			draining, member("n4", model.MemberDead))
		b.Deleted("orders", idOld)
		time.Sleep(time.Minute)
		synctest.Wait()
		slices.Sort(p.asked)
		of := func(id string) string { return id + ":7942 orders " + string(idOld) }
		if want := []string{of("n1"), of("n2"), of("n2"), of("n2"), of("n3")}; !slices.Equal(p.asked, want) {
			t.Errorf("asked %q, want %q", p.asked, want)
		}
		if l.count("topic purge unfinished") != 0 {
			t.Error("a broadcast that succeeded in the end is called unfinished")
		}
		must(t, b.Close())
		must(t, b.Close())
	})
}

// A member that never answers is asked 3 times, within 17 s in all, and named; it holds up
// no other delete.
func TestBroadcastGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &post{hang: map[string]bool{"n1:7942": true}}
		b, l := newBroadcast(p, member("n1", model.MemberAlive), member("n2", model.MemberAlive))
		b.Deleted("orders", idOld)
		b.Deleted("payments", idNew)
		time.Sleep(17*time.Second - time.Millisecond)
		synctest.Wait()
		if len(p.asked) != 2*(3+1) || p.at[len(p.at)-1] > 2*(tellBudget+tellPause) {
			t.Errorf("asked %q at %v", p.asked, p.at)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if n := l.count("topic purge unfinished on some members"); n != 2 || l.count("members=[n1]") != 2 {
			t.Errorf("%d lines: %s", n, l.b.String())
		}
		must(t, b.Close())
	})
}

// However many topics are deleted at once, few requests are under way; past the queue's
// bound a delete is not told, and said so.
func TestBroadcastIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &post{hang: map[string]bool{}}
		var members []model.Member
		for i := range 40 {
			m := member(fmt.Sprintf("n%d", i+1), model.MemberAlive)
			members = append(members, m)
			p.hang[m.Addr] = true
		}
		b, l := newBroadcast(p, members...)
		for i := range tellQueueMax + tellAtOnce + 1 {
			b.Deleted(fmt.Sprintf("t%d", i), idOld)
			synctest.Wait()
		}
		if p.most != tellAtOnce*tellPeersMax {
			t.Errorf("%d requests at once, want %d", p.most, tellAtOnce*tellPeersMax)
		}
		if n := l.count("topic purge unfinished"); n != 1 {
			t.Errorf("%d deletes were not told, want 1", n)
		}
		must(t, b.Close()) // with requests under way
		if p.now != 0 {
			t.Errorf("%d requests outlive Close", p.now)
		}
	})
}
