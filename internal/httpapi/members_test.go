package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/peer"
)

// roster is a cluster with everything a listing tells apart.
type roster struct {
	members []model.Member
	servers []metastore.Server
	topics  []*model.TopicView
}

func (r *roster) Members() []model.Member     { return r.members }
func (r *roster) Servers() []metastore.Server { return r.servers }
func (r *roster) Leader() (id, addr string)   { return "n2", "h2:7943" }

func (r *roster) OwnedPartitions(member string) (n int) {
	for _, v := range r.topics {
		for _, o := range v.Owners {
			if o == member {
				n++
			}
		}
	}
	return n
}

func (r *roster) Topic(string) (*model.TopicView, bool) { return nil, false }

// ListTopics answers one topic at a time, so that a listing has to page.
func (r *roster) ListTopics(after string, _ int) ([]*model.TopicView, bool) {
	for i, v := range r.topics {
		if v.Name > after {
			return []*model.TopicView{v}, i < len(r.topics)-1
		}
	}
	return nil, false
}

// nodes answers NodeStatus by address, and Forget.
type nodes struct {
	status map[string]func(ctx context.Context) (peer.NodeStatus, error)
	forget func(id, caller string) (bool, error)
}

func (n *nodes) NodeStatus(ctx context.Context, addr string) (peer.NodeStatus, error) {
	return n.status[addr](ctx)
}

func (n *nodes) Forget(_ context.Context, id, caller string) (bool, error) {
	return n.forget(id, caller)
}

func newRoster() *roster {
	topic := func(name string, owners, targets []string) *model.TopicView {
		return &model.TopicView{Topic: model.Topic{Name: name, Partitions: 3}, Owners: owners, Targets: targets}
	}
	now := time.Now().UnixMilli()
	return &roster{
		members: []model.Member{
			{ID: "n3", Addr: "h3:7942", Status: model.MemberDead, HeartbeatAt: now - 90_000},
			{ID: "n1", Addr: "h1:7942", Status: model.MemberAlive, HeartbeatAt: now + 60_000}, // its clock is ahead
			{ID: "n2", Addr: "h2:7942", Status: model.MemberAlive, Draining: true, HeartbeatAt: now},
		},
		servers: []metastore.Server{{ID: "n1", Voter: true}, {ID: "n2", Voter: true}, {ID: "n3"}, {ID: "stray", Voter: true}},
		topics: []*model.TopicView{
			topic("a", []string{"n1", "n2", "n3"}, nil),
			topic("b", []string{"n2", "n3", "n1"}, []string{"n1", "n1", ""}),
			topic("c", []string{"n1", "n1", "n1"}, []string{"", "n3", "gone"}),
			topic("d", []string{"n1", "n1", "n1"}, []string{"n2", "", ""}),
		},
	}
}

func serveRoster(t *testing.T, n *nodes) *server {
	t.Helper()
	r := newRoster()
	s := serve(t, nil)
	be := (&fake{}).backends()
	be.Directory, be.Members = r, r
	if n != nil {
		be.Nodes = n
	}
	s.api.Begin(be)
	return s
}

// Section 12.1 of spec/http-api without detail: every member record, by id, and nothing
// that is no member.
func TestListMembers(t *testing.T) {
	s := serveRoster(t, nil)
	got := s.do(t, "GET", "/v1/cluster/members", "")
	got.expect(t, 200, "members")
	var list struct{ Members []memberView }
	if err := json.Unmarshal([]byte(got.body), &list); err != nil || len(list.Members) != 3 {
		t.Fatalf("%v: %s", err, got.body)
	}
	for i, want := range []memberView{
		{ID: "n1", Addr: "h1:7942", Status: "alive", OwnedPartitions: 8, OutboundMoves: 3, Voter: true},
		{ID: "n2", Addr: "h2:7942", Status: "alive", Draining: true, OwnedPartitions: 2, OutboundMoves: 1, Voter: true, Leader: true},
		{ID: "n3", Addr: "h3:7942", Status: "dead", OwnedPartitions: 2, OutboundMoves: 1},
	} {
		m := list.Members[i]
		if age := m.HeartbeatAge; age < 0 || m.ID == "n1" && age != 0 || m.ID == "n3" && (age < 90 || age > 120) {
			t.Errorf("%s: heartbeat_age_seconds %v", m.ID, age)
		}
		if m.HeartbeatAge = 0; m != want {
			t.Errorf("got %+v, want %+v", m, want)
		}
	}
	if strings.Contains(got.body, "status_error") || strings.Contains(got.body, "node_status") {
		t.Errorf("detail that was not asked for: %s", got.body)
	}
	s.do(t, "GET", "/v1/cluster/members?detail=yes", "").expect(t, 400, "invalid argument: detail")
	s.do(t, "GET", "/v1/cluster/members?detail=true", "").expect(t, 200, `"status_error":"this node has no way to ask others"`)
}

