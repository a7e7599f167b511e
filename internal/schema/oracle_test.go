package schema

import (
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

// library compiles a document with the library's own engine.
func library(doc string) (*jsonschema.Schema, error) {
	plain, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.AssertFormat()
	if err := c.AddResource("narad://schema/orders/3", plain); err != nil {
		return nil, err
	}
	return c.Compile("narad://schema/orders/3")
}

// The library is an independent implementation: on random schemas of every draft and
// random payloads it gives the same verdicts.
func TestVerdictsMatchTheLibrary(t *testing.T) {
	verdicts := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		g := &gen{t: t, draft: drawDraft(t)}
		doc := g.document()
		ours, _, err := Register("orders", 3, []byte(doc))
		skipBroken(t, err)
		theirs, err := library(doc)
		if err != nil {
			t.Fatalf("the library does not take what Register took: %s: %v", doc, err)
		}
		for range 8 {
			payload := g.value(3)
			plain, err := jsonschema.UnmarshalJSON(strings.NewReader(payload))
			if err != nil {
				t.Fatal(err)
			}
			got, want := ours.Validate([]byte(payload)), theirs.Validate(plain)
			verdicts[want == nil]++
			if (got == nil) != (want == nil) {
				t.Fatalf("%s\n%s\nours:   %v\ntheirs: %v", doc, payload, got, want)
			}
		}
	})
	if verdicts[true] < 10 || verdicts[false] < 10 {
		t.Errorf("the generator is lopsided: %v", verdicts)
	}
}
