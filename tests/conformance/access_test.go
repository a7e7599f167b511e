package conformance

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/narad-mq/narad/internal/testutil"
)

const (
	textAuthRequired = "authentication required"
	textCredentials  = "invalid credentials"
	textThrottled    = "too many failed authentication attempts"
	textAdmin        = "admin privileges required"
	textProduce      = "produce not allowed on this topic"
	textConsume      = "consume not allowed on this topic"
	textCreate       = "create not allowed for this topic name"
	textRead         = "no grant on this topic"
	textManage       = "only the topic owner or an admin may modify this topic"
)

// userPassword is every user's that a check makes.
const userPassword = "conformance-user-password"

// grant is a grant in a request.
func grant(action string, patterns ...string) string {
	if len(patterns) == 0 {
		return fmt.Sprintf(`{"action":%q}`, action)
	}
	return fmt.Sprintf(`{"action":%q,"patterns":["%s"]}`, action, strings.Join(patterns, `","`))
}

// newUser makes a user for this check and returns the server asked as that user.
func (p *probe) newUser(root *server, grants ...string) *server {
	p.Helper()
	name := "u-" + strings.ToLower(p.id) + "-" + unique()
	p.ask(root, "POST /v1/users", fmt.Sprintf(`{"username":%q,"password":%q,"grants":[%s]}`, name, userPassword, strings.Join(grants, ","))).is(201, "")
	if root == p.suite.external {
		p.Cleanup(func() { p.ask(root, "DELETE /v1/users/"+name, "") }) // it may be gone already
	}
	return root.as(name, userPassword)
}

// anonymous is the same node asked without credentials.
func (s *server) anonymous() *server { return s.as("", "") }

