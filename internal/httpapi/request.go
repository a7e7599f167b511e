package httpapi

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/narad-mq/narad/internal/access"
)

// Header looks a request header up by its canonical name; "" when absent.
// http.Header satisfies it.
type Header interface {
	Get(name string) string
}

// Request is one call as an HTTP front presents it. The core keeps nothing of it
// after Serve has returned, except Identity.
type Request struct {
	Ctx           context.Context // ends when the client leaves
	Method        string
	Path          string // as sent, percent-encoded, without the query
	Query         string // as sent, without the question mark
	Header        Header
	Body          io.Reader // nil when ContentLength is 0
	ContentLength int64     // -1 = not declared
	Identity      string    // the peer's IP address: whom limits count against with security off
}

// Response takes the answer of one Request.
type Response interface {
	// SetHeader sets a header of the answer, before Send.
	SetHeader(name, value string)
	// Send puts the whole answer on the wire, once: status, Content-Type (if not
	// empty), a Content-Length that is len(body), and the body, which it does not
	// keep. The answer to a HEAD has the same headers and no body. An error means
	// that the client cannot have received all of it.
	Send(status int, contentType string, body []byte) error
}

const (
	typeJSON = "application/json"
	typeText = "text/plain; charset=utf-8"
)

// call is the state of one request on its way through the core. Calls are
// pooled: nothing may hold one after Serve has returned.
type call struct {
	req      *Request
	resp     Response
	stopping *atomic.Bool // of the API
	start    time.Time
	caller   *access.Caller // nil only where no credentials are needed
	identity string         // whom limits count against
	route    route
	topic    string // from the path, percent-decoded
	user     string // likewise; on the cluster routes the member
	body     []byte // of a request whose body is JSON
	onBehalf bool   // a change that another node sent here for a client
	allow    string // of a 405
	status   int    // of the answer sent or recorded; 0 = none yet
	sent     int    // body bytes
}

// send answers with a body. A failed write is returned and the status is kept:
// the answer was decided, whether or not it arrived. A node that stops ends the
// connection with the answer.
func (c *call) send(status int, contentType string, body []byte) error {
	c.status = status
	if c.stopping.Load() {
		c.resp.SetHeader("Connection", "close")
	}
	if err := c.resp.Send(status, contentType, body); err != nil {
		return err
	}
	if c.req.Method != "HEAD" {
		c.sent = len(body)
	}
	return nil
}

// empty answers without a body. Its write error has no consequence.
func (c *call) empty(status int) { _ = c.send(status, "", nil) }
