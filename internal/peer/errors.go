package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// ErrUnreached: nothing of the request can have been delivered. After any other error of
// a call that is not a *StatusError its outcome is unknown.
var ErrUnreached = noderpc.ErrUnreached

// StatusError is a peer's refusal. It matches the sentinels of package model that its
// code stands for, or, from a release that sends no code, its text or its status; and
// errors.As finds the *model.AgedOutError and the model.Forbidden it carries. What is
// passed on to a client is Status, ContentType and Body.
type StatusError struct {
	Status               int
	Text, Code           string
	ContentType          string
	Body                 []byte
	LeaderID, LeaderAddr string // of a 421 not_leader; either may be empty
}

func (e *StatusError) Error() string { return e.Text }

// Is makes the error match what it stands for.
func (e *StatusError) Is(target error) bool {
	if target == ErrUnsupported {
		return e.Status == http.StatusBadRequest && strings.Contains(e.Text, ErrUnsupported.Error())
	}
	r, ok := e.row()
	return ok && errors.Is(r.is, target)
}

// As fills in the error types of package model that carry more than a text.
func (e *StatusError) As(target any) bool {
	switch t := target.(type) {
	case **model.AgedOutError:
		if e.Status != http.StatusGone {
			return false
		}
		var aged model.AgedOutError
		// Its text is the form it crosses in, so that clients read the same everywhere.
		if n, _ := fmt.Sscanf(e.Text, agedOutFormat, &aged.Offset, &aged.Oldest); n == 2 {
			*t = &aged
			return true
		}
	case *model.Forbidden:
		if e.Status == http.StatusForbidden {
			*t = model.Forbidden(e.Text)
			return true
		}
	}
	return false
}

// agedOutFormat is the text of a model.AgedOutError.
const agedOutFormat = "offset %d aged out of retention (oldest retained: %d)"

// row is the row of the tables the refusal stands for.
func (e *StatusError) row() (refusal, bool) {
	if e.Code != "" {
		for _, r := range refusals {
			if r.status == e.Status && r.code == e.Code {
				return r, true
			}
		}
	} else {
		for _, r := range refusals {
			if r.status == e.Status && strings.Contains(e.Text, r.sentence()) {
				return r, true
			}
		}
	}
	for _, r := range statusRows {
		if r.status == e.Status {
			return r, true
		}
	}
	return refusal{}, false
}

// refusal is a row of the table between errors and what crosses.
type refusal struct {
	is     error
	status int
	code   string
	own    bool   // the text is the error's own, from the sentinel's on
	text   string // "" = the sentinel's
}

// sentence is the fixed part of the text.
func (r refusal) sentence() string {
	if r.text != "" {
		return r.text
	}
	return r.is.Error()
}

const (
	codeNotLeader = "not_leader"
	codeUnknown   = "outcome_unknown"
	codeForbidden = "forbidden"
	codeInternal  = "internal"
)

// refusals is the table. The first row that matches an error decides. Statuses, codes and
// texts of what a client of the API can meet are those of package httpapi; the rows below
// the blank line are met by nodes alone.
var refusals = [...]refusal{
	{is: model.ErrNoLease, status: 410, code: "lease_gone"},
	{is: model.ErrTopicNotFound, status: 404, code: "topic_not_found"},
	{is: model.ErrUserNotFound, status: 404, code: "user_not_found"},
	{is: model.ErrUserExists, status: 409, code: "user_exists"},
	{is: model.ErrDiskReserve, status: 503, code: "disk_reserve"},
	{is: model.ErrBadHandle, status: 400, code: "invalid_receipt_handle"},
	{is: model.ErrTooLarge, status: 413, code: "message_too_large"},
	{is: model.ErrDelayedChild, status: 409, code: "delayed_child"},
	{is: model.ErrNotOwner, status: 421, code: "not_owner"},
	{is: model.ErrUnreadable, status: 410, code: "record_unreadable"},
	{is: model.ErrOffsetGone, status: 410, code: "offset_aged_out", own: true},
	{is: model.ErrNotLinked, status: 404, code: "not_linked"},
	{is: model.ErrTopicExists, status: 409, code: "topic_exists"},
	{is: model.ErrTopicChanged, status: 409, code: "topic_changed"},
	{is: model.ErrNameTaken, status: 409, code: "topic_name_taken", own: true},
	{is: model.ErrSchemaVersion, status: 409, code: "schema_version_conflict", own: true},
	{is: model.ErrConflict, status: 409, code: "conflict", own: true},
	{is: model.ErrInvalid, status: 400, code: "invalid_argument", own: true},
	{is: model.ErrAllDraining, status: 503, code: "all_members_draining"},
	{is: model.ErrSchemaBusy, status: 503, code: "schema_busy"},
	{is: model.ErrShuttingDown, status: 503, code: "shutting_down"},

	{is: model.ErrNotLeader, status: 421, code: codeNotLeader, text: "not the metastore leader"},
	{is: model.ErrOutcomeUnknown, status: 503, code: codeUnknown, own: true},
	{is: model.ErrIncarnation, status: 412, code: "incarnation"},
	{is: model.ErrHeldBack, status: 412, code: "old_release", own: true},
	{is: model.ErrPurgeDeferred, status: 503, code: "purge_deferred"},
	{is: model.ErrTrailingData, status: 400, code: "trailing_data"},
	{is: model.ErrOlderRelease, status: 409, code: "older_release", own: true},
	{is: model.ErrMemberRemoved, status: 409, code: "member_removed"},
	{is: model.ErrMemberNotFound, status: 404, code: "member_not_found", own: true},
	{is: model.ErrUnavailable, status: 503, code: "control_plane_unavailable"},
}

