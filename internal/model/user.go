package model

import (
	"errors"
	"strconv"
)

// Action is what a grant allows (spec/http-api section 4).
type Action string

// The actions.
const (
	ActionProduce Action = "produce" // produce and batch produce
	ActionConsume Action = "consume" // consume, replay, ack, extend, nack
	ActionCreate  Action = "create"  // create topics of matching names
	ActionAdmin   Action = "admin"   // everything; takes no patterns
)

// Grant is one action on the topics its patterns match (spec/http-api section 4).
type Grant struct {
	Action   Action   `json:"action"`
	Patterns []string `json:"patterns,omitempty"`
}

// User is what the API shows of a user (spec/http-api section 7.5). Field order is
// the order of emission. Values are shared: copy before changing.
type User struct {
	Username    string  `json:"username"`
	Grants      []Grant `json:"grants,omitempty"`
	Root        bool    `json:"root,omitempty"`
	CreatedAtMS int64   `json:"created_at_ms"` // Unix milliseconds
	UpdatedAtMS int64   `json:"updated_at_ms"` // Unix milliseconds
}

// Account is the replicated record of a user: the user and what it proves itself
// with. It stays inside the node planes; the API answers with its User alone.
type Account struct {
	User
	PasswordHash string `json:"password_hash"` // bcrypt
}

// RootUsername is the name of the root admin (spec/http-api ROOT-1).
const RootUsername = "admin"

// Refusals for want of credentials or rights. httpapi tests for these four and
// answers with the error's own text.
var (
	// ErrUnauthenticated: 401 with a challenge; the error is an Unauthenticated.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrForbidden: 403; the error is a Forbidden.
	ErrForbidden = errors.New("forbidden")
	// ErrAuthThrottled: 429; the error is an *AuthThrottledError.
	ErrAuthThrottled = errors.New("too many failed authentication attempts")
	// ErrAuthUnavailable: 500, the user store cannot be read; wrapped with why.
	ErrAuthUnavailable = errors.New("authentication unavailable")
)

// Unauthenticated is a refusal for want of valid credentials. It matches
// ErrUnauthenticated; its text is what the client reads.
type Unauthenticated string

// The two cases of spec/http-api AUTH-2 and AUTH-3.
const (
	CredentialsRequired Unauthenticated = "authentication required"
	CredentialsInvalid  Unauthenticated = "invalid credentials"
)

func (e Unauthenticated) Error() string { return string(e) }

// Is makes the error match ErrUnauthenticated.
func (e Unauthenticated) Is(target error) bool { return target == ErrUnauthenticated }

// Forbidden is a refusal for want of a right. It matches ErrForbidden; its text is
// what the client reads. The texts are in package access.
type Forbidden string

func (e Forbidden) Error() string { return string(e) }

// Is makes the error match ErrForbidden.
func (e Forbidden) Is(target error) bool { return target == ErrForbidden }

// AuthThrottledError says when an attempt could pass again. It matches
// ErrAuthThrottled.
type AuthThrottledError struct {
	RetryAfter int // whole seconds, at least 1 (spec/http-api AUTH-12)
}

func (e *AuthThrottledError) Error() string { return ErrAuthThrottled.Error() }

// RetryAfterHeader is the value of the header Retry-After.
func (e *AuthThrottledError) RetryAfterHeader() string { return strconv.Itoa(e.RetryAfter) }

// Is makes the error match ErrAuthThrottled.
func (e *AuthThrottledError) Is(target error) bool { return target == ErrAuthThrottled }
