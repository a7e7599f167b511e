package schema

import "strings"

// draft is a version of JSON Schema; they order by age.
type draft uint8

const (
	draft4 draft = iota
	draft6
	draft7
	draft2019
	draft2020
)

// draftURLs name the drafts, without scheme and without an empty fragment.
var draftURLs = [...]string{
	draft4:    "json-schema.org/draft-04/schema",
	draft6:    "json-schema.org/draft-06/schema",
	draft7:    "json-schema.org/draft-07/schema",
	draft2019: "json-schema.org/draft/2019-09/schema",
	draft2020: "json-schema.org/draft/2020-12/schema",
}

// draftOf reads the value of $schema.
func draftOf(url string) (draft, bool) {
	name, plain := strings.CutPrefix(url, "http://")
	if !plain {
		name = strings.TrimPrefix(url, "https://")
		if name == url {
			return 0, false
		}
	}
	name = strings.TrimSuffix(name, "#")
	for d, known := range draftURLs {
		if name == known {
			return draft(d), true
		}
	}
	return 0, false
}

// metaURL is where the meta-schema of a draft says it lives.
func (d draft) metaURL() string {
	if d < draft2019 {
		return "http://" + draftURLs[d]
	}
	return "https://" + draftURLs[d]
}

// shape says where the value of a keyword holds subschemas.
type shape uint8

const (
	data        shape = iota // nowhere
	annotation               // nowhere, and no payload is refused for it
	one                      // it is one
	list                     // each item
	byName                   // each member
	oneOrList                // items before 2020-12
	namesOrOne               // dependencies: each member that is not a list of names
	reference                // it names one
	definitions              // each member, applied to nothing by itself
)

// keyword says what a keyword is in the drafts that define it.
type keyword struct {
	shape       shape
	since, till draft
}

// keywords are those that mean something to any draft. What a draft does not define
// is an annotation (CMP-21). Two of them outlive their draft, as everywhere in
// practice: definitions and dependencies.
var keywords = map[string]keyword{
	"$schema":          {data, draft4, draft2020},
	"id":               {data, draft4, draft4},
	"$id":              {data, draft6, draft2020},
	"$anchor":          {data, draft2019, draft2020},
	"$dynamicAnchor":   {data, draft2020, draft2020},
	"$recursiveAnchor": {data, draft2019, draft2019},
	"$ref":             {reference, draft4, draft2020},
	"$dynamicRef":      {reference, draft2020, draft2020},
	"$recursiveRef":    {reference, draft2019, draft2019},
	"definitions":      {definitions, draft4, draft2020},
	"$defs":            {definitions, draft2019, draft2020},

	"type": {data, draft4, draft2020}, "enum": {data, draft4, draft2020}, "const": {data, draft6, draft2020},
	"format": {data, draft4, draft2020},

	"multipleOf": {data, draft4, draft2020}, "maximum": {data, draft4, draft2020}, "minimum": {data, draft4, draft2020},
	"exclusiveMaximum": {data, draft4, draft2020}, "exclusiveMinimum": {data, draft4, draft2020},

	"maxLength": {data, draft4, draft2020}, "minLength": {data, draft4, draft2020}, "pattern": {data, draft4, draft2020},

	"maxItems": {data, draft4, draft2020}, "minItems": {data, draft4, draft2020}, "uniqueItems": {data, draft4, draft2020},
	"items": {oneOrList, draft4, draft2020}, "additionalItems": {one, draft4, draft2019}, "prefixItems": {list, draft2020, draft2020},
	"contains": {one, draft6, draft2020}, "minContains": {data, draft2019, draft2020}, "maxContains": {data, draft2019, draft2020},
	"unevaluatedItems": {one, draft2019, draft2020},

	"maxProperties": {data, draft4, draft2020}, "minProperties": {data, draft4, draft2020}, "required": {data, draft4, draft2020},
	"properties": {byName, draft4, draft2020}, "patternProperties": {byName, draft4, draft2020},
	"additionalProperties": {one, draft4, draft2020}, "propertyNames": {one, draft6, draft2020},
	"dependencies": {namesOrOne, draft4, draft2020}, "dependentRequired": {data, draft2019, draft2020},
	"dependentSchemas": {byName, draft2019, draft2020}, "unevaluatedProperties": {one, draft2019, draft2020},

	"allOf": {list, draft4, draft2020}, "anyOf": {list, draft4, draft2020}, "oneOf": {list, draft4, draft2020},
	"not": {one, draft4, draft2020},
	"if":  {one, draft7, draft2020}, "then": {one, draft7, draft2020}, "else": {one, draft7, draft2020},

	"contentSchema": {one, draft2019, draft2020},

	"title": {annotation, draft4, draft2020}, "description": {annotation, draft4, draft2020},
	"default": {annotation, draft4, draft2020}, "examples": {annotation, draft4, draft2020},
	"$comment": {annotation, draft4, draft2020}, "deprecated": {annotation, draft4, draft2020},
	"readOnly": {annotation, draft4, draft2020}, "writeOnly": {annotation, draft4, draft2020},
}

// keyword looks a keyword up; what the draft does not define is an annotation, of
// which ok is false.
func (d draft) keyword(name string) (k keyword, ok bool) {
	k, ok = keywords[name]
	if !ok || d < k.since || d > k.till {
		return keyword{shape: annotation}, false
	}
	return k, true
}

// subschemas calls f for every subschema that a keyword's value holds, with the
// tokens behind the keyword.
func (k keyword) subschemas(v value, f func(sub value, tokens ...string) error) error {
	switch k.shape {
	case one:
		return f(v)
	case list:
		return eachItem(v, f)
	case oneOrList:
		if v.kind() == kindArray {
			return eachItem(v, f)
		}
		return f(v)
	case byName, definitions, namesOrOne:
		for name, sub := range v.members {
			if k.shape == namesOrOne && sub.kind() == kindArray {
				continue
			}
			if err := f(sub, name.string()); err != nil {
				return err
			}
		}
	}
	return nil
}
