package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Delivery is a message handed out: leased (Handle set) or replayed (Handle empty).
type Delivery struct {
	Topic     string
	Partition int
	Offset    int64
	Key       []byte // nil = no key
	// Payload is the stored bytes, with one exception: a payload that was stored as
	// a JSON string arrives as the string's text, because the two look alike on the
	// wire. Raw tells them apart from other JSON.
	Payload []byte
	// Raw is the payload as the answer carried it: a JSON value.
	Raw json.RawMessage
	// Binary says that Raw is the base64 of the payload: it is neither JSON nor text.
	Binary        bool
	Timestamp     time.Time // commit time, to the second
	Handle        string    // names this lease; "" on a replay
	DeliveryCount int       // 1 for the first delivery by the owner process; 0 on a replay
}

// wireMessage is the message object of the HTTP API.
type wireMessage struct {
	Topic           string          `json:"topic"`
	Partition       int             `json:"partition"`
	Offset          int64           `json:"offset"`
	Key             *string         `json:"key"`
	KeyEncoding     string          `json:"key_encoding"`
	Payload         json.RawMessage `json:"payload"`
	PayloadEncoding string          `json:"payload_encoding"`
	Timestamp       int64           `json:"timestamp"`
	ReceiptHandle   string          `json:"receipt_handle"`
	DeliveryCount   int             `json:"delivery_count"`
}

var errEncoding = errors.New("unknown encoding")

