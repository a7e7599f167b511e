package httpapi

import (
	"strconv"
	"strings"

	"github.com/narad-mq/narad/internal/model"
)

// refusal is an answer other than success: what the client reads. It is the only
// error handlers make themselves; everything else passes through the table below.
type refusal struct {
	status     int
	code       string // stable machine name; "" = plain-text answer
	text       string
	retryAfter string // seconds; "" = no header
	plain      bool   // the answer is text, although there is a code
	cause      error  // what a 5xx logs; nil = the text says it
	from       *relay // an answer of another node that is passed on as it is; nil = made here
}

func (r *refusal) Error() string { return r.text }

// Unwrap is the cause, so that an outcome that is not known stays visible.
func (r *refusal) Unwrap() error { return r.cause }

// body is the JSON form of a refusal: {"error":...,"code":...}. It is valid JSON
// whatever the text quotes.
func (r *refusal) body() []byte {
	text := strings.ToValidUTF8(r.text, "\ufffd")
	dst := make([]byte, 0, len(text)+len(r.code)+32)
	dst = append(dst, `{"error":`...)
	dst = appendString(dst, text)
	dst = append(dst, `,"code":`...)
	dst = appendString(dst, r.code)
	return append(dst, '}', '\n')
}

// statusClientGone is recorded for a client that left; it never receives it.
const statusClientGone = 499

// The codes of refusals that more than one place makes. docs/errors.md lists all.
const (
	codeInvalid        = "invalid_argument"
	codeInvalidJSON    = "invalid_json"
	codeBodyTooLarge   = "body_too_large"
	codeMsgTooLarge    = "message_too_large"
	codeMsgRequired    = "message_required"
	codeHandleNeeded   = "receipt_handle_required"
	codeInternal       = "internal"
	codeControlPlane   = "control_plane_unavailable"
	codeOutcomeUnknown = "outcome_unknown"
	codeNotReady       = "not_ready"
	codeShuttingDown   = "shutting_down"
	codeClientGone     = "client_closed_request"
)

// fixed is a refusal that carries nothing of the request.
type fixed uint8

const (
	errNoRoute fixed = iota
	errMethod
	errCrossSite
	errEncoding
	errNotReady
	errStopping
	errPanic
	errClientGone
	errBodyTooLarge
	errUserBody
	errMessageTooBig
	errBodyTimeout
	errBodyUnreadable
	errMessage
	errMessages
	errTooMany
	errPayloadBase64
	errKeyBase64
	errBatchQuery
	errBudget
	errPartitionRange
	errReplayPart
	errBatchHeader
	errHandleRequired
	errTooManyHandles
	errSchemaNull
)

func (f fixed) Error() string { return fixedRefusals[f].text }

// fixedRefusals are what the fixed ones answer.
var fixedRefusals = [...]*refusal{
	errNoRoute:        {status: 404, text: "404 page not found"},
	errMethod:         {status: 405, text: "Method Not Allowed"},
	errCrossSite:      {status: 415, code: "unsupported_media_type", text: "state-changing requests must send Content-Type: application/json or application/octet-stream, or an X-Narad-Client header"},
	errEncoding:       {status: 415, code: "unsupported_content_encoding", text: "unsupported Content-Encoding: want zstd, gzip or none"},
	errNotReady:       {status: 503, code: codeNotReady, text: "not ready"},
	errStopping:       {status: 503, code: codeShuttingDown, text: "shutting down"},
	errPanic:          {status: 500, code: codeInternal, text: "internal server panic"},
	errClientGone:     {status: statusClientGone, code: codeClientGone, text: "client closed request"},
	errBodyTooLarge:   {status: 413, code: codeBodyTooLarge, text: "request body too large"},
	errUserBody:       {status: 400, code: codeBodyTooLarge, text: "request body too large"}, // LIM-1
	errMessageTooBig:  {status: 413, code: codeMsgTooLarge, text: "message too large"},
	errBodyTimeout:    {status: 400, code: "body_unreadable", text: "the request body did not arrive in time"},
	errBodyUnreadable: {status: 400, code: "body_unreadable", text: "the request body could not be read"},
	errMessage:        {status: 400, code: codeMsgRequired, text: "message required"},
	errMessages:       {status: 400, code: "messages_required", text: "messages required"},
	errTooMany:        {status: 400, code: "too_many_messages", text: "too many messages: more than " + strconv.Itoa(model.BatchMessagesMax)},
	errPayloadBase64:  {status: 400, code: "invalid_base64", text: "payload is not a string of standard padded base64"},
	errKeyBase64:      {status: 400, code: "invalid_base64", text: "key is not standard padded base64"},
	errBatchQuery:     {status: 400, code: codeInvalid, text: "invalid argument: key and partition belong to each message of a batch, not to the query"},
	errBudget:         {status: 503, code: "batch_body_budget", text: "batch produce bodies in flight on this node are at their limit; retry", retryAfter: "1"},
	errPartitionRange: {status: 400, code: codeInvalid, text: "invalid argument: partition out of range"},
	errReplayPart:     {status: 400, code: codeInvalid, text: "partition required for replay-mode consume"},
	errBatchHeader:    {status: 400, code: "client_header_required", text: "batch consume requires an X-Narad-Client header"},
	errHandleRequired: {status: 400, code: codeHandleNeeded, text: "receipt_handle required"},
	errSchemaNull:     {status: 400, code: codeInvalid, text: "invalid argument: schema: the document must be a JSON object or true"},
	errTooManyHandles: {status: 400, code: "too_many_receipt_handles", text: "too many receipt_handles: more than " + strconv.Itoa(model.ScanMessagesMax)},
}

// invalid refuses an argument; text says what is wrong with it.
func invalid(text string) *refusal {
	return &refusal{status: 400, code: codeInvalid, text: "invalid argument: " + text}
}

// invalidJSON refuses a body; detail says where it stops being what it should.
func invalidJSON(detail string) *refusal {
	return &refusal{status: 400, code: codeInvalidJSON, text: "invalid json: " + detail}
}
