package schema

import "testing"

func TestSC3SameMeaning(t *testing.T) {
	for _, c := range []struct {
		name, a, b string
		same       bool
	}{
		{"equal", `{"type":"string"}`, `{"type":"string"}`, true},
		{"spelling", `{"minimum":1.0,"maximum":1e2}`, ` { "maximum" : 100, "minimum":1 } `, true},
		{"order of a list", `{"required":["a","b"]}`, `{"required":["b","a"]}`, false},
		{"annotations at the root", `{"type":"null"}`, `{"type":"null","title":"t","description":"d","examples":[1],"$comment":"c","default":1,"deprecated":true,"readOnly":true,"writeOnly":false}`, true},
		{"annotations below", `{"properties":{"a":{"items":{"title":"x"}}},"$defs":{"d":{}}}`, `{"properties":{"a":{"items":{}}},"$defs":{"d":{"description":"y"}}}`, true},
		{"annotations in lists", `{"allOf":[{"title":"x"},{}]}`, `{"allOf":[{},{"default":1}]}`, true},
		{"a property named title", `{"properties":{"title":{"type":"string"}}}`, `{"properties":{}}`, false},
		{"a property named default", `{"properties":{"default":{"minLength":1}}}`, `{"properties":{"default":{"minLength":2}}}`, false},
		{"a definition named title", `{"$defs":{"title":{"minLength":1}}}`, `{"$defs":{"title":{"minLength":2}}}`, false},
		{"title inside a const", `{"const":{"title":1}}`, `{"const":{"title":2}}`, false},
		{"title inside an unknown keyword", `{"x":{"title":1}}`, `{"x":{"title":2}}`, false},
		{"an unknown keyword", `{"x":1}`, `{}`, false},
		{"another length", `{"allOf":[{}]}`, `{"allOf":[{},{}]}`, false},
		{"another draft", `{` + draft7Head + `"title":"a"}`, `{"title":"a"}`, false},
		{"dependencies", `{` + draft7Head + `"dependencies":{"a":["b"],"c":{"title":"x"}}}`, `{` + draft7Head + `"dependencies":{"a":["b"],"c":{}}}`, true},
		{"dependencies as names", `{` + draft7Head + `"dependencies":{"a":["b"]}}`, `{` + draft7Head + `"dependencies":{"a":["c"]}}`, false},
		{"tuple", `{` + draft7Head + `"items":[{"title":"x"}]}`, `{` + draft7Head + `"items":[{}]}`, true},
		{"true and empty", `{"items":true}`, `{"items":{}}`, false},
		{"a reference into an annotation", `{"$ref":"#/default","default":{"minLength":1}}`, `{"$ref":"#/default","default":{"minLength":2}}`, false},
		{"no JSON, equal bytes", `{`, `{`, true},
		{"no JSON", `{`, `{ `, false},
		{"boolean", `true`, `true`, true},
		{"boolean and object", `true`, `{}`, false},
		{"broken layout", `{"$ref":"x"}`, `{"$ref":"x","title":"t"}`, false},
	} {
		if got := SameMeaning([]byte(c.a), []byte(c.b)); got != c.same {
			t.Errorf("%s: %v", c.name, got)
		}
		if got := SameMeaning([]byte(c.b), []byte(c.a)); got != c.same {
			t.Errorf("%s, turned round: %v", c.name, got)
		}
	}
}

func TestSC7SameHistory(t *testing.T) {
	history := func(docs ...string) (out [][]byte) {
		for _, d := range docs {
			out = append(out, []byte(d))
		}
		return out
	}
	for _, c := range []struct {
		name string
		a, b [][]byte
		same bool
	}{
		{"none", nil, history(), true},
		{"spelling", history(`{"a":1,"b":2}`, `{}`), history(`{"b":2.0, "a":1e0}`, ` {}`), true},
		{"length", history(`{}`), history(`{}`, `{}`), false},
		{"order", history(`{}`, `true`), history(`true`, `{}`), false},
		{"annotation", history(`{}`), history(`{"title":"x"}`), false},
		{"damaged, equal", history(`{`), history(`{`), true},
		{"damaged", history(`{`), history(`{}`), false},
	} {
		if got := SameHistory(c.a, c.b); got != c.same {
			t.Errorf("%s: %v", c.name, got)
		}
		if got := SameHistory(c.b, c.a); got != c.same {
			t.Errorf("%s, turned round: %v", c.name, got)
		}
	}
}
