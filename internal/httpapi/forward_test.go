package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/topics"
	"github.com/narad-mq/narad/internal/users"
)

// hop is the way from a front to the leader: what the test wants to break.
type hop struct {
	to *API

	mu      sync.Mutex // guards the rest
	leads   bool       // this node does, after all
	err     error      // instead of the call
	lose    bool       // the leader is reached, its answer is not
	answer  *peer.Answer
	sent    []peer.Change
	settled int
}

func (w *hop) LeaderIsHere() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leads
}

func (w *hop) Change(ctx context.Context, op noderpc.Op, ch peer.Change) (peer.Answer, error) {
	w.mu.Lock()
	err, lose, answer := w.err, w.lose, w.answer
	w.sent = append(w.sent, ch)
	w.mu.Unlock()
	switch {
	case err != nil:
		return peer.Answer{}, err
	case answer != nil:
		return *answer, nil
	}
	a := w.to.Change(ctx, op, ch)
	if lose {
		return peer.Answer{}, errors.New("quic: 10.0.0.3 closed the connection")
	}
	return a, nil
}

func (w *hop) Settle(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settled++
	return nil
}

func (w *hop) set(f func(w *hop)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w)
}

func (w *hop) settles() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.settled
}

// follower fails the test when a change is made on the node that only fronts.
type follower struct {
	Topics
	Links
	t *testing.T
}

func (f follower) CheckCreate(r topics.CreateRequest) error { return f.Topics.CheckCreate(r) }

func (f follower) Create(context.Context, topics.CreateRequest) (*model.TopicView, error) {
	f.t.Error("a follower created a topic itself")
	return nil, model.ErrUnavailable
}

func (f follower) Alter(context.Context, string, topics.AlterRequest) (*model.TopicView, error) {
	f.t.Error("a follower altered a topic itself")
	return nil, model.ErrUnavailable
}

func (f follower) Delete(context.Context, string, string) error {
	f.t.Error("a follower deleted a topic itself")
	return model.ErrUnavailable
}

func (f follower) Attach(context.Context, topics.AttachRequest) (*model.TopicView, error) {
	f.t.Error("a follower attached a child itself")
	return nil, model.ErrUnavailable
}

func (f follower) Detach(context.Context, string, string, string) error {
	f.t.Error("a follower detached a child itself")
	return model.ErrUnavailable
}

// newFront starts the API of a node that does not lead, over the replica of one that does.
func newFront(t *testing.T, leader *node, secured bool) (*server, *hop) {
	t.Helper()
	w := &hop{to: leader.api}
	front := serveWith(t, nil, secured)
	be := leader.be
	be.Forward = w
	be.Users = users.NewManager(leader.store, be.Auth.(users.Passwords), NewUserLeader(nil, w))
	be.Authority = nil // a follower decides nothing
	f := follower{Topics: be.Topics, Links: be.Links, t: t}
	be.Topics, be.Links = f, f
	front.api.Begin(be)
	return front, w
}

