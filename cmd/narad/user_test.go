package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/testutil"
)

// Users, grants and schemas through the command, against a node that asks for
// passwords; no secret is ever printed.
func TestUserAndSchemaCommands(t *testing.T) {
	noLogin(t)
	node := testutil.NewNode(t, t.TempDir())
	node.Env = []string{"NARAD_SECURITY_ENABLED=true", "NARAD_ADMIN_PASSWORD=root-s3cret"}
	node.Start()
	must(t, "root-s3cret\n", "ctx", "add", "root", "-s", node.URL, "-u", "admin", "--password-stdin")

	out, _ := must(t, "svc-s3cret\n", "user", "add", "svc", "--grant", "produce:orders,invoices-*", "--grant", "consume:orders", "--user-password-stdin")
	want(t, "user add", out, `(?s)\{\n  "username": "svc",\n  "grants": \[.*"invoices-\*".*\}\n`)
	out, errOut := must(t, "", "user", "ls")
	want(t, "user ls", out, `(?s)\[\n.*"admin".*"root": true.*"svc".*\]\n`)
	if all := out + errOut; strings.Contains(all, "s3cret") {
		t.Errorf("a password was printed: %s", all)
	}
	out, _ = must(t, "", "user", "grant", "svc", "--grant", "produce:orders")
	if strings.Contains(out, "consume") {
		t.Errorf("user grant did not replace the grants: %s", out)
	}

	schema := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(schema, []byte(`{"type":"object","required":["id"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "", "topic", "create", "orders", "--schema", "@"+schema)
	code, _, errOut := cli(t, "", "produce", "orders", `{"x":1}`, "-u", "svc", "-p", "svc-s3cret")
	want(t, "a payload the schema refuses", errOut, `(?s)narad: produce to "orders".*jsonschema validation failed with 'narad://schema/orders/1#'\n- at '': missing property 'id'\n`)
	if code != exitFailure {
		t.Errorf("a payload the schema refuses: exit code %d, want %d", code, exitFailure)
	}
	must(t, "", "produce", "orders", `{"id":1}`, "-u", "svc", "-p", "svc-s3cret")
	code, _, errOut = cli(t, "", "consume", "orders", "-u", "svc", "-p", "svc-s3cret")
	want(t, "consume without the grant", errOut, `narad: consume "orders": narad: 403: consume not allowed on this topic\n`)
	if code != exitFailure {
		t.Errorf("consume without the grant: exit code %d, want %d", code, exitFailure)
	}
	_, _, errOut = cli(t, "", "topic", "alter", "orders", "--schema", `{"type":"object"}`, "--schema-base-version", "7")
	want(t, "a stale base version", errOut, `narad: alter topic "orders": .*schema version conflict: schema_base_version 7 does not match the current version 1 of "orders"\n`)
	must(t, `{"type":"object"}`, "topic", "alter", "orders", "--schema", "-", "--schema-base-version", "1")
	out, _ = must(t, "", "topic", "schema", "orders", "--current")
	want(t, "topic schema --current", out, `\{\n  "type": "object"\n\}\n`)
	out, _ = must(t, "", "topic", "schema", "orders")
	want(t, "topic schema", out, `(?s)\{\n  "topic": "orders",\n  "version": 2,.*\}\n`)

	must(t, "new-s3cret\n", "user", "password", "svc", "--user-password-stdin")
	_, _, errOut = cli(t, "", "topic", "list", "-u", "svc", "-p", "svc-s3cret")
	want(t, "the old password", errOut, `narad: list topics: narad: 401: invalid credentials\n`)
	must(t, "", "topic", "list", "-u", "svc", "-p", "new-s3cret")
	must(t, "own-s3cret\n", "user", "password", "svc", "-u", "svc", "-p", "new-s3cret", "--user-password-stdin")
	must(t, "", "user", "rm", "svc")
	_, _, errOut = cli(t, "", "user", "rm", "svc")
	want(t, "a user that is gone", errOut, `narad: remove user "svc": narad: 404: user not found\n`)
	for _, args := range [][]string{
		{"user", "add", "x"}, {"user", "add", "x", "--user-password", "p", "--grant", "own:x"}, {"user", "grant", "x"},
		{"user", "add", "x", "--user-password-stdin", "--password-stdin"}, {"topic", "create", "x", "--schema", "{"},
	} {
		if code, _, errOut := cli(t, "", args...); code != exitUsage {
			t.Errorf("narad %v: exit code %d, want %d: %s", args, code, exitUsage, errOut)
		}
	}
}
