package schema

// at enters a part of the value and applies a schema to it.
func (e *evaluation) at(s step, n *node, v value) bool {
	if e.rep == nil {
		return e.check(n, v, nil)
	}
	e.path = append(e.path, s)
	ok := e.check(n, v, nil)
	e.path = e.path[:len(e.path)-1]
	return ok
}

func (e *evaluation) object(o *objectRules, v value, m *marks) bool {
	n := v.len()
	ok := true
	if n < o.min {
		ok = e.fail("minProperties: got %d, want %d", n, o.min)
	}
	if o.max >= 0 && n > o.max {
		ok = e.fail("maxProperties: got %d, want %d", n, o.max)
	}
	if n < len(o.required) {
		ok = e.missing(o, v)
	}
	if !ok && e.stop() {
		return false
	}
	if ok = e.members(o, v, m) && ok; !ok && e.stop() {
		return false
	}
	if o.names != nil {
		ok = e.propertyNames(o.names, v) && ok
	}
	for i := range o.dependents {
		if !ok && e.stop() {
			return false
		}
		ok = e.dependent(&o.dependents[i], v, m) && ok
	}
	return ok
}

// members checks each member, and that none required is missing.
func (e *evaluation) members(o *objectRules, v value, m *marks) bool {
	ok, seen, ordinal := true, 0, 0
	var extra [][]byte
	cells := v.doc.cells
	for i, end := v.i+1, v.end(); i < end; i = cells[i+1].end {
		if cells[i].shadowed {
			continue
		}
		name, val := value{v.doc, i}.bytes(), value{v.doc, i + 1}
		p := o.props[string(name)]
		if p.required {
			seen++
		}
		evaluated := p.node != nil
		if p.node != nil {
			ok = e.at(step{name: name}, p.node, val) && ok
		}
		for _, pat := range o.patterns {
			if (ok || !e.stop()) && pat.re.Match(name) {
				evaluated = true
				ok = e.at(step{name: name}, pat.node, val) && ok
			}
		}
		switch {
		case evaluated || o.additional == nil:
		case o.additional.never:
			ok = false
			extra = append(extra, name)
		default:
			evaluated = true
			ok = e.at(step{name: name}, o.additional, val) && ok
		}
		if !ok && e.stop() {
			return false
		}
		if evaluated {
			m.mark(ordinal)
		}
		ordinal++
	}
	if len(extra) > 0 {
		e.fail("additional properties %s not allowed", quoteAll(extra))
	}
	if seen < len(o.required) && v.len() >= len(o.required) {
		ok = e.missing(o, v)
	}
	return ok
}

// missing says which required members are not there.
func (e *evaluation) missing(o *objectRules, v value) bool {
	if e.rep == nil {
		return false
	}
	gone := e.absent(o.required, v)
	if len(gone) == 1 {
		return e.fail("missing property %s", quote(gone[0]))
	}
	return e.fail("missing properties %s", quoteAll(gone))
}

// absent lists the names that an object does not have.
func (e *evaluation) absent(names []string, v value) (out []string) {
	for _, name := range names {
		if _, ok := e.find(v, name); !ok {
			out = append(out, name)
		}
	}
	return out
}

// find looks a member up; a large object is indexed at the first search.
func (e *evaluation) find(v value, name string) (value, bool) {
	if v.len() <= small {
		return v.get(name)
	}
	idx, ok := e.indexes[v.i]
	if !ok {
		idx = v.index()
		if e.indexes == nil {
			e.indexes = map[uint32]map[string]value{}
		}
		e.indexes[v.i] = idx
	}
	m, ok := idx[name]
	return m, ok
}

func (e *evaluation) propertyNames(n *node, v value) bool {
	ok := true
	for name := range v.members {
		mark := e.mark()
		if e.check(n, name, nil) {
			continue
		}
		if ok = e.causes(mark, "invalid propertyName %s", quote(name.bytes())); e.stop() {
			return false
		}
	}
	return ok
}

func (e *evaluation) dependent(d *dependent, v value, m *marks) bool {
	if _, there := e.find(v, d.name); !there {
		return true
	}
	if d.schema != nil {
		return e.same(d.schema, v, m)
	}
	for _, name := range d.required {
		if _, ok := e.find(v, name); !ok {
			return e.fail("properties %s required, if %s exists", quoteAll(e.absent(d.required, v)), quote(d.name))
		}
	}
	return true
}

