package httpapi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
)

// jsonDepthMax bounds nesting, in a request and in what is served as JSON.
const jsonDepthMax = 10_000

var errNotJSON = errors.New("not JSON")

// scanner walks JSON text without copying or building values. It accepts exactly
// what encoding/json accepts: strings may hold invalid UTF-8. Errors are the
// detail part of an "invalid json" refusal.
type scanner struct {
	b     []byte
	i     int
	quiet bool // errors need no detail: nobody will read them
}

// validJSON reports whether b is exactly one JSON value within the depth bound.
func validJSON(b []byte) bool {
	s := scanner{b: b, quiet: true}
	return s.value() == nil && s.end() == nil
}

// end refuses anything but white space up to the end of the text.
func (s *scanner) end() error {
	if s.ws(); s.i < len(s.b) {
		return s.bad("after top-level value")
	}
	return nil
}

func (s *scanner) ws() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return
		}
	}
}

// peek skips white space and returns the byte that follows, 0 at the end.
func (s *scanner) peek() byte {
	s.ws()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// expect takes one byte.
func (s *scanner) expect(c byte, where string) error {
	if s.peek() != c {
		return s.bad(where)
	}
	s.i++
	return nil
}

// bad reports the byte at the cursor as out of place.
func (s *scanner) bad(where string) error {
	if s.quiet {
		return errNotJSON
	}
	if s.i >= len(s.b) {
		return invalidJSON("unexpected end of JSON input")
	}
	return invalidJSON(fmt.Sprintf("invalid character %s %s", strconv.QuoteRuneToASCII(rune(s.b[s.i])), where))
}

// nesting is the stack of open containers: one bit each, 1 = object.
type nesting struct {
	depth int
	first [4]uint64
	more  []uint64
}

func (n *nesting) word(d int) *uint64 {
	if d < 256 {
		return &n.first[d/64]
	}
	if d/64-4 == len(n.more) {
		n.more = append(n.more, 0)
	}
	return &n.more[d/64-4]
}

func (n *nesting) push(object bool) bool {
	if n.depth == jsonDepthMax {
		return false
	}
	w := n.word(n.depth)
	*w &^= 1 << (n.depth % 64)
	if object {
		*w |= 1 << (n.depth % 64)
	}
	n.depth++
	return true
}

func (n *nesting) inObject() bool {
	return *n.word(n.depth - 1)>>((n.depth-1)%64)&1 == 1
}

// value skips one JSON value, checking all of it.
func (s *scanner) value() error {
	var n nesting
	for {
		opened, err := s.open(&n)
		if err != nil {
			return err
		}
		if opened {
			continue
		}
		for {
			if n.depth == 0 {
				return nil
			}
			more, err := s.next(&n)
			if err != nil {
				return err
			}
			if more {
				break
			}
		}
	}
}

// open takes a scalar, an empty container (both: opened is false), or the start
// of a container up to where its first value begins.
func (s *scanner) open(n *nesting) (opened bool, err error) {
	switch c := s.peek(); {
	case c == '"':
		_, _, err = s.str()
		return false, err
	case c == '{' || c == '[':
		if !n.push(c == '{') {
			return false, invalidJSON("exceeded max depth")
		}
		s.i++
		if s.peek() == c+2 { // '}' and ']' follow two after their openers
			s.i++
			n.depth--
			return false, nil
		}
		if c == '{' {
			return true, s.name()
		}
		return true, nil
	case c == '-' || c >= '0' && c <= '9':
		return false, s.number()
	case c == 't':
		return false, s.literal("true")
	case c == 'f':
		return false, s.literal("false")
	case c == 'n':
		return false, s.literal("null")
	}
	return false, s.bad("looking for beginning of value")
}

// next takes what follows a value in a container: a comma, up to where the next
// value begins (more), or the end of the container.
func (s *scanner) next(n *nesting) (more bool, err error) {
	object := n.inObject()
	switch c := s.peek(); {
	case c == ',':
		s.i++
		if object {
			return true, s.name()
		}
		return true, nil
	case c == '}' && object, c == ']' && !object:
		s.i++
		n.depth--
		return false, nil
	}
	if object {
		return false, s.bad("after object key:value pair")
	}
	return false, s.bad("after array element")
}

// name takes a member name and its colon.
func (s *scanner) name() error {
	if s.peek() != '"' {
		return s.bad("looking for beginning of object key string")
	}
	if _, _, err := s.str(); err != nil {
		return err
	}
	return s.expect(':', "after object key")
}

func (s *scanner) literal(word string) error {
	for j := range len(word) {
		if s.i >= len(s.b) || s.b[s.i] != word[j] {
			return s.bad("in literal")
		}
		s.i++
	}
	return nil
}

func (s *scanner) number() error {
	if s.b[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if err := s.digits(); err != nil {
		return err
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		return s.digits()
	}
	return nil
}

func (s *scanner) digits() error {
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	if s.i == from {
		return s.bad("in numeric literal")
	}
	return nil
}

// str takes a string and returns what stands between its quotes, as written.
func (s *scanner) str() (raw []byte, escaped bool, err error) {
	s.i++ // the opening quote
	from := s.i
	for {
		s.plain()
		if s.i >= len(s.b) {
			return nil, false, s.bad("")
		}
		switch s.b[s.i] {
		case '"':
			raw = s.b[from:s.i]
			s.i++
			return raw, escaped, nil
		case '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return nil, false, err
			}
		default:
			return nil, false, s.bad("in string literal")
		}
	}
}

// plain moves to the next byte that means something inside a string: a quote, a
// backslash or a control byte. Eight at a time: a byte below the bound, or equal
// after the xor, leaves its top bit set, and false marks can only stand above a
// true one, so the lowest mark is always right.
func (s *scanner) plain() {
	const (
		ones = 0x0101010101010101
		tops = 0x8080808080808080
	)
	b, i := s.b, s.i
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		marks := ((x-ones*0x20)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & tops
		if marks != 0 {
			s.i = i + bits.TrailingZeros64(marks)/8
			return
		}
		i += 8
	}
	for i < len(b) && b[i] >= 0x20 && b[i] != '"' && b[i] != '\\' {
		i++
	}
	s.i = i
}

func (s *scanner) escape() error {
	s.i++ // the backslash
	if s.i >= len(s.b) {
		return s.bad("")
	}
	switch s.b[s.i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i++
		return nil
	case 'u':
		s.i++
	default:
		return s.bad("in string escape code")
	}
	for range 4 {
		if s.i >= len(s.b) || !hexDigit(s.b[s.i]) {
			return s.bad("in \\u hexadecimal character escape")
		}
		s.i++
	}
	return nil
}

func hexDigit(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}
