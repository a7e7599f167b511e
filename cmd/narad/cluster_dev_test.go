package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/config"
)

func TestClusterDevRefusals(t *testing.T) {
	dir := t.TempDir()
	l := devLayout{Initial: 3}
	for i := range 4 {
		l.Nodes = append(l.Nodes, devNode{ID: fmt.Sprint("n", i+1), APIPort: 20000 + 2*i, RaftPort: 20001 + 2*i})
	}
	if err := l.write(dir); err != nil {
		t.Fatal(err)
	}
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, layoutFile), []byte(`{"nodes":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	port := busy.Addr().(*net.TCPAddr).Port
	for _, tc := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"--nodes", "2"}, exitUsage, `--nodes 2: want 3 to 9; 'narad server start --dev' runs one`},
		{[]string{"--nodes", "10"}, exitUsage, `--nodes 10: want 3 to 9`},
		{[]string{"--base-port", "65530"}, exitUsage, `--base-port 65530: want 1 to 65517`},
		{[]string{"--log-level", "loud"}, exitUsage, `--log-level "loud": want debug, info, warn or error`},
		{[]string{"--dir", dir, "--nodes", "3"}, exitUsage, `holds a cluster of 4; the nodes left out would count as dead`},
		{[]string{"--dir", dir, "--base-port", "9000"}, exitUsage, `began on port 20000, which its nodes know each other by`},
		{[]string{"--dir", broken}, exitFailure, `lists 0 nodes, of which 0 formed the cluster`},
		{[]string{"--dir", t.TempDir(), "--base-port", strconv.Itoa(min(port, basePortMax))}, exitFailure, `port `},
	} {
		code, _, errOut := cli(t, "", append([]string{"cluster", "dev"}, tc.args...)...)
		if code != tc.code || !strings.Contains(errOut, tc.text) {
			t.Errorf("%v: code %d, %q; want %d, %q", tc.args, code, errOut, tc.code, tc.text)
		}
	}
}

// Every node of a layout gets settings that a node starts with, and nothing of this
// process's own.
func TestDevEnvironment(t *testing.T) {
	t.Setenv("NARAD_HTTP_METRICS_ADDR", "127.0.0.1:1")
	o := devOptions{dir: t.TempDir(), nodes: 5, logLevel: "warn"}
	l, err := openLayout(o)
	if err != nil {
		t.Fatal(err)
	}
	l.Initial = 3 // the last two joined
	for i, n := range l.Nodes {
		env := map[string]string{}
		for _, v := range l.environment(n, o, "secret") {
			name, value, _ := strings.Cut(v, "=")
			env[name] = value
		}
		c, err := config.Load(nil, func(name string) string { return env[name] })
		if err == nil {
			err = c.Validate()
		}
		if err == nil {
			err = c.CheckPosture(env["NARAD_CLUSTER_SECRET"] != "")
		}
		if err != nil {
			t.Fatalf("%s: %v", n.ID, err)
		}
		if c.HTTP.MetricsAddr != "" || c.Cluster.MayBootstrap() != (i < 3) || c.Cluster.Advertise() != n.raft() || len(c.Cluster.Peers) != 3 {
			t.Errorf("%s: %+v", n.ID, c)
		}
		if p := c.Cluster.Peers[min(i, 2)]; i < 3 && (p.RaftAddr != n.raft() || p.APIAddr != n.api()) {
			t.Errorf("%s is peer %+v", n.ID, p)
		}
	}
	again, err := openLayout(devOptions{dir: o.dir})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(again.Nodes)
	b, _ := json.Marshal(l.Nodes)
	if !bytes.Equal(a, b) {
		t.Errorf("resumed as %s, was %s", a, b)
	}
}

func TestPrefixWriter(t *testing.T) {
	var out bytes.Buffer
	w := &prefixWriter{prefix: "n1 | ", w: &out}
	for _, part := range []string{"a", "b\nc\n", "", "\n", "d"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("wrote %d of %d, %v", n, len(part), err)
		}
	}
	w.flush()
	w.flush()
	if got, want := out.String(), "n1 | ab\nn1 | c\nn1 | \nn1 | d\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	out.Reset()
	if _, err := w.Write(bytes.Repeat([]byte("x"), lineMax+1)); err != nil {
		t.Fatal(err)
	}
	if out.Len() < lineMax || len(w.rest) >= lineMax {
		t.Errorf("a line without end is kept: %d bytes of it passed on, %d kept", out.Len(), len(w.rest))
	}
}
