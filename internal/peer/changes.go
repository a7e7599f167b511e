package peer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// Change is a metadata write on its way to the leader, as its client sent it.
type Change struct {
	// Topic is the topic, the parent of a link, or the user; "" where the JSON names it.
	Topic  string
	Child  string // of a detach
	Caller string // username of who asks, "" with security off; the leader checks its rights
	JSON   []byte // nil where the operation has none
}

// Answer is what the leader answers the client, passed on as it is.
type Answer struct {
	Status      int
	ContentType string
	Body        []byte
	Header      []noderpc.Header
}

// Changes carries metadata writes out on the leader. Elsewhere it answers 421.
type Changes interface {
	Change(ctx context.Context, op noderpc.Op, ch Change) Answer
}

// fields are the parts of a Change an operation has, in the order topic, child, JSON,
// caller, name.
type fields uint8

const (
	hasTopic fields = 1 << iota
	hasChild
	hasJSON
	hasName // the topic, optional and last: the user's name, where the JSON does not tell it
)

// changeOps are the operations of metadata writes.
var changeOps = [...]struct {
	op  noderpc.Op
	has fields
}{
	{noderpc.OpCreateTopic, hasJSON},
	{noderpc.OpAlterTopic, hasTopic | hasJSON},
	{noderpc.OpDeleteTopic, hasTopic},
	{noderpc.OpCreateUser, hasJSON | hasName},
	{noderpc.OpUpdateUser, hasJSON | hasName},
	{noderpc.OpDeleteUser, hasJSON | hasName},
	{noderpc.OpAttachChild, hasTopic | hasJSON},
	{noderpc.OpDetachChild, hasTopic | hasChild},
}

func fieldsOf(op noderpc.Op) (fields, error) {
	for _, c := range changeOps {
		if c.op == op {
			return c.has, nil
		}
	}
	return 0, fmt.Errorf("%w: %s is no metadata change", model.ErrInvalid, op)
}

// encode appends the change. A field the operation does not carry must be empty.
func (ch *Change) encode(e *noderpc.Encoder, has fields) error {
	switch {
	case has&(hasTopic|hasName) == 0 && ch.Topic != "", has&hasChild == 0 && ch.Child != "", has&hasJSON == 0 && len(ch.JSON) > 0:
		return fmt.Errorf("%w: a change with topic %q, child %q and %d bytes of JSON", model.ErrInvalid, ch.Topic, ch.Child, len(ch.JSON))
	}
	if has&hasTopic != 0 {
		e.AppendStr(ch.Topic)
	}
	if has&hasChild != 0 {
		e.AppendStr(ch.Child)
	}
	if has&hasJSON != 0 {
		e.AppendBytes(ch.JSON)
	}
	e.AppendStr(ch.Caller)
	if has&hasName != 0 && ch.Topic != "" {
		e.AppendStr(ch.Topic)
	}
	return nil
}

// decodeChange reads a change; its JSON belongs to the request's body.
func decodeChange(d *noderpc.Decoder, has fields) (ch Change, err error) {
	if has&hasTopic != 0 {
		ch.Topic = d.Str()
	}
	if has&hasChild != 0 {
		ch.Child = d.Str()
	}
	if has&hasJSON != 0 {
		ch.JSON = d.Bytes()
	}
	ch.Caller = d.Str()
	if has&hasName != 0 && d.More() {
		ch.Topic = d.Str()
	}
	if err := d.Done(); err != nil {
		return ch, err
	}
	if len(ch.JSON) > changeBytesMax {
		return ch, fmt.Errorf("%w: a change of %d bytes, at most %d", model.ErrInvalid, len(ch.JSON), changeBytesMax)
	}
	return ch, errors.Join(bounded("topic", ch.Topic, callerBytesMax), bounded("child", ch.Child, callerBytesMax),
		bounded("caller", ch.Caller, callerBytesMax))
}

