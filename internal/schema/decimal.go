package schema

import (
	"bytes"
	"math"
	"math/big"
	"math/bits"
	"strconv"
)

// decimal is a number as JSON writes it, exact at any size: coef or big, times ten
// to the power of exp, in the one form that has no trailing zero. Equal numbers are
// therefore equal field by field. It compares in time linear in its digits.
type decimal struct {
	neg  bool
	coef uint64 // up to coefDigits digits
	big  []byte // the digits when they are more, nil otherwise
	exp  int
}

// coefDigits is how many digits always fit a uint64, with room for a sign.
const coefDigits = 18

// pow10 holds the powers of ten that coefDigits digits need.
var pow10 = [...]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18}

// parseDecimal reads a JSON number whose grammar and exponent were checked.
func parseDecimal(b []byte) decimal {
	var d decimal
	if b[0] == '-' {
		d.neg, b = true, b[1:]
	}
	if i := bytes.IndexAny(b, "eE"); i >= 0 {
		e, err := strconv.Atoi(string(bytes.TrimPrefix(b[i+1:], []byte("+"))))
		if err == nil {
			d.exp = e
		}
		b = b[:i]
	}
	point := bytes.IndexByte(b, '.')
	if point >= 0 {
		d.exp -= len(b) - point - 1
	}
	if len(b) > coefDigits {
		return d.long(b, point)
	}
	for _, c := range b {
		if c != '.' {
			d.coef = d.coef*10 + uint64(c-'0')
		}
	}
	return d.trimmed()
}

// long finishes a decimal whose digits, a point among them, may be many.
func (d decimal) long(b []byte, point int) decimal {
	digits := b
	if point >= 0 {
		digits = append(append(make([]byte, 0, len(b)-1), b[:point]...), b[point+1:]...)
	}
	digits = bytes.TrimLeft(digits, "0")
	kept := bytes.TrimRight(digits, "0")
	d.exp += len(digits) - len(kept)
	if len(kept) > coefDigits {
		d.big = kept
		return d
	}
	for _, c := range kept {
		d.coef = d.coef*10 + uint64(c-'0')
	}
	return d.trimmed()
}

// trimmed moves trailing zeros of the coefficient to the exponent.
func (d decimal) trimmed() decimal {
	if d.coef == 0 {
		return decimal{}
	}
	for d.coef%10 == 0 {
		d.coef /= 10
		d.exp++
	}
	return d
}

func (d decimal) zero() bool    { return d.coef == 0 && d.big == nil }
func (d decimal) integer() bool { return d.zero() || d.exp >= 0 }

func (d decimal) equal(o decimal) bool {
	return d.neg == o.neg && d.coef == o.coef && d.exp == o.exp && bytes.Equal(d.big, o.big)
}

// digits are the digits of the coefficient, n how many.
func (d decimal) digits() []byte {
	if d.big != nil {
		return d.big
	}
	return strconv.AppendUint(nil, d.coef, 10)
}

func (d decimal) n() int {
	if d.big != nil {
		return len(d.big)
	}
	n := (bits.Len64(d.coef|1)*1233)>>12 + 1 // digits, or one too many
	if n > 1 && d.coef < pow10[n-1] {
		n--
	}
	return n
}

// cmp orders two numbers: -1, 0 or +1.
func (d decimal) cmp(o decimal) int {
	switch {
	case d.zero() && o.zero():
		return 0
	case d.zero():
		return sign(!o.neg)
	case o.zero() || d.neg != o.neg:
		return sign(d.neg)
	}
	c := d.cmpAbs(o)
	if d.neg {
		return -c
	}
	return c
}

// sign is -1 for below and +1 for not below.
func sign(below bool) int {
	if below {
		return -1
	}
	return 1
}

func (d decimal) cmpAbs(o decimal) int {
	dn, on := d.n(), o.n()
	switch da, oa := d.exp+dn, o.exp+on; {
	case da != oa:
		return sign(da < oa)
	case d.big != nil || o.big != nil:
		// Digits aligned at the front: without trailing zeros, the order of bytes
		// is the order of numbers.
		return bytes.Compare(d.digits(), o.digits())
	}
	a, b := d.coef, o.coef
	if dn < on {
		a *= pow10[on-dn]
	} else {
		b *= pow10[dn-on]
	}
	switch {
	case a == b:
		return 0
	default:
		return sign(a < b)
	}
}

// multipleOf reports whether d is an integer times o; o is not zero.
func (d decimal) multipleOf(o decimal) bool {
	if d.zero() {
		return true
	}
	shift := d.exp - o.exp
	if shift < 0 {
		// d would have to be divisible by ten once more, and its trailing zeros
		// are gone.
		return false
	}
	if o.big == nil {
		return d.modSmall(o.coef, shift) == 0
	}
	m, ok := new(big.Int).SetString(string(o.big), 10)
	if !ok {
		return false
	}
	return d.modBig(m, shift).Sign() == 0
}

// modSmall is the coefficient times ten to the power of shift, modulo m.
func (d decimal) modSmall(m uint64, shift int) uint64 {
	var r uint64
	if d.big == nil {
		r = d.coef % m
	}
	for _, c := range d.big {
		hi, lo := bits.Mul64(r, 10)
		lo, carry := bits.Add64(lo, uint64(c-'0'), 0)
		r = bits.Rem64(hi+carry, lo, m)
	}
	for ; shift > 0 && r != 0; shift-- {
		hi, lo := bits.Mul64(r, 10)
		r = bits.Rem64(hi, lo, m)
	}
	return r
}

// modBig is modSmall for a modulus of any size. Digits go in by chunks, so that the
// time is linear in them for a modulus of fixed size.
func (d decimal) modBig(m *big.Int, shift int) *big.Int {
	r, chunk, base := new(big.Int), new(big.Int), new(big.Int)
	digits := d.digits()
	for len(digits) > 0 {
		n := min(len(digits), coefDigits)
		v, _ := strconv.ParseUint(string(digits[:n]), 10, 64)
		r.Mul(r, base.SetUint64(pow10[n]))
		r.Mod(r.Add(r, chunk.SetUint64(v)), m)
		digits = digits[n:]
	}
	for shift > 0 && r.Sign() != 0 {
		n := min(shift, coefDigits)
		r.Mod(r.Mul(r, base.SetUint64(pow10[n])), m)
		shift -= n
	}
	return r
}

// count reads a non-negative integer keyword such as maxLength; a value past the
// range of an int counts as the largest int. ok is false for anything else.
func (d decimal) count() (n int, ok bool) {
	switch {
	case d.zero():
		return 0, true
	case d.neg || !d.integer():
		return 0, false
	case d.big != nil || d.exp > coefDigits || d.n()+d.exp > coefDigits:
		return math.MaxInt, true
	}
	return int(d.coef * pow10[d.exp]), true
}
