package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/testutil"
)

// noLogin clears what a developer's machine may have set.
func noLogin(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	t.Setenv("NARAD_CONFIG_DIR", dir)
	for _, name := range environment {
		t.Setenv(name, "")
	}
	return dir
}

func TestContexts(t *testing.T) {
	dir := noLogin(t)
	out, _ := must(t, "", "ctx", "ls")
	want(t, "no contexts", out, ``)
	out, _ = must(t, "s3cret\n", "ctx", "add", "prod", "--server", "https://narad.example.com", "--user", "ann", "--password-stdin")
	want(t, "first context", out, `context "prod" saved \(current: prod\)\n`)
	out, _ = must(t, "", "ctx", "add", "dev", "-s", "http://127.0.0.1:7942")
	want(t, "second context", out, `context "dev" saved \(current: prod\)\n`)
	out, _ = must(t, "", "ctx", "select", "dev")
	want(t, "select", out, `current context: dev\n`)
	out, errOut := must(t, "", "ctx", "ls")
	want(t, "list", out, `\* dev   http://127.0.0.1:7942 +user=-\n  prod  https://narad.example.com  user=ann\n`)
	want(t, "list", errOut, ``)

	file := filepath.Join(dir, "contexts.json")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("contexts.json: %v, mode %v, want 0600", err, info.Mode())
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	_, errOut = must(t, "", "ctx", "ls")
	want(t, "a file others can read", errOut, `warning: .*contexts.json holds passwords and others can read it: chmod 600 .*\n`)

	must(t, "", "ctx", "rm", "dev")
	out, _ = must(t, "", "ctx", "ls")
	want(t, "after removing the selected one", out, `  prod  https://narad.example.com  user=ann\n`)
	for _, args := range [][]string{{"select", "nosuch"}, {"rm", "nosuch"}} {
		code, _, errOut := cli(t, "", append([]string{"ctx"}, args...)...)
		if code != exitFailure || !strings.Contains(errOut, `no context "nosuch"`) {
			t.Errorf("ctx %v: exit code %d, %q", args, code, errOut)
		}
	}
	for _, args := range [][]string{{"add", "x"}, {"add", "a/b", "-s", "http://x"}, {"add", "x", "-s", "http://x", "-p", "a", "--password-stdin"}} {
		if code, _, errOut := cli(t, "", append([]string{"ctx"}, args...)...); code != exitUsage {
			t.Errorf("ctx %v: exit code %d, want %d: %s", args, code, exitUsage, errOut)
		}
	}
}

// Setting by setting: flag over environment over selected context over default.
func TestWhereACommandGoes(t *testing.T) {
	noLogin(t)
	resolve := func(args ...string) (login, error) {
		var r *remote
		root := newRoot(stdio{in: strings.NewReader("typed\n")})
		if err := root.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		r = &remote{stdio: stdio{in: strings.NewReader("typed\n")}, root: root}
		f := root.PersistentFlags()
		r.server, _ = f.GetString("server")
		r.user, _ = f.GetString("user")
		r.password, _ = f.GetString("password")
		r.passwordStdin, _ = f.GetBool("password-stdin")
		r.ctx, _ = f.GetString("ctx")
		return r.login()
	}
	check := func(what string, want login, args ...string) {
		t.Helper()
		got, err := resolve(args...)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", what, got, err, want)
		}
	}
	check("default", login{Server: defaultServer})
	must(t, "", "ctx", "add", "a", "-s", "http://a", "-u", "ua", "-p", "pa")
	must(t, "", "ctx", "add", "b", "-s", "http://b", "-u", "ub", "-p", "pb")
	check("selected context", login{"http://a", "ua", "pa"})
	check("named context", login{"http://b", "ub", "pb"}, "--ctx", "b")
	t.Setenv("NARAD_USER", "ue")
	check("environment over context", login{"http://a", "ue", "pa"})
	check("flags over environment", login{"http://f", "uf", "typed"}, "-s", "http://f", "-u", "uf", "--password-stdin")
	for _, name := range environment {
		t.Setenv("NARAD_USER", "")
		t.Setenv(name, "x")
		if _, err := resolve("--ctx", "b"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("--ctx with %s set: got %v, want a refusal that names it", name, err)
		}
		t.Setenv(name, "")
	}
	if _, err := resolve("--ctx", "nosuch"); err == nil {
		t.Error("--ctx of a context that does not exist: no error")
	}
}

