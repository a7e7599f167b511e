package peer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// members admits everybody, or fails with err.
type members struct {
	mu     sync.Mutex
	report MemberReport
	join   JoinRequest
	err    error
	answer *JoinAnswer
}

func (m *members) Register(_ context.Context, r MemberReport) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report = r
	return m.err
}

func (m *members) Join(_ context.Context, j JoinRequest) JoinAnswer {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.join = j
	if m.answer != nil {
		return *m.answer
	}
	return JoinAnswer{Status: 200, Admission: "deferred", Reason: "not yet"}
}

func (m *members) seen() (MemberReport, JoinRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.report, m.join
}

type status NodeStatus

func (s status) NodeStatus(context.Context) NodeStatus { return NodeStatus(s) }

type forgetter func(id, caller string) (bool, error)

func (f forgetter) Forget(_ context.Context, id, caller string) (bool, error) { return f(id, caller) }

type describer []model.PartitionStats

func (d describer) PartitionStats(_ context.Context, topic string, p int) ([]model.PartitionStats, error) {
	if topic == "gone" {
		return nil, model.ErrTopicNotFound
	}
	if p >= 0 {
		return d[p : p+1], nil
	}
	return d, nil
}

// tailer is the tail of one life.
type tailer map[model.Incarnation]int64

func (t tailer) HighWatermark(topic string, id model.Incarnation, p int) (int64, error) {
	high, ok := t[id]
	if !ok {
		return 0, fmt.Errorf("%w: %s/%d", model.ErrTopicChanged, topic, p)
	}
	return high, nil
}

// leader is a Metadata, and whether it leads.
type leader struct {
	leads  bool
	topics map[string]model.Topic
}

func (l *leader) Topic(_ context.Context, name string) (model.Topic, bool, error) {
	if !l.leads {
		return model.Topic{}, false, fmt.Errorf("barrier: %w", model.ErrNotLeader)
	}
	t, ok := l.topics[name]
	return t, ok, nil
}

func (l *leader) Assignment(_ context.Context, topic string, p int) (model.Assignment, error) {
	if !l.leads {
		return model.Assignment{}, model.ErrNotLeader
	}
	if _, ok := l.topics[topic]; !ok {
		return model.Assignment{}, model.ErrTopicNotFound
	}
	return model.Assignment{Topic: topic, Partition: p, Owner: "narad-0", Target: "narad-2"}, nil
}

func (l *leader) AppliedIndex() (uint64, error) {
	if !l.leads {
		return 0, model.ErrNotLeader
	}
	return 1 << 40, nil
}

func hintTo(id, addr string) Hint { return func() (string, string) { return id, addr } }

// Reads at the leader; on any other node 421 with the leader it knows.
func TestMetadata(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	orders := model.Topic{
		Name: "orders", ID: life1, Partitions: 3, RetentionMS: 1, VisibilityTimeoutMS: 2, MaxInFlight: 3, MaxAckedAhead: 4, CreatedAt: 5,
		Owner: "bob", Role: model.RoleChild, Children: []string{"c"}, Parent: "p", AttachEpoch: "e", FanoutDelayMS: 6, AttachOffsets: []int64{7, 8, 9},
	}
	l := &leader{leads: true, topics: map[string]model.Topic{"orders": orders}}
	ServeMetadata(n, model.LevelNewest, l, hintTo("narad-9", "10.0.0.9:7942"))
	if got, ok, err := c.Topic(t.Context(), n.Addr(), "orders"); err != nil || !ok || !reflect.DeepEqual(got, orders) {
		t.Errorf("topic: %+v, %v, %v", got, ok, err)
	}
	if _, ok, err := c.Topic(t.Context(), n.Addr(), "nope"); ok || err != nil {
		t.Errorf("no such topic: %v, %v", ok, err)
	}
	if a, err := c.Assignment(t.Context(), n.Addr(), "orders", 2); err != nil || a != (model.Assignment{Topic: "orders", Partition: 2, Owner: "narad-0", Target: "narad-2"}) {
		t.Errorf("assignment: %+v, %v", a, err)
	}
	if _, err := c.Assignment(t.Context(), n.Addr(), "nope", 2); !errors.Is(err, model.ErrTopicNotFound) {
		t.Errorf("assignment of no topic: %v", err)
	}
	if index, err := c.AppliedIndex(t.Context(), n.Addr()); err != nil || index != 1<<40 {
		t.Errorf("applied index: %d, %v", index, err)
	}
	ServeMetadata(n, model.LevelNewest, &leader{}, hintTo("narad-9", "10.0.0.9:7942"))
	_, ok, err := c.Topic(t.Context(), n.Addr(), "orders")
	_, assignmentErr := c.Assignment(t.Context(), n.Addr(), "orders", 2)
	_, indexErr := c.AppliedIndex(t.Context(), n.Addr())
	for _, err := range []error{err, assignmentErr, indexErr} {
		var refused *StatusError
		if !errors.Is(err, model.ErrNotLeader) || !errors.As(err, &refused) || refused.Status != 421 ||
			refused.LeaderID != "narad-9" || refused.LeaderAddr != "10.0.0.9:7942" ||
			string(refused.Body) != `{"error":"not the metastore leader","code":"not_leader","leader_id":"narad-9","leader_addr":"10.0.0.9:7942"}`+"\n" {
			t.Errorf("not the leader: exists %v, %v, %+v", ok, err, refused)
		}
	}
	ServeMetadata(n, model.LevelNewest, &leader{}, hintTo("", ""))
	_, _, err = c.Topic(t.Context(), n.Addr(), "orders")
	var refused *StatusError
	if !errors.As(err, &refused) || string(refused.Body) != `{"error":"not the metastore leader","code":"not_leader","leader_id":"","leader_addr":""}`+"\n" {
		t.Errorf("no leader known: %v", err)
	}
}

