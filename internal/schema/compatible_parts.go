package schema

import "regexp"

// properties is CMP-10 and CMP-22.
func (r *rules) properties() *incompatible {
	o, n, had, has := r.both("properties")
	if had {
		find := func(string) (value, bool) { return value{}, false }
		if has {
			find = n.finder()
		}
		for name, old := range o.members {
			next, ok := find(name.string())
			if !ok {
				return r.refuse("property %q removed", short(name.string()))
			}
			if bad := r.below(old, next, "properties", name.string()); bad != nil {
				return bad
			}
		}
	}
	if !has {
		return nil
	}
	find := func(string) (value, bool) { return value{}, false }
	if had {
		find = o.finder()
	}
	for name, next := range n.members {
		if _, known := find(name.string()); known {
			continue
		}
		if bad := r.newProperty(name.string(), next); bad != nil {
			return bad
		}
	}
	return nil
}

// newProperty checks a property against what the old version made of its name:
// patterns, or else additionalProperties, if that was a schema.
func (r *rules) newProperty(name string, next value) *incompatible {
	matched := false
	if patterns, ok := r.old["patternProperties"]; ok {
		for p, old := range patterns.members {
			r.c.work -= 1 + len(name)
			re, err := regexp.Compile(p.string())
			if err != nil {
				return r.refuse("the patterns of the previous version do not compile")
			}
			if !re.MatchString(name) {
				continue
			}
			matched = true
			if bad := r.below(old, next, "properties", name); bad != nil {
				return bad
			}
		}
	}
	if old, ok := r.old["additionalProperties"]; ok && !matched && !r.c.anything(r.c.old, old) {
		return r.below(old, next, "properties", name)
	}
	return nil
}

// additional is CMP-11.
func (r *rules) additional() *incompatible {
	o, n, had, has := r.both("additionalProperties")
	switch {
	case !has || r.c.anything(r.c.next, n):
		return nil
	case had && !r.c.anything(r.c.old, o):
		return r.below(o, n, "additionalProperties")
	case n.kind() == kindFalse:
		return r.refuse("additionalProperties closed")
	}
	return r.refuse("additionalProperties restricted")
}

// items is CMP-12; prefixItems go with them (CMP-17).
func (r *rules) items() *incompatible {
	op, np, hadPrefix, hasPrefix := r.both("prefixItems")
	o, n, had, has := r.both("items")
	switch {
	case hasPrefix && !hadPrefix:
		return r.refuse("prefixItems added")
	case hasPrefix && !r.sameKeyword("prefixItems", op, np):
		return r.refuse("prefixItems changed")
	case hadPrefix && !hasPrefix && has:
		return r.refuse("prefixItems removed while items stays")
	case !has || r.c.anything(r.c.next, n):
		return nil
	case !had:
		return r.refuse("items added")
	}
	return r.below(o, n, "items")
}

// groups are the keywords of CMP-17: the first one decides, the others add to it.
var groups = [...][]string{
	{"oneOf"}, {"not"}, {"if"}, {"contains", "minContains", "maxContains"}, {"propertyNames"},
	{"dependencies"}, {"dependentRequired"}, {"dependentSchemas"}, {"patternProperties"},
}

// rigid is CMP-17: the same or gone.
func (r *rules) rigid() *incompatible {
	for _, group := range groups {
		if _, has := r.next[group[0]]; !has {
			continue
		}
		for _, name := range group {
			if bad := r.unchanged(name); bad != nil {
				return bad
			}
		}
	}
	if _, has := r.next["if"]; has {
		for _, name := range []string{"then", "else"} {
			if _, kept := r.next[name]; !kept {
				continue
			}
			if bad := r.unchanged(name); bad != nil {
				return bad
			}
		}
	}
	_, had := r.old["patternProperties"]
	_, has := r.next["patternProperties"]
	if n, closed := r.next["additionalProperties"]; had && !has && closed && !r.c.anything(r.c.next, n) {
		return r.refuse("patternProperties removed while additionalProperties is not open")
	}
	return nil
}

// unchanged refuses a keyword that differs.
func (r *rules) unchanged(name string) *incompatible {
	o, n, had, has := r.both(name)
	switch {
	case !had && !has:
		return nil
	case !had:
		return r.refuse("%s added", name)
	case !has:
		return r.refuse("%s removed", name)
	}
	if r.sameKeyword(name, o, n) {
		return nil
	}
	return r.refuse("%s changed", name)
}

// sameKeyword compares what a keyword holds.
func (r *rules) sameKeyword(name string, o, n value) bool {
	k, _ := r.c.old.draft.keyword(name)
	if k.shape == data {
		return equal(o, n)
	}
	return r.c.sameHolder(k.shape, o, n, map[pair]bool{})
}