func (s *server) auditLines(event string) (lines []string) {
	for line := range strings.Lines(s.log.String()) {
		if strings.Contains(line, `"event":"`+event+`"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

// RT-3, RT-10: every change through a node that does not lead answers what the leader
// answers, and one audit line is written, where the client called.
func TestRT10_AnswersAreTheLeaders(t *testing.T) {
	leader := newNode(t, nil)
	front, w := newFront(t, leader, false)
	for i, tc := range []struct {
		method, path, body string
		status             int
		text, event        string
	}{
		{"POST", "/v1/topics", `{"name":"p","partitions":4}`, 201, `"name":"p"`, "topic.create"},
		{"POST", "/v1/topics", `{"name":"p"}`, 409, `{"error":"topic already exists","code":"topic_exists"}`, "topic.create"},
		{"POST", "/v1/topics", `{"name":"P"}`, 409, `topic_name_taken`, "topic.create"},
		{"POST", "/v1/topics", `{"name":"c","parent":"p","fanout_delay_ms":1000}`, 201, `"role":"child"`, "topic.create"},
		{"POST", "/v1/topics", `{"name":"d","parent":"nowhere"}`, 404, `{"error":"topic not found","code":"topic_not_found"}`, "topic.create"},
		{"POST", "/v1/topics", `{"name":"e","schema":{"type":"nonsense"}}`, 400, `invalid argument: schema`, "topic.create"},
		{"PATCH", "/v1/topics/p", `{"retention_ms":7200000,"partitions":6}`, 200, `"partitions":6`, "topic.alter"},
		{"PATCH", "/v1/topics/p", `{"partitions":2}`, 400, `invalid argument: partitions`, "topic.alter"},
		{"PATCH", "/v1/topics/p", `{"schema":true,"schema_base_version":7}`, 409, `schema version conflict: schema_base_version 7 does not match the current version 0 of \"p\"`, "topic.schema"},
		{"PATCH", "/v1/topics/nowhere", `{"partitions":9}`, 404, `topic_not_found`, "topic.alter"},
		{"POST", "/v1/topics", `{"name":"lone"}`, 201, `"name":"lone"`, "topic.create"},
		{"POST", "/v1/topics/p/children", `{"child":"lone"}`, 200, `"name":"p"`, "topic.attach"},
		{"POST", "/v1/topics/p/children", `{"child":"lone"}`, 409, `"code":"conflict"`, "topic.attach"},
		{"DELETE", "/v1/topics/p/children/lone", "", 204, "", "topic.detach"},
		{"DELETE", "/v1/topics/p/children/lone", "", 404, `{"error":"no such fan-out link","code":"not_linked"}`, "topic.detach"},
		{"DELETE", "/v1/topics/lone", "", 204, "", "topic.delete"},
		{"DELETE", "/v1/topics/lone", "", 404, `topic_not_found`, "topic.delete"},
	} {
		settled, lines := w.settles(), len(front.auditLines(tc.event))
		got := front.do(t, tc.method, tc.path, tc.body)
		if got.status != tc.status || !strings.Contains(got.body, tc.text) || tc.status == 204 && got.body != "" {
			t.Errorf("%d: %s %s %s: %d %s, want %d %s", i, tc.method, tc.path, tc.body, got.status, got.body, tc.status, tc.text)
		}
		if got.body != "" && got.header.Get("Content-Type") != typeJSON {
			t.Errorf("%d: Content-Type %q", i, got.header.Get("Content-Type"))
		}
		if (w.settles() > settled) != (tc.status < 300) {
			t.Errorf("%d: status %d, waited for the replica: %v", i, got.status, w.settles() > settled)
		}
		if n := len(front.auditLines(tc.event)) - lines; n != 1 {
			t.Errorf("%d: %d audit lines of %s, want 1", i, n, tc.event)
		}
	}
	if log := leader.log.String(); strings.Contains(log, `"audit"`) {
		t.Errorf("the leader wrote an audit line of a change it was handed: %s", log)
	}
}

// What a request gets wrong by itself is refused without asking anybody, and a change
// that does not reach the leader is told apart from one whose answer is lost.
func TestRT6_NoLeaderNoAnswer(t *testing.T) {
	leader := newNode(t, nil)
	leader.create(t, "t")
	front, w := newFront(t, leader, false)
	const (
		ecp1 = `{"error":"control plane temporarily unavailable","code":"control_plane_unavailable"}` + "\n"
		ecp2 = `{"error":"control plane temporarily unavailable: the change may still be applied, read it back before retrying: the metastore leader did not answer","code":"outcome_unknown"}` + "\n"
	)
	for _, tc := range []struct {
		name          string
		break_        func(w *hop)
		body, outcome string
	}{
		{"TC-15 no leader known", func(w *hop) { w.err = fmt.Errorf("%w: no raft leader known", model.ErrUnavailable) }, ecp1, "failed"},
		{"leader not reached", func(w *hop) { w.err = fmt.Errorf("dial 10.0.0.3: %w", peer.ErrUnreached) }, ecp1, "failed"},
		{"leader moved twice", func(w *hop) { w.answer = &peer.Answer{Status: 421, Body: []byte(`{"leader_addr":"10.0.0.3:1"}`)} }, ecp1, "failed"},
		{"answer lost", func(w *hop) { w.lose = true }, ecp2, "unknown"},
		{"deadline", func(w *hop) { w.err = context.DeadlineExceeded }, ecp2, "unknown"},
	} {
		for _, r := range []struct{ method, path, body, event string }{
			{"POST", "/v1/topics", `{"name":"x"}`, "topic.create"},
			{"PATCH", "/v1/topics/t", `{"retention_ms":7200000}`, "topic.alter"},
			{"DELETE", "/v1/topics/t", "", "topic.delete"},
			{"POST", "/v1/topics/t/children", `{"child":"x"}`, "topic.attach"},
			{"DELETE", "/v1/topics/t/children/x", "", "topic.detach"},
			{"POST", "/v1/users", `{"username":"u","password":"p"}`, "user.create"},
			{"PUT", "/v1/users/u/grants", `{"grants":[]}`, "user.grants"},
			{"PUT", "/v1/users/u/password", `{"new_password":"p"}`, "user.password"},
			{"DELETE", "/v1/users/u", "", "user.delete"},
		} {
			t.Run(tc.name+" "+r.event, func(t *testing.T) {
				w.set(func(w *hop) { w.err, w.lose, w.answer = nil, false, nil; tc.break_(w) })
				got := front.do(t, r.method, r.path, r.body)
				if got.status != 503 || got.body != tc.body {
					t.Errorf("%d %s, want 503 %s", got.status, got.body, tc.body)
				}
				lines := front.auditLines(r.event)
				if last := lines[len(lines)-1]; !strings.Contains(last, `"status":503,"outcome":"`+tc.outcome+`"`) {
					t.Errorf("audit line %s, want outcome %s", last, tc.outcome)
				}
			})
		}
	}
	w.set(func(w *hop) { w.sent = nil })
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/v1/topics", `{"name":"x","nonsense":1}`}, {"POST", "/v1/topics", `{"name":"a b"}`}, {"PATCH", "/v1/topics/t", `{}`},
		{"DELETE", "/v1/topics/t?force=maybe", ""}, {"POST", "/v1/topics/t/children", `{}`}, {"POST", "/v1/users", `{"username":"u"}`},
	} {
		front.do(t, r.method, r.path, r.body).expect(t, 400, "invalid")
	}
	if len(w.sent) > 0 {
		t.Errorf("the leader was asked about a request that is wrong by itself: %q", w.sent)
	}
}