// Only a 404 of the leader says that a topic is gone: nothing else an answer may be does.
func TestOnlyNotFoundIsGone(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	for _, res := range []noderpc.Response{
		{Status: 421, Body: []byte(`{"error":"not the metastore leader"}`)}, {Status: 503}, {Status: 500}, {Status: 400}, {Status: 410}, {Status: 204},
		{Status: 200}, {Status: 200, Body: []byte("{}")}, {Status: 200, Body: []byte("null")}, {Status: 200, Body: []byte(`{"name":"other"}`)},
		{Status: 200, Body: make([]byte, jsonBytesMax+1)},
	} {
		n.Handle(noderpc.OpGetTopic, func(context.Context, []byte) noderpc.Response { return res }, nil)
		if _, exists, err := c.Topic(t.Context(), n.Addr(), "t"); exists || err == nil {
			t.Errorf("%d with %d bytes: exists %v, %v", res.Status, len(res.Body), exists, err)
		}
	}
	n.Handle(noderpc.OpGetAssignment, func(context.Context, []byte) noderpc.Response {
		return noderpc.Response{Status: 200, Body: []byte(`{"owner":"narad-0"}`)}
	}, nil)
	if _, err := c.Assignment(t.Context(), n.Addr(), "t", 0); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("an assignment nobody vouches for: %v", err)
	}
}

func TestJoinAnswers(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	m := &members{}
	ServeMembers(n, model.LevelNewest, m, hintTo("narad-9", "10.0.0.9:7942"))
	for _, x := range []struct{ served, want JoinAnswer }{
		{JoinAnswer{Status: 200, Admission: "staged"}, JoinAnswer{Status: 200, Admission: "staged", Body: `{"status":"staged"}` + "\n"}},
		{JoinAnswer{Status: 421, LeaderID: "x", LeaderAddr: "y:1"}, JoinAnswer{Status: 421, Code: "not_leader", Reason: "not the metastore leader", LeaderID: "x", LeaderAddr: "y:1",
			Body: `{"error":"not the metastore leader","code":"not_leader","leader_id":"x","leader_addr":"y:1"}` + "\n"}},
		{JoinAnswer{Status: 421}, JoinAnswer{Status: 421, Code: "not_leader", Reason: "not the metastore leader", LeaderID: "narad-9", LeaderAddr: "10.0.0.9:7942",
			Body: `{"error":"not the metastore leader","code":"not_leader","leader_id":"narad-9","leader_addr":"10.0.0.9:7942"}` + "\n"}},
		{JoinAnswer{Status: 412}, JoinAnswer{Status: 412, Reason: "this node has no raft configuration", Body: `{"error":"this node has no raft configuration"}` + "\n"}},
		{JoinAnswer{Status: 409, Code: "older_release", Reason: "too old"}, JoinAnswer{Status: 409, Code: "older_release", Reason: "too old",
			Body: `{"error":"too old","code":"older_release"}` + "\n"}},
		{JoinAnswer{Status: 409}, JoinAnswer{Status: 409, Reason: "member was decommissioned", Body: `{"error":"member was decommissioned"}` + "\n"}},
		{JoinAnswer{Status: 503}, JoinAnswer{Status: 503, Reason: "control plane temporarily unavailable", Body: `{"error":"control plane temporarily unavailable"}` + "\n"}},
	} {
		m.mu.Lock()
		m.answer = &x.served
		m.mu.Unlock()
		got, err := c.Join(t.Context(), n.Addr(), JoinRequest{ID: "n", RaftAddr: "a:1"})
		if err != nil || got != x.want {
			t.Errorf("%+v came out as %+v, %v", x.served, got, err)
		}
	}
	// What makes no sense is a status, too; what is lost on the way is not.
	if got, err := c.Join(t.Context(), n.Addr(), JoinRequest{ID: "n", RaftAddr: "a"}); err != nil || got.Status != 400 {
		t.Errorf("a bad address: %+v, %v", got, err)
	}
	c.wire.hold = func(context.Context, noderpc.Op) error { return ErrUnreached }
	if got, err := c.Join(t.Context(), n.Addr(), JoinRequest{ID: "n", RaftAddr: "a:1"}); !errors.Is(err, ErrUnreached) {
		t.Errorf("nobody there: %+v, %v", got, err)
	}
}

