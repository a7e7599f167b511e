//go:build !race

package httpapi

import "testing"

// The race detector makes sync.Pool drop values, hence the build tag.

// TestAuthenticatedProduceAllocates: with cached credentials a produce allocates no
// more than without.
func TestAuthenticatedProduceAllocates(t *testing.T) {
	p, a, d := securedProduce(t)
	a.Serve(&p.req, p) // fills the cache
	allocs := testing.AllocsPerRun(200, func() {
		p.body.Reset([]byte("{}"))
		d.reset()
		a.Serve(&p.req, p)
	})
	if allocs > 2 || p.got != 202 {
		t.Errorf("%v allocations, status %d", allocs, p.got)
	}
}
