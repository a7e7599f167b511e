package schema

import (
	"maps"
	"slices"
)

// leave follows every step out of a state.
func (x *explorer) leave(st state) error {
	nodes := st.ordered()
	if err := x.leaveArray(st, nodes); err != nil {
		return err
	}
	return x.leaveObject(st, nodes)
}

// step collects the entries of one step.
func (x *explorer) step(st state, nodes []*node, targets func(n *node, add func(to *node))) error {
	var by []entry
	for _, n := range nodes {
		x.work--
		targets(n, func(to *node) {
			if to != nil && x.within(to) {
				by = append(by, entry{to, n, st[n]})
			}
		})
	}
	return x.arrive(by)
}

// leaveArray follows the items: those some prefix names, and the ones behind.
func (x *explorer) leaveArray(st state, nodes []*node) error {
	longest, any := 0, false
	for _, n := range nodes {
		if n.arr != nil {
			any = true
			longest = max(longest, len(n.arr.prefix))
		}
	}
	for i := 0; any && i <= longest; i++ {
		err := x.step(st, nodes, func(n *node, add func(*node)) {
			a := n.arr
			if a == nil {
				return
			}
			if i < len(a.prefix) {
				add(a.prefix[i])
			} else {
				add(a.rest)
			}
			add(a.contains)
			add(a.unevaluated)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// leaveObject follows the names themselves, the members the schema names, those
// that patterns match, and the others.
func (x *explorer) leaveObject(st state, nodes []*node) error {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return n.obj == nil })
	err := x.step(st, nodes, func(n *node, add func(*node)) { add(n.obj.names) })
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, n := range nodes {
		for name, p := range n.obj.props {
			if p.node != nil {
				known[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if err := x.step(st, nodes, x.named(name)); err != nil {
			return err
		}
	}
	return x.unnamed(st, nodes)
}

// named is what a schema applies to a member of a name.
func (x *explorer) named(name string) func(n *node, add func(*node)) {
	return func(n *node, add func(*node)) {
		o := n.obj
		p := o.props[name]
		add(p.node)
		matched := p.node != nil
		for _, pat := range o.patterns {
			x.work -= 1 + len(name)
			if pat.re.MatchString(name) {
				matched = true
				add(pat.node)
			}
		}
		if !matched {
			add(o.additional)
		}
		add(o.unevaluated)
	}
}

// unnamed follows members that the schema does not name: matched by no pattern, by
// each alone, and by all.
func (x *explorer) unnamed(st state, nodes []*node) error {
	err := x.step(st, nodes, func(n *node, add func(*node)) {
		add(n.obj.additional)
		add(n.obj.unevaluated)
	})
	if err != nil {
		return err
	}
	each := map[string]bool{}
	for _, n := range nodes {
		for src := range x.byPattern(n) {
			each[src] = true
		}
	}
	if len(each) == 0 {
		return nil
	}
	for _, src := range slices.Sorted(maps.Keys(each)) {
		err := x.step(st, nodes, func(n *node, add func(*node)) {
			if to, ok := x.byPattern(n)[src]; ok {
				add(to)
			} else {
				add(n.obj.additional)
			}
			add(n.obj.unevaluated)
		})
		if err != nil {
			return err
		}
	}
	return x.step(st, nodes, func(n *node, add func(*node)) {
		for _, pat := range n.obj.patterns {
			x.work--
			add(pat.node)
		}
		add(n.obj.unevaluated)
	})
}

// byPattern indexes the patternProperties of a schema by the text of the pattern.
func (x *explorer) byPattern(n *node) map[string]*node {
	m, ok := x.patterns[n]
	if !ok {
		m = make(map[string]*node, len(n.obj.patterns))
		for _, pat := range n.obj.patterns {
			m[pat.re.String()] = pat.node
		}
		x.patterns[n] = m
	}
	return m
}
