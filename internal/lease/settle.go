package lease

import (
	"slices"

	"github.com/narad-mq/narad/internal/model"
)

// keptEntries is how many entries a structure of a table with no lease may keep
// room for.
const keptEntries = 64

// Settle applies op to the lease that (offset, nonce) names; false means no live
// lease has that pair, and nothing was settled. Expiry is judged first, so a lease
// that is due at now no longer settles; the event holds either way, because what
// expired here may be what somebody waits for (spec/consume sections 4 and 5.3).
func (t *Table) Settle(now int64, op model.SettleOp, offset, nonce int64) (Event, bool) {
	was := t.blocked()
	expired := t.purge(now)
	l, ok := t.find(offset, nonce)
	if !ok {
		return Event{Wake: expired}, false
	}
	switch op {
	case model.Ack:
		t.drop(offset)
		t.resolve(&t.ahead, offset)
		return Event{Dirty: true, Wake: expired || was && !t.blocked()}, true
	case model.Extend:
		t.start(now, offset, l)
		t.compact()
		return Event{Wake: expired}, true
	case model.Nack:
		t.giveBack(offset, l.count)
		return Event{Wake: true}, true
	}
	return Event{Wake: expired}, false
}

// Release gives a reservation back as if it had never been made: the delivery is
// not counted. For reservations that reached no consumer.
func (t *Table) Release(offset, nonce int64) (Event, bool) {
	l, ok := t.find(offset, nonce)
	if !ok {
		return Event{}, false
	}
	t.giveBack(offset, l.count-1)
	return Event{Wake: true}, true
}

// Corrupt resolves a leased record that can never be read. The caller counts and
// logs it (invariant C8).
func (t *Table) Corrupt(offset, nonce int64) (Event, bool) {
	if _, ok := t.find(offset, nonce); !ok {
		return Event{}, false
	}
	was, committed := t.blocked(), t.committed
	t.drop(offset)
	t.resolve(&t.corrupt, offset)
	return Event{Dirty: t.committed != committed, Wake: was && !t.blocked()}, true
}

// CorruptRange resolves every offset of [from, to) that is neither resolved nor leased,
// and says how many there were: what lies behind a record that can never be read, when
// a whole stretch of the log is damaged. It takes time by the number of runs and
// returned records, not of offsets. The caller counts and logs it (invariant C8).
func (t *Table) CorruptRange(from, to int64) (n int64, ev Event) {
	was, committed := t.blocked(), t.committed
	kept := t.returned[:0]
	for _, r := range t.returned {
		if r.offset < from || r.offset >= to {
			kept = append(kept, r)
			continue
		}
		t.corrupt.add(r.offset)
		n++
	}
	t.returned = kept
	t.returned.fix()
	for x := max(from, t.next); x < to; {
		if y := t.corrupt.skip(t.ahead.skip(x)); y != x {
			x = y
			continue
		}
		end := min(to, t.ahead.next(x), t.corrupt.next(x))
		t.corrupt.addRun(model.Run{Start: x, End: end})
		n += end - x
		x = end
	}
	t.advance()
	return n, Event{Dirty: t.committed != committed, Wake: was && !t.blocked()}
}

// Jump moves the frontier to oldest, the log's oldest retained offset, when it is
// behind: everything below is gone, leases included. from is the frontier it
// left; moved is false when there was no gap. The caller counts and logs it.
func (t *Table) Jump(oldest int64) (from int64, moved bool, ev Event) {
	from = t.Frontier()
	if oldest <= from {
		return from, false, Event{}
	}
	for offset := range t.leases {
		if offset < oldest {
			delete(t.leases, offset)
		}
	}
	for len(t.returned) > 0 && t.returned[0].offset < oldest {
		t.returned.pop()
	}
	t.ahead.trim(oldest)
	t.corrupt.trim(oldest)
	t.committed = oldest - 1
	t.advance()
	t.compact()
	return from, true, Event{Dirty: true, Wake: true}
}

