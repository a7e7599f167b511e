package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

func repeat(n int, sep string, f func(i int) string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = f(i)
	}
	return strings.Join(parts, sep)
}

// hostileDocuments are as large as a document may be, and built to make some part of
// registration expensive.
func hostileDocuments() map[string]string {
	return map[string]string{
		"35000 empty properties": `{"properties":{` + repeat(24_000, ",", func(i int) string { return fmt.Sprintf(`"%x":{}`, i) }) + `}}`,
		"11000 typed properties": `{"properties":{` + repeat(9_000, ",", func(i int) string { return fmt.Sprintf(`"f%d":{"type":"string"}`, i) }) + `}}`,
		"40000 branches":         `{"allOf":[` + repeat(40_000, ",", func(int) string { return "{}" }) + `]}`,
		"enum of 40000 numbers":  `{"enum":[` + repeat(40_000, ",", func(i int) string { return fmt.Sprint(i) }) + `]}`,
		"nesting 64":             strings.Repeat(`{"not":`, 63) + `{}` + strings.Repeat("}", 63),
		"wide and deep": `{"properties":{` + repeat(130, ",", func(i int) string {
			return fmt.Sprintf(`"p%d":`, i) + strings.Repeat(`{"items":`, 60) + `{}` + strings.Repeat("}", 60)
		}) + `}}`,
		"branches covered by the last one": `{"anyOf":[` + repeat(6_000, ",", func(i int) string { return fmt.Sprintf(`{"minimum":%d}`, i) }) + `,{}]}`,
		"chain of references": `{"$ref":"#/$defs/0","$defs":{` + repeat(6_000, ",", func(i int) string {
			return fmt.Sprintf(`"%d":{"$ref":"#/$defs/%d"}`, i, (i+1)%6_000)
		}) + `}}`,
		"chain of allOf": `{"$ref":"#/$defs/0","$defs":{` + repeat(5_000, ",", func(i int) string {
			return fmt.Sprintf(`"%d":{"allOf":[{"$ref":"#/$defs/%d"}]}`, i, min(i+1, 4_999))
		}) + `}}`,
		"doubling chain": `{"$ref":"#/$defs/0","$defs":{` + repeat(3_000, ",", func(i int) string {
			return fmt.Sprintf(`"%d":{"allOf":[{"$ref":"#/$defs/%d"},{"$ref":"#/$defs/%d"}]}`, i, min(i+1, 2_999), min(i+1, 2_999))
		}) + `}}`,
		"every definition refers to every other": `{"$defs":{` + repeat(90, ",", func(i int) string {
			return fmt.Sprintf(`"%d":{"anyOf":[`, i) + repeat(90, ",", func(j int) string { return fmt.Sprintf(`{"$ref":"#/$defs/%d"}`, j) }) + "]}"
		}) + `},"$ref":"#/$defs/0"}`,
		"every definition holds every other": `{"$defs":{` + repeat(90, ",", func(i int) string {
			return fmt.Sprintf(`"%d":{"properties":{`, i) + repeat(90, ",", func(j int) string { return fmt.Sprintf(`"%d":{"$ref":"#/$defs/%d"}`, j, j) }) + "}}"
		}) + `},"$ref":"#/$defs/0"}`,
		"states multiply": `{"$ref":"#/$defs/0","$defs":{` + repeat(400, ",", func(i int) string {
			return fmt.Sprintf(`"%d":{"properties":{"a":{"$ref":"#/$defs/%d"},"b":{"$ref":"#/$defs/%d"},"c":{"anyOf":[{"$ref":"#/$defs/%d"},{"$ref":"#/$defs/%d"}]}}}`,
				i, (i*7+1)%400, (i*3+2)%400, (i*5+3)%400, (i*11+7)%400)
		}) + `}}`,
		"many patterns": `{"patternProperties":{` + repeat(8_000, ",", func(i int) string { return fmt.Sprintf(`"^p%d":{"type":"null"}`, i) }) + `}}`,
		"many names for many patterns": `{"patternProperties":{` + repeat(3_000, ",", func(i int) string { return fmt.Sprintf(`"^p%d":{"items":{}}`, i) }) +
			`},"properties":{` + repeat(6_000, ",", func(i int) string { return fmt.Sprintf(`"p%d":{}`, i) }) + `}}`,
		"long names": `{"properties":{"` + strings.Repeat("n", 100_000) + `":{"properties":{` +
			repeat(9_000, ",", func(i int) string { return fmt.Sprintf(`"%x":{}`, i) }) + `}}}}`,
		"large repetitions":    `{"allOf":[` + repeat(9_000, ",", func(i int) string { return fmt.Sprintf(`{"pattern":"x{%d}"}`, 990+i%10) }) + `]}`,
		"nested repetition":    `{"pattern":"^((a{1,30}){1,30}b?){1,1}$"}`,
		"one large pattern":    `{"pattern":"` + strings.Repeat("(a|b)?", 40_000) + `"}`,
		"large literal":        `{"pattern":"^` + strings.Repeat("ab", 100_000) + `$"}`,
		"large class":          `{"pattern":"` + strings.Repeat(`[^\\pL\\pN]?`, 20_000) + `"}`,
		"pointers to no place": `{"x":{` + repeat(4_000, ",", func(i int) string { return fmt.Sprintf(`"%d":{}`, i) }) + `},"allOf":[` + repeat(4_000, ",", func(i int) string { return fmt.Sprintf(`{"$ref":"#/x/%d"}`, i) }) + `]}`,
		"long digits":          `{"multipleOf":` + strings.Repeat("7", 200_000) + `,"minimum":` + strings.Repeat("9", 50_000) + `}`,
		"many resources":       `{"$defs":{` + repeat(8_000, ",", func(i int) string { return fmt.Sprintf(`"%d":{"$id":"i%d"}`, i, i) }) + `}}`,
		"many anchors":         `{"$defs":{` + repeat(8_000, ",", func(i int) string { return fmt.Sprintf(`"%d":{"$anchor":"a%d"}`, i, i) }) + `}}`,
	}
}

// hostileTime is far above what any of them takes, race detector included, and far
// below what an unbounded one would.
const hostileTime = 20 * time.Second

// Registration of any document ends soon, one way or the other, and so does
// compiling what it took and comparing it.
func TestHostileDocumentsEndSoon(t *testing.T) {
	for name, doc := range hostileDocuments() {
		t.Run(name, func(t *testing.T) {
			if len(doc) > DocumentBytesMax {
				t.Fatalf("%d bytes", len(doc))
			}
			start := time.Now()
			s, _, err := Register("t", 1, []byte(doc))
			if err != nil && !errors.Is(err, model.ErrInvalid) {
				t.Fatal(err)
			}
			registered := time.Since(start)
			_ = Compatible([]byte(doc), []byte(strings.Replace(doc, "{", `{"minProperties":1,`, 1)))
			compared := time.Since(start) - registered
			if err == nil {
				_ = s.Validate([]byte(`{"a":{"b":[1,2,3]},"p1":{"p2":[[[[[1]]]]]}}`))
			}
			if spent := time.Since(start); spent > hostileTime {
				t.Errorf("took %s", spent)
			}
			t.Logf("%d bytes: registered %s, compared %s, %.150v", len(doc), registered, compared, err)
		})
	}
}
