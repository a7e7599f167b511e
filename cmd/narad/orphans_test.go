package main

import (
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/disk"
)

// F27: messages, dispatched or not, keep a node without metadata from starting; the
// directories alone do not.
func TestF27RefuseOrphans(t *testing.T) {
	s := disk.NewSim(1)
	for _, dir := range []string{"data/topics", "data/ingress/produce"} {
		if err := disk.MkdirDurable(s, dir); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name string) {
		t.Helper()
		if err := disk.WriteFileAtomic(s, name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	write("data/LOCK")
	write("data/topics/stray")
	write("data/ingress/produce/dispatch.checkpoint")
	if err := refuseOrphans(s, "data"); err != nil {
		t.Fatalf("no messages: %v", err)
	}
	if err := refuseOrphans(s, "elsewhere"); err != nil {
		t.Fatalf("no directory: %v", err)
	}
	write("data/ingress/produce/00000000000000000001.wal")
	if err := refuseOrphans(s, "data"); err == nil || !strings.Contains(err.Error(), "00000000000000000001.wal") {
		t.Fatalf("undispatched messages: %v", err)
	}
	if err := s.Remove("data/ingress/produce/00000000000000000001.wal"); err != nil {
		t.Fatal(err)
	}
	if err := disk.MkdirDurable(s, "data/topics/orders/p00000"); err != nil {
		t.Fatal(err)
	}
	if err := refuseOrphans(s, "data"); err == nil || !strings.Contains(err.Error(), "orders") {
		t.Fatalf("topic data: %v", err)
	}
}
