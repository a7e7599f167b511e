package ingress

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// lines is a log a test can read.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(msg string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), `msg="`+msg+`"`)
}

// runLogged is run with the log's lines.
func runLogged(t *testing.T, w *world, f func(t *testing.T, in *Ingress, l *lines)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lines{}
		o := w.options(disk.NewSim(1), clock.Real())
		o.Logger = slog.New(slog.NewTextHandler(l, nil))
		in := mustOpen(t, o)
		defer mustClose(t, in)
		f(t, in, l)
	})
}

// TestDiscardNeedsTheLeader: records of a topic the replica does not have stay in
// the WAL until the leader says it is gone.
func TestDiscardNeedsTheLeader(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3)
	w.setUnowned("t", 0, true)
	runLogged(t, w, func(t *testing.T, in *Ingress, l *lines) {
		for i := range 5 {
			mustAccept(t, in, "t", Message{Payload: text("m%d", i), Partition: 0})
		}
		after(time.Second)
		w.setLeader(false)
		w.remove("t")
		after(10 * time.Second)
		if in.Backlog() != 5 {
			t.Fatalf("backlog %d without the leader's word, want all 5", in.Backlog())
		}
		if asked := w.asked; asked < 4 || asked > 12 {
			t.Fatalf("the leader was asked %d times in 10 s, want about once a second", asked)
		}
		w.setLeader(true)
		after(3 * time.Second)
		if in.Backlog() != 0 {
			t.Fatalf("backlog %d after the leader confirmed", in.Backlog())
		}
		if got := promtest.ToFloat64(in.metrics.deleted); got != 5 {
			t.Fatalf("%v discards counted, want 5", got)
		}
		if l.count("discarding undispatched produce records for deleted topic") != 1 {
			t.Fatalf("log:\n%s", l.b.String())
		}
	})
}

// TestReappearedTopicKeepsItsRecords: a replica that lost a topic for a while
// (a snapshot restore) costs nothing.
func TestReappearedTopicKeepsItsRecords(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3)
	run(t, w, func(t *testing.T, in *Ingress) {
		w.setUnowned("t", 0, true)
		mustAccept(t, in, "t", Message{Payload: text("m"), Partition: 0})
		synctest.Wait()
		w.setLeader(false)
		w.remove("t")
		after(5 * time.Second)
		w.setUnowned("t", 0, false)
		w.create("t", idA, 3)
		after(2 * time.Second)
		if w.all()["m"] != 1 {
			t.Fatal("the record of a topic that was missing for a while is gone")
		}
	})
}

// P6, F37, F47: delete and recreate under the same name at every state a record
// can be in. No record of the old life is committed under the new one.
func TestP6RecreateAtEveryState(t *testing.T) {
	type setup func(w *world, n *node)
	for name, hold := range map[string]setup{
		"queued":  func(w *world, n *node) { w.setUnowned("t", 0, true) },
		"failing": func(w *world, n *node) { n.refuse = refuseAll },
		"hung": func(w *world, n *node) {
			n.block = func(ctx context.Context, _ string, _ int) { <-ctx.Done() }
			n.refuse = refuseAll
		},
		"dead": func(w *world, n *node) { n.alive, n.refuse = false, refuseAll },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.create("t", idA, 1)
			n := w.node(self)
			n.set(func(n *node) { hold(w, n) })
			runLogged(t, w, func(t *testing.T, in *Ingress, l *lines) {
				for i := range 20 {
					mustAccept(t, in, "t", Message{Payload: text("old%d", i), Partition: 0})
				}
				after(1200 * time.Millisecond)
				w.remove("t")
				w.create("t", idB, 1)
				for i := range 20 {
					mustAccept(t, in, "t", Message{Payload: text("new%d", i), Partition: 0})
				}
				after(100 * time.Millisecond)
				w.setUnowned("t", 0, false)
				n.set(func(n *node) { n.alive, n.refuse, n.block = true, nil, nil })
				after(commitBudget + 5*time.Second)
				if n.foreign != 0 {
					t.Fatalf("%d batches left for the new life with records of the old one", n.foreign)
				}
				all := w.all()
				for i := range 20 {
					if all[fmt.Sprint("old", i)] != 0 || all[fmt.Sprint("new", i)] != 1 {
						t.Fatalf("old%d stored %d times, new%d %d times, want 0 and 1",
							i, all[fmt.Sprint("old", i)], i, all[fmt.Sprint("new", i)])
					}
				}
				if in.Backlog() != 0 || promtest.ToFloat64(in.metrics.recreated) != 20 {
					t.Fatalf("backlog %d, %v counted as recreated", in.Backlog(), promtest.ToFloat64(in.metrics.recreated))
				}
				if l.count("discarding undispatched record of a deleted topic incarnation") == 0 {
					t.Fatalf("log:\n%s", l.b.String())
				}
			})
		})
	}
}