// AZ-20 to AZ-22: a caller is judged twice, the second time as the leader knows it.
func TestAZ20_TheLeaderJudgesToo(t *testing.T) {
	leader := newSecuredNode(t, nil)
	front, w := newFront(t, leader, true)
	front.do(t, "POST", "/v1/topics", `{"name":"alice-1"}`, as("alice")).expect(t, 201, `"owner":"alice"`)
	front.do(t, "POST", "/v1/topics", `{"name":"other"}`, as("alice")).expect(t, 403, "create not allowed for this topic name")
	front.do(t, "DELETE", "/v1/topics/alice-1", "", as("bob")).expect(t, 403, "only the topic owner or an admin may modify this topic")
	if len(w.sent) != 1 {
		t.Errorf("%d changes were forwarded, want 1: this node refuses what its replica refuses", len(w.sent))
	}

	// The front's replica lags: it lacks the topic, and the leader decides.
	be := *front.api.serving.Load()
	be.Directory = lacking{be.Directory}
	front.api.Begin(be)
	const changed = `{"error":"only the owner of topic \"alice-1\" or an admin may modify it","code":"forbidden"}`
	front.do(t, "DELETE", "/v1/topics/alice-1", "", as("bob")).expect(t, 403, changed)
	front.do(t, "PATCH", "/v1/topics/alice-1", `{"partitions":9}`, as("bob")).expect(t, 403, changed)
	front.do(t, "DELETE", "/v1/topics/nowhere", "", as("bob")).expect(t, 404, "topic_not_found")
	front.do(t, "POST", "/v1/topics", `{"name":"alice-2","parent":"alice-1"}`, as("alice")).expect(t, 201, `"parent":"alice-1"`)
	lines := front.auditLines("topic.delete")
	if last := lines[len(lines)-2]; !strings.Contains(last, `"actor":"bob","target":"alice-1","status":403,"outcome":"denied"`) {
		t.Errorf("audit line %s", last)
	}

	for _, ch := range []struct {
		op noderpc.Op
		ch peer.Change
	}{
		{noderpc.OpCreateTopic, peer.Change{JSON: []byte(`{"name":"g"}`)}},
		{noderpc.OpAlterTopic, peer.Change{Topic: "alice-1", JSON: []byte(`{"partitions":9}`)}},
		{noderpc.OpDeleteTopic, peer.Change{Topic: "alice-1"}},
		{noderpc.OpAttachChild, peer.Change{Topic: "alice-1", JSON: []byte(`{"child":"alice-2"}`)}},
		{noderpc.OpDetachChild, peer.Change{Topic: "alice-1", Child: "alice-2"}},
		{noderpc.OpCreateUser, peer.Change{JSON: []byte(`{"username":"u","password_hash":"x"}`)}},
		{noderpc.OpUpdateUser, peer.Change{JSON: []byte(`{"username":"bob","grants":[]}`)}},
		{noderpc.OpDeleteUser, peer.Change{JSON: []byte(`{"username":"bob"}`)}},
	} {
		ch.ch.Caller = "ghost"
		got := leader.api.Change(t.Context(), ch.op, ch.ch)
		if want := `{"error":"caller unknown to the leader","code":"forbidden"}` + "\n"; got.Status != 403 || string(got.Body) != want {
			t.Errorf("AZ-22 %s: %d %s, want 403 %s", ch.op, got.Status, got.Body, want)
		}
	}
}

