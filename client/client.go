// Package client is the Go client of Narad: a durable work queue over HTTP.
//
// A Client speaks to one cluster through any number of base URLs. It spreads
// requests over them, leaves out nodes that keep failing, and repeats what is safe to
// repeat (see Retryable, Uncertain and WithCautiousRetries). It is safe for
// concurrent use; make one per process.
//
// Producing: Produce and ProduceBatch send one request; a Producer gathers messages
// into batches in the background. Consuming: Consume runs a pool of workers over a
// topic and settles what they return; Receive, Ack, Extend and Nack are its parts.
// Replay reads what is stored again, without leases.
//
// Delivery is at least once: a handler must do no harm when it meets a message twice.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Client sends requests to the nodes of one cluster.
type Client struct {
	nodes *nodes
	http  *http.Client
	opt   options
	auth  string // Authorization header, "" = none
	log   *slog.Logger

	closed atomic.Bool
}

// New makes a client for a list of base URLs separated by commas, such as
// "http://10.0.0.1:7942,http://10.0.0.2:7942"; the scheme defaults to http. It opens
// no connection. An empty list is ErrNoNodes.
func New(addrs string, opts ...Option) (*Client, error) {
	o := defaults()
	for _, set := range opts {
		set(&o)
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	var bases []string
	for a := range strings.SplitSeq(addrs, ",") {
		if a = strings.TrimSpace(a); a == "" {
			continue
		}
		base, err := baseURL(a)
		if err != nil {
			return nil, err
		}
		bases = append(bases, base)
	}
	if len(bases) == 0 {
		return nil, ErrNoNodes
	}
	c := &Client{
		nodes: newNodes(bases, o.breakAfter, o.breakFor, o.log), opt: o, log: o.log,
		http: &http.Client{
			Transport:     newTransport(o, len(bases)),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if o.user != "" || o.password != "" {
		c.auth = basicAuth(o.user, o.password)
	}
	return c, nil
}

func newTransport(o options, nodes int) *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:     o.tls,
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConns:        o.idleConnections * nodes,
		MaxIdleConnsPerHost: o.idleConnections,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
		WriteBufferSize:     writeBufferBytes,
		Proxy:               http.ProxyFromEnvironment,
	}
}

// baseURL checks an address and brings it into the form scheme://host[:port][/path].
func baseURL(addr string) (string, error) {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil {
		var bad *url.Error // its text quotes the address, which may hold a password
		if errors.As(err, &bad) {
			err = bad.Err
		}
		return "", fmt.Errorf("narad client: base URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", fmt.Errorf("narad client: base URL %q: want http(s)://host[:port][/path]; credentials go into WithBasicAuth", u.Redacted())
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// Close drops the idle connections; later calls fail with ErrClosed. Requests under
// way go on. Close a Producer, and end the context of a Consume, before.
func (c *Client) Close() {
	c.closed.Store(true)
	c.http.CloseIdleConnections()
}

// Nodes are the base URLs of the client, in the order given.
func (c *Client) Nodes() []string { return c.nodes.bases() }

// Ping asks one node, by its base URL, whether it would take requests now; the error
// is its reason. It asks once, and what it learns does not change how the client
// routes.
func (c *Client) Ping(ctx context.Context, node string) error {
	base, err := baseURL(node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.timeout)
	defer cancel()
	_, err = c.send(ctx, base, &request{method: http.MethodGet, path: "/readyz", want: http.StatusOK})
	return wrap(err, opRead, 1, false)
}