// accessChecks are AUTH and ROOT (section 3), AZ and ESC (section 4), and the refusals of
// other sections that are about rights.
var accessChecks = map[string]check{
	"PIPE-3": func(p *probe) {
		s := p.secured().anonymous()
		for _, line := range []string{"GET /v1/topics", "GET /v1/nowhere", "GET /", "GET /v1/topics/", "DELETE /v1/topics/missing", "POST /healthz/x", "PUT /v1/topics", "GET /v1/users"} {
			p.ask(s, line, "", bare).is(401, textAuthRequired)
		}
		p.run(s, row{"GET /healthz", "", 200, "", nil}, row{"GET /readyz", "", 200, "", nil})
	},
	"PIPE-6": func(p *probe) {
		s := p.newUser(p.secured())
		p.run(s,
			row{"POST /v1/topics/missing/produce?partition=x", "", 403, textProduce, nil},
			row{"POST /v1/topics/missing/produce/batch?key=a", "not json", 403, textProduce, nil},
			row{"GET /v1/topics/missing/consume?wait=x", "", 403, textConsume, nil},
			row{"GET /v1/topics/missing/consume?max=5", "", 400, "batch consume requires…", []string{bare}},
			row{"POST /v1/topics/missing/ack?receipt_handle=x", "", 403, textConsume, nil},
			row{"POST /v1/users", "not json", 403, textAdmin, nil},
			row{"DELETE /v1/users/missing", "", 403, textAdmin, nil})
	},
	"CSRF-3": func(p *probe) {
		s := p.secured()
		p.ask(s.anonymous(), "POST /v1/topics/missing/produce", "a=b", bare, form).is(401, textAuthRequired)
		p.ask(s, "POST /v1/topics/missing/produce", "a=b", bare, form).is(415, textCrossSite)
	},

	"AUTH-1": func(p *probe) {
		s := p.secured()
		a := p.ask(s, "GET /v1/topics", "").is(200, "")
		if len(a.header["Set-Cookie"]) > 0 {
			a.fatalf("a session is set up: %v", a.header)
		}
		p.ask(s.anonymous(), "GET /v1/topics", "").is(401, "") // the connection remembers nobody
		p.ask(s.anonymous(), "GET /v1/topics", "", "Authorization: Bearer abc").is(401, textAuthRequired)
	},
	"AUTH-2": func(p *probe) {
		s := p.secured().anonymous()
		for _, h := range []string{"X-None: 1", "Authorization:", "Authorization: Basic", "Authorization: Basic !", "Authorization: Basic YWRtaW4=", "Authorization: Digest a"} {
			p.ask(s, "GET /v1/topics", "", h).is(401, textAuthRequired).has("Www-Authenticate", `Basic realm="narad"`)
		}
	},
	"AUTH-3": func(p *probe) {
		s := p.secured()
		user := p.newUser(s)
		p.ask(s.as("nobody-"+unique(), "x"), "GET /v1/topics", "").is(401, textCredentials).has("Www-Authenticate", `Basic realm="narad"`)
		p.ask(s.as(user.user, "wrong"), "GET /v1/topics", "").is(401, textCredentials).has("Www-Authenticate", `Basic realm="narad"`)
		p.ask(s.as(strings.ToUpper(user.user), userPassword), "GET /v1/topics", "").is(401, textCredentials)
		p.ask(s.as(user.user, ""), "GET /v1/topics", "").is(401, "")
		p.ask(user, "GET /v1/topics", "").is(200, "")
	},
	"AUTH-4": func(p *probe) {
		p.ourFiles()
		s := p.secured()
		user := p.newUser(s)
		hashed := false
		err := filepath.WalkDir(s.node.Dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // a file may go while we look
			}
			b, err := os.ReadFile(name)
			if err != nil {
				return nil
			}
			if bytes.Contains(b, []byte(userPassword)) || bytes.Contains(b, []byte(rootPassword)) {
				p.Errorf("%s holds a password", name)
			}
			if at := bytes.Index(b, []byte(user.user)); at >= 0 && bytes.Contains(b, []byte("$2a$10$")) {
				hashed = true
			}
			return nil
		})
		if err != nil || !hashed {
			p.Errorf("no file holds the user and a bcrypt hash of cost 10 (%v)", err)
		}
	},
	"AUTH-5": func(p *probe) {
		s := p.secured()
		user := p.newUser(s)
		topic := p.newTopic(s)
		p.ask(user, "POST /v1/topics/"+topic+"/produce", "1").is(403, textProduce)
		p.ask(s, "PUT /v1/users/"+user.user+"/grants", `{"grants":[`+grant("produce", topic)+`]}`).is(200, "")
		p.ask(user, "POST /v1/topics/"+topic+"/produce", "1").is(202, "")
		p.ask(s, "PUT /v1/users/"+user.user+"/password", `{"new_password":"another"}`).is(204, "")
		p.ask(user, "POST /v1/topics/"+topic+"/produce", "1").is(401, textCredentials)
		p.ask(s.as(user.user, "another"), "POST /v1/topics/"+topic+"/produce", "1").is(202, "")
		p.ask(s, "DELETE /v1/users/"+user.user, "").is(204, "")
		p.ask(s.as(user.user, "another"), "POST /v1/topics/"+topic+"/produce", "1").is(401, textCredentials)
	},
	"AUTH-8": func(p *probe) {
		s := p.secured()
		user, other := p.newUser(s), p.newUser(s)
		p.lockOut(user)
		p.ask(user, "GET /v1/topics", "").is(429, textThrottled) // the right password, which is not cached
		p.ask(other, "GET /v1/topics", "").is(200, "")
		if s.node != nil && !s.node.Logged("authentication throttled") {
			p.Error("the log does not say so")
		}
	},
	"AUTH-12": func(p *probe) {
		s := p.secured()
		a := p.lockOut(p.newUser(s))
		if n, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || n < 1 || n > 12 {
			a.fatalf("Retry-After %q, want 1 to 12", a.header.Get("Retry-After"))
		}
	},
	"E-429A": func(p *probe) { p.lockOut(p.newUser(p.secured())) },
	"AUTH-13": func(p *probe) {
		s := p.open()
		var got topic
		name := p.newTopic(s)
		p.ask(s, "GET /v1/topics/"+name, "").wants(200, &got)
		if got.Owner != "" {
			p.Errorf("owner %q", got.Owner)
		}
		p.ask(s.as("anybody", "x"), "GET /v1/topics", "").is(200, "") // credentials are not looked at
		user := p.newUser(s, grant("admin"))
		p.ask(s, "PUT /v1/users/"+user.user+"/grants", `{"grants":[]}`).is(200, "")
		p.ask(s, "PUT /v1/users/"+user.user+"/password", `{"new_password":"x"}`).is(204, "")
		p.ask(s, "GET /v1/users/"+user.user, "").is(200, "")
		p.ask(s, "DELETE /v1/users/"+user.user, "").is(204, "")
	},

	"ROOT-1": func(p *probe) {
		s := p.secured()
		var u user
		p.ask(s, "GET /v1/users/admin", "").wants(200, &u)
		if u.Username != "admin" || !u.Root {
			p.Errorf("%+v, want the root admin", u)
		}
		if s.node != nil && s.user != "admin" {
			p.Errorf("the suite asks as %q", s.user)
		}
	},
	"ROOT-2": restartWithAnotherPassword,
	"ROOT-3": generatedPassword,
	"ROOT-5": func(p *probe) {
		n := restartWithPassword(p, "another-password")
		p.eventually(func() bool { return n.Logged("NARAD_ADMIN_PASSWORD is set but ignored") }, "the warning")
		if n.Logged("another-password") || n.Logged(rootPassword) {
			p.Error("the password is logged")
		}
	},
	"ROOT-6": func(p *probe) {
		s := p.secured()
		owner := p.newUser(s, grant("create", "conformance-*"))
		name := p.newTopic(owner)
		p.produce(s, name, "", "1")
		p.take(s, name, "")
		p.ask(s, "PATCH /v1/topics/"+name, `{"partitions":4}`).is(200, "")
		p.ask(s, "DELETE /v1/topics/"+name, "").is(204, "")
		deputy := p.newUser(s, grant("admin"))
		p.ask(deputy, "PUT /v1/users/admin/grants", `{"grants":[]}`).is(403, "")
		p.ask(deputy, "DELETE /v1/users/admin", "").is(403, "")
		p.ask(deputy, "PUT /v1/users/admin/password", `{"new_password":"x"}`).is(403, "")
		p.ask(s, "GET /v1/users/admin", "").is(200, "")
	},

	"AZ-1": func(p *probe) {
		s := p.secured()
		owner := p.newUser(s, grant("create", "conformance-az-1-*"))
		name := p.newTopic(owner)
		other := "conformance-other-*"
		for _, c := range []struct {
			who *server
			may bool
		}{
			{s, true}, {owner, true}, {p.newUser(s, grant("admin")), true},
			{p.newUser(s, grant("produce", name)), true}, {p.newUser(s, grant("consume", name[:12]+"*")), true}, {p.newUser(s, grant("create", "*")), true},
			{p.newUser(s), false}, {p.newUser(s, grant("produce", other), grant("consume", strings.ToUpper(name)), grant("create", name+"-*")), false},
		} {
			for _, line := range []string{"GET /v1/topics/" + name, "HEAD /v1/topics/" + name, "GET /v1/topics/" + name + "/schema"} {
				if a := p.ask(c.who, line, ""); c.may {
					a.is(200, "")
				} else {
					a.is(403, textRead)
				}
			}
		}
		p.ask(p.newUser(s), "GET /v1/topics/missing", "").is(404, "topic not found") // whatever the grants
	},
	"AZ-2": func(p *probe) {
		s := p.secured()
		owner := p.newUser(s, grant("create", "conformance-az-2-*"))
		all := p.newUser(s, grant("create", "*"), grant("produce", "*"), grant("consume", "*"))
		for _, allowed := range []*server{owner, s, p.newUser(s, grant("admin"))} {
			name := p.newTopic(owner)
			p.ask(all, "PATCH /v1/topics/"+name, `{"partitions":4}`).is(403, textManage)
			p.ask(all, "DELETE /v1/topics/"+name, "").is(403, textManage)
			p.ask(allowed, "PATCH /v1/topics/"+name, `{"partitions":4}`).is(200, "")
			p.ask(allowed, "DELETE /v1/topics/"+name, "").is(204, "")
		}
		name := p.newTopic(owner) // owning gives neither produce nor consume
		p.ask(owner, "POST /v1/topics/"+name+"/produce", "1").is(403, textProduce)
		p.ask(owner, "GET /v1/topics/"+name+"/consume", "").is(403, textConsume)
	},
	"AZ-3": func(p *probe) {
		s := p.secured()
		mine, theirs := p.newTopic(s), p.newTopic(s)
		names, pages := p.listAll(p.newUser(s, grant("consume", mine)))
		if !slices.Equal(names, []string{mine}) || pages < 2 {
			p.Errorf("listed %v in %d pages, want only %s of at least two", names, pages, mine)
		}
		if names, _ := p.listAll(s); !slices.Contains(names, mine) || !slices.Contains(names, theirs) {
			p.Errorf("root does not see %s and %s in %v", mine, theirs, names)
		}
	},
	"AZ-10": func(p *probe) {
		s := p.secured()
		user, other := p.newUser(s, grant("create", "*"), grant("produce", "*"), grant("consume", "*")), p.newUser(s)
		for _, line := range []string{"GET /v1/users", "GET /v1/users/" + other.user, "GET /v1/users/" + user.user, "POST /v1/users", "DELETE /v1/users/" + other.user,
			"PUT /v1/users/" + other.user + "/grants", "PUT /v1/users/" + other.user + "/password"} {
			p.ask(user, line, `{"new_password":"x","grants":[]}`).is(403, textAdmin)
		}
		p.ask(user, "PUT /v1/users/"+user.user+"/password", fmt.Sprintf(`{"new_password":"x","current_password":%q}`, userPassword)).is(204, "")
	},
	"AZ-11": func(p *probe) {
		s := p.secured()
		user := p.newUser(s, grant("create", "*"), grant("produce", "*"), grant("consume", "*"))
		for _, line := range []string{"GET /v1/cluster/members", "GET /v1/cluster/moves", "POST /v1/cluster/members/x/forget"} {
			p.ask(user, line, "").is(403, textAdmin)
			p.ask(s.anonymous(), line, "").is(401, textAuthRequired)
		}
		if a := p.ask(s, "GET /v1/cluster/members?detail=true", ""); a.status != 200 || !strings.Contains(a.body, `"leader":true`) {
			a.fatalf("want the one member there is")
		}
		p.ask(s, "GET /v1/cluster/moves?detail=false", "").is(200, `{"moves":[]}`)
		for _, line := range []string{"GET /v1/cluster/members?detail=1", "GET /v1/cluster/moves?detail=1"} {
			p.ask(s, line, "").is(400, "invalid argument: detail must be true or false")
		}
	},
	"F-2": func(p *probe) {
		p.ask(p.secured(), "POST /v1/cluster/members/"+leaderID(p)+"/forget", "").is(400, "…is the raft leader itself, which cannot forget itself")
	},
	"F-3": func(p *probe) {
		p.ask(p.secured(), "POST /v1/cluster/members/nobody/forget", "").is(404, `no raft server "nobody"`)
	},
	"AZ-12": func(p *probe) {
		s := p.secured()
		if a := p.ask(p.newUser(s), "GET /metrics", ""); a.status != 200 {
			a.fatalf("want the metrics")
		}
		p.ask(s.anonymous(), "GET /metrics", "").is(401, textAuthRequired)
	},
	"AZ-23": func(p *probe) {
		s := p.secured()
		owner := p.newUser(s, grant("create", "conformance-az-23-*"))
		topics := []string{p.newTopic(owner), p.newTopic(owner)}
		p.ask(s, "DELETE /v1/users/"+owner.user, "").is(204, "")
		for _, t := range topics {
			if d := p.describe(s, t); d.Owner != "" {
				p.Errorf("%s still belongs to %q", t, d.Owner)
			}
		}
		p.ask(s, "POST /v1/users", fmt.Sprintf(`{"username":%q,"password":%q}`, owner.user, userPassword)).is(201, "")
		p.ask(owner, "DELETE /v1/topics/"+topics[0], "").is(403, textManage)
		p.ask(s, "DELETE /v1/users/"+owner.user, "").is(204, "")
	},

	"TC-5": func(p *probe) {
		s := p.secured()
		user := p.newUser(s, grant("create", "conformance-tc-5-a*"), grant("produce", "*"), grant("consume", "*"))
		p.ask(user, "POST /v1/topics", `{"name":"conformance-tc-5-b"}`).is(403, textCreate)
		p.ask(user, "POST /v1/topics", `{"name":"conformance-tc-5-A"}`).is(403, textCreate) // case counts
		name := "conformance-tc-5-a" + unique()
		p.ask(user, "POST /v1/topics", fmt.Sprintf(`{"name":%q}`, name)).is(201, "")
		p.dropAtEnd(name)
	},
	"TC-20": func(p *probe) {
		user := p.newUser(p.secured(), grant("create", "*"))
		name := p.newTopic(user, `"owner":"admin"`)
		if d := p.describe(user, name); d.Owner != user.user {
			p.Errorf("owner %q, want %q", d.Owner, user.user)
		}
	},
	"TL-3": func(p *probe) {
		s := p.secured()
		p.newTopic(s)
		p.newTopic(s)
		if names, pages := p.listAll(p.newUser(s)); len(names) != 0 || pages < 2 {
			p.Errorf("listed %v in %d pages, want nothing, in pages", names, pages)
		}
	},
	"TG-4": func(p *probe) {
		s := p.secured()
		p.ask(p.newUser(s), "GET /v1/topics/"+p.newTopic(s), "").is(403, textRead)
	},
	"TD-16": func(p *probe) {
		s := p.secured()
		name := p.newTopic(s)
		p.ask(p.newUser(s, grant("create", "*"), grant("consume", "*")), "DELETE /v1/topics/"+name, "").is(403, textManage)
		p.ask(s, "GET /v1/topics/"+name, "").is(200, "")
	},
	"P-6": func(p *probe) {
		s := p.secured()
		name := p.newTopic(s)
		user := p.newUser(s, grant("produce", name+"-*"), grant("consume", "*"), grant("create", "*"))
		p.ask(user, "POST /v1/topics/"+name+"/produce", "1").is(403, textProduce)
		p.ask(user, "POST /v1/topics/"+name+"/produce/batch", batch(`{"payload":1}`)).is(403, textProduce)
		p.ask(user, "POST /v1/topics/"+name+"-/produce", "1").is(404, "topic not found") // the prefix itself matches
		p.produce(p.newUser(s, grant("produce", name[:10]+"*")), name, "", "1")
	},
	"C-8": func(p *probe) {
		s := p.secured()
		name := p.newTopic(s)
		p.produce(s, name, "", "1")
		user := p.newUser(s, grant("consume", name+"-*"), grant("produce", "*"), grant("create", "*"))
		for _, query := range []string{"", "?wait=5s", "?partition=0&offset=0", "?max=5"} {
			p.ask(user, "GET /v1/topics/"+name+"/consume"+query, "").is(403, textConsume)
		}
		p.take(p.newUser(s, grant("consume", name)), name, "")
	},

	"ESC-1": func(p *probe) {
		s := p.secured()
		deputy, user := p.newUser(s, grant("admin")), p.newUser(s)
		const text = "cannot grant permissions you do not hold"
		p.ask(deputy, "POST /v1/users", fmt.Sprintf(`{"username":"u-%s","password":"x","grants":[%s]}`, unique(), grant("admin"))).is(403, text)
		p.ask(deputy, "PUT /v1/users/"+user.user+"/grants", `{"grants":[`+grant("admin")+`]}`).is(403, text)
		p.ask(s, "PUT /v1/users/"+user.user+"/grants", `{"grants":[`+grant("admin")+`]}`).is(200, "")
		p.ask(deputy, "PUT /v1/users/"+user.user+"/grants", `{"grants":[`+grant("admin")+","+grant("create", "*")+`]}`).is(403, text) // keeping it is giving it
		p.ask(deputy, "PUT /v1/users/"+user.user+"/grants", `{"grants":[`+grant("create", "*")+`]}`).is(200, "")
	},
	"ESC-2": func(p *probe) {
		deputy := p.newUser(p.secured(), grant("admin"))
		p.ask(deputy, "PUT /v1/users/"+deputy.user+"/grants", `{"grants":[]}`).is(403, "cannot modify your own grants")
	},
	"ESC-3": func(p *probe) {
		s := p.secured()
		deputy := p.newUser(s, grant("admin"))
		p.ask(deputy, "PUT /v1/users/"+s.user+"/grants", `{"grants":[]}`).is(403, "cannot modify the root admin's grants")
	},
	"ESC-4": func(p *probe) {
		s := p.secured()
		p.ask(p.newUser(s, grant("admin")), "DELETE /v1/users/"+s.user, "").is(403, "cannot delete the root admin")
	},
	"ESC-5": func(p *probe) {
		deputy := p.newUser(p.secured(), grant("admin"))
		p.ask(deputy, "DELETE /v1/users/"+deputy.user, "").is(403, "cannot delete your own account")
		p.ask(deputy, "GET /v1/topics", "").is(200, "")
	},
	"ESC-6": func(p *probe) {
		s := p.secured()
		p.ask(p.newUser(s, grant("admin")), "PUT /v1/users/"+s.user+"/password", `{"new_password":"x"}`).is(403, "only the root admin may change its password")
		p.ask(s, "GET /v1/topics", "").is(200, "")
		p.ask(s, "PUT /v1/users/"+s.user+"/password", fmt.Sprintf(`{"new_password":%q}`, s.password)).is(204, "")
		p.ask(s, "GET /v1/topics", "").is(200, "")
	},
	"ESC-7": func(p *probe) {
		s := p.secured()
		user, other := p.newUser(s), p.newUser(s)
		line := "PUT /v1/users/" + user.user + "/password"
		p.ask(user, "PUT /v1/users/"+other.user+"/password", fmt.Sprintf(`{"new_password":"x","current_password":%q}`, userPassword)).is(403, textAdmin)
		p.ask(user, line, `{"new_password":"x"}`).is(403, "current password is incorrect")
		p.ask(user, line, `{"new_password":"x","current_password":"wrong"}`).is(403, "current password is incorrect")
		p.ask(user, line, fmt.Sprintf(`{"new_password":"x","current_password":%q}`, userPassword)).is(204, "")
	},
}

