package peer

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// Metadata is what the leader's replica shows, read behind its barrier. On any other node
// the error is model.ErrNotLeader.
type Metadata interface {
	Topic(ctx context.Context, name string) (t model.Topic, exists bool, err error)
	Assignment(ctx context.Context, topic string, partition int) (model.Assignment, error)
	AppliedIndex() (uint64, error)
}

// topicRequest is op 20, and the start of op 28.
func decodeTopic(d *noderpc.Decoder) (string, error) {
	name := d.Str()
	if err := d.Done(); err != nil {
		return "", err
	}
	return name, topicName(name)
}

func decodeAssignment(d *noderpc.Decoder) (topic string, partition int, err error) {
	topic, partition = d.Str(), int(d.I32())
	if err := d.Done(); err != nil {
		return "", 0, err
	}
	if partition < 0 {
		return "", 0, fmt.Errorf("%w: partition %d", model.ErrInvalid, partition)
	}
	return topic, partition, topicName(topic)
}

// Topic reads a topic at the leader. Only its 404, exists false without an error, says that
// there is none; everything else leaves that open.
func (c *Client) Topic(ctx context.Context, addr, name string) (t model.Topic, exists bool, err error) {
	var e noderpc.Encoder
	e.AppendStr(name)
	err = c.ask(ctx, addr, noderpc.OpGetTopic, confirmBudget, e, &t)
	var refused *StatusError
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
		return model.Topic{}, false, nil
	case err != nil:
		return model.Topic{}, false, err
	case t.Name != name:
		return model.Topic{}, false, fmt.Errorf("%s at %s: topic %q answered for %q", noderpc.OpGetTopic, addr, t.Name, name)
	}
	return t, true, nil
}

// assignmentAnswer is the JSON of op 28.
type assignmentAnswer struct {
	Owner      string `json:"owner"`
	Target     string `json:"target"`
	LeaderRead bool   `json:"leader_read"` // read behind the leader's barrier
}

// Assignment reads a placement at the leader. An answer that does not say it was read
// behind the barrier is an ErrUnavailable.
func (c *Client) Assignment(ctx context.Context, addr, topic string, partition int) (model.Assignment, error) {
	var e noderpc.Encoder
	e.AppendStr(topic)
	if err := e.AppendPartition(partition); err != nil {
		return model.Assignment{}, err
	}
	var a assignmentAnswer
	if err := c.ask(ctx, addr, noderpc.OpGetAssignment, confirmBudget, e, &a); err != nil {
		return model.Assignment{}, err
	}
	if !a.LeaderRead {
		return model.Assignment{}, fmt.Errorf("%w: %s at %s: not read behind a barrier", model.ErrUnavailable, noderpc.OpGetAssignment, addr)
	}
	return model.Assignment{Topic: topic, Partition: partition, Owner: a.Owner, Target: a.Target}, nil
}

// indexAnswer is the JSON of op 29.
type indexAnswer struct {
	Index uint64 `json:"index"`
}

// AppliedIndex is the index up to which the leader's replica shows everything.
func (c *Client) AppliedIndex(ctx context.Context, addr string) (uint64, error) {
	var a indexAnswer
	err := c.ask(ctx, addr, noderpc.OpAppliedIndex, confirmBudget, nil, &a)
	return a.Index, err
}

// ServeMetadata serves ops 20, 28 and 29.
func ServeMetadata(s Server, _ model.ReleaseLevel, m Metadata, hint Hint) {
	serve(s, noderpc.OpGetTopic, nil, hint, func(ctx context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
		name, err := decodeTopic(d)
		if err != nil {
			return noderpc.Response{}, err
		}
		t, exists, err := m.Topic(ctx, name)
		if err == nil && !exists {
			err = fmt.Errorf("%w: %q", model.ErrTopicNotFound, name)
		}
		if err != nil {
			return noderpc.Response{}, err
		}
		return jsonResponse(http.StatusOK, t), nil
	})
	serve(s, noderpc.OpGetAssignment, nil, hint, func(ctx context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
		topic, partition, err := decodeAssignment(d)
		if err != nil {
			return noderpc.Response{}, err
		}
		a, err := m.Assignment(ctx, topic, partition)
		if err != nil {
			return noderpc.Response{}, err
		}
		return jsonResponse(http.StatusOK, assignmentAnswer{a.Owner, a.Target, true}), nil
	})
	serve(s, noderpc.OpAppliedIndex, nil, hint, func(_ context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
		if err := d.Done(); err != nil {
			return noderpc.Response{}, err
		}
		index, err := m.AppliedIndex()
		if err != nil {
			return noderpc.Response{}, err
		}
		return jsonResponse(http.StatusOK, indexAnswer{index}), nil
	})
}

// Purger removes the data of one deleted life of a topic on this node; see
// reclaim.Reclaimer. An empty id comes from a release that names none.
type Purger interface {
	Purge(ctx context.Context, topic string, id model.Incarnation) error
}

func decodePurge(d *noderpc.Decoder) (topic string, id model.Incarnation, err error) {
	topic = d.Str()
	var life string
	if d.More() {
		life = d.Str()
	}
	if err := d.Done(); err != nil {
		return "", "", err
	}
	if id, err = parseLife(life); err != nil {
		return "", "", err
	}
	return topic, id, topicName(topic)
}

// Purge tells a member that a life of a topic was deleted; one of a release that knows no
// lives is told the name. ErrPurgeDeferred while its replica still shows that life.
func (c *Client) Purge(ctx context.Context, addr, topic string, id model.Incarnation) error {
	var e noderpc.Encoder
	e.AppendStr(topic)
	shapes := []shape{{0, len(e)}}
	if id != "" {
		e.AppendStr(string(id))
		shapes = []shape{{featurePurgeLife, len(e)}, shapes[0]}
	}
	ctx, cancel := context.WithTimeout(ctx, purgeBudget)
	defer cancel()
	_, err := accepted(c.narrowing(ctx, addr, noderpc.OpPurgeTopic, e, shapes))
	return err
}

// ServePurge serves op 7.
func ServePurge(s Server, _ model.ReleaseLevel, p Purger) {
	serve(s, noderpc.OpPurgeTopic, nil, nil, func(ctx context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
		topic, id, err := decodePurge(d)
		if err == nil {
			err = p.Purge(ctx, topic, id)
		}
		return empty(), err
	})
}
