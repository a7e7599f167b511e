package schema

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// number draws the text of a number, short and long, with and without an exponent.
func number(t *rapid.T) string {
	digits := rapid.StringMatching(`(0|[1-9][0-9]{0,3}|[1-9][0-9]{15,40}|[1-9]0{0,30})`).Draw(t, "digits")
	fraction := rapid.StringMatching(`(|\.[0-9]{1,3}|\.0{1,25}[0-9]{1,20})`).Draw(t, "fraction")
	exponent := rapid.StringMatching(`(|[eE][+-]?[0-9]{1,2})`).Draw(t, "exponent")
	return rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign") + digits + fraction + exponent
}

func rat(t *rapid.T, s string) *big.Rat {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		t.Fatalf("big.Rat does not take %q", s)
	}
	return r
}

// Decimals compare, divide and hash as the rationals they stand for.
func TestDecimalsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := number(t), number(t)
		if rapid.Bool().Draw(t, "near") {
			b = a[:len(a)-1] + "7"
		}
		ra, rb := rat(t, a), rat(t, b)
		da, db := parseDecimal([]byte(a)), parseDecimal([]byte(b))
		if got, want := da.cmp(db), ra.Cmp(rb); got != want {
			t.Fatalf("%s cmp %s: %d, want %d", a, b, got, want)
		}
		if got, want := da.equal(db), ra.Cmp(rb) == 0; got != want {
			t.Fatalf("%s equal %s: %v", a, b, got)
		}
		if got, want := da.integer(), ra.IsInt(); got != want {
			t.Fatalf("%s integer: %v", a, got)
		}
		if rb.Sign() != 0 {
			if got, want := da.multipleOf(db), new(big.Rat).Quo(ra, rb).IsInt(); got != want {
				t.Fatalf("%s multiple of %s: %v", a, b, got)
			}
			exact := new(big.Rat).Mul(rb, big.NewRat(37, 1))
			product := exact.FloatString(300) // no number drawn has as many digits behind the point
			if rat(t, product).Cmp(exact) != 0 || !parseDecimal([]byte(product)).multipleOf(db) {
				t.Fatalf("%s is 37 times %s", product, b)
			}
		}
		if n := da.n(); n != len(da.digits()) {
			t.Fatalf("%s: %d digits, counted %d", a, len(da.digits()), n)
		}
	})
}

func TestDecimalCounts(t *testing.T) {
	for text, want := range map[string]int{
		"0": 0, "-0": 0, "7": 7, "1.0": 1, "12e1": 120, "1e18": math.MaxInt, "999999999999999999": 999999999999999999,
		"1e17": 1e17, "1e1000": math.MaxInt, strings.Repeat("9", 300): math.MaxInt, "1.5": -1, "-1": -1, "1e-1": -1,
	} {
		n, ok := parseDecimal([]byte(text)).count()
		if ok != (want >= 0) || ok && n != want {
			t.Errorf("%.20s: %d %v, want %d", text, n, ok, want)
		}
	}
}

func TestHashesAgreeWithEquality(t *testing.T) {
	h := newHasher()
	rapid.Check(t, func(t *rapid.T) {
		g := &gen{t: t}
		texts := []string{g.value(3), g.value(3)}
		var vals []value
		for _, text := range texts {
			doc, err := decodeDocument([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			vals = append(vals, doc.root())
		}
		if equal(vals[0], vals[1]) != (h.sum(vals[0]) == h.sum(vals[1])) {
			t.Fatalf("%s and %s: equal %v", texts[0], texts[1], equal(vals[0], vals[1]))
		}
	})
}
