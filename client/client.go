// Package client talks to Narad nodes over their HTTP API: produce, lease, settle,
// replay, and the life of topics. A Client is safe for concurrent use; make one per
// process. It retries nothing: an error says whether the outcome is known (see
// Error and Uncertain), and the caller decides.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Limits of the client side.
const (
	// responseBytesMax bounds an answer read into memory: the server's 8 MiB of
	// encoded records, with room for the envelope.
	responseBytesMax = 9 << 20
	// errorBytesMax bounds the body read of a refusal.
	errorBytesMax = 64 << 10
	// waitMargin is what a long poll gets beyond its own wait.
	waitMargin = 5 * time.Second
)

// Defaults of the options.
const (
	DefaultTimeout         = 10 * time.Second // of one request; a long poll adds its wait
	DefaultIdleConnections = 64               // kept alive per node
)

// Client sends requests to one Narad node or to a balancer in front of several.
type Client struct {
	base    string // scheme://host[:port], no trailing slash
	name    string // X-Narad-Client of every request
	timeout time.Duration
	http    *http.Client
}

// Option changes a Client being made.
type Option func(*Client)

// WithTimeout bounds one request, its answer included; a long poll gets its wait on
// top.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// WithName sets the X-Narad-Client header, by which the server tells programs from
// browsers.
func WithName(name string) Option { return func(c *Client) { c.name = name } }

// WithIdleConnections sets how many connections are kept alive; at least the number
// of goroutines that use the client at once avoids reconnecting.
func WithIdleConnections(n int) Option {
	return func(c *Client) {
		t := c.http.Transport.(*http.Transport)
		t.MaxIdleConns, t.MaxIdleConnsPerHost = n, n
	}
}

// New makes a client for a base URL such as http://127.0.0.1:7942; the scheme
// defaults to http. It opens no connection.
func New(baseURL string, opts ...Option) (*Client, error) {
	if !strings.Contains(baseURL, "://") {
		baseURL = "http://" + baseURL
	}
	u, err := url.Parse(baseURL)
	if err != nil {
		return nil, fmt.Errorf("narad client: base URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("narad client: base URL %q: want http(s)://host[:port][/path]", u.Redacted())
	}
	c := &Client{
		base: strings.TrimRight(u.String(), "/"), name: "narad-go", timeout: DefaultTimeout,
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
				MaxIdleConns:        DefaultIdleConnections,
				MaxIdleConnsPerHost: DefaultIdleConnections,
				IdleConnTimeout:     time.Minute,
				DisableCompression:  true,
				Proxy:               http.ProxyFromEnvironment,
				TLSHandshakeTimeout: 5 * time.Second,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	for _, o := range opts {
		o(c)
	}
	return c, nil
}

// Close drops idle connections. Requests under way go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is a refusal by the server.
type Error struct {
	Status  int    // HTTP status
	Code    string // stable machine name, "" when the answer had none
	Message string
}

func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("narad: %d %s", e.Status, http.StatusText(e.Status))
	}
	return fmt.Sprintf("narad: %d: %s", e.Status, e.Message)
}

// Sentinels an Error matches with errors.Is, by status.
var (
	ErrBadRequest  = errors.New("narad: bad request")             // 400, 405, 415, 431
	ErrNotFound    = errors.New("narad: not found")               // 404
	ErrConflict    = errors.New("narad: conflict")                // 409
	ErrGone        = errors.New("narad: lease or offset is gone") // 410
	ErrTooLarge    = errors.New("narad: too large")               // 413
	ErrThrottled   = errors.New("narad: throttled")               // 429
	ErrUnavailable = errors.New("narad: temporarily unavailable") // 421, 503
	ErrServer      = errors.New("narad: server failed")           // other 5xx
)

// Is matches the sentinel of the error's status.
func (e *Error) Is(target error) bool {
	switch e.Status {
	case 400, 405, 415, 431:
		return target == ErrBadRequest
	case 404:
		return target == ErrNotFound
	case 409:
		return target == ErrConflict
	case 410:
		return target == ErrGone
	case 413:
		return target == ErrTooLarge
	case 429:
		return target == ErrThrottled
	case 421, 503:
		return target == ErrUnavailable
	}
	return e.Status >= 500 && target == ErrServer
}

// Uncertain reports whether the request behind err may have taken effect although
// it failed: no answer came, or the server failed while working on it. A refusal,
// 503 included, is certain: nothing was stored or settled.
func Uncertain(err error) bool {
	if err == nil {
		return false
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Status >= 500 && e.Status != http.StatusServiceUnavailable
	}
	return true
}

// request is one call: what to send, and how long it may take beyond the timeout.
type request struct {
	method, path string
	query        url.Values
	body         []byte
	contentType  string
	wait         time.Duration
}

// do sends r and returns the body of an answer with one of the wanted statuses.
func (c *Client) do(ctx context.Context, r request, want ...int) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout+r.wait)
	defer cancel()
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var rd io.Reader
	if r.body != nil {
		rd = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, rd)
	if err != nil {
		return 0, nil, fmt.Errorf("narad client: %w", err)
	}
	req.Header.Set("X-Narad-Client", c.name)
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("narad client: %s %s: %w", r.method, r.path, err)
	}
	defer resp.Body.Close()
	for _, w := range want {
		if resp.StatusCode == w {
			body, err = readBody(resp, responseBytesMax)
			if err != nil {
				return 0, nil, fmt.Errorf("narad client: %s %s: read answer: %w", r.method, r.path, err)
			}
			return resp.StatusCode, body, nil
		}
	}
	return 0, nil, refusal(resp)
}

func readBody(resp *http.Response, limit int64) ([]byte, error) {
	if resp.ContentLength == 0 || resp.StatusCode == http.StatusNoContent {
		return nil, nil
	}
	if n := resp.ContentLength; n > 0 && n <= limit {
		b := make([]byte, n)
		_, err := io.ReadFull(resp.Body, b)
		return b, err
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}
	return b, err
}

func refusal(resp *http.Response) error {
	e := &Error{Status: resp.StatusCode}
	b, err := io.ReadAll(io.LimitReader(resp.Body, errorBytesMax))
	if err != nil {
		return e
	}
	var j struct{ Error, Code string }
	if json.Unmarshal(b, &j) == nil && j.Error != "" {
		e.Message, e.Code = j.Error, j.Code
	} else {
		e.Message = strings.TrimSpace(string(b))
	}
	return e
}

const jsonType = "application/json"

// doJSON sends in (nil = no body) as JSON and decodes the answer into out (nil =
// ignore it).
func (c *Client) doJSON(ctx context.Context, r request, in, out any, want int) error {
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("narad client: %w", err)
		}
		r.body, r.contentType = b, jsonType
	}
	_, body, err := c.do(ctx, r, want)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("narad client: %s %s: answer: %w", r.method, r.path, err)
	}
	return nil
}

func topicPath(topic, rest string) string { return "/v1/topics/" + url.PathEscape(topic) + rest }
