package schema

import (
	"strconv"
	"strings"
)

// place is a JSON pointer into a schema document, as a chain of tokens: a document
// with long names has many places. nil is the document itself.
type place struct {
	up    *place
	token string
}

// add goes down by tokens.
func (p *place) add(tokens ...string) *place {
	for _, t := range tokens {
		p = &place{p, t}
	}
	return p
}

// String is the place as a fragment: "#" or "#/properties/qty".
func (p *place) String() string {
	n := 1
	for q := p; q != nil; q = q.up {
		n += 1 + len(q.token)
	}
	tokens := make([]string, 0, 8)
	for q := p; q != nil; q = q.up {
		tokens = append(tokens, escapeToken(q.token))
	}
	var b strings.Builder
	b.Grow(n)
	b.WriteByte('#')
	for i := len(tokens) - 1; i >= 0; i-- {
		b.WriteByte('/')
		b.WriteString(tokens[i])
	}
	return b.String()
}

// quoted is the place for an error text.
func (p *place) quoted() string { return strconv.Quote(short(p.String())) }

// pointer is the place as spec/http-api section 9.4 writes it.
func (p *place) pointer() string {
	if p == nil {
		return "schema root"
	}
	return "at " + short(p.String()[1:])
}

func escapeToken(t string) string {
	if !strings.ContainsAny(t, "~/") {
		return t
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(t)
}

// unescapeToken is the reverse; ok is false for a tilde that escapes nothing.
func unescapeToken(t string) (out string, ok bool) {
	for i := 0; i < len(t); i++ {
		if t[i] == '~' && (i+1 == len(t) || t[i+1] != '0' && t[i+1] != '1') {
			return "", false
		}
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(t), true
}

// short cuts a text that came from outside down to what fits an error.
func short(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// eachItem calls f for every item of an array.
func eachItem(v value, f func(sub value, tokens ...string) error) error {
	for i, it := range v.items {
		if err := f(it, strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return nil
}
