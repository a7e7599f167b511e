package httpapi

import (
	"context"
	"errors"
	"log/slog"

	"github.com/narad-mq/narad/internal/model"
)

// audit writes the audit line of one change (spec/http-api section 18), once it
// passed its body checks. err is nil for a change that was applied. The actor is ""
// with security off. For a change that another node sent here that node writes the line.
func (a *API) audit(c *call, event, target string, status int, err error, extra ...slog.Attr) {
	if c.onBehalf {
		return
	}
	outcome, level := auditOutcome(status, err)
	attrs := append([]slog.Attr{
		slog.String("component", "audit"),
		slog.String("event", event),
		slog.String("actor", c.caller.Username()),
		slog.String("target", target),
		slog.Int("status", status),
		slog.String("outcome", outcome),
	}, extra...)
	a.log.LogAttrs(context.Background(), level, "audit", attrs...)
}

// audited writes the audit line of a change that is decided, and returns what refuses
// it; status is that of success.
func (a *API) audited(c *call, event, target string, status int, err error, extra ...slog.Attr) error {
	if err == nil {
		a.audit(c, event, target, status, nil, extra...)
		return nil
	}
	r := translate(c.route.op(), err)
	a.audit(c, event, target, r.status, err, extra...)
	return r
}

func auditOutcome(status int, err error) (string, slog.Level) {
	switch {
	case err == nil:
		return "ok", slog.LevelInfo
	case status == 403:
		return "denied", slog.LevelWarn
	case status == statusClientGone, errors.Is(err, model.ErrOutcomeUnknown), errors.Is(err, context.DeadlineExceeded):
		return "unknown", slog.LevelInfo
	case status < 500:
		return "rejected", slog.LevelInfo
	}
	return "failed", slog.LevelInfo
}