// lockOut fails a user's logins until one is refused unseen, and returns that refusal.
func (p *probe) lockOut(user *server) *answer {
	p.Helper()
	wrong := user.as(user.user, "wrong")
	for range 5 {
		p.ask(wrong, "GET /v1/topics", "").is(401, textCredentials)
	}
	return p.ask(wrong, "GET /v1/topics", "").is(429, textThrottled)
}

// listAll pages through the topics, and counts the pages.
func (p *probe) listAll(s *server) (names []string, pages int) {
	p.Helper()
	for token := ""; ; {
		var page struct {
			Token  string  `json:"next_page_token"`
			Topics []topic `json:"topics"`
		}
		if a := p.ask(s, "GET /v1/topics?limit=1&page_token="+token, "").wants(200, &page); page.Topics == nil {
			a.fatalf("want an empty list, not null")
		}
		for _, t := range page.Topics {
			names = append(names, t.Name)
		}
		pages++
		if token = page.Token; token == "" {
			return names, pages
		}
	}
}

// asRoot is a node as its root admin, once that is there.
func (p *probe) asRoot(n *testutil.Node, password string) *server {
	p.Helper()
	s := reach(n).as("admin", password)
	p.eventually(func() bool { return p.ask(s, "GET /v1/topics", "").status == 200 }, "the root admin to be let in")
	return s
}

