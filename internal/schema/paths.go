package schema

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// The analysis of paths asks how often one value meets one subschema. It follows
// all values at once: a state is the set of subschemas that some value meets, with
// how often, and a step leads from the value to a member or an item. Which
// properties share a step is exact for names the schema spells out; names that only
// patterns match are assumed to match each pattern alone and all of them.
//
// Within one recursion level the answer has to be once (SR-7), else it doubles per
// level; over all it has to stay at 64 (SR-8).

// entry is a subschema that a step leads to, and the one it came from.
type entry struct {
	to, from *node
	times    int
}

// state is how often a value meets each subschema.
type state map[*node]int

// explorer walks the states of a graph.
type explorer struct {
	g        *graph
	work     int
	within   func(n *node) bool // what takes part
	closures map[*node]state
	patterns map[*node]map[string]*node
	seen     map[string]bool
	queue    []state
	widest   int // subschemas met by one value, at most
	met      func(st state, by []entry) error
}

// checkPaths applies SR-7, SR-8 and SR-9 and reports whether the schema is costly
// (SV-9).
func (g *graph) checkPaths() (costly bool, err error) {
	if err := g.markLoops(); err != nil {
		return false, err
	}
	x := &explorer{g: g, work: pathsWork, patterns: map[*node]map[string]*node{}}
	if err := x.recursion(); err != nil {
		return false, err
	}
	x.begin(func(*node) bool { return true }, func(st state, _ []entry) error {
		for n, times := range st {
			if times > pathsMax {
				return errTooManyPaths(n)
			}
		}
		return nil
	})
	if err := x.explore(g.root); err != nil {
		return false, err
	}
	return x.widest > costlyOnValue || g.lists > costlyRequired || g.manyPatterns(), nil
}

func (g *graph) manyPatterns() bool {
	for _, n := range g.nodes {
		if n.obj != nil && len(n.obj.patterns) > costlyPatterns {
			return true
		}
	}
	return false
}

// recursion applies SR-7: within each set of subschemas that reach one another,
// some value met twice is met four times one level on. Starting anywhere in the set
// finds it.
func (x *explorer) recursion() error {
	component, _ := components(x.g.nodes, allNodes)
	deeper := map[int]bool{} // components that come back on a part of the value
	for _, n := range x.g.nodes {
		for to := range n.below {
			if component[n.id] == component[to.id] {
				deeper[component[n.id]] = true
			}
		}
	}
	for _, n := range x.g.nodes {
		c := component[n.id]
		if !deeper[c] {
			continue
		}
		delete(deeper, c)
		x.begin(func(m *node) bool { return component[m.id] == c }, x.onlyOnce)
		if err := x.explore(n); err != nil {
			return err
		}
	}
	return nil
}

// onlyOnce refuses a state that meets a subschema twice, and names two ways to it.
func (x *explorer) onlyOnce(st state, by []entry) error {
	for _, n := range st.ordered() {
		if st[n] < 2 {
			continue
		}
		var ways []*node
		for _, e := range by {
			if e.to == n || x.closures[e.to][n] > 0 {
				ways = append(ways, lastStep(e, n, x.within)...)
			}
		}
		slices.SortFunc(ways, func(a, b *node) int { return a.id - b.id })
		if len(ways) < 2 {
			ways = append(ways, n, n)
		}
		return fmt.Errorf("%w: a value reaches %s by more than one path at one recursion level: %s and %s",
			errPaths, n.at.quoted(), ways[0].at.quoted(), ways[1].at.quoted())
	}
	return nil
}

// lastStep lists the subschemas from which an entry arrives at n.
func lastStep(e entry, n *node, within func(*node) bool) (out []*node) {
	if e.to == n {
		return []*node{e.from}
	}
	seen := map[*node]bool{}
	stack := []*node{e.to}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[at] {
			continue
		}
		seen[at] = true
		for _, to := range at.inPlace {
			switch {
			case to == n:
				out = append(out, at)
			case within(to):
				stack = append(stack, to)
			}
		}
	}
	return out
}

// begin starts a new exploration; work is shared by all of a document.
func (x *explorer) begin(within func(n *node) bool, met func(st state, by []entry) error) {
	x.within, x.met = within, met
	x.closures, x.seen, x.queue, x.widest = map[*node]state{}, map[string]bool{}, nil, 0
}

var errTooWide = fmt.Errorf("%w: the document has too many combinations of subschemas to bound its cost", errPaths)

// explore visits every state that values under the schema n can be in.
func (x *explorer) explore(n *node) error {
	if err := x.arrive([]entry{{to: n, from: n, times: 1}}); err != nil {
		return err
	}
	for len(x.queue) > 0 {
		st := x.queue[len(x.queue)-1]
		x.queue = x.queue[:len(x.queue)-1]
		if err := x.leave(st); err != nil {
			return err
		}
	}
	return nil
}

// arrive closes a set of entries into a state, judges it, and queues it if it is new.
func (x *explorer) arrive(by []entry) error {
	if len(by) == 0 {
		return nil
	}
	st := state{}
	total := 0
	for _, e := range by {
		c, err := x.closure(e.to)
		if err != nil {
			return err
		}
		x.work -= len(c) + 1
		for n, times := range c {
			st[n] += times * e.times
			total += times * e.times
		}
	}
	if x.work <= 0 {
		return errTooWide
	}
	x.widest = max(x.widest, total)
	if err := x.met(st, by); err != nil {
		return err
	}
	maps.DeleteFunc(st, func(n *node, _ int) bool { return n.obj == nil && n.arr == nil })
	if key := x.key(st); !x.seen[key] {
		x.seen[key] = true
		x.queue = append(x.queue, st)
	}
	return nil
}

// ordered lists the subschemas of a state.
func (st state) ordered() []*node {
	return slices.SortedFunc(maps.Keys(st), func(a, b *node) int { return a.id - b.id })
}

// key identifies a state, of which only what leads further is left.
func (x *explorer) key(st state) string {
	nodes := st.ordered()
	buf := make([]byte, 0, 8*len(nodes))
	for _, n := range nodes {
		buf = binary.AppendUvarint(buf, uint64(n.id))
		buf = binary.AppendUvarint(buf, uint64(st[n]))
	}
	return string(buf)
}

// closure is what a value meets that enters at n, n included. A loop ends where it
// comes back, as it does in an evaluation.
func (x *explorer) closure(n *node) (state, error) {
	if c, ok := x.closures[n]; ok {
		return c, nil
	}
	c := state{}
	if err := x.descend(n, c, map[*node]bool{}); err != nil {
		return nil, err
	}
	x.closures[n] = c
	return c, nil
}

// descend adds n and what it applies to the same value; open holds the subschemas
// above it.
func (x *explorer) descend(n *node, c state, open map[*node]bool) error {
	switch {
	case open[n]:
		return nil
	case x.work <= 0:
		return errTooWide
	case len(open) == inPlaceMax:
		return fmt.Errorf("%w: %s stacks more than %d subschemas on one value", errPaths, n.at.quoted(), inPlaceMax)
	case c[n] == pathsMax:
		return errTooManyPaths(n)
	}
	c[n]++
	open[n] = true
	defer delete(open, n)
	for _, to := range n.inPlace {
		x.work--
		if !x.within(to) {
			continue
		}
		if err := x.descend(to, c, open); err != nil {
			return err
		}
	}
	return nil
}

func errTooManyPaths(n *node) error {
	return fmt.Errorf("%w: one value is checked against %s through more than %d paths", errPaths, n.at.quoted(), pathsMax)
}
