package schema

import "bytes"

// SameMeaning reports whether a document says the same as another: it is the same
// JSON value, or differs only in title, description, examples, $comment, default,
// deprecated, readOnly and writeOnly where a schema stands (SC-3). Documents that do
// not decode are the same only byte by byte.
func SameMeaning(a, b []byte) bool {
	da, db, ok := decodeBoth(a, b)
	if !ok {
		return bytes.Equal(a, b)
	}
	if equal(da.root(), db.root()) {
		return true
	}
	la, errA := newLayout(da)
	lb, errB := newLayout(db)
	if errA != nil || errB != nil || la.irregular || lb.irregular || la.draft != lb.draft {
		return false // a reference may lead into what looks like an annotation
	}
	return sameSchema(la, lb, da.root(), db.root())
}

func decodeBoth(a, b []byte) (da, db *document, ok bool) {
	da, errA := decodeDocument(a)
	db, errB := decodeDocument(b)
	return da, db, errA == nil && errB == nil
}

// sameSchema compares two schemas of one draft, annotations left out.
func sameSchema(la, lb *layout, a, b value) bool {
	if a.kind() != kindObject || b.kind() != kindObject {
		return equal(a, b)
	}
	find := b.finder()
	left := 0 // members of b not yet met
	for name := range b.members {
		if !comment(name.string()) {
			left++
		}
	}
	for name, va := range a.members {
		if comment(name.string()) {
			continue
		}
		vb, ok := find(name.string())
		if left--; !ok || !sameKeyword(la, lb, name.string(), va, vb) {
			return false
		}
	}
	return left == 0
}

// comment reports whether a keyword only informs people.
func comment(name string) bool {
	k, ok := keywords[name]
	return ok && k.shape == annotation
}

// sameKeyword compares what a keyword holds: a schema, a list or a map of them, or
// data.
func sameKeyword(la, lb *layout, name string, a, b value) bool {
	k, _ := la.draft.keyword(name)
	switch {
	case k.shape == data || k.shape == annotation || k.shape == reference || a.kind() != b.kind():
		return equal(a, b)
	case k.shape == one || k.shape == oneOrList && a.kind() == kindObject:
		return sameSchema(la, lb, a, b)
	case a.kind() >= kindArray && a.len() != b.len():
		return false
	case a.kind() == kindArray:
		bs := listOf(b)
		for i, ia := range a.items {
			if !sameSchema(la, lb, ia, bs[i]) {
				return false
			}
		}
		return true
	}
	find := b.finder()
	for name, ma := range a.members {
		mb, ok := find(name.string())
		if !ok || !sameSchema(la, lb, ma, mb) {
			return false
		}
	}
	return true
}

// SameHistory reports whether two histories are the same, version by version, as
// JSON values (SC-7).
func SameHistory(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if bytes.Equal(a[i], b[i]) {
			continue
		}
		da, db, ok := decodeBoth(a[i], b[i])
		if !ok || !equal(da.root(), db.root()) {
			return false
		}
	}
	return true
}