func restartWithPassword(p *probe, password string) *testutil.Node {
	p.Helper()
	n := p.own(secure()...)
	n.Start()
	p.asRoot(n, rootPassword)
	n.Stop()
	n.Env = append(n.Env, "NARAD_ADMIN_PASSWORD="+password)
	n.Start()
	return n
}

func restartWithAnotherPassword(p *probe) {
	n := restartWithPassword(p, "another-password")
	s := p.asRoot(n, rootPassword)
	p.ask(s.as("admin", "another-password"), "GET /v1/topics", "").is(401, textCredentials)
}

// generatedPassword: without a password from outside the node makes one, for the owner of
// its files alone, and keeps what lies where it would put it.
func generatedPassword(p *probe) {
	n := p.own("NARAD_SECURITY_ENABLED=true", "NARAD_ADMIN_PASSWORD=")
	const earlier = "of an earlier life"
	if err := os.WriteFile(filepath.Join(n.Dir, "admin-password"), []byte(earlier), 0o600); err != nil {
		p.Fatal(err)
	}
	n.Start()
	var files []string
	p.eventually(func() bool {
		files, _ = filepath.Glob(filepath.Join(n.Dir, "admin-password.*"))
		return len(files) == 1 && regexp.MustCompile(`\.[0-9]+$`).MatchString(files[0])
	}, "admin-password.<nanoseconds> to appear")
	b, err := os.ReadFile(files[0])
	if err != nil {
		p.Fatal(err)
	}
	password := strings.TrimSpace(string(b))
	p.asRoot(n, password)
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		p.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	if b, err := os.ReadFile(filepath.Join(n.Dir, "admin-password")); string(b) != earlier {
		p.Errorf("the file that was there holds %q now (%v)", b, err)
	}
	if !n.Logged("seeded root admin with a generated password") || n.Logged(password) {
		p.Error("the log must say that there is a password, and not which")
	}

	fresh := p.own("NARAD_SECURITY_ENABLED=true", "NARAD_ADMIN_PASSWORD=")
	fresh.Start()
	p.eventually(func() bool {
		b, err = os.ReadFile(filepath.Join(fresh.Dir, "admin-password"))
		return err == nil
	}, "admin-password to appear")
	p.asRoot(fresh, strings.TrimSpace(string(b)))
}

// leaderID is the member that leads.
func leaderID(p *probe) string {
	p.Helper()
	for _, m := range p.members(p.secured()) {
		if m.Leader {
			return m.ID
		}
	}
	p.Fatal("no member leads")
	return ""
}
