package schema

import (
	"fmt"
	"strings"

	"github.com/narad-mq/narad/internal/model"
)

// Compatible reports whether every payload that old accepts is accepted by next
// (spec/http-api section 9.4), by rules that look at one keyword at a time and
// refuse what they cannot tell. A part that is the same in both, references
// followed, is compatible whatever is in it. The error wraps model.ErrInvalid and
// names place and keyword.
//
// One case is let through on purpose (CMP-22): a property that is new where old
// allowed any further property may refuse what somebody has sent under its name.
func Compatible(old, next []byte) error { return compatible(old, next, compareWork) }

// compatible is Compatible with a bound on the work, in units of a keyword or so.
func compatible(old, next []byte, work int) error {
	n, err := open(next)
	if err != nil {
		return err
	}
	o, err := open(old)
	if err != nil {
		return incompatibleError(refuse(nil, "the previous version cannot be read"))
	}
	c := &comparer{
		old: o, next: n, work: work,
		open: map[pair]int{}, passed: map[pair]bool{}, failed: map[pair]*incompatible{},
		alike: map[pair]bool{}, unlike: map[pair]bool{},
	}
	bad := c.root()
	if c.work <= 0 {
		bad = &incompatible{nil, "the versions are too large to compare"}
	}
	if bad != nil {
		return incompatibleError(bad)
	}
	return nil
}

func incompatibleError(bad *incompatible) error {
	return fmt.Errorf("%w: schema incompatible with previous version: %w", model.ErrInvalid, bad)
}

// incompatible says what a new version no longer accepts.
type incompatible struct {
	at   *place
	what string
}

func (e *incompatible) Error() string { return e.at.pointer() + ": " + e.what }

func refuse(at *place, format string, args ...any) *incompatible {
	return &incompatible{at, fmt.Sprintf(format, args...)}
}

// pair is a schema of the old version and one of the new, by cell.
type pair struct{ o, n uint32 }

// comparer holds two versions against each other.
//
// Schemas may be recursive, so a pair that is already under comparison counts as
// compatible (CMP-15). A result that rests on such an assumption is kept only
// together with what it rests on; a refusal never rests on one.
type comparer struct {
	old, next *layout
	work      int
	open      map[pair]int // pairs under comparison, by depth
	passed    map[pair]bool
	failed    map[pair]*incompatible
	alike     map[pair]bool // pairs known to be the same, or not to be
	unlike    map[pair]bool
}

// settled is the depth of a result that rests on no pair under comparison.
const settled = 1 << 30

func (c *comparer) root() *incompatible {
	if c.old.draft != c.next.draft {
		return refuse(nil, "$schema changed")
	}
	bad, _ := c.widen(c.old.doc.root(), c.next.doc.root(), nil)
	return bad
}

// widen checks that n accepts what o does. rests is the depth of the lowest pair
// under comparison that the answer assumes, settled if none.
func (c *comparer) widen(o, n value, at *place) (bad *incompatible, rests int) {
	if c.work--; c.work <= 0 {
		return refuse(at, "too much to compare"), settled
	}
	if c.same(o, n) {
		return nil, settled
	}
	o, oldLoop, why := c.resolve(c.old, o)
	if why != "" {
		return refuse(at, "in the previous version, %s", why), settled
	}
	n, newLoop, why := c.resolve(c.next, n)
	switch {
	case why != "":
		return refuse(at, "%s", why), settled
	case at != nil && c.anything(c.next, n):
		return nil, settled // CMP-20
	case oldLoop || o.kind() == kindFalse:
		return nil, settled
	case newLoop || n.kind() == kindFalse:
		return refuse(at, "no value is accepted any more"), settled
	}
	return c.once(o, n, at)
}

// once applies the rules to a pair, unless that is being done or has been.
func (c *comparer) once(o, n value, at *place) (bad *incompatible, rests int) {
	key := pair{o.i, n.i}
	if depth, ok := c.open[key]; ok {
		return nil, depth
	}
	if c.passed[key] {
		return nil, settled
	}
	if bad := c.failed[key]; bad != nil {
		return bad, settled
	}
	depth := len(c.open)
	c.open[key] = depth
	r := &rules{c: c, at: at, rests: settled}
	r.old, r.next = c.effective(c.old, o), c.effective(c.next, n)
	bad = r.all()
	delete(c.open, key)
	switch {
	case bad != nil:
		c.failed[key] = bad
		return bad, settled
	case r.rests >= depth:
		c.passed[key] = true
		return nil, settled
	}
	return nil, r.rests
}

// inert are keywords that decide about no value by themselves.
var inert = map[string]bool{
	"$schema": true, "$id": true, "id": true, "$anchor": true, "$dynamicAnchor": true, "$recursiveAnchor": true,
	"contentSchema": true,
}

// effective are the keywords of a schema that decide about values (CMP-19, CMP-21).
func (c *comparer) effective(l *layout, v value) map[string]value {
	out := map[string]value{}
	// The callback never fails, so neither does the walk.
	_ = l.keywords(v, func(name string, k keyword, val value) error {
		c.work--
		if k.shape != annotation && k.shape != definitions && !inert[name] {
			out[name] = val
		}
		return nil
	})
	return out
}

// anything reports whether a schema plainly accepts everything.
func (c *comparer) anything(l *layout, v value) bool {
	return v.kind() == kindTrue || v.kind() == kindObject && len(c.effective(l, v)) == 0
}

// resolve follows $ref (CMP-15). loop says that it leads nowhere but to itself, why
// what keeps it from being compared.
func (c *comparer) resolve(l *layout, v value) (target value, loop bool, why string) {
	seen := map[uint32]bool{}
	for {
		ref, ok := v.get("$ref")
		if !ok || ref.kind() != kindString {
			return v, false, ""
		}
		if seen[v.i] {
			return v, true, ""
		}
		seen[v.i] = true
		c.work--
		if text := ref.string(); text != "#" && !strings.HasPrefix(text, "#/") {
			return v, false, "$ref may only be # or #/... to be compared"
		}
		if !c.lonely(l, v) {
			return v, false, "$ref with other keywords beside it cannot be compared"
		}
		v = value{l.doc, l.positions[v.i].refs["$ref"]}
	}
}

// lonely reports whether a $ref has nothing beside it but annotations, definitions,
// $schema and, at the root, $id.
func (c *comparer) lonely(l *layout, v value) bool {
	for name := range v.members {
		k, _ := l.draft.keyword(name.string())
		switch key := name.string(); {
		case key == "$ref", key == "$schema", k.shape == annotation, k.shape == definitions:
		case v.i == 0 && (key == "$id" || key == "id"):
		default:
			return false
		}
	}
	return true
}
