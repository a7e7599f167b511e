package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// SchemaHistory is every version of a topic's schema.
type SchemaHistory struct {
	Topic    string          `json:"topic"`
	Version  int             `json:"version"`  // the current one; 0 = no schema
	Versions []SchemaVersion `json:"versions"` // oldest first
}

// SchemaVersion is one version of a topic's schema.
type SchemaVersion struct {
	Version int             `json:"version"`
	Schema  json.RawMessage `json:"schema"`
}

// Schemas returns the schema history of a topic.
func (c *Client) Schemas(ctx context.Context, topic string) (SchemaHistory, error) {
	var out SchemaHistory
	err := c.doJSON(ctx, &request{op: opRead, method: http.MethodGet, path: topicPath(topic, "/schema"), want: http.StatusOK}, nil, &out)
	return out, err
}

// SetSchema registers the next version of a topic's JSON Schema, which must accept
// whatever the current one does; one that cannot be registered is ErrBadRequest. A
// schema equal to the current one changes nothing.
func (c *Client) SetSchema(ctx context.Context, topic string, schema json.RawMessage) (Topic, error) {
	return c.setSchema(ctx, topic, schema, nil)
}

// SetSchemaOver is SetSchema on the condition that base is the current version, 0 =
// that there is none; ErrConflict otherwise.
func (c *Client) SetSchemaOver(ctx context.Context, topic string, base int, schema json.RawMessage) (Topic, error) {
	return c.setSchema(ctx, topic, schema, &base)
}

func (c *Client) setSchema(ctx context.Context, topic string, schema json.RawMessage, base *int) (Topic, error) {
	in := struct {
		Schema json.RawMessage `json:"schema"`
		Base   *int            `json:"schema_base_version,omitempty"`
	}{schema, base}
	var out Topic
	err := c.doJSON(ctx, &request{op: opChange, method: http.MethodPatch, path: topicPath(topic, ""), want: http.StatusOK}, in, &out)
	return out, err
}
