package lease

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/narad-mq/narad/internal/model"
)

// naive is the table as the specification words it: one map entry per offset that
// is not untouched, every question answered by a scan.
type naive struct {
	caps      Caps
	committed int64
	leases    map[int64]Lease
	counts    map[int64]int  // deliveries of unresolved offsets
	acked     map[int64]bool // above committed
	corrupt   map[int64]bool // above committed
	frozen    bool
	thawsAt   int64
}

func newNaive(caps Caps, pos model.Position) *naive {
	n := &naive{caps: caps, committed: pos.Committed, leases: map[int64]Lease{},
		counts: map[int64]int{}, acked: map[int64]bool{}, corrupt: map[int64]bool{}}
	for _, r := range pos.Ahead {
		for o := r.Start; o < r.End; o++ {
			n.acked[o] = true
		}
	}
	n.advance()
	return n
}

func (n *naive) purge(now int64) (ended int) {
	for o, l := range n.leases {
		if l.Expires <= now {
			delete(n.leases, o)
			ended++
		}
	}
	if n.frozen && n.thawsAt <= now {
		n.frozen = false
		ended++
	}
	return ended
}

func (n *naive) free(o int64) bool {
	_, leased := n.leases[o]
	return o > n.committed && !leased && !n.acked[o] && !n.corrupt[o]
}

// next answers a reservation: the offset it takes, or why there is none.
func (n *naive) next(hwm int64) (int64, Result) {
	frontier := n.committed + 1
	if n.frozen {
		return 0, Frozen
	}
	if len(n.leases) >= n.caps.MaxInFlight {
		return 0, InFlightFull
	}
	o := frontier
	for !n.free(o) {
		o++
	}
	if o != frontier && len(n.acked) >= n.caps.MaxAckedAhead {
		return 0, AheadFull
	}
	if o < hwm {
		return o, Reserved
	}
	if len(n.leases)+len(n.acked)+len(n.corrupt) == 0 {
		return 0, Empty
	}
	return 0, AllReserved
}

func (n *naive) available(hwm int64) (count int64) {
	if _, res := n.next(hwm); res != Reserved {
		return 0
	}
	if len(n.acked) >= n.caps.MaxAckedAhead {
		return 1
	}
	for o := n.committed + 1; o < hwm; o++ {
		if n.free(o) {
			count++
		}
	}
	return min(count, int64(n.caps.MaxInFlight-len(n.leases)))
}

func (n *naive) resolve(o int64, set map[int64]bool) {
	delete(n.leases, o)
	delete(n.counts, o)
	set[o] = true
	n.advance()
}

func (n *naive) corruptRange(from, to int64) (count int64) {
	for o := from; o < to; o++ {
		if n.free(o) {
			delete(n.counts, o)
			n.corrupt[o] = true
			count++
		}
	}
	n.advance()
	return count
}

func (n *naive) advance() {
	for n.acked[n.committed+1] || n.corrupt[n.committed+1] {
		n.committed++
		delete(n.acked, n.committed)
		delete(n.corrupt, n.committed)
	}
}

func (n *naive) jump(oldest int64) {
	for _, m := range []map[int64]bool{n.acked, n.corrupt} {
		maps.DeleteFunc(m, func(o int64, _ bool) bool { return o < oldest })
	}
	maps.DeleteFunc(n.leases, func(o int64, _ Lease) bool { return o < oldest })
	maps.DeleteFunc(n.counts, func(o int64, _ int) bool { return o < oldest })
	n.committed = oldest - 1
	n.advance()
}

func (n *naive) position() model.Position {
	p := model.Position{Committed: n.committed}
	for _, o := range slices.Sorted(maps.Keys(n.acked)) {
		if k := len(p.Ahead); k > 0 && p.Ahead[k-1].End == o {
			p.Ahead[k-1].End++
			continue
		}
		p.Ahead = append(p.Ahead, model.Run{Start: o, End: o + 1})
	}
	return p
}

