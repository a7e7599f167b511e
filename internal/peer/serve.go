package peer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// Server takes the handlers of operations: a *noderpc.Server.
type Server interface {
	Handle(op noderpc.Op, h noderpc.Handler, gate func(body []byte) noderpc.Gate)
	// Logger gets why an operation failed in a way its caller is not told.
	Logger() *slog.Logger
}

// Hint names the leader for a 421: its member id and API address, either "" when not
// known.
type Hint func() (id, addr string)

const (
	typeJSON   = "application/json"
	typeBinary = "application/octet-stream"
)

// handler decodes a request and answers it.
type handler func(ctx context.Context, d *noderpc.Decoder) (noderpc.Response, error)

// serve registers h. Its errors become refusals; those that say nothing to the caller are
// logged here, where the cause is.
func serve(s Server, op noderpc.Op, gate func(body []byte) noderpc.Gate, hint Hint, h handler) {
	s.Handle(op, func(ctx context.Context, body []byte) noderpc.Response {
		res, err := h(ctx, noderpc.NewDecoder(body))
		if err == nil {
			return res
		}
		e := refuse(op, err)
		if e.Status == http.StatusInternalServerError {
			s.Logger().Error("peer request failed", slog.String("op", op.String()), slog.Any("err", err))
		}
		if e.Code == codeNotLeader && hint != nil && e.LeaderID == "" && e.LeaderAddr == "" {
			e.LeaderID, e.LeaderAddr = hint()
		}
		return e.response()
	}, gate)
}

// without answers an operation as a release that does not have it.
func without(s Server, op noderpc.Op) {
	s.Handle(op, func(context.Context, []byte) noderpc.Response {
		return (&StatusError{Status: http.StatusBadRequest, Text: ErrUnsupported.Error()}).response()
	}, nil)
}

func always(g noderpc.Gate) func([]byte) noderpc.Gate {
	return func([]byte) noderpc.Gate { return g }
}

func empty() noderpc.Response { return noderpc.Response{Status: http.StatusNoContent} }

// jsonResponse encodes v, which always encodes: it is made of strings, numbers and lists.
func jsonResponse(status int, v any) noderpc.Response {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("peer: encode an answer: %v", err))
	}
	return noderpc.Response{Status: status, ContentType: typeJSON, Body: append(b, '\n')}
}

// bounded refuses a string longer than a field may be.
func bounded(field, s string, most int) error {
	if len(s) > most {
		return fmt.Errorf("%w: %s of %d bytes, at most %d", model.ErrInvalid, field, len(s), most)
	}
	return nil
}

// topicName checks a topic's name as any stored one may be.
func topicName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: no topic", model.ErrInvalid)
	}
	return bounded("topic", name, nameBytesMax)
}
