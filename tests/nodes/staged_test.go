package nodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/fanout"
	"github.com/narad-mq/narad/internal/ingress"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/reclaim"
	"github.com/narad-mq/narad/internal/testutil"
)

const (
	idEarly  model.Incarnation = "00000000000000e1"
	idDoomed model.Incarnation = "00000000000000d0"
	idLate   model.Incarnation = "00000000000000a7"
)

func (c *trio) reclaimer(b *broker.Broker) *reclaim.Reclaimer {
	c.t.Helper()
	s := c.running(subject)
	r, err := reclaim.New(reclaim.Options{
		FS: disk.OS{}, DataDir: filepath.ToSlash(c.dirs[subject]), Topics: s, Confirmer: s, Retirer: b, Registry: prometheus.NewRegistry(),
	})
	must(c.t, err)
	c.t.Cleanup(func() { _ = r.Close() })
	return r
}

// stage brings the subject to where it holds data of topics its restored metastore knows
// differently: "late" was created, and "doomed" deleted, after the copy was taken. It is
// stopped, with the old metastore in place.
func (c *trio) stage() {
	c.t.Helper()
	c.create("early", idEarly, nodeID(subject))
	c.create("doomed", idDoomed, nodeID(subject))
	old := c.saved()
	b := c.open()
	commit(c.t, b, "doomed", idDoomed, "over")
	c.create("late", idLate, nodeID(subject))
	commit(c.t, b, "late", idLate, "a", "b")
	must(c.t, b.Close())
	c.stop(subject)
	c.do(metastore.RemoveTopic{Name: "doomed", ID: idDoomed}) // the purge is missed
	c.restore(old)
}

// Kill 1: the startup sweep compared the directories with the restored topic set and
// removed those of live topics. The sweep waits for the leader's word; the directory of
// the topic that is gone goes once it has that.
func TestStagedStartupSweepOnAStaleReplica(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	c.stage()
	s := c.alone()
	if _, ok := s.Topic("late"); ok {
		t.Fatal("the replica is not stale: the test proves nothing")
	}
	b := c.open()
	r := c.reclaimer(b)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := r.Startup(ctx, reclaim.NewGate()); err == nil {
		t.Error("a startup sweep on a stale replica succeeds")
	}
	if _, err := r.Sweep(t.Context()); !errors.Is(err, reclaim.ErrUnconfirmed) {
		t.Errorf("a sweep on a stale replica: %v", err)
	}
	if err := r.Purge(t.Context(), "late", idLate); !errors.Is(err, reclaim.ErrUnconfirmed) {
		t.Errorf("a purge on a stale replica: %v", err)
	}
	if dirs := c.topicDirs(); !slices.Equal(dirs, []string{"doomed", "late"}) {
		t.Fatalf("left: %v", dirs)
	}
	c.reunite()
	testutil.Eventually(t, settleMax, func() bool {
		_, err := r.Sweep(t.Context())
		return err == nil
	}, "a sweep once the replica is current")
	if dirs := c.topicDirs(); !slices.Equal(dirs, []string{"late"}) {
		t.Errorf("left: %v, want the live topic alone", dirs)
	}
	if got := held(t, b, "late", idLate); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("late holds %v", got)
	}
}

// asking counts the questions put to the leader.
type asking struct {
	store *metastore.Store
	n     atomic.Int64
}

func (a *asking) ConfirmGone(ctx context.Context, name string, id model.Incarnation) (bool, error) {
	defer a.n.Add(1)
	word, err := a.store.ConfirmGone(ctx, name, id)
	return word == metastore.Gone && err == nil, err
}

// owned is placement by the subject's replica.
type owned struct {
	s *metastore.Store
	b *broker.Broker
}

func (o owned) Owner(topic string, partition int) (ingress.Owner, string, bool, error) {
	a, err := o.s.Assignment(topic, partition)
	if err == nil && a.Owner != nodeID(subject) {
		err = model.ErrUnavailable
	}
	return o.b, a.Owner, true, err
}

type nowhere struct{}

func (nowhere) Owner(string, int) (ingress.Owner, string, bool, error) {
	return nil, "", false, model.ErrUnavailable
}

type anything struct{}