// Change has the leader carry out a metadata write: ops 4, 5, 6, 12, 13, 14, 15 and 16. It
// follows one 421 to the leader it names; whatever comes of that is the answer. An error
// means that there was none: with ErrUnreached nothing was delivered and the write may be
// sent again, after any other its outcome is unknown.
func (c *Client) Change(ctx context.Context, addr string, op noderpc.Op, ch Change) (Answer, error) {
	has, err := fieldsOf(op)
	if err != nil {
		return Answer{}, err
	}
	if len(ch.JSON) > changeBytesMax {
		return Answer{}, fmt.Errorf("%w: a change of %d bytes, at most %d", model.ErrInvalid, len(ch.JSON), changeBytesMax)
	}
	var e noderpc.Encoder
	if err := ch.encode(&e, has); err != nil {
		return Answer{}, err
	}
	budget := changeBudget
	if op == noderpc.OpCreateTopic {
		budget = createBudget
	}
	res, err := c.atLeader(ctx, addr, op, budget, e)
	if err != nil {
		return Answer{}, err
	}
	return Answer{Status: res.Status, ContentType: res.ContentType, Body: res.Body, Header: res.Header}, nil
}

// atLeader sends a request, and once more to the leader that a 421 names.
func (c *Client) atLeader(ctx context.Context, addr string, op noderpc.Op, budget time.Duration, body []byte) (noderpc.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	res, err := c.send(ctx, addr, op, body)
	if err != nil || res.Status != http.StatusMisdirectedRequest {
		return res, err
	}
	hint := refusalOf(res).LeaderAddr
	if hint == addr || address("leader", hint) != nil {
		return res, nil
	}
	return c.send(ctx, hint, op, body)
}

// ServeChanges serves the operations of Client.Change.
func ServeChanges(s Server, _ model.ReleaseLevel, c Changes, hint Hint) {
	for _, o := range changeOps {
		serve(s, o.op, nil, hint, func(ctx context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
			ch, err := decodeChange(d, o.has)
			if err != nil {
				return noderpc.Response{}, err
			}
			a := c.Change(ctx, o.op, ch)
			res := noderpc.Response{Status: a.Status, ContentType: a.ContentType, Body: a.Body, Header: a.Header}
			if res.Status == http.StatusMisdirectedRequest && refusalOf(res).LeaderAddr == "" {
				return noderpc.Response{}, model.ErrNotLeader // with the hint
			}
			return res, nil
		})
	}
}

// Forgetter removes a server that never became a member from the Raft configuration, on
// the leader; see membership.Membership.
type Forgetter interface {
	Forget(ctx context.Context, id, caller string) (voter bool, err error)
}

// forgetRequest is op 34.
type forgetRequest struct{ id, caller string }

func (r *forgetRequest) encode(e *noderpc.Encoder) {
	e.AppendStr(r.id)
	e.AppendStr(r.caller)
}

func decodeForget(d *noderpc.Decoder) (r forgetRequest, err error) {
	r.id, r.caller = d.Str(), d.Str()
	if err := d.Done(); err != nil {
		return r, err
	}
	return r, errors.Join(memberID(r.id), bounded("caller", r.caller, callerBytesMax))
}

// forgetAnswer is the JSON of op 34.
type forgetAnswer struct {
	ID    string `json:"id"`
	Voter bool   `json:"voter"`
}

// textCannotForget is F-8 of spec/http-api section 12.4.
const textCannotForget = "the leader runs a release that cannot forget a Raft server; upgrade it first"

// Forget has the leader forget a Raft server, on behalf of caller, and reports whether it
// had a vote. It follows one 421. A leader of an older release is a *StatusError with
// status 501.
func (c *Client) Forget(ctx context.Context, addr, id, caller string) (voter bool, err error) {
	var e noderpc.Encoder
	(&forgetRequest{id, caller}).encode(&e)
	res, err := c.atLeader(ctx, addr, noderpc.OpForgetServer, changeBudget, e)
	if err == nil && unsupported(res) {
		return false, &StatusError{Status: http.StatusNotImplemented, Code: "not_implemented", Text: textCannotForget}
	}
	if res, err = accepted(res, err); err != nil {
		return false, err
	}
	var a forgetAnswer
	if err := readJSON(noderpc.OpForgetServer, addr, res, &a); err != nil {
		return false, err
	}
	return a.Voter, nil
}

// ServeForget serves op 34.
func ServeForget(s Server, level model.ReleaseLevel, f Forgetter, hint Hint) {
	if !knows(level, featureForget) {
		without(s, noderpc.OpForgetServer)
		return
	}
	serve(s, noderpc.OpForgetServer, nil, hint, func(ctx context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
		r, err := decodeForget(d)
		if err != nil {
			return noderpc.Response{}, err
		}
		voter, err := f.Forget(ctx, r.id, r.caller)
		if err != nil {
			return noderpc.Response{}, err
		}
		return jsonResponse(http.StatusOK, forgetAnswer{r.id, voter}), nil
	})
}
