package schema

import (
	"encoding/binary"
	"hash/maphash"
)

// hasher gives equal JSON values equal hashes. The seed is random, so nobody can
// choose values that collide.
type hasher struct{ seed maphash.Seed }

func newHasher() hasher { return hasher{maphash.MakeSeed()} }

func (h hasher) sum(v value) uint64 {
	switch k := v.kind(); k {
	case kindString:
		return h.mix(uint64(k), maphash.Bytes(h.seed, v.bytes()))
	case kindNumber:
		d := v.number()
		sum := h.mix(uint64(k), d.coef^uint64(d.exp)<<1)
		if d.big != nil {
			sum = h.mix(sum, maphash.Bytes(h.seed, d.big))
		}
		if d.neg {
			sum = h.mix(sum, 1)
		}
		return sum
	case kindArray:
		sum := h.mix(uint64(k), uint64(v.len()))
		for _, it := range v.items {
			sum = h.mix(sum, h.sum(it))
		}
		return sum
	case kindObject:
		var all uint64 // a sum, for members have no order
		for name, m := range v.members {
			all += h.mix(maphash.Bytes(h.seed, name.bytes()), h.sum(m))
		}
		return h.mix(h.mix(uint64(k), uint64(v.len())), all)
	default:
		return h.mix(uint64(k), 0)
	}
}

func (h hasher) mix(a, b uint64) uint64 {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:], a)
	binary.LittleEndian.PutUint64(buf[8:], b)
	return maphash.Bytes(h.seed, buf[:])
}
