package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/testutil"
)

// A node that is told to stop while it still looks for its cluster, and has not come up,
// has stopped gracefully: exit code 0, at once.
func TestStopWhileProbing(t *testing.T) {
	base := freeBase(t, 3)
	first := devLayout{Initial: 3, Nodes: []devNode{{"n1", base, base + 1}, {"n2", base + 2, base + 3}, {"n3", base + 4, base + 5}}}
	cmd := exec.Command(testutil.Binary(t), "serve")
	cmd.Env = first.environment(first.Nodes[0], devOptions{dir: t.TempDir(), logLevel: "info"}, "secret")
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	testutil.Eventually(t, time.Minute, func() bool {
		return strings.Contains(out.String(), "raft metadata transport is plaintext") // the probe follows
	}, "its start")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v\n%s", err, out.String())
		}
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Signal(os.Kill)
		t.Fatalf("it did not end\n%s", out.String())
	}
	if !strings.Contains(out.String(), "narad serve stopped") {
		t.Errorf("it did not say so\n%s", out.String())
	}
}
