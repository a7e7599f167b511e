package router

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/narad-mq/narad/internal/broker"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a directory of one topic whose view a test replaces, and a data plane
// that notes what reaches it.
type world struct {
	view atomic.Pointer[model.TopicView]
	errs map[int]error // of Describe, by partition

	version atomic.Uint64
	behind  bool // the replica has not caught up

	consumes []broker.ConsumeRequest
	settles  []model.Handle
	reads    int
	rejected []string
	released int
}

func (w *world) Topic(name string) (*model.TopicView, bool) {
	v := w.view.Load()
	return v, v != nil && v.Name == name
}

func (w *world) Consume(_ context.Context, req broker.ConsumeRequest) ([]model.Delivery, error) {
	w.consumes = append(w.consumes, req)
	return []model.Delivery{{Count: 1}}, nil
}

func (w *world) ConsumeForPeer(_ context.Context, req broker.ConsumeRequest, _ broker.Claim) ([]model.Delivery, error) {
	return w.Consume(context.Background(), req)
}

func (w *world) CountConsume(string, time.Duration, int, time.Duration, error) {}

func (w *world) RegisterToken(string, string, string, time.Duration) {}

func (w *world) SendWord(string, string) bool { return false }

func (w *world) Members() []model.Member { return nil }

func (w *world) Version(metastore.Domain) uint64 { return w.version.Load() }

func (w *world) CaughtUp() bool { return !w.behind }

func (w *world) Read(context.Context, string, int, int64) (model.Message, bool, error) {
	w.reads++
	return model.Message{}, true, nil
}

func (w *world) Settle(_ context.Context, _ string, h model.Handle, _ model.SettleOp) error {
	if h.Partition >= w.view.Load().Partitions || slices.Contains(w.settles, h) {
		return model.ErrNoLease
	}
	w.settles = append(w.settles, h)
	return nil
}

func (w *world) Release(string, model.Handle) { w.released++ }

func (w *world) CountRejected(reason string) { w.rejected = append(w.rejected, reason) }

func (w *world) Describe(_ *model.TopicView, p int) (model.PartitionStats, error) {
	return model.PartitionStats{NextOffset: int64(10 * p)}, w.errs[p]
}

// own installs a view of topic t with these owners, or deletes it.
func (w *world) own(owners ...string) {
	defer w.version.Add(1)
	if len(owners) == 0 {
		w.view.Store(nil)
		return
	}
	w.view.Store(&model.TopicView{Topic: model.Topic{Name: "t", Partitions: len(owners)}, Owners: owners})
}

func newRouter(owners ...string) (*Router, *world, *clock.Fake, *strings.Builder) {
	w := &world{errs: map[int]error{}}
	if owners != nil {
		w.own(owners...)
	}
	clk := clock.NewFake(time.Unix(1000, 0))
	var logged strings.Builder
	log, err := telemetry.NewLogger(&logged, "info", "json")
	if err != nil {
		panic(err)
	}
	return New(Options{Node: "me", Directory: w, Local: w, Stats: w, Clock: clk, Logger: log}), w, clk, &logged
}

// TestConsumeRouting: what reaches the local broker, and what is refused.
func TestConsumeRouting(t *testing.T) {
	for _, tc := range []struct {
		name   string
		owners []string
		topic  string
		part   int
		want   error
		local  bool
	}{
		{"any, all mine", []string{"me", "me", "me"}, "t", -1, nil, true},
		{"any, one mine", []string{"you", "", "me"}, "t", -1, nil, true},
		{"pinned, mine", []string{"you", "me", ""}, "t", 1, nil, true},
		{"pinned, another's (C-15)", []string{"you", "me", ""}, "t", 0, model.ErrNotOwner, false},
		{"pinned, unassigned, no wait", []string{"you", "me", ""}, "t", 2, nil, false},
		{"any, nobody's, no wait", []string{"", ""}, "t", -1, nil, false},
		{"any, another's, no wait", []string{"you", "you"}, "t", -1, nil, false},
		{"out of range", []string{"me", "me", "me"}, "t", 3, model.ErrInvalid, false},
		{"below range", []string{"me", "me", "me"}, "t", -2, model.ErrInvalid, false},
		{"C-9", []string{"me"}, "u", -1, model.ErrTopicNotFound, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, w, _, _ := newRouter(tc.owners...)
			got, err := r.Consume(t.Context(), broker.ConsumeRequest{Topic: tc.topic, Partition: tc.part, Max: 1})
			if !errors.Is(err, tc.want) || (len(got) == 1) != tc.local || (len(w.consumes) == 1) != tc.local {
				t.Fatalf("%v, %v, %d local", got, err, len(w.consumes))
			}
		})
	}
}

