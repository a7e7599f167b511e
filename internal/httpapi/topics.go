package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/router"
	"github.com/narad-mq/narad/internal/topics"
)

// Directory is the local replica's view of the topics.
type Directory interface {
	Topic(name string) (*model.TopicView, bool)
	// ListTopics returns at most limit topics after a name, bytewise ascending,
	// and whether there are further ones.
	ListTopics(after string, limit int) (page []*model.TopicView, more bool)
}

// Topics changes topics: package topics, on the leader.
type Topics interface {
	// CheckCreate refuses what a request gets wrong by itself.
	CheckCreate(req topics.CreateRequest) error
	Create(ctx context.Context, req topics.CreateRequest) (*model.TopicView, error)
	Alter(ctx context.Context, name string, req topics.AlterRequest) (*model.TopicView, error)
	Delete(ctx context.Context, name, caller string) error
}

// Describer reports a topic with the state of its partitions.
type Describer interface {
	Describe(ctx context.Context, topic string, partition int) (router.Details, error)
}

// Pages of the topic list (spec/http-api section 8.2).
const (
	pageDefault = 100
	pageMax     = 1000
)

type createBody struct {
	Name                string          `json:"name"`
	Partitions          int             `json:"partitions"`
	RetentionMS         *int64          `json:"retention_ms"`
	VisibilityTimeoutMS int64           `json:"visibility_timeout_ms"`
	MaxInFlight         int             `json:"max_in_flight_per_partition"`
	MaxAckedAhead       int             `json:"max_acked_ahead_per_partition"`
	Schema              json.RawMessage `json:"schema"`
	Parent              string          `json:"parent"`
	FanoutDelayMS       int64           `json:"fanout_delay_ms"`
	Owner               json.RawMessage `json:"owner"` // accepted and ignored
}

// createTopic serves POST /v1/topics (spec/http-api section 8.1).
func (a *API) createTopic(c *call, be *Backends) error {
	var b createBody
	if err := a.readJSON(c, errBodyTooLarge, &b); err != nil {
		return err
	}
	if string(b.Schema) == "null" {
		return errSchemaNull
	}
	req := topics.CreateRequest{
		Name: b.Name, Partitions: b.Partitions, RetentionMS: b.RetentionMS,
		VisibilityTimeoutMS: b.VisibilityTimeoutMS, MaxInFlight: b.MaxInFlight, MaxAckedAhead: b.MaxAckedAhead,
		Schema: b.Schema, Parent: b.Parent, DelayMS: b.FanoutDelayMS, Caller: c.caller.Username(),
	}
	if err := be.Topics.CheckCreate(req); err != nil {
		return err
	}
	if err := mayCreate(c, be, &req); err != nil {
		return a.audited(c, "topic.create", b.Name, 201, err)
	}
	if c.elsewhere(be) {
		return a.forward(c, be, forwarded{op: noderpc.OpCreateTopic, change: peer.Change{JSON: c.body}, event: "topic.create", target: b.Name})
	}
	ctx, cancel := a.changeContext(c.req)
	defer cancel()
	view, err := be.Topics.Create(ctx, req)
	if err := a.audited(c, "topic.create", b.Name, 201, err); err != nil {
		return err
	}
	topic := view.Topic
	if topic.Parent == "" {
		topic.Role = "" // absent in this one answer
	}
	return a.sendJSON(c, 201, topic)
}

// mayCreate checks the caller against this node's replica. A parent it lacks is the
// leader's to judge.
func mayCreate(c *call, be *Backends, req *topics.CreateRequest) error {
	if c.onBehalf {
		return nil // checked where the client arrived; the leader's own check follows
	}
	var parent *model.Topic
	if view, ok := be.Directory.Topic(req.Parent); ok {
		parent = &view.Topic
	}
	return c.caller.MayCreate(req.Name, parent)
}

// readable is the topic of the path if the caller may read it: 404 whoever asks, then
// 403 (spec/http-api AZ-1, TG-4, TG-5).
func readable(c *call, be *Backends) (*model.TopicView, error) {
	view, ok := be.Directory.Topic(c.topic)
	if !ok {
		return nil, model.ErrTopicNotFound
	}
	return view, c.caller.MayRead(&view.Topic)
}

