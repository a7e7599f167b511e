package client

import (
	"context"
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
	Role                string `json:"role,omitempty"`
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
	SchemaVersion  int              `json:"schema_version"`
	PartitionStats []PartitionStats `json:"partition_stats"`
	Partial        bool             `json:"partial,omitempty"` // some partition could not be asked
}

// CreateTopic is what a new topic may say about itself; a zero field takes the
// server's default.
type CreateTopic struct {
	Name                string `json:"name"`
	Partitions          int    `json:"partitions,omitempty"`
	RetentionMS         *int64 `json:"retention_ms,omitempty"` // nil = default; 0 = forever
	VisibilityTimeoutMS int64  `json:"visibility_timeout_ms,omitempty"`
	MaxInFlight         int    `json:"max_in_flight_per_partition,omitempty"`
	MaxAckedAhead       int    `json:"max_acked_ahead_per_partition,omitempty"`
}

// AlterTopic is what may change in a topic's life; a nil field stays as it is.
type AlterTopic struct {
	RetentionMS   *int64 `json:"retention_ms,omitempty"` // 0 = forever
	Partitions    *int   `json:"partitions,omitempty"`   // only up
	MaxInFlight   *int   `json:"max_in_flight_per_partition,omitempty"`
	MaxAckedAhead *int   `json:"max_acked_ahead_per_partition,omitempty"`
}

// CreateTopic makes a topic, ready for use when it returns. A name that exists is
// ErrConflict.
func (c *Client) CreateTopic(ctx context.Context, in CreateTopic) (Topic, error) {
	var out Topic
	err := c.doJSON(ctx, request{method: http.MethodPost, path: "/v1/topics"}, in, &out, http.StatusCreated)
	return out, err
}

// DescribeTopic returns a topic and the state of its partitions.
func (c *Client) DescribeTopic(ctx context.Context, topic string) (TopicDetails, error) {
	var out TopicDetails
	err := c.doJSON(ctx, request{method: http.MethodGet, path: topicPath(topic, "")}, nil, &out, http.StatusOK)
	return out, err
}

// AlterTopic changes a topic and returns it as it is then.
func (c *Client) AlterTopic(ctx context.Context, topic string, in AlterTopic) (Topic, error) {
	var out Topic
	err := c.doJSON(ctx, request{method: http.MethodPatch, path: topicPath(topic, "")}, in, &out, http.StatusOK)
	return out, err
}

// DeleteTopic deletes a topic and everything in it.
func (c *Client) DeleteTopic(ctx context.Context, topic string) error {
	return c.doJSON(ctx, request{method: http.MethodDelete, path: topicPath(topic, "")}, nil, nil, http.StatusNoContent)
}

// listPageSize is how many topics one page asks for.
const listPageSize = 1000

// EachTopic calls f with every topic in order of name, page by page, until f returns
// an error, which it passes on.
func (c *Client) EachTopic(ctx context.Context, f func(Topic) error) error {
	token := ""
	for {
		q := url.Values{"limit": {strconv.Itoa(listPageSize)}}
		if token != "" {
			q.Set("page_token", token)
		}
		var page struct {
			Next   string `json:"next_page_token"`
			Topics []Topic
		}
		if err := c.doJSON(ctx, request{method: http.MethodGet, path: "/v1/topics", query: q}, nil, &page, http.StatusOK); err != nil {
			return err
		}
		for _, t := range page.Topics {
			if err := f(t); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		token = page.Next
	}
}

// Ready asks whether the node would take requests now; the error is its reason.
func (c *Client) Ready(ctx context.Context) error {
	_, _, err := c.do(ctx, request{method: http.MethodGet, path: "/readyz"}, http.StatusOK)
	return err
}
