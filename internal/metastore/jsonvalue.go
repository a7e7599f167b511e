package metastore

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"strconv"
	"strings"
)

// sameJSON reports whether two documents are the same JSON value: key order,
// whitespace and the spelling of numbers do not matter. What does not decode is
// compared byte by byte.
func sameJSON(a, b []byte) bool {
	x, okA := decodeValue(a)
	y, okB := decodeValue(b)
	if !okA || !okB {
		return bytes.Equal(a, b)
	}
	return sameValue(x, y)
}

func decodeValue(doc []byte) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, false
	}
	_, err := d.Token()
	return v, err == io.EOF
}

func sameValue(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, sameValue)
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !sameValue(a[i], b[i]) {
				return false
			}
		}
		return true
	case json.Number:
		b, ok := b.(json.Number)
		return ok && decimalOf(string(a)) == decimalOf(string(b))
	}
	return a == b
}

// decimal is a JSON number as 0.digits times ten to the exponent, digits without
// zeros at either end, so that equal numbers are equal values however they were
// spelled. Nothing is computed, so a number may be as large as it likes.
type decimal struct {
	negative bool
	digits   string // "" = zero
	exponent int64
	odd      string // the text itself, of an exponent out of range
}

func decimalOf(text string) decimal {
	mantissa, exp, _ := strings.Cut(strings.ToLower(text), "e")
	exponent := int64(0)
	if exp != "" {
		n, err := strconv.ParseInt(exp, 10, 48)
		if err != nil {
			return decimal{odd: strings.ToLower(text)}
		}
		exponent = n
	}
	unsigned := strings.TrimPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(unsigned, ".")
	exponent += int64(len(whole))
	digits := whole + fraction
	trimmed := strings.TrimLeft(digits, "0")
	exponent -= int64(len(digits) - len(trimmed))
	trimmed = strings.TrimRight(trimmed, "0")
	if trimmed == "" {
		return decimal{}
	}
	return decimal{negative: unsigned != mantissa, digits: trimmed, exponent: exponent}
}
