package httpapi

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/narad-mq/narad/internal/ingress"
	"github.com/narad-mq/narad/internal/model"
)

// encoding is a payload_encoding or key_encoding as sent.
type encoding uint8

const (
	encodingNone encoding = iota
	encodingBase64
	encodingUnknown
)

// batchElement is one element of "messages", decoded but not yet judged.
type batchElement struct {
	payload         []byte // the value as written; nil = absent
	key             []byte
	keyBad          bool // the key is not valid UTF-8
	payloadEncoding encoding
	keyEncoding     encoding
	partition       int64
	pinned          bool
}

// decodeBatch reads the body of a batch produce: first the whole text, element by
// element, refusing the 1,001st; then the form of every message. Payloads and
// keys alias body, which belongs to the messages from then on. Range and schema
// are the next floor's pass.
func decodeBatch(body []byte) ([]ingress.Message, error) {
	elements, err := scanBatch(body)
	if err != nil {
		return nil, err
	}
	if len(elements) == 0 {
		return nil, errMessages
	}
	messages := make([]ingress.Message, len(elements))
	for i := range elements {
		if messages[i], err = elements[i].message(); err != nil {
			return nil, inMessage(i, translate(routeProduceBatch.op(), err))
		}
	}
	return messages, nil
}

// elementsHint is where the list of elements starts; it doubles up to the bound.
const elementsHint = 128

func scanBatch(body []byte) ([]batchElement, error) {
	s := scanner{b: body}
	var elements []batchElement
	var element batchElement
	field := func(name []byte) error { return s.batchField(name, &element) }
	elem := func() error {
		if len(elements) == model.BatchMessagesMax {
			return errTooMany
		}
		if elements == nil {
			elements = make([]batchElement, 0, elementsHint)
		}
		element = batchElement{}
		if err := s.object("messages", field); err != nil {
			return err
		}
		elements = append(elements, element)
		return nil
	}
	err := s.object("body", func(name []byte) error {
		if string(name) != "messages" {
			return unknownField(name)
		}
		if null, err := s.null(); null {
			return err
		}
		if elements != nil {
			return invalidJSON(`json: field "messages" appears twice`)
		}
		return s.array("messages", elem)
	})
	if err != nil {
		return nil, err
	}
	return elements, s.end()
}

// batchField takes one member of an element. A repeated name overrides.
func (s *scanner) batchField(name []byte, e *batchElement) (err error) {
	switch string(name) {
	case "payload":
		s.ws()
		from := s.i
		err = s.value()
		e.payload = s.b[from:s.i:s.i]
	case "payload_encoding":
		e.payloadEncoding, err = s.encoding("payload_encoding")
	case "key_encoding":
		e.keyEncoding, err = s.encoding("key_encoding")
	case "key":
		var ok bool
		e.key, ok, err = s.optionalText("key")
		e.keyBad = !ok
	case "partition":
		e.partition, e.pinned, err = s.optionalInt("partition")
	default:
		return unknownField(name)
	}
	return err
}

// optionalText takes a string or null, which counts as absent.
func (s *scanner) optionalText(field string) (v []byte, ok bool, err error) {
	switch s.peek() {
	case '"':
		return s.text()
	case 'n':
		return nil, true, s.literal("null")
	}
	return nil, false, s.mistyped(field, "string")
}

// optionalInt takes an integer that fits 64 bits, or null.
func (s *scanner) optionalInt(field string) (v int64, set bool, err error) {
	c := s.peek()
	if c == 'n' {
		return 0, false, s.literal("null")
	}
	from := s.i
	if err := s.value(); err != nil {
		return 0, false, err
	}
	v, err = strconv.ParseInt(string(s.b[from:s.i]), 10, 64)
	if err != nil {
		return 0, false, invalidJSON(fmt.Sprintf("json: field %s: want integer", field))
	}
	return v, true, nil
}

func (s *scanner) encoding(field string) (encoding, error) {
	v, ok, err := s.optionalText(field)
	switch {
	case err != nil:
		return encodingNone, err
	case v == nil && ok:
		return encodingNone, nil
	case string(v) == "base64":
		return encodingBase64, nil
	}
	return encodingUnknown, nil
}

// message judges the form of one element. Its errors do not name the
// message.
func (e *batchElement) message() (ingress.Message, error) {
	m := ingress.Message{Payload: e.payload, Key: e.key, Partition: anyPartition}
	if e.payload == nil {
		return m, errMessage
	}
	switch e.payloadEncoding {
	case encodingUnknown:
		return m, &refusal{status: 400, code: "unknown_encoding", text: "unknown payload_encoding: want base64"}
	case encodingBase64:
		s := scanner{b: e.payload}
		if s.peek() != '"' {
			return m, errPayloadBase64
		}
		text, _, err := s.text()
		if err != nil {
			return m, errPayloadBase64
		}
		if m.Payload, err = decodeBase64(text); err != nil {
			return m, errPayloadBase64
		}
	}
	if len(m.Payload) == 0 {
		return m, errMessage
	}
	if len(m.Payload) > model.PayloadBytesMax {
		return m, errMessageTooBig
	}
	if err := e.judgeKey(&m); err != nil {
		return m, err
	}
	if e.pinned {
		if e.partition < 0 || e.partition > 1<<31-1 {
			return m, errPartitionRange
		}
		m.Partition = int(e.partition)
	}
	return m, nil
}

func (e *batchElement) judgeKey(m *ingress.Message) (err error) {
	switch {
	case e.keyBad:
		return &refusal{status: 400, code: "invalid_key", text: "key is not valid UTF-8: send it with key_encoding base64"}
	case e.keyEncoding == encodingUnknown:
		return &refusal{status: 400, code: "unknown_encoding", text: "unknown key_encoding: want base64"}
	case e.keyEncoding == encodingBase64:
		if m.Key, err = decodeBase64(e.key); err != nil {
			return errKeyBase64
		}
	}
	if len(m.Key) == 0 {
		m.Key = nil
	}
	return nil
}

// decodeBase64 decodes standard padded base64, without the line breaks that the
// standard library lets through.
func decodeBase64(src []byte) ([]byte, error) {
	if i := max(bytes.IndexByte(src, '\r'), bytes.IndexByte(src, '\n')); i >= 0 {
		return nil, base64.CorruptInputError(i)
	}
	dst := make([]byte, base64.StdEncoding.DecodedLen(len(src)))
	n, err := base64.StdEncoding.Decode(dst, src)
	return dst[:n:n], err
}