// With detail all members are asked at once, and one that hangs costs 2 s in all.
func TestListMembersDetail(t *testing.T) {
	hang := func(ctx context.Context) (peer.NodeStatus, error) {
		<-ctx.Done()
		return peer.NodeStatus{}, fmt.Errorf("h3: %w", ctx.Err())
	}
	s := serveRoster(t, &nodes{status: map[string]func(context.Context) (peer.NodeStatus, error){
		"h1:7942": func(context.Context) (peer.NodeStatus, error) {
			return peer.NodeStatus{Node: "n1", DispatchBacklog: 7, Moves: []peer.Move{}}, nil
		},
		"h2:7942": func(context.Context) (peer.NodeStatus, error) {
			return peer.NodeStatus{}, &peer.StatusError{Status: 400, Text: peer.ErrUnsupported.Error()}
		},
		"h3:7942": hang,
	}})
	start := time.Now()
	got := s.do(t, "GET", "/v1/cluster/members?detail=true", "")
	got.expect(t, 200, `"node_status":{"node":"n1","draining":false,"produce_in_flight":0,"dispatch_backlog":7,`)
	for _, want := range []string{`"status_error":"the member runs a release that reports no status"`, `"status_error":"no answer within 2s"`} {
		if !strings.Contains(got.body, want) {
			t.Errorf("%s lacks %s", got.body, want)
		}
	}
	if took := time.Since(start); took < statusWait || took > statusWait+3*time.Second {
		t.Errorf("took %s, want about %s", took, statusWait)
	}
}

// What another node tells at a member's address is not told of the member.
func TestListMembersDetailOfAnother(t *testing.T) {
	other := func(context.Context) (peer.NodeStatus, error) {
		return peer.NodeStatus{Node: "n1", Moves: []peer.Move{}}, nil
	}
	s := serveRoster(t, &nodes{status: map[string]func(context.Context) (peer.NodeStatus, error){
		"h1:7942": other, "h2:7942": other, "h3:7942": other,
	}})
	got := s.do(t, "GET", "/v1/cluster/members?detail=true", "")
	got.expect(t, 200, `"node_status":{"node":"n1"`)
	const want = `"status_error":"another member answers at its address"`
	if strings.Count(got.body, `"node_status"`) != 1 || strings.Count(got.body, want) != 2 {
		t.Errorf("%s, want one status and twice %s", got.body, want)
	}
}

// Section 12.2: every partition with a target, by topic and partition, and what stops it.
func TestListMoves(t *testing.T) {
	got := serveRoster(t, nil).do(t, "GET", "/v1/cluster/moves", "")
	const want = `{"moves":[` +
		`{"topic":"b","partition":0,"from":"n2","to":"n1","from_status":"draining","to_status":"alive"},` +
		`{"topic":"b","partition":1,"from":"n3","to":"n1","from_status":"dead","to_status":"alive","blocked":"source_dead"},` +
		`{"topic":"c","partition":1,"from":"n1","to":"n3","from_status":"alive","to_status":"dead","blocked":"target_dead"},` +
		`{"topic":"c","partition":2,"from":"n1","to":"gone","from_status":"alive","to_status":"not_a_member","blocked":"target_not_member"},` +
		`{"topic":"d","partition":0,"from":"n1","to":"n2","from_status":"alive","to_status":"draining"}` +
		"]}\n"
	if got.status != 200 || got.body != want {
		t.Errorf("%d %s\nwant %s", got.status, got.body, want)
	}
	n := newNode(t, nil)
	n.create(t, "t")
	n.do(t, "GET", "/v1/cluster/moves", "").expect(t, 200, `{"moves":[]}`)
	n.do(t, "GET", "/v1/cluster/moves?detail=1", "").expect(t, 400, "invalid argument: detail")
	n.do(t, "GET", "/v1/cluster/members", "").expect(t, 200, `{"members":[{"id":"n1","addr":"`)
}

