package peer

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// Describer describes partitions this node owns: one, or all with AnyPartition. It opens
// no log.
type Describer interface {
	PartitionStats(ctx context.Context, topic string, partition int) ([]model.PartitionStats, error)
}

// Tailer tells the exact high watermark of a partition this node owns, for one life of its
// topic: a broker.Broker. ErrTopicChanged for another life.
type Tailer interface {
	HighWatermark(topic string, id model.Incarnation, partition int) (int64, error)
}

// statsRequest is op 8. With life, only the high watermark of a partition is asked for,
// and exact.
type statsRequest struct {
	topic     string
	partition int
	life      model.Incarnation
}

func (r *statsRequest) encode(e *noderpc.Encoder) error {
	e.AppendStr(r.topic)
	if err := e.AppendPartition(r.partition); err != nil {
		return err
	}
	if r.life != "" {
		e.AppendStr(string(r.life))
	}
	return nil
}

func decodeStats(d *noderpc.Decoder, level model.ReleaseLevel) (r statsRequest, err error) {
	r.topic, r.partition = d.Str(), int(d.I32())
	var life string
	if knows(level, featureTail) && d.More() {
		life = d.Str()
	}
	if err := d.Done(); err != nil {
		return r, err
	}
	if r.life, err = parseLife(life); err != nil {
		return r, err
	}
	if r.partition < AnyPartition || r.life != "" && r.partition < 0 {
		return r, fmt.Errorf("%w: partition %d", model.ErrInvalid, r.partition)
	}
	return r, topicName(r.topic)
}

// Stats describes the partitions of a topic that a node owns: one, or all with
// AnyPartition.
func (c *Client) Stats(ctx context.Context, addr, topic string, partition int) ([]model.PartitionStats, error) {
	var e noderpc.Encoder
	if err := (&statsRequest{topic: topic, partition: partition}).encode(&e); err != nil {
		return nil, err
	}
	var out []model.PartitionStats
	return out, c.ask(ctx, addr, noderpc.OpTopicPartitionStats, statsBudget, e, &out)
}

// HighWatermark is where one life of a partition ends at its owner, exactly.
// ErrTopicChanged when the owner knows another life of the name. An owner of a release
// that cannot be asked about a life is refused with ErrUnsupported: its answer could be
// of another, or a lower bound.
func (c *Client) HighWatermark(ctx context.Context, addr, topic string, id model.Incarnation, partition int) (int64, error) {
	if id == "" || partition < 0 {
		return 0, fmt.Errorf("%w: high watermark of partition %d of %q, incarnation %q", model.ErrInvalid, partition, topic, id)
	}
	var e noderpc.Encoder
	if err := (&statsRequest{topic, partition, id}).encode(&e); err != nil {
		return 0, err
	}
	if !knows(c.level, featureTail) {
		return 0, fmt.Errorf("%w: high watermark of one life", ErrUnsupported)
	}
	var out []model.PartitionStats
	if err := c.ask(ctx, addr, noderpc.OpTopicPartitionStats, statsBudget, e, &out); err != nil {
		if errors.Is(err, model.ErrTrailingData) {
			return 0, fmt.Errorf("%w: high watermark of one life: %w", ErrUnsupported, err)
		}
		return 0, err
	}
	if len(out) != 1 || out[0].Index != partition || out[0].HighWatermark < 0 {
		return 0, fmt.Errorf("%s at %s: %d entries for the tail of partition %d", noderpc.OpTopicPartitionStats, addr, len(out), partition)
	}
	return out[0].HighWatermark, nil
}

// ServeStats serves op 8.
func ServeStats(s Server, level model.ReleaseLevel, d Describer, t Tailer) {
	serve(s, noderpc.OpTopicPartitionStats, nil, nil, func(ctx context.Context, dec *noderpc.Decoder) (noderpc.Response, error) {
		r, err := decodeStats(dec, level)
		if err != nil {
			return noderpc.Response{}, err
		}
		var out []model.PartitionStats
		if r.life != "" {
			high, err := t.HighWatermark(r.topic, r.life, r.partition)
			if err != nil {
				return noderpc.Response{}, err
			}
			out = []model.PartitionStats{{Index: r.partition, HighWatermark: high, NextOffset: high}}
		} else if out, err = d.PartitionStats(ctx, r.topic, r.partition); err != nil {
			return noderpc.Response{}, err
		}
		if out == nil {
			out = []model.PartitionStats{}
		}
		return jsonResponse(http.StatusOK, out), nil
	})
}

// CursorLag is how far one cursor of a fan-out link has come.
type CursorLag struct {
	Child         string `json:"child"`
	Epoch         string `json:"epoch"`     // of the attach it belongs to
	Partition     int    `json:"partition"` // of the parent
	Next          int64  `json:"next"`      // offset it ships next
	HighWatermark int64  `json:"high_watermark"`
	// OldestPendingMS is when the record at Next was committed, Unix milliseconds; 0 when
	// there is none or it is not known.
	OldestPendingMS int64 `json:"oldest_pending_ms,omitempty"`
}

// Cursors reports the cursors that run on this node, of one child or of all ("").
type Cursors interface {
	Cursors(ctx context.Context, parent, child string) ([]CursorLag, error)
}

// cursorsRequest is op 17.
type cursorsRequest struct{ parent, child string }

func (r *cursorsRequest) encode(e *noderpc.Encoder) {
	e.AppendStr(r.parent)
	if r.child != "" {
		e.AppendStr(r.child)
	}
}

func decodeCursors(d *noderpc.Decoder) (r cursorsRequest, err error) {
	r.parent = d.Str()
	if d.More() {
		r.child = d.Str()
	}
	if err := d.Done(); err != nil {
		return r, err
	}
	if err := bounded("child", r.child, nameBytesMax); err != nil {
		return r, err
	}
	return r, topicName(r.parent)
}

// Cursors asks a node for the cursors of a parent that run there, of one child or of all
// (""). One that does not report is not in the answer.
func (c *Client) Cursors(ctx context.Context, addr, parent, child string) ([]CursorLag, error) {
	var e noderpc.Encoder
	(&cursorsRequest{parent, child}).encode(&e)
	var out []CursorLag
	return out, c.ask(ctx, addr, noderpc.OpFanoutCursors, statsBudget, e, &out)
}

// ServeCursors serves op 17.
func ServeCursors(s Server, _ model.ReleaseLevel, c Cursors) {
	serve(s, noderpc.OpFanoutCursors, nil, nil, func(ctx context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
		r, err := decodeCursors(d)
		if err != nil {
			return noderpc.Response{}, err
		}
		out, err := c.Cursors(ctx, r.parent, r.child)
		if err != nil {
			return noderpc.Response{}, err
		}
		if out == nil {
			out = []CursorLag{}
		}
		return jsonResponse(http.StatusOK, out), nil
	})
}
