package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// request is one call: what to send, and how long it may take beyond the timeout.
type request struct {
	op           op
	method, path string
	query        url.Values
	body         []byte
	contentType  string
	wait         time.Duration
	want         int  // the status of a success
	orEmpty      bool // 204 is a success too
	limit        int  // attempts; 0 = what the options say
}

// reply is the answer to a request.
type reply struct {
	status   int
	body     []byte
	attempts int
	unsure   bool // an earlier attempt may have taken effect
}

// do sends r to one node after the other until one serves it, at most as often as the
// options allow, and only while repeating is safe.
func (c *Client) do(ctx context.Context, r *request) (reply, error) {
	var (
		last   *node
		unsure bool
		limit  = c.opt.retries
	)
	if r.limit > 0 {
		limit = r.limit
	}
	for attempt := 1; ; attempt++ {
		if c.closed.Load() {
			return reply{}, ErrClosed
		}
		n := c.nodes.pick(time.Now(), last)
		last = n
		rep, err := c.attempt(ctx, n, r)
		if err == nil {
			rep.attempts, rep.unsure = attempt, unsure
			return rep, nil
		}
		if ctx.Err() != nil || attempt >= limit || !safeToRepeat(err, r.op, c.opt.cautious) {
			return reply{attempts: attempt, unsure: unsure}, wrap(err, r.op, attempt, unsure)
		}
		unsure = unsure || mayHaveApplied(err, r.op)
		d, ok := c.delay(err, r.op, n, attempt)
		if !ok || !pause(ctx, d) {
			return reply{attempts: attempt, unsure: unsure}, wrap(err, r.op, attempt, unsure)
		}
		c.log.Debug("trying again", "method", r.method, "path", r.path, "attempt", attempt+1, "err", err)
	}
}

// attempt sends r to n once and notes what that says about n.
func (c *Client) attempt(ctx context.Context, n *node, r *request) (reply, error) {
	tctx, cancel := context.WithTimeout(ctx, c.opt.timeout+r.wait)
	defer cancel()
	rep, err := c.send(tctx, n.base, r)
	var refused *Error
	switch {
	case err == nil:
		c.nodes.ok(n)
	case errors.As(err, &refused):
		c.judge(n, refused, r.op)
	case ctx.Err() == nil, r.wait == 0 && errors.Is(ctx.Err(), context.DeadlineExceeded):
		c.nodes.failed(n, time.Now(), err)
	}
	return rep, err
}

// judge notes what a refusal says about the node it came from.
func (c *Client) judge(n *node, e *Error, o op) {
	about := aboutNode(e, o)
	if e.RetryAfter > 0 && about {
		c.nodes.pause(n, time.Now().Add(min(e.RetryAfter, retryAfterMax)))
	}
	switch {
	case e.Status == http.StatusServiceUnavailable && about, e.Status == http.StatusInternalServerError, e.Status == http.StatusGatewayTimeout:
		c.nodes.failed(n, time.Now(), e)
	case e.Status < 500 && e.Status != http.StatusTooManyRequests:
		c.nodes.ok(n)
	}
}

// delay is how long to wait before the next attempt: a random share of a pause that
// doubles, or what the server asked for. That does not matter if it spoke of itself
// and another node is there. False = longer than any call waits.
func (c *Client) delay(err error, o op, n *node, attempt int) (time.Duration, bool) {
	d := c.backoff(attempt)
	var e *Error
	if !errors.As(err, &e) || e.RetryAfter == 0 {
		return d, true
	}
	if aboutNode(e, o) && c.nodes.other(n, time.Now()) {
		return d, true
	}
	return max(d, e.RetryAfter), e.RetryAfter <= retryAfterMax
}

// backoff is the pause after the attempt-th failure in a row: full jitter.
func (c *Client) backoff(attempt int) time.Duration {
	limit := c.opt.backoffMax
	if shift := attempt - 1; shift < 32 && c.opt.backoff<<shift < limit {
		limit = c.opt.backoff << shift
	}
	return rand.N(limit) + 1
}

// pause waits d; false means the context ended first, or will before d is over.
func pause(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// send makes one attempt. Its error is an *Error or a *ConnError, unless the request
// cannot be built.
func (c *Client) send(ctx context.Context, base string, r *request) (reply, error) {
	target := base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return reply{}, fmt.Errorf("narad client: %w", err)
	}
	req.Header["X-Narad-Client"] = []string{c.opt.name}
	if r.contentType != "" {
		req.Header["Content-Type"] = []string{r.contentType}
	}
	if c.auth != "" {
		req.Header["Authorization"] = []string{c.auth}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error // its text repeats the URL, which may hold a message key
		if errors.As(err, &u) {
			err = u.Err
		}
		return reply{}, &ConnError{Node: base, Sent: !unsent(err), Err: err}
	}
	defer resp.Body.Close()
	if resp.StatusCode != r.want && (!r.orEmpty || resp.StatusCode != http.StatusNoContent) {
		return reply{}, refusal(resp, base)
	}
	b, err := readBody(resp)
	if err != nil {
		return reply{}, &ConnError{Node: base, Sent: true, Err: fmt.Errorf("read answer: %w", err)}
	}
	return reply{status: resp.StatusCode, body: b}, nil
}

// unsent reports whether err came before a connection stood.
func unsent(err error) bool {
	var e *net.OpError
	return errors.As(err, &e) && e.Op == "dial"
}

func readBody(resp *http.Response) ([]byte, error) {
	n := resp.ContentLength
	switch {
	case n == 0 || resp.StatusCode == http.StatusNoContent:
		return nil, nil
	case n > responseBytesMax:
		return nil, fmt.Errorf("%d bytes, at most %d are read", n, responseBytesMax)
	case n > 0:
		b := make([]byte, n)
		_, err := io.ReadFull(resp.Body, b)
		return b, err
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, responseBytesMax+1))
	if err == nil && len(b) > responseBytesMax {
		err = fmt.Errorf("more than %d bytes", responseBytesMax)
	}
	return b, err
}

func refusal(resp *http.Response, base string) *Error {
	e := &Error{Status: resp.StatusCode, Node: base, RetryAfter: retryAfter(resp.Header.Get("Retry-After"))}
	b, err := io.ReadAll(io.LimitReader(resp.Body, errorBytesMax))
	if err != nil {
		return e // the status says enough
	}
	var j struct{ Error, Code string }
	if json.Unmarshal(b, &j) == nil && j.Error != "" {
		e.Message, e.Code = j.Error, j.Code
	} else {
		e.Message = strings.TrimSpace(string(b))
	}
	return e
}

// retryAfter reads the header's value: seconds, or a date as balancers send it.
func retryAfter(v string) time.Duration {
	if v == "" {
		return 0
	}
	if s, err := strconv.ParseInt(v, 10, 32); err == nil {
		return max(0, time.Duration(s)*time.Second)
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

const jsonType = "application/json"

// doJSON sends in (nil = no body) as JSON and decodes the answer into out (nil =
// ignore it).
func (c *Client) doJSON(ctx context.Context, r *request, in, out any) error {
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("narad client: %s %s: %w", r.method, r.path, err)
		}
		r.body, r.contentType = b, jsonType
	}
	rep, err := c.do(ctx, r)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(rep.body, out); err != nil {
		return fmt.Errorf("narad client: %s %s: answer: %w", r.method, r.path, err)
	}
	return nil
}

func topicPath(topic, rest string) string { return "/v1/topics/" + url.PathEscape(topic) + rest }
