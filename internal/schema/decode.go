package schema

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
)

// errMalformed marks a text that is not one JSON value in valid UTF-8, or holds a
// number whose exponent is out of bounds; errDeep one that nests too deep.
var (
	errMalformed = errors.New("not valid JSON")
	errDeep      = errors.New("nests too deep")
)

// decoder turns JSON texts into documents. Its document is good until the next
// decode.
type decoder struct {
	doc     document
	i       int
	depth   int // levels open
	deepest int // levels allowed
	seed    maphash.Seed
	table   []uint32 // scratch of dedupe
}

// decode reads exactly one JSON text that nests at most deepest levels. The
// document refers to src.
func (d *decoder) decode(src []byte, deepest int) (*document, error) {
	d.doc.src, d.doc.text, d.doc.cells = src, d.doc.text[:0], d.doc.cells[:0]
	d.i, d.depth, d.deepest = 0, 0, deepest
	if bytes.HasPrefix(src, []byte("\xef\xbb\xbf")) {
		return nil, fmt.Errorf("%w: starts with a byte order mark", errMalformed)
	}
	d.reserve()
	d.space()
	if err := d.value(); err != nil {
		return nil, err
	}
	if d.space(); d.i < len(src) {
		return nil, d.bad("trailing data")
	}
	return &d.doc, nil
}

// reserve makes room for the cells of a large text at once. Each value but the first
// stands behind one of four bytes.
func (d *decoder) reserve() {
	const large = 16 << 10
	src := d.doc.src
	if len(src) < large {
		return
	}
	n := 1
	for _, c := range [...]byte{',', ':', '[', '{'} {
		n += bytes.Count(src, []byte{c})
	}
	if n > cap(d.doc.cells) {
		d.doc.cells = make([]cell, 0, n)
	}
}

// decodeDocument decodes a schema document, into memory of its own.
func decodeDocument(src []byte) (*document, error) {
	return new(decoder).decode(src, NestingMax)
}

func (d *decoder) bad(what string) error {
	return fmt.Errorf("%w: %s at byte %d", errMalformed, what, d.i)
}

// unexpected says what is wrong with the byte at the current place.
func (d *decoder) unexpected(want string) error {
	if d.i >= len(d.doc.src) {
		return d.bad("unexpected end")
	}
	return d.bad("want " + want)
}

func (d *decoder) space() {
	for d.i < len(d.doc.src) {
		switch d.doc.src[d.i] {
		case ' ', '\t', '\n', '\r':
			d.i++
		default:
			return
		}
	}
}

// peek is the byte at the current place, 0 at the end.
func (d *decoder) peek() byte {
	if d.i < len(d.doc.src) {
		return d.doc.src[d.i]
	}
	return 0
}

func (d *decoder) value() error {
	switch c := d.peek(); c {
	case '{':
		return d.object()
	case '[':
		return d.array()
	case '"':
		return d.string()
	case 't':
		return d.word("true", kindTrue)
	case 'f':
		return d.word("false", kindFalse)
	case 'n':
		return d.word("null", kindNull)
	default:
		if c == '-' || '0' <= c && c <= '9' {
			return d.number()
		}
		return d.unexpected("a value")
	}
}

// push appends a cell that ends with itself.
func (d *decoder) push(c cell) {
	c.end = uint32(len(d.doc.cells) + 1)
	d.doc.cells = append(d.doc.cells, c)
}

func (d *decoder) word(w string, k kind) error {
	if !bytes.HasPrefix(d.doc.src[d.i:], []byte(w)) {
		return d.unexpected(w)
	}
	d.i += len(w)
	d.push(cell{kind: k})
	return nil
}

// open starts an array or object and enters it; close leaves it.
func (d *decoder) open(k kind) (at int, err error) {
	if d.depth++; d.depth > d.deepest {
		return 0, errDeep
	}
	d.i++
	d.push(cell{kind: k})
	d.space()
	return len(d.doc.cells) - 1, nil
}

func (d *decoder) close(at, n int) {
	d.i++
	d.depth--
	c := &d.doc.cells[at]
	c.n, c.end = uint32(n), uint32(len(d.doc.cells))
}

