package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// user is the User of section 7.5.
type user struct {
	Username string `json:"username"`
	Grants   []struct {
		Action   string   `json:"action"`
		Patterns []string `json:"patterns"`
	} `json:"grants"`
	Root      bool  `json:"root"`
	CreatedAt int64 `json:"created_at_ms"`
	UpdatedAt int64 `json:"updated_at_ms"`
}

// userChecks are U (section 11).
var userChecks = map[string]check{
	"U-1": createUser,
	"U-2": func(p *probe) {
		s := p.secured()
		for _, name := range []string{"", ".", "..", "a b", "a/b", "ü", "a*", long(65)} {
			p.ask(s, "POST /v1/users", fmt.Sprintf(`{"username":%s,"password":"x"}`, quoted(name))).is(400, "invalid argument: …")
		}
		for _, fields := range []string{`"password":""`, `"password":null`, `"grants":[]`, `"password":"` + long(73) + `"`, `"password":"` + strings.Repeat("é", 37) + `"`,
			`"password":"x","grants":[{"action":"delete","patterns":["a"]}]`, `"password":"x","grants":[{"action":"produce"}]`, `"password":"x","grants":[{"action":"produce","patterns":[]}]`,
			`"password":"x","grants":[{"action":"admin","patterns":["a"]}]`, `"password":"x","grants":[{"patterns":["a"]}]`,
			`"password":"x","grants":[{"action":"consume","patterns":["a*b"]}]`, `"password":"x","grants":[{"action":"consume","patterns":["**"]}]`,
			`"password":"x","grants":[{"action":"consume","patterns":[""]}]`, `"password":"x","grants":[{"action":"create","patterns":["a b"]}]`,
			`"password":"x","grants":[{"action":"create","patterns":["` + long(256) + `"]}]`} {
			p.ask(s, "POST /v1/users", `{"username":"u-2-refused",`+fields+`}`).is(400, "invalid argument: …")
		}
		p.ask(s, "POST /v1/users", `{"username":"u-2-refused","password":"x","root":true}`).is(400, `invalid json: json: unknown field "root"`)
		p.ask(s, "POST /v1/users", padded(`{"username":"u-2-refused","password":"x"}`, 1<<20+1)).is(400, "")
		p.ask(s, "GET /v1/users/u-2-refused", "").is(404, "user not found")
	},
	"U-3": func(p *probe) {
		s := p.secured()
		p.ask(p.newUser(s, grant("create", "*")), "POST /v1/users", `{"username":"x","password":"x"}`).is(403, textAdmin)
		p.ask(p.newUser(s, grant("admin")), "POST /v1/users", `{"username":"x","password":"x","grants":[{"action":"admin"}]}`).is(403, "cannot grant permissions you do not hold")
	},
	"U-4": func(p *probe) {
		s := p.secured()
		u := p.newUser(s)
		p.ask(s, "POST /v1/users", fmt.Sprintf(`{"username":%q,"password":"another"}`, u.user)).is(409, "user already exists")
		p.ask(u, "GET /v1/topics", "").is(200, "")
	},
	"U-5": func(p *probe) {
		s := p.secured()
		mine := []string{p.newUser(s).user, p.newUser(s).user}
		var all []user
		p.ask(s, "GET /v1/users", "").wants(200, &all)
		names := []string{}
		for _, u := range all {
			names = append(names, u.Username)
		}
		if !slices.IsSorted(names) || !slices.Contains(names, mine[0]) || !slices.Contains(names, mine[1]) || !slices.Contains(names, s.user) {
			p.Errorf("listed %v, want every user by name", names)
		}
	},
	"U-6": func(p *probe) {
		s := p.secured()
		name := p.newUser(s, grant("produce", "a", "b*")).user
		var u user
		a := p.ask(s, "GET /v1/users/"+name, "").wants(200, &u)
		if u.Username != name || u.Root || len(u.Grants) != 1 || u.Grants[0].Action != "produce" || !slices.Equal(u.Grants[0].Patterns, []string{"a", "b*"}) {
			a.fatalf("want the user as created")
		}
		p.ask(s, "GET /v1/users/missing", "").is(404, "user not found")
		p.ask(s, "GET /v1/users/"+strings.ToUpper(name), "").is(404, "user not found")
	},
	"U-7": func(p *probe) {
		s := p.secured()
		u := p.newUser(s, grant("create", "conformance-u-7-*"))
		name := p.newTopic(u)
		p.ask(s, "DELETE /v1/users/"+u.user, "").is(204, "")
		p.ask(u, "GET /v1/topics", "").is(401, textCredentials)
		p.ask(s, "GET /v1/users/"+u.user, "").is(404, "user not found")
		if d := p.describe(s, name); d.Owner != "" {
			p.Errorf("the topic's owner is %q", d.Owner)
		}
	},
	"U-8": func(p *probe) {
		s := p.secured()
		deputy := p.newUser(s, grant("admin"))
		p.ask(deputy, "DELETE /v1/users/"+s.user, "").is(403, "cannot delete the root admin")
		p.ask(s, "DELETE /v1/users/"+s.user, "").is(403, "")
		p.ask(deputy, "DELETE /v1/users/"+deputy.user, "").is(403, "cannot delete your own account")
		p.ask(deputy, "DELETE /v1/users/missing", "").is(404, "user not found")
	},
	"U-9": func(p *probe) {
		s := p.secured()
		u := p.newUser(s, grant("produce", "a"))
		line := "PUT /v1/users/" + u.user + "/grants"
		var got user
		p.ask(s, line, `{"grants":[`+grant("consume", "*")+","+grant("create", "x-*")+`]}`).wants(200, &got)
		if got.Username != u.user || len(got.Grants) != 2 || got.Grants[0].Action != "consume" || got.Grants[1].Action != "create" {
			p.Errorf("%+v, want the new grants alone", got)
		}
		p.ask(u, "GET /v1/topics", "").is(200, "") // the password is untouched
		if a := p.ask(s, line, `{"grants":[]}`).is(200, ""); slices.Contains(fieldsOf(a.body), "grants") {
			a.fatalf("grants are left")
		}
		for _, body := range []string{`{}`, `{"grants":null}`, `{"grants":{}}`, `{"grants":[{"action":"x"}]}`, `{"grants":[],"password":"x"}`, ``, padded(`{"grants":[]}`, 1<<20+1)} {
			p.ask(s, line, body).is(400, "")
		}
	},
	"U-10": func(p *probe) {
		s := p.secured()
		deputy, u := p.newUser(s, grant("admin")), p.newUser(s)
		p.ask(deputy, "PUT /v1/users/"+deputy.user+"/grants", `{"grants":[]}`).is(403, "cannot modify your own grants")
		p.ask(deputy, "PUT /v1/users/"+s.user+"/grants", `{"grants":[]}`).is(403, "cannot modify the root admin's grants")
		p.ask(deputy, "PUT /v1/users/"+u.user+"/grants", `{"grants":[{"action":"admin"}]}`).is(403, "cannot grant permissions you do not hold")
		p.ask(deputy, "PUT /v1/users/missing/grants", `{"grants":[]}`).is(404, "user not found")
	},
	"U-11": func(p *probe) {
		s := p.secured()
		u := p.newUser(s)
		p.ask(p.newUser(s, grant("admin")), "PUT /v1/users/"+u.user+"/password", `{"new_password":"another"}`).is(204, "")
		p.ask(u, "GET /v1/topics", "").is(401, textCredentials)
		p.ask(s.as(u.user, "another"), "GET /v1/topics", "").is(200, "")
		p.ask(s, "PUT /v1/users/missing/password", `{"new_password":"another"}`).is(404, "user not found")
	},
	"U-12": func(p *probe) {
		s := p.secured()
		u := p.newUser(s)
		p.ask(u, "PUT /v1/users/"+u.user+"/password", fmt.Sprintf(`{"new_password":"another","current_password":%q}`, userPassword)).is(204, "")
		p.ask(u, "GET /v1/topics", "").is(401, textCredentials)
		p.ask(s.as(u.user, "another"), "GET /v1/topics", "").is(200, "")
	},
	"U-13": func(p *probe) {
		u := p.newUser(p.secured())
		for _, body := range []string{`{"new_password":"x"}`, `{"new_password":"x","current_password":""}`, `{"new_password":"x","current_password":"wrong"}`, `{"new_password":"x","current_password":null}`} {
			p.ask(u, "PUT /v1/users/"+u.user+"/password", body).is(403, "current password is incorrect")
		}
		p.ask(u, "GET /v1/topics", "").is(200, "")
	},
	"U-14": func(p *probe) {
		s := p.secured()
		u, other := p.newUser(s), p.newUser(s)
		p.ask(p.newUser(s, grant("admin")), "PUT /v1/users/"+s.user+"/password", `{"new_password":"x"}`).is(403, "only the root admin may change its password")
		p.ask(u, "PUT /v1/users/"+other.user+"/password", `{"new_password":"x"}`).is(403, textAdmin)
		p.ask(u, "PUT /v1/users/missing/password", `{"new_password":"x"}`).is(403, textAdmin)
	},
	"U-15": func(p *probe) {
		s := p.secured()
		deputy := p.newUser(s, grant("admin"))
		p.ask(deputy, "PUT /v1/users/"+deputy.user+"/password", `{"new_password":"another"}`).is(204, "")
		p.ask(s.as(deputy.user, "another"), "GET /v1/topics", "").is(200, "")
	},
	"U-16": func(p *probe) {
		s := p.secured()
		u := p.newUser(s)
		line := "PUT /v1/users/" + u.user + "/password"
		for _, body := range []string{`{"new_password":""}`, `{}`, `{"new_password":"` + long(73) + `"}`, `{"new_password":"x","foo":1}`, padded(`{"new_password":"x"}`, 1<<20+1)} {
			p.ask(s, line, body).is(400, "")
		}
		p.ask(u, "GET /v1/topics", "").is(200, "")
		p.ask(s, line, `{"new_password":"`+long(72)+`"}`).is(204, "")
		p.ask(s.as(u.user, long(72)), "GET /v1/topics", "").is(200, "")
	},

	"LIM-1": func(p *probe) {
		s := p.secured()
		name := p.name()
		p.ask(s, "POST /v1/topics", padded(fmt.Sprintf(`{"name":%q}`, name), 1<<20)).is(201, "")
		p.ask(s, "PATCH /v1/topics/"+name, padded(`{"retention_ms":3600000}`, 1<<20+1)).is(413, "request body too large")
		p.ask(s, "POST /v1/topics", padded(`{"name":"x"}`, 1<<20+1)).is(413, "request body too large")
		for _, line := range []string{"POST /v1/users", "PUT /v1/users/missing/grants", "PUT /v1/users/missing/password"} {
			p.ask(s, line, padded(`{}`, 1<<20+1)).is(400, "")
		}
		p.dropAtEnd(name)
	},
	"H-12": func(p *probe) {
		p.ownOnly()
		s := p.secured()
		p.ask(s.anonymous(), "GET /metrics", "").is(401, textAuthRequired)
		n := p.own(append(secure(), "NARAD_HTTP_METRICS_UNAUTHENTICATED=true")...)
		n.Start()
		for _, s := range []*server{reach(n), p.open()} {
			if a := p.ask(s, "GET /metrics", ""); a.status != 200 || !strings.Contains(a.body, "narad_build_info") {
				a.fatalf("want the metrics")
			}
		}
		p.ask(reach(n), "GET /v1/topics", "").is(401, textAuthRequired)
	},
}

