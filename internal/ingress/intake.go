package ingress

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/wal"
)

// intake is where the dispatcher's records come from: fresh ones from memory,
// and from the file what memory dropped, what a restart left, and what was left
// in the WAL on purpose. It belongs to the dispatcher's loop.
type intake struct {
	log   *wal.Log
	fresh *handover
	group group       // being placed, from memory
	tail  *wal.Reader // follows the frontier while it lags; nil = caught up
	back  *wal.Reader // reads again what was left; nil = none
	ages  ages

	retryAt time.Time // the WAL is not read before
}

func newIntake(log *wal.Log, h *handover) *intake { return &intake{log: log, fresh: h} }

// undecodableError is a record that was read whole but does not decode.
type undecodableError struct{ err error }

func (e *undecodableError) Error() string { return e.err.Error() }
func (e *undecodableError) Unwrap() error { return e.err }

func isUndecodable(err error) bool {
	var u *undecodableError
	return errors.As(err, &u)
}

// next returns the record of seq, the frontier; nil when it is not durable yet.
func (in *intake) next(seq uint64, s *scheduler) (*record, error) {
	for {
		if i := seq - in.group.first; seq >= in.group.first && i < uint64(len(in.group.entries)) {
			rec, ok := in.group.entries[i].(*record)
			if !ok {
				return nil, fmt.Errorf("%w: WAL entry of seq %d is a %T", model.ErrCorrupt, seq, in.group.entries[i])
			}
			return rec, nil
		}
		in.group = group{}
		g, file := in.fresh.take(seq)
		if len(g.entries) > 0 {
			in.group = g
			in.rest(&in.tail)
			continue
		}
		if file <= seq {
			in.rest(&in.tail)
			return nil, nil
		}
		if in.tail == nil {
			in.tail = in.log.NewReader(seq)
		}
		return in.read(in.tail, seq, s)
	}
}

// again returns a record that was left in the WAL.
func (in *intake) again(seq uint64, s *scheduler) (*record, error) {
	if in.back == nil {
		in.back = in.log.NewReader(seq)
	}
	return in.read(in.back, seq, s)
}

// read decodes the record of seq. Topic and incarnation share the strings the
// scheduler already holds.
func (in *intake) read(r *wal.Reader, seq uint64, s *scheduler) (*record, error) {
	if r.Seq() != seq {
		r.Seek(seq)
	}
	_, body, err := r.Next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("ingress WAL ends before seq %d: %w", seq, io.ErrUnexpectedEOF)
		}
		return nil, err
	}
	f, err := decodeFields(body)
	if err != nil {
		return nil, &undecodableError{err}
	}
	t := s.topics[string(f.topic)]
	if t == nil {
		t = s.topic(string(f.topic))
	}
	id := model.Incarnation("")
	if t.view != nil && string(f.incarnation) == string(t.view.ID) {
		id = t.view.ID
	} else {
		id = model.Incarnation(f.incarnation)
	}
	return f.record(t.name, id), nil
}

// rest gives a reader's file up.
func (in *intake) rest(r **wal.Reader) {
	if *r != nil {
		_ = (*r).Close() // only reading: nothing can be lost by it
		*r = nil
	}
}

func (in *intake) close() {
	in.fresh.close()
	in.group = group{}
	in.rest(&in.tail)
	in.rest(&in.back)
}
