package httpapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/model"
)

const userMissing = `{"error":"user not found","code":"user_not_found"}`

// forbidden is the body of a 403.
func forbidden(text string) string {
	return fmt.Sprintf("{\"error\":%q,\"code\":\"forbidden\"}\n", text)
}

// TestU1_CreateReadDelete: U-1, U-4 to U-7, and the shape of 7.5.
func TestU1_CreateReadDelete(t *testing.T) {
	n := newSecuredNode(t, nil)
	const body = `{"username":"zoe","password":"zoe-pw","grants":[{"action":"produce","patterns":["a","b-*"]},{"action":"consume","patterns":["*"]}]}`
	created := n.do(t, "POST", "/v1/users", body, as("ops"))
	created.expect(t, 201, `{"username":"zoe","grants":[{"action":"produce","patterns":["a","b-*"]},{"action":"consume","patterns":["*"]}],"created_at_ms":`)
	if names := strings.Join(fields(t, created.body), " "); names != "username grants created_at_ms updated_at_ms" {
		t.Errorf("fields %s", names)
	}
	n.do(t, "POST", "/v1/users", body, as("ops")).expect(t, 409, `{"error":"user already exists","code":"user_exists"}`)
	got := n.do(t, "GET", "/v1/users/zoe", "", as("ops"))
	got.expect(t, 200, created.body)
	n.do(t, "GET", "/v1/users/z%6Fe", "", as("ops")).expect(t, 200, created.body)
	n.do(t, "HEAD", "/v1/users/zoe", "", as("ops")).expect(t, 200, "")
	for _, name := range []string{"nobody", "ZOE", "%00", "a%2fb", strings.Repeat("x", 300)} {
		n.do(t, "GET", "/v1/users/"+name, "", as("ops")).expect(t, 404, userMissing)
	}
	n.do(t, "GET", "/v1/users/admin", "", as("ops")).expect(t, 200, `{"username":"admin","root":true,"created_at_ms":1,"updated_at_ms":1}`)

	list := n.do(t, "GET", "/v1/users", "", as("ops"))
	list.expect(t, 200, `[{"username":"admin","root":true`)
	var all []model.User
	if err := json.Unmarshal([]byte(list.body), &all); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(all, func(a, b model.User) int { return strings.Compare(a.Username, b.Username) }) || len(all) != 7 {
		t.Errorf("U-5: %s", list.body)
	}
	for _, a := range []answer{created, got, list} {
		if strings.Contains(a.body, "hash") || strings.Contains(a.body, "$2a$") || strings.Contains(a.body, "zoe-pw") {
			t.Errorf("an answer shows a secret: %s", a.body)
		}
	}
	n.do(t, "GET", "/v1/topics", "", as("zoe")).expect(t, 200, "topics")
	n.do(t, "DELETE", "/v1/users/zoe", "", as("ops")).expect(t, 204, "")
	n.do(t, "GET", "/v1/topics", "", as("zoe")).expect(t, 401, "invalid credentials")
	n.do(t, "DELETE", "/v1/users/zoe", "", as("ops")).expect(t, 404, userMissing)
}