// TestC19_Hold: a consume of a topic nobody owns is held for its whole wait; a look at the
// placement every 50 ms, one for all that wait, has it served with what is left once an
// owner appears.
func TestC19_Hold(t *testing.T) {
	type result struct {
		got  []model.Delivery
		err  error
		took time.Duration
	}
	for name, f := range map[string]func(t *testing.T, r *Router, w *world, start func(part int) chan result, leave func()){
		"whole wait": func(t *testing.T, _ *Router, w *world, start func(int) chan result, _ func()) {
			if res := <-start(-1); res.err != nil || res.got != nil || len(w.consumes) != 0 || res.took != time.Second {
				t.Fatalf("%+v", res)
			}
		},
		"owner appears": func(t *testing.T, _ *Router, w *world, start func(int) chan result, _ func()) {
			out := start(1)
			pause(3*routePoll + 10*time.Millisecond)
			w.own("", "me")
			if res := <-out; res.err != nil || len(res.got) != 1 || w.consumes[0].Wait != time.Second-4*routePoll {
				t.Fatalf("%+v, local wait %v", res, w.consumes)
			}
		},
		"C-20 deleted": func(t *testing.T, _ *Router, w *world, start func(int) chan result, _ func()) {
			out := start(-1)
			pause(time.Millisecond)
			w.own()
			if res := <-out; !errors.Is(res.err, model.ErrTopicNotFound) || res.took != routePoll {
				t.Fatalf("%+v", res)
			}
		},
		"moved to another node": func(t *testing.T, _ *Router, w *world, start func(int) chan result, _ func()) {
			out := start(0)
			pause(time.Millisecond)
			w.own("you")
			if res := <-out; !errors.Is(res.err, model.ErrNotOwner) || res.took != routePoll {
				t.Fatalf("%+v", res)
			}
		},
		"client leaves": func(t *testing.T, _ *Router, _ *world, start func(int) chan result, leave func()) {
			out := start(-1)
			leave()
			if res := <-out; !errors.Is(res.err, context.Canceled) || res.took != 0 {
				t.Fatalf("%+v", res)
			}
		},
		"stop releases": func(t *testing.T, r *Router, _ *world, start func(int) chan result, _ func()) {
			out := start(-1)
			r.ReleaseWaiters()
			r.ReleaseWaiters()
			if res := <-out; res.err != nil || res.got != nil || res.took != 0 {
				t.Fatalf("%+v", res)
			}
			if res := <-start(-1); res.err != nil || res.got != nil || res.took != 0 {
				t.Fatalf("after the release: %+v", res)
			}
		},
		"one look for all": func(t *testing.T, r *Router, _ *world, start func(int) chan result, _ func()) {
			var made atomic.Int64
			r.held.clock = counting{r.Clock, &made}
			outs := make([]chan result, 100)
			for i := range outs {
				outs[i] = start(-1)
			}
			for _, out := range outs {
				<-out
			}
			pause(2 * routePoll)
			r.held.mu.Lock()
			defer r.held.mu.Unlock()
			if r.held.looking || r.held.n != 0 || made.Load() != 1 {
				t.Fatalf("%+v, %d timers", r.held, made.Load())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w, _, _ := newRouter("", "")
				r.Clock, r.held.clock = clock.Real(), clock.Real()
				defer r.Close()
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				f(t, r, w, func(part int) chan result {
					out, began := make(chan result, 1), time.Now()
					go func() {
						got, err := r.Consume(ctx, broker.ConsumeRequest{Topic: "t", Partition: part, Max: 1, Wait: time.Second})
						out <- result{got, err, time.Since(began)}
					}()
					synctest.Wait()
					return out
				}, leave)
			})
		})
	}
}

