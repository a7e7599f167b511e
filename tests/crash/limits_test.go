package crash

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
	"github.com/narad-mq/narad/tests/ledger"
)

// logLinesMax is what a minute or less of trouble may write to the log: operators are
// told, the disk is not filled.
const logLinesMax = 500

// under puts a shell's ulimit before the node.
func under(t *testing.T, limit string) []string {
	t.Helper()
	if err := exec.Command("sh", "-c", limit).Run(); err != nil {
		t.Skipf("cannot %s here: %v", limit, err)
	}
	return []string{"sh", "-c", limit + ` && exec "$@"`, "sh"}
}

// fileSizeMax is the limit of TestF17FileTooLarge: room for the databases, which grow
// in steps of 16 MiB, and for less than a segment.
const fileSizeMax = 24 << 20

// F17 with O1 O2 O9: files may not grow past a limit. Partition logs and then the WAL
// meet it: produces are refused with 500 and the cause is in the log, the process lives,
// what is stored is served, and with the limit gone nothing is missing.
func TestF17FileTooLarge(t *testing.T) {
	l := newLoad(t, t.TempDir())
	l.node.Wrap = under(t, fmt.Sprintf("ulimit -f %d", fileSizeMax/512))
	l.boot()
	l.create(client.CreateTopic{})
	if _, err := l.client().CreateTopic(t.Context(), client.CreateTopic{Name: "bulk"}); err != nil {
		t.Fatal(err)
	}
	l.mustSend("before", 30, ledger.BodyMin, client.AnyPartition)
	for _, err := range l.fill("bulk") {
		refusal(t, "produce past the file size limit", err, http.StatusInternalServerError, "internal", "produce failed")
	}
	if !l.node.Logged("file too large") {
		t.Error("the log does not name the cause")
	}
	if v := l.metric("narad_ingress_wal_failed"); v != 1 {
		t.Errorf("narad_ingress_wal_failed is %v, want 1", v)
	}
	l.settle()
	if n := len(l.node.LogLines()); n > logLinesMax {
		t.Errorf("%d lines of log", n)
	}
	l.crash()
	l.node.Wrap = nil
	l.boot()
	l.mustSend("after", 30, ledger.BodyMin, client.AnyPartition)
	l.drain()
}

// F17 with O1 O8 O9 O12: the process runs out of descriptors, for partition logs as
// well as for connections. It lives, says so, and goes on once there are some again.
func TestF17TooManyOpenFiles(t *testing.T) {
	const descriptors, partitions, connections = 64, 100, 100
	l := newLoad(t, t.TempDir())
	l.node.Wrap = under(t, fmt.Sprintf("ulimit -n %d", descriptors))
	l.boot()
	l.create(client.CreateTopic{Partitions: partitions})
	var conns []net.Conn
	for range connections {
		c, err := net.Dial("tcp", strings.TrimPrefix(l.node.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	// The client's connection was there before; new ones are not accepted now.
	accepted := 0
	for i := range 2 * partitions {
		if l.send(l.client(), fmt.Sprintf("crowded-%d", i), ledger.BodyMin, i%partitions) == nil {
			accepted++
		}
	}
	testutil.Eventually(t, patience, func() bool { return l.node.Logged("too many open files") }, "the log to name the cause")
	for _, c := range conns {
		_ = c.Close()
	}
	testutil.Eventually(t, patience, l.node.Ready, "the node to answer after the crowd left")
	l.mustSend("later", 10, ledger.BodyMin, 0)
	if n := len(l.node.LogLines()); n > logLinesMax {
		t.Errorf("%d lines of log", n)
	}
	t.Logf("%d of %d produces were accepted with %d descriptors", accepted, 2*partitions, descriptors)
	l.crash()
	l.node.Wrap = nil
	l.boot()
	l.drain()
}

// F17 with O9 O13: a data directory that cannot be written. The node refuses to start,
// says why in a few lines, and starts once it can.
func TestF17ReadOnlyDataDirectory(t *testing.T) {
	l := newLoad(t, filepath.Join(t.TempDir(), "data"))
	if err := os.Mkdir(l.node.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l.boot()
	l.create(client.CreateTopic{})
	l.mustSend("before", 30, ledger.BodyMin, client.AnyPartition)
	l.crash()
	release := testutil.ReadOnly(t, l.node.Dir)
	before := len(l.node.LogLines())
	if l.node.Launch() {
		t.Fatal("the node started")
	}
	if code := l.node.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	lines := l.node.LogLines()[before:]
	if !slices.ContainsFunc(lines, func(s string) bool { return strings.Contains(s, "read-only file system") }) || len(lines) > 20 {
		t.Errorf("%d lines of log, want a few that name the cause: %q", len(lines), lines)
	}
	release()
	l.boot()
	l.drain()
}
