package schema

import (
	"math"
	"slices"
	"strconv"
)

// rules compare the keywords of one schema of the old version with those of one of
// the new.
type rules struct {
	c         *comparer
	at        *place
	old, next map[string]value
	rests     int // see comparer.widen
}

// all applies the rules of section 9.4, in the order in which faults are told.
// Every keyword that a draft defines belongs to one of them.
func (r *rules) all() *incompatible {
	for _, rule := range []func() *incompatible{
		r.frozen, r.types, r.values, r.bounds, r.multiple, r.counts, r.texts, r.unique,
		r.required, r.properties, r.additional, r.items, r.anyOf, r.allOf, r.rigid,
	} {
		if bad := rule(); bad != nil {
			return bad
		}
	}
	return nil
}

// below compares schemas further down.
func (r *rules) below(o, n value, tokens ...string) *incompatible {
	bad, rests := r.c.widen(o, n, r.at.add(tokens...))
	r.rests = min(r.rests, rests)
	return bad
}

func (r *rules) refuse(format string, args ...any) *incompatible {
	return refuse(r.at, format, args...)
}

// both looks a keyword up on both sides.
func (r *rules) both(name string) (o, n value, had, has bool) {
	o, had = r.old[name]
	n, has = r.next[name]
	return o, n, had, has
}

// frozen refuses what can only be compared as a whole (CMP-18), and tuples (CMP-12).
func (r *rules) frozen() *incompatible {
	for _, name := range []string{"unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef"} {
		if _, _, had, has := r.both(name); had || has {
			return r.refuse("%s is only allowed in a part that does not change", name)
		}
	}
	for _, side := range []map[string]value{r.old, r.next} {
		if items, ok := side["items"]; ok && items.kind() == kindArray {
			return r.refuse("items as a list is only allowed in a part that does not change")
		}
	}
	return nil
}

// types is CMP-1.
func (r *rules) types() *incompatible {
	o, n, had, has := r.both("type")
	if !has {
		return nil
	}
	if !had {
		return r.refuse("type added")
	}
	left := typesOf(n)
	if left&typeNumber != 0 {
		left |= typeInteger
	}
	for _, name := range (typesOf(o) &^ left).names() {
		return r.refuse("type %q no longer allowed", name)
	}
	return nil
}

// values is CMP-2: const and enum together, for both have to hold.
func (r *rules) values() *incompatible {
	old, had := allowed(r.old)
	next, has := allowed(r.next)
	if !has {
		return nil
	}
	name := "enum"
	if _, ok := r.next["enum"]; !ok {
		name = "const"
	}
	if !had {
		return r.refuse("%s added", name)
	}
	set := newEnum(name, next, newHasher())
	for _, v := range old {
		r.c.work--
		if !set.has(v) {
			return r.refuse("%s value %s removed", name, shown(v))
		}
	}
	return nil
}

// allowed are the values that const and enum leave.
func allowed(kw map[string]value) (out []value, limited bool) {
	list, hasEnum := kw["enum"]
	only, hasConst := kw["const"]
	switch {
	case hasEnum && hasConst:
		if has(listOf(list), only) {
			return []value{only}, true
		}
		return nil, true
	case hasConst:
		return []value{only}, true
	case hasEnum:
		return listOf(list), true
	}
	return nil, false
}

// shown is a value for an error text.
func shown(v value) string {
	switch v.kind() {
	case kindString:
		return strconv.Quote(short(v.string()))
	case kindArray, kindObject:
		return "of type " + v.kind().String()
	}
	return display(v)
}

// bounds is CMP-3: a limit is the tighter one of its two keywords.
func (r *rules) bounds() *incompatible {
	for _, low := range []bool{true, false} {
		o, had := r.tightest(r.old, low)
		n, has := r.tightest(r.next, low)
		switch {
		case !has:
		case !had:
			return r.refuse("%s added", n.keyword)
		case tighter(n, o):
			return r.refuse("%s tightened from %s to %s", n.keyword, o.text, n.text)
		}
	}
	return nil
}

// tightest is the limit that decides on one side of the numbers.
func (r *rules) tightest(kw map[string]value, low bool) (best bound, ok bool) {
	plain, exclusive := "maximum", "exclusiveMaximum"
	if low {
		plain, exclusive = "minimum", "exclusiveMinimum"
	}
	for _, name := range []string{plain, exclusive} {
		v, has := kw[name]
		if !has || v.kind() != kindNumber {
			continue
		}
		b := bound{keyword: name, limit: v.number(), text: short(string(v.bytes())), low: low, open: name == exclusive}
		if flag, has := kw[exclusive]; has && flag.kind() == kindTrue {
			b.keyword, b.open = exclusive, true
		}
		if !ok || tighter(b, best) {
			best, ok = b, true
		}
	}
	return best, ok
}