func (e *evaluation) array(a *arrayRules, v value, m *marks) bool {
	n := v.len()
	ok := true
	if n < a.min {
		ok = e.fail("minItems: got %d, want %d", n, a.min)
	}
	if a.max >= 0 && n > a.max {
		ok = e.fail("maxItems: got %d, want %d", n, a.max)
	}
	if (ok || !e.stop()) && a.unique && n > 1 {
		ok = e.unique(v) && ok
	}
	if (ok || !e.stop()) && (len(a.prefix) > 0 || a.rest != nil) {
		ok = e.items(a, v, m) && ok
	}
	if (ok || !e.stop()) && a.contains != nil {
		ok = e.contains(a, v, m) && ok
	}
	return ok
}

func (e *evaluation) items(a *arrayRules, v value, m *marks) bool {
	if a.rest != nil && a.rest.never && v.len() > len(a.prefix) {
		if e.fail("last %d additionalItem(s) not allowed", v.len()-len(a.prefix)); e.stop() {
			return false
		}
	}
	ok := true
	cells := v.doc.cells
	for i, at, end := 0, v.i+1, v.end(); at < end; i, at = i+1, cells[at].end {
		n := a.rest
		if i < len(a.prefix) {
			n = a.prefix[i]
		} else if n == nil || n.never {
			return ok && n == nil
		}
		m.mark(i)
		if ok = e.at(step{index: i}, n, value{v.doc, at}) && ok; !ok && e.stop() {
			return false
		}
	}
	return ok
}

func (e *evaluation) contains(a *arrayRules, v value, m *marks) bool {
	mark, matched := e.mark(), 0
	for i, it := range v.items {
		if !e.at(step{index: i}, a.contains, it) {
			continue
		}
		matched++
		if a.marks {
			m.mark(i)
		}
		if e.rep == nil && m == nil && matched >= a.minContains && a.maxContains < 0 {
			break
		}
	}
	switch {
	case matched >= a.minContains:
		e.forget(mark)
	case a.minContains == 1:
		return e.causes(mark, "no items match contains schema")
	default:
		return e.causes(mark, "min %d items required to match contains schema, but %d matched", a.minContains, matched)
	}
	if a.maxContains >= 0 && matched > a.maxContains {
		return e.fail("max %d items required to match contains schema, but %d matched", a.maxContains, matched)
	}
	return true
}

// pairwise is up to how many items comparing each with each beats hashing.
const pairwise = 8

// unique checks uniqueItems.
func (e *evaluation) unique(v value) bool {
	if v.len() <= pairwise {
		for i, a := range v.items {
			for j, b := range v.items {
				if j >= i {
					break
				}
				if equal(a, b) {
					return e.fail("items at %d and %d are equal", j, i)
				}
			}
		}
		return true
	}
	type item struct {
		v value
		i int
	}
	seen := make(map[uint64][]item, v.len())
	for i, it := range v.items {
		sum := e.hash.sum(it)
		for _, other := range seen[sum] {
			if equal(it, other.v) {
				return e.fail("items at %d and %d are equal", other.i, i)
			}
		}
		seen[sum] = append(seen[sum], item{it, i})
	}
	return true
}

// unevaluated checks what no other keyword has looked at, after all of them.
func (e *evaluation) unevaluated(n *node, v value, m *marks) bool {
	ok := true
	switch {
	case v.kind() == kindObject && n.obj != nil && n.obj.unevaluated != nil:
		i := 0
		for name, val := range v.members {
			if !m.done[i] {
				ok = e.at(step{name: name.bytes()}, n.obj.unevaluated, val) && ok
			}
			if i++; !ok && e.stop() {
				return false
			}
		}
	case v.kind() == kindArray && n.arr != nil && n.arr.unevaluated != nil:
		for i, it := range v.items {
			if !m.done[i] {
				ok = e.at(step{index: i}, n.arr.unevaluated, it) && ok
			}
			if !ok && e.stop() {
				return false
			}
		}
	default:
		return true
	}
	m.all()
	return ok
}
