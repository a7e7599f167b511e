package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/testutil"
)

// cli runs one command line in this process.
func cli(t *testing.T, stdin string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, stdio{in: strings.NewReader(stdin), out: &o, err: &e})
	return code, o.String(), e.String()
}

// testContext is what Ctrl-C would end; it ends by itself before the test would hang.
func testContext(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(stop)
	return ctx, stop
}

// must runs a command that has to succeed and returns what it printed.
func must(t *testing.T, stdin string, args ...string) (out, errOut string) {
	t.Helper()
	code, out, errOut := cli(t, stdin, args...)
	if code != exitOK {
		t.Fatalf("narad %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errOut)
	}
	return out, errOut
}

func want(t *testing.T, what, got, pattern string) {
	t.Helper()
	if !regexp.MustCompile(`\A(?:` + pattern + `)\z`).MatchString(got) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, pattern)
	}
}

// The life of a topic through every verb, against the real binary.
func TestCommandsAgainstANode(t *testing.T) {
	node := testutil.NewNode(t, t.TempDir())
	node.Start()
	t.Setenv("NARAD_ADDR", node.URL)

	out, _ := must(t, "", "topic", "create", "orders", "--partitions", "4", "--retention", "forever", "--visibility", "1m")
	var topic map[string]any
	if err := json.Unmarshal([]byte(out), &topic); err != nil || topic["partitions"] != 4.0 || topic["retention_ms"] != 0.0 || topic["visibility_timeout_ms"] != 60000.0 {
		t.Errorf("topic create: %v, %s", err, out)
	}
	out, _ = must(t, "", "topic", "list")
	want(t, "topic list", out, `NAME    PARTITIONS  RETENTION  ROLE\norders  4           forever    -\n`)
	out, _ = must(t, "", "topic", "alter", "orders", "--retention", "48h", "--partitions", "6")
	want(t, "topic alter", out, `(?s)\{.*"partitions": 6,.*"retention_ms": 172800000,.*\}\n`)

	_, errOut := must(t, "", "produce", "orders", `{"id":1}`, "--key", "k1", "--partition", "2")
	want(t, "produce", errOut, `accepted \(8 bytes\)\n`)
	out, _ = must(t, "", "consume", "orders", "--wait", "5s")
	want(t, "consume", out, `\[p2 @0\] key=k1 \d\d:\d\d:\d\d \{"id":1\} 2:0:\d+\n`)
	handle := strings.TrimSpace(out[strings.LastIndex(out, " ")+1:])
	must(t, "", "ack", "orders", handle, "--extend")
	must(t, "", "ack", "orders", handle)
	code, _, errOut := cli(t, "", "ack", "orders", handle)
	want(t, "second ack", errOut, `narad: `+handle+`: narad: 410: receipt handle no longer matches an active reservation\n`)
	if code != exitFailure {
		t.Errorf("second ack: exit code %d, want %d", code, exitFailure)
	}

	must(t, "some text", "produce", "orders", "--partition", "2")
	out, _ = must(t, "", "consume", "orders", "--wait", "5s", "--ack", "--json")
	want(t, "consume --json", out, `\{.*"offset":1,"partition":2,"payload":"some text","receipt_handle":"2:1:\d+".*\}\n`)
	out, _ = must(t, "", "consume", "orders")
	want(t, "consume of an empty topic", out, ``)
	out, errOut = must(t, "", "replay", "orders", "--partition", "2")
	want(t, "replay", out, `\[p2 @0\] key=k1 \d\d:\d\d:\d\d \{"id":1\}\n\[p2 @1\] \d\d:\d\d:\d\d some text\n`)
	want(t, "replay", errOut, `2 message\(s\) replayed from p2 \[0, 2\)\n`)

	out, _ = must(t, "", "cluster", "members", "--detail")
	want(t, "cluster members", out, `(?s)\[\n  \{\n    "id": "n1",.*"status": "alive",.*"leader": true,.*\}\n\]\n`)
	out, _ = must(t, "", "cluster", "moves")
	want(t, "cluster moves", out, `\[\]\n`)
	if code, _, errOut = cli(t, "", "cluster", "members", "forget", "n1"); code != exitFailure || !strings.HasPrefix(errOut, `narad: forget server "n1": narad: `) {
		t.Errorf("forget of the only member: exit code %d, %s", code, errOut)
	}

	code, _, errOut = cli(t, "", "topic", "delete", "orders")
	want(t, "delete without a terminal", errOut, `narad: refusing without a terminal to ask on: pass --force\n`)
	if code != exitFailure {
		t.Errorf("delete without a terminal: exit code %d, want %d", code, exitFailure)
	}
	must(t, "", "topic", "delete", "orders", "--force")
	code, _, errOut = cli(t, "", "topic", "describe", "orders")
	want(t, "describe of a deleted topic", errOut, `narad: describe topic "orders": narad: 404: topic not found\n`)
	if code != exitFailure {
		t.Errorf("describe of a deleted topic: exit code %d, want %d", code, exitFailure)
	}
}

