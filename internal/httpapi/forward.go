package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
	"github.com/narad-mq/narad/internal/peer"
)

// Forward reaches the Raft leader, which decides every change of metadata (spec/http-api
// RT-3).
type Forward interface {
	// LeaderIsHere reports whether this node leads.
	LeaderIsHere() bool
	// Change has the leader make a change on behalf of a caller. A refusal is an answer.
	// An error that is model.ErrUnavailable or peer.ErrUnreached says that nothing was
	// applied; after any other one that is not known.
	Change(ctx context.Context, op noderpc.Op, ch peer.Change) (peer.Answer, error)
	// Settle returns once this node's replica shows what the leader has committed, after
	// at most 3 s.
	Settle(ctx context.Context) error
}

// changeBudget is what the leader gets for a forwarded change other than a create, which
// may wait behind the leader's startup sweep (spec/cluster-and-network section 5.3).
const changeBudget = 10 * time.Second

// elsewhere reports whether another node decides what this call asks for. A change that
// was forwarded here is never forwarded again.
func (c *call) elsewhere(be *Backends) bool {
	return be.Forward != nil && !c.onBehalf && !be.Forward.LeaderIsHere()
}

// forwarded is a change that goes to the leader, and its audit line.
type forwarded struct {
	op            noderpc.Op
	change        peer.Change
	event, target string
	extra         []slog.Attr
}

// forward has the leader make a change, writes the audit line, and passes the leader's
// answer on as it is.
func (a *API) forward(c *call, be *Backends, f forwarded) error {
	f.change.Caller = c.caller.Username()
	answer, err := a.askLeader(c, be, f.op, f.change)
	status := 0
	if err == nil {
		status = answer.status
	}
	if err := a.audited(c, f.event, f.target, status, err, f.extra...); err != nil {
		return err
	}
	c.relay(answer)
	return nil
}

// forwardAlter has the leader apply all groups. When it refuses, this node does not know
// how far it got: the last group is not applied, and of the ones before nobody here can
// tell (spec/http-api section 18): it answers once its replica shows whatever is applied.
func (a *API) forwardAlter(c *call, be *Backends, groups []alterGroup) error {
	answer, err := a.askLeader(c, be, noderpc.OpAlterTopic, peer.Change{Topic: c.topic, Caller: c.caller.Username(), JSON: c.body})
	if err == nil {
		a.auditGroups(c, groups, answer.status, nil)
		c.relay(answer)
		return nil
	}
	r := translate(c.route.op(), err)
	last := len(groups) - 1
	if errors.Is(err, model.ErrUnavailable) {
		last = 0 // nothing was delivered
	}
	if last > 0 {
		ctx, cancel := a.changeContext(c.req)
		defer cancel()
		// How far this replica is only decides when reads here show the change (RT-3).
		_ = be.Forward.Settle(ctx)
	}
	a.auditGroups(c, groups[:last], r.status, model.ErrOutcomeUnknown)
	a.auditGroups(c, groups[last:], r.status, err)
	return r
}

// askLeader has the leader make a change and waits until this node shows it. The answer
// is a success; whatever else comes back is an error.
func (a *API) askLeader(c *call, be *Backends, op noderpc.Op, ch peer.Change) (*relay, error) {
	ctx, cancel := a.changeContext(c.req)
	defer cancel()
	answer, err := askLeader(ctx, be.Forward, op, ch)
	if err != nil {
		return nil, err
	}
	if err := be.Forward.Settle(ctx); err != nil {
		a.log.Debug("answering a forwarded change before this replica shows it", slog.String("op", op.String()), slog.Any("err", err))
	}
	return answer, nil
}

// askLeader is one forwarded change. Its error says by model.ErrUnavailable that nothing
// was applied, by model.ErrOutcomeUnknown that nobody knows; or it is the leader's refusal.
func askLeader(ctx context.Context, f Forward, op noderpc.Op, ch peer.Change) (*relay, error) {
	if op != noderpc.OpCreateTopic {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, changeBudget)
		defer cancel()
	}
	answer, err := f.Change(ctx, op, ch)
	if err != nil {
		return nil, unanswered(ctx, err)
	}
	r := &relay{status: answer.Status, contentType: answer.ContentType, body: answer.Body, header: answer.Header}
	switch {
	case r.status < 300:
		return r, nil
	case r.status == 421: // also the node that was said to lead: nobody applied it
		return nil, fmt.Errorf("%w: the leader is moving", model.ErrUnavailable)
	}
	return nil, r.refusal(nil)
}

// unanswered is the error of a call to the leader that brought no answer.
func unanswered(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, model.ErrUnavailable):
		return err
	case errors.Is(err, peer.ErrUnreached):
		return fmt.Errorf("%w: %w", model.ErrUnavailable, err)
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	}
	// The client learns neither who leads nor what failed between the nodes.
	return outcomeUnknown(model.ErrOutcomeUnknown.Error()+": the metastore leader did not answer",
		fmt.Errorf("%w: %w", model.ErrOutcomeUnknown, err))
}

// relay is an answer of another node on its way to the client.
type relay struct {
	status      int
	contentType string
	body        []byte
	header      []noderpc.Header
}

// relayTextMax bounds the JSON of an answer that is read for its code, in bytes.
const relayTextMax = 64 << 10

// refusal is the answer as an error of this node; cause is for the log.
func (r *relay) refusal(cause error) *refusal {
	out := &refusal{status: r.status, cause: cause, from: r}
	var w struct{ Error, Code string }
	if len(r.body) <= relayTextMax && json.Unmarshal(r.body, &w) == nil {
		out.text, out.code = w.Error, w.Code
	}
	if out.text == "" {
		out.text = fmt.Sprintf("status %d", r.status)
	}
	if out.code == codeOutcomeUnknown {
		out.cause = errors.Join(model.ErrOutcomeUnknown, cause)
	}
	return out
}

// ofPeer turns a refusal of the node that was asked into the answer: the one it gave. Who
// leads is no client's business.
func ofPeer(err error) *refusal {
	var e *peer.StatusError
	switch {
	case !errors.As(err, &e):
		return nil
	case errors.Is(e, model.ErrNotLeader):
		return &refusal{status: 503, code: codeControlPlane, text: model.ErrUnavailable.Error(), cause: err}
	case e.Body == nil: // made here
		return &refusal{status: e.Status, code: e.Code, text: e.Text, cause: err}
	}
	r := &relay{status: e.Status, contentType: e.ContentType, body: e.Body}
	out := r.refusal(err)
	out.text, out.code = e.Text, e.Code
	return out
}

// relay sends another node's answer (spec/http-api BODY-5).
func (c *call) relay(r *relay) {
	for _, h := range r.header {
		c.resp.SetHeader(h.Name, h.Value)
	}
	if len(r.body) == 0 {
		c.empty(r.status)
		return
	}
	contentType := r.contentType
	if contentType == "" {
		contentType = "application/octet-stream"
	}
	c.resp.SetHeader("X-Content-Type-Options", "nosniff")
	_ = c.send(r.status, contentType, r.body)
}
