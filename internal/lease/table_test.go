package lease

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/narad-mq/narad/internal/model"
)

// defaultCaps are the topic defaults of spec/consume section 20.
var defaultCaps = Caps{MaxInFlight: 1024, MaxAckedAhead: 1024, Visibility: 30 * time.Second}

const forever = math.MaxInt64

func newTable(t testing.TB, caps Caps, pos model.Position) *Table {
	t.Helper()
	return New(caps, pos, NewNonces([32]byte{7}))
}

func mustReserve(t testing.TB, table *Table, now, hwm int64, n int) []Lease {
	t.Helper()
	var out []Lease
	for len(out) < n {
		var res Result
		before := len(out)
		out, res = table.ReserveRun(out, now, hwm, n-len(out))
		if len(out) == before {
			t.Fatalf("reserve %d of %d: %v", before, n, res)
		}
	}
	return out
}

func mustSettle(t testing.TB, table *Table, op model.SettleOp, l Lease) Event {
	t.Helper()
	ev, ok := table.Settle(0, op, l.Offset, l.Nonce)
	if !ok {
		t.Fatalf("%v of offset %d: no lease", op, l.Offset)
	}
	return ev
}

// fullAhead returns a table at both caps: 1,024 leases, and 1,024 settled offsets
// in as many runs, every second offset, with the frontier leased.
func fullAhead(t testing.TB) (*Table, []Lease) {
	t.Helper()
	table := newTable(t, defaultCaps, model.NoPosition())
	var held []Lease
	for range defaultCaps.MaxAckedAhead {
		pair := mustReserve(t, table, 0, forever, 2)
		mustSettle(t, table, model.Ack, pair[1])
		if held = append(held, pair[0]); len(held) == defaultCaps.MaxInFlight-1 {
			break
		}
	}
	held = append(held, mustReserve(t, table, 0, forever, 1)...)
	return table, held
}

func TestC9AcksAreNeverRefusedForCapacity(t *testing.T) {
	table, held := fullAhead(t)
	if table.InFlight() != 1024 || len(table.ahead.live()) != 1023 {
		t.Fatalf("%d leases, %d runs", table.InFlight(), len(table.ahead.live()))
	}
	if _, res := table.Reserve(0, forever); res != InFlightFull {
		t.Fatalf("reserve at the cap: %v", res)
	}
	for _, l := range held[1:] {
		mustSettle(t, table, model.Ack, l)
	}
	if got, most := table.AckedAhead(), defaultCaps.MaxAckedAhead+defaultCaps.MaxInFlight; got > most || got != 2046 {
		t.Fatalf("%d ahead, at most %d", got, most)
	}
	if _, res := table.Reserve(0, forever); res != AheadFull {
		t.Fatalf("reserve with the settled set over its cap: %v", res)
	}
	if ev := mustSettle(t, table, model.Ack, held[0]); !ev.Wake || !ev.Dirty {
		t.Fatalf("closing the hole: %+v", ev)
	}
	if table.Frontier() != 2047 || table.AckedAhead() != 0 {
		t.Fatalf("frontier %d, %d ahead", table.Frontier(), table.AckedAhead())
	}
}

func TestReserveRunIsBounded(t *testing.T) {
	table := newTable(t, defaultCaps, model.NoPosition())
	got, res := table.ReserveRun(nil, 0, forever, 1_000_000)
	if len(got) != model.ScanMessagesMax || res != Reserved {
		t.Fatalf("%d leases, %v", len(got), res)
	}
}

func TestC14Nonces(t *testing.T) {
	a, again, b := NewNonces([32]byte{1}), NewNonces([32]byte{1}), NewNonces([32]byte{2})
	seen := map[int64]bool{}
	var ones [63]int
	const draws = 10_000
	for range draws {
		n := a()
		if n <= 0 || seen[n] {
			t.Fatalf("nonce %d is not positive or repeats", n)
		}
		seen[n] = true
		if n != again() {
			t.Fatal("one seed gave two streams")
		}
		if seen[b()] {
			t.Fatal("two seeds share a nonce")
		}
		for bit := range ones {
			ones[bit] += int(n >> bit & 1)
		}
	}
	for bit, n := range ones {
		if n < draws*45/100 || n > draws*55/100 {
			t.Errorf("bit %d is set in %d of %d nonces", bit, n, draws)
		}
	}
}

