package metastore

import "github.com/narad-mq/narad/internal/model"

// User is the replicated record of a user.
type User struct {
	Username     string  `json:"username"`
	PasswordHash string  `json:"password_hash"` // bcrypt, never leaves the node planes
	Grants       []Grant `json:"grants,omitempty"`
	CreatedAtMS  int64   `json:"created_at_ms"` // Unix milliseconds
	UpdatedAtMS  int64   `json:"updated_at_ms"` // Unix milliseconds
}

// Grant is one action on the topics its patterns match (spec/http-api section 4).
type Grant struct {
	Action   string   `json:"action"`
	Patterns []string `json:"patterns,omitempty"`
}

// CreateUser (type 18) creates a user; refused with ErrUserExists.
type CreateUser struct {
	Username     string  `json:"username"`
	PasswordHash string  `json:"password_hash"`
	Grants       []Grant `json:"grants,omitempty"`
	At           int64   `json:"at"` // Unix milliseconds
}

// Type implements Command.
func (CreateUser) Type() EntryType { return TypeCreateUser }

func (c CreateUser) apply(t *txn) error {
	if err := checkID("username", c.Username); err != nil {
		return err
	}
	if t.tx.Bucket(bucketUsers).Get([]byte(c.Username)) != nil {
		return refuse(model.ErrUserExists)
	}
	return t.putUser(User{Username: c.Username, PasswordHash: c.PasswordHash, Grants: c.Grants, CreatedAtMS: c.At, UpdatedAtMS: c.At})
}

func (t *txn) putUser(u User) error { return t.put(bucketUsers, []byte(u.Username), u) }

// editUser changes a record that exists, or refuses with ErrUserNotFound.
func (t *txn) editUser(name string, at int64, edit func(*User)) error {
	u, ok, err := getJSON[User](t.tx, bucketUsers, []byte(name))
	if err != nil {
		return err
	}
	if !ok {
		return refuse(model.ErrUserNotFound)
	}
	edit(&u)
	u.UpdatedAtMS = at
	return t.putUser(u)
}

// SetPassword (type 19) replaces a user's password hash.
type SetPassword struct {
	Username     string `json:"username"`
	PasswordHash string `json:"password_hash"`
	At           int64  `json:"at"` // Unix milliseconds
}

// Type implements Command.
func (SetPassword) Type() EntryType { return TypeSetPassword }

func (c SetPassword) apply(t *txn) error {
	return t.editUser(c.Username, c.At, func(u *User) { u.PasswordHash = c.PasswordHash })
}

// SetGrants (type 20) replaces a user's grants.
type SetGrants struct {
	Username string  `json:"username"`
	Grants   []Grant `json:"grants"`
	At       int64   `json:"at"` // Unix milliseconds
}

// Type implements Command.
func (SetGrants) Type() EntryType { return TypeSetGrants }

func (c SetGrants) apply(t *txn) error {
	return t.editUser(c.Username, c.At, func(u *User) { u.Grants = c.Grants })
}

// DeleteUser (type 21) deletes a user; topics it owned keep naming it.
type DeleteUser struct {
	Username string `json:"username"`
}

// Type implements Command.
func (DeleteUser) Type() EntryType { return TypeDeleteUser }

func (c DeleteUser) apply(t *txn) error {
	if c.Username == "" || t.tx.Bucket(bucketUsers).Get([]byte(c.Username)) == nil {
		return refuse(model.ErrUserNotFound)
	}
	return t.tx.Bucket(bucketUsers).Delete([]byte(c.Username))
}