func TestCredentialsOverPlainHTTPAreWarnedAbout(t *testing.T) {
	for server, warned := range map[string]bool{
		"http://narad.example.com": true, "narad.example.com:7942": true, "https://a,http://10.0.0.1": true,
		"https://narad.example.com": false, "http://127.0.0.1:7942": false, "http://localhost": false, "http://[::1]:1": false,
	} {
		var e strings.Builder
		r := &remote{stdio: stdio{err: &e}}
		r.warnPlain(login{Server: server, User: "ann", Password: "s3cret"})
		if got := strings.HasPrefix(e.String(), `warning: sending credentials for "ann" over plain http to `); got != warned {
			t.Errorf("%s: warned %v, want %v: %s", server, got, warned, e.String())
		}
		if strings.Contains(e.String(), "s3cret") {
			t.Errorf("%s: the warning shows the password", server)
		}
	}
}

func TestReportSubAndRaw(t *testing.T) {
	noLogin(t)
	node := testutil.NewNode(t, t.TempDir())
	node.Start()
	t.Setenv("NARAD_ADDR", node.URL)
	must(t, "", "topic", "create", "orders")
	_, errOut := must(t, "", "produce", "orders", "hello", "--partition", "1", "--count", "3", "--rate", "1000")
	want(t, "produce --count", errOut, `accepted 3 messages in .* msg/s\)\n`)
	testutil.Eventually(t, 10e9, func() bool {
		out, _ := must(t, "", "replay", "orders", "--partition", "1", "--raw")
		return out == "hello\nhello\nhello\n"
	}, "three messages to be replayed raw")
	out, _ := must(t, "", "server", "report")
	want(t, "report", out, `TOPIC +PARTS +MESSAGES +SIZE +OWNERS +ROLE\norders +3 +3 +\d+B +n1 +-\ntotal +3 +3 +\d+B +\n`)
	code, _, errOut := cli(t, "", "sub", "orders", "--from", "3")
	if code != exitUsage {
		t.Errorf("sub --from without --peek: exit code %d, want %d: %s", code, exitUsage, errOut)
	}
	for _, tc := range []struct {
		args  []string
		lines int
	}{{[]string{"sub", "orders", "--peek", "--partition", "1", "--from", "1"}, 2}, {[]string{"sub", "orders"}, 3}} {
		ctx, stop := testContext(t)
		seen := &countingWriter{until: tc.lines, reached: stop}
		var e strings.Builder
		if code := run(ctx, tc.args, stdio{in: strings.NewReader(""), out: seen, err: &e}); code != exitOK {
			t.Errorf("narad %v: exit code %d: %s", tc.args, code, e.String())
		}
		if !strings.Contains(seen.b.String(), "hello") {
			t.Errorf("narad %v printed %q", tc.args, seen.b.String())
		}
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1024: "1.0KiB", 553_677: "540.7KiB", 5 << 20: "5.0MiB", 3 << 40: "3.0TiB", 5000 << 40: "5000.0TiB"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

func TestGrantTexts(t *testing.T) {
	gs, err := parseGrants([]string{"consume:orders,invoices-*", "admin"})
	if err != nil || len(gs) != 2 || len(gs[0].Patterns) != 2 || gs[1].Patterns != nil {
		t.Errorf("got %+v, %v", gs, err)
	}
	for _, bad := range []string{"consume", "admin:x", "own:x", ""} {
		if _, err := parseGrants([]string{bad}); err == nil {
			t.Errorf("--grant %q was accepted", bad)
		}
	}
}
