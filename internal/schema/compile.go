package schema

import (
	"cmp"
	"fmt"
	"slices"
)

// graph is a compiled document.
type graph struct {
	layout *layout
	root   *node
	nodes  []*node // by id
	hash   hasher
	// lists is how many names required, dependentRequired and dependencies hold.
	lists int
}

// compiler turns the positions of a layout into nodes.
type compiler struct {
	layout  *layout
	nodes   map[uint32]*node
	formats formats
	hash    hasher
	budget  patternBudget
	lists   int
}

// compile builds the graph. Keywords of the wrong type mean nothing, for the
// meta-schema has refused them. The errors are about patterns (SR-5).
func compile(l *layout) (*graph, error) {
	c := &compiler{layout: l, nodes: make(map[uint32]*node, len(l.order)), hash: newHasher(), budget: newPatternBudget()}
	g := &graph{layout: l}
	for id, i := range l.order {
		pos := l.positions[i]
		n := &node{id: id, at: pos.at, res: pos.resource, never: l.doc.cells[i].kind == kindFalse}
		c.nodes[i] = n
		g.nodes = append(g.nodes, n)
	}
	for _, i := range l.order {
		if err := c.schema(value{l.doc, i}, c.nodes[i]); err != nil {
			return nil, err
		}
	}
	g.root, g.lists, g.hash = c.nodes[0], c.lists, c.hash
	return g, nil
}

// at is the node of a subschema.
func (c *compiler) at(v value) *node { return c.nodes[v.i] }

