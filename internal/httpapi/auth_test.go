package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/narad-mq/narad/internal/access"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
	"github.com/narad-mq/narad/internal/testutil"
	"github.com/narad-mq/narad/internal/topics"
)

// as is the header line of a user whose password is its name and "-pw".
func as(user string) string { return basic(user, user+"-pw") }

func basic(user, password string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// newSecuredNode starts a node with security on. Its users: admin is root, ops an
// admin, alice creates alice-*, bob consumes and cara produces to alice-*, eve has no
// grant.
func newSecuredNode(t testing.TB, edit func(*config.HTTP)) *node {
	t.Helper()
	n := openNodeWith(t, t.TempDir(), edit, true)
	n.user(t, "admin", true)
	n.user(t, "ops", false, model.Grant{Action: model.ActionAdmin})
	n.user(t, "alice", false, model.Grant{Action: model.ActionCreate, Patterns: []string{"alice-*"}})
	n.user(t, "bob", false, model.Grant{Action: model.ActionConsume, Patterns: []string{"alice-*"}})
	n.user(t, "cara", false, model.Grant{Action: model.ActionProduce, Patterns: []string{"alice-*"}})
	n.user(t, "eve", false)
	return n
}

func (n *node) user(t testing.TB, name string, root bool, grants ...model.Grant) {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(name+"-pw"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	n.propose(t, metastore.CreateUser{Username: name, PasswordHash: string(hash), Grants: grants, Root: root, At: 1})
}

func (n *node) propose(t testing.TB, c metastore.Command) {
	t.Helper()
	if _, err := n.store.Propose(t.Context(), c); err != nil {
		t.Fatalf("%s: %v", c.Type(), err)
	}
}

// TestPIPE3_Authentication (AUTH-1 to AUTH-3, CSRF-3, H-12): every path but the
// probes needs credentials, and before anything else is looked at.
func TestPIPE3_Authentication(t *testing.T) {
	n := newSecuredNode(t, nil)
	const required = `{"error":"authentication required","code":"authentication_required"}` + "\n"
	for _, tc := range []struct{ method, path string }{
		{"GET", "/v1/topics"}, {"POST", "/v1/topics"}, {"GET", "/v1/topics/t"}, {"POST", "/v1/topics/t/produce"},
		{"GET", "/v1/topics/t/consume"}, {"POST", "/v1/topics/t/ack"}, {"GET", "/metrics"}, {"GET", "/"}, {"GET", "/nowhere"},
		{"OPTIONS", "/v1/topics"}, {"PUT", "/v1/topics"},
	} {
		for _, header := range []string{"X-No: 1", "Authorization: Bearer x", "Authorization: Basic ???", "-" + clientHeader} {
			a := n.do(t, tc.method, tc.path, "", header)
			if a.status != 401 || a.body != required || a.header.Get("Www-Authenticate") != `Basic realm="narad"` {
				t.Errorf("%s %s with %q: %d %q %v", tc.method, tc.path, header, a.status, a.body, a.header)
			}
		}
	}
	for _, wrong := range []string{basic("alice", "nope"), basic("nobody", "alice-pw"), basic("alice", ""), basic("", "x")} {
		a := n.do(t, "GET", "/v1/topics", "", wrong)
		if a.status != 401 || a.header.Get("Www-Authenticate") != challenge {
			t.Errorf("%q: %d %q", wrong, a.status, a.body)
		}
	}
	n.do(t, "GET", "/v1/topics", "", basic("alice", "nope")).expect(t, 401, `{"error":"invalid credentials","code":"invalid_credentials"}`)
	n.do(t, "GET", "/healthz", "").expect(t, 200, "ok")
	n.do(t, "GET", "/readyz", "").expect(t, 200, "ready")
	n.do(t, "GET", "/metrics", "", as("eve")).expect(t, 200, "narad_http_requests_in_flight")
	n.do(t, "GET", "/nowhere", "", as("eve")).expect(t, 404, "404 page not found")
	// PIPE-4 and PIPE-5 come after it.
	n.do(t, "PUT", "/v1/topics", "", as("eve"), "-"+clientHeader).expect(t, 415, "X-Narad-Client")
	n.do(t, "PUT", "/v1/topics", "", as("eve")).expect(t, 405, "Method Not Allowed")
	n.idle(t)
	if body := n.do(t, "GET", "/metrics", "", as("eve"), "Accept-Encoding: identity").body; !strings.Contains(body, `narad_http_requests_total{method="POST",route="POST /v1/topics/{topic}/produce",status="401"} 4`) {
		t.Error("a 401 is not counted under its route")
	}
}

// TestAZ12_Metrics (H-12, H-13): when /metrics on the API port needs credentials.
func TestAZ12_Metrics(t *testing.T) {
	open := newSecuredNode(t, func(c *config.HTTP) { c.MetricsUnauthenticated = true })
	open.do(t, "GET", "/metrics", "").expect(t, 200, "narad_")
	open.do(t, "GET", "/v1/topics", "").expect(t, 401, "authentication required")

	elsewhere := newSecuredNode(t, func(c *config.HTTP) { c.MetricsUnauthenticated = true; c.MetricsAddr = "127.0.0.1:0" })
	elsewhere.do(t, "GET", "/metrics", "").expect(t, 401, "authentication required")
	elsewhere.do(t, "GET", "/metrics", "", as("eve")).expect(t, 404, "404 page not found")
	if got := recordOps(elsewhere.api, "/metrics"); got.status != 200 {
		t.Errorf("the metrics listener asks for credentials: %d", got.status)
	}
	if got := recordOps(elsewhere.api, "/v1/topics"); got.status != 404 {
		t.Errorf("the metrics listener answers %d for topics", got.status)
	}
}

// TestPhasesSecured: before the node has begun nobody can be known, so that
// everything but the probes waits.
func TestPhasesSecured(t *testing.T) {
	s := serveWith(t, nil, true)
	s.do(t, "GET", "/healthz", "").expect(t, 200, "ok")
	s.do(t, "GET", "/readyz", "").expect(t, 503, "not ready")
	for _, path := range []string{"/metrics", "/nowhere", "/v1/topics"} {
		s.do(t, "GET", path, "", as("admin")).expect(t, 503, `{"error":"not ready","code":"not_ready"}`)
	}
}

// noAuth answers every check with one error.
type noAuth struct{ err error }

func (f noAuth) Authenticate(context.Context, string) (*access.Caller, error) { return nil, f.err }

// TestAuthenticationErrors: AUTH-8, AUTH-11, AUTH-12.
func TestAuthenticationErrors(t *testing.T) {
	for _, tc := range []struct {
		name   string
		err    error
		status int
		body   string
		retry  string
	}{
		{"AUTH-8 AUTH-12", &model.AuthThrottledError{RetryAfter: 12}, 429, `{"error":"too many failed authentication attempts","code":"too_many_failed_attempts"}`, "12"},
		{"AUTH-11", fmt.Errorf("%w: bbolt is gone", model.ErrAuthUnavailable), 500, `{"error":"authentication unavailable","code":"authentication_unavailable"}`, ""},
		{"stopping", model.ErrShuttingDown, 503, `{"error":"shutting down","code":"shutting_down"}`, ""},
		{"unexpected", errors.New("x"), 500, `{"error":"list topics failed","code":"internal"}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serveWith(t, nil, true)
			be := (&fake{}).backends()
			be.Auth = noAuth{tc.err}
			s.api.Begin(be)
			a := s.do(t, "GET", "/v1/topics", "", as("alice"))
			if a.status != tc.status || a.body != tc.body+"\n" || a.header.Get("Retry-After") != tc.retry || a.header.Get("Www-Authenticate") != "" {
				t.Errorf("%d %q %v", a.status, a.body, a.header)
			}
		})
	}
}

// TestAUTH8_BucketOverHTTP: five wrong passwords, then 429 even for the right one.
func TestAUTH8_BucketOverHTTP(t *testing.T) {
	n := newSecuredNode(t, nil)
	for range 5 {
		n.do(t, "GET", "/v1/topics", "", basic("alice", "guess")).expect(t, 401, "invalid credentials")
	}
	a := n.do(t, "GET", "/v1/topics", "", as("alice"))
	a.expect(t, 429, "too many failed authentication attempts")
	if a.header.Get("Retry-After") == "" {
		t.Error("AUTH-12: no Retry-After")
	}
	n.do(t, "GET", "/v1/topics", "", as("bob")).expect(t, 200, "topics")
}

// TestAUTH5_ChangesTakeEffect: the next request after a change of the user sees it.
func TestAUTH5_ChangesTakeEffect(t *testing.T) {
	n := newSecuredNode(t, nil)
	n.do(t, "POST", "/v1/topics", `{"name":"alice-1"}`, as("alice")).expect(t, 201, "alice-1")
	n.do(t, "POST", "/v1/topics/alice-1/produce", "1", as("cara")).expect(t, 202, "")
	n.propose(t, metastore.SetGrants{Username: "cara", Grants: []model.Grant{}, At: 2})
	n.do(t, "POST", "/v1/topics/alice-1/produce", "1", as("cara")).expect(t, 403, "produce not allowed on this topic")
	n.propose(t, metastore.DeleteUser{Username: "cara"})
	n.do(t, "POST", "/v1/topics/alice-1/produce", "1", as("cara")).expect(t, 401, "invalid credentials")
}

// TestPIPE6_Grants: who may produce, consume and settle, and that the refusal comes
// before the topic, the query and the body are looked at (P-6, C-8, A-6).
func TestPIPE6_Grants(t *testing.T) {
	n := newSecuredNode(t, nil)
	n.do(t, "POST", "/v1/topics", `{"name":"alice-1"}`, as("alice")).expect(t, 201, "alice-1")
	for _, tc := range []struct {
		name, method, path, body, user string
		status                         int
		text                           string
	}{
		{"P-1", "POST", "alice-1/produce", "1", "cara", 202, ""},
		{"P-6", "POST", "alice-1/produce", "1", "bob", 403, `{"error":"produce not allowed on this topic","code":"forbidden"}`},
		{"P-6 owner", "POST", "alice-1/produce", "1", "alice", 403, "produce not allowed on this topic"},
		{"P-6 before P-7", "POST", "nope/produce", "1", "cara", 403, "produce not allowed on this topic"},
		{"P-7", "POST", "alice-nope/produce", "1", "cara", 404, "topic not found"},
		{"P-6 before P-2 and P-4", "POST", "alice-1/produce?key=a&key=b", "", "bob", 403, "produce not allowed"},
		{"P-4", "POST", "alice-1/produce?key=a&key=b", "1", "cara", 400, "more than once"},
		{"PB-1", "POST", "alice-1/produce/batch", `{"messages":[{"payload":1}]}`, "cara", 202, `{"accepted":1}`},
		{"P-6 batch before its body", "POST", "alice-1/produce/batch", `{"messages":[]}`, "bob", 403, "produce not allowed on this topic"},
		{"probe", "POST", "alice-1/produce/batch", `{"messages":[]}`, "cara", 400, "messages required"},
		{"admin", "POST", "alice-1/produce", "1", "ops", 202, ""},
		{"root", "POST", "alice-1/produce", "1", "admin", 202, ""},
		{"C-8", "GET", "alice-1/consume", "", "cara", 403, `{"error":"consume not allowed on this topic","code":"forbidden"}`},
		{"C-8 before C-9", "GET", "nope/consume", "", "bob", 403, "consume not allowed"},
		{"C-9", "GET", "alice-nope/consume", "", "bob", 404, "topic not found"},
		{"C-8 before C-4", "GET", "alice-1/consume?wait=x", "", "eve", 403, "consume not allowed"},
		{"C-4", "GET", "alice-1/consume?wait=x", "", "bob", 400, "wait must be a duration"},
		{"C-1", "GET", "alice-1/consume?wait=5s", "", "bob", 200, "receipt_handle"},
		{"C-8 replay", "GET", "alice-1/consume?partition=0&offset=0", "", "cara", 403, "consume not allowed"},
		{"A-6", "POST", "alice-1/ack?receipt_handle=0:0:1", "", "cara", 403, "consume not allowed on this topic"},
		{"A-6 before A-3", "POST", "alice-1/ack", "", "cara", 403, "consume not allowed on this topic"},
		{"A-2", "POST", "alice-1/ack?receipt_handle=0:9:1", "", "bob", 410, "receipt handle no longer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n.do(t, tc.method, "/v1/topics/"+tc.path, tc.body, as(tc.user)).expect(t, tc.status, tc.text)
		})
	}
	// C-7 comes before the grant: CSRF-6.
	n.do(t, "GET", "/v1/topics/alice-1/consume?max=2", "", as("eve"), "-"+clientHeader).expect(t, 400, "X-Narad-Client")
	n.do(t, "HEAD", "/v1/topics/alice-1/consume", "", as("eve")).expect(t, 405, "")
}

// TestPIPE7_CapsCountUsers (LIM-8): the cap is the user's, whatever address it calls
// from, and comes before what is wrong with the query.
func TestPIPE7_CapsCountUsers(t *testing.T) {
	n := newSecuredNode(t, func(c *config.HTTP) { c.MaxConsumeInFlightPerID = 1; c.MaxProduceInFlightPerID = 1 })
	n.do(t, "POST", "/v1/topics", `{"name":"alice-1"}`, as("alice")).expect(t, 201, "alice-1")
	parked := make(chan answer, 1)
	go func() { parked <- n.do(t, "GET", "/v1/topics/alice-1/consume?wait=10s", "", as("bob")) }()
	testutil.Eventually(t, 5*time.Second, func() bool { return n.api.consumeCap.of("bob") == 1 }, "the consume to take the cap")
	n.do(t, "GET", "/v1/topics/alice-1/consume", "", as("bob")).expect(t, 429, "too many in-flight consume requests for this identity (limit 1 per node)")
	n.do(t, "GET", "/v1/topics/alice-1/consume?wait=x", "", as("bob")).expect(t, 429, "too many in-flight")
	n.do(t, "GET", "/v1/topics/alice-1/consume?max=0", "", as("bob")).expect(t, 429, "too many in-flight")
	n.do(t, "GET", "/v1/topics/alice-1/consume", "", as("ops")).expect(t, 204, "")
	n.do(t, "POST", "/v1/topics/alice-1/produce", "1", as("cara")).expect(t, 202, "")
	if a := <-parked; a.status != 200 {
		t.Errorf("the parked consume answered %d %s", a.status, a.body)
	}
}

// TestAZ_Topics: AZ-1 to AZ-4, TC-5, TC-20, TA-13, TD-16, TG-4, TG-5, TL-3.
func TestAZ_Topics(t *testing.T) {
	n := newSecuredNode(t, nil)
	const manage = `{"error":"only the topic owner or an admin may modify this topic","code":"forbidden"}`
	for _, tc := range []struct {
		name, method, path, body, user string
		status                         int
		text                           string
	}{
		{"TC-20", "POST", "", `{"name":"alice-1","owner":"bob"}`, "alice", 201, `"owner":"alice"`},
		{"TC-5", "POST", "", `{"name":"other"}`, "alice", 403, `{"error":"create not allowed for this topic name","code":"forbidden"}`},
		{"TC-5 no grant", "POST", "", `{"name":"alice-2"}`, "bob", 403, "create not allowed for this topic name"},
		{"TC-5 before TC-8", "POST", "", `{"name":"alice-1"}`, "bob", 403, "create not allowed"},
		{"TC-3 before TC-5", "POST", "", `{"name":"other","partitions":2}`, "alice", 400, "invalid argument: partitions 2"},
		{"BODY-1 before TC-5", "POST", "", `{"name":"other","foo":1}`, "alice", 400, `unknown field \"foo\"`},
		{"admin", "POST", "", `{"name":"ops-1"}`, "ops", 201, `"owner":"ops"`},
		{"TG-4", "GET", "/alice-1", "", "eve", 403, `{"error":"no grant on this topic","code":"forbidden"}`},
		{"TG-5", "GET", "/nope", "", "eve", 404, "topic not found"},
		{"TG-3 before TG-4", "GET", "/alice-1?partition=x", "", "eve", 400, "partition out of range"},
		{"TG-4 before a partition there is not", "GET", "/alice-1?partition=9", "", "eve", 403, "no grant on this topic"},
		{"AZ-1 consume", "GET", "/alice-1", "", "bob", 200, "partition_stats"},
		{"AZ-1 produce", "GET", "/alice-1", "", "cara", 200, "partition_stats"},
		{"AZ-1 owner", "GET", "/alice-1", "", "alice", 200, `"owner":"alice"`},
		{"AZ-1 admin", "GET", "/alice-1", "", "ops", 200, "partition_stats"},
		{"TA-13", "PATCH", "/alice-1", `{"retention_ms":0}`, "cara", 403, manage},
		{"TA-13 missing", "PATCH", "/nope", `{"retention_ms":0}`, "eve", 404, "topic not found"},
		{"TA-2 before TA-13", "PATCH", "/alice-1", `{}`, "cara", 400, "no field to change"},
		{"TA-1 owner", "PATCH", "/alice-1", `{"retention_ms":0}`, "alice", 200, `"retention_ms":0`},
		{"TA-1 admin", "PATCH", "/alice-1", `{"retention_ms":7200000}`, "ops", 200, `"retention_ms":7200000`},
		{"TD-16", "DELETE", "/ops-1", "", "alice", 403, manage},
		{"TD-11 before TD-16", "DELETE", "/ops-1?force=x", "", "alice", 400, "force"},
		{"TD-10", "DELETE", "/nope", "", "eve", 404, "topic not found"},
		{"TD-1", "DELETE", "/alice-1", "", "alice", 204, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n.do(t, tc.method, "/v1/topics"+tc.path, tc.body, as(tc.user)).expect(t, tc.status, tc.text)
		})
	}
	log := n.log.String()
	for _, want := range []string{
		`"event":"topic.create","actor":"alice","target":"alice-1","status":201,"outcome":"ok"`,
		`"event":"topic.create","actor":"alice","target":"other","status":403,"outcome":"denied"`,
		`"event":"topic.alter","actor":"cara","target":"alice-1","status":403,"outcome":"denied"`,
		`"event":"topic.delete","actor":"alice","target":"ops-1","status":403,"outcome":"denied"`,
		`"event":"topic.delete","actor":"alice","target":"alice-1","status":204,"outcome":"ok"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	for _, secret := range []string{"alice-pw", "$2a$"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

// TestAZ3_ListIsFilteredAfterTheCut: pages may be short or empty while the token
// goes on (TL-3).
func TestAZ3_ListIsFilteredAfterTheCut(t *testing.T) {
	n := newSecuredNode(t, nil)
	for _, name := range []string{"alice-1", "b", "c", "alice-4"} {
		n.do(t, "POST", "/v1/topics", fmt.Sprintf(`{"name":%q}`, name), as("admin")).expect(t, 201, name)
	}
	read := func(user, query string) (names []string, token string) {
		t.Helper()
		a := n.do(t, "GET", "/v1/topics?"+query, "", as(user))
		a.expect(t, 200, `"topics":[`)
		var out struct {
			NextPageToken string `json:"next_page_token"`
			Topics        []model.Topic
		}
		if err := json.Unmarshal([]byte(a.body), &out); err != nil {
			t.Fatal(err)
		}
		for _, tp := range out.Topics {
			names = append(names, tp.Name)
		}
		return names, out.NextPageToken
	}
	for _, tc := range []struct{ user, query, names, token string }{
		{"bob", "limit=3", "[alice-1 alice-4]", "b"},
		{"bob", "limit=3&page_token=b", "[]", ""},
		{"bob", "limit=2&page_token=alice-4", "[]", ""},
		{"bob", "limit=1&page_token=alice-4", "[]", "b"},
		{"eve", "limit=3", "[]", "b"},
		{"eve", "limit=3&page_token=b", "[]", ""},
		{"ops", "limit=3", "[alice-1 alice-4 b]", "b"},
	} {
		if names, token := read(tc.user, tc.query); fmt.Sprint(names) != tc.names || token != tc.token {
			t.Errorf("%s ?%s: %v, token %q; want %s, %q", tc.user, tc.query, names, token, tc.names, tc.token)
		}
	}
}

// between lets something happen after the node's own check of a change and before
// the leader's.
type between struct {
	Topics
	do func()
}

func (b between) Alter(ctx context.Context, name string, r topics.AlterRequest) (*model.TopicView, error) {
	b.do()
	return b.Topics.Alter(ctx, name, r)
}

func (b between) Delete(ctx context.Context, name, caller string) error {
	b.do()
	return b.Topics.Delete(ctx, name, caller)
}

func (b between) Create(ctx context.Context, r topics.CreateRequest) (*model.TopicView, error) {
	b.do()
	return b.Topics.Create(ctx, r)
}

// TestAZ21_AZ22_LeaderRechecks: the second check is against the topic as it stands
// and the user as the leader knows it.
func TestAZ21_AZ22_LeaderRechecks(t *testing.T) {
	n := newSecuredNode(t, nil)
	be := *n.api.serving.Load()
	plain := be.Topics
	during := func(do func()) {
		be.Topics = between{plain, do}
		n.api.Begin(be)
	}
	recreate := func() {
		v, _ := n.store.Topic("alice-1")
		n.propose(t, metastore.DeleteTopic{Name: "alice-1", ID: v.ID})
		n.propose(t, metastore.CreateTopic{Topic: model.Topic{Name: "alice-1", ID: model.NewIncarnation(), Partitions: 3, Owner: "ops"}})
	}
	const stolen = `{"error":"only the owner of topic \"alice-1\" or an admin may modify it","code":"forbidden"}`
	n.do(t, "POST", "/v1/topics", `{"name":"alice-1"}`, as("alice")).expect(t, 201, "alice-1")
	during(recreate)
	n.do(t, "PATCH", "/v1/topics/alice-1", `{"retention_ms":0}`, as("alice")).expect(t, 403, stolen)
	during(func() {})
	n.do(t, "DELETE", "/v1/topics/alice-1", "", as("ops")).expect(t, 204, "")
	n.do(t, "POST", "/v1/topics", `{"name":"alice-1"}`, as("alice")).expect(t, 201, "alice-1")
	during(recreate)
	n.do(t, "DELETE", "/v1/topics/alice-1", "", as("alice")).expect(t, 403, stolen)
	if _, ok := n.store.Topic("alice-1"); !ok {
		t.Error("AZ-21: the topic is gone all the same")
	}
	during(func() { n.propose(t, metastore.SetGrants{Username: "alice", Grants: []model.Grant{}, At: 2}) })
	n.do(t, "POST", "/v1/topics", `{"name":"alice-3"}`, as("alice")).expect(t, 403, "create not allowed for this topic name")
	during(func() { n.propose(t, metastore.DeleteUser{Username: "alice"}) })
	n.propose(t, metastore.SetGrants{Username: "alice", Grants: []model.Grant{{Action: model.ActionCreate, Patterns: []string{"*"}}}, At: 3})
	n.do(t, "POST", "/v1/topics", `{"name":"alice-3"}`, as("alice")).expect(t, 403, `{"error":"caller unknown to the leader","code":"forbidden"}`)
}

// TestAUTH13_SecurityOff: nobody is asked, and nobody owns.
func TestAUTH13_SecurityOff(t *testing.T) {
	n := newNode(t, nil)
	a := n.do(t, "POST", "/v1/topics", `{"name":"t","owner":"me"}`, basic("anybody", "anything"))
	a.expect(t, 201, `"name":"t"`)
	if strings.Contains(a.body, "owner") {
		t.Errorf("an owner with security off: %s", a.body)
	}
	n.do(t, "DELETE", "/v1/topics/t", "").expect(t, 204, "")
}

// oneUser is a user store of one.
type oneUser struct{ model.Account }

func (o oneUser) User(name string) (model.Account, bool, error) {
	return o.Account, name == o.Username, nil
}

func (oneUser) UsersVersion() uint64 { return 1 }

// securedProduce is a produce of a user with many grants, on an API with security on
// and nothing behind it.
func securedProduce(tb testing.TB) (*produceCall, *API, *discard) {
	tb.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("producer-pw"), bcrypt.MinCost)
	if err != nil {
		tb.Fatal(err)
	}
	user := model.User{Username: "producer", Grants: []model.Grant{{Action: model.ActionProduce, Patterns: []string{"a-*", "b-*", "c-*", "t"}}}}
	d := &discard{}
	be := d.backends()
	auth := access.New(access.Options{Users: oneUser{model.Account{User: user, PasswordHash: string(hash)}}, Cost: bcrypt.MinCost})
	tb.Cleanup(func() { _ = auth.Close() })
	be.Auth = auth
	a := New(Options{Config: config.Default().HTTP, Secured: true, Clock: clock.Real(), Logger: telemetry.Discard()})
	a.Begin(be)
	p := newProduceCall([]byte("{}"))
	p.req.Ctx = context.Background()
	p.head.Set("Authorization", strings.TrimPrefix(as("producer"), "Authorization: "))
	return p, a, d
}

func BenchmarkProduceAuthenticated(b *testing.B) {
	p, a, d := securedProduce(b)
	b.ReportAllocs()
	for b.Loop() {
		p.body.Reset([]byte("{}"))
		d.reset()
		a.Serve(&p.req, p)
	}
	if p.got != 202 {
		b.Fatal(p.got)
	}
}
