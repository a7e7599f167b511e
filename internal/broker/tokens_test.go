package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

// teller is the other nodes as the broker tells them of records.
type teller struct {
	mu    sync.Mutex
	told  []string // address/topic, in order
	claim map[string]bool
	err   error
	gate  chan struct{} // announcements wait for it; nil = they do not
}

func (n *teller) NotifyToken(ctx context.Context, addr, topic string) (bool, error) {
	n.mu.Lock()
	n.told = append(n.told, addr+"/"+topic)
	claim, err, gate := n.claim[addr], n.err, n.gate
	n.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return claim, err
}

func (n *teller) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.told)
}

// newTokenRig is a rig whose broker tells a, b and c, which all mean to claim.
func newTokenRig(t *testing.T) (*rig, *teller) {
	n := &teller{claim: map[string]bool{"a": true, "b": true, "c": true}}
	return newRig(t, func(o *Options) { o.Notifier = n }), n
}

func (r *rig) token(node, topic string, ttl time.Duration) {
	r.b.RegisterToken(node, node, topic, ttl)
}

func (r *rig) awaitTold(n *teller, want ...string) {
	r.t.Helper()
	testutil.Eventually(r.t, 10*time.Second, func() bool { return len(n.all()) >= len(want) }, fmt.Sprintf("announcements %v", want))
	if got := n.all(); !slices.Equal(got, want) {
		r.t.Fatalf("announced %v, want %v", got, want)
	}
}

func (r *rig) claim(node, topic string, limit int) []model.Delivery {
	r.t.Helper()
	ds, err := r.b.ConsumeForPeer(context.Background(), ConsumeRequest{Topic: topic, Partition: -1, Max: limit}, Claim{Made: true, Node: node})
	if err != nil {
		r.t.Fatal(err)
	}
	return ds
}

// settled waits until the pump has seen all that happened before: the visit for the second
// kick begins when the one for the first is over.
func (r *rig) settled(topic string) {
	r.t.Helper()
	e := r.b.entry(topic)
	for range 2 {
		r.b.pump.kick(e)
		testutil.Eventually(r.t, 10*time.Second, func() bool { return !e.queued.Load() }, "the pump to be idle")
	}
}

func (r *rig) holds(topic string) int {
	q := &r.b.entry(topic).waiters
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.holds)
}

func (r *rig) awaitHolds(topic string, n int) {
	r.t.Helper()
	testutil.Eventually(r.t, 10*time.Second, func() bool { return r.holds(topic) == n }, fmt.Sprintf("%d holds", n))
}

// TestTokensOneRecordOneNode: a record is announced to one node at a time, in the order in
// which the nodes came, and a token is spent by one announcement.
func TestTokensOneRecordOneNode(t *testing.T) {
	r, n := newTokenRig(t)
	r.create(view("orders", 3))
	for _, node := range []string{"a", "b", "c", "a"} { // renewing keeps the place
		r.token(node, "orders", time.Minute)
	}
	r.commit("orders", 1, "m0")
	r.awaitTold(n, "a/orders")
	r.awaitHolds("orders", 1)
	r.settled("orders")
	if got := n.all(); len(got) != 1 {
		t.Fatalf("one record was announced to %v", got)
	}
	if ds := r.claim("a", "orders", 10); len(ds) != 1 {
		t.Fatalf("claim: %d records", len(ds))
	}
	r.awaitHolds("orders", 0)
	r.settled("orders")
	r.commit("orders", 2, "m1", "m2")
	r.awaitTold(n, "a/orders", "b/orders", "c/orders") // a's token is spent
	r.commit("orders", 0, "m3")
	r.settled("orders")
	if got := n.all(); len(got) != 3 {
		t.Fatalf("announced %v without a token", got)
	}
}

