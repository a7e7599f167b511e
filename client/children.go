package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// ChildStatus is one child of a parent and how far behind its copy is.
type ChildStatus struct {
	Name    string `json:"name"`
	DelayMS int64  `json:"delay_ms"`
	// LagMessages counts the parent's committed messages that are not in the child yet.
	// For a delay child those that are not due are among them.
	LagMessages int64 `json:"lag_messages"`
	LagComplete bool  `json:"lag_complete"` // false: some partition did not report, LagMessages is a lower bound
}

// Children are the children of a parent, in the order they were attached.
type Children struct {
	Parent   string        `json:"parent"`
	ParentID string        `json:"parent_id"` // changes when the parent is deleted and made again
	Children []ChildStatus `json:"children"`
}

// Attach makes child a child of parent: from here on it gets a copy of everything
// committed to parent, after delay. Nothing that is in the parent already is copied. It
// returns the parent. A link the two cannot have is ErrConflict.
func (c *Client) Attach(ctx context.Context, parent, child string, delay time.Duration) (Topic, error) {
	in := struct {
		Child   string `json:"child"`
		DelayMS int64  `json:"delay_ms,omitempty"`
	}{child, delay.Milliseconds()}
	var out Topic
	err := c.doJSON(ctx, &request{op: opChange, method: http.MethodPost, path: topicPath(parent, "/children"), want: http.StatusOK}, in, &out)
	return out, err
}

// Detach ends a link. The child keeps what it has.
func (c *Client) Detach(ctx context.Context, parent, child string) error {
	return c.doJSON(ctx, &request{
		op: opChange, method: http.MethodDelete, path: topicPath(parent, "/children/"+url.PathEscape(child)), want: http.StatusNoContent,
	}, nil, nil)
}

// Children lists a parent's children with their lag. Asking opens nothing on the server
// and costs little.
func (c *Client) Children(ctx context.Context, parent string) (Children, error) {
	var out Children
	err := c.doJSON(ctx, &request{op: opRead, method: http.MethodGet, path: topicPath(parent, "/children"), want: http.StatusOK}, nil, &out)
	return out, err
}