// TestU2_Refusals: U-2, U-9, U-16 and LIM-1 of user routes.
func TestU2_Refusals(t *testing.T) {
	n := newSecuredNode(t, nil)
	long := strings.Repeat("x", 73)
	for _, tc := range []struct{ name, method, path, body, text string }{
		{"no username", "POST", "", `{"password":"p"}`, "invalid argument: username"},
		{"dots", "POST", "", `{"username":"..","password":"p"}`, "invalid argument: username"},
		{"65 characters", "POST", "", `{"username":"` + strings.Repeat("u", 65) + `","password":"p"}`, "invalid argument: username"},
		{"a colon", "POST", "", `{"username":"a:b","password":"p"}`, "invalid argument: username"},
		{"no password", "POST", "", `{"username":"u"}`, "invalid argument: password"},
		{"73 bytes", "POST", "", `{"username":"u","password":"` + long + `"}`, "invalid argument: password of 73 bytes, want 1 to 72"},
		{"unknown action", "POST", "", `{"username":"u","password":"p","grants":[{"action":"own","patterns":["a"]}]}`, `invalid argument: action \"own\"`},
		{"no patterns", "POST", "", `{"username":"u","password":"p","grants":[{"action":"produce"}]}`, "invalid argument: action produce needs at least one pattern"},
		{"patterns of admin", "POST", "", `{"username":"u","password":"p","grants":[{"action":"admin","patterns":["a"]}]}`, "invalid argument: action admin takes no patterns"},
		{"star inside", "POST", "", `{"username":"u","password":"p","grants":[{"action":"produce","patterns":["a*b"]}]}`, "invalid argument: pattern"},
		{"BODY-1 unknown field", "POST", "", `{"username":"u","password":"p","root":true}`, `invalid json: json: unknown field \"root\"`},
		{"BODY-1 unknown field in a grant", "POST", "", `{"username":"u","password":"p","grants":[{"action":"admin","x":1}]}`, `invalid json: json: unknown field \"x\"`},
		{"LIM-1", "POST", "", `{"username":"u","password":"` + strings.Repeat("p", 1<<20) + `"}`, `{"error":"request body too large","code":"body_too_large"}`},
		{"U-9 required", "PUT", "/alice/grants", `{}`, "invalid argument: grants required"},
		{"U-9 null", "PUT", "/alice/grants", `{"grants":null}`, "invalid argument: grants required"},
		{"U-9 bad grant", "PUT", "/alice/grants", `{"grants":[{"action":"x"}]}`, "invalid argument: action"},
		{"U-9 body", "PUT", "/alice/grants", `{"grants":["` + strings.Repeat("p", 1<<20) + `"]}`, "request body too large"},
		{"U-16 empty", "PUT", "/alice/password", `{"new_password":""}`, "invalid argument: new_password of 0 bytes, want 1 to 72"},
		{"U-16 73 bytes", "PUT", "/alice/password", `{"new_password":"` + long + `"}`, "invalid argument: new_password of 73 bytes, want 1 to 72"},
		{"U-16 body", "PUT", "/alice/password", `{"new_password":"` + strings.Repeat("p", 1<<20) + `"}`, "request body too large"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n.do(t, tc.method, "/v1/users"+tc.path, tc.body, as("ops")).expect(t, 400, tc.text)
		})
	}
	if log := n.log.String(); strings.Contains(log, "user.") {
		t.Errorf("an audit line of a request that failed its body checks: %s", log)
	}
	n.do(t, "POST", "/v1/users", `{"username":"`+strings.Repeat("u", 64)+`","password":"`+long[:72]+`"}`, as("ops")).expect(t, 201, "{")
	n.do(t, "PUT", "/v1/users", "", as("ops")).expect(t, 405, "Method Not Allowed")
	n.do(t, "GET", "/v1/users/alice/grants", "", as("ops")).expect(t, 405, "Method Not Allowed")
	n.do(t, "GET", "/v1/users/", "", as("ops")).expect(t, 404, "404 page not found")
	n.do(t, "GET", "/v1/users/alice/keys", "", as("ops")).expect(t, 404, "404 page not found")
}

