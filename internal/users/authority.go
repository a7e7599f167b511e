package users

import (
	"context"
	"fmt"

	"github.com/narad-mq/narad/internal/access"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

// Store is what the authority needs of the metastore. Accept commits an entry
// on this node or not at all: what was checked here is not handed to a leader that
// came later. It returns once the local replica shows the change.
type Store interface {
	User(name string) (model.Account, bool, error)
	Writable() error
	Accept(ctx context.Context, c metastore.Command) (metastore.Result, error)
}

// AuthorityOptions configures an Authority.
type AuthorityOptions struct {
	Store   Store
	Secured bool        // security.enabled; false: every caller counts as root (AUTH-13)
	Clock   clock.Clock // nil = the real one
}

// Authority decides changes of users on the leader. Safe for concurrent use.
type Authority struct {
	store   Store
	secured bool
	clock   clock.Clock
	turn    chan struct{} // holds a token while a change is checked and applied
}

// NewAuthority returns the authority of this node; it decides while the node leads.
func NewAuthority(o AuthorityOptions) *Authority {
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	return &Authority{store: o.Store, secured: o.Secured, clock: o.Clock, turn: make(chan struct{}, 1)}
}

// decide runs a change while no other one is decided, so that rights cannot change
// between their check and what they allowed. by is the caller as the leader knows it.
func (a *Authority) decide(ctx context.Context, caller string, change func(by *access.Caller) error) error {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%w: waiting for another change of users: %w", model.ErrUnavailable, ctx.Err())
	}
	if err := a.store.Writable(); err != nil {
		return err
	}
	by := access.SecurityOff()
	if a.secured {
		var err error
		if by, err = access.LeaderCaller(a.store, caller); err != nil {
			return err
		}
	}
	return change(by)
}

// target reads the user a change is about.
func (a *Authority) target(username string) (model.User, error) {
	acct, ok, err := a.store.User(username)
	if err == nil && !ok {
		err = model.ErrUserNotFound
	}
	return acct.User, err
}

// CreateUser implements Leader. A user that exists is model.ErrUserExists.
func (a *Authority) CreateUser(ctx context.Context, caller string, n NewUser) (u model.User, err error) {
	err = a.decide(ctx, caller, func(by *access.Caller) error {
		if err := by.MayAdminister(); err != nil {
			return err
		}
		if err := n.validate(); err != nil {
			return err
		}
		if err := by.MayGive(n.Grants); err != nil {
			return err
		}
		now := a.clock.Now().UnixMilli()
		u = model.User{Username: n.Username, Grants: n.Grants, CreatedAtMS: now, UpdatedAtMS: now}
		_, err := a.store.Accept(ctx, metastore.CreateUser{
			Username: n.Username, PasswordHash: n.PasswordHash, Grants: n.Grants, At: now,
		})
		return err
	})
	if err != nil {
		return model.User{}, err
	}
	return u, nil
}

func (n NewUser) validate() error {
	if err := access.ValidateUsername(n.Username); err != nil {
		return err
	}
	if err := access.ValidateHash(n.PasswordHash); err != nil {
		return err
	}
	return access.ValidateGrants(n.Grants)
}

// UpdateUser implements Leader. It validates the field it replaces and leaves the
// other one as it stands.
func (a *Authority) UpdateUser(ctx context.Context, caller string, u Update) (after model.User, err error) {
	err = a.decide(ctx, caller, func(by *access.Caller) error {
		entry, err := a.update(by, u)
		if err != nil {
			return err
		}
		if _, err := a.store.Accept(ctx, entry); err != nil {
			return err
		}
		after, err = a.target(u.Username)
		return err
	})
	return after, err
}

// update checks an update and makes its entry.
func (a *Authority) update(by *access.Caller, u Update) (metastore.Command, error) {
	// The path alone decides this much: who may not ask learns nothing of who exists.
	if err := by.MayAdministerOrBe(u.Username); err != nil {
		return nil, err
	}
	target, err := a.target(u.Username)
	if err != nil {
		return nil, err
	}
	now := a.clock.Now().UnixMilli()
	switch {
	case u.Grants != nil && u.PasswordHash == "":
		if err := access.ValidateGrants(*u.Grants); err != nil {
			return nil, err
		}
		if err := by.MayReplaceGrants(&target, *u.Grants); err != nil {
			return nil, err
		}
		return metastore.SetGrants{Username: u.Username, Grants: *u.Grants, At: now}, nil
	case u.Grants == nil:
		if err := access.ValidateHash(u.PasswordHash); err != nil {
			return nil, err
		}
		if err := by.MayReplacePassword(&target); err != nil {
			return nil, err
		}
		return metastore.SetPassword{Username: u.Username, PasswordHash: u.PasswordHash, At: now}, nil
	}
	return nil, fmt.Errorf("%w: an update of user %q replaces its password or its grants, not both", model.ErrInvalid, u.Username)
}

// DeleteUser implements Leader. The topics of the user lose their owner in the same
// entry, once every member applies it (AZ-23); until then the metastore warns of them.
func (a *Authority) DeleteUser(ctx context.Context, caller, username string) error {
	return a.decide(ctx, caller, func(by *access.Caller) error {
		if err := by.MayAdminister(); err != nil {
			return err
		}
		target, err := a.target(username)
		if err != nil {
			return err
		}
		if err := by.MayDelete(&target); err != nil {
			return err
		}
		_, err = a.store.Accept(ctx, metastore.RemoveUser{Username: username})
		return err
	})
}
