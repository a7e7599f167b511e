package httpapi

import (
	"context"

	"github.com/narad-mq/narad/internal/access"
)

// Authenticator checks the credentials of a request: package access.
type Authenticator interface {
	// Authenticate returns the caller a value of the header Authorization stands
	// for.
	Authenticate(ctx context.Context, authorization string) (*access.Caller, error)
}

// challenge is the header of every 401 (spec/http-api AUTH-2).
const challenge = `Basic realm="narad"`

// door is who may come in.
type door struct {
	secured     bool           // security.enabled
	openMetrics bool           // /metrics on the API port needs no credentials
	everybody   *access.Caller // of each request while security is off
}

// admit finds out who calls (spec/http-api PIPE-3). Unknown paths need credentials
// as well: without them nobody learns which paths there are. A path that needs none
// has no caller, who may do nothing.
func (a *API) admit(c *call, res resource, ops bool, be *Backends) error {
	if !a.secured {
		c.caller, c.identity = a.everybody, c.req.Identity
		return nil
	}
	switch {
	case ops, res == resHealthz, res == resReadyz, res == resMetrics && a.openMetrics:
		return nil
	case be == nil:
		return errNotReady // nothing is known of users yet
	}
	caller, err := be.Auth.Authenticate(c.req.Ctx, c.req.Header.Get("Authorization"))
	if err != nil {
		return err
	}
	c.caller, c.identity = caller, caller.Username()
	return nil
}
