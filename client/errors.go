package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Sentinels that a refusal matches with errors.Is: by its status, and where a status
// has several causes by its code (docs/errors.md lists the codes).
var (
	ErrBadRequest      = errors.New("narad: bad request")             // 400, 405, 415, 431
	ErrUnauthenticated = errors.New("narad: not authenticated")       // 401
	ErrForbidden       = errors.New("narad: not allowed")             // 403
	ErrNotFound        = errors.New("narad: not found")               // 404
	ErrConflict        = errors.New("narad: conflict")                // 409, whatever the cause
	ErrExists          = errors.New("narad: exists already")          // 409 on a create
	ErrNameTaken       = errors.New("narad: name is taken")           // 409: a name differs by case only; also ErrExists
	ErrTopicChanged    = errors.New("narad: topic changed")           // 409: recreated or grown meanwhile
	ErrLeaseLost       = errors.New("narad: lease is gone")           // 410 on ack, extend, nack
	ErrOffsetGone      = errors.New("narad: offset cannot be read")   // 410 on a replay
	ErrUnreadable      = errors.New("narad: record is damaged")       // 410 on a replay; also ErrOffsetGone
	ErrTooLarge        = errors.New("narad: too large")               // 413, or found out before sending
	ErrThrottled       = errors.New("narad: throttled")               // 429
	ErrUnavailable     = errors.New("narad: temporarily unavailable") // 421, 503
	ErrServer          = errors.New("narad: server failed")           // other 5xx
)

// Sentinels of the client's own.
var (
	ErrClosed    = errors.New("narad client: closed")
	ErrNoNodes   = errors.New("narad client: no base URL given")
	ErrNoLease   = errors.New("narad client: message has no lease") // a replayed message cannot be settled
	ErrBatchFull = errors.New("narad client: batch is over its limit")
)

// Error is a refusal by a server.
type Error struct {
	Status     int           // HTTP status
	Code       string        // stable machine name, "" when the answer had none
	Message    string        // for people
	Node       string        // base URL of the node that answered
	RetryAfter time.Duration // what the server asked to wait; 0 = nothing
}

func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("narad: %d %s", e.Status, http.StatusText(e.Status))
	}
	return fmt.Sprintf("narad: %d: %s", e.Status, e.Message)
}

// Is matches the sentinels of the error's status and code.
func (e *Error) Is(target error) bool {
	switch e.Status {
	case 400, 405, 415, 431:
		return target == ErrBadRequest
	case 401:
		return target == ErrUnauthenticated
	case 403:
		return target == ErrForbidden
	case 404:
		return target == ErrNotFound
	case 409:
		return target == ErrConflict || conflicts(e.Code, target)
	case 410:
		return e.gone(target)
	case 413:
		return target == ErrTooLarge
	case 429:
		return target == ErrThrottled
	case 421, 503:
		return target == ErrUnavailable
	}
	return e.Status >= 500 && target == ErrServer
}

func conflicts(code string, target error) bool {
	switch code {
	case "topic_exists", "user_exists":
		return target == ErrExists
	case "topic_name_taken":
		return target == ErrNameTaken || target == ErrExists
	case "topic_changed":
		return target == ErrTopicChanged
	}
	return false
}

func (e *Error) gone(target error) bool {
	switch e.Code {
	case codeAgedOut:
		return target == ErrOffsetGone
	case codeUnreadable:
		return target == ErrOffsetGone || target == ErrUnreadable
	}
	return target == ErrLeaseLost
}

// ConnError says that a node gave no answer: it could not be reached, the connection
// broke, or time ran out.
type ConnError struct {
	Node string // base URL
	Sent bool   // some of the request may have reached the node
	Err  error
}

func (e *ConnError) Error() string { return fmt.Sprintf("narad: %s gave no answer: %v", e.Node, e.Err) }

func (e *ConnError) Unwrap() error { return e.Err }