// TestRead: replay goes to the owner of an existing partition only.
func TestRead(t *testing.T) {
	r, w, _, _ := newRouter("me", "you", "")
	for p, want := range map[int]error{-1: model.ErrInvalid, 0: nil, 1: model.ErrNotOwner, 2: model.ErrNotOwner, 3: model.ErrInvalid} {
		if _, ok, err := r.Read(t.Context(), "t", p, 0); !errors.Is(err, want) || ok != (want == nil) {
			t.Errorf("partition %d: %v, %v", p, ok, err)
		}
	}
	if _, _, err := r.Read(t.Context(), "u", 0, 0); !errors.Is(err, model.ErrTopicNotFound) {
		t.Errorf("unknown topic: %v", err)
	}
	if w.reads != 1 {
		t.Errorf("%d reads reached the broker", w.reads)
	}
}

// TestSettle: and AB-7's order.
func TestSettle(t *testing.T) {
	r, w, _, _ := newRouter("me", "you", "")
	h := func(p int) model.Handle { return model.Handle{Partition: p, Offset: 1, Nonce: 1} }
	for p, want := range map[int]error{0: nil, 1: model.ErrNotOwner, 2: model.ErrNotOwner, 3: model.ErrNoLease} {
		if err := r.Settle(t.Context(), "t", h(p), model.Ack); !errors.Is(err, want) {
			t.Errorf("partition %d: %v, want %v", p, err, want)
		}
	}
	w.settles = nil
	errs, err := r.SettleMany(t.Context(), "t", []model.Handle{h(1), h(0), h(0), h(7)}, model.Ack)
	if err != nil || len(errs) != 4 {
		t.Fatalf("%v %v", errs, err)
	}
	for i, want := range []error{model.ErrNotOwner, nil, model.ErrNoLease, model.ErrNoLease} {
		if !errors.Is(errs[i], want) {
			t.Errorf("handle %d: %v, want %v", i, errs[i], want)
		}
	}
	if _, err := r.SettleMany(t.Context(), "u", nil, model.Ack); !errors.Is(err, model.ErrTopicNotFound) {
		t.Errorf("unknown topic: %v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if errs, err := r.SettleMany(gone, "t", []model.Handle{{Nonce: 5}}, model.Ack); err != nil || !errors.Is(errs[0], context.Canceled) {
		t.Errorf("client gone: %v %v", errs, err)
	}
	r.Release("t", h(0))
	r.CountRejected(broker.RejectBadHandle)
	if w.released != 1 || len(w.rejected) != 1 {
		t.Errorf("%d released, rejected %v", w.released, w.rejected)
	}
}

// TestDescribe: TG-1, TG-2, TG-3 and TG-8.
func TestDescribe(t *testing.T) {
	r, w, _, logged := newRouter("me", "", "you", "me")
	w.errs[3] = errors.New("input/output error")
	v := *w.view.Load()
	v.Owners = append(v.Owners, "me", "me") // TG-8: rows past the count
	w.view.Store(&v)
	d, err := r.Describe(t.Context(), "t", -1)
	if err != nil || !d.Partial || len(d.Stats) != 4 {
		t.Fatalf("%+v %v", d, err)
	}
	want := []model.PartitionStats{
		{Index: 0, OwnerNode: "me", Status: "ok"},
		{Index: 1, Status: "owner_unavailable", OwnerLiveness: "unassigned"},
		{Index: 2, OwnerNode: "you", Status: "owner_unavailable", OwnerLiveness: "unknown"},
		{Index: 3, OwnerNode: "me", Status: "owner_unavailable", OwnerLiveness: "unknown"},
	}
	if !slices.Equal(d.Stats, want) {
		t.Fatalf("%+v\nwant %+v", d.Stats, want)
	}
	if !strings.Contains(logged.String(), "input/output error") {
		t.Fatalf("the failure is not logged: %s", logged)
	}
	one, err := r.Describe(t.Context(), "t", 0)
	if err != nil || one.Partial || len(one.Stats) != 1 || one.Stats[0] != want[0] {
		t.Fatalf("%+v %v", one, err)
	}
	for _, p := range []int{-2, 4} {
		if _, err := r.Describe(t.Context(), "t", p); !errors.Is(err, model.ErrInvalid) || !strings.HasSuffix(err.Error(), "invalid argument: partition out of range") {
			t.Errorf("partition %d: %v", p, err)
		}
	}
	if _, err := r.Describe(t.Context(), "u", -1); !errors.Is(err, model.ErrTopicNotFound) {
		t.Errorf("unknown topic: %v", err)
	}
}