// lacking is a replica that holds no topic yet.
type lacking struct{ Directory }

func (lacking) Topic(string) (*model.TopicView, bool) { return nil, false }

// Passwords are hashed where the client arrived and never travel; what the leader
// refuses comes back as it is.
func TestUsersThroughAFollower(t *testing.T) {
	leader := newSecuredNode(t, nil)
	front, w := newFront(t, leader, true)
	front.do(t, "POST", "/v1/users", `{"username":"zoe","password":"zoe-pw","grants":[{"action":"produce","patterns":["a"]}]}`, as("ops")).
		expect(t, 201, `{"username":"zoe","grants":[{"action":"produce","patterns":["a"]}],"created_at_ms":`)
	front.do(t, "POST", "/v1/users", `{"username":"zoe","password":"x"}`, as("ops")).expect(t, 409, `{"error":"user already exists","code":"user_exists"}`)
	front.do(t, "PUT", "/v1/users/zoe/grants", `{"grants":[{"action":"consume","patterns":["b"]}]}`, as("ops")).expect(t, 200, `"action":"consume"`)
	front.do(t, "PUT", "/v1/users/zoe/grants", `{"grants":[{"action":"admin"}]}`, as("ops")).expect(t, 403, "cannot grant permissions you do not hold")
	front.do(t, "PUT", "/v1/users/nobody/grants", `{"grants":[]}`, as("ops")).expect(t, 404, "user_not_found")
	front.do(t, "PUT", "/v1/users/zoe/password", `{"new_password":"new-pw","current_password":"zoe-pw"}`, as("zoe")).expect(t, 204, "")
	leader.do(t, "GET", "/v1/topics", "", basic("zoe", "new-pw")).expect(t, 200, "topics")
	front.do(t, "DELETE", "/v1/users/admin", "", as("ops")).expect(t, 403, "cannot delete the root admin")
	front.do(t, "DELETE", "/v1/users/zoe", "", as("ops")).expect(t, 204, "")
	front.do(t, "DELETE", "/v1/users/zoe", "", as("ops")).expect(t, 404, "user_not_found")
	for _, ch := range w.sent {
		if text := string(ch.JSON); strings.Contains(text, "-pw") || !json.Valid(ch.JSON) {
			t.Errorf("travelled: %s", text)
		}
		if ch.Caller != "ops" && ch.Caller != "zoe" {
			t.Errorf("caller %q", ch.Caller)
		}
	}
	if len(w.sent) != 9 {
		t.Errorf("%d changes travelled, want 9", len(w.sent))
	}
}