// A file of lines, binary bytes, and following until everything was seen.
func TestProduceLinesAndFollow(t *testing.T) {
	node := testutil.NewNode(t, t.TempDir())
	node.Start()
	must(t, "", "topic", "create", "lines", "-s", node.URL)

	file := filepath.Join(t.TempDir(), "lines")
	var b bytes.Buffer
	for range 1200 {
		b.WriteString("{\"n\":1}\n\n")
	}
	b.WriteString("\xff\xfe binary\n")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errOut := must(t, "", "produce", "lines", "-s", node.URL, "--lines", "--file", file)
	want(t, "produce --lines", errOut, `accepted 1201 messages in [0-9.]+m?s \(\d+ msg/s\)\n`)

	ctx, stop := testContext(t)
	seen := &countingWriter{until: 1201, reached: stop}
	var e bytes.Buffer
	code := run(ctx, []string{"consume", "lines", "-s", node.URL, "--follow", "--ack", "--max", "100"},
		stdio{in: strings.NewReader(""), out: seen, err: &e})
	if code != exitOK {
		t.Errorf("follow: exit code %d, want 0: %s", code, e.String())
	}
	want(t, "follow", e.String(), `(?s)1201 message\(s\)\n`)
	if !strings.Contains(seen.b.String(), "fffe2062696e617279 (9 bytes)\n") {
		t.Error("the binary line was not printed as hex with its size")
	}
}

// countingWriter calls reached once it was given so many lines.
type countingWriter struct {
	b       bytes.Buffer
	until   int
	reached func()
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.b.Write(p)
	if w.until -= bytes.Count(p, []byte("\n")); w.until <= 0 {
		w.reached()
	}
	return n, err
}

func TestBenchVerbs(t *testing.T) {
	node := testutil.NewNode(t, t.TempDir())
	node.Start()
	for _, args := range [][]string{
		{"produce", "-c", "4"}, {"produce", "-c", "2", "-b", "10", "--rate", "500"},
		{"consume", "-c", "2", "-b", "10", "--fill", "500"}, {"e2e", "-c", "4", "-b", "5"},
		{"produce", "-c", "2", "-b", "50", "--batching"}, {"consume", "-c", "2", "-b", "10", "--fill", "500", "--handlers"},
	} {
		out, _ := must(t, "", append(append([]string{"bench"}, args...), "-s", node.URL, "--json", "-d", "500ms")...)
		var r benchResult
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		if r.Benchmark != args[0] || r.Messages == 0 || r.PerSecond <= 0 || r.Max < r.P99 || r.Errors != 0 {
			t.Errorf("bench %v: %s", args, out)
		}
	}
	out, _ := must(t, "", "topic", "list", "-s", node.URL)
	want(t, "topics after the benches", out, `NAME  PARTITIONS  RETENTION  ROLE\n`)
}