// mayManage checks the caller against this node's replica. A topic it lacks is the
// leader's to judge (spec/http-api AZ-20).
func mayManage(c *call, be *Backends) error {
	if c.onBehalf {
		return nil // as mayCreate
	}
	view, ok := be.Directory.Topic(c.topic)
	if !ok {
		return nil
	}
	return c.caller.MayManage(&view.Topic)
}

// listTopics serves GET /v1/topics. A page is filtered after it was cut (AZ-3), so a
// token never skips a topic and never tells of one.
func (a *API) listTopics(c *call, be *Backends) error {
	names := [...]string{"limit", "page_token"}
	var p [len(names)]param
	if err := queryParams(c.req.Query, names[:], p[:]); err != nil {
		return err
	}
	limit, err := pageLimit(p[0])
	if err != nil {
		return err
	}
	page, more := be.Directory.ListTopics(p[1].value, limit)
	answer := struct {
		NextPageToken string        `json:"next_page_token"`
		Topics        []model.Topic `json:"topics"`
	}{Topics: make([]model.Topic, 0, len(page))}
	for _, view := range page {
		if c.caller.CanRead(&view.Topic) {
			answer.Topics = append(answer.Topics, withRole(view))
		}
	}
	if more && len(page) > 0 {
		answer.NextPageToken = page[len(page)-1].Name
	}
	return a.sendJSON(c, 200, answer)
}

func pageLimit(p param) (int, error) {
	if !p.set {
		return pageDefault, nil
	}
	n, err := strconv.Atoi(p.value)
	if errors.Is(err, strconv.ErrRange) && !strings.HasPrefix(p.value, "-") {
		return pageMax, nil
	}
	if err != nil || n < 1 {
		return 0, invalid("limit must be an integer of at least 1")
	}
	return min(n, pageMax), nil
}

func withRole(view *model.TopicView) model.Topic {
	topic := view.Topic
	topic.Role = topic.LinkRole()
	return topic
}

// getTopic serves GET /v1/topics/{topic} (spec/http-api section 8.3).
func (a *API) getTopic(c *call, be *Backends) error {
	names := [...]string{"partition"}
	var p [len(names)]param
	if err := queryParams(c.req.Query, names[:], p[:]); err != nil {
		return err
	}
	partition, err := partitionParam(p[0])
	if err != nil {
		return err
	}
	view, err := readable(c, be)
	if err != nil {
		return err
	}
	d, err := be.Router.Describe(c.req.Ctx, c.topic, partition)
	if err != nil {
		return err
	}
	var doc []byte
	version := 0
	if view.SchemaVersion > 0 {
		if doc, version, err = be.Schemas.LatestSchema(c.topic); err != nil {
			return err
		}
	}
	return a.sendJSON(c, 200, struct {
		model.Topic
		SchemaVersion  int                    `json:"schema_version"`
		Schema         json.RawMessage        `json:"schema,omitempty"`
		PartitionStats []model.PartitionStats `json:"partition_stats"`
		Partial        bool                   `json:"partial,omitempty"`
	}{Topic: withRole(d.View), SchemaVersion: version, Schema: doc, PartitionStats: d.Stats, Partial: d.Partial})
}

type alterBody struct {
	RetentionMS   *int64          `json:"retention_ms"`
	MaxInFlight   *int            `json:"max_in_flight_per_partition"`
	MaxAckedAhead *int            `json:"max_acked_ahead_per_partition"`
	Partitions    *int            `json:"partitions"`
	Schema        json.RawMessage `json:"schema"`
	SchemaBase    *int            `json:"schema_base_version"`
}

// alterGroup is a part of an alter that commits by itself.
type alterGroup struct {
	fields string // in the audit line topic.alter; "" = the schema, which has its own
	req    topics.AlterRequest
}

// groups splits an alter into the parts that commit one after the other, in the
// order of spec/http-api section 8.4.
func (b *alterBody) groups() []alterGroup {
	var out []alterGroup
	if b.RetentionMS != nil {
		out = append(out, alterGroup{"retention", topics.AlterRequest{RetentionMS: b.RetentionMS}})
	}
	if b.MaxInFlight != nil || b.MaxAckedAhead != nil {
		out = append(out, alterGroup{"caps", topics.AlterRequest{MaxInFlight: b.MaxInFlight, MaxAckedAhead: b.MaxAckedAhead}})
	}
	if b.Partitions != nil && *b.Partitions != 0 {
		out = append(out, alterGroup{"partitions", topics.AlterRequest{Partitions: b.Partitions}})
	}
	if b.Schema != nil {
		out = append(out, alterGroup{"", topics.AlterRequest{Schema: b.Schema, SchemaBase: b.SchemaBase}})
	}
	return out
}

