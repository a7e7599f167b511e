package client

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"unicode/utf8"
)

// Produce stores one message. A nil error means it was synced to disk before the
// answer. After an error that is Uncertain it may be stored all the same. The client
// repeats a produce whose answer was lost, which may store the message twice; with
// WithCautiousRetries it does not.
func (c *Client) Produce(ctx context.Context, topic string, m Message) error {
	if err := m.check(); err != nil {
		return fmt.Errorf("produce to %s: %w", topic, err)
	}
	q := url.Values{}
	if len(m.Key) > 0 {
		q.Set("key", string(m.Key))
	}
	if m.Pin.set() {
		q.Set("partition", strconv.Itoa(m.Pin.number()))
	}
	_, err := c.do(ctx, &request{
		op: opProduce, method: http.MethodPost, path: topicPath(topic, "/produce"), query: q,
		body: m.Payload, contentType: "application/octet-stream", want: http.StatusAccepted,
	})
	return err
}

// ProduceBatch stores 1 to BatchMessagesMax messages in order, all or none of them;
// see Produce for what an error means. More messages, or messages of more than
// BatchBytesMax as encoded, are ErrBatchFull.
func (c *Client) ProduceBatch(ctx context.Context, topic string, ms []Message) error {
	if len(ms) > BatchMessagesMax {
		return fmt.Errorf("produce to %s: %w: %d messages, at most %d", topic, ErrBatchFull, len(ms), BatchMessagesMax)
	}
	for i := range ms {
		if err := ms[i].check(); err != nil {
			return fmt.Errorf("produce to %s: message %d: %w", topic, i, err)
		}
	}
	body := encodeBatch(ms)
	if len(body) > BatchBytesMax {
		return fmt.Errorf("produce to %s: %w: %d bytes, at most %d", topic, ErrBatchFull, len(body), BatchBytesMax)
	}
	_, err := c.produceBody(ctx, topic, body)
	return err
}

// produceBody sends an encoded batch.
func (c *Client) produceBody(ctx context.Context, topic string, body []byte) (reply, error) {
	return c.do(ctx, &request{
		op: opProduce, method: http.MethodPost, path: topicPath(topic, "/produce/batch"),
		body: body, contentType: jsonType, want: http.StatusAccepted,
	})
}

// check refuses what no server takes.
func (m *Message) check() error {
	switch n := len(m.Payload); {
	case n == 0:
		return fmt.Errorf("%w: message required", ErrBadRequest)
	case n > MessageBytesMax:
		return fmt.Errorf("%w: %d bytes of payload, at most %d", ErrTooLarge, n, MessageBytesMax)
	}
	return nil
}

// The frame of a batch body.
const (
	batchHead = `{"messages":[`
	batchTail = `]}`
)

// encodeBatch writes the body of a batch produce.
func encodeBatch(ms []Message) []byte {
	size := len(batchHead) + len(batchTail)
	for i := range ms {
		size += len(ms[i].Payload)*4/3 + len(ms[i].Key)*2 + 96
	}
	b := append(make([]byte, 0, size), batchHead...)
	for i := range ms {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendMessage(b, &ms[i])
	}
	return append(b, batchTail...)
}

// appendMessage writes one message of a batch: a payload that is JSON goes as it is,
// any other as base64, so that the stored bytes are the given ones.
func appendMessage(b []byte, m *Message) []byte {
	b = append(b, `{"payload":`...)
	if plainJSON(m.Payload) {
		b = append(b, m.Payload...)
	} else {
		b = appendBase64(b, m.Payload)
		b = append(b, `,"payload_encoding":"base64"`...)
	}
	if len(m.Key) > 0 {
		b = appendKey(b, m.Key)
	}
	if m.Pin.set() {
		b = append(b, `,"partition":`...)
		b = strconv.AppendInt(b, int64(m.Pin.number()), 10)
	}
	return append(b, '}')
}

func appendBase64(b, p []byte) []byte {
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, p)
	return append(b, '"')
}

func appendKey(b, key []byte) []byte {
	b = append(b, `,"key":`...)
	if !utf8.Valid(key) {
		b = appendBase64(b, key)
		return append(b, `,"key_encoding":"base64"`...)
	}
	return appendString(b, string(key))
}

// appendString writes s, which must be valid UTF-8, as a JSON string.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		if c < ' ' {
			const hex = "0123456789abcdef"
			b = append(b, `\u00`...)
			b = append(b, hex[c>>4], hex[c&15])
		} else {
			b = append(b, '\\', c)
		}
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}
