package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/narad-mq/narad/internal/model"
)

// payloadCases: want is how the text goes on behind "invalid argument: schema: ", ""
// for a payload that passes.
var payloadCases = []struct{ id, doc, payload, want string }{
	{"SV-1 object", `{}`, ` {"a":[1,true,null,"x"]} `, ""},
	{"SV-1 scalar", `true`, `0`, ""},
	{"SV-1 no JSON", `{}`, `hello`, "payload is not valid JSON: want a value at byte 0"},
	{"SV-1 empty", `{}`, ``, "payload is not valid JSON: unexpected end at byte 0"},
	{"SV-1 blank", `{}`, ` `, "payload is not valid JSON: unexpected end at byte 1"},
	{"SV-1 trailing data", `{}`, `{} x`, "payload is not valid JSON: trailing data at byte 3"},
	{"SV-1 two texts", `{}`, `1 2`, "payload is not valid JSON: trailing data at byte 2"},
	{"SV-1 BOM", `{}`, "\xef\xbb\xbf{}", "payload is not valid JSON: starts with a byte order mark"},
	{"SV-1 control byte", `{}`, "\"a\x01\"", "payload is not valid JSON: control byte in a string at byte 2"},
	{"SV-1 control byte behind an escape", `{}`, "\"\\n\x1f\"", "payload is not valid JSON: control byte in a string at byte 3"},
	{"SV-1 UTF-8", `{}`, "\"\xff\"", "payload is not valid JSON: invalid UTF-8 in a string at byte 1"},
	{"SV-1 UTF-8 of a surrogate", `{}`, "\"\xed\xa0\x80\"", "payload is not valid JSON: invalid UTF-8 in a string at byte 1"},
	{"SV-1 UTF-8 in a name", `{}`, "{\"\\t\xc3\":1}", "payload is not valid JSON: invalid UTF-8 in a string at byte 4"},
	{"SV-1 leading zero", `{}`, `01`, "payload is not valid JSON: trailing data at byte 1"},
	{"SV-1 plus", `{}`, `+1`, "payload is not valid JSON: want a value at byte 0"},
	{"SV-1 NaN", `{}`, `NaN`, "payload is not valid JSON: want a value at byte 0"},
	{"SV-1 comma at the end", `{}`, `[1,]`, "payload is not valid JSON: want a value at byte 3"},
	{"SV-1 single quotes", `{}`, `{'a':1}`, "payload is not valid JSON: want a member name at byte 1"},

	{"SV-2 last wins", `{"properties":{"a":{"type":"integer"}}}`, `{"a":"x","a":1}`, ""},
	{"SV-2 last is checked", `{"properties":{"a":{"type":"integer"}}}`, `{"a":1,"\u0061":"x"}`, "jsonschema validation failed with 'narad://schema/orders/3#'\n- at '/a': got string, want integer"},
	{"SV-2 counts once", `{"maxProperties":1}`, `{"a":1,"a":2,"a":3}`, ""},
	{"SV-2 many names", `{"maxProperties":20,"properties":{"n0":{"const":2}}}`, "{" + repeat(40, ",", func(i int) string { return fmt.Sprintf(`"n%d":%d`, i%20, i/20+1) }) + "}", ""},

	{"SV-3 256 levels", `{}`, strings.Repeat("[", 256) + strings.Repeat("]", 256), ""},
	{"SV-3 257 levels", `{}`, strings.Repeat("[", 257) + strings.Repeat("]", 257), "payload nests deeper than 256 levels"},
	{"SV-3 before anything else", `{}`, strings.Repeat(`{"a":`, 257) + "!", "payload nests deeper than 256 levels"},

	{"SV-4 1.0 is an integer", `{"type":"integer"}`, `1.0`, ""},
	{"SV-4 1e2 is an integer", `{"type":"integer"}`, `1e2`, ""},
	{"SV-4 120e-1 is an integer", `{"type":"integer"}`, `120e-1`, ""},
	{"SV-4 1.5 is none", `{"type":"integer"}`, `1.5`, "jsonschema validation failed with 'narad://schema/orders/3#'\n- at '': got number, want integer"},
	{"SV-4 exact", `{"maximum":9007199254740992}`, `9007199254740993`, "jsonschema validation failed with 'narad://schema/orders/3#'\n- at '': maximum: got 9007199254740993, want 9007199254740992"},
	{"SV-4 exact at any size", `{"const":` + strings.Repeat("7", 400) + `}`, strings.Repeat("7", 399) + "8", "jsonschema validation failed"},
	{"SV-4 exact tenth", `{"multipleOf":0.1}`, `0.3`, ""},
	{"SV-4 equal spellings", `{"enum":[100]}`, `1.0e2`, ""},
	{"SV-4 exponent", `{"maximum":1e1000}`, `1e1000`, ""},
	{"SV-4 exponent past", `{}`, `1e1001`, "payload is not valid JSON: number exponent beyond +/-1000 at byte 6"},
	{"SV-4 exponent below", `{}`, `[1E-1001]`, "payload is not valid JSON: number exponent beyond +/-1000 at byte 8"},
	{"SV-4 exponent far past", `{}`, `1e99999999999999999999`, "payload is not valid JSON: number exponent beyond +/-1000"},

	{"SV-5 code points", `{"maxLength":2,"minLength":2}`, `"ä\uD83D\uDE00"`, ""},
	{"SV-5 too long", `{"maxLength":2}`, `"äöü"`, "jsonschema validation failed with 'narad://schema/orders/3#'\n- at '': maxLength: got 3, want 2"},
	{"SV-5 too short", `{"minLength":2}`, `"ä"`, "jsonschema validation failed with 'narad://schema/orders/3#'\n- at '': minLength: got 1, want 2"},

	{"SV-6 2020-12", `{"format":"date"}`, `"2020-13-01"`, "jsonschema validation failed with 'narad://schema/orders/3#'\n- at '': '2020-13-01' is not valid date: "},
	{"SV-6 2019-09", `{"$schema":"https://json-schema.org/draft/2019-09/schema","format":"ipv4"}`, `"1.2.3"`, "jsonschema validation failed"},
	{"SV-6 07", `{` + draft7Head + `"format":"email"}`, `"x"`, "jsonschema validation failed"},
	{"SV-6 04", `{` + draft4Head + `"format":"uri"}`, `"x"`, "jsonschema validation failed"},
	{"SV-6 regex", `{"format":"regex"}`, `"(?=a)"`, "jsonschema validation failed"},
	{"SV-6 unknown", `{"format":"colour"}`, `"x"`, ""},
	{"SV-6 other types", `{"format":"date"}`, `7`, ""},

	{"SV-8 lines", `{"type":"object","required":["id","n"],"properties":{"id":{"type":"integer"},"list":{"items":{"minimum":3}}},"additionalProperties":false}`,
		`{"id":"x","list":[1,4,2],"z":0}`,
		"jsonschema validation failed with 'narad://schema/orders/3#'\n- at '/id': got string, want integer\n- at '/list': validation failed\n" +
			"  - at '/list/0': minimum: got 1, want 3\n  - at '/list/2': minimum: got 2, want 3\n- at '': additional properties 'z' not allowed\n- at '': missing property 'n'"},
	{"SV-8 branches", `{"anyOf":[{"type":"string"},{"required":["a","b"]}]}`, `{}`,
		"jsonschema validation failed with 'narad://schema/orders/3#'\n- at '': 'anyOf' failed\n  - at '': got object, want string\n  - at '': missing properties 'a', 'b'"},
	{"SV-8 tokens", `{"additionalProperties":{"type":"null"}}`, `{"a/b~c'\n":1}`,
		`jsonschema validation failed with 'narad://schema/orders/3#'` + "\n" + `- at '/a~1b~0c\'\n': got number, want null`},

	{"SR-9 pure loop accepts nothing", `{"$ref":"#"}`, `1`, "jsonschema validation failed with 'narad://schema/orders/3#'\n- at '': the schema applies itself to the same value"},
	{"SR-9 allOf loop accepts nothing", `{"allOf":[{"$ref":"#"}]}`, `1`, "jsonschema validation failed"},
	{"SR-9 anyOf loop accepts what else it says", `{"anyOf":[{"$ref":"#"},{"type":"string"}]}`, `"x"`, ""},
	{"SR-9 anyOf loop refuses the rest", `{"anyOf":[{"$ref":"#"},{"type":"string"}]}`, `1`, "jsonschema validation failed"},
	{"counts past an int", `{"maxLength":1e30,"minItems":0.0}`, `"abc"`, ""},
	{"draft 7 ignores what stands beside $ref", `{` + draft7Head + `"$ref":"#/definitions/a","const":1,"definitions":{"a":{}}}`, `2`, ""},
}

