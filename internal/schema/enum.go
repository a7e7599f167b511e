package schema

// enum is a list of allowed values: const, or enum. From enumHashMin values on the
// look-up is by hash (SV-7).
type enum struct {
	keyword string
	allowed []value
	hash    hasher
	byHash  map[uint64][]value // nil while the list is short
}

func newEnum(keyword string, allowed []value, h hasher) *enum {
	e := &enum{keyword: keyword, allowed: allowed, hash: h}
	if len(allowed) < enumHashMin {
		return e
	}
	e.byHash = make(map[uint64][]value, len(allowed))
	for _, v := range allowed {
		sum := h.sum(v)
		same := e.byHash[sum]
		if len(same) == 0 || !has(same, v) {
			e.byHash[sum] = append(same, v)
		}
	}
	return e
}

func (e *enum) has(v value) bool {
	if e.byHash != nil {
		return has(e.byHash[e.hash.sum(v)], v)
	}
	return has(e.allowed, v)
}

func has(list []value, v value) bool {
	for _, a := range list {
		if equal(a, v) {
			return true
		}
	}
	return false
}