func (anything) Check(context.Context, *model.TopicView, []byte) error { return nil }

func (c *trio) ingress(where ingress.Placement, confirm ingress.Confirmer) *ingress.Ingress {
	c.t.Helper()
	in, err := ingress.Open(ingress.Options{
		FS: disk.OS{}, Dir: filepath.ToSlash(filepath.Join(c.dirs[subject], "ingress", "produce")), Node: nodeID(subject), Clock: clock.Real(),
		Logger: slog.New(slog.DiscardHandler), Directory: c.running(subject), Schemas: anything{}, Placement: where, Confirmer: confirm,
	})
	must(c.t, err)
	c.t.Cleanup(func() { _ = in.Close() })
	return in
}

// The audit's find: the dispatcher took a topic's absence from the restored replica for
// its end and dropped records that had a 202. It keeps them until the leader has said that
// the topic is gone, and drops those of the topic that is.
func TestStagedDiscardOnAStaleReplica(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	c.create("doomed", idDoomed, nodeID(subject))
	old := c.saved()
	c.create("late", idLate, nodeID(subject))
	in := c.ingress(nowhere{}, &asking{store: c.running(subject)})
	for i := range 5 {
		for _, topic := range []string{"late", "doomed"} {
			must(t, in.Accept(t.Context(), topic, ingress.Message{Payload: []byte(fmt.Sprint(topic, i)), Partition: 0}))
		}
	}
	must(t, in.Close())
	c.stop(subject)
	c.do(metastore.RemoveTopic{Name: "doomed", ID: idDoomed})
	c.restore(old)
	s := c.alone()
	if _, ok := s.Topic("late"); ok {
		t.Fatal("the replica is not stale: the test proves nothing")
	}
	b := c.open()
	leader := &asking{store: s}
	in = c.ingress(owned{s, b}, leader)
	testutil.Eventually(t, settleMax, func() bool { return leader.n.Load() >= 3 }, "the dispatcher to ask three times")
	if n := in.Backlog(); n != 10 {
		t.Fatalf("%d of 10 accepted records are left on a stale replica", n)
	}
	c.reunite()
	testutil.Eventually(t, settleMax, func() bool { return in.Backlog() == 0 }, "the records to be dispatched or lawfully dropped")
	if got := held(t, b, "late", idLate); !slices.Equal(got, []string{"late0", "late1", "late2", "late3", "late4"}) {
		t.Errorf("late holds %v", got)
	}
	if dirs := c.topicDirs(); slices.Contains(dirs, "doomed") {
		t.Errorf("records of the deleted topic were stored: %v", dirs)
	}
}

// looking counts how often the engine asks whether the replica is current.
type looking struct {
	*metastore.Store
	n atomic.Int64
}

func (l *looking) AppliedCaughtUp() error {
	defer l.n.Add(1)
	return l.Store.AppliedCaughtUp()
}

type here struct{ b *broker.Broker }

func (h here) Owner(string, int) (fanout.Owner, error) { return h.b, nil }

func (c *trio) engine(b *broker.Broker) (*fanout.Engine, *looking) {
	c.t.Helper()
	l := &looking{Store: c.running(subject)}
	e, err := fanout.Open(fanout.Options{
		FS: disk.OS{}, DataDir: filepath.ToSlash(c.dirs[subject]), Node: nodeID(subject), Replica: l, Leader: l, Parents: b, Placement: here{b},
		Clock: clock.Real(), Logger: slog.New(slog.DiscardHandler),
	})
	must(c.t, err)
	c.t.Cleanup(func() { _ = e.Close() })
	return e, l
}

