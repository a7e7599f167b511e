package access

import (
	"context"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/narad-mq/narad/internal/model"
)

func cachedHeader(t testing.TB) (*Authenticator, string) {
	users := newReplica()
	users.set(t, "service-orders", "a-password-of-26-letters-x", model.Grant{Action: model.ActionProduce, Patterns: []string{"orders-*"}})
	a := New(Options{Users: constant{users}, Cost: bcrypt.MinCost})
	header := basic("service-orders", "a-password-of-26-letters-x")
	if _, err := a.Authenticate(context.Background(), header); err != nil {
		t.Fatal(err)
	}
	return a, header
}

// constant is a replica whose version is one load, as the metastore's.
type constant struct{ *replica }

func (c constant) UsersVersion() uint64 { return c.version }

func BenchmarkAuthenticateCached(b *testing.B) {
	a, header := cachedHeader(b)
	defer a.Close()
	b.ReportAllocs()
	for b.Loop() {
		c, err := a.Authenticate(context.Background(), header)
		if err != nil || c.MayProduce("orders-eu") != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAuthenticateCachedParallel(b *testing.B) {
	a, header := cachedHeader(b)
	defer a.Close()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := a.Authenticate(context.Background(), header); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
