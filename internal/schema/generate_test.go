package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// gen draws small schemas and payloads that have a fair chance to meet: few names,
// few values, few patterns.
type gen struct {
	t     *rapid.T
	draft draft
	// plain leaves out what Compatible only takes unchanged, and references.
	plain bool
}

var (
	genNames    = []string{"a", "b", "ab", "c"}
	genStrings  = []string{"", "a", "b", "ab", "abc", "äö", "2020-01-02", "1.2.3.4"}
	genNumbers  = []string{"0", "1", "-1", "2", "3", "4", "1.5", "1.0", "1e2", "0.1", "123456789012345678901234567890", "-0.0"}
	genPatterns = []string{"^a", "b$", "^ab?$", "c"}
	genTypes    = []string{"null", "boolean", "number", "integer", "string", "array", "object"}
	genFormats  = []string{"date", "ipv4", "email", "nonsense"}
)

func (g *gen) pick(label string, from []string) string {
	return rapid.SampledFrom(from).Draw(g.t, label)
}

func (g *gen) n(label string, low, high int) int { return rapid.IntRange(low, high).Draw(g.t, label) }

// value draws a JSON value.
func (g *gen) value(depth int) string {
	most := 6
	if depth <= 0 {
		most = 4
	}
	switch g.n("kind", 0, most) {
	case 0:
		return g.pick("word", []string{"null", "true", "false"})
	case 1, 2:
		return g.pick("number", genNumbers)
	case 3, 4:
		return quoteJSON(g.pick("string", genStrings))
	case 5:
		var items []string
		for range g.n("items", 0, 3) {
			items = append(items, g.value(depth-1))
		}
		return "[" + strings.Join(items, ",") + "]"
	default:
		var members []string
		for range g.n("members", 0, 4) {
			members = append(members, quoteJSON(g.pick("name", genNames))+":"+g.value(depth-1))
		}
		return "{" + strings.Join(members, ",") + "}"
	}
}

