package client

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"log/slog"
	"time"
)

// Defaults of the options.
const (
	DefaultTimeout         = 10 * time.Second      // of one attempt; a long poll adds its wait
	DefaultRetries         = 4                     // attempts of one call, the first included
	DefaultBackoff         = 50 * time.Millisecond // mean of the first pause doubles from here
	DefaultBackoffMax      = 5 * time.Second       // longest pause between attempts
	DefaultBreakerFailures = 5                     // in a row, until a node is left out
	DefaultBreakerOpen     = 2 * time.Second       // how long it is left out
	DefaultIdleConnections = 64                    // kept alive per node
)

// Bounds of the client side.
const (
	// responseBytesMax bounds an answer read into memory: the server's 8 MiB of
	// encoded records, with room for the envelope.
	responseBytesMax = 9 << 20
	// errorBytesMax bounds the body read of a refusal.
	errorBytesMax = 64 << 10
	// waitMargin is what a long poll gets beyond its own wait.
	waitMargin = 5 * time.Second
	// writeBufferBytes is the buffer of a connection: a batch of 100 messages of 1 KiB
	// goes out with one system call.
	writeBufferBytes = 128 << 10
	// dialTimeout bounds connecting to a node, and the TLS handshake after it.
	dialTimeout = 5 * time.Second
	// retryAfterMax is the longest Retry-After that is waited for; a node that wants
	// more gets no second attempt in the same call.
	retryAfterMax = 30 * time.Second
)

// options are what New can be told.
type options struct {
	name            string
	user, password  string
	timeout         time.Duration
	retries         int
	backoff         time.Duration
	backoffMax      time.Duration
	breakAfter      int
	breakFor        time.Duration
	idleConnections int
	cautious        bool
	tls             *tls.Config
	log             *slog.Logger
}

func defaults() options {
	return options{
		name: "narad-go", timeout: DefaultTimeout, retries: DefaultRetries,
		backoff: DefaultBackoff, backoffMax: DefaultBackoffMax,
		breakAfter: DefaultBreakerFailures, breakFor: DefaultBreakerOpen,
		idleConnections: DefaultIdleConnections, log: slog.New(slog.DiscardHandler),
	}
}

func (o *options) validate() error {
	switch {
	case o.timeout <= 0:
		return fmt.Errorf("narad client: timeout %v: want more than 0", o.timeout)
	case o.retries < 1:
		return fmt.Errorf("narad client: %d attempts: want 1 or more", o.retries)
	case o.backoff <= 0 || o.backoffMax < o.backoff:
		return fmt.Errorf("narad client: backoff %v to %v: want 0 < first <= longest", o.backoff, o.backoffMax)
	case o.breakAfter < 1 || o.breakFor <= 0:
		return fmt.Errorf("narad client: breaker after %d failures for %v: want 1 or more, and more than 0", o.breakAfter, o.breakFor)
	case o.idleConnections < 1:
		return fmt.Errorf("narad client: %d idle connections: want 1 or more", o.idleConnections)
	case o.name == "":
		return fmt.Errorf("narad client: empty name: batch consumes need one")
	}
	return nil
}

// Option changes a Client being made.
type Option func(*options)

// WithTimeout bounds one attempt of a request, its answer included; a long poll gets
// its wait on top. A call as a whole is bounded by its context.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithRetries sets how often a call is tried, the first time included; 1 = never
// again.
func WithRetries(attempts int) Option { return func(o *options) { o.retries = attempts } }

// WithBackoff sets the pause between attempts: a random share of first, which doubles
// up to longest. A Retry-After of the server lengthens it.
func WithBackoff(first, longest time.Duration) Option {
	return func(o *options) { o.backoff, o.backoffMax = first, longest }
}

// WithBreaker sets how many failures in a row take a node out, and for how long; then
// one request tries it.
func WithBreaker(failures int, open time.Duration) Option {
	return func(o *options) { o.breakAfter, o.breakFor = failures, open }
}

// WithCautiousRetries stops the client from repeating a produce whose outcome is
// unknown: it returns an error that is Uncertain instead of storing, perhaps, the
// message twice. What a node refused without storing it is repeated all the same.
func WithCautiousRetries() Option { return func(o *options) { o.cautious = true } }

// WithBasicAuth sends HTTP Basic credentials with every request. Over plain HTTP
// anybody on the way can read them.
func WithBasicAuth(user, password string) Option {
	return func(o *options) { o.user, o.password = user, password }
}

// WithTLS sets how https base URLs are verified and which certificate is shown.
func WithTLS(cfg *tls.Config) Option { return func(o *options) { o.tls = cfg } }

// WithName sets the X-Narad-Client header, by which the server tells programs from
// browsers, and its operators tell one program from another.
func WithName(name string) Option { return func(o *options) { o.name = name } }

// WithIdleConnections sets how many connections are kept alive per node; at least the
// number of goroutines that use the client at once avoids reconnecting.
func WithIdleConnections(n int) Option { return func(o *options) { o.idleConnections = n } }

// WithLogger has the client say what it does on its own: nodes left out and taken
// back, attempts repeated, leases lost, handlers that panicked. The default is
// silence.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

func basicAuth(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}
