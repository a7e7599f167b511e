package httpapi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/narad-mq/narad/internal/ingress"
	"github.com/narad-mq/narad/internal/model"
)

// mapping is a row of the table from sentinel errors to answers.
type mapping struct {
	is         error
	status     int
	code       string
	text       string // "" = the error's own text, from the sentinel's on
	retryAfter string
	plain      bool // answered as plain text (BODY-4); a batch shows its code
}

// mappings is the table (docs/errors.md). The first row that matches decides.
// What no row matches is a 500 whose text is the operation and "failed".
var mappings = [...]mapping{
	{is: model.ErrNoLease, status: 410, code: "lease_gone", text: model.ErrNoLease.Error()},
	{is: model.ErrTopicNotFound, status: 404, code: "topic_not_found", text: model.ErrTopicNotFound.Error()},
	{is: model.ErrUserNotFound, status: 404, code: "user_not_found", text: model.ErrUserNotFound.Error()},
	{is: model.ErrUserExists, status: 409, code: "user_exists", text: model.ErrUserExists.Error()},
	{is: model.ErrDiskReserve, status: 503, code: "disk_reserve", text: model.ErrDiskReserve.Error(), retryAfter: "1"},
	{is: model.ErrBadHandle, status: 400, code: "invalid_receipt_handle", text: model.ErrBadHandle.Error()},
	{is: model.ErrTooLarge, status: 413, code: codeMsgTooLarge, text: model.ErrTooLarge.Error()},
	{is: model.ErrDelayedChild, status: 409, code: "delayed_child", text: model.ErrDelayedChild.Error()},
	{is: model.ErrNotOwner, status: 421, code: "not_owner", text: model.ErrNotOwner.Error()},
	{is: model.ErrUnreadable, status: 410, code: "record_unreadable", text: model.ErrUnreadable.Error()},
	{is: model.ErrNotLinked, status: 404, code: "not_linked", text: model.ErrNotLinked.Error()},
	{is: model.ErrTopicExists, status: 409, code: "topic_exists", text: model.ErrTopicExists.Error()},
	{is: model.ErrTopicChanged, status: 409, code: "topic_changed", text: model.ErrTopicChanged.Error()},
	{is: model.ErrNameTaken, status: 409, code: "topic_name_taken"},
	{is: model.ErrSchemaVersion, status: 409, code: "schema_version_conflict"},
	{is: model.ErrConflict, status: 409, code: "conflict"},
	{is: model.ErrInvalid, status: 400, code: codeInvalid},
	{is: model.ErrAllDraining, status: 503, code: "all_members_draining", text: model.ErrAllDraining.Error()},
	{is: model.ErrAuthUnavailable, status: 500, code: "authentication_unavailable", text: model.ErrAuthUnavailable.Error()},
	{is: model.ErrSchemaBusy, status: 503, code: "schema_busy", text: model.ErrSchemaBusy.Error()},
	{is: model.ErrShuttingDown, status: 503, code: codeShuttingDown, text: model.ErrShuttingDown.Error()},
	{is: model.ErrOwnerDown, status: 503, code: "owner_down", text: model.ErrOwnerDown.Error(), retryAfter: "1", plain: true},
	{is: model.ErrOwnerUnreachable, status: 502, code: "owner_unreachable", text: model.ErrOwnerUnreachable.Error(), plain: true},
	{is: model.ErrAckNotDelivered, status: 503, code: "ack_not_delivered", text: model.ErrAckNotDelivered.Error(), retryAfter: "1", plain: true},
	{is: model.ErrAckUnanswered, status: 502, code: "ack_unanswered", text: model.ErrAckUnanswered.Error(), plain: true},
	{is: model.ErrMemberNotFound, status: 404, code: "member_not_found"},
	{is: model.ErrUnavailable, status: 503, code: codeControlPlane, text: model.ErrUnavailable.Error()},
}

// translate turns any error of a handler into the answer. op is the operation's
// name in the text of a 500.
func translate(op string, err error) *refusal {
	switch r := err.(type) {
	case *refusal:
		return r
	case fixed:
		return fixedRefusals[r]
	}
	var in *ingress.MessageError
	if errors.As(err, &in) {
		return inMessage(in.Index, translate(op, in.Err))
	}
	if r := denied(err); r != nil {
		return r
	}
	var aged *model.AgedOutError
	if errors.As(err, &aged) {
		return &refusal{status: 410, code: "offset_aged_out", text: aged.Error()}
	}
	if r := ofPeer(err); r != nil {
		return r
	}
	if errors.Is(err, model.ErrOutcomeUnknown) {
		return outcomeUnknown(tail(err, model.ErrOutcomeUnknown), err)
	}
	for _, m := range mappings {
		if !errors.Is(err, m.is) {
			continue
		}
		text := m.text
		if text == "" {
			text = tail(err, m.is)
		}
		return &refusal{status: m.status, code: m.code, text: text, retryAfter: m.retryAfter, plain: m.plain, cause: err}
	}
	if errors.Is(err, context.Canceled) {
		return fixedRefusals[errClientGone]
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return outcomeUnknown(model.ErrOutcomeUnknown.Error()+": no decision within the time of one request", err)
	}
	return &refusal{status: 500, code: codeInternal, text: op + " failed", cause: err}
}

// denied turns a refusal for want of credentials or rights into the answer; nil for
// any other error.
func denied(err error) *refusal {
	var who model.Unauthenticated
	var what model.Forbidden
	var when *model.AuthThrottledError
	switch {
	case errors.As(err, &what):
		return &refusal{status: 403, code: "forbidden", text: what.Error()}
	case errors.As(err, &who) && who == model.CredentialsRequired:
		return &refusal{status: 401, code: "authentication_required", text: who.Error()}
	case errors.As(err, &who):
		return &refusal{status: 401, code: "invalid_credentials", text: who.Error()}
	case errors.As(err, &when):
		return &refusal{status: 429, code: "too_many_failed_attempts", text: when.Error(), retryAfter: when.RetryAfterHeader()}
	}
	return nil
}

// outcomeUnknown is E-CP2: the change may still be applied.
func outcomeUnknown(text string, cause error) *refusal {
	return &refusal{status: 503, code: codeOutcomeUnknown, text: model.ErrUnavailable.Error() + ": " + text, cause: cause}
}

// inMessage says which message of a batch a refusal is about. Answers that are
// not about one message (5xx, a missing topic) stay as they are.
func inMessage(i int, r *refusal) *refusal {
	if r.status >= 499 || r.status == 404 {
		return r
	}
	out := *r
	out.text = fmt.Sprintf("message %d: %s", i, r.text)
	return &out
}

// tail is the text of err from its sentinel's text on: context that inner floors
// put in front of it is for logs, not for clients.
func tail(err, sentinel error) string {
	text := err.Error()
	if i := strings.Index(text, sentinel.Error()); i >= 0 {
		return text[i:]
	}
	return text
}
