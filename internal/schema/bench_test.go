package schema

import (
	"fmt"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/clock"
)

// orderSchema is a schema of n properties and a payload for it: integers, strings,
// enums, arrays of numbers.
func orderSchema(n int) (doc, payload string) {
	var s, p []string
	for i := range n {
		kind := [...][2]string{
			{`{"type":"integer","minimum":0}`, fmt.Sprint(i * 1000)},
			{`{"type":"string","maxLength":200}`, `"` + strings.Repeat("abcdefgh", 16) + `"`},
			{`{"enum":["new","paid","sent","done"]}`, `"sent"`},
			{`{"type":"array","items":{"type":"number"}}`, `[1.5,2,3.25,4,1e3]`},
		}[i%4]
		s = append(s, fmt.Sprintf(`"field%d":%s`, i, kind[0]))
		p = append(p, fmt.Sprintf(`"field%d":%s`, i, kind[1]))
	}
	return `{"type":"object","properties":{` + strings.Join(s, ",") + `},"required":["field0","field1"],"additionalProperties":false}`,
		"{" + strings.Join(p, ",") + "}"
}

func BenchmarkValidate1KiB20Properties(b *testing.B) {
	doc, payload := orderSchema(20)
	s := mustRegister(b, doc)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Validate([]byte(payload)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckWithoutSchema(b *testing.B) {
	v := NewValidator(2, clock.Real(), nil)
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Check(b.Context(), nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRefuse1KiB20Properties(b *testing.B) {
	doc, payload := orderSchema(20)
	s := mustRegister(b, doc)
	bad := []byte(strings.Replace(payload, "4000", `"x"`, 1))
	b.ReportAllocs()
	for b.Loop() {
		if s.Validate(bad) == nil {
			b.Fatal("accepted")
		}
	}
}

func BenchmarkValidate1MiBNumbers(b *testing.B) {
	s := mustRegister(b, `{"items":{"type":"integer","minimum":0,"maximum":1000}}`)
	payload := []byte("[" + strings.Repeat("1,", 500_000) + "1]")
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Validate(payload); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEnumOf1000Values(b *testing.B) {
	var vals []string
	for i := range 1000 {
		vals = append(vals, fmt.Sprintf(`"value%d"`, i))
	}
	s := mustRegister(b, `{"enum":[`+strings.Join(vals, ",")+`]}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Validate([]byte(`"value999"`)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRegister20Properties(b *testing.B) {
	doc, _ := orderSchema(20)
	b.ReportAllocs()
	for b.Loop() {
		mustRegister(b, doc)
	}
}

func BenchmarkCompile20Properties(b *testing.B) {
	doc, _ := orderSchema(20)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile("t", 1, []byte(doc)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompatible20Properties(b *testing.B) {
	doc, _ := orderSchema(20)
	next := strings.Replace(doc, `"required"`, `"title":"t","required"`, 1)
	next = strings.Replace(next, `"minimum":0`, `"minimum":-1`, 1)
	b.ReportAllocs()
	for b.Loop() {
		if err := Compatible([]byte(doc), []byte(next)); err != nil {
			b.Fatal(err)
		}
	}
}