// TA-15 through a follower: the first group stays applied. The follower does not know
// that, and says so in its audit lines.
func TestTA15_ForwardedGroups(t *testing.T) {
	leader := newNode(t, nil)
	leader.create(t, "t")
	front, w := newFront(t, leader, false)
	front.do(t, "PATCH", "/v1/topics/t", `{"retention_ms":7200000,"schema":{"type":"nonsense"}}`).expect(t, 400, "invalid argument: schema")
	if w.settles() != 1 {
		t.Errorf("answered before this node shows what is applied: waited %d times", w.settles())
	}
	leader.do(t, "GET", "/v1/topics/t", "").expect(t, 200, `"retention_ms":7200000`)
	if lines := front.auditLines("topic.alter"); len(lines) != 1 || !strings.Contains(lines[0], `"status":400,"outcome":"unknown","fields":"retention"`) {
		t.Errorf("settings: %v", lines)
	}
	if lines := front.auditLines("topic.schema"); len(lines) != 1 || !strings.Contains(lines[0], `"status":400,"outcome":"rejected"`) {
		t.Errorf("schema: %v", lines)
	}
	front.do(t, "PATCH", "/v1/topics/t", `{"retention_ms":8200000,"max_in_flight_per_partition":7,"schema":true}`).expect(t, 200, `"max_in_flight_per_partition":7`)
	if lines := front.auditLines("topic.alter"); len(lines) != 2 || !strings.Contains(lines[1], `"status":200,"outcome":"ok","fields":"retention,caps"`) {
		t.Errorf("settings: %v", lines)
	}
}

// A PATCH that reached nobody applied nothing, and its audit lines know it.
func TestForwardedGroupsThatWentNowhere(t *testing.T) {
	leader := newNode(t, nil)
	leader.create(t, "t")
	front, w := newFront(t, leader, false)
	w.set(func(w *hop) { w.err = peer.ErrUnreached })
	front.do(t, "PATCH", "/v1/topics/t", `{"retention_ms":7200000,"partitions":9,"schema":true}`).expect(t, 503, codeControlPlane)
	for event, fields := range map[string]string{"topic.alter": `,"fields":"retention,partitions"`, "topic.schema": ""} {
		if lines := front.auditLines(event); len(lines) != 1 || !strings.Contains(lines[0], `"status":503,"outcome":"failed"`+fields) {
			t.Errorf("%s: %v", event, lines)
		}
	}
}

// A node that leads decides itself, and so does one without peers.
func TestTheLeaderDoesNotForward(t *testing.T) {
	leader := newNode(t, nil)
	w := &hop{leads: true}
	be := leader.be
	be.Forward = w
	be.Users = users.NewManager(leader.store, be.Auth.(users.Passwords), NewUserLeader(be.Authority, w))
	leader.api.Begin(be)
	leader.create(t, "t")
	leader.do(t, "PATCH", "/v1/topics/t", `{"partitions":4}`).expect(t, 200, `"partitions":4`)
	leader.do(t, "POST", "/v1/users", `{"username":"u","password":"p"}`).expect(t, 201, `"username":"u"`)
	leader.do(t, "PUT", "/v1/users/u/grants", `{"grants":[]}`).expect(t, 200, `"username":"u"`)
	leader.do(t, "DELETE", "/v1/users/u", "").expect(t, 204, "")
	if got := leader.api.Change(t.Context(), noderpc.OpDeleteTopic, peer.Change{Topic: "t"}); got.Status != 204 {
		t.Errorf("handed to the leader: %d %s", got.Status, got.Body)
	}
	if len(w.sent) > 0 || w.settles() > 0 {
		t.Errorf("%d changes were forwarded", len(w.sent))
	}
}

