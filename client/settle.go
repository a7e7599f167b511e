package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// mode is how the extend parameter spells a settlement.
type mode string

const (
	modeAck    mode = "false"
	modeExtend mode = "true"
	modeNack   mode = "0"
)

// landed reports whether a refused settlement shows that an earlier attempt, whose
// answer was lost, had been applied: an ack or a nack ends the lease, an extend does
// not (spec/consume section 16).
func (m mode) landed(err error, unsure bool) bool {
	return unsure && m != modeExtend && errors.Is(err, ErrLeaseLost)
}

// Ack settles a lease for good. ErrLeaseLost means it had ended before: the message
// comes back.
func (c *Client) Ack(ctx context.Context, topic, handle string) error {
	return c.settle(ctx, topic, handle, modeAck)
}

// Extend restarts a lease with a full visibility timeout; the handle stays valid.
// After ErrLeaseLost stop the work: somebody else may have the message.
func (c *Client) Extend(ctx context.Context, topic, handle string) error {
	return c.settle(ctx, topic, handle, modeExtend)
}

// Nack ends a lease: the message is handed out again at once.
func (c *Client) Nack(ctx context.Context, topic, handle string) error {
	return c.settle(ctx, topic, handle, modeNack)
}

func (c *Client) settle(ctx context.Context, topic, handle string, m mode) error {
	if handle == "" {
		return ErrNoLease
	}
	q := url.Values{"receipt_handle": {handle}}
	if m != modeAck {
		q.Set("extend", string(m))
	}
	rep, err := c.do(ctx, &request{op: opSettle, method: http.MethodPost, path: topicPath(topic, "/ack"), query: q, want: http.StatusNoContent})
	if m.landed(err, rep.unsure) {
		return nil
	}
	return err
}

// AckBatch settles 1 to ReceiveMax leases in one request, and repeats those that
// their owner could not take. It returns one error per handle, in order: nil where
// the ack was applied. The second result says that the request as a whole failed.
func (c *Client) AckBatch(ctx context.Context, topic string, handles []string) ([]error, error) {
	return c.settleBatch(ctx, topic, handles, modeAck, c.opt.retries)
}

// ExtendBatch is AckBatch for Extend.
func (c *Client) ExtendBatch(ctx context.Context, topic string, handles []string) ([]error, error) {
	return c.settleBatch(ctx, topic, handles, modeExtend, c.opt.retries)
}

// NackBatch is AckBatch for Nack.
func (c *Client) NackBatch(ctx context.Context, topic string, handles []string) ([]error, error) {
	return c.settleBatch(ctx, topic, handles, modeNack, c.opt.retries)
}

// settleBatch sends one batch, and what its owners could not take again until limit
// attempts were made. A request that fails as a whole is repeated as any other.
func (c *Client) settleBatch(ctx context.Context, topic string, handles []string, m mode, limit int) ([]error, error) {
	var (
		out    = make([]error, len(handles))
		unsure = make([]bool, len(handles))
		left   = make([]int, len(handles)) // which handles are still to be settled
		now    = handles
	)
	for i := range left {
		left[i] = i
	}
	for attempt := 0; ; {
		results, rep, err := c.settleOnce(ctx, topic, now, m, c.opt.retries-attempt)
		if err != nil && attempt == 0 {
			return nil, err
		}
		attempt += rep.attempts
		again := left[:0]
		for k, i := range left {
			e := err
			if err == nil {
				e = results[k]
			}
			unsure[i] = unsure[i] || rep.unsure
			out[i] = wrap(e, opSettle, attempt, unsure[i])
			switch {
			case m.landed(e, unsure[i]):
				out[i] = nil
			case e != nil && transient(e):
				unsure[i] = unsure[i] || mayHaveApplied(e, opSettle)
				again = append(again, i)
			}
		}
		if left = again; len(left) == 0 || err != nil || attempt >= limit || !pause(ctx, c.backoff(attempt)) {
			return out, nil
		}
		now = make([]string, len(left))
		for k, i := range left {
			now[k] = handles[i]
		}
	}
}

// settleOnce sends one batch, at most limit times, and returns the refusal of each
// handle.
func (c *Client) settleOnce(ctx context.Context, topic string, handles []string, m mode, limit int) ([]error, reply, error) {
	r := request{op: opSettle, method: http.MethodPost, path: topicPath(topic, "/ack"), body: encodeHandles(handles),
		contentType: jsonType, want: http.StatusOK, limit: limit}
	if m != modeAck {
		r.query = url.Values{"extend": {string(m)}}
	}
	rep, err := c.do(ctx, &r)
	if err != nil {
		return nil, rep, err
	}
	results, err := decodeResults(rep.body)
	if err != nil {
		return nil, rep, fmt.Errorf("narad client: settle in %s: answer: %w", topic, err)
	}
	if len(results) != len(handles) {
		return nil, rep, fmt.Errorf("narad client: settle in %s: %d results for %d handles", topic, len(results), len(handles))
	}
	return results, rep, nil
}
