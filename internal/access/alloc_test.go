//go:build !race

package access

import (
	"context"
	"testing"
)

// The race detector makes sync.Pool drop values, hence the build tag.

func TestCachedCredentialAllocatesNothing(t *testing.T) {
	a, header := cachedHeader(t)
	defer a.Close()
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := a.Authenticate(context.Background(), header); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 {
		t.Fatalf("%v allocations a request", n)
	}
}
