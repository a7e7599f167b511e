package client

import (
	"context"
	"net/http"
	"net/url"
)

// Action is what a grant allows.
type Action string

// The actions of grants.
const (
	ActionProduce Action = "produce"
	ActionConsume Action = "consume" // also replay, ack, extend, nack
	ActionCreate  Action = "create"  // topics of matching names; the creator owns them
	ActionAdmin   Action = "admin"   // everything; takes no patterns
)

// Grant allows an action on the topics whose name matches a pattern: a name, or a
// prefix that ends in *.
type Grant struct {
	Action   Action   `json:"action"`
	Patterns []string `json:"patterns,omitempty"`
}

// User is an account of the cluster. Passwords are never told.
type User struct {
	Username    string  `json:"username"`
	Grants      []Grant `json:"grants,omitempty"`
	Root        bool    `json:"root,omitempty"`
	CreatedAtMS int64   `json:"created_at_ms"` // Unix milliseconds
	UpdatedAtMS int64   `json:"updated_at_ms"`
}

// CreateUser makes an account; a password has 1 to 72 bytes. A name that exists is
// ErrExists.
func (c *Client) CreateUser(ctx context.Context, username, password string, grants ...Grant) (User, error) {
	in := struct {
		Username string  `json:"username"`
		Password string  `json:"password"`
		Grants   []Grant `json:"grants,omitempty"`
	}{username, password, grants}
	var out User
	err := c.doJSON(ctx, &request{op: opChange, method: http.MethodPost, path: "/v1/users", want: http.StatusCreated}, in, &out)
	return out, err
}

// Users returns all accounts by name.
func (c *Client) Users(ctx context.Context) ([]User, error) {
	var out []User
	err := c.doJSON(ctx, &request{op: opRead, method: http.MethodGet, path: "/v1/users", want: http.StatusOK}, nil, &out)
	return out, err
}

// DescribeUser returns one account.
func (c *Client) DescribeUser(ctx context.Context, username string) (User, error) {
	var out User
	err := c.doJSON(ctx, &request{op: opRead, method: http.MethodGet, path: userPath(username, ""), want: http.StatusOK}, nil, &out)
	return out, err
}

// DeleteUser removes an account; the topics it owned have no owner then.
func (c *Client) DeleteUser(ctx context.Context, username string) error {
	return c.doJSON(ctx, &request{op: opChange, method: http.MethodDelete, path: userPath(username, ""), want: http.StatusNoContent}, nil, nil)
}

// SetGrants replaces all grants of an account; none clears them.
func (c *Client) SetGrants(ctx context.Context, username string, grants ...Grant) (User, error) {
	in := struct {
		Grants []Grant `json:"grants"`
	}{append([]Grant{}, grants...)} // never null
	var out User
	err := c.doJSON(ctx, &request{op: opChange, method: http.MethodPut, path: userPath(username, "/grants"), want: http.StatusOK}, in, &out)
	return out, err
}

// SetPassword changes an account's password. Whoever is no admin changes only their
// own, and gives the current one; an admin may leave it empty.
func (c *Client) SetPassword(ctx context.Context, username, current, password string) error {
	in := struct {
		New     string `json:"new_password"`
		Current string `json:"current_password,omitempty"`
	}{password, current}
	return c.doJSON(ctx, &request{op: opChange, method: http.MethodPut, path: userPath(username, "/password"), want: http.StatusNoContent}, in, nil)
}

func userPath(username, rest string) string { return "/v1/users/" + url.PathEscape(username) + rest }