// TestTokensRegisteringFindsABacklog: also one that lies in closed logs, after a restart.
func TestTokensRegisteringFindsABacklog(t *testing.T) {
	r, n := newTokenRig(t)
	r.create(view("orders", 3))
	r.commit("orders", 2, "m0")
	if err := r.b.Close(); err != nil {
		t.Fatal(err)
	}
	r.open(func(o *Options) { o.Notifier = n })
	if open := r.b.openLogs.Load(); open != 0 {
		t.Fatalf("%d logs are open", open)
	}
	r.token("a", "orders", time.Minute)
	r.awaitTold(n, "a/orders")
}

// TestTokensShareTheQueueWithConsumers: tokens and local consumers are served in order of
// arrival, and what was announced is not handed to a consumer that came later.
func TestTokensShareTheQueueWithConsumers(t *testing.T) {
	r, n := newTokenRig(t)
	r.create(view("orders", 1))
	ctx := context.Background()
	wait := ConsumeRequest{Topic: "orders", Partition: -1, Max: 10, Wait: time.Hour}
	first := r.poll(ctx, wait)
	r.awaitParked("orders", 1)
	r.token("a", "orders", time.Minute)
	wait.Max = 1 // a batch would be topped up by a scan, which minds no holds
	second := r.poll(ctx, wait)
	r.awaitParked("orders", 3)
	r.commit("orders", 0, "m0")
	if p := receive(t, first); len(p.ds) != 1 {
		t.Fatalf("first consumer: %+v", p)
	}
	r.settled("orders")
	if got := n.all(); len(got) != 0 {
		t.Fatalf("announced %v before its turn", got)
	}
	r.commit("orders", 0, "m1")
	r.awaitTold(n, "a/orders")
	r.settled("orders")
	select {
	case p := <-second:
		t.Fatalf("the consumer behind the token took what was announced: %+v", p)
	default:
	}
	r.commit("orders", 0, "m2") // beyond the hold: exactly one record
	if p := receive(t, second); len(p.ds) != 1 {
		t.Fatalf("second consumer: %v", payloads(p.ds))
	}
	if ds := r.claim("a", "orders", 10); len(ds) != 1 {
		t.Fatalf("claim: %v", payloads(ds))
	}
}

// TestTokensHoldsEnd: by a pass, by a failed announcement, by the claim, by a claim of a
// release that does not name itself, and after a second; a probe ends none. What is free
// then goes to whoever waits.
func TestTokensHoldsEnd(t *testing.T) {
	for _, tc := range []struct {
		name string
		prep func(*teller)
		end  func(*rig, *teller)
	}{
		{"pass", func(n *teller) { n.claim["a"] = false }, func(*rig, *teller) {}},
		{"failed", func(n *teller) { n.err = errors.New("connection reset") }, func(*rig, *teller) {}},
		{"deadline", nil, func(r *rig, n *teller) {
			r.awaitTold(n, "a/orders")
			testutil.Eventually(r.t, 10*time.Second, func() bool { return r.clk.Timers() > 0 }, "the hold's timer")
			r.clk.Advance(holdTime - 1)
			r.settled("orders")
			if r.holds("orders") != 1 {
				r.t.Fatal("the hold ended early")
			}
			r.clk.Advance(1)
		}},
		{"late answer", func(n *teller) { n.gate = make(chan struct{}) }, func(r *rig, n *teller) {
			r.awaitTold(n, "a/orders")
			testutil.Eventually(r.t, 10*time.Second, func() bool { return r.clk.Timers() > 0 }, "the hold's timer")
			r.clk.Advance(holdTime)
			close(n.gate)
		}},
		{"claim cancelled while queued", nil, func(r *rig, n *teller) {
			r.awaitTold(n, "a/orders")
			gone, leave := context.WithCancel(context.Background())
			leave()
			_, err := r.b.ConsumeForPeer(gone, ConsumeRequest{Topic: "orders", Partition: -1, Max: 1}, Claim{Made: true, Node: "a"})
			wantErr(r.t, err, context.Canceled)
		}},
		{"anonymous claim", nil, func(r *rig, n *teller) {
			r.awaitTold(n, "a/orders")
			gone, leave := context.WithCancel(context.Background())
			leave()
			_, err := r.b.ConsumeForPeer(gone, ConsumeRequest{Topic: "orders", Partition: -1, Max: 1}, Claim{Made: true})
			wantErr(r.t, err, context.Canceled)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, n := newTokenRig(t)
			if tc.prep != nil {
				tc.prep(n)
			}
			r.create(view("orders", 1))
			r.token("a", "orders", time.Minute)
			ch := r.poll(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour})
			r.awaitParked("orders", 2)
			r.commit("orders", 0, "m0")
			tc.end(r, n)
			if p := receive(t, ch); len(p.ds) != 1 {
				t.Fatalf("after the hold: %+v", p)
			}
			r.awaitHolds("orders", 0)
		})
	}
	t.Run("not by a probe or another's claim", func(t *testing.T) {
		r, n := newTokenRig(t)
		r.create(view("orders", 1))
		r.token("a", "orders", time.Minute)
		r.commit("orders", 0, "m0", "m1")
		r.awaitTold(n, "a/orders")
		r.awaitHolds("orders", 1)
		// Probes and direct scans ignore holds.
		if ds, err := r.b.ConsumeForPeer(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 1}, Claim{}); err != nil || len(ds) != 1 {
			t.Fatalf("probe: %v %v", payloads(ds), err)
		}
		r.claim("b", "orders", 1)
		if r.holds("orders") != 1 {
			t.Fatal("the hold of a is gone")
		}
	})
}