// schema fills a node with what its object says.
func (c *compiler) schema(v value, n *node) error {
	err := c.layout.keywords(v, func(name string, k keyword, val value) error {
		switch name {
		case "$ref", "$dynamicRef", "$recursiveRef":
			c.call(n, name, val)
		case "type":
			n.types = typesOf(val)
		case "const":
			n.values = append(n.values, newEnum(name, []value{val}, c.hash))
		case "enum":
			n.values = append(n.values, newEnum(name, listOf(val), c.hash))
		case "format":
			f, err := c.formats.get(val.string())
			n.format = f
			return err
		case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
			c.number(v, n, name, val)
		case "minLength", "maxLength", "pattern":
			return c.string(n, name, val)
		case "minItems", "maxItems", "uniqueItems", "prefixItems", "items", "additionalItems",
			"contains", "minContains", "maxContains", "unevaluatedItems":
			c.array(v, n, name, val)
		case "allOf", "anyOf", "oneOf", "not", "if", "then", "else":
			c.logic(v, n, name, val)
		default:
			return c.object(n, name, val)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// const is told before enum, as its report is shorter.
	slices.SortStableFunc(n.values, func(a, b *enum) int { return cmp.Compare(a.keyword, b.keyword) })
	if n.logic != nil && n.logic.cond == nil {
		n.logic.then, n.logic.els = nil, nil
	}
	return nil
}

func typesOf(v value) types {
	t := typeOf(v.string())
	for _, it := range v.items {
		t |= typeOf(it.string())
	}
	return t
}

func listOf(v value) (out []value) {
	for _, it := range v.items {
		out = append(out, it)
	}
	return out
}

// names are the strings of a list, each once.
func names(v value) (out []string) {
	seen := make(map[string]bool, v.len())
	for _, it := range v.items {
		if name := it.string(); it.kind() == kindString && !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	return out
}

// call adds a reference. One whose first target says so is dynamic: the schema of the
// outermost resource in scope that takes part is meant.
func (c *compiler) call(n *node, keyword string, val value) {
	target, ok := c.layout.positions[c.cellOf(n)].refs[keyword]
	if !ok {
		return
	}
	to := call{keyword: keyword, to: c.nodes[target]}
	if own, ok := c.dynamic(to, val.string()[1:], to.to.res); ok && own == to.to {
		for i, res := range c.layout.resources {
			n, ok := c.dynamic(to, val.string()[1:], res)
			if !ok {
				continue
			}
			if i == 0 { // the document itself is in every scope, outermost
				to.to, to.candidates = n, nil
				break
			}
			if to.candidates == nil {
				to.candidates = map[*resource]*node{}
			}
			to.candidates[res] = n
		}
		if len(to.candidates) == 1 {
			to.candidates = nil // it can only be the target
		}
	}
	n.calls = append(n.calls, to)
}

// dynamic is what a dynamic reference means in a resource.
func (c *compiler) dynamic(to call, anchor string, res *resource) (*node, bool) {
	switch to.keyword {
	case "$dynamicRef":
		i, ok := res.dynamic[anchor]
		return c.nodes[i], ok
	case "$recursiveRef":
		return c.nodes[res.root], res.recursive
	}
	return nil, false
}

// cellOf is where a node's schema stands.
func (c *compiler) cellOf(n *node) uint32 { return c.layout.order[n.id] }

func (c *compiler) number(schema value, n *node, name string, val value) {
	if n.num == nil {
		n.num = &numberRules{}
	}
	if val.kind() != kindNumber {
		return // draft 4: a boolean that goes with minimum or maximum
	}
	b := bound{keyword: name, limit: val.number(), text: short(string(val.bytes()))}
	if name == "multipleOf" {
		if !b.limit.zero() {
			n.num.multiple = &b
		}
		return
	}
	b.low = name == "minimum" || name == "exclusiveMinimum"
	b.open = name == "exclusiveMinimum" || name == "exclusiveMaximum"
	if c.layout.draft == draft4 && !b.open {
		exclusive := map[bool]string{true: "exclusiveMinimum", false: "exclusiveMaximum"}[b.low]
		if flag, ok := schema.get(exclusive); ok && flag.kind() == kindTrue {
			b.keyword, b.open = exclusive, true
		}
	}
	n.num.bounds = append(n.num.bounds, b)
}

// limit reads a keyword that counts.
func limit(val value, old int) int {
	if val.kind() != kindNumber {
		return old
	}
	if n, ok := val.number().count(); ok {
		return n
	}
	return old
}

func (c *compiler) string(n *node, name string, val value) error {
	if n.str == nil {
		n.str = &stringRules{max: -1}
	}
	switch name {
	case "minLength":
		n.str.min = limit(val, 0)
	case "maxLength":
		n.str.max = limit(val, -1)
	case "pattern":
		if val.kind() != kindString {
			return nil
		}
		re, err := c.budget.compile(val.string())
		if err != nil {
			return fmt.Errorf("%w: at %s: %w", errPattern, n.at.add(name).quoted(), err)
		}
		n.str.pattern = re
	}
	return nil
}

func (c *compiler) array(schema value, n *node, name string, val value) {
	if n.arr == nil {
		n.arr = &arrayRules{max: -1, minContains: 1, maxContains: -1, marks: c.layout.draft >= draft2020}
	}
	a := n.arr
	switch name {
	case "minItems":
		a.min = limit(val, 0)
	case "maxItems":
		a.max = limit(val, -1)
	case "uniqueItems":
		a.unique = val.kind() == kindTrue
	case "prefixItems":
		a.prefix = c.list(val)
	case "items":
		if val.kind() != kindArray {
			a.rest = c.at(val)
		} else if c.layout.draft < draft2020 {
			a.prefix = c.list(val)
		}
	case "additionalItems":
		if items, ok := schema.get("items"); ok && items.kind() == kindArray {
			a.rest = c.at(val)
		}
	case "contains":
		a.contains = c.at(val)
	case "minContains":
		a.minContains = limit(val, 1)
	case "maxContains":
		a.maxContains = limit(val, -1)
	case "unevaluatedItems":
		a.unevaluated = c.at(val)
	}
}

func (c *compiler) list(v value) (out []*node) {
	for _, it := range v.items {
		out = append(out, c.at(it))
	}
	return out
}

func (c *compiler) logic(schema value, n *node, name string, val value) {
	if n.logic == nil {
		n.logic = &logicRules{}
	}
	switch name {
	case "allOf":
		n.logic.all = c.list(val)
	case "anyOf":
		n.logic.any = c.list(val)
	case "oneOf":
		n.logic.one = c.list(val)
	case "not":
		n.logic.not = c.at(val)
	case "if":
		n.logic.cond = c.at(val)
	case "then":
		n.logic.then = c.at(val)
	case "else":
		n.logic.els = c.at(val)
	}
}

func (c *compiler) object(n *node, name string, val value) error {
	o := n.obj
	if o == nil {
		o = &objectRules{max: -1, props: map[string]prop{}}
	}
	switch name {
	case "minProperties":
		o.min = limit(val, 0)
	case "maxProperties":
		o.max = limit(val, -1)
	case "required":
		c.lists += val.len()
		for _, name := range names(val) {
			o.required = append(o.required, name)
			o.props[name] = prop{node: o.props[name].node, required: true}
		}
	case "properties":
		for k, sub := range val.members {
			name := k.string()
			o.props[name] = prop{node: c.at(sub), required: o.props[name].required}
		}
	case "patternProperties":
		if err := c.patterns(n, o, val); err != nil {
			return err
		}
	case "additionalProperties":
		o.additional = c.at(val)
	case "propertyNames":
		o.names = c.at(val)
	case "unevaluatedProperties":
		o.unevaluated = c.at(val)
	case "dependencies", "dependentRequired", "dependentSchemas":
		c.dependents(o, name, val)
	default:
		return nil // says nothing about values
	}
	n.obj = o
	return nil
}

func (c *compiler) patterns(n *node, o *objectRules, val value) error {
	for k, sub := range val.members {
		re, err := c.budget.compile(k.string())
		if err != nil {
			return fmt.Errorf("%w: at %s: %w", errPattern, n.at.add("patternProperties").quoted(), err)
		}
		o.patterns = append(o.patterns, pattern{re, c.at(sub)})
	}
	return nil
}

func (c *compiler) dependents(o *objectRules, keyword string, val value) {
	for k, dep := range val.members {
		d := dependent{name: k.string()}
		switch {
		case keyword != "dependentSchemas" && dep.kind() == kindArray:
			c.lists += dep.len()
			d.required = names(dep)
		case keyword != "dependentRequired":
			d.schema = c.at(dep)
		}
		o.dependents = append(o.dependents, d)
	}
}
