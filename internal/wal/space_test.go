package wal

import (
	"context"
	"errors"
	"testing"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// TestDiskReserveAtAnySpeed: the clock stands still, so no look by time can help, and
// appends are refused all the same before the volume is full; what was accepted and
// has no copy yet keeps its room as well (F14).
func TestDiskReserveAtAnySpeed(t *testing.T) {
	const capacity, reserve, size = 8 << 20, 1 << 20, 10_000
	s := disk.NewSim(1)
	o, _ := fakeOptions(s)
	o.ReserveBytes = reserve
	s.SetCapacity(capacity)
	l := mustOpen(t, o)
	n := 0
	var err error
	for ; err == nil && n < capacity/size; n++ {
		err = l.Append(context.Background(), rec(n+1, size))
	}
	if !errors.Is(err, model.ErrDiskReserve) || l.Failed() != nil {
		t.Fatalf("append %d: %v, failed %v; want ErrDiskReserve", n, err, l.Failed())
	}
	room, err := s.Space(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if owed := uint64(n * size); room.Available < reserve+owed/2 || room.Available > reserve+2*owed {
		t.Fatalf("%d bytes left after %d appends of %d: want room for the reserve and a copy of them", room.Available, n, size)
	}

	// The records are done: their copies are made elsewhere, so there is room again.
	if err := l.Advance(l.Next()); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(context.Background(), rec(int(l.Next()), 1<<20)); err != nil {
		t.Fatalf("append after everything was handed on: %v", err)
	}
	if err := l.Append(context.Background(), rec(1, 2<<20)); !errors.Is(err, model.ErrDiskReserve) {
		t.Fatalf("append of more than is left: %v, want ErrDiskReserve", err)
	}
}
