package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"

	"github.com/narad-mq/narad/internal/access"
	"github.com/narad-mq/narad/internal/fanout"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/topics"
)

// Links changes fan-out links: package topics, on the leader.
type Links interface {
	// CheckAttach refuses what a request gets wrong by itself.
	CheckAttach(req topics.AttachRequest) error
	Attach(ctx context.Context, req topics.AttachRequest) (parent *model.TopicView, err error)
	Detach(ctx context.Context, parent, child, caller string) error
}

// Children lists a parent's children with their lag: package fanout. It opens no log.
type Children interface {
	Children(ctx context.Context, parent *model.TopicView) []fanout.Child
}

const childrenTail = "children"

// childResource finds the resource of what follows the name of a parent.
func childResource(tail string) resource {
	if tail == childrenTail {
		return resChildren
	}
	if _, ok := pathChild(tail); ok {
		return resChild
	}
	return resNone
}

// pathChild is the child that children/<child>, the end of a raw path, names.
func pathChild(tail string) (child string, ok bool) {
	child, ok = strings.CutPrefix(tail, childrenTail+"/")
	if !ok || child == "" || child == "." || child == ".." || strings.Contains(child, "/") {
		return "", false
	}
	child, err := url.PathUnescape(child)
	return child, err == nil
}

// child is the child named by the request's path.
func (c *call) child() string {
	_, tail, _ := strings.Cut(strings.TrimPrefix(c.req.Path, topicsPrefix+"/"), "/")
	child, _ := pathChild(tail)
	return child
}

type attachBody struct {
	Child   string `json:"child"`
	DelayMS int64  `json:"delay_ms"`
}

// attachChild serves POST /v1/topics/{parent}/children (spec/http-api section 14.1).
func (a *API) attachChild(c *call, be *Backends) error {
	var b attachBody
	err := a.readJSON(c, errBodyTooLarge, &b)
	if errors.Is(err, errBodyTooLarge) {
		return invalid(err.Error()) // AC-2: 400, not 413
	}
	if err != nil {
		return err
	}
	req := topics.AttachRequest{Parent: c.topic, Child: b.Child, DelayMS: b.DelayMS, Caller: c.caller.Username()}
	if err := be.Links.CheckAttach(req); err != nil {
		return err
	}
	extra := slog.String("child", b.Child)
	err = mayLink(c, be, req.Child, (*access.Caller).MayAttach)
	if err == nil && c.elsewhere(be) {
		return a.forward(c, be, forwarded{
			op: noderpc.OpAttachChild, change: peer.Change{Topic: c.topic, JSON: c.body},
			event: "topic.attach", target: c.topic, extra: []slog.Attr{extra},
		})
	}
	var view *model.TopicView
	if err == nil {
		ctx, cancel := a.changeContext(c.req)
		defer cancel()
		view, err = be.Links.Attach(ctx, req)
	}
	if err := a.audited(c, "topic.attach", c.topic, 200, err, extra); err != nil {
		return err
	}
	return a.sendJSON(c, 200, withRole(view))
}

// mayLink checks the caller against this node's replica. What it lacks is the leader's to
// judge (AZ-20).
func mayLink(c *call, be *Backends, child string, may func(by *access.Caller, p, t *model.Topic) error) error {
	if c.onBehalf {
		return nil // as mayCreate
	}
	p, ok1 := be.Directory.Topic(c.topic)
	t, ok2 := be.Directory.Topic(child)
	if !ok1 || !ok2 {
		return nil
	}
	return may(c.caller, &p.Topic, &t.Topic)
}

// listChildren serves GET /v1/topics/{parent}/children (spec/http-api section 14.2).
func (a *API) listChildren(c *call, be *Backends) error {
	names := [...]string{"partitions"}
	var p [len(names)]param
	if err := queryParams(c.req.Query, names[:], p[:]); err != nil {
		return err
	}
	// The detail is of remote children: it adds nothing to local ones.
	if _, err := boolParam("partitions", p[0]); err != nil {
		return err
	}
	view, err := readable(c, be)
	if err != nil {
		return err
	}
	return a.sendJSON(c, 200, struct {
		Parent   string            `json:"parent"`
		ParentID model.Incarnation `json:"parent_id"`
		Children []fanout.Child    `json:"children"`
	}{view.Name, view.ID, be.Children.Children(c.req.Ctx, view)})
}

// detachChild serves DELETE /v1/topics/{parent}/children/{child} (spec/http-api section
// 14.3).
func (a *API) detachChild(c *call, be *Backends) error {
	names := [...]string{"force"}
	var p [len(names)]param
	if err := queryParams(c.req.Query, names[:], p[:]); err != nil {
		return err
	}
	if _, err := boolParam("force", p[0]); err != nil { // of remote children; ignored (DC-5)
		return err
	}
	child := c.child()
	extra := slog.String("child", child)
	err := mayLink(c, be, child, (*access.Caller).MayDetach)
	if err == nil && c.elsewhere(be) {
		return a.forward(c, be, forwarded{
			op: noderpc.OpDetachChild, change: peer.Change{Topic: c.topic, Child: child},
			event: "topic.detach", target: c.topic, extra: []slog.Attr{extra},
		})
	}
	if err == nil {
		ctx, cancel := a.changeContext(c.req)
		defer cancel()
		err = be.Links.Detach(ctx, c.topic, child, c.caller.Username())
	}
	if err := a.audited(c, "topic.detach", c.topic, 204, err, extra); err != nil {
		return err
	}
	c.empty(204)
	return nil
}