// TestTokensLapse: a token is worth nothing after its time, also when it waits behind a
// consumer; one that is renewed in time is.
func TestTokensLapse(t *testing.T) {
	r, n := newTokenRig(t)
	r.create(view("orders", 1))
	r.token("a", "orders", time.Second)
	r.token("b", "orders", time.Second)
	r.token("c", "orders", time.Hour) // cut to a minute
	r.clk.Advance(900 * time.Millisecond)
	r.token("b", "orders", time.Second)
	r.clk.Advance(100 * time.Millisecond)
	r.commit("orders", 0, "m0")
	r.awaitTold(n, "b/orders")
	r.clk.Advance(tokenTTLMax)
	r.commit("orders", 0, "m1")
	r.awaitParked("orders", 0)
	r.settled("orders")
	if got := n.all(); len(got) != 1 {
		t.Fatalf("announced %v after the tokens lapsed", got)
	}
}

// TestTokensDropped: by their node, with the topic, and when the node stops.
func TestTokensDropped(t *testing.T) {
	r, n := newTokenRig(t)
	v := r.create(view("orders", 1))
	r.token("a", "orders", time.Minute)
	r.token("b", "orders", time.Minute)
	r.token("a", "orders", 0)
	r.awaitParked("orders", 1)
	old := r.b.entry("orders")
	again := *v
	again.ID = model.NewIncarnation()
	r.create(&again)
	if old.waiters.parked.Load() != 0 || len(old.waiters.tokens) != 0 {
		t.Fatal("tokens outlive their topic")
	}
	r.commit("orders", 0, "m0")
	r.settled("orders")
	if got := n.all(); len(got) != 0 {
		t.Fatalf("announced %v to tokens of a topic that is gone", got)
	}
	r.token("a", "nope", time.Minute) // no such topic
	r.create(view("theirs", 1, func(v *model.TopicView) { v.Owners[0] = "n2" }))
	r.token("a", "theirs", time.Minute)
	if e := r.b.entry("theirs"); e != nil && e.waiters.parked.Load() != 0 {
		t.Fatal("a token is kept for partitions of another node")
	}
	r.b.ReleaseWaiters()
	r.token("a", "orders", time.Minute)
	if r.b.entry("orders").waiters.parked.Load() != 0 {
		t.Fatal("a token is kept by a node that stops")
	}
}

