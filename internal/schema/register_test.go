package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/model"
)

// registerCases: want is how the text goes on behind "invalid argument: schema: ",
// "" for a document that registers.
var registerCases = []struct{ id, doc, want string }{
	{"SR-1 object", `{}`, ""},
	{"SR-1 true", ` true `, ""},
	{"SR-1 false", `false`, "the document must be a JSON object or true"},
	{"SR-1 null", `null`, "the document must be a JSON object or true"},
	{"SR-1 string", `"{}"`, "the document must be a JSON object or true"},
	{"SR-1 number", `1`, "the document must be a JSON object or true"},
	{"SR-1 array", `[{}]`, "the document must be a JSON object or true"},
	{"SR-1 no JSON", `{"type":"string"`, "the document is not valid JSON: unexpected end at byte 16"},
	{"SR-1 two texts", `{} {}`, "the document is not valid JSON: trailing data at byte 3"},
	{"SR-1 wrong shape", `{"properties":{"a":{"minLength":-1}}}`, `the document does not follow its draft: at "#/properties/a/minLength": minimum: got -1, want 0`},
	{"SR-1 unknown type", `{"type":"strin"}`, `the document does not follow its draft: at "#/type": value must be one of 'array', 'boolean', 'integer', 'null', 'number', 'object', 'string'`},

	{"SR-2 bytes", `{"title":"` + strings.Repeat("x", DocumentBytesMax-12) + `"}`, ""},
	{"SR-2 bytes past", `{"title":"` + strings.Repeat("x", DocumentBytesMax-11) + `"}`, "the document has 262145 bytes, at most 262144"},
	{"SR-2 nesting", strings.Repeat(`{"not":`, NestingMax-1) + `{}` + strings.Repeat("}", NestingMax-1), ""},
	{"SR-2 nesting past", strings.Repeat(`{"not":`, NestingMax) + `{}` + strings.Repeat("}", NestingMax), "the document nests deeper than 64 levels"},
	{"SR-2 nesting of data", `{"default":` + strings.Repeat("[", NestingMax) + strings.Repeat("]", NestingMax) + `}`, "the document nests deeper than 64 levels"},

	{"SR-3 2020-12", `{"$schema":"https://json-schema.org/draft/2020-12/schema"}`, ""},
	{"SR-3 2019-09", `{"$schema":"https://json-schema.org/draft/2019-09/schema#"}`, ""},
	{"SR-3 07", `{"$schema":"http://json-schema.org/draft-07/schema#"}`, ""},
	{"SR-3 06", `{"$schema":"http://json-schema.org/draft-06/schema#"}`, ""},
	{"SR-3 04", `{"$schema":"http://json-schema.org/draft-04/schema"}`, ""},
	{"SR-3 03", `{"$schema":"http://json-schema.org/draft-03/schema#"}`, "$schema must name draft 2020-12, 2019-09, 07, 06 or 04"},
	{"SR-3 own", `{"$schema":"https://example.com/meta"}`, "$schema must name draft 2020-12, 2019-09, 07, 06 or 04"},
	{"SR-3 no string", `{"$schema":7}`, "$schema must name draft 2020-12, 2019-09, 07, 06 or 04"},
	{"SR-3 another one below", `{"$defs":{"a":{"$id":"a","$schema":"http://json-schema.org/draft-07/schema#"}}}`, `$schema at "#/$defs/a" differs from that of the document`},

	{"SR-4 root", `{"properties":{"a":{"$ref":"#"}}}`, ""},
	{"SR-4 pointer", `{"$ref":"#/$defs/a~1b%25","$defs":{"a/b%":{}}}`, ""},
	{"SR-4 anchor", `{"$ref":"#a","$defs":{"x":{"$anchor":"a"}}}`, ""},
	{"SR-4 anchor of draft 7", `{` + draft7Head + `"allOf":[{"$ref":"#a"}],"definitions":{"x":{"$id":"#a"}}}`, ""},
	{"SR-4 dynamic", `{"$dynamicRef":"#a","$defs":{"x":{"$dynamicAnchor":"a"}}}`, ""},
	{"SR-4 place that is no schema by itself", `{"$ref":"#/components/x","components":{"x":{"type":"string"}}}`, ""},
	{"SR-4 id loads nothing", `{"$id":"https://nobody.invalid/x","type":"string"}`, ""},
	{"SR-4 nowhere", `{"$ref":"#/$defs/a"}`, `the reference at "#/$ref" does not resolve inside the document`},
	{"SR-4 no such anchor", `{"$ref":"#a"}`, `the reference at "#/$ref" does not resolve inside the document`},
	{"SR-4 to data", `{"$ref":"#/title","title":"x"}`, `the reference at "#/$ref" does not lead to a schema`},
	{"SR-4 to what is no schema", `{"$ref":"#/x","x":{"type":9}}`, `the document does not follow its draft: at "#/x/type": `},
	{"SR-4 anchor twice", `{"$defs":{"x":{"$anchor":"a"},"y":{"$anchor":"a"}}}`, `the anchor at "#/$defs/y" is used twice`},

	{"SR-5 lookahead", `{"pattern":"(?=a)"}`, `pattern refused: at "#/pattern": not an RE2 expression: invalid or unsupported Perl syntax`},
	{"SR-5 backreference", `{"patternProperties":{"(a)\\1":{}}}`, `pattern refused: at "#/patternProperties": not an RE2 expression: invalid escape sequence`},
	{"SR-5 cost", `{"pattern":"[a-z]{1,64}@"}`, `pattern refused: at "#/pattern": may take more than 32 matcher steps per input byte`},
	{"SR-5 bounded by anchors", `{"pattern":"^[a-z]{1,64}@$"}`, ""},

	{"SR-6 exponent", `{"minimum":1e1000,"maximum":1E+1000,"multipleOf":1e-1000}`, ""},
	{"SR-6 exponent past", `{"minimum":1e1001}`, "the document is not valid JSON: number exponent beyond +/-1000 at byte 17"},
	{"SR-6 exponent below", `{"default":1e-1001}`, "the document is not valid JSON: number exponent beyond +/-1000 at byte 18"},

	{"SR-7 two items", `{"allOf":[{"items":{"$ref":"#"}},{"items":{"$ref":"#"}}]}`, `too many paths: a value reaches "#" by more than one path at one recursion level: "#/allOf/0/items" and "#/allOf/1/items"`},
	{"SR-7 two branches", `{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}],"$defs":{"a":{"items":{"$ref":"#"}}}}`, `too many paths: a value reaches "#/$defs/a" by more than one path at one recursion level: "#/anyOf/0" and "#/anyOf/1"`},
	{"SR-7 pattern beside property", `{"properties":{"ab":{"$ref":"#"}},"patternProperties":{"^a":{"$ref":"#"}}}`, `too many paths: a value reaches "#" by more than one path at one recursion level: "#/properties/ab" and "#/patternProperties/^a"`},
	{"SR-7 items and contains", `{"items":{"$ref":"#"},"contains":{"$ref":"#"}}`, `too many paths: a value reaches "#" by more than one path at one recursion level: "#/items" and "#/contains"`},
	{"SR-7 dynamic reference", `{"$dynamicAnchor":"n","allOf":[{"items":{"$dynamicRef":"#n"}},{"items":{"$ref":"#"}}]}`, `too many paths: a value reaches "#" by more than one path at one recursion level: "#/allOf/0/items" and "#/allOf/1/items"`},
	{"SR-7 different members", `{"properties":{"left":{"$ref":"#"},"right":{"$ref":"#"}},"additionalProperties":{"$ref":"#"},"items":{"$ref":"#"}}`, ""},
	{"SR-7 different items", `{"prefixItems":[{"$ref":"#"},{"$ref":"#"}],"items":{"$ref":"#"}}`, ""},
	{"SR-7 twice from outside only", `{"allOf":[{"properties":{"t":{"$ref":"#/$defs/t"}}},{"properties":{"t":{"$ref":"#/$defs/t"}}}],"$defs":{"t":{"items":{"$ref":"#/$defs/t"}}}}`, ""},

	{"SR-8 64 paths", manyPaths(64), ""},
	{"SR-8 65 paths", manyPaths(65), `too many paths: one value is checked against "#/$defs/x" through more than 64 paths`},
	{"SR-8 chain", `{"$ref":"#/$defs/0","$defs":{` + repeat(8, ",", func(i int) string {
		return fmt.Sprintf(`"%d":{"allOf":[{"$ref":"#/$defs/%d"},{"$ref":"#/$defs/%d"}]}`, i, i+1, i+1)
	}) + `,"8":{}}}`, "too many paths: one value is checked against "},
	{"SR-8 chain of members", `{"$ref":"#/$defs/0","$defs":{` + repeat(7, ",", func(i int) string {
		return fmt.Sprintf(`"%d":{"allOf":[{"properties":{"a":{"$ref":"#/$defs/%d"}}},{"additionalProperties":{"$ref":"#/$defs/%d"}}]}`, i, i+1, i+1)
	}) + `,"7":{}}}`, "too many paths: one value is checked against "},
	{"SR-8 one value per member", `{"properties":{` + repeat(500, ",", func(i int) string { return fmt.Sprintf(`"p%d":{"$ref":"#/$defs/x"}`, i) }) + `},"$defs":{"x":{"type":"string"}}}`, ""},
	{"SR-8 names", `{"propertyNames":` + strings.Replace(manyPaths(65), `#/$defs`, `#/propertyNames/$defs`, -1) + `}`, `too many paths: one value is checked against "#/propertyNames/$defs/x" through more than 64 paths`},
	{"SR-8 stacked", `{"$ref":"#/$defs/0","$defs":{` + repeat(260, ",", func(i int) string {
		return fmt.Sprintf(`"%d":{"$ref":"#/$defs/%d"}`, i, i+1)
	}) + `,"260":{}}}`, `too many paths: "#/$defs/255" stacks more than 256 subschemas on one value`},

	{"SR-9 not", `{"not":{"$ref":"#"}}`, `too many paths: a reference loop applies "#" to the same value again through not, if or oneOf`},
	{"SR-9 if", `{"if":{"$ref":"#"}}`, `too many paths: a reference loop applies "#" to the same value again through not, if or oneOf`},
	{"SR-9 oneOf", `{"oneOf":[{"allOf":[{"$ref":"#"}]}]}`, `too many paths: a reference loop applies "#" to the same value again through not, if or oneOf`},
	{"SR-9 not below", `{"not":{"items":{"$ref":"#"}}}`, ""},
	{"SR-9 allOf", `{"allOf":[{"$ref":"#"}]}`, ""},
	{"SR-9 anyOf", `{"anyOf":[{"type":"string"},{"$ref":"#"}]}`, ""},
	{"SR-9 then and else", `{"if":{},"then":{"$ref":"#/$defs/a"},"else":{"$ref":"#"},"$defs":{"a":{"allOf":[{"$ref":"#"}]}}}`, ""},
	{"SR-9 nothing but $ref", `{"$ref":"#"}`, ""},
	{"SR-9 nothing but $ref, longer", `{"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`, ""},
}

