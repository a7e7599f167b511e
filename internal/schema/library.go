package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// What the package takes from jsonschema: the meta-schemas, that is the grammar of
// every draft, and the formats. It evaluates payloads itself: the library decodes
// numbers anew for each keyword, holds a full report in memory whatever its size,
// and searches for equal items in a way a sender can make quadratic.

// errNoLoad keeps the library from loading anything.
var errNoLoad = errors.New("nothing is loaded from outside")

type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errNoLoad }

// checkGrammar holds a document against the meta-schema of its draft, and with it
// every part that only a reference makes a schema.
func checkGrammar(l *layout) error {
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	meta, err := c.Compile(l.draft.metaURL())
	if err != nil {
		return fmt.Errorf("compile meta-schema of %s: %w", l.draft.metaURL(), err)
	}
	for i := range l.order {
		v := value{l.doc, l.order[i]}
		if i > 0 && !l.positions[v.i].adopted {
			continue
		}
		if err := meta.Validate(v.plain()); err != nil {
			var verr *jsonschema.ValidationError
			if !errors.As(err, &verr) {
				return refusef("the document does not follow its draft")
			}
			return refusef("the document does not follow its draft: %s", grammarReport(verr, l.positions[v.i].at))
		}
	}
	return nil
}

// grammarReport tells the first fault of a document, by place: the first leaf of the
// report.
func grammarReport(err *jsonschema.ValidationError, at *place) string {
	for len(err.Causes) > 0 {
		err = err.Causes[0]
	}
	leaf := *err
	leaf.InstanceLocation = nil
	what := leaf.Error()
	if _, rest, ok := strings.Cut(what, ": "); ok {
		what = rest
	}
	return "at " + at.add(err.InstanceLocation...).quoted() + ": " + short(what)
}

// format is a check of strings.
type format struct {
	name  string
	check func(v any) error
}

// formatNames are the formats that are checked. Any other name means nothing (SV-6).
var formatNames = [...]string{
	"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "iri", "iri-reference", "json-pointer",
	"period", "relative-json-pointer", "semver", "time", "uri", "uri-reference", "uri-template", "uuid",
}

// formats hands out the formats a document uses.
type formats struct {
	used map[string]*format
}

// get finds a format, nil when the name means nothing.
func (f *formats) get(name string) (*format, error) {
	if known, ok := f.used[name]; ok {
		return known, nil
	}
	if f.used == nil {
		f.used = map[string]*format{}
	}
	if name == "regex" {
		f.used[name] = &format{name, checkRegex}
		return f.used[name], nil
	}
	for _, known := range formatNames {
		if known == name {
			loaded, err := loadFormat(name)
			f.used[name] = loaded
			return loaded, err
		}
	}
	return nil, nil
}

// loadFormat asks the library for a format the only way it gives one out: compiled.
func loadFormat(name string) (*format, error) {
	const url = "narad://format"
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.AssertFormat()
	if err := c.AddResource(url, map[string]any{"format": name}); err != nil {
		return nil, fmt.Errorf("format %s: %w", name, err)
	}
	s, err := c.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("format %s: %w", name, err)
	}
	if s.Format == nil {
		return nil, nil
	}
	return &format{name, s.Format.Validate}, nil
}

// checkRegex is the format regex, of the dialect that pattern takes.
func checkRegex(v any) error {
	s, ok := v.(string)
	if !ok {
		return nil
	}
	_, err := syntax.Parse(s, syntax.Perl)
	return err
}

// plain is the value in the types the library takes.
func (v value) plain() any {
	switch v.kind() {
	case kindFalse, kindTrue:
		return v.kind() == kindTrue
	case kindNumber:
		return json.Number(v.bytes())
	case kindString:
		return string(v.bytes())
	case kindArray:
		out := make([]any, 0, v.len())
		for _, it := range v.items {
			out = append(out, it.plain())
		}
		return out
	case kindObject:
		out := make(map[string]any, v.len())
		for name, m := range v.members {
			out[string(name.bytes())] = m.plain()
		}
		return out
	}
	return nil
}
