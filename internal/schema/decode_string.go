package schema

import (
	"unicode/utf16"
	"unicode/utf8"
)

// string reads a string; the common one has neither escapes nor anything but ASCII.
func (d *decoder) string() error {
	start := d.i + 1
	src := d.doc.src
	for i := start; i < len(src); i++ {
		c := src[i]
		switch {
		case c == '"':
			d.push(cell{kind: kindString, at: uint32(start), n: uint32(i - start)})
			d.i = i + 1
			return nil
		case c == '\\':
			d.i = i
			return d.escapedString(start)
		case c < ' ':
			d.i = i
			return d.bad("control byte in a string")
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRune(src[i:])
			if r == utf8.RuneError && n == 1 {
				d.i = i
				return d.bad("invalid UTF-8 in a string")
			}
			i += n - 1
		}
	}
	d.i = len(src)
	return d.bad("unexpected end")
}

// escapedString finishes a string whose first escape is at the current place.
func (d *decoder) escapedString(start int) error {
	src, at := d.doc.src, len(d.doc.text)
	d.doc.text = append(d.doc.text, src[start:d.i]...)
	for d.i < len(src) {
		c := src[d.i]
		switch {
		case c == '"':
			d.push(cell{kind: kindString, escaped: true, at: uint32(at), n: uint32(len(d.doc.text) - at)})
			d.i++
			return nil
		case c == '\\':
			if err := d.escape(); err != nil {
				return err
			}
		case c < ' ':
			return d.bad("control byte in a string")
		default:
			r, n := utf8.DecodeRune(src[d.i:])
			if r == utf8.RuneError && n == 1 {
				return d.bad("invalid UTF-8 in a string")
			}
			d.doc.text = append(d.doc.text, src[d.i:d.i+n]...)
			d.i += n
		}
	}
	return d.bad("unexpected end")
}

// escape appends what the escape at the current place stands for.
func (d *decoder) escape() error {
	src := d.doc.src
	if d.i+1 >= len(src) {
		d.i = len(src)
		return d.bad("unexpected end")
	}
	c := src[d.i+1]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return d.unicode()
	default:
		return d.bad("unknown escape")
	}
	d.doc.text = append(d.doc.text, c)
	d.i += 2
	return nil
}

// unicode reads \uXXXX, two of them for a surrogate pair. A surrogate without its
// other half stands for U+FFFD, as everywhere in Go.
func (d *decoder) unicode() error {
	r, ok := d.hex(d.i)
	if !ok {
		return d.bad("bad \\u escape")
	}
	d.i += 6
	if utf16.IsSurrogate(r) {
		if low, ok := d.hex(d.i); ok {
			if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
				d.doc.text = utf8.AppendRune(d.doc.text, both)
				d.i += 6
				return nil
			}
		}
		r = utf8.RuneError
	}
	d.doc.text = utf8.AppendRune(d.doc.text, r)
	return nil
}

func (d *decoder) hex(at int) (r rune, ok bool) {
	if at+6 > len(d.doc.src) || d.doc.src[at] != '\\' || d.doc.src[at+1] != 'u' {
		return 0, false
	}
	for _, c := range d.doc.src[at+2 : at+6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
