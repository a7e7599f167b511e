package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"

	"github.com/narad-mq/narad/internal/fanout"
	"github.com/narad-mq/narad/internal/model"
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
	err := a.readJSON(c.req, errBodyTooLarge, &b)
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
	view, err := a.attach(c, be, req)
	if err := a.audited(c, "topic.attach", c.topic, 200, err, extra); err != nil {
		return err
	}
	return a.sendJSON(c, 200, withRole(view))
}

func (a *API) attach(c *call, be *Backends, req topics.AttachRequest) (*model.TopicView, error) {
	// What this replica lacks is the leader's to judge (AZ-20).
	parent, ok1 := be.Directory.Topic(req.Parent)
	child, ok2 := be.Directory.Topic(req.Child)
	if ok1 && ok2 {
		if err := c.caller.MayAttach(&parent.Topic, &child.Topic); err != nil {
			return nil, err
		}
	}
	ctx, cancel := a.changeContext(c.req)
	defer cancel()
	return be.Links.Attach(ctx, req)
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
	if err := a.audited(c, "topic.detach", c.topic, 204, a.detach(c, be, child), extra); err != nil {
		return err
	}
	c.empty(204)
	return nil
}

func (a *API) detach(c *call, be *Backends, name string) error {
	parent, ok1 := be.Directory.Topic(c.topic)
	child, ok2 := be.Directory.Topic(name)
	if ok1 && ok2 {
		if err := c.caller.MayDetach(&parent.Topic, &child.Topic); err != nil {
			return err
		}
	}
	ctx, cancel := a.changeContext(c.req)
	defer cancel()
	return be.Links.Detach(ctx, c.topic, name, c.caller.Username())
}