func TestValidate(t *testing.T) {
	for _, c := range payloadCases {
		t.Run(c.id, func(t *testing.T) {
			err := mustRegister(t, c.doc).Validate([]byte(c.payload))
			switch {
			case c.want == "" && err != nil:
				t.Fatal(err)
			case c.want != "" && (!errors.Is(err, model.ErrInvalid) || !strings.HasPrefix(err.Error(), "invalid argument: schema: "+c.want)):
				t.Fatalf("\n got %v\nwant %s", err, c.want)
			}
		})
	}
}

// SV-7: an enum of 16 values is a look-up by hash, and answers like a list.
func TestSV7EnumsLookUpByHash(t *testing.T) {
	for _, n := range []int{enumHashMin - 1, enumHashMin, 500} {
		vals := make([]string, n)
		for i := range vals {
			vals[i] = [...]string{fmt.Sprint(i), fmt.Sprintf(`"s%d"`, i), fmt.Sprintf(`[%d]`, i), fmt.Sprintf(`{"a":%d,"b":null}`, i)}[i%4]
		}
		s := mustRegister(t, `{"enum":[`+strings.Join(vals, ",")+`]}`)
		if hashed := s.graph.root.values[0].byHash != nil; hashed != (n >= enumHashMin) {
			t.Errorf("%d values: by hash %v", n, hashed)
		}
		for _, v := range append(vals, "4.0", `{"b":null,"a":3e0}`, `"\u00731"`) {
			if err := s.Validate([]byte(v)); err != nil {
				t.Errorf("%d values: %s: %v", n, v, err)
			}
		}
		for _, v := range []string{"1", `"s2"`, "[]", "[3]", `{"a":3}`, "null", "4.5"} {
			if s.Validate([]byte(v)) == nil {
				t.Errorf("%d values: %s accepted", n, v)
			}
		}
	}
}

