package schema

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/narad-mq/narad/internal/model"
)

// refusef says why a document is no schema of ours.
func refusef(format string, args ...any) error {
	return fmt.Errorf("%w: schema: "+format, append([]any{model.ErrInvalid}, args...)...)
}

// position is a place of a document at which a schema stands.
type position struct {
	at       *place
	resource *resource
	refs     map[string]uint32 // reference keyword -> cell of its first target
	adopted  bool              // only a reference makes it a schema
}

// resource is a part of a document with an $id of its own, or the document. It is
// what anchors and pointers are relative to.
type resource struct {
	root      uint32
	anchors   map[string]uint32
	dynamic   map[string]uint32 // $dynamicAnchor
	recursive bool              // $recursiveAnchor
}

// layout knows what in a document is a schema, and what its references mean. It
// resolves nothing outside of the document.
type layout struct {
	doc       *document
	draft     draft
	positions map[uint32]*position
	order     []uint32 // cells of positions as found, so that walks and errors are stable
	resources []*resource
	objects   map[uint32]func(name string) (value, bool) // look-ups of objects that pointers passed
	lists     map[uint32][]value                         // and the items of arrays
	irregular bool                                       // a reference leads to a place that is no schema by itself
}

// newLayout maps a document, which has to be an object or true (SR-1), and resolves
// its references (SR-3, SR-4).
func newLayout(doc *document) (*layout, error) {
	root := doc.root()
	if k := root.kind(); k != kindObject && k != kindTrue {
		return nil, refusef("the document must be a JSON object or true")
	}
	l := &layout{
		doc: doc, draft: draft2020, positions: map[uint32]*position{},
		objects: map[uint32]func(string) (value, bool){}, lists: map[uint32][]value{},
	}
	if s, ok := root.get("$schema"); ok {
		if l.draft, ok = draftOf(s.string()); !ok {
			return nil, refusef("$schema must name draft 2020-12, 2019-09, 07, 06 or 04")
		}
	}
	if err := l.walk(root, nil, nil); err != nil {
		return nil, err
	}
	for i := 0; i < len(l.order); i++ { // resolve appends
		if err := l.resolve(l.order[i]); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// overruled reports whether the keywords of a schema object mean nothing, because
// its draft lets $ref stand alone.
func (l *layout) overruled(v value) bool {
	if l.draft >= draft2019 {
		return false
	}
	ref, ok := v.get("$ref")
	return ok && ref.kind() == kindString
}

// keywords yields those of a schema object that its draft defines and lets count.
func (l *layout) keywords(v value, yield func(name string, k keyword, val value) error) error {
	alone := l.overruled(v)
	for name, val := range v.members {
		k, ok := l.draft.keyword(name.string())
		if !ok || alone && k.shape != reference && k.shape != definitions {
			continue
		}
		if err := yield(name.string(), k, val); err != nil {
			return err
		}
	}
	return nil
}

// walk notes the schema at v and those below it.
func (l *layout) walk(v value, at *place, res *resource) error {
	if l.positions[v.i] != nil {
		return nil
	}
	if res == nil || l.identified(v) {
		res = &resource{root: v.i, anchors: map[string]uint32{}, dynamic: map[string]uint32{}}
		l.resources = append(l.resources, res)
	}
	l.positions[v.i] = &position{at: at, resource: res}
	l.order = append(l.order, v.i)
	if v.kind() != kindObject {
		return nil
	}
	if err := l.identify(v, at, res); err != nil {
		return err
	}
	for name, val := range v.members {
		k, ok := l.draft.keyword(name.string())
		here := at.add(name.string())
		var err error
		switch {
		case !ok && k.shape == annotation:
			err = l.scan(val, here)
		case k.shape == reference:
			err = checkReference(val, here)
		default:
			err = k.subschemas(val, func(sub value, tokens ...string) error {
				return l.walk(sub, here.add(tokens...), res)
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// scan refuses outward references in what no draft calls a schema but a reference
// may still lead to (SR-4: anywhere in the document).
func (l *layout) scan(v value, at *place) error {
	for name, val := range v.members {
		here := at.add(name.string())
		if k, ok := keywords[name.string()]; ok && k.shape == reference {
			if err := checkReference(val, here); err != nil {
				return err
			}
		}
		if err := l.scan(val, here); err != nil {
			return err
		}
	}
	for i, it := range v.items {
		if err := l.scan(it, at.add(strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return nil
}

// checkReference refuses a reference that leads out of the document. The text never
// shows it: a reference may hold credentials.
func checkReference(v value, at *place) error {
	if v.kind() == kindString && !strings.HasPrefix(v.string(), "#") {
		return refusef("the reference at %s leads out of the document: only #, #/... and #anchor are allowed", at.quoted())
	}
	return nil
}

// id is the $id of a schema object as far as it starts a resource, without fragment.
func (l *layout) id(v value) (base, fragment string) {
	name := "$id"
	if l.draft == draft4 {
		name = "id"
	}
	id, ok := v.get(name)
	if !ok || l.overruled(v) {
		return "", ""
	}
	base, fragment, _ = strings.Cut(id.string(), "#")
	return base, fragment
}

func (l *layout) identified(v value) bool {
	base, _ := l.id(v)
	return base != ""
}

// identify notes the anchors of a schema object.
func (l *layout) identify(v value, at *place, res *resource) error {
	if s, ok := v.get("$schema"); ok && at != nil {
		if d, known := draftOf(s.string()); !known || d != l.draft {
			return refusef("$schema at %s differs from that of the document", at.quoted())
		}
	}
	var names []string
	if _, fragment := l.id(v); fragment != "" && l.draft < draft2019 {
		names = append(names, fragment)
	}
	for _, key := range []string{"$anchor", "$dynamicAnchor"} {
		a, ok := v.get(key)
		if _, defined := l.draft.keyword(key); !ok || !defined || a.kind() != kindString {
			continue
		}
		names = append(names, a.string())
		if key == "$dynamicAnchor" {
			res.dynamic[a.string()] = v.i
		}
	}
	for _, name := range names {
		if other, taken := res.anchors[name]; taken && other != v.i {
			return refusef("the anchor at %s is used twice", at.quoted())
		}
		res.anchors[name] = v.i
	}
	if r, ok := v.get("$recursiveAnchor"); ok && l.draft == draft2019 && v.i == res.root {
		res.recursive = r.kind() == kindTrue
	}
	return nil
}

// resolve finds the targets of the references of the schema at a cell.
func (l *layout) resolve(i uint32) error {
	v, pos := value{l.doc, i}, l.positions[i]
	return l.keywords(v, func(name string, k keyword, val value) error {
		if k.shape != reference || val.kind() != kindString {
			return nil
		}
		target, err := l.target(strings.TrimPrefix(val.string(), "#"), pos.resource)
		if err != nil {
			return refusef("the reference at %s %w", pos.at.add(name).quoted(), err)
		}
		if pos.refs == nil {
			pos.refs = map[string]uint32{}
		}
		pos.refs[name] = target.i
		return nil
	})
}

var (
	errNowhere  = errors.New("does not resolve inside the document")
	errNoSchema = errors.New("does not lead to a schema")
)

// target finds what a fragment names in a resource.
func (l *layout) target(fragment string, res *resource) (value, error) {
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		return value{}, errNowhere
	}
	v := value{l.doc, res.root}
	at := l.positions[res.root].at
	if fragment != "" && fragment[0] != '/' {
		i, ok := res.anchors[fragment]
		if !ok {
			return value{}, errNowhere
		}
		return value{l.doc, i}, nil
	}
	for _, token := range strings.Split(fragment, "/")[1:] {
		token, ok := unescapeToken(token)
		if !ok {
			return value{}, errNowhere
		}
		if v, ok = l.child(v, token); !ok {
			return value{}, errNowhere
		}
		if pos := l.positions[v.i]; pos != nil {
			res = pos.resource
		}
		at = at.add(token)
	}
	return v, l.adopt(v, at, res)
}

// adopt makes a schema of the target of a reference that is none by its place.
func (l *layout) adopt(v value, at *place, res *resource) error {
	if l.positions[v.i] != nil {
		return nil
	}
	if k := v.kind(); k != kindObject && k != kindTrue && k != kindFalse {
		return errNoSchema
	}
	l.irregular = true
	if err := l.walk(v, at, res); err != nil {
		return err
	}
	l.positions[v.i].adopted = true
	return nil
}

// child goes down by one token of a pointer. Many pointers may pass one place, so
// what is there is indexed once.
func (l *layout) child(v value, token string) (value, bool) {
	if v.kind() != kindArray {
		find, ok := l.objects[v.i]
		if !ok {
			find = v.finder()
			l.objects[v.i] = find
		}
		return find(token)
	}
	items, ok := l.lists[v.i]
	if !ok {
		items = listOf(v)
		l.lists[v.i] = items
	}
	n, ok := arrayIndex(token)
	if !ok || n >= len(items) {
		return value{}, false
	}
	return items[n], true
}

// arrayIndex reads a token of a pointer as the index of an item.
func arrayIndex(token string) (n int, ok bool) {
	if token == "" || len(token) > 9 || token[0] == '0' && len(token) > 1 {
		return 0, false
	}
	for _, c := range token {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}
