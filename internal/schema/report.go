package schema

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// report collects why a payload is refused, as lines (SV-8). A nil report collects
// nothing: the verdict alone is wanted.
type report struct {
	lines []line
	size  int
	over  bool // the lines passed reportWorkMax; they are not complete
}

// line is one fault. A fault with causes is followed by them, one level deeper.
type line struct {
	level int
	text  string
}

// lineOverhead is what a line takes besides its text.
const lineOverhead = 32

func (r *report) add(text string) {
	r.size += len(text) + lineOverhead
	if r.size > reportWorkMax {
		r.over = true
		return
	}
	r.lines = append(r.lines, line{0, text})
}

// forget drops the lines since mark.
func (r *report) forget(mark int) {
	for _, l := range r.lines[mark:] {
		r.size -= len(l.text) + lineOverhead
	}
	r.lines = r.lines[:mark]
}

// faults is how many faults were added since mark, causes not counted.
func (r *report) faults(mark int) (n int) {
	for _, l := range r.lines[mark:] {
		if l.level == 0 {
			n++
		}
	}
	return n
}

// wrap makes the faults since mark the causes of one.
func (r *report) wrap(mark int, text string) {
	r.add("")
	if r.over {
		return
	}
	r.size += len(text)
	copy(r.lines[mark+1:], r.lines[mark:])
	r.lines[mark] = line{0, text}
	for i := range r.lines[mark+1:] {
		r.lines[mark+1+i].level++
	}
}

// render writes the report: its first line, and as much of the rest as reportMax
// lets through.
func (r *report) render(url string) string {
	var b strings.Builder
	b.WriteString("jsonschema validation failed with '" + url + "'")
	if r.over {
		b.WriteString("\n- the full report would be too large: check a smaller part of the payload")
		return b.String()
	}
	for _, l := range r.lines {
		if b.Len() > reportMax {
			break
		}
		b.WriteByte('\n')
		b.WriteString(strings.Repeat("  ", min(l.level, reportMax)))
		b.WriteString("- ")
		b.WriteString(l.text)
	}
	return cut(b.String(), reportMax)
}

// cut shortens a text to at most n bytes, at the border of a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// shownMax is how much of a value or name a report shows.
const shownMax = 256

// quote shows a text in single quotes.
func quote[T string | []byte](s T) string {
	text := cut(string(s[:min(len(s), shownMax+utf8.UTFMax)]), shownMax)
	q := strconv.Quote(text)
	q = strings.ReplaceAll(strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`), "'", `\'`)
	if len(text) < len(s) {
		q += "..."
	}
	return "'" + q + "'"
}

// quotedMax is how many names a report lists.
const quotedMax = 32

func quoteAll[T string | []byte](names []T) string {
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		if i == quotedMax {
			fmt.Fprintf(&b, "and %d more", len(names)-i)
			break
		}
		b.WriteString(quote(n))
	}
	return b.String()
}

// display shows a scalar.
func display(v value) string {
	switch v.kind() {
	case kindString:
		return quote(v.bytes())
	case kindNumber:
		return short(string(v.bytes()))
	case kindNull:
		return "null"
	case kindFalse:
		return "false"
	default:
		return "true"
	}
}

// wanted says what an enum allows.
func (e *enum) wanted() string {
	shown := make([]string, 0, min(len(e.allowed), quotedMax))
	for i, v := range e.allowed {
		if v.kind() >= kindArray {
			return "'" + e.keyword + "' failed"
		}
		if i == quotedMax {
			shown = append(shown, fmt.Sprintf("and %d more", len(e.allowed)-i))
			break
		}
		shown = append(shown, display(v))
	}
	if len(shown) == 1 {
		return "value must be " + shown[0]
	}
	return "value must be one of " + strings.Join(shown, ", ")
}

// step is one token of the place of a value: a member's name, or an index.
type step struct {
	name  []byte
	index int // of an item, when name is nil
}

// location shows a place in the payload as a JSON pointer.
func location(path []step) string {
	var b strings.Builder
	for _, s := range path {
		if b.Len() > shownMax {
			break
		}
		b.WriteByte('/')
		if s.name == nil {
			b.WriteString(strconv.Itoa(s.index))
		} else {
			b.WriteString(escapeToken(string(s.name[:min(len(s.name), shownMax)])))
		}
	}
	return "at " + quote(b.String())
}
