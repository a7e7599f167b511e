package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/narad-mq/narad/internal/access"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/users"
)

// Change implements peer.Changes: it makes a change on this node on behalf of a caller
// that another node let in, and answers what this node would answer a client. The rights
// that count are those of ch.Caller in this node's replica. A node that does not lead
// answers 421 and forwards nothing. The audit line is the other node's.
func (a *API) Change(ctx context.Context, op noderpc.Op, ch peer.Change) peer.Answer {
	answer := &recorder{}
	c := &call{
		req:  &Request{Ctx: ctx, Header: http.Header{}, Body: bytes.NewReader(ch.JSON), ContentLength: int64(len(ch.JSON))},
		resp: answer, stopping: &a.stopping, start: a.clock.Now(), onBehalf: true,
		caller: access.NewCaller(model.User{Username: ch.Caller}), topic: ch.Topic,
	}
	err := a.change(c, op, ch)
	switch {
	case err == nil:
	case errors.Is(err, model.ErrNotLeader) && !errors.Is(err, model.ErrOutcomeUnknown) && !errors.Is(err, errPartly):
		a.refuse(c, &refusal{status: 421, code: "not_leader", text: model.ErrNotLeader.Error(), cause: err})
	default:
		a.refuse(c, err)
	}
	return answer.Answer
}

// errPartly marks the refusal of a change of which a part is applied: it must not be sent
// to another node as if nothing had happened.
var errPartly = errors.New("an earlier part of the change is applied")

// change runs the handler of an operation.
func (a *API) change(c *call, op noderpc.Op, ch peer.Change) error {
	be := a.serving.Load()
	switch {
	case be == nil:
		return errNotReady
	case be.Forward != nil && !be.Forward.LeaderIsHere():
		return model.ErrNotLeader
	}
	topic := topicsPrefix + "/" + url.PathEscape(ch.Topic)
	switch op {
	case noderpc.OpCreateTopic:
		c.route = routeTopicCreate
		return a.createTopic(c, be)
	case noderpc.OpAlterTopic:
		c.route = routeTopicAlter
		return a.alterTopic(c, be)
	case noderpc.OpDeleteTopic:
		c.route = routeTopicDelete
		return a.deleteTopic(c, be)
	case noderpc.OpAttachChild:
		c.route = routeChildAttach
		return a.attachChild(c, be)
	case noderpc.OpDetachChild:
		c.route, c.req.Path = routeChildDetach, topic+"/"+childrenTail+"/"+url.PathEscape(ch.Child)
		return a.detachChild(c, be)
	case noderpc.OpCreateUser, noderpc.OpUpdateUser, noderpc.OpDeleteUser:
		return a.changeUser(c, be, op, ch)
	}
	return invalid(fmt.Sprintf("operation %s is no change of metadata", op))
}

// changeUser decides a change of users that another node prepared: passwords were hashed
// there, and never travel.
func (a *API) changeUser(c *call, be *Backends, op noderpc.Op, ch peer.Change) error {
	ctx, cancel := a.changeContext(c.req)
	defer cancel()
	switch op {
	case noderpc.OpCreateUser:
		c.route = routeUserCreate
		var n users.NewUser
		if err := a.readJSON(c, errUserBody, &n); err != nil {
			return err
		}
		u, err := be.Authority.CreateUser(ctx, ch.Caller, n)
		if err != nil {
			return err
		}
		return a.sendJSON(c, 201, u)
	case noderpc.OpUpdateUser:
		c.route = routeUserGrants
		var up users.Update
		if err := a.readJSON(c, errUserBody, &up); err != nil {
			return err
		}
		if up.Grants == nil {
			c.route = routeUserPassword
		}
		u, err := be.Authority.UpdateUser(ctx, ch.Caller, up)
		if err != nil {
			return err
		}
		return a.sendJSON(c, 200, u)
	}
	c.route = routeUserDelete
	var d userName
	if err := a.readJSON(c, errUserBody, &d); err != nil {
		return err
	}
	if err := be.Authority.DeleteUser(ctx, ch.Caller, d.Username); err != nil {
		return err
	}
	c.empty(204)
	return nil
}

// userName is the JSON of a delete.
type userName struct {
	Username string `json:"username"`
}

// userLeader has the leader decide changes of users, wherever it is.
type userLeader struct {
	here    users.Leader
	forward Forward
}

// NewUserLeader returns who decides changes of users: here while this node leads, else
// the leader that f reaches.
func NewUserLeader(here users.Leader, f Forward) users.Leader { return &userLeader{here, f} }

// CreateUser implements users.Leader.
func (l *userLeader) CreateUser(ctx context.Context, caller string, n users.NewUser) (u model.User, err error) {
	if l.forward.LeaderIsHere() {
		return l.here.CreateUser(ctx, caller, n)
	}
	err = l.ask(ctx, noderpc.OpCreateUser, caller, n, &u)
	return u, err
}

// UpdateUser implements users.Leader.
func (l *userLeader) UpdateUser(ctx context.Context, caller string, up users.Update) (u model.User, err error) {
	if l.forward.LeaderIsHere() {
		return l.here.UpdateUser(ctx, caller, up)
	}
	err = l.ask(ctx, noderpc.OpUpdateUser, caller, up, &u)
	return u, err
}

// DeleteUser implements users.Leader.
func (l *userLeader) DeleteUser(ctx context.Context, caller, username string) error {
	if l.forward.LeaderIsHere() {
		return l.here.DeleteUser(ctx, caller, username)
	}
	return l.ask(ctx, noderpc.OpDeleteUser, caller, userName{username}, nil)
}

// ask sends a change and reads the user in the answer into u, if any is wanted.
func (l *userLeader) ask(ctx context.Context, op noderpc.Op, caller string, change any, u *model.User) error {
	doc, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode %s: %w", op, err)
	}
	answer, err := askLeader(ctx, l.forward, op, peer.Change{Caller: caller, JSON: doc})
	if err != nil {
		return err
	}
	if u != nil {
		if err := json.Unmarshal(answer.body, u); err != nil {
			return fmt.Errorf("%w: the leader's answer to %s: %w", model.ErrOutcomeUnknown, op, err)
		}
	}
	// How far this replica is only decides when reads here show the change (RT-3).
	_ = l.forward.Settle(ctx)
	return nil
}

// recorder takes the answer of a handler.
type recorder struct{ peer.Answer }

// SetHeader implements Response. What is about this node's connections stays here.
func (r *recorder) SetHeader(name, value string) {
	if name != "Connection" {
		r.Header = append(r.Header, noderpc.Header{Name: name, Value: value})
	}
}

// Send implements Response.
func (r *recorder) Send(status int, contentType string, body []byte) error {
	r.Status, r.ContentType, r.Body = status, contentType, slices.Clone(body)
	return nil
}