func quoteJSON(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// schema draws a schema.
func (g *gen) schema(depth int) string {
	if g.draft >= draft6 && g.n("bool", 0, 9) == 0 {
		return g.pick("which", []string{"true", "true", "false"})
	}
	return "{" + g.keywords(depth, "") + "}"
}

// keywords draws what stands between the braces of a schema, after first.
func (g *gen) keywords(depth int, first string) string {
	kw := map[string]string{}
	for range g.n("keywords", 0, 3) {
		name, val := g.keyword(depth)
		if name != "" && !strings.Contains(first, quoteJSON(name)+":") {
			kw[name] = val
		}
	}
	if _, ok := kw["exclusiveMinimum"]; ok && g.draft == draft4 {
		kw["minimum"] = "1"
	}
	if _, ok := kw["exclusiveMaximum"]; ok && g.draft == draft4 {
		kw["maximum"] = "3"
	}
	if _, ok := kw["$ref"]; ok && g.draft <= draft7 {
		delete(kw, "const") // the library wrongly lets it count beside $ref
	}
	parts := []string{}
	if first != "" {
		parts = append(parts, first)
	}
	for name, val := range kw {
		parts = append(parts, quoteJSON(name)+":"+val)
	}
	return strings.Join(parts, ",")
}

func (g *gen) keyword(depth int) (name, val string) {
	simple := []string{
		"type", "type", "types", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
		"multipleOf", "minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems",
		"minProperties", "maxProperties", "required", "title",
	}
	nested := []string{
		"properties", "properties", "properties", "patternProperties", "additionalProperties", "items", "items",
		"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "contains", "minContains", "maxContains",
		"propertyNames", "dependentSchemas", "dependentRequired", "dependencies", "prefixItems", "tuple",
	}
	if !g.plain {
		nested = append(nested, "unevaluatedProperties", "unevaluatedItems", "$ref", "$ref", "$dynamicRef", "$recursiveRef")
	}
	if depth <= 0 {
		name = g.pick("keyword", simple)
	} else {
		name = g.pick("keyword", append(nested, simple...))
	}
	switch name {
	case "types":
		a, b := g.pick("type", genTypes), g.pick("type", genTypes)
		if a == b {
			return "type", fmt.Sprintf("[%q]", a)
		}
		return "type", fmt.Sprintf("[%q,%q]", a, b)
	case "tuple":
		if g.draft >= draft2020 || g.plain {
			return "", ""
		}
		return "items", "[" + g.schema(depth-1) + "," + g.schema(depth-1) + "]"
	}
	if k, ok := g.draft.keyword(name); !ok || k.shape == annotation && name != "title" {
		return "", ""
	}
	return name, g.keywordValue(name, depth)
}

func (g *gen) keywordValue(name string, depth int) string {
	switch name {
	case "type":
		return quoteJSON(g.pick("type", genTypes))
	case "enum":
		seen := map[string]bool{}
		var vals []string
		for range g.n("values", 1, 4) {
			v := g.pick("value", append(append([]string{"null", "true", "[1]", `{"a":1}`}, genNumbers...), `"a"`, `"b"`, `""`))
			if !seen[v] && v != "1.0" {
				seen[v] = true
				vals = append(vals, v)
			}
		}
		if len(vals) == 0 {
			vals = []string{"1"}
		}
		return "[" + strings.Join(vals, ",") + "]"
	case "const":
		return g.value(1)
	case "minimum", "maximum":
		return g.pick("limit", genNumbers)
	case "exclusiveMinimum", "exclusiveMaximum":
		if g.draft == draft4 {
			return g.pick("flag", []string{"true", "false"})
		}
		return g.pick("limit", genNumbers)
	case "multipleOf":
		return g.pick("multiple", []string{"1", "2", "0.5", "3", "0.1", "1e2"})
	case "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains":
		return g.pick("count", []string{"0", "1", "2", "3"})
	case "pattern":
		return quoteJSON(g.pick("pattern", genPatterns))
	case "format":
		return quoteJSON(g.pick("format", genFormats))
	case "uniqueItems":
		return g.pick("flag", []string{"true", "false"})
	case "title":
		return `"t"`
	case "required":
		return g.nameList()
	case "$ref":
		return quoteJSON(g.pick("ref", []string{"#", "#/$defs/x", "#/$defs/y", "#/$defs/z"}))
	case "$dynamicRef":
		return `"#dyn"`
	case "$recursiveRef":
		return `"#"`
	}
	return g.nestedValue(name, depth-1)
}

func (g *gen) nameList() string {
	if g.n("both", 0, 1) == 0 {
		return `["a"]`
	}
	return `["a","b"]`
}

func (g *gen) nestedValue(name string, depth int) string {
	var parts []string
	switch name {
	case "properties", "dependentSchemas", "dependencies":
		for _, n := range genNames[:g.n("count", 1, 3)] {
			val := ""
			if name == "dependencies" && g.n("list", 0, 1) == 0 {
				val = g.nameList()
			} else {
				val = g.schema(depth)
			}
			parts = append(parts, quoteJSON(n)+":"+val)
		}
		return "{" + strings.Join(parts, ",") + "}"
	case "patternProperties":
		return "{" + quoteJSON(g.pick("pattern", genPatterns)) + ":" + g.schema(depth) + "}"
	case "dependentRequired":
		return `{"a":` + g.nameList() + "}"
	case "allOf", "anyOf", "oneOf", "prefixItems":
		for range g.n("branches", 1, 3) {
			parts = append(parts, g.schema(depth))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return g.schema(depth)
}

// document draws a whole document, with definitions to refer to.
func (g *gen) document() string { return g.documentWith("") }

// documentWith draws a document with some keywords given, behind a comma.
func (g *gen) documentWith(given string) string {
	first := fmt.Sprintf(`"$schema":%q`, g.draft.metaURL()) + given
	if !g.plain {
		defs := fmt.Sprintf(`"$defs":{"x":%s,"y":%s,"z":%s}`, g.schema(1), g.schema(1), g.dynamicDef())
		first += "," + defs
	}
	return "{" + g.keywords(2, first) + "}"
}

// dynamicDef is a definition that dynamic references find.
func (g *gen) dynamicDef() string {
	switch {
	case g.draft == draft2020:
		id := g.pick("id", []string{"", `"$id":"z",`})
		return "{" + id + g.keywords(1, `"$dynamicAnchor":"dyn"`) + "}"
	case g.draft == draft2019:
		return "{" + g.keywords(1, g.pick("recursive", []string{`"$recursiveAnchor":true`, `"$recursiveAnchor":true,"$id":"z"`})) + "}"
	}
	return g.schema(1)
}

func drawDraft(t *rapid.T) draft {
	return rapid.SampledFrom([]draft{draft4, draft6, draft7, draft2019, draft2020, draft2020}).Draw(t, "draft")
}

// skipBroken gives up on documents that generation made unregistrable.
func skipBroken(t *rapid.T, err error) {
	if err != nil {
		t.Skip(err)
	}
}

func mustRegister(t testing.TB, doc string) *Schema {
	t.Helper()
	s, _, err := Register("orders", 3, []byte(doc))
	if err != nil {
		t.Fatalf("Register(%s): %v", short(doc), err)
	}
	return s
}