// A change that was handed to a node is never handed on, and a leader that stopped
// leading half-way through an alter does not pass for one that did nothing.
func TestNeverForwardedTwice(t *testing.T) {
	leader := newNode(t, nil)
	leader.create(t, "t")
	front, w := newFront(t, leader, false)
	alter := peer.Change{Topic: "t", JSON: []byte(`{"retention_ms":7200000,"partitions":9}`)}
	got := front.api.Change(t.Context(), noderpc.OpAlterTopic, alter)
	if got.Status != 421 || len(w.sent) > 0 {
		t.Errorf("a follower answered %d and sent %d changes on, want 421 and none", got.Status, len(w.sent))
	}
	if got := front.api.Change(t.Context(), noderpc.OpConsume, peer.Change{}); got.Status != 421 {
		t.Errorf("no change of metadata: %d", got.Status)
	}
	if got := leader.api.Change(t.Context(), noderpc.OpConsume, peer.Change{}); got.Status != 400 {
		t.Errorf("no change of metadata, on the leader: %d", got.Status)
	}

	be := leader.be
	steps := &stepping{Topics: be.Topics}
	be.Topics = steps
	leader.api.Begin(be)
	if got := leader.api.Change(t.Context(), noderpc.OpAlterTopic, alter); got.Status != 421 {
		t.Errorf("deposed before the first group: %d %s, want 421", got.Status, got.Body)
	}
	steps.groups = 1
	if got := leader.api.Change(t.Context(), noderpc.OpAlterTopic, alter); got.Status != 503 || !strings.Contains(string(got.Body), codeControlPlane) {
		t.Errorf("deposed after the first group: %d %s, want 503", got.Status, got.Body)
	}

	if got := serve(t, nil).api.Change(t.Context(), noderpc.OpDeleteTopic, peer.Change{Topic: "t"}); got.Status != 503 || !strings.Contains(string(got.Body), "not ready") {
		t.Errorf("before Begin: %d %s, want 503 not ready", got.Status, got.Body)
	}
}

// stepping applies some groups of an alter, then finds that it no longer leads.
type stepping struct {
	Topics
	groups int
}

func (s *stepping) Alter(ctx context.Context, name string, r topics.AlterRequest) (*model.TopicView, error) {
	if s.groups == 0 {
		return nil, fmt.Errorf("alter: %w", model.ErrNotLeader)
	}
	s.groups--
	return s.Topics.Alter(ctx, name, r)
}

// The headers of the leader's answer reach the client, and what is about the leader's own
// connection does not.
func TestForwardedHeaders(t *testing.T) {
	leader := newNode(t, nil)
	front, w := newFront(t, leader, false)
	w.set(func(w *hop) {
		w.answer = &peer.Answer{Status: 503, ContentType: typeJSON, Body: []byte("{\"error\":\"x\",\"code\":\"y\",\"more\":1}\n"),
			Header: []noderpc.Header{{Name: "Retry-After", Value: "7"}}}
	})
	got := front.do(t, "POST", "/v1/topics", `{"name":"t"}`)
	if got.status != 503 || got.body != "{\"error\":\"x\",\"code\":\"y\",\"more\":1}\n" || got.header.Get("Retry-After") != "7" || got.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
	w.set(func(w *hop) { w.answer = nil })
	leader.api.Stop()
	if got := front.do(t, "POST", "/v1/topics", `{"name":"t"}`); got.status != 201 || got.header.Get("Connection") != "" {
		t.Errorf("%d %v", got.status, got.header)
	}
}