func TestRegister(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	m := &members{}
	ServeMembers(n, model.LevelNewest, m, hintTo("narad-9", "10.0.0.9:7942"))
	r := MemberReport{ID: "n", APIAddr: "a:1", RaftAddr: "a:2"}
	for _, err := range []error{nil, model.ErrMemberRemoved, model.ErrNotLeader, model.ErrUnavailable} {
		m.mu.Lock()
		m.err = err
		m.mu.Unlock()
		got := c.Register(t.Context(), n.Addr(), r)
		var refused *StatusError
		if !errors.Is(got, err) || errors.As(got, &refused) && refused.Status == 421 && refused.LeaderAddr != "10.0.0.9:7942" {
			t.Errorf("%v came out as %v", err, got)
		}
	}
}

// changes answers metadata writes.
type changes func(op noderpc.Op, ch Change) Answer

func (f changes) Change(_ context.Context, op noderpc.Op, ch Change) Answer { return f(op, ch) }

// A change arrives as it was sent, and its answer goes back as it was given.
func TestChange(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	type seen struct {
		op noderpc.Op
		ch Change
	}
	arrived := make(chan seen, 1)
	want := Answer{Status: 201, ContentType: "application/json", Body: []byte(`{"name":"t"}`), Header: []noderpc.Header{{Name: "X-Narad-Warning", Value: "w"}}}
	ServeChanges(n, model.LevelNewest, changes(func(op noderpc.Op, ch Change) Answer {
		ch.JSON = append([]byte(nil), ch.JSON...)
		arrived <- seen{op, ch}
		return want
	}), nil)
	doc := []byte(`{"partitions":3}`)
	for _, x := range []seen{
		{noderpc.OpCreateTopic, Change{Caller: "bob", JSON: doc}},
		{noderpc.OpAlterTopic, Change{Topic: "t", Caller: "bob", JSON: doc}},
		{noderpc.OpDeleteTopic, Change{Topic: "t", Caller: "bob"}},
		{noderpc.OpCreateUser, Change{Caller: "bob", JSON: doc}},
		{noderpc.OpUpdateUser, Change{Topic: "eve", Caller: "bob", JSON: doc}},
		{noderpc.OpDeleteUser, Change{Topic: "eve", Caller: "bob"}},
		{noderpc.OpAttachChild, Change{Topic: "p", Caller: "", JSON: doc}},
		{noderpc.OpDetachChild, Change{Topic: "p", Child: "c", Caller: "bob"}},
	} {
		got, err := c.Change(t.Context(), n.Addr(), x.op, x.ch)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", x.op, got, err)
		}
		if s := <-arrived; !reflect.DeepEqual(s, x) {
			t.Errorf("%+v arrived as %+v", x, s)
		}
	}
	for _, x := range []seen{
		{noderpc.OpCreateTopic, Change{Topic: "t"}}, {noderpc.OpAlterTopic, Change{Topic: "t", Child: "c"}}, {noderpc.OpDeleteTopic, Change{Topic: "t", JSON: doc}},
		{noderpc.OpConsume, Change{Topic: "t"}}, {noderpc.OpAlterTopic, Change{Topic: "t", JSON: make([]byte, changeBytesMax+1)}},
	} {
		if _, err := c.Change(t.Context(), n.Addr(), x.op, x.ch); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%s of what it does not carry: %v", x.op, err)
		}
	}
}