// TestU3_Rights: U-3, U-8, U-10, U-14 and ESC-1 to ESC-6; the path alone decides
// before a body is read (PIPE-6).
func TestU3_Rights(t *testing.T) {
	n := newSecuredNode(t, nil)
	const admins = `{"grants":[{"action":"admin"}]}`
	for _, tc := range []struct{ name, method, path, body, user, text string }{
		{"U-3 list", "GET", "", "", "alice", "admin privileges required"},
		{"U-3 get self", "GET", "/alice", "", "alice", "admin privileges required"},
		{"U-3 get missing", "GET", "/nobody", "", "alice", "admin privileges required"},
		{"U-3 create before its body", "POST", "", "not json", "alice", "admin privileges required"},
		{"U-3 delete", "DELETE", "/bob", "", "alice", "admin privileges required"},
		{"U-3 grants", "PUT", "/bob/grants", "not json", "alice", "admin privileges required"},
		{"ESC-7 grants of self", "PUT", "/alice/grants", `{"grants":[]}`, "alice", "admin privileges required"},
		{"ESC-1 create", "POST", "", `{"username":"u","password":"p","grants":[{"action":"admin"}]}`, "ops", "cannot grant permissions you do not hold"},
		{"ESC-1 replace", "PUT", "/bob/grants", admins, "ops", "cannot grant permissions you do not hold"},
		{"ESC-2", "PUT", "/ops/grants", `{"grants":[]}`, "ops", "cannot modify your own grants"},
		{"ESC-2 root", "PUT", "/admin/grants", `{"grants":[]}`, "admin", "cannot modify your own grants"},
		{"ESC-3", "PUT", "/admin/grants", `{"grants":[]}`, "ops", "cannot modify the root admin's grants"},
		{"ESC-4", "DELETE", "/admin", "", "ops", "cannot delete the root admin"},
		{"ESC-4 by itself", "DELETE", "/admin", "", "admin", "cannot delete the root admin"},
		{"ESC-5", "DELETE", "/ops", "", "ops", "cannot delete your own account"},
		{"ESC-6", "PUT", "/admin/password", `{"new_password":"x"}`, "ops", "only the root admin may change its password"},
		{"U-14 other", "PUT", "/bob/password", `{"new_password":"x"}`, "alice", "admin privileges required"},
		{"U-14 other, before its body", "PUT", "/nobody/password", "not json", "alice", "admin privileges required"},
		{"U-13 wrong", "PUT", "/alice/password", `{"new_password":"x","current_password":"y"}`, "alice", "current password is incorrect"},
		{"U-13 missing", "PUT", "/alice/password", `{"new_password":"x"}`, "alice", "current password is incorrect"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n.do(t, tc.method, "/v1/users"+tc.path, tc.body, as(tc.user)).expect(t, 403, forbidden(tc.text))
		})
	}
	n.do(t, "PUT", "/v1/users/nobody/grants", `{"grants":[]}`, as("ops")).expect(t, 404, userMissing)
	n.do(t, "PUT", "/v1/users/nobody/password", `{"new_password":"x"}`, as("ops")).expect(t, 404, userMissing)
	// Root gives admin, and only root keeps it on a user.
	n.do(t, "PUT", "/v1/users/bob/grants", admins, as("admin")).expect(t, 200, `"grants":[{"action":"admin"}]`)
	n.do(t, "PUT", "/v1/users/bob/grants", admins, as("ops")).expect(t, 403, "cannot grant permissions you do not hold")
	n.do(t, "PUT", "/v1/users/bob/grants", `{"grants":[]}`, as("ops")).expect(t, 200, `{"username":"bob","created_at_ms"`)
}

// TestU9_Fields: replacing one field leaves the other (U-9, U-11, U-12, U-15), and the
// next request sees it.
func TestU9_Fields(t *testing.T) {
	n := newSecuredNode(t, nil)
	n.do(t, "PUT", "/v1/users/eve/grants", `{"grants":[{"action":"create","patterns":["e-*"]}]}`, as("ops")).expect(t, 200, `"patterns":["e-*"]`)
	n.do(t, "POST", "/v1/topics", `{"name":"e-1"}`, as("eve")).expect(t, 201, `"owner":"eve"`)
	n.do(t, "PUT", "/v1/users/eve/password", `{"new_password":"second"}`, as("ops")).expect(t, 204, "")
	n.do(t, "GET", "/v1/topics", "", as("eve")).expect(t, 401, "invalid credentials")
	n.do(t, "POST", "/v1/topics", `{"name":"e-2"}`, basic("eve", "second")).expect(t, 201, "e-2")
	n.do(t, "PUT", "/v1/users/eve/password", `{"new_password":"third","current_password":"second"}`, basic("eve", "second")).expect(t, 204, "")
	n.do(t, "GET", "/v1/topics", "", basic("eve", "second")).expect(t, 401, "invalid credentials")
	n.do(t, "GET", "/v1/topics", "", basic("eve", "third")).expect(t, 200, "e-1")
	n.do(t, "PUT", "/v1/users/ops/password", `{"new_password":"fresh"}`, as("ops")).expect(t, 204, "") // U-15
	n.do(t, "GET", "/v1/users", "", basic("ops", "fresh")).expect(t, 200, "[")
	n.do(t, "PUT", "/v1/users/admin/password", `{"new_password":"root2"}`, as("admin")).expect(t, 204, "")
	n.do(t, "PUT", "/v1/users/eve/grants", `{"grants":[]}`, basic("admin", "root2")).expect(t, 200, `{"username":"eve","created_at_ms"`)
	n.do(t, "POST", "/v1/topics", `{"name":"e-3"}`, basic("eve", "third")).expect(t, 403, "create not allowed")
}

