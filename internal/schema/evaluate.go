package schema

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// evaluation checks one document against a graph. With a report it goes on after a
// fault to find all of them, without it stops at the first. It is used once.
type evaluation struct {
	doc     *document
	rep     *report
	path    []step      // where in the payload; kept only for a report
	open    []visit     // schemas on a loop that are being applied
	scope   []*resource // resources entered, outermost first; kept only when dynamic
	dynamic bool        // the document has several resources and dynamic references
	hash    hasher
	indexes map[uint32]map[string]value // of large objects that were searched
}

// visit is a schema being applied to a value.
type visit struct {
	n *node
	i uint32
}

// marks says which members or items of one value were evaluated, for
// unevaluatedProperties and unevaluatedItems. nil where nobody asks.
type marks struct{ done []bool }

func (m *marks) mark(i int) {
	if m != nil {
		m.done[i] = true
	}
}

func (m *marks) all() {
	if m != nil {
		for i := range m.done {
			m.done[i] = true
		}
	}
}

// fresh is an empty set for a subschema on the same value, nil if m is.
func (m *marks) fresh() *marks {
	if m == nil {
		return nil
	}
	return &marks{make([]bool, len(m.done))}
}

// merge takes over what a subschema that accepts has evaluated.
func (m *marks) merge(o *marks) {
	if m != nil {
		for i, done := range o.done {
			m.done[i] = m.done[i] || done
		}
	}
}

// fail notes a fault of the value at the current path. It returns false, the
// verdict.
func (e *evaluation) fail(format string, args ...any) bool {
	if e.rep != nil && !e.rep.over {
		e.rep.add(location(e.path) + ": " + fmt.Sprintf(format, args...))
	}
	return false
}

// mark remembers how far the report is; causes makes what was added since the causes
// of one fault.
func (e *evaluation) mark() int {
	if e.rep == nil {
		return 0
	}
	return len(e.rep.lines)
}

func (e *evaluation) causes(mark int, format string, args ...any) bool {
	if e.rep != nil && !e.rep.over {
		e.rep.wrap(mark, location(e.path)+": "+fmt.Sprintf(format, args...))
	}
	return false
}

// forget drops what was added since mark.
func (e *evaluation) forget(mark int) {
	if e.rep != nil && !e.rep.over {
		e.rep.forget(mark)
	}
}

// stop reports whether a fault ends the search.
func (e *evaluation) stop() bool { return e.rep == nil || e.rep.over }

// silent gives the verdict of n alone.
func (e *evaluation) silent(n *node, v value, m *marks) bool {
	rep := e.rep
	e.rep = nil
	ok := e.check(n, v, m)
	e.rep = rep
	return ok
}

// check applies the schema n to v. Marks, if any, are those of v.
func (e *evaluation) check(n *node, v value, m *marks) bool {
	if n.never {
		return e.fail("false schema")
	}
	if n.types != 0 && !n.types.has(v) {
		return e.fail("got %s, want %s", v.kind(), strings.Join(n.types.names(), " or "))
	}
	for _, en := range n.values {
		if !en.has(v) {
			return e.fail("%s", en.wanted())
		}
	}
	if n.format != nil && v.kind() == kindString {
		if err := n.format.check(string(v.bytes())); err != nil {
			return e.fail("%s is not valid %s: %s", quote(v.bytes()), n.format.name, cut(err.Error(), shownMax))
		}
	}
	if n.loops {
		at := visit{n, v.i}
		for _, o := range e.open {
			if o == at {
				return e.fail("the schema applies itself to the same value")
			}
		}
		e.open = append(e.open, at)
		defer func() { e.open = e.open[:len(e.open)-1] }()
	}
	if e.dynamic {
		e.scope = append(e.scope, n.res)
		defer func() { e.scope = e.scope[:len(e.scope)-1] }()
	}
	mark := e.mark()
	ok := e.parts(n, v, m)
	if !ok && e.rep != nil && !e.rep.over && len(e.path) > 0 && e.rep.faults(mark) > 1 {
		e.causes(mark, "validation failed")
	}
	return ok
}

// parts applies the keywords that may fail side by side.
func (e *evaluation) parts(n *node, v value, m *marks) bool {
	own := e.own(n, v, m)
	ok := true
	for i := range n.calls {
		if sub := e.target(&n.calls[i]); !e.same(sub, v, own) {
			if ok = false; e.stop() {
				return false
			}
		}
	}
	switch v.kind() {
	case kindNumber:
		ok = (n.num == nil || e.number(n.num, v)) && ok
	case kindString:
		ok = (n.str == nil || e.string(n.str, v)) && ok
	case kindArray:
		ok = (n.arr == nil || e.array(n.arr, v, own)) && ok
	case kindObject:
		ok = (n.obj == nil || e.object(n.obj, v, own)) && ok
	}
	if !ok && e.stop() {
		return false
	}
	if n.logic != nil {
		if ok = e.logic(n.logic, v, own) && ok; !ok && e.stop() {
			return false
		}
	}
	ok = e.unevaluated(n, v, own) && ok
	if own != m {
		m.merge(own)
	}
	return ok
}