// SV-8: a report is cut at 2 KiB, at the border of a character.
func TestSV8ReportIsCut(t *testing.T) {
	s := mustRegister(t, `{"items":{"enum":["`+strings.Repeat("ä", 5_000)+`","b"]}}`)
	err := s.Validate([]byte(`["` + strings.Repeat("é", 3_000) + `",1,2,3,4,5,6,7,8]`))
	report := strings.TrimPrefix(err.Error(), "invalid argument: schema: ")
	if len(report) > reportMax || len(report) < reportMax-4 || !utf8.ValidString(report) {
		t.Errorf("%d bytes: %q", len(report), report)
	}
}

// SV-8: past 32 MiB of lines there is a verdict, and advice.
func TestSV8NoReportPast32MiB(t *testing.T) {
	s := mustRegister(t, `{"items":{"anyOf":[{"type":"string"},{"minimum":5},{"type":"null"}]}}`)
	for name, payload := range map[string]string{
		"many":          "[" + strings.Repeat("1,", 150_000) + "1]",
		"many and deep": strings.Repeat("[", 40) + strings.Repeat("1,", 150_000) + "1" + strings.Repeat("]", 40),
	} {
		doc := s
		if name == "many and deep" {
			doc = mustRegister(t, `{"anyOf":[{"type":"array","items":{"$ref":"#"}},{"type":"string"}]}`)
		}
		err := doc.Validate([]byte(payload))
		want := "invalid argument: schema: jsonschema validation failed with 'narad://schema/orders/3#'\n- the full report would be too large: check a smaller part of the payload"
		if err == nil || err.Error() != want {
			t.Errorf("%s: %.300v", name, err)
		}
	}
	if err := s.Validate([]byte("[" + strings.Repeat("6,", 150_000) + "6]")); err != nil {
		t.Errorf("a payload that passes: %v", err)
	}
	if err := s.Validate([]byte("[" + strings.Repeat("6,", 150_000) + "1]")); err == nil || !strings.Contains(err.Error(), "'/150000'") {
		t.Errorf("one fault in a large payload: %.300v", err)
	}
}

