//go:build !linux

package cluster

import "testing"

func inside() bool { return false }

func isolate() (code int, done bool) { return 0, false }

func wire(t testing.TB, _, _ int) (string, []string) {
	t.Helper()
	t.Fatal("no namespaces here")
	return "", nil
}

// plane is a part of the traffic between nodes.
type plane []string

var allPlanes, raftPlane, rpcPlane plane

func cut(t testing.TB, _, _ string, _ plane) (mend func()) {
	t.Helper()
	t.Fatal("no cuts here")
	return nil
}