// One hint of a 421 is followed, no second one, and only one that can be dialled.
func TestChangeFollowsOneHint(t *testing.T) {
	follower, second, lead := newNode(t), newNode(t), newNode(t)
	c := newCaller(t, model.LevelNewest)
	refusing := changes(func(noderpc.Op, Change) Answer { return Answer{Status: 421} })
	ServeChanges(follower, model.LevelNewest, refusing, hintTo("narad-2", lead.Addr()))
	ServeChanges(second, model.LevelNewest, refusing, hintTo("narad-1", follower.Addr()))
	ServeChanges(lead, model.LevelNewest, changes(func(noderpc.Op, Change) Answer { return Answer{Status: 204} }), nil)
	change := func(addr string) Answer {
		t.Helper()
		a, err := c.Change(t.Context(), addr, noderpc.OpDeleteTopic, Change{Topic: "t"})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := change(follower.Addr()); a.Status != 204 {
		t.Errorf("by one hint: %+v", a)
	}
	sent(t, c, noderpc.OpDeleteTopic, 2)
	if a := change(second.Addr()); a.Status != 421 || refusalOf(noderpc.Response{Status: 421, Body: a.Body}).LeaderAddr != lead.Addr() {
		t.Errorf("by two hints: %+v", a)
	}
	sent(t, c, noderpc.OpDeleteTopic, 2)
	for _, bad := range []string{"", "nohost", ":1", "a:0", follower.Addr()} {
		ServeChanges(follower, model.LevelNewest, refusing, hintTo("narad-2", bad))
		if a := change(follower.Addr()); a.Status != 421 {
			t.Errorf("hint %q: %+v", bad, a)
		}
		sent(t, c, noderpc.OpDeleteTopic, 1)
	}
	// An answer that names a leader itself is passed on.
	own := (&StatusError{Status: 421, Code: codeNotLeader, Text: "x", LeaderID: "narad-7", LeaderAddr: lead.Addr()}).response()
	ServeChanges(follower, model.LevelNewest, changes(func(noderpc.Op, Change) Answer { return Answer{Status: 421, Body: own.Body} }), hintTo("", ""))
	if a := change(follower.Addr()); a.Status != 204 {
		t.Errorf("by the answer's own hint: %+v", a)
	}
}

func TestForget(t *testing.T) {
	n, lead := newNode(t), newNode(t)
	c := newCaller(t, model.LevelNewest)
	ServeForget(n, model.LevelNewest, forgetter(func(string, string) (bool, error) { return false, model.ErrNotLeader }), hintTo("narad-2", lead.Addr()))
	ServeForget(lead, model.LevelNewest, forgetter(func(id, caller string) (bool, error) {
		if id == "known" {
			return false, fmt.Errorf("%w: it has a member record", model.ErrConflict)
		}
		return id == "voter" && caller == "bob", nil
	}), nil)
	for id, want := range map[string]bool{"voter": true, "other": false} {
		if voter, err := c.Forget(t.Context(), n.Addr(), id, "bob"); err != nil || voter != want {
			t.Errorf("%s: %v, %v", id, voter, err)
		}
	}
	if _, err := c.Forget(t.Context(), n.Addr(), "known", "bob"); !errors.Is(err, model.ErrConflict) {
		t.Errorf("one with a record: %v", err)
	}
}

func TestNodeStatus(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	at := time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)
	want := NodeStatus{
		Node: "narad-0", Draining: true, ProduceInFlight: 2, DispatchBacklog: 3,
		Quarantine: Quarantine{Copies: 101, Bytes: 5, List: make([]QuarantineCopy, QuarantineListMax+1)},
		Moves:      []Move{{Topic: "t", Partition: 1, Source: "a", Target: "b", StartedAt: at, Phase: "copying", Attempts: 1, CopiedBytes: 9}},
	}
	ServeStatus(n, model.LevelNewest, status(want))
	got, err := c.NodeStatus(t.Context(), n.Addr())
	want.Quarantine.List = want.Quarantine.List[:QuarantineListMax]
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// purger remembers what was purged.
type purger func(topic string, id model.Incarnation) error

func (f purger) Purge(_ context.Context, topic string, id model.Incarnation) error {
	return f(topic, id)
}

func TestPurge(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	purged := make(chan string, 1)
	ServePurge(n, model.LevelNewest, purger(func(topic string, id model.Incarnation) error {
		purged <- topic + " " + string(id)
		if topic == "shown" {
			return fmt.Errorf("%w: %q", model.ErrPurgeDeferred, topic)
		}
		return nil
	}))
	for _, x := range []struct {
		topic string
		id    model.Incarnation
		err   error
	}{{"t", life1, nil}, {"t", "", nil}, {"shown", life2, model.ErrPurgeDeferred}} {
		if err := c.Purge(t.Context(), n.Addr(), x.topic, x.id); !errors.Is(err, x.err) {
			t.Errorf("%+v: %v", x, err)
		}
		if got := <-purged; got != x.topic+" "+string(x.id) {
			t.Errorf("purged %s", got)
		}
		sent(t, c, noderpc.OpPurgeTopic, 1)
	}
}

func TestStats(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	want := []model.PartitionStats{{Index: 0, Segments: 1, OldestOffset: 2, NextOffset: 3, HighWatermark: 4, SizeBytes: 5, OldestSegmentAt: 6, OwnerNode: "narad-0", Status: "ok"}, {Index: 1}}
	ServeStats(n, model.LevelNewest, describer(want), tailer{})
	for p, want := range map[int][]model.PartitionStats{AnyPartition: want, 0: want[:1], 1: want[1:]} {
		if got, err := c.Stats(t.Context(), n.Addr(), "t", p); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("partition %d: %+v, %v", p, got, err)
		}
	}
	if _, err := c.Stats(t.Context(), n.Addr(), "gone", AnyPartition); !errors.Is(err, model.ErrTopicNotFound) {
		t.Errorf("no topic: %v", err)
	}
	if _, err := c.HighWatermark(t.Context(), n.Addr(), "t", "", 0); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("the tail of no life: %v", err)
	}
}