func TestC14HandleOfAnotherTableSettlesNothing(t *testing.T) {
	a := New(defaultCaps, model.NoPosition(), NewNonces([32]byte{1}))
	b := New(defaultCaps, model.NoPosition(), NewNonces([32]byte{2}))
	la, _ := a.Reserve(0, 9)
	lb, _ := b.Reserve(0, 9)
	if la.Offset != lb.Offset {
		t.Fatalf("offsets %d and %d", la.Offset, lb.Offset)
	}
	for _, op := range []model.SettleOp{model.Ack, model.Extend, model.Nack, 77} {
		if _, ok := b.Settle(0, op, la.Offset, la.Nonce); ok {
			t.Errorf("%v with a handle of another topic was taken", op)
		}
	}
	if _, ok := a.Settle(0, 77, la.Offset, la.Nonce); ok || a.InFlight() != 1 {
		t.Error("an unknown operation settled a lease")
	}
}

// TestDeliveryCountSurvives: the count is held until the record is settled.
func TestDeliveryCountSurvives(t *testing.T) {
	table := newTable(t, defaultCaps, model.NoPosition())
	now := int64(0)
	for want := 1; want <= 50; want++ {
		l, res := table.Reserve(now, 1)
		if res != Reserved || l.Count != want {
			t.Fatalf("delivery %d: %+v %v", want, l, res)
		}
		if want%2 == 0 {
			table.Settle(now, model.Nack, l.Offset, l.Nonce)
		} else {
			now = l.Expires
			table.Expire(now)
		}
	}
}

func TestFarLeaseNeverExpires(t *testing.T) {
	table := newTable(t, Caps{MaxInFlight: 1, MaxAckedAhead: 1, Visibility: time.Hour}, model.NoPosition())
	if l, _ := table.Reserve(math.MaxInt64-1, 1); l.Expires != math.MaxInt64 {
		t.Fatalf("expiry overflowed to %d", l.Expires)
	}
}

func TestPositionReusesTheBuffer(t *testing.T) {
	table := newTable(t, defaultCaps, model.Position{Committed: 4, Ahead: []model.Run{{Start: 7, End: 9}}})
	buf := make([]model.Run, 3, 8)
	pos := table.Position(buf)
	if len(pos.Ahead) != 1 || &pos.Ahead[0] != &buf[0] {
		t.Fatalf("%+v is not in the buffer", pos)
	}
	pos.Ahead[0].Start = 0
	if table.Position(nil).Ahead[0].Start != 7 {
		t.Error("the caller's buffer is the table's own")
	}
}

// TestIdleTableIsSmall bounds what one idle partition costs.
func TestIdleTableIsSmall(t *testing.T) {
	const most = 1024
	if size := unsafe.Sizeof(Table{}); size > most {
		t.Errorf("%d bytes", size)
	}
	var table *Table
	nonce := NewNonces([32]byte{})
	if n := testing.AllocsPerRun(100, func() { table = New(defaultCaps, model.NoPosition(), nonce) }); n > 1 {
		t.Errorf("a new table allocates %v times", n)
	}
	if _, res := table.Reserve(0, 0); res != Empty || table.leases != nil {
		t.Errorf("looking into an empty partition: %v, leases %v", res, table.leases)
	}
}

