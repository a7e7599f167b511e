package conformance

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// readYAML reads the subset that internal/httpapi/openapi.yaml keeps to: block mappings
// and sequences indented by two, whole-line comments, and on one line scalars, flow
// sequences of scalars, and {}. Values are map[string]any, []any, string, int, bool.
func readYAML(text string) (any, error) {
	r := &yamlReader{}
	for i, line := range strings.Split(text, "\n") {
		if trimmed := strings.TrimLeft(line, " "); trimmed != "" && trimmed[0] != '#' {
			r.lines = append(r.lines, yamlLine{len(line) - len(trimmed), trimmed, i + 1})
		}
	}
	v, err := r.block(0)
	if err == nil && len(r.lines) > 0 {
		err = r.errorf("indented by %d", r.lines[0].indent)
	}
	return v, err
}

type yamlLine struct {
	indent int
	text   string
	number int
}

// yamlReader holds the lines not read yet.
type yamlReader struct{ lines []yamlLine }

func (r *yamlReader) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: %q: %s", r.lines[0].number, r.lines[0].text, fmt.Sprintf(format, args...))
}

func (r *yamlReader) at(indent int) bool { return len(r.lines) > 0 && r.lines[0].indent == indent }

// block reads the mapping or sequence that starts at the next line.
func (r *yamlReader) block(indent int) (any, error) {
	if !r.at(indent) {
		return nil, fmt.Errorf("nothing where a block indented by %d is wanted", indent)
	}
	if strings.HasPrefix(r.lines[0].text, "- ") {
		return r.sequence(indent)
	}
	return r.mapping(indent)
}

func (r *yamlReader) sequence(indent int) (any, error) {
	var out []any
	for r.at(indent) && strings.HasPrefix(r.lines[0].text, "- ") {
		item := r.lines[0].text[2:]
		if _, _, ok := yamlKey(item); !ok {
			v, err := yamlScalar(item)
			if err != nil {
				return nil, r.errorf("%v", err)
			}
			out, r.lines = append(out, v), r.lines[1:]
			continue
		}
		r.lines[0].indent, r.lines[0].text = indent+2, item // a mapping that starts on the dash's line
		v, err := r.mapping(indent + 2)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (r *yamlReader) mapping(indent int) (any, error) {
	out := map[string]any{}
	for r.at(indent) {
		key, rest, ok := yamlKey(r.lines[0].text)
		if !ok {
			return nil, r.errorf("want key: value")
		}
		if _, twice := out[key]; twice {
			return nil, r.errorf("%s stands twice", key)
		}
		var v any
		var err error
		if rest != "" {
			if v, err = yamlScalar(rest); err != nil {
				return nil, r.errorf("%v", err)
			}
			r.lines = r.lines[1:]
		} else {
			r.lines = r.lines[1:]
			if v, err = r.block(indent + 2); err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
		}
		out[key] = v
	}
	return out, nil
}

// yamlKey splits "key: value" and "key:"; the key may be quoted.
func yamlKey(s string) (key, rest string, ok bool) {
	if strings.HasPrefix(s, `"`) {
		quoted, err := strconv.QuotedPrefix(s)
		if err != nil || !strings.HasPrefix(s[len(quoted):], ":") {
			return "", "", false
		}
		key, err = strconv.Unquote(quoted)
		return key, strings.TrimSpace(s[len(quoted)+1:]), err == nil
	}
	if key, ok = strings.CutSuffix(s, ":"); ok {
		return key, "", true
	}
	key, rest, ok = strings.Cut(s, ": ")
	return key, strings.TrimSpace(rest), ok
}

func yamlScalar(s string) (any, error) {
	switch {
	case s == "{}":
		return map[string]any{}, nil
	case s == "[]":
		return []any{}, nil
	case s == "true" || s == "false":
		return s == "true", nil
	case strings.HasPrefix(s, `"`):
		return strconv.Unquote(s)
	case strings.HasPrefix(s, "["):
		inner, ok := strings.CutSuffix(s[1:], "]")
		if !ok {
			return nil, fmt.Errorf("no ] at the end")
		}
		var out []any
		for _, item := range strings.Split(inner, ", ") {
			v, err := yamlScalar(item)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case strings.ContainsAny(s[:1], "{}]&*!|>'%@`#") || strings.Contains(s, ": ") || strings.Contains(s, " #"):
		return nil, fmt.Errorf("outside the subset: quote it")
	}
	if n, err := strconv.Atoi(s); err == nil {
		return n, nil
	}
	return s, nil
}

func TestReadYAML(t *testing.T) {
	got, err := readYAML("# comment\na: 1\nb:\n  - x: \"y: z\"\n    w:\n      - true\n  - plain text, {}\n\"200\": [p, \"q\", 3]\nc: {}\n")
	want := map[string]any{"a": 1, "b": []any{map[string]any{"x": "y: z", "w": []any{true}}, "plain text, {}"}, "200": []any{"p", "q", 3}, "c": map[string]any{}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "a", "a: b: c", "a: 1\na: 2", "a:\nb: 1", "a: 1\n   b: 2", "a: 'x'", "a: [1", "a: |\n  x", "a: x # y"} {
		if v, err := readYAML(bad); err == nil {
			t.Errorf("%q reads as %v", bad, v)
		}
	}
}