// Kill 2: cursors started from the restored replica carried a dead attach epoch, did not
// match the position on disk, anchored at the parent's end and wrote over it: what the
// child had not got yet was skipped. No cursor begins on a replica that is not current.
func TestStagedCursorsOnAStaleReplica(t *testing.T) {
	t.Parallel()
	const dead, live = "00000000000000ee", "00000000000000ff"
	c := newTrio(t)
	c.create("p", idEarly, nodeID(subject))
	c.create("c", idLate, nodeID(subject))
	c.do(metastore.AttachChild{Parent: "p", Child: "c", Epoch: dead}) // of an older release: no attach point recorded
	old := c.saved()
	c.do(metastore.DetachChild{Parent: "p", Child: "c"})
	c.do(metastore.AttachChild{Parent: "p", Child: "c", Epoch: live})
	b := c.open()
	commit(t, b, "p", idEarly, "before the attach")
	e, _ := c.engine(b)
	file := filepath.Join(c.dirs[subject], "topics", "p", "p00000", "fanout-c.offset")
	testutil.Eventually(t, settleMax, func() bool { return strings.Contains(read(file), live) }, "the cursor to anchor")
	commit(t, b, "p", idEarly, "a", "b")
	testutil.Eventually(t, settleMax, func() bool { return strings.Contains(read(file), `"next_offset":3`) }, "the child to have two records")
	must(t, e.Close())
	commit(t, b, "p", idEarly, "pending 1", "pending 2") // not copied yet
	must(t, b.Close())
	c.stop(subject)
	c.restore(old)
	position := read(file)

	s := c.alone()
	if v, _ := s.Topic("c"); v == nil || v.AttachEpoch != dead {
		t.Fatal("the replica is not stale: the test proves nothing")
	}
	b = c.open()
	_, l := c.engine(b)
	testutil.Eventually(t, settleMax, func() bool { return l.n.Load() >= 3 }, "the reconciler to look three times")
	if now := read(file); now != position {
		t.Fatalf("a stale replica moved the position from %s to %s", position, now)
	}
	c.reunite()
	want := []string{"a", "b", "pending 1", "pending 2"}
	testutil.Eventually(t, settleMax, func() bool {
		if now := read(file); !strings.Contains(now, live) {
			t.Fatalf("the position is now %s", now)
		}
		return strings.Contains(read(file), `"next_offset":5`)
	}, "the child to catch up")
	if got := held(t, b, "c", idLate); !slices.Equal(got, want) {
		t.Errorf("the child holds %v, want %v", got, want)
	}
}

func read(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// A topic deleted and made again while the purge is missed, again and again: the new life
// never serves the old one's records, the old directory is set aside or found, and goes
// within one sweep after the change.
func TestFiftyLivesWithThePurgeMissed(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	s := c.running(subject)
	b := c.open()
	clk := clock.NewFake(time.Unix(1_700_000_000, 0))
	r, err := reclaim.New(reclaim.Options{
		FS: disk.OS{}, DataDir: filepath.ToSlash(c.dirs[subject]), Topics: s, Confirmer: s, Retirer: b, Clock: clk,
	})
	must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	t.Cleanup(s.Subscribe(b.TopicChanged))
	t.Cleanup(s.Subscribe(r.TopicChanged))
	var last model.Incarnation
	for i := range 50 {
		id := model.Incarnation(fmt.Sprintf("%016x", i+1))
		if last != "" {
			c.do(metastore.RemoveTopic{Name: "orders", ID: last})
		}
		c.create("orders", id, nodeID(subject))
		if i%3 != 0 { // else nothing opens what the life before left
			payload := fmt.Sprint("life ", i)
			commit(t, b, "orders", id, payload)
			if got := held(t, b, "orders", id); !slices.Equal(got, []string{payload}) {
				t.Fatalf("life %d serves %v", i, got)
			}
			ds, err := b.Consume(t.Context(), broker.ConsumeRequest{Topic: "orders", Partition: 0, Max: 10})
			must(t, err)
			if len(ds) != 1 || string(ds[0].Payload) != payload {
				t.Fatalf("life %d delivers %d records", i, len(ds))
			}
			must(t, b.Settle(t.Context(), "orders", ds[0].Handle, model.Ack))
			_, err = b.Commit(t.Context(), "orders", 0, []model.Record{{Payload: []byte("old"), Incarnation: "0000000000000000"}})
			if !errors.Is(err, model.ErrIncarnation) {
				t.Fatalf("life %d takes a record of another: %v", i, err)
			}
		}
		if i%5 == 4 {
			testutil.Eventually(t, settleMax, func() bool {
				clk.Advance(time.Minute)
				return !slices.ContainsFunc(c.topicDirs(), func(d string) bool { return d != "orders" }) && r.Bytes() == 0
			}, "what was set aside to go")
		}
		last = id
	}
}