// AZ-11: every cluster route, reads included, is for admins, whatever else is wrong.
func TestAZ11_ClusterRoutes(t *testing.T) {
	n := newSecuredNode(t, nil)
	for _, r := range []struct{ method, path string }{
		{"GET", "/v1/cluster/members?detail=x"}, {"GET", "/v1/cluster/moves?detail=x"}, {"POST", "/v1/cluster/members/n9/forget"},
	} {
		n.do(t, r.method, r.path, "").expect(t, 401, "authentication required")
		n.do(t, r.method, r.path, "", as("alice")).expect(t, 403, "admin privileges required")
	}
	n.do(t, "GET", "/v1/cluster/members", "", as("ops")).expect(t, 200, `"leader":true`)
	n.do(t, "POST", "/v1/cluster/members/n9/forget", "", as("ops"), "-"+clientHeader).expect(t, 415, "state-changing")
	if log := n.log.String(); strings.Contains(log, "cluster.forget") {
		t.Errorf("an audit line of a request that was refused at the door: %s", log)
	}
}

// F-1 to F-9 as the node the client called answers them; who decides is the leader
// (internal/membership).
func TestForget(t *testing.T) {
	refusedBy := func(status int, code, text string) error {
		body := fmt.Appendf(nil, "{\"error\":%q,\"code\":%q}\n", text, code)
		return &peer.StatusError{Status: status, Code: code, Text: text, ContentType: typeJSON, Body: body}
	}
	for _, tc := range []struct {
		name    string
		err     error
		status  int
		text    string
		outcome string
	}{
		{"F-1", nil, 200, "{\"id\":\"n 9\",\"voter\":true}\n", "ok"},
		{"F-2 here", fmt.Errorf("%w: the leader itself", model.ErrInvalid), 400, "invalid argument: the leader itself", "rejected"},
		{"F-3 here", fmt.Errorf("%w: no raft server", model.ErrMemberNotFound), 404, "member_not_found", "rejected"},
		{"F-4 elsewhere", refusedBy(409, "conflict", "conflict: it has a member record"), 409, "{\"error\":\"conflict: it has a member record\",\"code\":\"conflict\"}\n", "rejected"},
		{"F-8", &peer.StatusError{Status: 501, Code: "not_implemented", Text: "upgrade it first"}, 501, `{"error":"upgrade it first","code":"not_implemented"}`, "failed"},
		{"F-9 no leader", fmt.Errorf("%w: no raft leader known", model.ErrUnavailable), 503, codeControlPlane, "failed"},
		{"F-9 not reached", peer.ErrUnreached, 503, codeControlPlane, "failed"},
		{"F-9 no answer", errors.New("quic: 10.0.0.3 closed"), 503, "the metastore leader did not answer\",\"code\":\"outcome_unknown\"", "unknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serveRoster(t, nil)
			be := *s.api.serving.Load()
			if !strings.HasSuffix(tc.name, " here") {
				be.Forward = &hop{}
			}
			be.Nodes = &nodes{forget: func(id, caller string) (bool, error) {
				if id != "n 9" || caller != "" {
					t.Errorf("forget %q for %q", id, caller)
				}
				return true, tc.err
			}}
			s.api.Begin(be)
			s.do(t, "POST", "/v1/cluster/members/n%209/forget", "").expect(t, tc.status, tc.text)
			lines := s.auditLines("cluster.forget")
			if len(lines) != 1 || !strings.Contains(lines[0], fmt.Sprintf(`"target":"n 9","status":%d,"outcome":%q`, tc.status, tc.outcome)) {
				t.Errorf("audit: %v, want outcome %s", lines, tc.outcome)
			}
		})
	}
	serveRoster(t, nil).do(t, "POST", "/v1/cluster/members/x/forget", "").expect(t, 503, codeControlPlane)
}

