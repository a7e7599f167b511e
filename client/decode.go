package client

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// answerDepthMax bounds the nesting of an answer: the deepest payload a server hands
// out as JSON, and what is around it.
const answerDepthMax = 10_000 + 8

var (
	errNotJSON  = errors.New("not the JSON that was expected")
	errEncoding = errors.New("unknown encoding")
)

// members calls f with each member of the object p, and nothing around it. The value
// comes with the white space around it: that of a payload may belong to it.
func members(p []byte, f func(name, value []byte) error) error {
	return each(p, '{', '}', func(i int) (int, error) {
		if i >= len(p) || p[i] != '"' {
			return i, errNotJSON
		}
		end, ok := jsonString(p, i+1)
		name := p[i+1 : max(i+1, end-1)]
		i = skipSpace(p, end)
		if !ok || i >= len(p) || p[i] != ':' {
			return i, errNotJSON
		}
		from := i + 1
		if end, ok = jsonValue(p, skipSpace(p, from), answerDepthMax); !ok {
			return end, errNotJSON
		}
		end = skipSpace(p, end)
		return end, f(name, p[from:end:end])
	})
}

// elements calls f with each element of the array p.
func elements(p []byte, f func(value []byte) error) error {
	return each(p, '[', ']', func(i int) (int, error) {
		end, ok := jsonValue(p, i, answerDepthMax)
		if !ok {
			return end, errNotJSON
		}
		return end, f(p[i:end:end])
	})
}

// each walks the list p between its brackets; item passes over one of its items.
func each(p []byte, first, last byte, item func(i int) (int, error)) error {
	i := skipSpace(p, 0)
	if i >= len(p) || p[i] != first {
		return errNotJSON
	}
	if i = skipSpace(p, i+1); i < len(p) && p[i] == last {
		return atEnd(p, i+1)
	}
	for {
		end, err := item(i)
		if err != nil {
			return err
		}
		if i = skipSpace(p, end); i >= len(p) {
			return errNotJSON
		}
		switch p[i] {
		case last:
			return atEnd(p, i+1)
		case ',':
			i = skipSpace(p, i+1)
		default:
			return errNotJSON
		}
	}
}

func atEnd(p []byte, i int) error {
	if skipSpace(p, i) < len(p) {
		return errNotJSON
	}
	return nil
}

func trim(p []byte) []byte {
	p = p[skipSpace(p, 0):]
	for len(p) > 0 && space(p[len(p)-1]) {
		p = p[:len(p)-1]
	}
	return p
}

// text reads a JSON string; null is "".
func text(p []byte) (string, error) {
	p = trim(p)
	if len(p) < 2 || p[0] != '"' {
		if string(p) == "null" {
			return "", nil
		}
		return "", errNotJSON
	}
	if s := p[1 : len(p)-1]; bytes.IndexByte(s, '\\') < 0 {
		return string(s), nil
	}
	var s string
	err := json.Unmarshal(p, &s)
	return s, err
}

// integer reads a JSON integer; null is 0.
func integer(p []byte) (int64, error) {
	p = trim(p)
	if string(p) == "null" {
		return 0, nil
	}
	n, err := strconv.ParseInt(string(p), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errNotJSON, err)
	}
	return n, nil
}

// decodeMessages reads the answer to a batch receive from topic. What it returns
// shares the memory of body. The error of a message that cannot be decoded is in bad;
// the others are returned.
func decodeMessages(body []byte, topic string) (out []Delivery, bad, err error) {
	err = members(body, func(name, value []byte) error {
		if string(name) != "messages" {
			return nil
		}
		return elements(trim(value), func(m []byte) error {
			d, err := decodeMessage(m, topic)
			if err != nil {
				bad = errors.Join(bad, err)
				return nil
			}
			out = append(out, d)
			return nil
		})
	})
	return out, bad, err
}

// decodeMessage reads a message object. topic saves making a string of the name that
// is expected.
func decodeMessage(p []byte, topic string) (Delivery, error) {
	var (
		d                   Delivery
		n                   int64
		key                 string
		hasKey              bool
		keyCode, payloadEnc string
	)
	err := members(p, func(name, value []byte) (err error) {
		switch string(name) {
		case "topic":
			if v := trim(value); len(v) == len(topic)+2 && string(v[1:len(v)-1]) == topic {
				d.Topic = topic
				return nil
			}
			d.Topic, err = text(value)
		case "partition":
			n, err = integer(value)
			d.Partition = int(n)
		case "offset":
			d.Offset, err = integer(value)
		case "key":
			hasKey = true
			key, err = text(value)
		case "key_encoding":
			keyCode, err = text(value)
		case "payload":
			d.Raw = value
		case "payload_encoding":
			payloadEnc, err = text(value)
		case "timestamp":
			n, err = integer(value)
			d.Timestamp = time.Unix(n, 0)
		case "receipt_handle":
			d.Handle, err = text(value)
		case "delivery_count":
			n, err = integer(value)
			d.DeliveryCount = int(n)
		}
		return err
	})
	if err == nil && hasKey {
		d.Key, err = decodeText(key, keyCode)
	}
	if err == nil {
		d.Binary = payloadEnc != ""
		d.Payload, err = payloadOf(d.Raw, payloadEnc)
	}
	if err != nil {
		err = fmt.Errorf("narad client: message %s/%d@%d: %w", d.Topic, d.Partition, d.Offset, err)
	}
	return d, err
}

// payloadOf is the stored bytes behind a payload of an answer.
func payloadOf(raw []byte, encoding string) ([]byte, error) {
	if v := trim(raw); len(v) > 0 && v[0] == '"' {
		s, err := text(v)
		if err != nil {
			return nil, err
		}
		return decodeText(s, encoding)
	}
	if encoding != "" {
		return nil, fmt.Errorf("%w %q of what is no string", errEncoding, encoding)
	}
	return raw, nil
}

func decodeText(s, encoding string) ([]byte, error) {
	switch encoding {
	case "":
		return []byte(s), nil
	case "base64":
		return base64.StdEncoding.DecodeString(s)
	}
	return nil, fmt.Errorf("%w %q", errEncoding, encoding)
}
