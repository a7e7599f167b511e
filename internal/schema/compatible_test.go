package schema

import (
	"errors"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/model"
)

const (
	draft7Head = `"$schema":"http://json-schema.org/draft-07/schema#",`
	draft4Head = `"$schema":"http://json-schema.org/draft-04/schema#",`
)

// compatibleCases give, for a pair of versions, what is refused in either direction;
// "" is allowed.
var compatibleCases = []struct {
	id, a, b          string
	forward, backward string
}{
	{"CMP-1", `{"type":"string"}`, `{"type":["string","null"]}`, "", `schema root: type "null" no longer allowed`},
	{"CMP-1", `{"type":"integer"}`, `{"type":"number"}`, "", `schema root: type "number" no longer allowed`},
	{"CMP-1", `{"type":["integer","string"]}`, `{"type":["string","number"]}`, "", `schema root: type "number" no longer allowed`},
	{"CMP-1", `{"type":"string"}`, `{}`, "", `schema root: type added`},
	{"CMP-1", `{"properties":{"qty":{"type":["integer","string"]}}}`, `{"properties":{"qty":{"type":"string"}}}`, `at /properties/qty: type "integer" no longer allowed`, ""},

	{"CMP-2", `{"enum":["a"]}`, `{"enum":["a","b"]}`, "", `schema root: enum value "b" removed`},
	{"CMP-2", `{"const":1}`, `{"enum":[2,1.0]}`, "", `schema root: const value 2 removed`},
	{"CMP-2", `{"enum":["a"]}`, `{}`, "", "schema root: enum added"},
	{"CMP-2", `{"const":null}`, `{}`, "", "schema root: const added"},
	{"CMP-2", `{"enum":[1,2],"const":1}`, `{"const":1}`, "", ""},
	{"CMP-2", `{"enum":[1,2],"const":3}`, `{"const":7}`, "", "schema root: enum value 7 removed"},
	{"CMP-2", `{"enum":[{"a":[1]}]}`, `{"enum":[{"a":[1]},[2]]}`, "", "schema root: enum value of type array removed"},

	{"CMP-3", `{"minimum":1}`, `{"minimum":0}`, "", "schema root: minimum tightened from 0 to 1"},
	{"CMP-3", `{"maximum":1}`, `{"maximum":2}`, "", "schema root: maximum tightened from 2 to 1"},
	{"CMP-3", `{"exclusiveMinimum":1}`, `{"exclusiveMinimum":0.5}`, "", "schema root: exclusiveMinimum tightened from 0.5 to 1"},
	{"CMP-3", `{"exclusiveMaximum":1}`, `{"exclusiveMaximum":2}`, "", "schema root: exclusiveMaximum tightened from 2 to 1"},
	{"CMP-3", `{"exclusiveMinimum":1}`, `{"minimum":1}`, "", "schema root: exclusiveMinimum tightened from 1 to 1"},
	{"CMP-3", `{"minimum":1}`, `{}`, "", "schema root: minimum added"},
	{"CMP-3", `{"maximum":1}`, `{}`, "", "schema root: maximum added"},
	{"CMP-3", `{"minimum":1.0}`, `{"minimum":1}`, "", ""},
	{"CMP-3", `{` + draft4Head + `"minimum":1,"exclusiveMinimum":true}`, `{` + draft4Head + `"minimum":1}`, "", "schema root: exclusiveMinimum tightened from 1 to 1"},

	{"CMP-4", `{"multipleOf":6}`, `{"multipleOf":3}`, "", "schema root: multipleOf changed from 3 to 6, which does not divide it"},
	{"CMP-4", `{"multipleOf":1}`, `{"multipleOf":0.25}`, "", "schema root: multipleOf changed from 0.25 to 1, which does not divide it"},
	{"CMP-4", `{"multipleOf":2}`, `{}`, "", "schema root: multipleOf added"},

	{"CMP-5", `{"minLength":2}`, `{"minLength":1}`, "", "schema root: minLength raised from 1 to 2"},
	{"CMP-5", `{"minItems":2}`, `{"minItems":1}`, "", "schema root: minItems raised from 1 to 2"},
	{"CMP-5", `{"minProperties":2}`, `{"minProperties":1}`, "", "schema root: minProperties raised from 1 to 2"},
	{"CMP-5", `{"minItems":2}`, `{}`, "", "schema root: minItems added"},
	{"CMP-5", `{}`, `{"minLength":0}`, "", ""},

	{"CMP-6", `{"maxLength":1}`, `{"maxLength":2}`, "", "schema root: maxLength lowered from 2 to 1"},
	{"CMP-6", `{"maxItems":1}`, `{"maxItems":2}`, "", "schema root: maxItems lowered from 2 to 1"},
	{"CMP-6", `{"maxProperties":1}`, `{"maxProperties":2}`, "", "schema root: maxProperties lowered from 2 to 1"},
	{"CMP-6", `{"maxItems":0}`, `{}`, "", "schema root: maxItems added"},
	{"CMP-6", `{"maxLength":1}`, `{"maxLength":1e30}`, "", "schema root: maxLength lowered from 9223372036854775807 to 1"},

	{"CMP-7", `{"pattern":"a"}`, `{"pattern":"b"}`, "schema root: pattern changed", "schema root: pattern changed"},
	{"CMP-7", `{"format":"date"}`, `{"format":"time"}`, "schema root: format changed", "schema root: format changed"},
	{"CMP-7", `{"pattern":"a"}`, `{}`, "", "schema root: pattern added"},
	{"CMP-7", `{"format":"date"}`, `{}`, "", "schema root: format added"},

	{"CMP-8", `{"uniqueItems":true}`, `{"uniqueItems":false}`, "", "schema root: uniqueItems added"},
	{"CMP-8", `{"uniqueItems":true}`, `{}`, "", "schema root: uniqueItems added"},

	{"CMP-9", `{"required":["id","note"]}`, `{"required":["id"]}`, "", `schema root: required property "note" added`},
	{"CMP-9", `{"required":["note"]}`, `{}`, "", `schema root: required property "note" added`},

	{"CMP-10", `{"properties":{"a":{}}}`, `{"properties":{"a":{},"b":{}}}`, "", `schema root: property "b" removed`},
	{"CMP-10", `{"properties":{"a":{"minLength":2}}}`, `{"properties":{"a":{"minLength":1}}}`, "", "at /properties/a: minLength raised from 1 to 2"},
	{"CMP-10", `{"properties":{"a":{}}}`, `{}`, `schema root: property "a" removed`, ""},
	{"CMP-10", `{"patternProperties":{"^x":{"type":"integer"}}}`, `{"patternProperties":{"^x":{"type":"integer"}},"properties":{"xy":{"type":"number"}}}`, "", `schema root: property "xy" removed`},
	{"CMP-10", `{"patternProperties":{"^x":{"type":"integer"}}}`, `{"patternProperties":{"^x":{"type":"integer"}},"properties":{"xy":{"type":"string"}}}`, `at /properties/xy: type "integer" no longer allowed`, `schema root: property "xy" removed`},
	{"CMP-10", `{"patternProperties":{"^x":{"type":"integer"}},"additionalProperties":{"type":"string"}}`, `{"patternProperties":{"^x":{"type":"integer"}},"additionalProperties":{"type":"string"},"properties":{"xy":{"type":"number"}}}`, "", `schema root: property "xy" removed`},
	{"CMP-10", `{"additionalProperties":{"type":"integer"}}`, `{"additionalProperties":{"type":"integer"},"properties":{"n":{"type":"string"}}}`, `at /properties/n: type "integer" no longer allowed`, `schema root: property "n" removed`},

	{"CMP-11", `{"additionalProperties":false}`, `{"additionalProperties":true}`, "", "schema root: additionalProperties closed"},
	{"CMP-11", `{"additionalProperties":false}`, `{}`, "", "schema root: additionalProperties closed"},
	{"CMP-11", `{"additionalProperties":false}`, `{"additionalProperties":{"type":"string"}}`, "", "at /additionalProperties: no value is accepted any more"},
	{"CMP-11", `{"additionalProperties":{"type":"integer"}}`, `{"additionalProperties":{"type":"number"}}`, "", `at /additionalProperties: type "number" no longer allowed`},
	{"CMP-11", `{"additionalProperties":{"type":"integer"}}`, `{}`, "", "schema root: additionalProperties restricted"},

	{"CMP-12", `{"items":{"type":"integer"}}`, `{"items":{"type":"number"}}`, "", `at /items: type "number" no longer allowed`},
	{"CMP-12", `{"items":{"type":"integer"}}`, `{}`, "", "schema root: items added"},
	{"CMP-12", `{` + draft7Head + `"items":[{}],"minItems":1}`, `{` + draft7Head + `"items":[{}],"minItems":0}`, "schema root: items as a list is only allowed in a part that does not change", "schema root: items as a list is only allowed in a part that does not change"},

	{"CMP-13", `{"anyOf":[{"type":"string"}]}`, `{"anyOf":[{"type":"null"},{"type":"string"}]}`, "", "schema root: anyOf branch 0 of the previous version is covered by no branch"},
	{"CMP-13", `{"anyOf":[{"type":"integer"},{"type":"string"}]}`, `{"anyOf":[{"type":["string","number"]}]}`, "", "schema root: anyOf branch 0 of the previous version is covered by no branch"},
	{"CMP-13", `{"anyOf":[{"type":"string"}]}`, `{}`, "", "schema root: anyOf added"},

	{"CMP-14", `{"allOf":[{"minLength":2},{"maxLength":9}]}`, `{"allOf":[{"minLength":1}]}`, "", "schema root: allOf branch 0 follows from no branch of the previous version"},
	{"CMP-14", `{"allOf":[{"type":"string"}]}`, `{}`, "", "schema root: allOf added"},

	{"CMP-15", `{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"integer"}}}`, `{"properties":{"a":{"$ref":"#/$defs/y"}},"$defs":{"y":{"type":"number"}}}`, "", `at /properties/a: type "number" no longer allowed`},
	{"CMP-15", `{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"integer"}}}`, `{"properties":{"a":{"type":"integer"}}}`, "", ""},
	{"CMP-15", `{"$defs":{"n":{"properties":{"next":{"$ref":"#/$defs/n"},"v":{"type":"integer"}}}},"$ref":"#/$defs/n"}`, `{"$defs":{"n":{"properties":{"next":{"$ref":"#/$defs/n"},"v":{"type":"number"}}}},"$ref":"#/$defs/n"}`, "", `at /properties/v: type "number" no longer allowed`},
	{"CMP-15", `{"properties":{"next":{"$ref":"#"},"v":{"type":"integer"}}}`, `{"properties":{"next":{"$ref":"#"},"v":{"type":"number"}}}`, "", `at /properties/v: type "number" no longer allowed`},
	{"CMP-15", `{"properties":{"a":{"$ref":"#x"}},"$defs":{"x":{"$anchor":"x","minLength":2}}}`, `{"properties":{"a":{"$ref":"#x"}},"$defs":{"x":{"$anchor":"x","minLength":1}}}`, "at /properties/a: in the previous version, $ref may only be # or #/... to be compared", "at /properties/a: in the previous version, $ref may only be # or #/... to be compared"},
	{"CMP-15", `{"properties":{"a":{"$ref":"#/$defs/x","title":"t","minLength":2}},"$defs":{"x":{}}}`, `{"properties":{"a":{"$ref":"#/$defs/x","title":"t"}},"$defs":{"x":{}}}`, "at /properties/a: in the previous version, $ref with other keywords beside it cannot be compared", "at /properties/a: $ref with other keywords beside it cannot be compared"},
	{"CMP-15", `{"properties":{"a":{"$ref":"#/properties/a"}}}`, `{"properties":{"a":{"type":"string"}}}`, "", "at /properties/a: no value is accepted any more"},
	{"CMP-15", `{"$id":"urn:a","$schema":"https://json-schema.org/draft/2020-12/schema","title":"t","$ref":"#/$defs/x","$defs":{"x":{"minLength":2}}}`, `{"minLength":1}`, "", "schema root: minLength raised from 1 to 2"},

	{"CMP-16", `{` + draft7Head + `"type":"string"}`, `{"type":"string"}`, "schema root: $schema changed", "schema root: $schema changed"},

	{"CMP-17", `{"oneOf":[{"minLength":2}]}`, `{"oneOf":[{"minLength":1}]}`, "schema root: oneOf changed", "schema root: oneOf changed"},
	{"CMP-17", `{"oneOf":[{}]}`, `{}`, "", "schema root: oneOf added"},
	{"CMP-17", `{"oneOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"null"}},"minLength":2}`, `{"oneOf":[{"type":"null","title":"t"}],"minLength":1}`, "", "schema root: minLength raised from 1 to 2"},
	{"CMP-17", `{"not":{"type":"null"}}`, `{"not":{"type":["null","string"]}}`, "schema root: not changed", "schema root: not changed"},
	{"CMP-17", `{"not":{}}`, `{"minLength":0}`, "", "schema root: not added"},
	{"CMP-17", `{"if":{"type":"string"},"then":{"minLength":1}}`, `{"if":{"type":"string"},"then":{"minLength":0}}`, "schema root: then changed", "schema root: then changed"},
	{"CMP-17", `{"if":{"type":"string"},"then":{"minLength":1}}`, `{"then":{"minLength":1}}`, "", "schema root: if added"},
	{"CMP-17", `{"if":{"type":"string"},"else":{"minimum":1}}`, `{"if":{"type":"string"}}`, "", "schema root: else added"},
	{"CMP-17", `{"contains":{"type":"null"}}`, `{"contains":{"type":"null"},"minContains":0}`, "schema root: minContains added", "schema root: minContains removed"},
	{"CMP-17", `{"contains":{"type":"null"},"maxContains":2}`, `{"maxContains":1}`, "", "schema root: contains added"},
	{"CMP-17", `{"propertyNames":{"minLength":2}}`, `{}`, "", "schema root: propertyNames added"},
	{"CMP-17", `{"propertyNames":{"minLength":2}}`, `{"propertyNames":{"minLength":1}}`, "schema root: propertyNames changed", "schema root: propertyNames changed"},
	{"CMP-17", `{"dependentRequired":{"a":["b"]}}`, `{"dependentRequired":{"a":[]}}`, "schema root: dependentRequired changed", "schema root: dependentRequired changed"},
	{"CMP-17", `{"dependentSchemas":{"a":{"type":"object"}}}`, `{}`, "", "schema root: dependentSchemas added"},
	{"CMP-17", `{` + draft7Head + `"dependencies":{"a":["b"]}}`, `{` + draft7Head + `"dependencies":{"a":["c"]}}`, "schema root: dependencies changed", "schema root: dependencies changed"},
	{"CMP-17", `{"patternProperties":{"^a":{"type":"string"}}}`, `{}`, "", "schema root: patternProperties added"},
	{"CMP-17", `{"patternProperties":{"^a":{}},"additionalProperties":false}`, `{"additionalProperties":false}`, "schema root: patternProperties removed while additionalProperties is not open", "schema root: patternProperties added"},
	{"CMP-17", `{"prefixItems":[{"type":"null"}],"items":{"type":"integer"}}`, `{"prefixItems":[{"type":"null"}],"items":{"type":"number"}}`, "", `at /items: type "number" no longer allowed`},
	{"CMP-17", `{"prefixItems":[{"type":"null"}],"items":{"type":"integer"}}`, `{"items":{"type":"integer"}}`, "schema root: prefixItems removed while items stays", "schema root: prefixItems added"},
	{"CMP-17", `{"prefixItems":[{"type":"null"}],"items":{"type":"integer"}}`, `{}`, "", "schema root: prefixItems added"},

	{"CMP-18", `{"unevaluatedProperties":false,"minProperties":1}`, `{"unevaluatedProperties":false}`, "schema root: unevaluatedProperties is only allowed in a part that does not change", "schema root: unevaluatedProperties is only allowed in a part that does not change"},
	{"CMP-18", `{"unevaluatedItems":false}`, `{}`, "schema root: unevaluatedItems is only allowed in a part that does not change", "schema root: unevaluatedItems is only allowed in a part that does not change"},
	{"CMP-18", `{"properties":{"a":{"unevaluatedItems":false}},"minProperties":1}`, `{"properties":{"a":{"unevaluatedItems":false}}}`, "", "schema root: minProperties added"},
	{"CMP-18", `{"$dynamicAnchor":"d","properties":{"a":{"$dynamicRef":"#d"}},"minProperties":1}`, `{"$dynamicAnchor":"d","properties":{"a":{"$dynamicRef":"#d"}}}`, "at /properties/a: $dynamicRef is only allowed in a part that does not change", "schema root: minProperties added"},

	{"CMP-19", `{"title":"a","$defs":{"x":{"type":"null"}},"minLength":1}`, `{"description":"b","deprecated":true,"minLength":1,"$defs":{"x":{"type":"string"}}}`, "", ""},

	{"CMP-20", `{"properties":{"a":{"type":"null"}},"items":{"oneOf":[{}]}}`, `{"properties":{"a":true},"items":{}}`, "", "at /properties/a: type added"},

	{"CMP-20", `{"properties":{"a":{"properties":{"b":{}},"required":["b"]}}}`, `{"properties":{"a":{"title":"anything"}}}`, "", `at /properties/a: required property "b" added`},
	{"CMP-20 not the root", `{"properties":{"a":{}}}`, `true`, `schema root: property "a" removed`, ""},

	{"CMP-21", `{` + draft4Head + `"const":1}`, `{` + draft4Head + `"const":2,"if":{},"contains":{}}`, "", ""},
	{"CMP-21", `{"x-owner":1}`, `{"x-owner":{"$ref":"#"},"minimun":3}`, "", ""},

	{"CMP-22", `{}`, `{"properties":{"a":{"type":"string"}}}`, "", `schema root: property "a" removed`},

	{"CMP-23", `{"type":"string"}`, `{"type":"string","minimum":5}`, "schema root: minimum added", ""},
	{"CMP-23", `{"enum":[1,2]}`, `{"type":"integer"}`, "schema root: type added", "schema root: enum added"},
	{"CMP-23", `{"type":"string"}`, `{"anyOf":[{"type":"string"},{"type":"null"}]}`, "schema root: anyOf added", "schema root: type added"},
	{"CMP-23", `{"required":["a"]}`, `{"minProperties":1}`, "schema root: minProperties added", `schema root: required property "a" added`},
}