func TestUsageErrorsExit64(t *testing.T) {
	for _, args := range [][]string{
		{"nosuchverb"}, {"topic", "nosuchverb"}, {"topic", "create"}, {"topic", "list", "extra"},
		{"produce", "t", "m", "--nosuchflag"}, {"produce", "t", "m", "--lines"}, {"consume", "t", "--max", "101"},
		{"ack", "t"}, {"ack", "t", "0:0:1", "--extend", "--nack"}, {"replay", "t"},
		{"topic", "create", "t", "--retention", "0"}, {"topic", "create", "t", "--retention", "soon"}, {"topic", "alter", "t"},
		{"bench", "produce", "--size", "3"}, {"bench", "e2e", "-c", "0"}, {"bench", "produce", "-b", "1001"},
		{"serve", "--addr", ":1", "--port", "1"}, {"topic", "list", "-s", "ftp://x"},
	} {
		code, _, errOut := cli(t, "", args...)
		if code != exitUsage || !strings.HasPrefix(errOut, "narad: ") {
			t.Errorf("narad %s: exit code %d, want %d; %q", strings.Join(args, " "), code, exitUsage, errOut)
		}
	}
}

func TestAServerThatIsNotThere(t *testing.T) {
	code, _, errOut := cli(t, "", "topic", "list", "-s", "http://127.0.0.1:1")
	if code != exitFailure || !strings.Contains(errOut, "127.0.0.1:1") {
		t.Errorf("exit code %d, %q: want %d and a message that names the address", code, errOut, exitFailure)
	}
}

func TestVersion(t *testing.T) {
	out, _ := must(t, "", "version")
	want(t, "version", out, `narad dev \(([0-9a-f]{12}|unknown)\)\n`)
}

func TestHelpHasAnExampleForEveryVerbThatTakesArguments(t *testing.T) {
	for _, args := range [][]string{{"produce"}, {"consume"}, {"replay"}, {"ack"}, {"topic", "create"}, {"topic", "alter"}, {"bench", "e2e"}, {"serve"}, {"server", "start"}} {
		out, _ := must(t, "", append(args, "--help")...)
		if !strings.Contains(out, "Examples:\n  ") {
			t.Errorf("narad %s --help has no example", strings.Join(args, " "))
		}
	}
}

// The startup refusals: exit code 1, a message that names the key, nothing written.
func TestServeRefusesBeforeItTouchesData(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		env  map[string]string
		want string
	}{
		{"security on, Raft open", nil, map[string]string{"NARAD_SECURITY_ENABLED": ""},
			`security is enabled and the raft transport has no TLS, but cluster.addr :7943 is not a loopback address`},
		{"no address for peers", nil, map[string]string{"NARAD_SECURITY_ENABLED": "", "NARAD_SECURITY_ALLOW_PLAINTEXT_RAFT": "true"},
			`local bind address is not advertisable`},
		{"bad key", nil, map[string]string{"NARAD_HTTP_MAX_CONSUME_WAIT": "20s"}, `http.max_consume_wait (20s) must be <= http.shutdown_grace (10s)`},
		{"bad address", []string{"--addr", "nonsense"}, nil, `http.addr "nonsense" is not host:port`},
		{"missing config", []string{"--config", "/nonexistent/narad.json"}, nil, `config: open /nonexistent/narad.json`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			t.Setenv("NARAD_SECURITY_ENABLED", "false")
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			code, _, errOut := cli(t, "", append([]string{"serve", "--data-dir", dir}, tc.args...)...)
			if code != exitFailure || !strings.Contains(errOut, tc.want) {
				t.Errorf("exit code %d, %q; want %d and %q", code, errOut, exitFailure, tc.want)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("the refused start created its data directory")
			}
		})
	}
}

// F53: a second process on the same data directory is refused and changes nothing.
func TestF53SecondProcessIsRefusedByTheLock(t *testing.T) {
	dir := t.TempDir()
	first := testutil.NewNode(t, dir)
	first.Start()
	second := testutil.NewNode(t, dir)
	if second.Launch() {
		t.Fatal("a second process started on the same data directory")
	}
	if code := second.ExitCode(); code != exitFailure {
		t.Errorf("exit code %d, want %d", code, exitFailure)
	}
	if !second.Logged("LOCK: locked by another process") {
		t.Error("the refusal does not name the lock")
	}
	if !first.Ready() {
		t.Error("the first process is not ready any more")
	}
}
