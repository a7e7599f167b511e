package httpapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/testutil"
)

// The rows of spec/http-api section 14 about local children.
func TestLocalChildren(t *testing.T) {
	n := newNode(t, nil)
	for _, name := range []string{"p", "c", "other", "short"} {
		n.create(t, name)
	}
	n.do(t, "PATCH", "/v1/topics/short", `{"retention_ms":3600000}`).expect(t, 200, "{")
	const at = "/v1/topics/p/children"
	for _, c := range []struct {
		id, method, path, body string
		status                 int
		text                   string
	}{
		{"AC-2 child missing", "POST", at, `{}`, 400, "child is required"},
		{"AC-2 child equals parent", "POST", at, `{"child":"p"}`, 400, "must differ"},
		{"AC-2 delay negative", "POST", at, `{"child":"c","delay_ms":-1}`, 400, "delay_ms -1"},
		{"AC-2 delay of a year and more", "POST", at, `{"child":"c","delay_ms":31536000001}`, 400, "delay_ms"},
		{"AC-2 body", "POST", at, `{"child":"` + strings.Repeat("x", bodyMax) + `"}`, 400, "request body too large"},
		{"wrong delay field", "POST", at, `{"child":"c","fanout_delay_ms":1}`, 400, `invalid json: json: unknown field \"fanout_delay_ms\"`},
		{"AC-4 child", "POST", at, `{"child":"nobody"}`, 404, "topic not found"},
		{"AC-4 parent", "POST", "/v1/topics/nobody/children", `{"child":"c"}`, 404, "topic not found"},
		{"AC-7", "POST", "/v1/topics/short/children", `{"child":"c","delay_ms":1}`, 409, "retention_ms 3600000"},
		{"AC-1", "POST", at, `{"child":"c","delay_ms":60000}`, 200, `"role":"parent","children":["c"]`},
		{"AC-5 attached already", "POST", at, `{"child":"c"}`, 409, "already a child"},
		{"AC-5 parent is a child", "POST", "/v1/topics/c/children", `{"child":"other"}`, 409, "itself a child"},
		{"AC-5 child has children", "POST", "/v1/topics/other/children", `{"child":"p"}`, 409, "children of its own"},
		{"TA-9", "PATCH", "/v1/topics/p", `{"retention_ms":3600000}`, 409, "retention_ms 3600000"},
		{"TA-9 just enough", "PATCH", "/v1/topics/p", `{"retention_ms":3660000}`, 200, ""},
		{"P-8", "POST", "/v1/topics/c/produce", `1`, 409, "direct produce to a delayed child topic is not allowed"},
		{"P-8 batch", "POST", "/v1/topics/c/produce/batch", `{"messages":[{"payload":1}]}`, 409, "direct produce to a delayed child topic is not allowed"},
		{"list", "GET", at, "", 200, `"children":[{"name":"c","delay_ms":60000,"lag_messages":0,"lag_complete":`},
		{"list, bad partitions", "GET", at + "?partitions=yes", "", 400, "partitions must be true or false"},
		{"list, no parent", "GET", "/v1/topics/nobody/children", "", 404, "topic not found"},
		{"DC-8", "DELETE", at + "/c?force=maybe", "", 400, "force must be true or false"},
		{"DC-6 not linked", "DELETE", at + "/other", "", 404, "no such fan-out link"},
		{"DC-6 absent", "DELETE", at + "/nobody", "", 404, "topic not found"},
		{"DC-1, DC-5", "DELETE", at + "/c?force=true", "", 204, ""},
		{"DC-1 standalone", "GET", "/v1/topics/c", "", 200, `"role":"standalone"`},
		{"list, none", "GET", at, "", 200, `"children":[]}`},
		{"create: delay without parent", "POST", "/v1/topics", `{"name":"n","fanout_delay_ms":1}`, 400, "fanout_delay_ms needs parent"},
		{"create: wrong delay field", "POST", "/v1/topics", `{"name":"n","parent":"p","delay_ms":1}`, 400, `unknown field \"delay_ms\"`},
		{"TC-7", "POST", "/v1/topics", `{"name":"n","parent":"nobody"}`, 404, "topic not found"},
		{"TC-10", "POST", "/v1/topics", `{"name":"n","parent":"short","fanout_delay_ms":1}`, 409, "retention_ms 3600000"},
		{"TC-2", "POST", "/v1/topics", `{"name":"n","parent":"p"}`, 201, `"role":"child","parent":"p","attach_epoch":"`},
		{"TC-10 parent is a child", "POST", "/v1/topics", `{"name":"m","parent":"n"}`, 409, "itself a child"},
		{"TD-3", "DELETE", "/v1/topics/n", "", 204, ""},
		{"TD-3 forgotten", "GET", "/v1/topics/p", "", 200, `"role":"standalone"`},
		{"attach again", "POST", at, `{"child":"c"}`, 200, `"children":["c"]`},
		{"TD-2", "DELETE", "/v1/topics/p", "", 204, ""},
		{"TD-2 standalone", "GET", "/v1/topics/c", "", 200, `"role":"standalone"`},
	} {
		got := n.do(t, c.method, c.path, c.body)
		if got.status != c.status || !strings.Contains(got.body, c.text) {
			t.Errorf("%s: %d %s, want %d with %q", c.id, got.status, got.body, c.status, c.text)
		}
	}
}

