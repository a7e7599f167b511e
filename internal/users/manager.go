package users

import (
	"context"
	"errors"

	"github.com/narad-mq/narad/internal/access"
	"github.com/narad-mq/narad/internal/model"
)

// Directory is the local replica's view of the users.
type Directory interface {
	User(name string) (model.Account, bool, error)
	Users() ([]model.User, error)
}

// Passwords hashes and checks passwords; access.Authenticator does.
type Passwords interface {
	Hash(ctx context.Context, password string) (string, error)
	Verify(ctx context.Context, username, password string) error
}

// Leader decides changes of users. caller is the username of who asked, "" with
// security off. Errors: model.Forbidden, ErrUserExists, ErrUserNotFound, ErrInvalid,
// ErrUnavailable, ErrOutcomeUnknown.
type Leader interface {
	CreateUser(ctx context.Context, caller string, n NewUser) (model.User, error)
	UpdateUser(ctx context.Context, caller string, u Update) (model.User, error)
	DeleteUser(ctx context.Context, caller, username string) error
}

// NewUser asks the leader for a user.
type NewUser struct {
	Username     string        `json:"username"`
	PasswordHash string        `json:"password_hash"` // bcrypt
	Grants       []model.Grant `json:"grants,omitempty"`
}

// Update asks the leader to replace exactly one field of a user.
type Update struct {
	Username     string         `json:"username"`
	PasswordHash string         `json:"password_hash,omitempty"` // bcrypt
	Grants       *[]model.Grant `json:"grants,omitempty"`        // an empty list clears them
}

// CreateRequest asks for a user (U-1).
type CreateRequest struct {
	Username string
	Password string
	Grants   []model.Grant
}

// Validate is U-2: what the request alone decides (400).
func (r CreateRequest) Validate() error {
	if err := access.ValidateUsername(r.Username); err != nil {
		return err
	}
	if err := access.ValidatePassword("password", r.Password); err != nil {
		return err
	}
	return access.ValidateGrants(r.Grants)
}

// PasswordRequest asks for another password (U-11, U-12).
type PasswordRequest struct {
	New     string
	Current string // needed from a user that is no admin
}

// Validate is U-16: what the request alone decides (400).
func (r PasswordRequest) Validate() error { return access.ValidatePassword("new_password", r.New) }

// Manager serves the user routes of one node. Safe for concurrent use.
type Manager struct {
	directory Directory
	passwords Passwords
	leader    Leader
}

// NewManager returns a manager that reads the local replica and has the leader
// decide.
func NewManager(d Directory, p Passwords, l Leader) *Manager {
	return &Manager{directory: d, passwords: p, leader: l}
}

// List returns all users by name in byte order (U-5); never nil without an error.
func (m *Manager) List(by *access.Caller) ([]model.User, error) {
	if err := by.MayAdminister(); err != nil {
		return nil, err
	}
	users, err := m.directory.Users()
	if err != nil {
		return nil, err
	}
	return append([]model.User{}, users...), nil
}

// Get returns one user (U-6), or model.ErrUserNotFound.
func (m *Manager) Get(by *access.Caller, username string) (model.User, error) {
	if err := by.MayAdminister(); err != nil {
		return model.User{}, err
	}
	acct, ok, err := m.directory.User(username)
	if err == nil && !ok {
		err = model.ErrUserNotFound
	}
	return acct.User, err
}

// Create makes a user (U-1 to U-4).
func (m *Manager) Create(ctx context.Context, by *access.Caller, r CreateRequest) (model.User, error) {
	if err := by.MayAdminister(); err != nil {
		return model.User{}, err
	}
	if err := r.Validate(); err != nil {
		return model.User{}, err
	}
	if err := by.MayGive(r.Grants); err != nil { // before a hash is paid for
		return model.User{}, err
	}
	hash, err := m.passwords.Hash(ctx, r.Password)
	if err != nil {
		return model.User{}, err
	}
	return m.leader.CreateUser(ctx, by.Username(), NewUser{Username: r.Username, PasswordHash: hash, Grants: r.Grants})
}

// Delete deletes another user (U-7, U-8).
func (m *Manager) Delete(ctx context.Context, by *access.Caller, username string) error {
	if err := by.MayAdminister(); err != nil {
		return err
	}
	return m.leader.DeleteUser(ctx, by.Username(), username)
}

// SetGrants replaces all grants of a user and keeps its password (U-9, U-10).
func (m *Manager) SetGrants(ctx context.Context, by *access.Caller, username string, grants []model.Grant) (model.User, error) {
	if err := by.MayAdminister(); err != nil {
		return model.User{}, err
	}
	if err := access.ValidateGrants(grants); err != nil {
		return model.User{}, err
	}
	return m.leader.UpdateUser(ctx, by.Username(), Update{Username: username, Grants: &grants})
}

// SetPassword replaces a password (U-11 to U-16). A user that is no admin proves
// that it knows the current one; guesses at it count as failed logins, and past their
// budget are refused with *model.AuthThrottledError.
func (m *Manager) SetPassword(ctx context.Context, by *access.Caller, username string, r PasswordRequest) error {
	if err := by.MayAdministerOrBe(username); err != nil {
		return err
	}
	if err := r.Validate(); err != nil {
		return err
	}
	if !by.Admin() {
		err := m.passwords.Verify(ctx, username, r.Current)
		if errors.Is(err, model.ErrUnauthenticated) {
			return access.DeniedPassword
		}
		if err != nil {
			return err
		}
	}
	hash, err := m.passwords.Hash(ctx, r.New)
	if err != nil {
		return err
	}
	_, err = m.leader.UpdateUser(ctx, by.Username(), Update{Username: username, PasswordHash: hash})
	return err
}
