package schema

import (
	"errors"
	"fmt"
)

// errPaths marks a document whose evaluation may take too many paths (SR-7, SR-8,
// SR-9).
var errPaths = errors.New("too many paths")

// components numbers the strongly connected components of the graph that edges
// spans, and reports which nodes lie on a cycle. It is Tarjan's algorithm with a
// stack of its own: chains of references may be long.
func components(nodes []*node, edges func(n *node) []*node) (component []int, cyclic []bool) {
	t := &tarjan{
		edges: edges,
		index: make([]int, len(nodes)), low: make([]int, len(nodes)),
		component: make([]int, len(nodes)), cyclic: make([]bool, len(nodes)),
	}
	for _, n := range nodes {
		if t.index[n.id] == 0 {
			t.visit(n)
		}
	}
	return t.component, t.cyclic
}

type tarjan struct {
	edges     func(n *node) []*node
	next      int   // last index given
	found     int   // components found
	index     []int // by node, 0 = not seen
	low       []int
	component []int // 0 = not known
	cyclic    []bool
	open      []*node // seen, component not known
	stack     []frame
}

// frame is a node being visited and what is left of its edges.
type frame struct {
	n    *node
	left []*node
}

func (t *tarjan) visit(root *node) {
	t.push(root)
	for len(t.stack) > 0 {
		f := &t.stack[len(t.stack)-1]
		if len(f.left) == 0 {
			t.pop()
			continue
		}
		n, to := f.n, f.left[0]
		f.left = f.left[1:]
		switch {
		case to == n:
			t.cyclic[n.id] = true
		case t.index[to.id] == 0:
			t.push(to)
		case t.component[to.id] == 0:
			t.low[n.id] = min(t.low[n.id], t.index[to.id])
		}
	}
}

func (t *tarjan) push(n *node) {
	t.next++
	t.index[n.id], t.low[n.id] = t.next, t.next
	t.open = append(t.open, n)
	t.stack = append(t.stack, frame{n, t.edges(n)})
}

// pop leaves a node; if it is the first of its component, the component is complete.
func (t *tarjan) pop() {
	n := t.stack[len(t.stack)-1].n
	t.stack = t.stack[:len(t.stack)-1]
	if len(t.stack) > 0 {
		up := t.stack[len(t.stack)-1].n
		t.low[up.id] = min(t.low[up.id], t.low[n.id])
	}
	if t.low[n.id] != t.index[n.id] {
		return
	}
	t.found++
	several := t.open[len(t.open)-1] != n
	for {
		m := t.open[len(t.open)-1]
		t.open = t.open[:len(t.open)-1]
		t.component[m.id] = t.found
		t.cyclic[m.id] = t.cyclic[m.id] || several
		if m == n {
			return
		}
	}
}

func inPlaceNodes(n *node) (out []*node) {
	for _, to := range n.inPlace {
		out = append(out, to)
	}
	return out
}

func allNodes(n *node) []*node {
	out := inPlaceNodes(n)
	for to := range n.below {
		out = append(out, to)
	}
	return out
}

// markLoops finds the nodes that references lead back to on the same value, and
// refuses loops through not, if or oneOf (SR-9): there "the inner one refuses" would
// be no answer. Every other loop is answered that way.
func (g *graph) markLoops() error {
	component, cyclic := components(g.nodes, inPlaceNodes)
	for _, n := range g.nodes {
		n.loops = cyclic[n.id]
		for e, to := range n.inPlace {
			if e == edgeTurns && cyclic[n.id] && component[n.id] == component[to.id] {
				return fmt.Errorf("%w: a reference loop applies %s to the same value again through not, if or oneOf", errPaths, n.at.quoted())
			}
		}
	}
	return nil
}
