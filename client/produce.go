package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"unicode/utf8"
)

// AnyPartition lets the server choose the partition: by key, or in turn.
const AnyPartition = -1

// Message is one message to produce.
type Message struct {
	Key       []byte // nil or empty = no key
	Payload   []byte // 1 byte to 1 MiB, stored byte for byte
	Partition int    // AnyPartition, or the one to store it in (wins over Key)
}

// Produce stores one message. A nil error means it was synced to disk before the
// answer. After an error for which Uncertain is true it may be stored all the same;
// producing it again may then duplicate it.
func (c *Client) Produce(ctx context.Context, topic string, m Message) error {
	q := url.Values{}
	if len(m.Key) > 0 {
		q.Set("key", string(m.Key))
	}
	if m.Partition != AnyPartition {
		q.Set("partition", strconv.Itoa(m.Partition))
	}
	body := m.Payload
	if body == nil {
		body = []byte{}
	}
	_, _, err := c.do(ctx, request{
		method: http.MethodPost, path: topicPath(topic, "/produce"), query: q,
		body: body, contentType: "application/octet-stream",
	}, http.StatusAccepted)
	return err
}

// ProduceBatch stores 1 to 1,000 messages in order, all or none of them; see
// Produce for what an error means.
func (c *Client) ProduceBatch(ctx context.Context, topic string, ms []Message) error {
	_, _, err := c.do(ctx, request{
		method: http.MethodPost, path: topicPath(topic, "/produce/batch"),
		body: encodeBatch(ms), contentType: jsonType,
	}, http.StatusAccepted)
	return err
}

// encodeBatch writes the body of a batch produce: a payload that is JSON goes as it
// is, any other as base64, so that the stored bytes are the given ones.
func encodeBatch(ms []Message) []byte {
	size := 32
	for i := range ms {
		size += len(ms[i].Payload)*4/3 + len(ms[i].Key)*2 + 96
	}
	b := append(make([]byte, 0, size), `{"messages":[`...)
	for i := range ms {
		m := &ms[i]
		if i > 0 {
			b = append(b, ',')
		}
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
		if m.Partition != AnyPartition {
			b = append(b, `,"partition":`...)
			b = strconv.AppendInt(b, int64(m.Partition), 10)
		}
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

// plainJSON reports whether p survives being embedded: one JSON value with nothing
// around it.
func plainJSON(p []byte) bool {
	return len(p) > 0 && !space(p[0]) && !space(p[len(p)-1]) && utf8.Valid(p) && json.Valid(p)
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

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
	quoted, err := json.Marshal(string(key))
	if err != nil { // a string always encodes
		return appendBase64(b, key)
	}
	return append(b, quoted...)
}
