package schema

import "bytes"

// kind is the type of a JSON value.
type kind uint8

const (
	kindNull kind = iota
	kindFalse
	kindTrue
	kindNumber
	kindString
	kindArray
	kindObject
)

// kindNames are the names JSON Schema gives the types.
var kindNames = [...]string{"null", "boolean", "boolean", "number", "string", "array", "object"}

func (k kind) String() string { return kindNames[k] }

// cell is one value of a document, in the order of the text. An array is followed
// by its items, an object by its members, each a string and the value behind it.
type cell struct {
	kind     kind
	shadowed bool   // a key that a later equal one replaces (SV-2)
	escaped  bool   // a string whose contents are in document.text
	at       uint32 // where a string's contents or a number starts
	n        uint32 // their length; of arrays and objects the number of items or members in force
	end      uint32 // index of the cell behind this value
}

// document is a decoded JSON text: flat, so that decoding a message allocates
// nothing once its buffers have grown. Cell 0 is the root.
type document struct {
	src   []byte
	text  []byte // contents of strings that hold escapes
	cells []cell
}

// value is a place in a document.
type value struct {
	doc *document
	i   uint32
}

func (d *document) root() value { return value{d, 0} }

func (v value) cell() *cell { return &v.doc.cells[v.i] }
func (v value) kind() kind  { return v.doc.cells[v.i].kind }
func (v value) end() uint32 { return v.doc.cells[v.i].end }

// len is the number of items of an array or of members of an object.
func (v value) len() int { return int(v.cell().n) }

// bytes are the contents of a string or the text of a number.
func (v value) bytes() []byte {
	c := v.cell()
	if c.escaped {
		return v.doc.text[c.at : c.at+c.n]
	}
	return v.doc.src[c.at : c.at+c.n]
}

func (v value) number() decimal { return parseDecimal(v.bytes()) }

// string is the contents of a string, "" for anything else.
func (v value) string() string {
	if v.kind() != kindString {
		return ""
	}
	return string(v.bytes())
}

// items yields index and item of an array, nothing for other values.
func (v value) items(yield func(int, value) bool) {
	if v.kind() != kindArray {
		return
	}
	n := 0
	for i, end := v.i+1, v.end(); i < end; i = v.doc.cells[i].end {
		if !yield(n, value{v.doc, i}) {
			return
		}
		n++
	}
}

// members yields name and value of each member in force, nothing for values that
// are not objects.
func (v value) members(yield func(name, val value) bool) {
	if v.kind() != kindObject {
		return
	}
	cells := v.doc.cells
	for i, end := v.i+1, v.end(); i < end; i = cells[i+1].end {
		if !cells[i].shadowed && !yield(value{v.doc, i}, value{v.doc, i + 1}) {
			return
		}
	}
}

// get looks a member up by name, in time linear in the object.
func (v value) get(name string) (value, bool) {
	for k, m := range v.members {
		if string(k.bytes()) == name {
			return m, true
		}
	}
	return value{}, false
}

// small is up to how many members a search by walking beats an index.
const small = 16

// finder returns a look-up of members by name, good for many of them.
func (v value) finder() func(name string) (value, bool) {
	if v.kind() != kindObject || v.len() <= small {
		return v.get
	}
	all := v.index()
	return func(name string) (value, bool) {
		m, ok := all[name]
		return m, ok
	}
}

// index maps the names of an object to its values, for many look-ups in a large
// object.
func (v value) index() map[string]value {
	m := make(map[string]value, v.len())
	for k, val := range v.members {
		m[string(k.bytes())] = val
	}
	return m
}

// equal compares two JSON values: the order of members, white space and the
// spelling of numbers and strings do not matter.
func equal(a, b value) bool {
	ca, cb := a.cell(), b.cell()
	if ca.kind != cb.kind {
		return false
	}
	switch ca.kind {
	case kindString:
		return bytes.Equal(a.bytes(), b.bytes())
	case kindNumber:
		return a.number().equal(b.number())
	case kindArray:
		return ca.n == cb.n && equalArrays(a, b)
	case kindObject:
		return ca.n == cb.n && equalObjects(a, b)
	}
	return true
}

func equalArrays(a, b value) bool {
	j := b.i + 1
	for _, it := range a.items {
		other := value{b.doc, j}
		if !equal(it, other) {
			return false
		}
		j = other.end()
	}
	return true
}

func equalObjects(a, b value) bool {
	find := b.finder()
	for k, val := range a.members {
		other, ok := find(string(k.bytes()))
		if !ok || !equal(val, other) {
			return false
		}
	}
	return true
}
