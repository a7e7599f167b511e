package peer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// Caller carries a request to a node and its answer back: a *noderpc.Client.
type Caller interface {
	Call(ctx context.Context, addr string, op noderpc.Op, body []byte) (noderpc.Response, error)
}

// Options is what a Client is made of.
type Options struct {
	// Main carries everything but what Transfer carries: listings that may be long.
	Main, Transfer Caller
	// Level is the release to act as; the zero value is the newest.
	Level  model.ReleaseLevel
	Self   string // member id of this node
	Clock  clock.Clock
	Logger *slog.Logger
}

// Client asks other nodes. Every address is a peer's API address, host:port. Each call
// has the time budget of spec/cluster-and-network section 5.3, or what ctx leaves of it.
// A refusal is a *StatusError; see ErrUnreached for the rest. A Client starts no
// goroutine and is safe for concurrent use.
type Client struct {
	main, transfer Caller
	level          model.ReleaseLevel
	self           string
	clock          clock.Clock
	log            *slog.Logger
	older          older
	slots          slots
	buffers        sync.Pool // of *noderpc.Encoder
}

// NewClient makes a client.
func NewClient(o Options) *Client {
	return &Client{
		main: o.Main, transfer: o.Transfer, level: o.Level, self: o.Self, clock: o.Clock, log: o.Logger,
		older: older{clock: o.Clock, until: map[olderKey]time.Time{}},
		slots: slots{most: settleSlots(), owners: map[string]*owner{}},
	}
}

// bufferKeepMax is the capacity up to which a request's buffer is kept for the next.
const bufferKeepMax = 1 << 20

func (c *Client) encoder() *noderpc.Encoder {
	if e, ok := c.buffers.Get().(*noderpc.Encoder); ok {
		return e
	}
	return new(noderpc.Encoder)
}

func (c *Client) recycle(e *noderpc.Encoder) {
	if cap(*e) <= bufferKeepMax {
		*e = (*e)[:0]
		c.buffers.Put(e)
	}
}

// send is one request and its answer, whatever its status. Nothing leaves when the time
// is up: what went before was refused or never left either.
func (c *Client) send(ctx context.Context, addr string, op noderpc.Op, body []byte) (noderpc.Response, error) {
	if err := ctx.Err(); err != nil {
		return noderpc.Response{}, fmt.Errorf("%w: %s to %s: %w", ErrUnreached, op, addr, err)
	}
	via := c.main
	if op == noderpc.OpFanoutCursors {
		via = c.transfer
	}
	return via.Call(ctx, addr, op, body)
}

// call is send for an operation every release has, within a budget; a refusal is an error.
func (c *Client) call(ctx context.Context, addr string, op noderpc.Op, budget time.Duration, body []byte) (noderpc.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	return accepted(c.send(ctx, addr, op, body))
}

// accepted turns a refusal into its error.
func accepted(res noderpc.Response, err error) (noderpc.Response, error) {
	if err == nil && (res.Status < 200 || res.Status > 299) {
		return noderpc.Response{}, refusalOf(res)
	}
	return res, err
}

// ask is call for an operation answered with JSON, read into out.
func (c *Client) ask(ctx context.Context, addr string, op noderpc.Op, budget time.Duration, body []byte, out any) error {
	res, err := c.call(ctx, addr, op, budget, body)
	if err != nil {
		return err
	}
	return readJSON(op, addr, res, out)
}

func readJSON(op noderpc.Op, addr string, res noderpc.Response, out any) error {
	if len(res.Body) > jsonBytesMax {
		return fmt.Errorf("%s at %s: an answer of %d bytes, at most %d", op, addr, len(res.Body), jsonBytesMax)
	}
	if err := json.Unmarshal(res.Body, out); err != nil {
		return fmt.Errorf("%s at %s: answer: %w", op, addr, err)
	}
	return nil
}