// Expire ends every lease that is due and reports how many leases, and freezes,
// have ended by time since the last call, whichever call noticed them: above zero,
// wake the waiters. On a table with nothing out it also gives back the memory that
// a burst left behind.
func (t *Table) Expire(now int64) int {
	t.purge(now)
	n := t.lapsed
	t.lapsed = 0
	if len(t.leases) == 0 {
		t.shrink()
	}
	return n
}

// NextExpiry is when Expire next has something to report; false means never, as
// things stand. The instant lies in the past when another call noticed it first.
func (t *Table) NextExpiry() (at int64, ok bool) {
	if t.lapsed > 0 {
		return t.lapsedAt, true
	}
	for len(t.due) > 0 && !t.live(t.due[0]) {
		t.due.pop()
	}
	switch {
	case len(t.due) > 0 && t.frozen:
		return min(t.due[0].expires, t.thawsAt), true
	case len(t.due) > 0:
		return t.due[0].expires, true
	}
	return t.thawsAt, t.frozen
}

// purge ends what is due at now and reports whether anything was.
func (t *Table) purge(now int64) bool {
	before := t.lapsed
	if t.frozen && now >= t.thawsAt {
		t.frozen = false
		t.noteLapse(t.thawsAt)
	}
	for len(t.due) > 0 && t.due[0].expires <= now {
		d := t.due.pop()
		if !t.live(d) {
			continue
		}
		l := t.leases[d.offset]
		delete(t.leases, d.offset)
		t.returned.push(returned{offset: d.offset, count: l.count})
		t.noteLapse(d.expires)
	}
	return t.lapsed > before
}

func (t *Table) noteLapse(at int64) {
	if t.lapsed == 0 {
		t.lapsedAt = at
	}
	t.lapsed++
}

func (t *Table) find(offset, nonce int64) (lease, bool) {
	l, ok := t.leases[offset]
	return l, ok && l.nonce == nonce
}

// live reports whether d is the deadline that ends its lease.
func (t *Table) live(d deadline) bool {
	l, ok := t.leases[d.offset]
	return ok && l.due == d.id
}

// giveBack ends a lease and makes its record available.
func (t *Table) giveBack(offset int64, count int) {
	t.drop(offset)
	t.returned.push(returned{offset: offset, count: count})
}

// drop ends a lease and leaves a stale deadline behind.
func (t *Table) drop(offset int64) {
	delete(t.leases, offset)
	t.compact()
}

// compact drops stale deadlines once they outnumber the live ones, of which there
// is one per lease; so the heap holds at most twice the leases plus one.
func (t *Table) compact() {
	if len(t.due) <= 2*len(t.leases) {
		return
	}
	kept := t.due[:0]
	for _, d := range t.due {
		if t.live(d) {
			kept = append(kept, d)
		}
	}
	t.due = kept
	t.due.fix()
}

// resolve marks an offset settled or skipped, in set unless it is the frontier.
func (t *Table) resolve(set *runs, offset int64) {
	if offset != t.Frontier() {
		set.add(offset)
		return
	}
	t.committed = offset
	t.advance()
}

// advance moves the frontier over what is resolved above it.
func (t *Table) advance() {
	for {
		end := t.corrupt.skip(t.ahead.skip(t.Frontier()))
		if end == t.Frontier() {
			break
		}
		t.committed = end - 1
		t.ahead.trim(end)
		t.corrupt.trim(end)
	}
	t.next = max(t.next, t.Frontier())
}

// shrink gives back the memory of a burst. Every lease has had a deadline, so the
// capacity of that heap bounds the others'.
func (t *Table) shrink() {
	if cap(t.due) > keptEntries {
		t.leases, t.due = nil, nil
		t.returned = slices.Clone(t.returned)
	}
	t.ahead.shrink()
	t.corrupt.shrink()
}