// Section 16: what clients read when the owner of a partition cannot do its part, alone
// and in a batch.
func TestOwnerTexts(t *testing.T) {
	for _, tc := range []struct {
		id         string
		err        error
		status     int
		text, code string
		retryAfter string
	}{
		{"E-OWN1", model.ErrOwnerDown, 503, "partition owner is down; retry later", "owner_down", "1"},
		{"E-OWN2", model.ErrAckNotDelivered, 503, "the ack did not reach the partition owner and was not applied; retry", "ack_not_delivered", "1"},
		{"E-502A", model.ErrAckUnanswered, 502, "the partition owner did not answer; the ack may have been applied; retry", "ack_unanswered", ""},
		{"C-14", model.ErrOwnerUnreachable, 502, "the partition owner did not answer; retry", "owner_unreachable", ""},
	} {
		t.Run(tc.id, func(t *testing.T) {
			s := serveFake(t, &fake{err: fmt.Errorf("n3 at 10.0.0.3: %w", tc.err)}, nil)
			for _, got := range []answer{
				s.do(t, "GET", "/v1/topics/t/consume?partition=1", ""),
				s.do(t, "GET", "/v1/topics/t/consume?partition=1&offset=0", ""),
				s.do(t, "POST", "/v1/topics/t/ack?receipt_handle=1:2:3", ""),
			} {
				if got.status != tc.status || got.body != tc.text+"\n" || got.header.Get("Content-Type") != typeText ||
					got.header.Get("X-Content-Type-Options") != "nosniff" || got.header.Get("Retry-After") != tc.retryAfter {
					t.Errorf("%d %v %q", got.status, got.header, got.body)
				}
			}
			want := fmt.Sprintf(`{"results":[{"status":%d,"error":%q,"code":%q}]}`+"\n", tc.status, tc.text, tc.code)
			if got := s.do(t, "POST", "/v1/topics/t/ack", `{"receipt_handles":["1:2:3"]}`); got.status != 200 || got.body != want {
				t.Errorf("batch: %d %s, want %s", got.status, got.body, want)
			}
			if s.idle(t); !strings.Contains(s.log.String(), "10.0.0.3") {
				t.Errorf("the log does not say which owner: %s", s.log.String())
			}
		})
	}
}

// E-421: the one of these answers that is JSON.
func TestE421_Text(t *testing.T) {
	s := serveFake(t, &fake{err: fmt.Errorf("n3: %w", model.ErrNotOwner)}, nil)
	const want = `{"error":"this node does not own the requested partition","code":"not_owner"}` + "\n"
	for _, got := range []answer{
		s.do(t, "GET", "/v1/topics/t/consume?partition=1", ""), s.do(t, "POST", "/v1/topics/t/ack?receipt_handle=1:2:3", ""),
	} {
		if got.status != 421 || got.body != want {
			t.Errorf("%d %s, want 421 %s", got.status, got.body, want)
		}
	}
}

// BODY-5: what an owner refuses reaches the client as it is; that it does not lead, or an
// offset aged out there, is said as this node would.
func TestBODY5_RelayedRefusals(t *testing.T) {
	aged := &peer.StatusError{Status: 410, Code: "offset_aged_out", Text: "offset 1 aged out of retention (oldest retained: 9)",
		ContentType: typeJSON, Body: []byte(`{"error":"offset 1 aged out of retention (oldest retained: 9)","code":"offset_aged_out"}`)}
	for _, tc := range []struct {
		name   string
		err    *peer.StatusError
		status int
		body   string
	}{
		{"refusal", &peer.StatusError{Status: 421, Code: "not_owner", Text: "x", ContentType: typeJSON, Body: []byte("{\"error\":\"x\",\"code\":\"not_owner\",\"n\":1}\n")}, 421, "{\"error\":\"x\",\"code\":\"not_owner\",\"n\":1}\n"},
		{"text", &peer.StatusError{Status: 500, Text: "boom", ContentType: "text/plain", Body: []byte("boom")}, 500, "boom"},
		{"no content type", &peer.StatusError{Status: 500, Text: "boom", Body: []byte("boom")}, 500, "boom"},
		{"not leader", &peer.StatusError{Status: 421, Code: "not_leader", Text: "x", LeaderAddr: "10.0.0.3:1", ContentType: typeJSON, Body: []byte(`{"leader_addr":"10.0.0.3:1"}`)}, 503,
			`{"error":"control plane temporarily unavailable","code":"control_plane_unavailable"}` + "\n"},
		{"aged out", aged, 410, `{"error":"offset 1 aged out of retention (oldest retained: 9)","code":"offset_aged_out"}` + "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serveFake(t, &fake{err: fmt.Errorf("n3 at 10.0.0.3: %w", tc.err)}, nil)
			got := s.do(t, "GET", "/v1/topics/t/consume?partition=1&offset=1", "")
			if got.status != tc.status || got.body != tc.body {
				t.Errorf("%d %q, want %d %q", got.status, got.body, tc.status, tc.body)
			}
			if got.header.Get("Content-Type") == "" || string(tc.err.Body) == tc.body && got.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("headers %v", got.header)
			}
		})
	}
}