// tighter reports whether a refuses something that b accepts, both on one side.
func tighter(a, b bound) bool {
	c := a.limit.cmp(b.limit)
	if !a.low {
		c = -c
	}
	return c > 0 || c == 0 && a.open && !b.open
}

// multiple is CMP-4.
func (r *rules) multiple() *incompatible {
	o, n, had, has := r.both("multipleOf")
	switch {
	case !has || n.kind() != kindNumber || n.number().zero():
		return nil
	case !had || o.kind() != kindNumber:
		return r.refuse("multipleOf added")
	case !o.number().multipleOf(n.number()):
		return r.refuse("multipleOf changed from %s to %s, which does not divide it", display(o), display(n))
	}
	return nil
}

// counts is CMP-5 and CMP-6.
func (r *rules) counts() *incompatible {
	for _, name := range []string{"minLength", "minItems", "minProperties"} {
		o, n, had, _ := r.both(name)
		old, next := countOr(o, 0), countOr(n, 0)
		switch {
		case next > old && had:
			return r.refuse("%s raised from %d to %d", name, old, next)
		case next > old:
			return r.refuse("%s added", name)
		}
	}
	for _, name := range []string{"maxLength", "maxItems", "maxProperties"} {
		o, n, had, _ := r.both(name)
		old, next := countOr(o, math.MaxInt), countOr(n, math.MaxInt)
		switch {
		case next < old && had:
			return r.refuse("%s lowered from %d to %d", name, old, next)
		case next < old:
			return r.refuse("%s added", name)
		}
	}
	return nil
}

// countOr reads a count, or what its absence means.
func countOr(v value, absent int) int {
	if v.doc == nil {
		return absent
	}
	return limit(v, absent)
}

// texts is CMP-7.
func (r *rules) texts() *incompatible {
	for _, name := range []string{"pattern", "format"} {
		o, n, had, has := r.both(name)
		switch {
		case !has:
		case !had:
			return r.refuse("%s added", name)
		case !equal(o, n):
			return r.refuse("%s changed", name)
		}
	}
	return nil
}

// unique is CMP-8.
func (r *rules) unique() *incompatible {
	o, n, had, has := r.both("uniqueItems")
	if has && n.kind() == kindTrue && !(had && o.kind() == kindTrue) {
		return r.refuse("uniqueItems added")
	}
	return nil
}

// required is CMP-9.
func (r *rules) required() *incompatible {
	o, n, _, has := r.both("required")
	if !has {
		return nil
	}
	var old []string
	if o.doc != nil {
		old = names(o)
	}
	slices.Sort(old)
	for _, name := range names(n) {
		if _, ok := slices.BinarySearch(old, name); !ok {
			return r.refuse("required property %q added", short(name))
		}
	}
	return nil
}

// anyOf is CMP-13: each old branch has a new one that covers it.
func (r *rules) anyOf() *incompatible {
	o, n, had, has := r.both("anyOf")
	if !has {
		return nil
	}
	if !had {
		return r.refuse("anyOf added")
	}
	branches := listOf(n)
	for i, branch := range o.items {
		covered := func(b value) bool { return r.below(branch, b, "anyOf", strconv.Itoa(i)) == nil }
		if !r.some(i, branches, covered) {
			return r.refuse("anyOf branch %d of the previous version is covered by no branch", i)
		}
	}
	return nil
}

// allOf is CMP-14: each new branch follows from an old one.
func (r *rules) allOf() *incompatible {
	o, n, had, has := r.both("allOf")
	if !has {
		return nil
	}
	if !had {
		return r.refuse("allOf added")
	}
	branches := listOf(o)
	for i, branch := range n.items {
		implied := func(b value) bool { return r.below(b, branch, "allOf", strconv.Itoa(i)) == nil }
		if !r.some(i, branches, implied) {
			return r.refuse("allOf branch %d follows from no branch of the previous version", i)
		}
	}
	return nil
}

// some looks for a branch, first the one at the same place.
func (r *rules) some(i int, branches []value, fits func(value) bool) bool {
	if i < len(branches) && fits(branches[i]) {
		return true
	}
	return slices.ContainsFunc(branches, fits)
}