// TestTokensBounds: nodes per topic, and announcements under way and waiting.
func TestTokensBounds(t *testing.T) {
	r, n := newTokenRig(t)
	n.gate = make(chan struct{})
	r.create(view("orders", 1))
	for i := range tokenNodeMax + 10 {
		r.token(fmt.Sprint("n", i), "orders", time.Minute)
	}
	r.awaitParked("orders", tokenNodeMax)
	if _, err := r.b.Commit(context.Background(), "orders", 0, recs(0, 1000)); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, 10*time.Second, func() bool { return len(n.all()) == announceMax }, "all workers to be busy")
	r.settled("orders")
	if got := len(n.all()); got != announceMax {
		t.Fatalf("%d announcements at once, want %d", got, announceMax)
	}
	r.awaitHolds("orders", 1000)
	nt := r.b.notifier
	for range announceQueueMax {
		nt.announce(r.b.entry("orders"), &token{node: "x", addr: "x", till: 1 << 62})
	}
	if nt.announce(r.b.entry("orders"), &token{node: "x"}) != nil {
		t.Fatalf("more than %d announcements wait", announceQueueMax)
	}
	r.b.Close() // ends what hangs
	if nt.announce(r.b.entry("orders"), &token{node: "x"}) != nil {
		t.Fatal("announced after the end")
	}
}

// elsewhere is a cluster of which a test decides what it has.
type elsewhere struct {
	mu      sync.Mutex
	probed  int
	claimed []string
	parked  int
	left    int
	has     func(owner string) []model.Delivery
	onPark  func()
}

func (e *elsewhere) Probe(context.Context, string, int) []model.Delivery {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.probed++
	if e.has == nil {
		return nil
	}
	return e.has("")
}

func (e *elsewhere) Claim(_ context.Context, _, owner string, _ int) []model.Delivery {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.claimed = append(e.claimed, owner)
	if e.has == nil {
		return nil
	}
	return e.has(owner)
}

func (e *elsewhere) Park(string, time.Time) {
	e.mu.Lock()
	e.parked++
	f := e.onPark
	e.mu.Unlock()
	if f != nil {
		f()
	}
}

func (e *elsewhere) Leave(string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left++
}

func far(s string) []model.Delivery {
	return []model.Delivery{{Message: model.Message{Topic: "orders", Partition: 9, Payload: []byte(s)}, Count: 1}}
}

// TestElsewhereOrder: the node's own records come before any other's, those of a probe
// before parking, and a consumer is in the queue before owners are asked to send word.
func TestElsewhereOrder(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	e := &elsewhere{has: func(string) []model.Delivery { return far("far") }}
	req := ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour, Elsewhere: e}
	ctx := context.Background()
	r.commit("orders", 0, "near")
	ds, err := r.b.Consume(ctx, req)
	if err != nil || len(ds) != 1 || string(ds[0].Payload) != "near" || e.probed != 0 {
		t.Fatalf("%v %v, %d probes", payloads(ds), err, e.probed)
	}
	ds, err = r.b.Consume(ctx, req)
	if err != nil || len(ds) != 1 || string(ds[0].Payload) != "far" || e.probed != 1 || e.parked != 0 {
		t.Fatalf("%v %v, %d probes, %d parked", payloads(ds), err, e.probed, e.parked)
	}
	e.has = func(owner string) []model.Delivery {
		if owner == "n2" {
			return far("announced")
		}
		return nil
	}
	sent := false
	e.onPark = func() { sent = r.b.SendWord("orders", "n2") } // word that comes at once
	ds, err = r.b.Consume(ctx, req)
	if err != nil || len(ds) != 1 || !sent || e.parked != 1 || e.left != 1 {
		t.Fatalf("%v %v, word taken %v, %d parked, %d left", payloads(ds), err, sent, e.parked, e.left)
	}
	if r.b.SendWord("orders", "n2") {
		t.Fatal("word taken with nobody parked")
	}
}

