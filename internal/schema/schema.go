package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/narad-mq/narad/internal/model"
)

// Schema is a compiled version of a topic's schema. It is immutable and safe for
// concurrent use.
type Schema struct {
	topic   string
	version int
	graph   *graph
	costly  bool
	dynamic bool
	// refusal, when set, is the answer to every payload: a stored document that
	// the rules of today would not register (errPattern, errPaths).
	refusal  error
	decoders *sync.Pool // of *decoder
}

// keptCells bounds the memory a decoder keeps for the next message.
const keptCells = 1 << 16

// Register checks a document by every rule of spec/http-api section 9.1 and returns
// it compiled, together with the bytes to store: the document without insignificant
// white space (SR-10). Errors wrap model.ErrInvalid and say which rule is broken
// where; none shows a reference.
func Register(topic string, version int, doc []byte) (*Schema, []byte, error) {
	if len(doc) > DocumentBytesMax {
		return nil, nil, refusef("the document has %d bytes, at most %d", len(doc), DocumentBytesMax)
	}
	l, err := open(doc)
	if err != nil {
		return nil, nil, err
	}
	if err := checkGrammar(l); err != nil {
		return nil, nil, err
	}
	s, err := build(topic, version, l)
	if err != nil {
		return nil, nil, err
	}
	if s.refusal != nil {
		return nil, nil, refusef("%w", s.refusal)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, doc); err != nil {
		return nil, nil, refusef("the document is %w", err)
	}
	return s, compact.Bytes(), nil
}

// Compile compiles a stored document, which Register has accepted, perhaps under
// other rules. One whose patterns or paths are past today's bounds compiles to a
// schema that refuses every payload; any other fault matches model.ErrCorrupt, for
// the document is not what was stored.
func Compile(topic string, version int, doc []byte) (*Schema, error) {
	l, err := open(bytes.Clone(doc))
	if err != nil {
		return nil, &storedError{topic, version, err}
	}
	s, err := build(topic, version, l)
	if err != nil {
		return nil, &storedError{topic, version, err}
	}
	return s, nil
}

// storedError is a stored document that is no schema. It hides what it matches: to
// a producer it is no fault of the request.
type storedError struct {
	topic   string
	version int
	cause   error
}

func (e *storedError) Error() string {
	return fmt.Sprintf("stored schema %d of topic %q is %s: %s", e.version, e.topic, model.ErrCorrupt, e.cause)
}

// Is makes the error match model.ErrCorrupt.
func (e *storedError) Is(target error) bool { return target == model.ErrCorrupt }

// open decodes a document and maps its schemas and references.
func open(doc []byte) (*layout, error) {
	d, err := decodeDocument(doc)
	switch {
	case errors.Is(err, errDeep):
		return nil, refusef("the document nests deeper than %d levels", NestingMax)
	case err != nil:
		return nil, refusef("the document is %w", err)
	}
	return newLayout(d)
}

func build(topic string, version int, l *layout) (*Schema, error) {
	s := &Schema{topic: topic, version: version, decoders: &sync.Pool{New: func() any { return new(decoder) }}}
	g, err := compile(l)
	if err == nil {
		s.graph = g
		s.costly, err = g.checkPaths()
	}
	switch {
	case errors.Is(err, errPattern), errors.Is(err, errPaths):
		s.refusal = err
	case err != nil:
		return nil, err
	default:
		s.dynamic = g.scoped()
	}
	return s, nil
}

// scoped reports whether some reference depends on the resources in scope.
func (g *graph) scoped() bool {
	for _, n := range g.nodes {
		for _, c := range n.calls {
			if c.candidates != nil {
				return true
			}
		}
	}
	return false
}

// Topic is the topic the schema was compiled for.
func (s *Schema) Topic() string { return s.topic }

// Version is its number in the topic's history, from 1.
func (s *Schema) Version() int { return s.version }

// Costly reports whether every payload needs a slot of a Validator, whatever its
// size (SV-9).
func (s *Schema) Costly() bool { return s.costly }

// Validate checks one payload (SV-1 to SV-8). The error wraps model.ErrInvalid; its
// text is what the client gets.
func (s *Schema) Validate(payload []byte) error {
	if s.refusal != nil {
		reason := reasonPaths
		if errors.Is(s.refusal, errPattern) {
			reason = reasonPattern
		}
		return &payloadError{reason, fmt.Sprintf("version %d takes no payload: ", s.version), s.refusal}
	}
	d := s.decoders.Get().(*decoder)
	defer s.release(d)
	doc, err := d.decode(payload, PayloadNestingMax)
	switch {
	case errors.Is(err, errDeep):
		return &payloadError{reason: reasonDepth, text: fmt.Sprintf("payload nests deeper than %d levels", PayloadNestingMax)}
	case err != nil:
		return &payloadError{reasonMalformed, "payload is ", err}
	}
	e := evaluation{doc: doc, dynamic: s.dynamic, hash: s.graph.hash}
	if e.check(s.graph.root, doc.root(), nil) {
		return nil
	}
	e = evaluation{doc: doc, dynamic: s.dynamic, hash: s.graph.hash, rep: &report{}}
	e.check(s.graph.root, doc.root(), nil)
	return &payloadError{reason: reasonInvalid, text: e.rep.render(fmt.Sprintf("narad://schema/%s/%d#", s.topic, s.version))}
}

// payloadError says why a payload is refused. It matches model.ErrInvalid, and its
// text starts like one.
type payloadError struct {
	reason string // label of narad_schema_rejections_total
	text   string
	cause  error // continues the text; may be nil
}

func (e *payloadError) Error() string {
	text := model.ErrInvalid.Error() + ": schema: " + e.text
	if e.cause != nil {
		text += e.cause.Error()
	}
	return text
}

// Is makes the error match model.ErrInvalid.
func (e *payloadError) Is(target error) bool { return target == model.ErrInvalid }

func (e *payloadError) Unwrap() error { return e.cause }

// release gives a decoder back without the payload, unless it has grown large.
func (s *Schema) release(d *decoder) {
	if cap(d.doc.cells) > keptCells || cap(d.doc.text) > keptCells || cap(d.table) > keptCells {
		return
	}
	d.doc.src = nil
	s.decoders.Put(d)
}