func createUser(p *probe) {
	s := p.secured()
	name := "AZaz09._-" + unique()
	var got user
	a := p.ask(s, "POST /v1/users", fmt.Sprintf(`{"username":%q,"password":%q,"grants":[%s]}`, name, long(72), grant("produce", "*"))).wants(201, &got)
	if want := []string{"username", "grants", "created_at_ms", "updated_at_ms"}; !slices.Equal(fieldsOf(a.body), want) || got.Username != name {
		a.fatalf("want the fields %v", want)
	}
	if age := time.Now().UnixMilli() - got.CreatedAt; age < -3_600_000 || age > 3_600_000 || got.UpdatedAt < got.CreatedAt {
		a.fatalf("want Unix milliseconds")
	}
	p.ask(s.as(name, long(72)), "GET /v1/topics", "").is(200, "")
	p.ask(s.as(name, long(73)), "GET /v1/topics", "").is(401, "") // not cut to 72
	p.ask(s, "DELETE /v1/users/"+name, "").is(204, "")
	name = strings.Repeat("u", 56) + unique()
	a = p.ask(s, "POST /v1/users", fmt.Sprintf(`{"username":%q,"password":"x","grants":null}`, name)).is(201, "")
	if slices.Contains(fieldsOf(a.body), "grants") {
		a.fatalf("want no grants")
	}
	p.ask(s, "DELETE /v1/users/"+name, "").is(204, "")
}