// AZ-4 to AZ-6 and AZ-1 on the children routes.
func TestChildrenRights(t *testing.T) {
	n := newSecuredNode(t, nil)
	for _, topic := range []struct{ name, owner string }{{"alice-p", "alice"}, {"alice-c", "alice"}, {"ops-c", "ops"}} {
		n.do(t, "POST", "/v1/topics", fmt.Sprintf(`{"name":%q}`, topic.name), as(topic.owner)).expect(t, 201, "{")
	}
	const at, manage = "/v1/topics/alice-p/children", "only the topic owner or an admin may modify this topic"
	for _, c := range []struct {
		id, user, method, path, body string
		status                       int
		text                         string
	}{
		{"AZ-5 child of another", "alice", "POST", at, `{"child":"ops-c"}`, 403, manage},
		{"AZ-5 neither", "bob", "POST", at, `{"child":"alice-c"}`, 403, manage},
		{"AZ-4 no create", "bob", "POST", "/v1/topics", `{"name":"x","parent":"alice-p"}`, 403, "create not allowed"},
		{"AZ-4 parent of another", "alice", "POST", "/v1/topics", `{"name":"alice-x","parent":"ops-c"}`, 403, manage},
		{"AZ-4", "alice", "POST", "/v1/topics", `{"name":"alice-x","parent":"alice-p"}`, 201, `"owner":"alice"`},
		{"AZ-5 admin", "ops", "POST", at, `{"child":"ops-c"}`, 200, `"children":["alice-x","ops-c"]`},
		{"AZ-1 none", "eve", "GET", at, "", 403, "no grant on this topic"},
		{"AZ-1 any", "bob", "GET", at, "", 200, `"name":"ops-c"`},
		{"AZ-6 neither", "cara", "DELETE", at + "/ops-c", "", 403, manage},
		{"AZ-6 of one end", "alice", "DELETE", at + "/ops-c", "", 204, ""},
		{"AC-3 before AC-4", "alice", "POST", at, `{"child":"nobody"}`, 404, "topic not found"},
	} {
		got := n.do(t, c.method, c.path, c.body, as(c.user))
		if got.status != c.status || !strings.Contains(got.body, c.text) {
			t.Errorf("%s: %d %s, want %d with %q", c.id, got.status, got.body, c.status, c.text)
		}
	}
}

// A copy arrives, and the listing says so.
func TestChildGetsItsCopy(t *testing.T) {
	n := newNode(t, nil)
	n.create(t, "p")
	n.do(t, "POST", "/v1/topics", `{"name":"c","parent":"p"}`).expect(t, 201, "{")
	for i := range 10 {
		n.do(t, "POST", fmt.Sprintf("/v1/topics/p/produce?key=k%d", i), fmt.Sprint(i)).expect(t, 202, "")
	}
	got := map[string]string{}
	for len(got) < 10 {
		m := n.take(t, "c", "")
		n.settle(t, "c", m.Handle, "")
		got[*m.Key] = string(m.Payload)
	}
	for i := range 10 {
		if got[fmt.Sprintf("k%d", i)] != fmt.Sprint(i) {
			t.Fatalf("copied %v", got)
		}
	}
	testutil.Eventually(t, 10*time.Second, func() bool {
		return strings.Contains(n.do(t, "GET", "/v1/topics/p/children", "").body, `"lag_messages":0,"lag_complete":true`)
	}, "lag 0")
}
