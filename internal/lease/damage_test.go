package lease

import (
	"testing"

	"github.com/narad-mq/narad/internal/model"
)

// C8, F24: a long damaged stretch is resolved in one step, by runs and not by offsets,
// around what is settled and leased in it; what was given back out of it stays gone.
func TestCorruptRangeIsOneStep(t *testing.T) {
	const hwm = int64(1) << 40
	table := newTable(t, defaultCaps, model.NoPosition())
	l := mustReserve(t, table, 0, hwm, 8)
	mustSettle(t, table, model.Ack, l[3])
	for _, i := range []int{0, 5, 1, 6, 7, 2} { // an order that a filtered heap does not keep
		mustSettle(t, table, model.Nack, l[i])
	}
	n, ev := table.CorruptRange(1, hwm-2)
	if want := hwm - 2 - 1 - 2; n != want || ev.Dirty {
		t.Fatalf("resolved %d, want %d: all but the settled and the leased one; %+v", n, want, ev)
	}
	if len(table.corrupt.live()) > 3 {
		t.Fatalf("runs %v", table.corrupt.live())
	}
	got := mustReserve(t, table, 0, hwm, 3)
	if got[0].Offset != 0 || got[1].Offset != hwm-2 || got[2].Offset != hwm-1 {
		t.Fatalf("reserved %+v, want offset 0 and the two behind the damage", got)
	}
	mustSettle(t, table, model.Ack, got[0])
	if ev := mustSettle(t, table, model.Ack, l[4]); !ev.Dirty || table.Frontier() != hwm-2 {
		t.Fatalf("frontier %d after the last one out was acked, want %d", table.Frontier(), hwm-2)
	}
	if n, ev := table.CorruptRange(0, hwm-2); n != 0 || ev != (Event{}) {
		t.Fatalf("a second time: %d, %+v", n, ev)
	}
}

// The records given back beside a damaged stretch come in their order.
func TestCorruptRangeKeepsTheOrderOfWhatWasGivenBack(t *testing.T) {
	table := newTable(t, defaultCaps, model.NoPosition())
	l := mustReserve(t, table, 0, 16, 8)
	for _, i := range []int{0, 5, 1, 6, 7, 2, 3} {
		mustSettle(t, table, model.Nack, l[i])
	}
	if n, ev := table.CorruptRange(0, 2); n != 2 || !ev.Dirty || table.Frontier() != 2 {
		t.Fatalf("resolved %d, %+v, frontier %d", n, ev, table.Frontier())
	}
	for i, want := range []int64{2, 3, 5, 6, 7, 8} {
		if got := mustReserve(t, table, 0, 16, 1)[0]; got.Offset != want {
			t.Fatalf("reservation %d: offset %d, want %d", i, got.Offset, want)
		}
	}
}
