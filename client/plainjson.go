package client

import (
	"encoding/binary"
	"unicode/utf8"
)

// plainDepthMax is the deepest payload that is embedded as JSON; a deeper one travels
// as base64, which stores the same bytes.
const plainDepthMax = 512

// plainJSON reports whether p survives being embedded in a batch: one JSON value in
// valid UTF-8 with nothing around it. It runs on every message, so it does not build
// values and passes over strings by the word.
func plainJSON(p []byte) bool {
	if len(p) == 0 || space(p[0]) || space(p[len(p)-1]) || !utf8.Valid(p) {
		return false
	}
	end, ok := jsonValue(p, 0, plainDepthMax)
	return ok && end == len(p)
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func skipSpace(p []byte, i int) int {
	for i < len(p) && space(p[i]) {
		i++
	}
	return i
}

// jsonValue passes over the value that begins at p[i] and returns where it ends.
func jsonValue(p []byte, i, depth int) (int, bool) {
	if i >= len(p) || depth == 0 {
		return i, false
	}
	switch c := p[i]; c {
	case '"':
		return jsonString(p, i+1)
	case '{':
		return jsonContainer(p, i+1, depth-1, '}', true)
	case '[':
		return jsonContainer(p, i+1, depth-1, ']', false)
	case 't':
		return jsonWord(p, i, "true")
	case 'f':
		return jsonWord(p, i, "false")
	case 'n':
		return jsonWord(p, i, "null")
	default:
		return jsonNumber(p, i)
	}
}

func jsonWord(p []byte, i int, w string) (int, bool) {
	if len(p)-i < len(w) || string(p[i:i+len(w)]) != w {
		return i, false
	}
	return i + len(w), true
}

// jsonContainer passes over the members of an object or the elements of an array, and
// the byte that closes it.
func jsonContainer(p []byte, i, depth int, end byte, named bool) (int, bool) {
	if i = skipSpace(p, i); i < len(p) && p[i] == end {
		return i + 1, true
	}
	for ok := true; ; {
		if i = skipSpace(p, i); named {
			if i >= len(p) || p[i] != '"' {
				return i, false
			}
			if i, ok = jsonString(p, i+1); !ok {
				return i, false
			}
			if i = skipSpace(p, i); i >= len(p) || p[i] != ':' {
				return i, false
			}
			i = skipSpace(p, i+1)
		}
		if i, ok = jsonValue(p, i, depth); !ok {
			return i, false
		}
		i = skipSpace(p, i)
		switch {
		case i >= len(p):
			return i, false
		case p[i] == end:
			return i + 1, true
		case p[i] != ',':
			return i, false
		}
		i++
	}
}

// jsonString passes over the rest of a string, eight bytes at a time while none of
// them is a quote, a backslash or a control byte.
func jsonString(p []byte, i int) (int, bool) {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for {
		for ; i+8 <= len(p); i += 8 {
			w := binary.LittleEndian.Uint64(p[i:])
			quote, slash := w^('"'*ones), w^('\\'*ones)
			// A byte of a sum is at or over 0x80 if the byte was under the subtrahend:
			// zero after the xor, or under a space. It may be so wrongly, never missing.
			if ((quote-ones)&^quote|(slash-ones)&^slash|(w-' '*ones)&^w)&tops != 0 {
				break
			}
		}
		if i >= len(p) {
			return i, false
		}
		switch c := p[i]; {
		case c == '"':
			return i + 1, true
		case c < ' ':
			return i, false
		case c == '\\':
			n := escape(p[i+1:])
			if n == 0 {
				return i, false
			}
			i += 1 + n
		default:
			i++
		}
	}
}

// escape is the length of what follows a backslash; 0 = not an escape.
func escape(p []byte) int {
	if len(p) == 0 {
		return 0
	}
	switch p[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 1
	case 'u':
		if len(p) < 5 {
			return 0
		}
		for _, c := range p[1:5] {
			if !(c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f') {
				return 0
			}
		}
		return 5
	}
	return 0
}

func jsonNumber(p []byte, i int) (int, bool) {
	if i < len(p) && p[i] == '-' {
		i++
	}
	from := i
	if i = digits(p, i); i == from || p[from] == '0' && i > from+1 {
		return i, false
	}
	if i < len(p) && p[i] == '.' {
		if from, i = i+1, digits(p, i+1); i == from {
			return i, false
		}
	}
	if i < len(p) && p[i]|0x20 == 'e' {
		i++
		if i < len(p) && (p[i] == '+' || p[i] == '-') {
			i++
		}
		if from, i = i, digits(p, i); i == from {
			return i, false
		}
	}
	return i, true
}

func digits(p []byte, i int) int {
	for i < len(p) && p[i] >= '0' && p[i] <= '9' {
		i++
	}
	return i
}
