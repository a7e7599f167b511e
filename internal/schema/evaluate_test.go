package schema

import (
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

const draft2019Head = `"$schema":"https://json-schema.org/draft/2019-09/schema",`

// verdictCases are keywords whose meaning depends on others, or on the way there.
var verdictCases = []struct {
	name, doc         string
	accepted, refused []string
}{
	{"unevaluatedProperties sees its siblings", `{"properties":{"a":{}},"patternProperties":{"^p":{}},"unevaluatedProperties":false}`,
		[]string{`{}`, `{"a":1,"p1":2}`, `[1]`}, []string{`{"a":1,"b":2}`, `{"b":1,"a":2}`}},
	{"and what applies to the same value", `{"allOf":[{"properties":{"a":{}}}],"$ref":"#/$defs/b","$defs":{"b":{"properties":{"b":{}}}},"unevaluatedProperties":false}`,
		[]string{`{"a":1,"b":2}`}, []string{`{"a":1,"b":2,"c":3}`}},
	{"all branches that accept", `{"anyOf":[{"properties":{"a":{"type":"integer"}}},{"properties":{"b":{"type":"integer"}}}],"unevaluatedProperties":false}`,
		[]string{`{"a":1,"b":1}`, `{"a":1}`, `{}`}, []string{`{"a":1,"b":"x"}`, `{"c":1}`}},
	{"oneOf", `{"oneOf":[{"required":["a"],"properties":{"a":{}}},{"required":["b"],"properties":{"b":{}}}],"unevaluatedProperties":false}`,
		[]string{`{"a":1}`, `{"b":1}`}, []string{`{"a":1,"b":1}`, `{"a":1,"c":1}`}},
	{"if, then and else", `{"if":{"properties":{"k":{"const":1}},"required":["k"]},"then":{"properties":{"a":{}}},"else":{"properties":{"b":{}}},"unevaluatedProperties":false}`,
		[]string{`{"k":1,"a":2}`, `{"b":2}`, `{"k":1}`}, []string{`{"k":1,"b":2}`, `{"k":2}`, `{"a":1}`}},
	{"not evaluates nothing", `{"not":{"properties":{"a":{"type":"null"}},"required":["a"]},"unevaluatedProperties":false}`,
		[]string{`{}`}, []string{`{"a":1}`, `{"a":null}`}},
	{"dependentSchemas", `{"properties":{"a":{}},"dependentSchemas":{"a":{"properties":{"b":{}}}},"unevaluatedProperties":false}`,
		[]string{`{"a":1,"b":1}`, `{"a":1}`}, []string{`{"b":1}`}},
	{"additionalProperties evaluates all", `{"allOf":[{"additionalProperties":{"type":"integer"}}],"unevaluatedProperties":false}`,
		[]string{`{"a":1,"b":2}`}, []string{`{"a":"x"}`}},
	{"unevaluatedProperties evaluates for those above", `{"allOf":[{"unevaluatedProperties":{"type":"integer"}}],"unevaluatedProperties":false}`,
		[]string{`{"a":1}`}, []string{`{"a":"x"}`}},
	{"not for those beside", `{"allOf":[{"properties":{"a":{}}},{"unevaluatedProperties":false}]}`,
		[]string{`{}`}, []string{`{"a":1}`}},
	{"a repeated key is one member", `{"properties":{"a":{}},"unevaluatedProperties":false}`,
		[]string{`{"a":1,"a":2}`}, []string{`{"b":1,"a":1,"b":2}`}},
	{"unevaluatedItems behind prefixItems", `{"prefixItems":[{}],"unevaluatedItems":false}`, []string{`[]`, `[1]`, `{"a":1}`}, []string{`[1,2]`}},
	{"items evaluate all", `{"allOf":[{"items":{"type":"integer"}}],"unevaluatedItems":false}`, []string{`[1,2]`}, []string{`["x"]`}},
	{"contains evaluates what it matches", `{"contains":{"type":"integer"},"unevaluatedItems":{"type":"string"}}`, []string{`[1,"a",2]`}, []string{`[1,null]`, `["a"]`}},
	{"not before 2020-12", `{` + draft2019Head + `"contains":{"type":"integer"},"unevaluatedItems":{"type":"string"}}`, []string{}, []string{`[1,"a"]`, `[1]`}},
	{"contains and the marks of a long list", `{"contains":{"type":"integer"},"maxContains":2,"unevaluatedItems":false}`, []string{`[1,2]`}, []string{`[1,2,3]`, `["a",1]`}},
	{"tuples evaluate their part", `{` + draft2019Head + `"items":[{},{}],"unevaluatedItems":false}`, []string{`[1,2]`}, []string{`[1,2,3]`}},
	{"items below do not count", `{"properties":{"a":{"properties":{"b":{}}}},"unevaluatedProperties":false}`, []string{`{"a":{"b":1,"c":2}}`}, []string{`{"b":1}`}},

	{"a dynamic reference without resources is plain", `{"$defs":{"s":{"$dynamicAnchor":"t","type":"string"}},"items":{"$dynamicRef":"#t"}}`, []string{`["a"]`}, []string{`[1]`}},
	{"a list of strings", `{"$id":"http://x/top","$ref":"#/$defs/list","$defs":{"str":{"$dynamicAnchor":"t","type":"string"},
		"list":{"$id":"list","items":{"$dynamicRef":"#t"},"$defs":{"any":{"$dynamicAnchor":"t"}}}}}`, []string{`["a"]`}, []string{`[1]`}},
	{"the nearer one when the outer has none", `{"$id":"http://x/top","$ref":"#/$defs/list","$defs":{
		"list":{"$id":"list","items":{"$dynamicRef":"#t"},"$defs":{"any":{"$dynamicAnchor":"t","type":"integer"}}}}}`, []string{`[1]`}, []string{`["a"]`}},
	{"a plain anchor is not dynamic", `{"$id":"http://x/top","$ref":"#/$defs/list","$defs":{"str":{"$dynamicAnchor":"t","type":"string"},
		"list":{"$id":"list","items":{"$dynamicRef":"#t"},"$defs":{"any":{"$anchor":"t"}}}}}`, []string{`["a"]`, `[1]`}, nil},
	{"nor is a pointer", `{"$id":"http://x/top","$ref":"#/$defs/list","$defs":{"str":{"$dynamicAnchor":"t","type":"string"},
		"list":{"$id":"list","items":{"$dynamicRef":"#/$defs/any"},"$defs":{"any":{"$dynamicAnchor":"t"}}}}}`, []string{`["a"]`, `[1]`}, nil},
	{"a resource that was left is out of scope", `{"$id":"http://x/top","allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"$defs":{
		"a":{"$id":"a","$dynamicAnchor":"t","minLength":0},
		"b":{"$id":"b","items":{"$dynamicRef":"#t"},"$defs":{"any":{"$dynamicAnchor":"t","type":"integer"}}}}}`, []string{`[1]`}, []string{`["a"]`}},
	{"a recursive anchor", `{` + draft2019Head + `"$id":"http://x/top","$recursiveAnchor":true,"$ref":"#/$defs/tree","required":["v"],"$defs":{
		"tree":{"$id":"tree","$recursiveAnchor":true,"properties":{"next":{"$recursiveRef":"#"}}}}}`, []string{`{"v":1,"next":{"v":2}}`}, []string{`{"v":1,"next":{}}`}},
	{"no recursive anchor at the target", `{` + draft2019Head + `"$id":"http://x/top","$recursiveAnchor":true,"$ref":"#/$defs/tree","required":["v"],"$defs":{
		"tree":{"$id":"tree","properties":{"next":{"$recursiveRef":"#"}}}}}`, []string{`{"v":1,"next":{}}`}, []string{`{"next":{}}`}},
	{"pointers are relative to their resource", `{"$id":"http://x/top","$defs":{"a":{"type":"string"},"r":{"$id":"r","$defs":{"a":{"type":"integer"}},"items":{"$ref":"#/$defs/a"}}},"$ref":"#/$defs/r"}`,
		[]string{`[1]`}, []string{`["a"]`}},
}

func TestVerdictsOnTheSubtleKeywords(t *testing.T) {
	for _, c := range verdictCases {
		ours := mustRegister(t, c.doc)
		theirs, err := library(c.doc)
		if err != nil {
			t.Fatalf("%s: the library: %v", c.name, err)
		}
		for i, payload := range append(c.accepted, c.refused...) {
			plain, err := jsonschema.UnmarshalJSON(strings.NewReader(payload))
			if err != nil {
				t.Fatal(err)
			}
			want := i < len(c.accepted)
			if got := ours.Validate([]byte(payload)); (got == nil) != want {
				t.Errorf("%s: %s: %v", c.name, payload, got)
			}
			if (theirs.Validate(plain) == nil) != want {
				t.Errorf("%s: %s: the library disagrees", c.name, payload)
			}
		}
	}
}

// As TestVerdictsMatchTheLibrary, where marks and scopes decide.
func TestUnevaluatedMatchesTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &gen{t: t, draft: rapid.SampledFrom([]draft{draft2019, draft2020}).Draw(t, "draft")}
		given := `,"unevaluatedProperties":` + g.schema(0) + `,"unevaluatedItems":` + g.schema(0) +
			`,"anyOf":[` + g.schema(2) + `,{"unevaluatedProperties":{"type":"integer"}},` + g.schema(1) + `]`
		doc := g.documentWith(given)
		ours, _, err := Register("orders", 3, []byte(doc))
		skipBroken(t, err)
		theirs, err := library(doc)
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			payload := g.value(3)
			plain, err := jsonschema.UnmarshalJSON(strings.NewReader(payload))
			if err != nil {
				t.Fatal(err)
			}
			got, want := ours.Validate([]byte(payload)), theirs.Validate(plain)
			if (got == nil) != (want == nil) {
				t.Fatalf("%s\n%s\nours:   %v\ntheirs: %v", doc, payload, got, want)
			}
		}
	})
}