// TestOwnerRefusesIncarnation: the owner knows of the recreate before this
// replica does. The batch goes back to the WAL, nothing fails, nothing reroutes,
// and the owner is not asked in a tight loop.
func TestOwnerRefusesIncarnation(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3)
	n := w.node(self)
	refusals := 0
	n.set(func(n *node) {
		n.refuse = func(string, int, []model.Record) error { refusals++; return model.ErrIncarnation }
	})
	runLogged(t, w, func(t *testing.T, in *Ingress, l *lines) {
		for i := range 10 {
			mustAccept(t, in, "t", Message{Payload: text("m%d", i), Partition: 0})
		}
		after(5 * time.Second)
		if refusals < 3 || refusals > 15 || len(w.all()) != 0 || in.Backlog() != 10 {
			t.Fatalf("%d refusals, stored %v, backlog %d", refusals, w.all(), in.Backlog())
		}
		if l.count("owner refused produce records accepted for another topic incarnation; checking them again") != 1 {
			t.Fatalf("log:\n%s", l.b.String())
		}
		n.set(func(n *node) { n.refuse = nil })
		after(2 * time.Second)
		if got := n.stored("t", 0); len(got) != 10 {
			t.Fatalf("stored %q", got)
		}
	})
}

// TestDiscardAfterFailedCommit: the owner answers not found, the check runs on
// the commit's goroutine, and the line names topic id and error.
func TestDiscardAfterFailedCommit(t *testing.T) {
	w := newWorld()
	w.create("t", idA, 3)
	n := w.node(self)
	runLogged(t, w, func(t *testing.T, in *Ingress, l *lines) {
		n.set(func(n *node) {
			n.block = func(context.Context, string, int) { time.Sleep(100 * time.Millisecond) }
		})
		mustAccept(t, in, "t", Message{Payload: text("m"), Partition: 0})
		synctest.Wait()
		w.remove("t")
		after(time.Second)
		if in.Backlog() != 0 || promtest.ToFloat64(in.metrics.deleted) != 1 {
			t.Fatalf("backlog %d, %v discarded", in.Backlog(), promtest.ToFloat64(in.metrics.deleted))
		}
		if l.count("discarding undispatched record for deleted topic") != 1 ||
			!strings.Contains(l.b.String(), "topic_id="+string(idA)) || !strings.Contains(l.b.String(), "topic not found") {
			t.Fatalf("log:\n%s", l.b.String())
		}
	})
}

// TestRerouteLines: one line per destination and minute, by reason.
func TestRerouteLines(t *testing.T) {
	for reason, dead := range map[string]bool{"stuck": false, "unavailable": true} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld()
			w.create("t", idA, 3)
			w.own("t", 0, "n1")
			bad := w.node("n1")
			bad.set(func(n *node) { n.refuse, n.alive = refuseAll, !dead })
			runLogged(t, w, func(t *testing.T, in *Ingress, l *lines) {
				for i := range 80 {
					mustAccept(t, in, "t", Message{Payload: text("m%d", i), Partition: 0})
					after(time.Second)
				}
				if n := l.count("rerouting produce records for " + reason + " partition owner"); n != 2 {
					t.Fatalf("%d lines in 80 s, want 2:\n%s", n, l.b.String())
				}
				if n := l.count("produce dispatcher: a commit failed; its records stay in the WAL and are tried again"); n != 2 {
					t.Fatalf("%d lines about failed commits in 80 s, want 2:\n%s", n, l.b.String())
				}
				if in.Backlog() > 5 {
					t.Fatalf("backlog %d: something holds the checkpoint", in.Backlog())
				}
				if promtest.ToFloat64(in.metrics.rerouted.WithLabelValues("t")) < 70 {
					t.Fatal("reroutes are not counted")
				}
			})
		})
	}
}

// TestDeletedTopicsAreForgotten: their state and series go, so the dispatcher
// does not grow with what once existed.
func TestDeletedTopicsAreForgotten(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, in *Ingress) {
		for i := range 50 {
			name := fmt.Sprint("t", i)
			w.create(name, idA, 3)
			mustAccept(t, in, name, Message{Payload: text("m"), Partition: 0})
			after(time.Second)
			w.remove(name)
		}
		w.create("last", idA, 3)
		after(sweepEvery)
		mustAccept(t, in, "last", Message{Payload: text("m"), Partition: 0})
		after(time.Second)
		in.StopDispatch()
		if s := in.disp.sched; len(s.topics) != 1 || s.destinations() != 1 {
			t.Fatalf("%d topics, %d destinations remembered, want 1 and 1", len(s.topics), s.destinations())
		}
	})
}

// A record without an id whose partition is outside the topic's range goes to
// partition modulo count.
func TestPartitionOutsideTheRange(t *testing.T) {
	w := newWorld()
	w.create("t", "", 12)
	run(t, w, func(t *testing.T, in *Ingress) {
		w.setUnowned("t", 10, true)
		mustAccept(t, in, "t", Message{Payload: text("m"), Partition: 10})
		after(time.Second)
		w.create("t", "", 3)
		w.setUnowned("t", 10, false)
		far := &record{topic: "t", partition: 1 << 30}
		far.Payload = text("far")
		if err := in.log.Append(bg, far); err != nil {
			t.Fatal(err)
		}
		after(3 * time.Second)
		if got := w.node(self).stored("t", 1); len(got) != 2 {
			t.Fatalf("partition 1 has %q, want m and far: 10 %% 3 and 2^30 %% 3", got)
		}
	})
}