// pair drives a Table and its naive copy with the same operations.
type pair struct {
	real       *Table
	model      *naive
	now, hwm   int64
	ended      int     // naive's count for the next Expire
	handles    []Lease // every lease ever given out, newest last
	acked      map[int64]bool
	wasFront   int64
	maxInEver  int
	overAheads int // largest settled-ahead cap so far, or what recovery brought
}

const visibility = 30 * time.Second

func newPair(t *rapid.T) *pair {
	pos := model.NoPosition()
	if rapid.Bool().Draw(t, "recovered") {
		pos.Committed = rapid.Int64Range(-1, 5).Draw(t, "committed")
		at := pos.Committed + 1
		for range rapid.IntRange(0, 4).Draw(t, "runs") {
			at += rapid.Int64Range(1, 3).Draw(t, "gap")
			end := at + rapid.Int64Range(1, 3).Draw(t, "len")
			pos.Ahead = append(pos.Ahead, model.Run{Start: at, End: end})
			at = end
		}
	}
	caps := drawCaps(t)
	p := &pair{real: New(caps, pos, NewNonces([32]byte{1})), model: newNaive(caps, pos),
		hwm: rapid.Int64Range(0, 10).Draw(t, "hwm"), acked: map[int64]bool{}}
	p.wasFront = p.real.Frontier()
	p.noteCaps(caps)
	p.overAheads = max(p.overAheads, len(p.model.acked))
	return p
}

func drawCaps(t *rapid.T) Caps {
	return Caps{MaxInFlight: rapid.IntRange(1, 6).Draw(t, "in flight"),
		MaxAckedAhead: rapid.IntRange(1, 6).Draw(t, "ahead"), Visibility: visibility}
}

func (p *pair) noteCaps(c Caps) {
	p.maxInEver = max(p.maxInEver, c.MaxInFlight)
	p.overAheads = max(p.overAheads, c.MaxAckedAhead)
}

func (p *pair) touch() { p.ended += p.model.purge(p.now) }

// handle draws a lease, live or dead, and now and then a forged nonce.
func (p *pair) handle(t *rapid.T) Lease {
	if len(p.handles) == 0 {
		return Lease{Offset: 0, Nonce: 1}
	}
	back := rapid.IntRange(0, min(len(p.handles), 12)-1).Draw(t, "handle")
	l := p.handles[len(p.handles)-1-back]
	if rapid.IntRange(0, 9).Draw(t, "forge") == 0 {
		l.Nonce++
	}
	return l
}

func (p *pair) lives(l Lease) bool { return p.model.leases[l.Offset].Nonce == l.Nonce }

func (p *pair) reserve(t *rapid.T) {
	p.touch()
	limit := rapid.IntRange(1, 4).Draw(t, "limit")
	got, res := p.real.ReserveRun(nil, p.now, p.hwm, limit)
	for i := range limit {
		o, want := p.model.next(p.hwm)
		if want != Reserved {
			if len(got) != i || res != want {
				t.Fatalf("reserve: %d leases then %v, want %d then %v", len(got), res, i, want)
			}
			return
		}
		if i >= len(got) {
			t.Fatalf("reserve: stopped with %v after %d, want offset %d", res, i, o)
		}
		p.model.counts[o]++
		want2 := Lease{Offset: o, Nonce: got[i].Nonce, Expires: p.now + int64(visibility), Count: p.model.counts[o]}
		if got[i] != want2 || got[i].Nonce <= 0 {
			t.Fatalf("reserve: %+v, want %+v", got[i], want2)
		}
		if o >= p.hwm {
			t.Fatalf("C1: offset %d handed out at high watermark %d", o, p.hwm)
		}
		if p.acked[o] {
			t.Fatalf("C5: offset %d handed out after its ack", o)
		}
		p.model.leases[o] = got[i]
		p.handles = append(p.handles, got[i])
	}
	if res != Reserved || len(got) != limit {
		t.Fatalf("reserve: %d leases, %v; want %d", len(got), res, limit)
	}
}