// own are the marks that n itself needs, m if it needs none.
func (e *evaluation) own(n *node, v value, m *marks) *marks {
	switch {
	case v.kind() == kindObject && n.obj != nil && n.obj.unevaluated != nil,
		v.kind() == kindArray && n.arr != nil && n.arr.unevaluated != nil:
		return &marks{make([]bool, v.len())}
	}
	return m
}

// same applies a subschema to the same value.
func (e *evaluation) same(n *node, v value, m *marks) bool {
	sub := m.fresh()
	if !e.check(n, v, sub) {
		return false
	}
	m.merge(sub)
	return true
}

// target is where a reference leads now.
func (e *evaluation) target(c *call) *node {
	if c.candidates != nil {
		for _, res := range e.scope {
			if n := c.candidates[res]; n != nil {
				return n
			}
		}
	}
	return c.to
}

// has reports whether v has one of the types.
func (t types) has(v value) bool {
	k := v.kind()
	if t&kindTypes[k] != 0 {
		return true
	}
	return k == kindNumber && t&typeInteger != 0 && v.number().integer()
}

func (e *evaluation) number(r *numberRules, v value) bool {
	d := v.number()
	ok := true
	for i := range r.bounds {
		b := &r.bounds[i]
		c := d.cmp(b.limit)
		if b.low {
			c = -c
		}
		if c > 0 || c == 0 && b.open {
			if ok = e.fail("%s: got %s, want %s", b.keyword, display(v), b.text); e.stop() {
				return false
			}
		}
	}
	if r.multiple != nil && !d.multipleOf(r.multiple.limit) {
		ok = e.fail("multipleOf: got %s, want %s", display(v), r.multiple.text)
	}
	return ok
}

func (e *evaluation) string(r *stringRules, v value) bool {
	b := v.bytes()
	ok := true
	if len(b) < r.min || r.min > 0 && utf8.RuneCount(b) < r.min {
		ok = e.fail("minLength: got %d, want %d", utf8.RuneCount(b), r.min)
	}
	if r.max >= 0 && len(b) > r.max && utf8.RuneCount(b) > r.max {
		ok = e.fail("maxLength: got %d, want %d", utf8.RuneCount(b), r.max)
	}
	if (ok || !e.stop()) && r.pattern != nil && !r.pattern.Match(b) {
		ok = e.fail("%s does not match pattern %s", quote(b), quote(r.pattern.String()))
	}
	return ok
}

func (e *evaluation) logic(r *logicRules, v value, m *marks) bool {
	ok := true
	if r.not != nil && e.silent(r.not, v, nil) {
		ok = e.fail("'not' failed")
	}
	mark := e.mark()
	for _, n := range r.all {
		if !ok && e.stop() {
			return false
		}
		if !e.same(n, v, m) {
			ok = false
		}
	}
	if e.mark() > mark {
		e.causes(mark, "'allOf' failed")
	}
	if (ok || !e.stop()) && len(r.any) > 0 {
		ok = e.anyOf(r.any, v, m) && ok
	}
	if (ok || !e.stop()) && len(r.one) > 0 {
		ok = e.oneOf(r.one, v, m) && ok
	}
	if (ok || !e.stop()) && r.cond != nil {
		ok = e.condition(r, v, m) && ok
	}
	return ok
}

func (e *evaluation) anyOf(branches []*node, v value, m *marks) bool {
	mark, matched := e.mark(), false
	for _, n := range branches {
		if e.same(n, v, m) {
			matched = true
			if m == nil {
				break
			}
		}
	}
	if !matched {
		return e.causes(mark, "'anyOf' failed")
	}
	e.forget(mark)
	return true
}

func (e *evaluation) oneOf(branches []*node, v value, m *marks) bool {
	mark, matched := e.mark(), -1
	for i, n := range branches {
		if matched >= 0 {
			if e.silent(n, v, nil) {
				return e.fail("'oneOf' failed, subschemas %d, %d matched", matched, i)
			}
		} else if e.same(n, v, m) {
			matched = i
			e.forget(mark)
		}
	}
	if matched < 0 {
		return e.causes(mark, "'oneOf' failed, none matched")
	}
	return true
}

func (e *evaluation) condition(r *logicRules, v value, m *marks) bool {
	sub := m.fresh()
	branch := r.els
	if e.silent(r.cond, v, sub) {
		m.merge(sub)
		branch = r.then
	}
	return branch == nil || e.same(branch, v, m)
}