func (d *decoder) array() error {
	at, err := d.open(kindArray)
	if err != nil {
		return err
	}
	n := 0
	for first := true; first || d.peek() != ']'; first = false {
		if first && d.peek() == ']' {
			break
		}
		if !first {
			if err := d.comma(); err != nil {
				return err
			}
		}
		if err := d.value(); err != nil {
			return err
		}
		n++
		d.space()
	}
	d.close(at, n)
	return nil
}

func (d *decoder) comma() error {
	if d.peek() != ',' {
		return d.unexpected("a comma or the end of the list")
	}
	d.i++
	d.space()
	return nil
}

func (d *decoder) object() error {
	at, err := d.open(kindObject)
	if err != nil {
		return err
	}
	n := 0
	for first := true; first || d.peek() != '}'; first = false {
		if first && d.peek() == '}' {
			break
		}
		if !first {
			if err := d.comma(); err != nil {
				return err
			}
		}
		if err := d.member(); err != nil {
			return err
		}
		n++
		d.space()
	}
	n -= d.dedupe(at, n)
	d.close(at, n)
	return nil
}

func (d *decoder) member() error {
	if d.peek() != '"' {
		return d.unexpected("a member name")
	}
	if err := d.string(); err != nil {
		return err
	}
	if d.space(); d.peek() != ':' {
		return d.unexpected("a colon")
	}
	d.i++
	d.space()
	return d.value()
}

// dedupe marks the keys of the object at that a later equal key replaces, and
// returns how many.
func (d *decoder) dedupe(at, n int) (shadowed int) {
	cells := d.doc.cells
	if n <= 8 {
		for i := at + 1; i < len(cells); i = int(cells[i+1].end) {
			for j := int(cells[i+1].end); j < len(cells); j = int(cells[j+1].end) {
				if cells[i].n == cells[j].n && bytes.Equal(d.key(i), d.key(j)) {
					cells[i].shadowed = true
					shadowed++
					break
				}
			}
		}
		return shadowed
	}
	size := 32
	for size < 2*n {
		size *= 2
	}
	if cap(d.table) < size {
		d.table = make([]uint32, size)
		d.seed = maphash.MakeSeed()
	}
	table := d.table[:size]
	clear(table)
	for i := at + 1; i < len(cells); i = int(cells[i+1].end) {
		slot := int(maphash.Bytes(d.seed, d.key(i))) & (size - 1)
		for table[slot] != 0 && !bytes.Equal(d.key(int(table[slot])), d.key(i)) {
			slot = (slot + 1) & (size - 1)
		}
		if old := table[slot]; old != 0 {
			cells[old].shadowed = true
			shadowed++
		}
		table[slot] = uint32(i)
	}
	return shadowed
}

func (d *decoder) key(i int) []byte { return value{&d.doc, uint32(i)}.bytes() }

func (d *decoder) number() error {
	start := d.i
	if d.peek() == '-' {
		d.i++
	}
	if d.peek() == '0' {
		d.i++
	} else if !d.digits() {
		return d.unexpected("a digit")
	}
	if d.peek() == '.' {
		if d.i++; !d.digits() {
			return d.unexpected("a digit")
		}
	}
	if c := d.peek(); c == 'e' || c == 'E' {
		if err := d.exponent(); err != nil {
			return err
		}
	}
	d.push(cell{kind: kindNumber, at: uint32(start), n: uint32(d.i - start)})
	return nil
}

func (d *decoder) digits() bool {
	start := d.i
	for c := d.peek(); '0' <= c && c <= '9'; c = d.peek() {
		d.i++
	}
	return d.i > start
}

func (d *decoder) exponent() error {
	d.i++
	if c := d.peek(); c == '+' || c == '-' {
		d.i++
	}
	start, e := d.i, 0
	if !d.digits() {
		return d.unexpected("a digit")
	}
	for _, c := range d.doc.src[start:d.i] {
		if e = e*10 + int(c-'0'); e > exponentMax {
			return d.bad(fmt.Sprintf("number exponent beyond +/-%d", exponentMax))
		}
	}
	return nil
}
