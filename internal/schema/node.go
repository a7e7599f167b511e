package schema

import "regexp"

// node is a schema of the document, ready to check values.
type node struct {
	id    int
	at    *place
	res   *resource
	loops bool // references lead back to it on the same value
	never bool // the schema false

	types  types   // 0 = any
	values []*enum // const and enum
	format *format
	calls  []call
	num    *numberRules
	str    *stringRules
	arr    *arrayRules
	obj    *objectRules
	logic  *logicRules
}

// call is a reference, applied to the same value.
type call struct {
	keyword string
	to      *node // the target, or the first one of a dynamic reference
	// candidates are what a dynamic reference leads to, by the outermost resource in
	// scope that takes part. nil when that is always the same.
	candidates map[*resource]*node
}

// types is a set of JSON types, a bit each.
type types uint8

const (
	typeNull types = 1 << iota
	typeBoolean
	typeNumber
	typeInteger
	typeString
	typeArray
	typeObject
)

// typeNames are the names of the bits, in their order.
var typeNames = [...]string{"null", "boolean", "number", "integer", "string", "array", "object"}

// kindTypes is the type of a value by its kind; integer is a matter of the number.
var kindTypes = [...]types{typeNull, typeBoolean, typeBoolean, typeNumber, typeString, typeArray, typeObject}

func typeOf(name string) types {
	for i, n := range typeNames {
		if n == name {
			return 1 << i
		}
	}
	return 0
}

// names lists the set.
func (t types) names() (out []string) {
	for i, n := range typeNames {
		if t&(1<<i) != 0 {
			out = append(out, n)
		}
	}
	return out
}

// bound is a limit of a number.
type bound struct {
	keyword string
	limit   decimal
	text    string // the limit as written
	low     bool   // a lower limit
	open    bool   // the limit itself is out
}

type numberRules struct {
	bounds   []bound
	multiple *bound
}

type stringRules struct {
	min, max int // code points; max -1 = none
	pattern  *regexp.Regexp
}

type arrayRules struct {
	min, max    int // max -1 = none
	unique      bool
	prefix      []*node
	rest        *node // the items behind prefix
	contains    *node
	minContains int
	maxContains int  // -1 = none
	marks       bool // contains counts as evaluating what it matches
	unevaluated *node
}

type objectRules struct {
	min, max    int // max -1 = none
	required    []string
	props       map[string]prop // of properties and required
	patterns    []pattern
	additional  *node
	names       *node
	dependents  []dependent
	unevaluated *node
}

// prop is what a schema says of one name.
type prop struct {
	node     *node // nil = only required
	required bool
}

type pattern struct {
	re   *regexp.Regexp
	node *node
}

// dependent is what an object has to hold when it holds name.
type dependent struct {
	name     string
	required []string
	schema   *node // nil = only names
}

type logicRules struct {
	not             *node
	all, any, one   []*node
	cond, then, els *node
}

// edge says how a schema applies another.
type edge uint8

const (
	edgePlain edge = iota // all of allOf, anyOf, then, else, dependent schemas and references
	edgeTurns             // not, if and oneOf: more acceptance inside may mean less outside
)

// inPlace yields the schemas that n applies to the same value.
func (n *node) inPlace(yield func(e edge, to *node) bool) {
	for _, c := range n.calls {
		if !yield(edgePlain, c.to) {
			return
		}
		for _, to := range c.candidates {
			if to != c.to && !yield(edgePlain, to) {
				return
			}
		}
	}
	if n.obj != nil {
		for _, d := range n.obj.dependents {
			if d.schema != nil && !yield(edgePlain, d.schema) {
				return
			}
		}
	}
	if n.logic != nil {
		n.logic.inPlace(yield)
	}
}

func (l *logicRules) inPlace(yield func(e edge, to *node) bool) {
	each := func(e edge, nodes ...*node) bool {
		for _, to := range nodes {
			if to != nil && !yield(e, to) {
				return false
			}
		}
		return true
	}
	_ = each(edgePlain, l.all...) && each(edgePlain, l.any...) && each(edgeTurns, l.one...) &&
		each(edgeTurns, l.not, l.cond) && each(edgePlain, l.then, l.els)
}

// below yields the schemas that n applies to parts of the value.
func (n *node) below(yield func(to *node) bool) {
	each := func(nodes ...*node) bool {
		for _, to := range nodes {
			if to != nil && !yield(to) {
				return false
			}
		}
		return true
	}
	if a := n.arr; a != nil && !(each(a.prefix...) && each(a.rest, a.contains, a.unevaluated)) {
		return
	}
	o := n.obj
	if o == nil || !each(o.additional, o.names, o.unevaluated) {
		return
	}
	for _, p := range o.props {
		if !each(p.node) {
			return
		}
	}
	for _, p := range o.patterns {
		if !each(p.node) {
			return
		}
	}
}
