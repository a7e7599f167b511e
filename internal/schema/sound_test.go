package schema

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// widened draws a new version: the old one with some keywords changed the way
// versions change, else anything.
func (g *gen) widened(doc string) string {
	if g.n("fresh", 0, 5) == 0 {
		return g.document()
	}
	edits := [][2]string{
		{`"integer"`, `"number"`}, {`"minLength":2`, `"minLength":1`}, {`"maxLength":1`, `"maxLength":2`},
		{`"maximum":1`, `"maximum":3`}, {`"minimum":1`, `"minimum":0`}, {`"title":"t"`, `"title":"u"`},
		{`"required":["a","b"]`, `"required":["a"]`}, {`"required":["a"]`, `"required":["a","b"]`},
		{`"uniqueItems":true`, `"uniqueItems":false`}, {`"additionalProperties":false`, `"additionalProperties":true`},
		{`"multipleOf":2`, `"multipleOf":1`}, {`"exclusiveMinimum"`, `"minimum"`}, {`"items"`, `"title"`},
		{`"const"`, `"default"`}, {`"anyOf"`, `"allOf"`}, {`"not"`, `"default"`}, {`"then"`, `"else"`},
		{`"minItems":1`, `"minItems":2`}, {`"maxItems"`, `"minItems"`}, {`[null`, `[false,null`}, {`"pattern"`, `"default"`},
		{`"properties":{`, `"properties":{"new":false,`}, {`{}`, `{"type":"string"}`}, {`true`, `{"minimum":1}`},
	}
	out := doc
	for range g.n("edits", 1, 3) {
		e := rapid.SampledFrom(edits).Draw(g.t, "edit")
		out = strings.Replace(out, e[0], e[1], 1)
	}
	return out
}

// listed are the properties of a document, by place.
func listed(t *rapid.T, doc string) map[string]string {
	l, err := open([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, i := range l.order {
		v := value{l.doc, i}
		if props, ok := v.get("properties"); ok {
			for name := range props.members {
				out[l.positions[i].at.add(name.string()).String()] = name.string()
			}
		}
	}
	return out
}

// added are the names that the new version lists where the old one does not. Branches
// are compared across places, so with them any name may be new.
func added(t *rapid.T, old, next string) (names []string) {
	was := listed(t, old)
	if strings.Contains(next, `"anyOf"`) || strings.Contains(next, `"allOf"`) {
		was = nil
	}
	for at, name := range listed(t, next) {
		if _, ok := was[at]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// What Compatible lets through is compatible: whatever the old version accepts, the
// new one does. The exception is CMP-22, a new property where any was allowed: payloads
// with a member of such a name are left out.
func TestCompatibleIsSound(t *testing.T) {
	let, refused, accepted := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		g := &gen{t: t, draft: drawDraft(t), plain: rapid.IntRange(0, 3).Draw(t, "refs") > 0}
		old := g.document()
		next := g.widened(old)
		oldSchema, _, err := Register("t", 1, []byte(old))
		skipBroken(t, err)
		newSchema, _, err := Register("t", 2, []byte(next))
		skipBroken(t, err)
		if err := Compatible([]byte(old), []byte(next)); err != nil {
			refused++
			return
		}
		let++
		fresh := added(t, old, next)
		for range 12 {
			payload := []byte(g.value(3))
			cmp22 := slices.ContainsFunc(fresh, func(name string) bool { return strings.Contains(string(payload), quoteJSON(name)) })
			if cmp22 || oldSchema.Validate(payload) != nil {
				continue
			}
			accepted++
			if err := newSchema.Validate(payload); err != nil {
				t.Fatalf("old  %s\nnew  %s\nvalue %s\n%v", old, next, payload, err)
			}
		}
	})
	if let < 5 || refused < 5 || accepted < 5 {
		t.Errorf("the generator is lopsided: %d let through, %d refused, %d payloads", let, refused, accepted)
	}
}
