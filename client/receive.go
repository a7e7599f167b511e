package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// ReceiveOptions narrow a Receive. The zero value takes one message, from any
// partition, without waiting.
type ReceiveOptions struct {
	Wait time.Duration // how long the server holds the request for a message
	Max  int           // messages to take at most, 1 to ReceiveMax; 0 counts as 1
	Pin  Pin           // the only partition to take from
}

// Receive leases up to Max messages; none within Wait is an empty result and no
// error. Each message must be settled with Ack, Nack or Extend before the topic's
// visibility timeout ends, or it is handed out again. A message that cannot be decoded
// is left out, and the error says so beside the others. An answer that is lost on the
// way leases its messages all the same: they come back after the visibility timeout.
func (c *Client) Receive(ctx context.Context, topic string, o ReceiveOptions) ([]Delivery, error) {
	q := url.Values{"max": {strconv.Itoa(max(o.Max, 1))}}
	if o.Wait > 0 {
		q.Set("wait", o.Wait.String())
	}
	if o.Pin.set() {
		q.Set("partition", strconv.Itoa(o.Pin.number()))
	}
	r := request{op: opReceive, method: http.MethodGet, path: topicPath(topic, "/consume"), query: q, want: http.StatusOK, orEmpty: true}
	if o.Wait > 0 {
		r.wait = o.Wait + waitMargin
	}
	rep, err := c.do(ctx, &r)
	if err != nil || rep.status == http.StatusNoContent {
		return nil, err
	}
	ds, bad, err := decodeMessages(rep.body, topic)
	if err != nil {
		return nil, fmt.Errorf("narad client: receive from %s: answer: %w", topic, err)
	}
	return ds, bad
}

// Read returns the message at an offset without leasing it; false means the offset
// is at or past the end. An offset that retention deleted is ErrOffsetGone, one whose
// bytes are damaged ErrUnreadable.
func (c *Client) Read(ctx context.Context, topic string, partition int, offset int64) (Delivery, bool, error) {
	q := url.Values{"partition": {strconv.Itoa(partition)}, "offset": {strconv.FormatInt(offset, 10)}}
	rep, err := c.do(ctx, &request{op: opRead, method: http.MethodGet, path: topicPath(topic, "/consume"), query: q, want: http.StatusOK, orEmpty: true})
	if err != nil || rep.status == http.StatusNoContent {
		return Delivery{}, false, err
	}
	d, err := decodeMessage(rep.body, topic)
	return d, err == nil, err
}