func (w *wireMessage) delivery() (Delivery, error) {
	d := Delivery{
		Topic: w.Topic, Partition: w.Partition, Offset: w.Offset, Raw: w.Payload, Payload: w.Payload,
		Binary: w.PayloadEncoding != "", Timestamp: time.Unix(w.Timestamp, 0), Handle: w.ReceiptHandle, DeliveryCount: w.DeliveryCount,
	}
	var err error
	if w.Key != nil {
		if d.Key, err = decodeText(*w.Key, w.KeyEncoding); err != nil {
			return d, fmt.Errorf("narad client: key of %s/%d@%d: %w", w.Topic, w.Partition, w.Offset, err)
		}
	}
	if len(w.Payload) > 0 && w.Payload[0] == '"' {
		var s string
		if err = json.Unmarshal(w.Payload, &s); err == nil {
			d.Payload, err = decodeText(s, w.PayloadEncoding)
		}
	}
	if err != nil {
		return d, fmt.Errorf("narad client: payload of %s/%d@%d: %w", w.Topic, w.Partition, w.Offset, err)
	}
	return d, nil
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

// ConsumeOptions narrow a consume.
type ConsumeOptions struct {
	Wait      time.Duration // how long the server holds the request for a message
	Partition int           // AnyPartition, or the only one to take from
	Max       int           // messages to take at most, 1 to 100; 0 counts as 1
}

// Consume leases up to Max messages; none within Wait is an empty result and no
// error. Each message must be settled with Ack, Nack or Extend before the topic's
// visibility timeout ends, or it is handed out again.
func (c *Client) Consume(ctx context.Context, topic string, o ConsumeOptions) ([]Delivery, error) {
	q := url.Values{"max": {strconv.Itoa(max(o.Max, 1))}}
	if o.Wait > 0 {
		q.Set("wait", o.Wait.String())
	}
	if o.Partition != AnyPartition {
		q.Set("partition", strconv.Itoa(o.Partition))
	}
	r := request{method: http.MethodGet, path: topicPath(topic, "/consume"), query: q, wait: o.Wait + waitMargin}
	status, body, err := c.do(ctx, r, http.StatusOK, http.StatusNoContent)
	if err != nil || status == http.StatusNoContent {
		return nil, err
	}
	var w struct{ Messages []wireMessage }
	if err := json.Unmarshal(body, &w); err != nil {
		return nil, fmt.Errorf("narad client: consume %s: answer: %w", topic, err)
	}
	out := make([]Delivery, len(w.Messages))
	for i := range w.Messages {
		if out[i], err = w.Messages[i].delivery(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Read returns the message at an offset without leasing it; false means the offset
// is at or past the end. An offset that retention deleted, or whose bytes are
// damaged, is ErrGone.
func (c *Client) Read(ctx context.Context, topic string, partition int, offset int64) (Delivery, bool, error) {
	q := url.Values{"partition": {strconv.Itoa(partition)}, "offset": {strconv.FormatInt(offset, 10)}}
	r := request{method: http.MethodGet, path: topicPath(topic, "/consume"), query: q}
	status, body, err := c.do(ctx, r, http.StatusOK, http.StatusNoContent)
	if err != nil || status == http.StatusNoContent {
		return Delivery{}, false, err
	}
	var w wireMessage
	if err := json.Unmarshal(body, &w); err != nil {
		return Delivery{}, false, fmt.Errorf("narad client: read %s: answer: %w", topic, err)
	}
	d, err := w.delivery()
	return d, err == nil, err
}

// settle modes, as the extend parameter spells them.
const (
	modeAck    = "false"
	modeExtend = "true"
	modeNack   = "0"
)

// Ack settles a lease for good. ErrGone means the lease had ended: the message comes
// back, or an earlier ack of yours landed.
func (c *Client) Ack(ctx context.Context, topic, handle string) error {
	return c.settle(ctx, topic, handle, modeAck)
}

// Extend restarts a lease with a full visibility timeout; the handle stays valid.
func (c *Client) Extend(ctx context.Context, topic, handle string) error {
	return c.settle(ctx, topic, handle, modeExtend)
}

// Nack ends a lease: the message is handed out again at once.
func (c *Client) Nack(ctx context.Context, topic, handle string) error {
	return c.settle(ctx, topic, handle, modeNack)
}

func (c *Client) settle(ctx context.Context, topic, handle, mode string) error {
	q := url.Values{"receipt_handle": {handle}}
	if mode != modeAck {
		q.Set("extend", mode)
	}
	_, _, err := c.do(ctx, request{method: http.MethodPost, path: topicPath(topic, "/ack"), query: q}, http.StatusNoContent)
	return err
}

// AckBatch settles 1 to 100 leases in one request and returns one error per handle,
// in order: nil where the ack was applied. The second result is the request's own.
func (c *Client) AckBatch(ctx context.Context, topic string, handles []string) ([]error, error) {
	return c.settleBatch(ctx, topic, handles, modeAck)
}

// ExtendBatch is AckBatch for Extend.
func (c *Client) ExtendBatch(ctx context.Context, topic string, handles []string) ([]error, error) {
	return c.settleBatch(ctx, topic, handles, modeExtend)
}

// NackBatch is AckBatch for Nack.
func (c *Client) NackBatch(ctx context.Context, topic string, handles []string) ([]error, error) {
	return c.settleBatch(ctx, topic, handles, modeNack)
}

func (c *Client) settleBatch(ctx context.Context, topic string, handles []string, mode string) ([]error, error) {
	r := request{method: http.MethodPost, path: topicPath(topic, "/ack")}
	if mode != modeAck {
		r.query = url.Values{"extend": {mode}}
	}
	in := struct {
		Handles []string `json:"receipt_handles"`
	}{handles}
	var out struct {
		Results []struct {
			Status int
			Error  string
			Code   string
		}
	}
	if err := c.doJSON(ctx, r, in, &out, http.StatusOK); err != nil {
		return nil, err
	}
	if len(out.Results) != len(handles) {
		return nil, fmt.Errorf("narad client: ack %s: %d results for %d handles", topic, len(out.Results), len(handles))
	}
	errs := make([]error, len(handles))
	for i, r := range out.Results {
		if r.Status != http.StatusNoContent {
			errs[i] = &Error{Status: r.Status, Code: r.Code, Message: r.Error}
		}
	}
	return errs, nil
}