func (p *pair) settle(t *rapid.T, op model.SettleOp) {
	avail := p.model.available(p.hwm)
	p.touch()
	l := p.handle(t)
	live := p.lives(l)
	ev, ok := p.real.Settle(p.now, op, l.Offset, l.Nonce)
	if ok != live {
		t.Fatalf("C3: %v of %+v answered %v, live %v", op, l, ok, live)
	}
	if ev.Dirty != (live && op == model.Ack) {
		t.Fatalf("%v: dirty %v", op, ev.Dirty)
	}
	if live {
		switch op {
		case model.Ack:
			p.acked[l.Offset] = true
			p.model.resolve(l.Offset, p.model.acked)
		case model.Nack:
			delete(p.model.leases, l.Offset)
		case model.Extend:
			ext := p.model.leases[l.Offset]
			ext.Expires = p.now + int64(visibility)
			p.model.leases[l.Offset] = ext
		}
	}
	p.mustWake(t, avail, ev)
}

// mustWake: whoever parked because nothing was available is told when something is.
func (p *pair) mustWake(t *rapid.T, before int64, ev Event) {
	if after := p.model.available(p.hwm); before == 0 && after > 0 && !ev.Wake {
		t.Fatalf("lost wake-up: %d became available", after)
	}
}

func (p *pair) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"reserve": p.reserve,
		"ack":     func(t *rapid.T) { p.settle(t, model.Ack) },
		"ack2":    func(t *rapid.T) { p.settle(t, model.Ack) },
		"extend":  func(t *rapid.T) { p.settle(t, model.Extend) },
		"nack":    func(t *rapid.T) { p.settle(t, model.Nack) },
		"commit":  func(t *rapid.T) { p.hwm += rapid.Int64Range(1, 5).Draw(t, "n") },
		"pass": func(t *rapid.T) {
			p.now += rapid.Int64Range(0, int64(2*visibility)).Draw(t, "d")
		},
		"release": func(t *rapid.T) {
			l := p.handle(t)
			ev, ok := p.real.Release(l.Offset, l.Nonce)
			if live := p.lives(l); ok != live || ev.Wake != live || ev.Dirty {
				t.Fatalf("release of %+v: %+v %v, live %v", l, ev, ok, live)
			}
			if ok {
				delete(p.model.leases, l.Offset)
				p.model.counts[l.Offset]--
			}
		},
		"corrupt": func(t *rapid.T) {
			l, avail, committed := p.handle(t), p.model.available(p.hwm), p.model.committed
			ev, ok := p.real.Corrupt(l.Offset, l.Nonce)
			if ok != p.lives(l) {
				t.Fatalf("corrupt of %+v: %v", l, ok)
			}
			if ok {
				p.model.resolve(l.Offset, p.model.corrupt)
			}
			if ev.Dirty != (committed != p.model.committed) {
				t.Fatalf("corrupt: dirty %v", ev.Dirty)
			}
			p.mustWake(t, avail, ev)
		},
		"corrupt range": func(t *rapid.T) {
			avail, committed := p.model.available(p.hwm), p.model.committed
			from := rapid.Int64Range(0, p.hwm).Draw(t, "from")
			to := rapid.Int64Range(from, p.hwm).Draw(t, "to")
			n, ev := p.real.CorruptRange(from, to)
			if want := p.model.corruptRange(from, to); n != want {
				t.Fatalf("corrupt range [%d,%d): %d, want %d", from, to, n, want)
			}
			if ev.Dirty != (committed != p.model.committed) {
				t.Fatalf("corrupt range: dirty %v", ev.Dirty)
			}
			p.mustWake(t, avail, ev)
		},
		"jump": func(t *rapid.T) {
			oldest := rapid.Int64Range(0, p.hwm).Draw(t, "oldest")
			front := p.model.committed + 1
			from, moved, ev := p.real.Jump(oldest)
			if from != front || moved != (oldest > front) || ev.Dirty != moved || ev.Wake != moved {
				t.Fatalf("jump to %d from %d: %d %v %+v", oldest, front, from, moved, ev)
			}
			if moved {
				p.model.jump(oldest)
			}
		},
		"expire": func(t *rapid.T) {
			p.touch()
			if n := p.real.Expire(p.now); n != p.ended {
				t.Fatalf("expire: %d, want %d", n, p.ended)
			}
			p.ended = 0
		},
		"caps": func(t *rapid.T) {
			avail, caps := p.model.available(p.hwm), drawCaps(t)
			ev := p.real.SetCaps(caps)
			p.model.caps = caps
			p.noteCaps(caps)
			p.mustWake(t, avail, ev)
		},
		"freeze": func(t *rapid.T) {
			p.real.Freeze(p.now, visibility/2)
			p.model.frozen, p.model.thawsAt = true, p.now+int64(visibility/2)
		},
		"thaw": func(t *rapid.T) {
			if ev := p.real.Thaw(); ev.Wake != p.model.frozen {
				t.Fatalf("thaw: %+v, frozen %v", ev, p.model.frozen)
			}
			p.model.frozen = false
		},
		"": p.check,
	}
}