// TestBurstMemoryIsGivenBack: after a burst, Expire leaves no room behind.
func TestBurstMemoryIsGivenBack(t *testing.T) {
	table, held := fullAhead(t)
	for i := len(held) - 1; i >= 0; i-- {
		mustSettle(t, table, model.Ack, held[i])
	}
	table.Expire(0)
	if table.leases != nil || table.due != nil || cap(table.ahead.buf) > keptEntries {
		t.Errorf("kept: leases %v, %d deadlines, %d runs", table.leases != nil, cap(table.due), cap(table.ahead.buf))
	}
	if l, res := table.Reserve(0, forever); res != Reserved || l.Offset != table.Frontier() {
		t.Errorf("after it: %+v %v", l, res)
	}
}

// TestStaleDeadlinesAreBounded: a consumer that extends for days does not grow the heap.
func TestStaleDeadlinesAreBounded(t *testing.T) {
	table := newTable(t, defaultCaps, model.NoPosition())
	leases := mustReserve(t, table, 0, forever, 10)
	for step := int64(0); step < 10_000; step++ {
		for _, l := range leases {
			if _, ok := table.Settle(step/3, model.Extend, l.Offset, l.Nonce); !ok {
				t.Fatal("extend refused")
			}
		}
		if len(table.due) > 2*len(leases) {
			t.Fatalf("%d deadlines for %d leases", len(table.due), len(leases))
		}
	}
}

// steady are the loops the hot path lives in; each runs on a table at its caps.
func steady(t testing.TB) map[string]func() {
	inOrder := newTable(t, defaultCaps, model.NoPosition())
	ring := mustReserve(t, inOrder, 0, forever, 1024)
	oldest := 0

	holes, held := fullAhead(t)
	last := len(held) - 1

	nacks := newTable(t, defaultCaps, model.NoPosition())
	out := mustReserve(t, nacks, 0, forever, 1024)
	pick := uint32(1)

	batch := newTable(t, defaultCaps, model.NoPosition())
	mustReserve(t, batch, 0, forever, 900)
	var hundred []Lease
	return map[string]func(){
		"in-order": func() { // ack the oldest of 1,024 leases, take the next record
			mustSettle(t, inOrder, model.Ack, ring[oldest])
			ring[oldest], _ = inOrder.Reserve(0, forever)
			oldest = (oldest + 1) % len(ring)
		},
		"full-ahead": func() { // nack and take again the record behind 1,023 settled runs
			mustSettle(t, holes, model.Nack, held[last])
			held[last], _ = holes.Reserve(0, forever)
		},
		"extend": func() { mustSettle(t, holes, model.Extend, held[0]) },
		"nack-any": func() {
			pick = pick*1664525 + 1013904223
			i := pick >> 22
			mustSettle(t, nacks, model.Nack, out[i])
			out[i], _ = nacks.Reserve(0, forever)
		},
		"batch-100": func() {
			hundred, _ = batch.ReserveRun(hundred[:0], 0, forever, 100)
			for _, l := range hundred {
				mustSettle(t, batch, model.Ack, l)
			}
			if batch.AckedAhead() >= 900 { // settle nothing forever: start over
				batch.ahead.trim(forever)
			}
		},
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	for name, step := range steady(t) {
		for range 5000 {
			step() // reach the working size
		}
		if n := testing.AllocsPerRun(2000, step); n != 0 {
			t.Errorf("%s: %v allocations a step", name, n)
		}
	}
}

func BenchmarkSteady(b *testing.B) {
	for name, step := range steady(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
}

// BenchmarkScatteredAck settles 1,023 leases above a held frontier in a scattered
// order, then the frontier: the worst the settled runs see.
func BenchmarkScatteredAck(b *testing.B) {
	table := newTable(b, Caps{MaxInFlight: 1024, MaxAckedAhead: 2048, Visibility: time.Hour}, model.NoPosition())
	var leases []Lease
	b.ReportAllocs()
	for b.Loop() {
		leases = leases[:0]
		for len(leases) < 1024 {
			leases, _ = table.ReserveRun(leases, 0, forever, 1024-len(leases))
		}
		for i := 1; i < 1024; i++ {
			mustSettle(b, table, model.Ack, leases[i*389%1024])
		}
		mustSettle(b, table, model.Ack, leases[0])
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1024, "ns/message")
}
