package docs

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/testutil"
)

// scripts returns the shell blocks of a document that talk to a node; the two that
// start one or run the tests are for people.
func scripts(t *testing.T, name string) []string {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(doc), -1) {
		if s := m[1]; strings.Contains(s, "curl") || strings.Contains(s, "./narad ") {
			out = append(out, s)
		}
	}
	return out
}

// forNode rewrites a script for a node that is not where the document says, with
// commands that run until Ctrl-C given two seconds and then that signal.
func forNode(script, binary, url string) string {
	script = strings.ReplaceAll(script, "localhost:7942", strings.TrimPrefix(url, "http://"))
	script = regexp.MustCompile(`(?m)^(.*)\./narad (.*# until Ctrl-C)$`).ReplaceAllString(script, `${1}timeout --preserve-status -s INT 2 ./narad $2`)
	script = strings.ReplaceAll(script, "./narad ", binary+" ")
	// curl exits 0 on any status; a tour must not hide a refusal.
	return "set -euo pipefail\ncurl() { command curl --fail-with-body \"$@\"; }\n" + script
}

// Every line of the documents that people are told to type works.
func TestCommandsInTheDocuments(t *testing.T) {
	for _, tool := range []string{"bash", "curl", "timeout"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	for _, name := range []string{
		"README.md", "docs/quickstart.md", "docs/producing.md", "docs/consuming.md", "docs/retries.md", "docs/replay.md", "docs/fan-out.md", "docs/schemas.md",
	} {
		t.Run(name, func(t *testing.T) {
			node := testutil.NewNode(t, t.TempDir())
			node.Start()
			runScripts(t, name, node)
		})
	}
}

// The documents about users and operating talk to a node that asks for passwords, as
// the root user it made at its first start.
func TestCommandsForASecuredNode(t *testing.T) {
	for _, name := range []string{"docs/access.md", "docs/operations.md"} {
		t.Run(name, func(t *testing.T) {
			node := testutil.NewNode(t, t.TempDir())
			node.Env = []string{"NARAD_SECURITY_ENABLED=true"}
			node.Start()
			password, err := os.ReadFile(filepath.Join(node.Dir, "admin-password"))
			if err != nil {
				t.Fatal(err)
			}
			runScripts(t, name, node, "NARAD_USER=admin", "NARAD_PASS="+strings.TrimSpace(string(password)))
		})
	}
}

// The document about clusters talks to the playground that it starts.
func TestCommandsForACluster(t *testing.T) {
	url := playground(t)
	runScripts(t, "docs/clusters.md", &testutil.Node{URL: url, Dir: t.TempDir()})
}

// playground runs "narad cluster dev" and returns the URL of its first node. The ports are
// free ones in a row, which somebody else may take first: then it tries others.
func playground(t *testing.T) (url string) {
	t.Helper()
	for range 10 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		l.Close()
		cmd := exec.Command(testutil.Binary(t), "cluster", "dev", "--base-port", port)
		cmd.Stderr = os.Stderr
		cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for url == "" && lines.Scan() {
			if strings.HasPrefix(lines.Text(), "narad  cluster of 3 nodes") {
				url = "http://127.0.0.1:" + port
			}
		}
		if url == "" {
			_ = cmd.Wait()
			continue
		}
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			_, _ = io.Copy(io.Discard, out)
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Signal(os.Interrupt)
			<-drained
			if err := cmd.Wait(); err != nil {
				t.Errorf("cluster dev ended with %v", err)
			}
		})
		return url
	}
	t.Fatal("the playground did not start")
	return ""
}

// runScripts runs every block of a document against a node.
func runScripts(t *testing.T, name string, node *testutil.Node, env ...string) {
	t.Helper()
	blocks := scripts(t, name)
	if len(blocks) == 0 {
		t.Fatal("no command found: the document or this test has changed its form")
	}
	for _, block := range blocks {
		script := strings.ReplaceAll(forNode(block, testutil.Binary(t), node.URL), "/var/lib/narad", node.Dir)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, "bash", "-c", script)
		cmd.Env = append(append(os.Environ(), "NARAD_ADDR="+node.URL, "NARAD_CONFIG_DIR="+t.TempDir()), env...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			t.Errorf("%v\n%s\n--- printed:\n%s", err, block, out)
		}
	}
}