// TestElsewhereClaimLost: a consumer whose claim finds nothing goes back to its place, is
// not counted as gone meanwhile, and misses nothing that came here.
func TestElsewhereClaimLost(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	e := &elsewhere{}
	req := ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour, Elsewhere: e}
	first := r.poll(context.Background(), req)
	r.awaitParked("orders", 1)
	second := r.poll(context.Background(), req)
	r.awaitParked("orders", 2)
	if !r.b.SendWord("orders", "n2") {
		t.Fatal("nobody took the word")
	}
	r.awaitParked("orders", 2)
	if len(e.claimed) != 1 || e.parked != 2 || e.left != 0 || e.probed != 2 {
		t.Fatalf("%+v", e)
	}
	r.commit("orders", 0, "m0")
	if p := receive(t, first); len(p.ds) != 1 {
		t.Fatalf("first in the queue: %+v", p)
	}
	e.mu.Lock()
	e.has = func(string) []model.Delivery { r.commit("orders", 0, "m1"); return nil } // while it is away
	e.mu.Unlock()
	r.b.SendWord("orders", "n2")
	if p := receive(t, second); len(p.ds) != 1 || string(p.ds[0].Payload) != "m1" {
		t.Fatalf("back from a lost claim: %+v", p)
	}
}

// TestElsewhereWordIsPassedOn: by a consumer whose client left, or whose wait is over; and
// a round of all owners that yields goes on to the next consumer.
func TestElsewhereWordIsPassedOn(t *testing.T) {
	r := newRig(t)
	r.create(view("orders", 1))
	e := &elsewhere{has: func(owner string) []model.Delivery {
		if owner == "" {
			return nil
		}
		return far(owner)
	}}
	req := ConsumeRequest{Topic: "orders", Partition: -1, Max: 1, Wait: time.Hour, Elsewhere: e}
	for range 200 {
		ctx, leave := context.WithCancel(context.Background())
		first := r.poll(ctx, req)
		r.awaitParked("orders", 1)
		second := r.poll(context.Background(), req)
		r.awaitParked("orders", 2)
		go leave()
		if !r.b.SendWord("orders", "n2") {
			t.Fatal("nobody took the word")
		}
		p := receive(t, first)
		if len(p.ds) == 0 {
			wantErr(t, p.err, context.Canceled)
			p = receive(t, second)
		} else {
			r.b.SendWord("orders", "n2")
			receive(t, second)
		}
		if len(p.ds) != 1 {
			t.Fatalf("the word was lost: %+v", p)
		}
	}
	e.mu.Lock()
	e.has = nil
	e.mu.Unlock()
	const parked = 5
	got := make(chan polled, parked)
	for range parked {
		go func() {
			ds, err := r.b.Consume(context.Background(), req)
			got <- polled{ds, err}
		}()
	}
	r.awaitParked("orders", parked)
	left := 3
	e.mu.Lock()
	e.has = func(string) []model.Delivery {
		if left--; left < 0 {
			return nil
		}
		return far(fmt.Sprint(left))
	}
	e.mu.Unlock()
	r.b.SendWord("orders", "")
	for range 3 {
		if p := receive(t, got); len(p.ds) != 1 {
			t.Fatalf("%+v", p)
		}
	}
	r.awaitParked("orders", parked-3)
	r.b.ReleaseWaiters()
	for range parked - 3 {
		receive(t, got)
	}
}

// TestElsewhereTopUp: one record of another owner is topped up from here, a batch is not
// (spec/http-api CB-6).
func TestElsewhereTopUp(t *testing.T) {
	for _, n := range []int{1, 2} {
		r := newRig(t)
		r.create(view("orders", 1))
		e := &elsewhere{}
		ch := r.poll(context.Background(), ConsumeRequest{Topic: "orders", Partition: -1, Max: 10, Wait: time.Hour, Elsewhere: e})
		r.awaitParked("orders", 1)
		e.mu.Lock()
		e.has = func(string) []model.Delivery {
			r.commit("orders", 0, "near")
			return slices.Repeat(far("far"), n)
		}
		e.mu.Unlock()
		r.b.SendWord("orders", "n2")
		if p := receive(t, ch); len(p.ds) != 2 || (string(p.ds[1].Payload) == "near") != (n == 1) {
			t.Fatalf("claim of %d: %v %v", n, payloads(p.ds), p.err)
		}
	}
}
