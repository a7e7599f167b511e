package httpapi

import (
	"context"

	"github.com/narad-mq/narad/internal/access"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/users"
)

// UserReader reads users of the local replica: package users.
type UserReader interface {
	List(by *access.Caller) ([]model.User, error)
	Get(by *access.Caller, username string) (model.User, error)
}

// UserWriter changes users: package users.
type UserWriter interface {
	Create(ctx context.Context, by *access.Caller, r users.CreateRequest) (model.User, error)
	Delete(ctx context.Context, by *access.Caller, username string) error
	SetGrants(ctx context.Context, by *access.Caller, username string, grants []model.Grant) (model.User, error)
	SetPassword(ctx context.Context, by *access.Caller, username string, r users.PasswordRequest) error
}

// Users is both.
type Users interface {
	UserReader
	UserWriter
}

// listUsers serves GET /v1/users (spec/http-api section 11).
func (a *API) listUsers(c *call, be *Backends) error {
	list, err := be.Users.List(c.caller)
	if err != nil {
		return err
	}
	return a.sendJSON(c, 200, list)
}

// getUser serves GET /v1/users/{username}.
func (a *API) getUser(c *call, be *Backends) error {
	u, err := be.Users.Get(c.caller, c.user)
	if err != nil {
		return err
	}
	return a.sendJSON(c, 200, u)
}

// createUser serves POST /v1/users. Every write asks for the right that the path
// alone decides before it reads a body (PIPE-6); the floor below checks it again.
func (a *API) createUser(c *call, be *Backends) error {
	if err := c.caller.MayAdminister(); err != nil {
		return err
	}
	var b struct {
		Username string        `json:"username"`
		Password string        `json:"password"`
		Grants   []model.Grant `json:"grants"`
	}
	if err := a.readJSON(c, errUserBody, &b); err != nil {
		return err
	}
	req := users.CreateRequest{Username: b.Username, Password: b.Password, Grants: b.Grants}
	if err := req.Validate(); err != nil {
		return err
	}
	ctx, cancel := a.changeContext(c.req)
	defer cancel()
	u, err := be.Users.Create(ctx, c.caller, req)
	if err := a.audited(c, "user.create", b.Username, 201, err); err != nil {
		return err
	}
	return a.sendJSON(c, 201, u)
}

// deleteUser serves DELETE /v1/users/{username}.
func (a *API) deleteUser(c *call, be *Backends) error {
	if err := c.caller.MayAdminister(); err != nil {
		return err
	}
	ctx, cancel := a.changeContext(c.req)
	defer cancel()
	if err := a.audited(c, "user.delete", c.user, 204, be.Users.Delete(ctx, c.caller, c.user)); err != nil {
		return err
	}
	c.empty(204)
	return nil
}

// setGrants serves PUT /v1/users/{username}/grants.
func (a *API) setGrants(c *call, be *Backends) error {
	if err := c.caller.MayAdminister(); err != nil {
		return err
	}
	var b struct {
		Grants *[]model.Grant `json:"grants"`
	}
	if err := a.readJSON(c, errUserBody, &b); err != nil {
		return err
	}
	if b.Grants == nil {
		return invalid("grants required")
	}
	if err := access.ValidateGrants(*b.Grants); err != nil {
		return err
	}
	ctx, cancel := a.changeContext(c.req)
	defer cancel()
	u, err := be.Users.SetGrants(ctx, c.caller, c.user, *b.Grants)
	if err := a.audited(c, "user.grants", c.user, 200, err); err != nil {
		return err
	}
	return a.sendJSON(c, 200, u)
}

// setPassword serves PUT /v1/users/{username}/password.
func (a *API) setPassword(c *call, be *Backends) error {
	if err := c.caller.MayAdministerOrBe(c.user); err != nil {
		return err
	}
	var b struct {
		New     string `json:"new_password"`
		Current string `json:"current_password"`
	}
	if err := a.readJSON(c, errUserBody, &b); err != nil {
		return err
	}
	req := users.PasswordRequest{New: b.New, Current: b.Current}
	if err := req.Validate(); err != nil {
		return err
	}
	ctx, cancel := a.changeContext(c.req)
	defer cancel()
	if err := a.audited(c, "user.password", c.user, 204, be.Users.SetPassword(ctx, c.caller, c.user, req)); err != nil {
		return err
	}
	c.empty(204)
	return nil
}
