package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/testutil"
)

// securedNode is the real binary with the settings a production start needs. env is
// added to its environment.
func securedNode(t *testing.T, dir string, env ...string) *testutil.Node {
	t.Helper()
	t.Setenv(adminPassword, "")
	n := testutil.NewNode(t, dir)
	n.Env = append([]string{"NARAD_SECURITY_ENABLED="}, env...)
	return n
}

// asRoot is the status of a request with root's name and this password.
func asRoot(t *testing.T, n *testutil.Node, password, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequest("GET", n.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("admin", password)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func passwordFiles(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "admin-password*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// ROOT-1 to ROOT-3 over the real binary: security is on unless it is turned off, the
// first start makes root with a password in a file only its user reads, the log does
// not have it, and later starts make nothing.
func TestROOT3FirstStartOfASecuredNode(t *testing.T) {
	dir := t.TempDir()
	n := securedNode(t, dir)
	n.Start()
	files := passwordFiles(t, dir)
	if len(files) != 1 || filepath.Base(files[0]) != "admin-password" {
		t.Fatalf("password files: %v", files)
	}
	info, err := os.Stat(files[0])
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	password := strings.TrimSuffix(string(b), "\n")
	if status, body := asRoot(t, n, password, "/v1/users"); status != 200 || !strings.Contains(body, `[{"username":"admin","root":true,`) {
		t.Fatalf("%d %s", status, body)
	}
	if status, _ := asRoot(t, n, password+"x", "/v1/users"); status != 401 {
		t.Errorf("a wrong password: %d", status)
	}
	if status, _ := asRoot(t, n, "", "/metrics"); status != 401 {
		t.Errorf("H-12: /metrics answers %d without a password", status)
	}
	if !n.Logged("seeded root admin with a generated password", "admin-password", "n1") {
		t.Error("no line says where the password is")
	}
	if code := n.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	n.Start()
	if status, _ := asRoot(t, n, password, "/v1/users"); status != 200 {
		t.Errorf("after a restart: %d", status)
	}
	if again := passwordFiles(t, dir); len(again) != 1 {
		t.Errorf("the second start wrote %v", again)
	}
	if lines := n.LogLines(password); len(lines) > 0 {
		t.Errorf("ROOT-3: the password is in the log: %v", lines)
	}
	if lines := n.LogLines("seeded root admin"); len(lines) != 1 {
		t.Errorf("%d lines about seeding, want 1: %v", len(lines), lines)
	}
}

// ROOT-2, ROOT-5: the variable is read at the first start only.
func TestROOT2PasswordFromTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	n := securedNode(t, dir, adminPassword+"=first-secret")
	n.Start()
	if status, _ := asRoot(t, n, "first-secret", "/v1/users"); status != 200 {
		t.Fatalf("%d", status)
	}
	if files := passwordFiles(t, dir); len(files) != 0 {
		t.Errorf("password files beside a given password: %v", files)
	}
	n.Stop()
	n.Env = append(n.Env, adminPassword+"=second-secret")
	n.Start()
	if status, _ := asRoot(t, n, "first-secret", "/v1/users"); status != 200 {
		t.Errorf("the first password: %d", status)
	}
	if status, _ := asRoot(t, n, "second-secret", "/v1/users"); status != 401 {
		t.Errorf("the second password: %d", status)
	}
	if !n.Logged("NARAD_ADMIN_PASSWORD is set but ignored") {
		t.Error("ROOT-5: no warning")
	}
	if lines := append(n.LogLines("first-secret"), n.LogLines("second-secret")...); len(lines) > 0 {
		t.Errorf("a password is in the log: %v", lines)
	}
}

// A node with security off has no root, and does not look for one.
func TestAUTH13NoRootWithoutSecurity(t *testing.T) {
	dir := t.TempDir()
	n := testutil.NewNode(t, dir)
	n.Start()
	if status, body := asRoot(t, n, "", "/v1/users"); status != 200 || body != "[]\n" {
		t.Errorf("%d %s", status, body)
	}
	if files := passwordFiles(t, dir); len(files) != 0 {
		t.Errorf("password files: %v", files)
	}
}