// alterTopic serves PATCH /v1/topics/{topic}. The first group that fails answers;
// earlier ones stay applied, and the audit lines say which.
func (a *API) alterTopic(c *call, be *Backends) error {
	var b alterBody
	if err := a.readJSON(c, errBodyTooLarge, &b); err != nil {
		return err
	}
	if err := b.checkSchemaFields(); err != nil {
		return err
	}
	groups := b.groups()
	if len(groups) == 0 {
		return invalid("no field to change")
	}
	err := mayManage(c, be)
	if err == nil && c.elsewhere(be) {
		return a.forwardAlter(c, be, groups)
	}
	ctx, cancel := a.changeContext(c.req)
	defer cancel()
	var view *model.TopicView
	done := 0
	for err == nil && done < len(groups) {
		g := &groups[done]
		g.req.Caller = c.caller.Username()
		if view, err = be.Topics.Alter(ctx, c.topic, g.req); err == nil {
			done++
		}
	}
	if err != nil {
		r := translate(c.route.op(), err)
		a.auditGroups(c, groups[:done], r.status, nil)
		a.auditGroups(c, groups[done:], r.status, err)
		if done > 0 {
			partly := *r
			partly.cause = fmt.Errorf("%w: %w", errPartly, err)
			return &partly
		}
		return r
	}
	a.auditGroups(c, groups, 200, nil)
	return a.sendJSON(c, 200, withRole(view))
}

// auditGroups writes the lines of groups that share an outcome: one for the settings
// among them, one for the schema.
func (a *API) auditGroups(c *call, groups []alterGroup, status int, err error) {
	var fields []string
	schema := false
	for i := range groups {
		if groups[i].fields == "" {
			schema = true
		} else {
			fields = append(fields, groups[i].fields)
		}
	}
	if len(fields) > 0 {
		a.audit(c, "topic.alter", c.topic, status, err, slog.String("fields", strings.Join(fields, ",")))
	}
	if schema {
		a.audit(c, "topic.schema", c.topic, status, err)
	}
}

// deleteTopic serves DELETE /v1/topics/{topic}.
func (a *API) deleteTopic(c *call, be *Backends) error {
	names := [...]string{"force"}
	var p [len(names)]param
	if err := queryParams(c.req.Query, names[:], p[:]); err != nil {
		return err
	}
	if _, err := boolParam("force", p[0]); err != nil {
		return err
	}
	var extra []slog.Attr
	if view, ok := be.Directory.Topic(c.topic); ok {
		extra = append(extra, slog.String("incarnation", string(view.ID)))
	}
	err := mayManage(c, be)
	if err == nil && c.elsewhere(be) {
		return a.forward(c, be, forwarded{op: noderpc.OpDeleteTopic, change: peer.Change{Topic: c.topic}, event: "topic.delete", target: c.topic})
	}
	if err == nil {
		ctx, cancel := a.changeContext(c.req)
		defer cancel()
		err = be.Topics.Delete(ctx, c.topic, c.caller.Username())
	}
	if err := a.audited(c, "topic.delete", c.topic, 204, err, extra...); err != nil {
		return err
	}
	c.empty(204)
	return nil
}

// changeContext bounds a metadata change so that its answer, E-CP2 if it is still
// undecided, is sent before the connection's write timeout cuts it.
func (a *API) changeContext(r *Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Ctx, a.writeBudget)
}

// readJSON reads a strict JSON body: unknown fields, wrong types and a second
// value are refused (spec/http-api BODY-1), a body that is too long with over. The call
// keeps the bytes, which are what a leader elsewhere gets.
func (a *API) readJSON(c *call, over fixed, into any) error {
	body, err := readBody(c.req, bodyMax, over, nil)
	if err != nil {
		return err
	}
	c.body = body
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return invalidJSON(err.Error())
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return invalidJSON("a second value follows the first")
	}
	return nil
}

// sendJSON answers with one line of JSON.
func (a *API) sendJSON(c *call, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	_ = c.send(status, typeJSON, append(body, '\n'))
	return nil
}