// statusRows say what a status stands for when neither code nor text is known.
var statusRows = [...]refusal{
	{is: model.ErrInvalid, status: 400},
	{is: model.ErrTopicNotFound, status: 404},
	{is: model.ErrConflict, status: 409},
	{is: model.ErrNoLease, status: 410},
	{is: model.ErrIncarnation, status: 412},
	{is: model.ErrTooLarge, status: 413},
	{is: model.ErrNotOwner, status: 421},
	{is: model.ErrUnavailable, status: 503},
}

// refuse turns an error of a handler into a refusal. A *StatusError it made itself is one;
// one that came from another node it asked says nothing about this one. op names the operation in the text of
// a 500, which says no more; the cause is for the log.
func refuse(op noderpc.Op, err error) *StatusError {
	var passed *StatusError
	var forbidden model.Forbidden
	switch {
	case errors.As(err, &passed) && passed.Body == nil:
		return passed
	case errors.As(err, &passed): // of a third node, about which this caller asked nothing
		return refuse(op, model.ErrUnavailable)
	case errors.As(err, &forbidden):
		return &StatusError{Status: http.StatusForbidden, Code: codeForbidden, Text: forbidden.Error()}
	case errors.Is(err, noderpc.ErrTrailing):
		err = fmt.Errorf("%w: %w", model.ErrTrailingData, err)
	case errors.Is(err, noderpc.ErrTruncated), errors.Is(err, noderpc.ErrPartition):
		err = fmt.Errorf("%w: %s request: %w", model.ErrInvalid, op, err)
	}
	for _, r := range refusals {
		if !errors.Is(err, r.is) {
			continue
		}
		e := &StatusError{Status: r.status, Code: r.code, Text: r.sentence()}
		if r.own {
			e.Text = tail(err, r.is)
		}
		var aged *model.AgedOutError
		if errors.As(err, &aged) {
			e.Text = aged.Error()
		}
		if r.code == codeUnknown {
			e.Text = model.ErrUnavailable.Error() + ": " + e.Text
		}
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return refuse(op, fmt.Errorf("%w: %w", model.ErrUnavailable, err))
	}
	return &StatusError{Status: http.StatusInternalServerError, Code: codeInternal, Text: opText(op) + " failed"}
}

// opText is how the API names an operation.
func opText(op noderpc.Op) string {
	switch op {
	case noderpc.OpAck, noderpc.OpExtendAck, noderpc.OpNack, noderpc.OpAckBatch:
		return noderpc.OpAck.String()
	}
	return op.String()
}

// tail is the text of err from its sentinel's on: what inner floors put in front of it is
// for logs.
func tail(err, sentinel error) string {
	text := err.Error()
	if i := strings.Index(text, sentinel.Error()); i >= 0 {
		return text[i:]
	}
	return text
}

// wireRefusal is the JSON of a refusal.
type wireRefusal struct {
	Error string `json:"error"`
	Code  string `json:"code,omitempty"`
	// Both are there in a 421 not_leader, and in no other.
	LeaderID   *string `json:"leader_id,omitempty"`
	LeaderAddr *string `json:"leader_addr,omitempty"`
}

// response encodes the refusal.
func (e *StatusError) response() noderpc.Response {
	w := wireRefusal{Error: e.Text, Code: e.Code}
	if e.Code == codeNotLeader {
		w.LeaderID, w.LeaderAddr = &e.LeaderID, &e.LeaderAddr
	}
	return jsonResponse(e.Status, w)
}

// refusalOf decodes a refusal. Bytes that are not its JSON are its text.
func refusalOf(res noderpc.Response) *StatusError {
	e := &StatusError{Status: res.Status, ContentType: res.ContentType, Body: res.Body}
	var w wireRefusal
	if len(res.Body) <= refusalBytesMax && json.Unmarshal(res.Body, &w) == nil {
		e.Text, e.Code = w.Error, w.Code
		if w.LeaderID != nil && len(*w.LeaderID) <= nameBytesMax {
			e.LeaderID = *w.LeaderID
		}
		if w.LeaderAddr != nil && len(*w.LeaderAddr) <= addrBytesMax {
			e.LeaderAddr = *w.LeaderAddr
		}
	}
	if e.Text == "" {
		e.Text = strings.TrimSpace(string(res.Body[:min(len(res.Body), refusalTextMax)]))
	}
	if e.Text == "" {
		e.Text = fmt.Sprintf("status %d", res.Status)
	}
	return e
}