// hostilePayloads are as large as a message may be.
func hostilePayloads() map[string]string {
	trees := make([]string, 0, 30_000)
	var grow func(open, closed int, s string)
	grow = func(open, closed int, s string) { // all arrays of 12 brackets: one hash in the library
		if len(trees) == cap(trees) {
			return
		}
		if closed == 12 {
			trees = append(trees, strings.ReplaceAll(s, "][", "],["))
			return
		}
		if open < 12 {
			grow(open+1, closed, s+"[")
		}
		if closed < open-1 || open == 12 {
			grow(open, closed+1, s+"]")
		}
	}
	grow(0, 0, "")
	return map[string]string{
		"equal items the library cannot tell apart": "[" + strings.Join(trees, ",") + "]",
		"many digits":       strings.Repeat("7", 1<<20),
		"many digits twice": "[" + strings.Repeat("7", 1<<19) + "," + strings.Repeat("7", 1<<19-8) + "8]",
		"many names":        "{" + repeat(90_000, ",", func(i int) string { return fmt.Sprintf(`"%x":%d`, i, i%10) }) + "}",
		"one name":          "{" + repeat(150_000, ",", func(i int) string { return `"a":` + fmt.Sprint(i%10) }) + "}",
		"deep":              strings.Repeat("[", 256) + strings.Repeat("1,", 500_000) + "1" + strings.Repeat("]", 256),
		"deep objects":      strings.Repeat(`{"a":`, 255) + `"` + strings.Repeat("b", 1<<20-3_000) + `"` + strings.Repeat("}", 255),
		"escapes":           `"` + strings.Repeat(`\u0061`, 170_000) + `"`,
		"many strings":      "[" + repeat(95_000, ",", func(i int) string { return fmt.Sprintf(`"a%d@b"`, i) }) + "]",
	}
}

// Any payload is judged soon, by schemas that ask for the expensive checks.
func TestHostilePayloadsEndSoon(t *testing.T) {
	schemas := map[string]string{
		"unique":    `{"uniqueItems":true,"items":{"multipleOf":` + strings.Repeat("3", 300) + `}}`,
		"numbers":   `{"multipleOf":7,"minimum":1,"enum":[` + repeat(100, ",", func(i int) string { return fmt.Sprint(i) }) + `]}`,
		"recursive": `{"$defs":{"n":{"type":["array","object","number"],"items":{"$ref":"#/$defs/n"},"additionalProperties":{"$ref":"#/$defs/n"},"unevaluatedItems":false}},"$ref":"#/$defs/n"}`,
		"patterns":  `{"patternProperties":{"^[0-9]+$":{"type":"string"},"[a-f]$":{"maximum":8}},"items":{"pattern":"^a[0-9]+@b?$"},"propertyNames":{"maxLength":4},"pattern":"^a*$"}`,
		"dependent": `{"dependentRequired":{` + repeat(900, ",", func(i int) string { return fmt.Sprintf(`"%x":["%x"]`, i, i+1) }) + `},"required":["zz","yy"]}`,
		"contains":  `{"contains":{"const":"a94999@b"},"maxContains":3,"unevaluatedItems":{"type":"string"}}`,
	}
	payloads := hostilePayloads()
	for schemaName, doc := range schemas {
		s := mustRegister(t, doc)
		for payloadName, payload := range payloads {
			if len(payload) > 1<<20 || !json.Valid([]byte(payload)) {
				t.Fatalf("%s: %d bytes, JSON %v", payloadName, len(payload), json.Valid([]byte(payload)))
			}
			start := time.Now()
			_ = s.Validate([]byte(payload))
			spent := time.Since(start)
			if spent > hostileTime {
				t.Errorf("%s against %s took %s", payloadName, schemaName, spent)
			}
			if spent > 300*time.Millisecond {
				t.Logf("%s against %s: %s", payloadName, schemaName, spent)
			}
		}
	}
}

// A schema stacks as deep on a value, and a payload nests as deep, as allowed: the
// stack of an evaluation holds.
func TestDeepestEvaluation(t *testing.T) {
	doc := `{"$ref":"#/$defs/0","$defs":{` + repeat(126, ",", func(i int) string {
		return fmt.Sprintf(`"%d":{"allOf":[{"$ref":"#/$defs/%d"}]}`, i, i+1)
	}) + `,"126":{"items":{"$ref":"#/$defs/0"}}}}`
	s := mustRegister(t, doc)
	if err := s.Validate([]byte(strings.Repeat("[", 256) + strings.Repeat("]", 256))); err != nil {
		t.Error(err)
	}
	if !s.Costly() {
		t.Error("254 subschemas on one value, not costly")
	}
}

// One schema serves every produce at once.
func TestConcurrentValidate(t *testing.T) {
	doc, payload := orderSchema(20)
	s := mustRegister(t, doc)
	bad := strings.Replace(payload, "4000", `"x"`, 1)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if err := s.Validate([]byte(payload)); err != nil {
					t.Error(err)
				}
				if err := s.Validate([]byte(bad)); err == nil || !strings.Contains(err.Error(), "'/field4': got string, want integer") {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
