package metastore

import (
	"log/slog"
	"strings"
	"testing"
)

// A node that moved says so: at error when peers would miss it, at info when it is
// alone on loopback, not at all when nothing changed.
func TestRecordedAddress(t *testing.T) {
	t.Parallel()
	const text = "raft configuration records this node at an address other than the one it advertises"
	c := newCluster(t, 2, nil)
	said := func(i int, edit func(*Options)) string {
		t.Helper()
		var log syncBuffer
		c.restart(i, func(o *Options) {
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			edit(o)
		})
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, text) {
				return line
			}
		}
		return ""
	}
	if line := said(1, func(*Options) {}); line != "" {
		t.Errorf("unmoved, and said %s", line)
	}
	line := said(1, func(o *Options) { o.Advertise = "elsewhere:7943" })
	for _, want := range []string{"level=ERROR", "node=narad-1", "recorded_addr=narad-1:7943", "advertise_addr=elsewhere:7943", "other_servers=1"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q lacks %s", line, want)
		}
	}

	dir := t.TempDir()
	must(t, openStore(t, dir).Close())
	var log syncBuffer
	openStore(t, dir, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	if !strings.Contains(log.String(), `level=INFO msg="`+text) || !strings.Contains(log.String(), "other_servers=0") {
		t.Errorf("alone on loopback, said %s", log.String())
	}
	for addr, want := range map[string]bool{"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true, "10.0.0.1:1": false, "host:1": false, "": false} {
		if isLoopback(addr) != want {
			t.Errorf("%q is loopback: %t", addr, !want)
		}
	}
}