// TestUserAudit: section 18's lines of users, which never hold a password.
func TestUserAudit(t *testing.T) {
	n := newSecuredNode(t, nil)
	n.do(t, "POST", "/v1/users", `{"username":"zoe","password":"secret-1"}`, as("ops")).expect(t, 201, "zoe")
	n.do(t, "POST", "/v1/users", `{"username":"zoe","password":"secret-1"}`, as("ops")).expect(t, 409, "exists")
	n.do(t, "PUT", "/v1/users/zoe/grants", `{"grants":[]}`, as("ops")).expect(t, 200, "zoe")
	n.do(t, "PUT", "/v1/users/zoe/password", `{"new_password":"secret-2","current_password":"wrong-1"}`, basic("zoe", "secret-1")).expect(t, 403, "incorrect")
	n.do(t, "PUT", "/v1/users/zoe/password", `{"new_password":"secret-2","current_password":"secret-1"}`, basic("zoe", "secret-1")).expect(t, 204, "")
	n.do(t, "DELETE", "/v1/users/ops", "", as("ops")).expect(t, 403, "cannot")
	n.do(t, "DELETE", "/v1/users/zoe", "", as("ops")).expect(t, 204, "")
	n.do(t, "DELETE", "/v1/users/zoe", "", as("alice")).expect(t, 403, "admin")
	log := n.log.String()
	for _, want := range []string{
		`"event":"user.create","actor":"ops","target":"zoe","status":201,"outcome":"ok"`,
		`"event":"user.create","actor":"ops","target":"zoe","status":409,"outcome":"rejected"`,
		`"event":"user.grants","actor":"ops","target":"zoe","status":200,"outcome":"ok"`,
		`"event":"user.password","actor":"zoe","target":"zoe","status":403,"outcome":"denied"`,
		`"event":"user.password","actor":"zoe","target":"zoe","status":204,"outcome":"ok"`,
		`"event":"user.delete","actor":"ops","target":"ops","status":403,"outcome":"denied"`,
		`"event":"user.delete","actor":"ops","target":"zoe","status":204,"outcome":"ok"`,
	} {
		if strings.Count(log, want) != 1 {
			t.Errorf("the log lacks %s", want)
		}
	}
	if strings.Contains(log, `"actor":"alice"`) || strings.Contains(log, "secret-") || strings.Contains(log, "wrong-") {
		t.Errorf("too much in the log: %s", log)
	}
}

// TestAUTH13_UserRoutes: with security off they work, and the caller counts as root.
func TestAUTH13_UserRoutes(t *testing.T) {
	n := newNode(t, nil)
	n.do(t, "GET", "/v1/users", "").expect(t, 200, "[]\n")
	n.do(t, "POST", "/v1/users", `{"username":"zoe","password":"p","grants":[{"action":"admin"}]}`).expect(t, 201, `"action":"admin"`)
	n.do(t, "PUT", "/v1/users/zoe/password", `{"new_password":"q"}`).expect(t, 204, "")
	n.do(t, "PUT", "/v1/users/zoe/grants", `{"grants":[{"action":"admin"}]}`).expect(t, 200, "admin")
	n.do(t, "DELETE", "/v1/users/zoe", "").expect(t, 204, "")
	if !strings.Contains(n.log.String(), `"event":"user.delete","actor":"","target":"zoe","status":204,"outcome":"ok"`) {
		t.Error("no audit line without an actor")
	}
}

// TestU17_NoLeader: a write that finds no leader is 503 and changes nothing.
func TestU17_NoLeader(t *testing.T) {
	n := newSecuredNode(t, nil)
	n.do(t, "GET", "/v1/users", "", as("ops")).expect(t, 200, "[")
	if err := n.store.Close(); err != nil {
		t.Fatal(err)
	}
	n.do(t, "POST", "/v1/users", `{"username":"u","password":"p"}`, as("ops")).expect(t, 503, "control plane temporarily unavailable")
}