// check compares all that can be seen and asserts the invariants.
func (p *pair) check(t *rapid.T) {
	r, m := p.real, p.model
	if r.Frontier() < p.wasFront {
		t.Fatalf("C4: frontier went from %d to %d", p.wasFront, r.Frontier())
	}
	p.wasFront = r.Frontier()
	got, want := r.Position(nil), m.position()
	if got.Committed != want.Committed || !slices.Equal(got.Ahead, want.Ahead) {
		t.Fatalf("position %+v, want %+v", got, want)
	}
	if r.InFlight() != len(m.leases) || r.InFlight() > p.maxInEver {
		t.Fatalf("C9: %d leases, want %d, cap was at most %d", r.InFlight(), len(m.leases), p.maxInEver)
	}
	if r.AckedAhead() != len(m.acked) || r.AckedAhead() > p.overAheads+p.maxInEver {
		t.Fatalf("C9: %d ahead, want %d", r.AckedAhead(), len(m.acked))
	}
	if a, w := r.Available(p.hwm), m.available(p.hwm); a != w {
		t.Fatalf("available %d, want %d", a, w)
	}
	if n := len(r.leases) + len(r.returned); n > p.maxInEver {
		t.Fatalf("%d unresolved offsets remembered, in-flight cap was at most %d", n, p.maxInEver)
	}
	if len(r.due) > 2*len(r.leases)+1 {
		t.Fatalf("%d deadlines for %d leases", len(r.due), len(r.leases))
	}
	p.checkNextExpiry(t)
}

// checkNextExpiry is C7's half that lives here: the purger is always told in time.
func (p *pair) checkNextExpiry(t *rapid.T) {
	at, ok := p.real.NextExpiry()
	if p.ended > 0 {
		if !ok || at > p.now {
			t.Fatalf("C7: %d ends unreported, next expiry %d %v at %d", p.ended, at, ok, p.now)
		}
		return
	}
	var times []int64
	for _, l := range p.model.leases {
		times = append(times, l.Expires)
	}
	if p.model.frozen {
		times = append(times, p.model.thawsAt)
	}
	if ok != (len(times) > 0) || ok && at != slices.MinFunc(times, cmp.Compare) {
		t.Fatalf("C7: next expiry %d %v, want the least of %v", at, ok, times)
	}
}

// TestC1C2C3C4C5C7C9Model runs random operations on a table and on its naive copy.
// C2 is implied: both hold one lease per offset and agree on which nonce lives.
func TestC1C2C3C4C5C7C9Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { t.Repeat(newPair(t).actions()) })
}
