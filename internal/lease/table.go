// Package lease is the in-flight table of one partition: which records are out
// with a consumer, which are settled, and which comes next. It is a pure state
// machine: no I/O, no clock, no goroutine and no lock. The partition that owns a
// table serialises every call and passes the time in as nanoseconds of one
// monotonic clock (spec/consume sections 4, 5 and 12).
//
// # State
//
// The frontier is the oldest unresolved offset; everything below it is settled
// or skipped. Above it an offset is in exactly one of five places: the settled
// runs (ahead), the skipped runs (corrupt), the leases, the returned heap (it was
// leased before and is free again) or, from next on, untouched. Because the
// lowest free offset is always taken first, a returned offset is only ever popped
// as the minimum, so the heap has no stale entries, and leases and returned
// together never exceed the largest in-flight cap the table has had.
//
// # Cost
//
// Reserve and an in-order ack take O(log n) and allocate nothing once the table
// has reached its working size; an out-of-order ack moves at most half of the
// settled runs, 16 bytes each. A table that was never used holds no memory of its
// own, and Expire gives the memory of a burst back.
package lease

import (
	"math"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

// Caps are the limits of a topic that a table applies. Changing them revokes no
// lease: it only stops new ones (spec/consume section 2.1).
type Caps struct {
	MaxInFlight   int           // leases at once
	MaxAckedAhead int           // settled offsets above the frontier before only the frontier is handed out
	Visibility    time.Duration // life of a lease from its start or last extension
}

// Result is the outcome of a reservation (spec/consume section 5.1).
type Result uint8

// The results of a reservation. A consume treats all but Reserved as "nothing
// here".
const (
	Reserved     Result = iota // a lease was taken
	Empty                      // every visible record is below the frontier
	AllReserved                // every visible record is leased or resolved
	InFlightFull               // Caps.MaxInFlight leases are out
	AheadFull                  // Caps.MaxAckedAhead settled offsets wait for the frontier, which is leased
	Frozen                     // a handoff froze the partition
)

func (r Result) String() string {
	switch r {
	case Reserved:
		return "reserved"
	case Empty:
		return "empty"
	case AllReserved:
		return "all_reserved"
	case InFlightFull:
		return "in_flight_full"
	case AheadFull:
		return "ahead_full"
	case Frozen:
		return "frozen"
	}
	return "unknown"
}

// Lease is one reservation of one record.
type Lease struct {
	Offset  int64
	Nonce   int64 // names this delivery; see model.Handle
	Expires int64 // first instant it is no longer live, in the caller's monotonic nanoseconds
	Count   int   // deliveries of this record so far, this one included
}

// Event says what a change means to others.
type Event struct {
	Dirty bool // Position changed: tell the offset committer, after unlocking
	Wake  bool // a record may have become available: wake waiters, after unlocking
}

// Table is the in-flight table of one partition. The owner locks it.
type Table struct {
	caps  Caps
	nonce func() int64

	committed int64 // last offset of the resolved prefix, -1 = none
	next      int64 // lowest offset never leased by this table; > committed
	leases    map[int64]lease
	due       heap[deadline] // one live entry per lease; the others are stale
	dueID     uint64         // id of the newest deadline
	returned  heap[returned]
	ahead     runs // settled, above the frontier
	corrupt   runs // skipped as unreadable, above the frontier; never persisted

	frozen  bool
	thawsAt int64 // when a freeze lapses by itself

	lapsed   int   // leases and freezes that ended by time since the last Expire
	lapsedAt int64 // when the first of them ended
}

type lease struct {
	nonce int64
	due   uint64 // id of the deadline that ends it
	count int
}

// New returns a table that continues from pos, with nothing leased. pos.Ahead is
// copied. nonce yields the secret part of each handle; see NewNonces.
func New(caps Caps, pos model.Position, nonce func() int64) *Table {
	t := &Table{caps: caps, nonce: nonce, committed: pos.Committed, next: pos.Committed + 1}
	for _, r := range pos.Ahead {
		t.ahead.append(r)
	}
	return t
}

// Reserve leases the lowest available record below hwm.
func (t *Table) Reserve(now, hwm int64) (Lease, Result) {
	t.purge(now)
	return t.reserve(now, hwm)
}

// ReserveRun leases up to limit records, at most model.ScanMessagesMax, lowest
// first, and appends them to dst. Their offsets ascend but need not be adjacent.
// The result is Reserved when limit were taken, else what stopped it.
func (t *Table) ReserveRun(dst []Lease, now, hwm int64, limit int) ([]Lease, Result) {
	t.purge(now)
	for range min(limit, model.ScanMessagesMax) {
		l, res := t.reserve(now, hwm)
		if res != Reserved {
			return dst, res
		}
		dst = append(dst, l)
	}
	return dst, Reserved
}

// reserve is steps 2 to 5 of spec/consume section 5.1.
func (t *Table) reserve(now, hwm int64) (Lease, Result) {
	if t.frozen {
		return Lease{}, Frozen
	}
	if len(t.leases) >= t.caps.MaxInFlight {
		return Lease{}, InFlightFull
	}
	offset := t.candidate()
	if offset != t.Frontier() && t.aheadFull() {
		return Lease{}, AheadFull
	}
	if offset >= hwm {
		if len(t.leases) == 0 && t.ahead.size == 0 && t.corrupt.size == 0 {
			return Lease{}, Empty
		}
		return Lease{}, AllReserved
	}
	return t.lease(now, offset), Reserved
}

// lease takes the candidate.
func (t *Table) lease(now, offset int64) Lease {
	count := 0
	if len(t.returned) > 0 && t.returned[0].offset == offset {
		count = t.returned.pop().count
	} else {
		t.next = offset + 1
	}
	if t.leases == nil {
		t.leases = make(map[int64]lease)
	}
	l := lease{nonce: t.nonce(), count: count + 1}
	return Lease{Offset: offset, Nonce: l.nonce, Expires: t.start(now, offset, l), Count: l.count}
}

// start begins a lease's time, or begins it anew, and returns when it ends.
func (t *Table) start(now, offset int64, l lease) (expires int64) {
	expires = t.expiry(now)
	t.dueID++
	l.due = t.dueID
	t.leases[offset] = l
	t.due.push(deadline{expires: expires, offset: offset, id: l.due})
	return expires
}

// candidate is the lowest offset that is neither resolved nor leased.
func (t *Table) candidate() int64 {
	if len(t.returned) > 0 {
		return t.returned[0].offset // every returned offset is below next
	}
	for {
		end := t.corrupt.skip(t.ahead.skip(t.next))
		if end == t.next {
			return end
		}
		t.next = end
	}
}

func (t *Table) aheadFull() bool { return t.ahead.size >= int64(t.caps.MaxAckedAhead) }

// blocked reports whether a cap keeps the table from handing anything out.
func (t *Table) blocked() bool {
	return len(t.leases) >= t.caps.MaxInFlight ||
		t.aheadFull() && t.candidate() != t.Frontier()
}

func (t *Table) expiry(now int64) int64 {
	if v := int64(t.caps.Visibility); now <= math.MaxInt64-v {
		return now + v
	}
	return math.MaxInt64
}

// SetCaps replaces the limits. It revokes nothing, and the visibility applies to
// leases taken or extended from now on. Wake is set when a cap was in the way.
func (t *Table) SetCaps(caps Caps) Event {
	was := t.blocked()
	t.caps = caps
	return Event{Wake: was && !t.blocked()}
}

// Freeze stops reservations until Thaw or until ttl has passed; settlements go on
// (spec/consume section 12). Freezing again restarts the ttl.
func (t *Table) Freeze(now int64, ttl time.Duration) {
	t.frozen, t.thawsAt = true, now+int64(ttl)
}

// Thaw ends a freeze.
func (t *Table) Thaw() Event {
	was := t.frozen
	t.frozen = false
	return Event{Wake: was}
}

// Frontier is the oldest unresolved offset.
func (t *Table) Frontier() int64 { return t.committed + 1 }

// Position is what may be persisted: the resolved prefix and the settled runs
// above it, copied into dst[:0]. Skipped offsets above the frontier are not part
// of it; they are found again by reading.
func (t *Table) Position(dst []model.Run) model.Position {
	return model.Position{Committed: t.committed, Ahead: append(dst[:0], t.ahead.live()...)}
}

// InFlight is the number of leases, those that are due but not yet purged included.
func (t *Table) InFlight() int { return len(t.leases) }

// AckedAhead is the number of settled offsets above the frontier.
func (t *Table) AckedAhead() int { return int(min(t.ahead.size, math.MaxInt)) }

// Available is how many records below hwm could be reserved now, leases that are
// due but not yet purged aside. It is above zero exactly when Reserve would yield
// a record.
func (t *Table) Available(hwm int64) int64 {
	room := int64(t.caps.MaxInFlight - len(t.leases))
	first := t.candidate()
	if t.frozen || room <= 0 || first >= hwm {
		return 0
	}
	if t.aheadFull() {
		if first != t.Frontier() {
			return 0
		}
		return 1
	}
	free := int64(len(t.returned))
	if hwm > t.next {
		free += hwm - t.next - t.ahead.within(t.next, hwm) - t.corrupt.within(t.next, hwm)
	}
	return min(free, room)
}

// Idle reports whether dropping the table forgets nothing but what a restart
// would: no lease, nothing settled or skipped above the frontier, no record
// whose delivery count is held, and no freeze.
func (t *Table) Idle() bool {
	return len(t.leases) == 0 && len(t.returned) == 0 && t.ahead.size == 0 && t.corrupt.size == 0 && !t.frozen
}