func TestCompatible(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range compatibleCases {
		seen[strings.Fields(c.id)[0]] = true
		t.Run(c.id+" "+c.a+" to "+c.b, func(t *testing.T) {
			mustRegister(t, c.a)
			mustRegister(t, c.b)
			wantCompatible(t, c.a, c.b, c.forward)
			wantCompatible(t, c.b, c.a, c.backward)
			wantCompatible(t, c.a, c.a, "")
		})
	}
	if len(seen) != 23 {
		t.Errorf("%d of 23 rows have a case", len(seen))
	}
}

// wantCompatible holds the refusal of a step against its text without the fixed
// start.
func wantCompatible(t *testing.T, old, next, want string) {
	t.Helper()
	err := Compatible([]byte(old), []byte(next))
	got := ""
	if err != nil {
		const start = "invalid argument: schema incompatible with previous version: "
		rest, ok := strings.CutPrefix(err.Error(), start)
		if got = rest; !ok || !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%v does not start with %q", err, start)
		}
	}
	if got != want {
		t.Errorf("%s\n%s\n got %q\nwant %q", old, next, got, want)
	}
}

// What cannot be read is not compatible with anything (fails closed).
func TestCompatibleFailsClosed(t *testing.T) {
	wantCompatible(t, `{`, `{}`, "schema root: the previous version cannot be read")
	wantCompatible(t, `{"$ref":"http://x"}`, `{}`, "schema root: the previous version cannot be read")
	if err := Compatible([]byte(`{}`), []byte(`[]`)); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("new version is an array: %v", err)
	}
	branches := func(branch string) []byte {
		return []byte(`{"anyOf":[` + strings.Repeat(branch+",", 50) + `{}]}`)
	}
	old, next := branches(`{"maxLength":1}`), branches(`{"const":1}`)
	if err := compatible(old, next, 50_000); err != nil {
		t.Errorf("within the bound on work: %v", err)
	}
	err := compatible(old, next, 1_000)
	if err == nil || !strings.HasSuffix(err.Error(), ": schema root: the versions are too large to compare") {
		t.Errorf("past the bound on work: %v", err)
	}
}

// The pair of p is compatible if that of x and y is, which turns out not to be: what
// rested on it must not be taken for settled when p is met again.
func TestCMP15AssumptionsDoNotOutliveARefusal(t *testing.T) {
	old := `{"anyOf":[{"$ref":"#/$defs/x"}],"allOf":[{"$ref":"#/$defs/p"}],"$defs":{
		"x":{"properties":{"p":{"$ref":"#/$defs/p"}},"items":{"maxLength":5}},
		"p":{"properties":{"q":{"$ref":"#/$defs/x"}}}}}`
	next := `{"anyOf":[{"$ref":"#/$defs/y"},{}],"allOf":[{"$ref":"#/$defs/p"}],"$defs":{
		"y":{"properties":{"p":{"$ref":"#/$defs/p"}},"items":{"maxLength":4}},
		"p":{"properties":{"q":{"$ref":"#/$defs/y"}}}}}`
	wantCompatible(t, old, next, "schema root: allOf branch 0 follows from no branch of the previous version")
	payload := []byte(`{"q":["12345"]}`)
	if mustRegister(t, old).Validate(payload) != nil || mustRegister(t, next).Validate(payload) == nil {
		t.Error("the versions do not differ as this test says")
	}
}
