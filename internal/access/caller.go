package access

import "github.com/narad-mq/narad/internal/model"

// Caller is who a request comes from and what that user may do. It is immutable and
// shared. A nil Caller is nobody and may do nothing.
type Caller struct {
	username string
	root     bool
	admin    bool // root included
	off      bool // security is off: there is no caller, and every check but the remotes plane's passes
	produce  []string
	consume  []string
	create   []string
}

// NewCaller is the caller a user's requests have.
func NewCaller(u model.User) *Caller {
	c := &Caller{username: u.Username, root: u.Root, admin: u.Root || givesAdmin(u.Grants)}
	for _, g := range u.Grants {
		switch g.Action {
		case model.ActionProduce:
			c.produce = append(c.produce, g.Patterns...)
		case model.ActionConsume:
			c.consume = append(c.consume, g.Patterns...)
		case model.ActionCreate:
			c.create = append(c.create, g.Patterns...)
		}
	}
	return c
}

// SecurityOff is the caller of every request while security is off (spec/http-api
// AUTH-13): it has no name and owns nothing, and counts as root.
func SecurityOff() *Caller { return &Caller{root: true, admin: true, off: true} }

// LeaderCaller is the caller as the leader's replica knows it: the second check of a
// change that came from any node by name (spec/http-api AZ-22).
func LeaderCaller(users Reader, username string) (*Caller, error) {
	acct, ok, err := users.User(username)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, DeniedUnknownCaller
	}
	return NewCaller(acct.User), nil
}

// Username is the user's name, "" with security off.
func (c *Caller) Username() string {
	if c == nil {
		return ""
	}
	return c.username
}

// Root reports whether the caller is the root admin, or security is off.
func (c *Caller) Root() bool { return c != nil && c.root }

// Admin reports whether the caller may do everything: root, or a grant of admin.
func (c *Caller) Admin() bool { return c != nil && c.admin }

// Secured reports whether there is a caller at all: false with security off.
func (c *Caller) Secured() bool { return c != nil && !c.off }

// Allows reports whether a grant of the action, or admin, covers the topic. Hot
// path: it allocates nothing.
func (c *Caller) Allows(action model.Action, topic string) bool {
	if c == nil {
		return false
	}
	return c.admin || matchAny(c.patterns(action), topic)
}

func (c *Caller) patterns(action model.Action) []string {
	switch action {
	case model.ActionProduce:
		return c.produce
	case model.ActionConsume:
		return c.consume
	case model.ActionCreate:
		return c.create
	}
	return nil
}

func matchAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if Match(p, name) {
			return true
		}
	}
	return false
}

// owns reports whether the topic names the caller as its owner.
func (c *Caller) owns(t *model.Topic) bool {
	return c != nil && c.username != "" && t.Owner == c.username
}