// callError is what a call returns: the last attempt's error, and what is known of
// all of them.
type callError struct {
	err       error // an *Error or a *ConnError
	attempts  int
	uncertain bool // some attempt may have taken effect
	retryable bool
}

func (e *callError) Error() string {
	if e.attempts > 1 {
		return fmt.Sprintf("%v (after %d attempts)", e.err, e.attempts)
	}
	return e.err.Error()
}

func (e *callError) Unwrap() error { return e.err }

// Retryable reports whether the same call may succeed later: nothing in the request
// is wrong, the cluster was not able to serve it. The client has by then used up its
// own attempts, or was not sure that repeating is safe (see Uncertain).
func Retryable(err error) bool {
	var e *callError
	return errors.As(err, &e) && e.retryable
}

// Uncertain reports whether the call behind err may have taken effect although it
// failed: some attempt got no answer, or the server failed while working on it. Only
// what changes something is ever uncertain; reads are not, nor is what a node refused
// before it began.
func Uncertain(err error) bool {
	var e *callError
	return errors.As(err, &e) && e.uncertain
}

// op is what a call does; it decides what may be repeated.
type op uint8

const (
	opRead    op = iota // changes nothing
	opReceive           // leases, which lapse by themselves when their answer is lost
	opSettle            // acks, extends, nacks: harmless to repeat
	opProduce           // stores messages: a repeat may store them twice
	opChange            // topics, schemas, users: read back before repeating
)

// wrap makes the error of a call. err is nil, an *Error, a *ConnError or a mistake
// found before anything was sent, which it returns as it is.
func wrap(err error, o op, attempts int, unsure bool) error {
	if err == nil {
		return nil
	}
	var refused *Error
	var broken *ConnError
	if !errors.As(err, &refused) && !errors.As(err, &broken) {
		return err
	}
	unsure = unsure || mayHaveApplied(err, o)
	return &callError{err: err, attempts: attempts, uncertain: unsure, retryable: transient(err)}
}

// transient reports whether the cause of err may pass.
func transient(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		var c *ConnError
		return errors.As(err, &c) && !errors.Is(err, context.Canceled)
	}
	switch e.Status {
	case 421, 429, 500, 502, 503, 504:
		return true
	}
	return false
}

// mayHaveApplied reports whether an attempt that failed with err may have taken
// effect (spec/http-api sections 10.1 and 17).
func mayHaveApplied(err error, o op) bool {
	if o == opRead || o == opReceive {
		return false
	}
	var e *Error
	if !errors.As(err, &e) {
		var c *ConnError
		return errors.As(err, &c) && c.Sent
	}
	switch {
	case e.Status == http.StatusServiceUnavailable && o == opSettle:
		return false // spec/http-api: not applied
	case e.Status == http.StatusServiceUnavailable:
		// A node's own refusal carries a code; one without is from something between,
		// which may have passed the request on.
		return e.Code == "" || e.Code == codeOutcomeUnknown
	}
	return e.Status >= 500
}

// safeToRepeat reports whether an attempt that failed with err may be made again.
func safeToRepeat(err error, o op, cautious bool) bool {
	if !transient(err) {
		return false
	}
	switch o {
	case opProduce:
		return !cautious || !mayHaveApplied(err, o)
	case opChange:
		return !mayHaveApplied(err, o)
	}
	return true
}

// Codes the client acts on.
const (
	codeAgedOut        = "offset_aged_out"
	codeUnreadable     = "record_unreadable"
	codeOutcomeUnknown = "outcome_unknown"
)

// aboutNode reports whether a refusal speaks of the node that answered, so that
// another one may well serve the same request.
func aboutNode(e *Error, o op) bool {
	switch e.Code {
	case "not_ready", "shutting_down", "disk_reserve", "batch_body_budget", "too_many_in_flight", "node_draining":
		return true
	}
	// Every node accepts a produce, whoever owns the partition.
	return o == opProduce
}
