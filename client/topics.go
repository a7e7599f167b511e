package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// Topic is a topic as the server describes it. Times are Unix seconds, durations
// milliseconds.
type Topic struct {
	Name                string `json:"name"`
	ID                  string `json:"id"` // changes when the topic is deleted and made again
	Partitions          int    `json:"partitions"`
	RetentionMS         int64  `json:"retention_ms"` // 0 = forever
	VisibilityTimeoutMS int64  `json:"visibility_timeout_ms"`
	MaxInFlight         int    `json:"max_in_flight_per_partition"`
	MaxAckedAhead       int    `json:"max_acked_ahead_per_partition"`
	CreatedAt           int64  `json:"created_at"`
	Owner               string `json:"owner,omitempty"` // who made it; "" with security off
	Role                string `json:"role,omitempty"`  // standalone, parent or child

	Children      []string `json:"children,omitempty"`        // of a parent, in the order they were attached
	Parent        string   `json:"parent,omitempty"`          // of a child
	AttachEpoch   string   `json:"attach_epoch,omitempty"`    // of a child; new on each attach
	FanoutDelayMS int64    `json:"fanout_delay_ms,omitempty"` // of a delay child
	AttachOffsets []int64  `json:"attach_offsets,omitempty"`  // of a child: where its copy begins, by parent partition
}

// PartitionStats describes one partition of a topic.
type PartitionStats struct {
	Index           int    `json:"index"`
	Segments        int    `json:"segments"`
	OldestOffset    int64  `json:"oldest_offset"`
	NextOffset      int64  `json:"next_offset"`
	HighWatermark   int64  `json:"high_watermark"` // one past the last visible offset
	SizeBytes       int64  `json:"size_bytes"`
	OldestSegmentAt int64  `json:"oldest_segment_at,omitempty"`
	OwnerNode       string `json:"owner_node"`
	Status          string `json:"status"` // ok, or owner_unavailable: then the numbers are zero
	OwnerLiveness   string `json:"owner_liveness,omitempty"`
}

// TopicDetails is a topic with its partitions.
type TopicDetails struct {
	Topic
	SchemaVersion  int              `json:"schema_version"`   // 0 = no schema
	Schema         json.RawMessage  `json:"schema,omitempty"` // the current version
	PartitionStats []PartitionStats `json:"partition_stats"`
	Partial        bool             `json:"partial,omitempty"` // some partition could not be asked
}

// CreateTopic is what a new topic may say about itself; a zero field takes the
// server's default.
type CreateTopic struct {
	Name                string          `json:"name"`
	Partitions          int             `json:"partitions,omitempty"`
	RetentionMS         *int64          `json:"retention_ms,omitempty"` // nil = default; 0 = forever
	VisibilityTimeoutMS int64           `json:"visibility_timeout_ms,omitempty"`
	MaxInFlight         int             `json:"max_in_flight_per_partition,omitempty"`
	MaxAckedAhead       int             `json:"max_acked_ahead_per_partition,omitempty"`
	Schema              json.RawMessage `json:"schema,omitempty"`          // JSON Schema every payload must meet
	Parent              string          `json:"parent,omitempty"`          // make it a child of this topic
	FanoutDelayMS       int64           `json:"fanout_delay_ms,omitempty"` // of a child
}

// AlterTopic is what may change in a topic's life; a nil field stays as it is. Its
// schema changes with SetSchema.
type AlterTopic struct {
	RetentionMS   *int64 `json:"retention_ms,omitempty"` // 0 = forever
	Partitions    *int   `json:"partitions,omitempty"`   // only up
	MaxInFlight   *int   `json:"max_in_flight_per_partition,omitempty"`
	MaxAckedAhead *int   `json:"max_acked_ahead_per_partition,omitempty"`
}

// CreateTopic makes a topic, ready for use when it returns. A name that exists is
// ErrExists. After an error that is Uncertain look whether the topic is there.
func (c *Client) CreateTopic(ctx context.Context, in CreateTopic) (Topic, error) {
	var out Topic
	err := c.doJSON(ctx, &request{op: opChange, method: http.MethodPost, path: "/v1/topics", want: http.StatusCreated}, in, &out)
	return out, err
}

// EnsureTopic returns the topic of that name, and makes it if there is none. What an
// existing topic looks like is not compared with in.
func (c *Client) EnsureTopic(ctx context.Context, in CreateTopic) (Topic, error) {
	t, err := c.CreateTopic(ctx, in)
	if errors.Is(err, ErrExists) && !errors.Is(err, ErrNameTaken) || Uncertain(err) {
		var d TopicDetails
		if d, err = c.DescribeTopic(ctx, in.Name); err == nil {
			t = d.Topic
		}
	}
	return t, err
}

// DescribeTopic returns a topic and the state of its partitions.
func (c *Client) DescribeTopic(ctx context.Context, topic string) (TopicDetails, error) {
	return c.describe(ctx, topic, Pin{})
}

// describe is DescribeTopic, of one partition if pin says so.
func (c *Client) describe(ctx context.Context, topic string, pin Pin) (TopicDetails, error) {
	r := request{op: opRead, method: http.MethodGet, path: topicPath(topic, ""), want: http.StatusOK}
	if pin.set() {
		r.query = url.Values{"partition": {strconv.Itoa(pin.number())}}
	}
	var out TopicDetails
	err := c.doJSON(ctx, &r, nil, &out)
	return out, err
}

// AlterTopic changes a topic and returns it as it is then. What it changes before a
// part that fails stays changed.
func (c *Client) AlterTopic(ctx context.Context, topic string, in AlterTopic) (Topic, error) {
	var out Topic
	err := c.doJSON(ctx, &request{op: opChange, method: http.MethodPatch, path: topicPath(topic, ""), want: http.StatusOK}, in, &out)
	return out, err
}

// DeleteTopic deletes a topic and everything in it.
func (c *Client) DeleteTopic(ctx context.Context, topic string) error {
	return c.doJSON(ctx, &request{op: opChange, method: http.MethodDelete, path: topicPath(topic, ""), want: http.StatusNoContent}, nil, nil)
}

// listPageSize is how many topics one page asks for.
const listPageSize = 1000

// Topics yields every topic the caller may see in order of name, fetched page by
// page. An error is the last thing it yields.
func (c *Client) Topics(ctx context.Context) iter.Seq2[Topic, error] {
	return func(yield func(Topic, error) bool) {
		q := url.Values{"limit": {strconv.Itoa(listPageSize)}}
		for {
			var page struct {
				Next   string `json:"next_page_token"`
				Topics []Topic
			}
			if err := c.doJSON(ctx, &request{op: opRead, method: http.MethodGet, path: "/v1/topics", query: q, want: http.StatusOK}, nil, &page); err != nil {
				yield(Topic{}, err)
				return
			}
			for _, t := range page.Topics {
				if !yield(t, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.Set("page_token", page.Next)
		}
	}
}
