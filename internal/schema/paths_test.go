package schema

import (
	"testing"

	"pgregory.net/rapid"
)

// counter evaluates naively, every branch whatever its verdict, and counts how often
// each value meets each subschema.
type counter struct {
	met  map[visit]int
	open map[visit]bool
}

func (c *counter) visit(n *node, v value) {
	at := visit{n, v.i}
	if c.open[at] {
		return
	}
	c.met[at]++
	c.open[at] = true
	defer delete(c.open, at)
	for _, to := range n.inPlace {
		c.visit(to, v)
	}
	c.items(n.arr, v)
	c.members(n.obj, v)
}

// fresh enters a part of the value, where loops start anew.
func (c *counter) fresh(n *node, v value) {
	if n == nil {
		return
	}
	sub := counter{met: c.met, open: map[visit]bool{}}
	sub.visit(n, v)
}

func (c *counter) items(a *arrayRules, v value) {
	if a == nil {
		return
	}
	for i, it := range v.items {
		if i < len(a.prefix) {
			c.fresh(a.prefix[i], it)
		} else {
			c.fresh(a.rest, it)
		}
		c.fresh(a.contains, it)
	}
}

func (c *counter) members(o *objectRules, v value) {
	if o == nil {
		return
	}
	for name, val := range v.members {
		p := o.props[string(name.bytes())]
		c.fresh(p.node, val)
		matched := p.node != nil
		for _, pat := range o.patterns {
			if pat.re.Match(name.bytes()) {
				matched = true
				c.fresh(pat.node, val)
			}
		}
		if !matched {
			c.fresh(o.additional, val)
		}
		c.fresh(o.names, name)
	}
}

// What registers keeps its promise (SR-8, SV-9): no payload meets a subschema through
// more than 64 paths, nor more than 64 subschemas unless the schema is costly.
func TestPathsKeepTheirBound(t *testing.T) {
	most := 0
	rapid.Check(t, func(t *rapid.T) {
		g := &gen{t: t, draft: drawDraft(t)}
		often := `,"allOf":[{"$ref":"#/$defs/x"},{"$ref":"#/$defs/y"},{"items":{"$ref":"#/$defs/x"}}],"items":{"$ref":"#/$defs/x"}`
		s, _, err := Register("t", 1, []byte(g.documentWith(often)))
		skipBroken(t, err)
		for range 4 {
			doc, err := new(decoder).decode([]byte(g.value(4)), PayloadNestingMax)
			if err != nil {
				t.Fatal(err)
			}
			c := counter{met: map[visit]int{}, open: map[visit]bool{}}
			c.visit(s.graph.root, doc.root())
			onValue := map[uint32]int{}
			for at, n := range c.met {
				most = max(most, n)
				if onValue[at.i] += n; n > pathsMax {
					t.Fatalf("%d paths to %s", n, at.n.at)
				}
			}
			for _, n := range onValue {
				if n > costlyOnValue && !s.costly {
					t.Fatalf("%d subschemas on one value of a schema that is not costly", n)
				}
			}
		}
	})
	if most < 2 {
		t.Error("the generator reaches nothing twice")
	}
}

// Chains longer than any recursion of ours would like are compiled without one.
func TestComponentsOfALongCycle(t *testing.T) {
	nodes := make([]*node, 200_000)
	for i := range nodes {
		nodes[i] = &node{id: i}
	}
	component, cyclic := components(nodes, func(n *node) []*node {
		if n.id == 0 {
			return []*node{nodes[1], nodes[0]}
		}
		if n.id == len(nodes)-1 {
			return []*node{nodes[len(nodes)/2]}
		}
		return []*node{nodes[n.id+1]}
	})
	half := len(nodes) / 2
	if component[half] != component[len(nodes)-1] || component[half-1] == component[half] || component[0] == component[1] {
		t.Error("wrong components")
	}
	if !cyclic[0] || cyclic[1] || cyclic[half-1] || !cyclic[half] || !cyclic[len(nodes)-1] {
		t.Error("wrong cycles")
	}
}