// manyPaths leads n paths to one subschema.
func manyPaths(n int) string {
	return `{"allOf":[` + repeat(n, ",", func(int) string { return `{"$ref":"#/$defs/x"}` }) + `],"$defs":{"x":{"type":"string"}}}`
}

func TestRegister(t *testing.T) {
	for _, c := range registerCases {
		t.Run(c.id, func(t *testing.T) {
			_, _, err := Register("t", 1, []byte(c.doc))
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := Compile("t", 1, []byte(c.doc)); err != nil {
					t.Fatalf("does not compile: %v", err)
				}
				return
			}
			if !errors.Is(err, model.ErrInvalid) || !strings.HasPrefix(err.Error(), "invalid argument: schema: "+c.want) {
				t.Fatalf("\n got %v\nwant %s", err, c.want)
			}
		})
	}
}

// SR-4: outward references are refused wherever they stand and however they are
// written, and the text never shows them.
func TestSR4OutwardReferencesAreRefusedAndNotShown(t *testing.T) {
	refs := []string{
		"http://secret.example/x", "https://user:secret@h/x", "file:///secret", "secret.json", "./secret", "", "?secret",
		"https://me.example/own#secret", "https://me.example/own", "urn:secret", "//secret/x", " #secret",
	}
	places := []string{
		`{"$ref":%q}`, `{"$dynamicRef":%q}`, `{"$id":"https://me.example/own","properties":{"a":{"$ref":%q}}}`,
		`{"$defs":{"unused":{"items":{"$ref":%q}}}}`, `{"allOf":[{"not":{"$ref":%q}}]}`, `{"x-other":[{"deep":{"$ref":%q}}]}`,
		`{"patternProperties":{"a":{"$ref":%q}}}`, `{"contentSchema":{"$ref":%q}}`,
		`{` + draft7Head + `"$ref":"#","definitions":{"a":{"$ref":%q}}}`, `{` + draft4Head + `"additionalItems":{"$ref":%q}}`,
		`{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveRef":%q}`,
	}
	for _, place := range places {
		for _, ref := range refs {
			doc := fmt.Sprintf(place, ref)
			_, _, err := Register("t", 1, []byte(doc))
			if err == nil || !strings.Contains(err.Error(), "leads out of the document") {
				t.Errorf("%s: %v", doc, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") || err != nil && ref != "" && strings.Contains(err.Error(), ref) {
				t.Errorf("%s: the text shows the reference: %v", doc, err)
			}
		}
	}
	// A reference is one only where a schema stands or could.
	for _, doc := range []string{
		`{"enum":[{"$ref":"http://x"}]}`, `{"const":{"$ref":"http://x"}}`, `{"default":{"$ref":"x"}}`, `{"properties":{"$ref":{"type":"string"}}}`,
	} {
		mustRegister(t, doc)
	}
}

func TestSR10StoredCompacted(t *testing.T) {
	_, stored, err := Register("t", 1, []byte(" {\n\t\"b\" : [ 1.0 , \"a  <b>\" ],\r\n \"a\" : {} } "))
	if err != nil || string(stored) != `{"b":[1.0,"a  <b>"],"a":{}}` {
		t.Errorf("%s, %v", stored, err)
	}
}

// A document stored under older rules compiles, and takes nothing.
func TestCompileOfWhatTodayRefuses(t *testing.T) {
	for doc, reason := range map[string]string{
		`{"pattern":"(?=a)"}`: reasonPattern,
		`{"allOf":[{"items":{"$ref":"#"}},{"items":{"$ref":"#"}}]}`: reasonPaths,
		manyPaths(65):             reasonPaths,
		`{"not":{"$ref":"#"}}`:    reasonPaths,
		`{"pattern":"[a-z]{99}"}`: reasonPattern,
	} {
		s, err := Compile("t", 4, []byte(doc))
		if err != nil {
			t.Fatalf("%s: %v", short(doc), err)
		}
		err = s.Validate([]byte(`1`))
		refused, ok := errors.AsType[*payloadError](err)
		if !ok || refused.reason != reason || !errors.Is(err, model.ErrInvalid) ||
			!strings.HasPrefix(err.Error(), "invalid argument: schema: version 4 takes no payload: ") {
			t.Errorf("%s: %v", short(doc), err)
		}
	}
}

// A stored document that is none is damage, not the producer's fault.
func TestCompileOfDamage(t *testing.T) {
	for _, doc := range []string{"", "{", "[]", `{"$ref":"http://x"}`, strings.Repeat("[", 100)} {
		_, err := Compile("t", 1, []byte(doc))
		if !errors.Is(err, model.ErrCorrupt) || errors.Is(err, model.ErrInvalid) {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

func TestSchemaDescribesItself(t *testing.T) {
	s := mustRegister(t, `{}`)
	if s.Topic() != "orders" || s.Version() != 3 || s.Costly() {
		t.Errorf("%q %d %v", s.Topic(), s.Version(), s.Costly())
	}
}