// cursors are the cursors of one parent.
type cursors []CursorLag

func (cs cursors) Cursors(_ context.Context, _, child string) (out []CursorLag, err error) {
	for _, c := range cs {
		if child == "" || c.Child == child {
			out = append(out, c)
		}
	}
	return out, nil
}

func TestCursors(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	all := cursors{{Child: "a", Epoch: "e", Partition: 1, Next: 2, HighWatermark: 3, OldestPendingMS: 4}, {Child: "b"}}
	ServeCursors(n, model.LevelNewest, all)
	for child, want := range map[string][]CursorLag{"": all, "a": all[:1], "none": {}} {
		if got, err := c.Cursors(t.Context(), n.Addr(), "p", child); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("child %q: %+v, %v", child, got, err)
		}
	}
}

// tokens are a Tokens that remembers.
type tokens struct {
	mu    sync.Mutex
	node  string
	back  string
	all   []Token
	claim bool
	owner string
}

func (k *tokens) RegisterTokens(node, callback string, ts []Token) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.node, k.back, k.all = node, callback, append(k.all, ts...)
}

func (k *tokens) Notify(_, owner string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.owner = owner
	return k.claim
}

// Tokens go out in frames of 1024 at most; a TTL is whole milliseconds, rounded up.
func TestTokens(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	k := &tokens{}
	ServeTokens(n, model.LevelNewest, k)
	all := make([]Token, 2*tokensMax+1)
	for i := range all {
		all[i] = Token{Topic: fmt.Sprintf("t%d", i), TTL: time.Duration(i) * time.Millisecond, Drop: i%2 == 0}
	}
	if err := c.RegisterTokens(t.Context(), n.Addr(), "10.0.0.1:7942", all); err != nil {
		t.Fatal(err)
	}
	sent(t, c, noderpc.OpTokenRegister, 3)
	k.mu.Lock()
	if k.node != "narad-1" || k.back != "10.0.0.1:7942" || !reflect.DeepEqual(k.all, all) {
		t.Errorf("%s at %s left %d tokens", k.node, k.back, len(k.all))
	}
	k.all = nil
	k.mu.Unlock()
	if err := c.RegisterTokens(t.Context(), n.Addr(), "10.0.0.1:7942", []Token{{Topic: "t", TTL: time.Nanosecond}}); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	if k.all[0].TTL != time.Millisecond {
		t.Errorf("a TTL of 1 ns arrives as %s", k.all[0].TTL)
	}
	k.mu.Unlock()
	for _, bad := range []string{"", "host", "host:0"} {
		if err := c.RegisterTokens(t.Context(), n.Addr(), bad, all[:1]); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("callback %q: %v", bad, err)
		}
	}
	for _, want := range []bool{true, false} {
		k.mu.Lock()
		k.claim = want
		k.mu.Unlock()
		if claim, err := c.NotifyToken(t.Context(), n.Addr(), "t"); err != nil || claim != want {
			t.Errorf("notify: %v, %v", claim, err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.owner != "narad-1" {
		t.Errorf("notified by %q", k.owner)
	}
}
