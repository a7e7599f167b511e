package schema

// same reports whether two schemas are the same, references followed and annotations
// left out. Pairs met again are taken to be the same: if nothing else differs, they
// are.
func (c *comparer) same(o, n value) bool {
	key := pair{o.i, n.i}
	if c.alike[key] || c.unlike[key] {
		return c.alike[key]
	}
	seen := map[pair]bool{}
	if !c.sameSchema(o, n, seen) || c.work <= 0 {
		c.unlike[key] = true
		return false
	}
	for p := range seen {
		c.alike[p] = true
	}
	return true
}

func (c *comparer) sameSchema(o, n value, seen map[pair]bool) bool {
	key := pair{o.i, n.i}
	c.work--
	switch {
	case c.work <= 0 || c.unlike[key]:
		return false
	case c.alike[key] || seen[key]:
		return true
	}
	seen[key] = true
	o, oldLoop := c.skipRefs(c.old, o)
	n, newLoop := c.skipRefs(c.next, n)
	if oldLoop || newLoop {
		return oldLoop && newLoop
	}
	if o.kind() != n.kind() {
		return false
	}
	if o.kind() != kindObject {
		return true // true and true, false and false
	}
	old, next := c.effective(c.old, o), c.effective(c.next, n)
	if len(old) != len(next) {
		return false
	}
	for name, ov := range old {
		nv, ok := next[name]
		if !ok || !c.sameKeyword(name, o, n, ov, nv, seen) {
			return false
		}
	}
	return true
}

// skipRefs follows $ref of any form while it stands alone.
func (c *comparer) skipRefs(l *layout, v value) (target value, loop bool) {
	seen := map[uint32]bool{}
	for {
		ref, ok := v.get("$ref")
		if !ok || ref.kind() != kindString || !c.lonely(l, v) {
			return v, false
		}
		if seen[v.i] {
			return v, true
		}
		seen[v.i] = true
		v = value{l.doc, l.positions[v.i].refs["$ref"]}
	}
}

func (c *comparer) sameKeyword(name string, o, n, ov, nv value, seen map[pair]bool) bool {
	k, _ := c.old.draft.keyword(name)
	switch k.shape {
	case reference:
		return c.sameReference(name, o, n, ov, nv, seen)
	case data:
		c.work -= int(ov.end() - ov.i)
		return equal(ov, nv)
	}
	return c.sameHolder(k.shape, ov, nv, seen)
}

// sameReference compares the targets. Where a dynamic one leads in a document of
// several resources depends on the way there, so then the documents have to be the
// same.
func (c *comparer) sameReference(name string, o, n, ov, nv value, seen map[pair]bool) bool {
	if name != "$ref" && (!equal(ov, nv) || len(c.old.resources)+len(c.next.resources) > 2) {
		return equal(c.old.doc.root(), c.next.doc.root())
	}
	ot, ook := c.old.positions[o.i].refs[name]
	nt, nok := c.next.positions[n.i].refs[name]
	return ook && nok && c.sameSchema(value{c.old.doc, ot}, value{c.next.doc, nt}, seen)
}

// sameHolder compares what a keyword of a shape holds: schemas, or lists and maps of
// them.
func (c *comparer) sameHolder(held shape, o, n value, seen map[pair]bool) bool {
	if held == one || held == oneOrList && o.kind() != kindArray {
		return c.sameSchema(o, n, seen)
	}
	if o.kind() != n.kind() || o.len() != n.len() {
		return false
	}
	if held == list || held == oneOrList {
		ns := listOf(n)
		for i, it := range o.items {
			if !c.sameSchema(it, ns[i], seen) {
				return false
			}
		}
		return true
	}
	find := n.finder()
	for name, m := range o.members {
		other, ok := find(name.string())
		switch {
		case !ok:
			return false
		case m.kind() == kindArray: // of names
			if !equal(m, other) {
				return false
			}
		case !c.sameSchema(m, other, seen):
			return false
		}
	}
	return true
}
