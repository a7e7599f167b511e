package metastore

import "github.com/narad-mq/narad/internal/model"

// CreateUser (type 18) creates a user; refused with ErrUserExists. With Root set it
// seeds the root admin, which is refused the same way as soon as any user exists:
// of two leaders that both found none, one wins (spec/http-api ROOT-1).
type CreateUser struct {
	Username     string        `json:"username"`
	PasswordHash string        `json:"password_hash"` // bcrypt, never a password
	Grants       []model.Grant `json:"grants,omitempty"`
	Root         bool          `json:"root,omitempty"`
	At           int64         `json:"at"` // Unix milliseconds
}

// Type implements Command.
func (CreateUser) Type() EntryType { return TypeCreateUser }

func (c CreateUser) apply(t *txn) error {
	if err := checkID("username", c.Username); err != nil {
		return err
	}
	users := t.tx.Bucket(bucketUsers)
	if users.Get([]byte(c.Username)) != nil {
		return refuse(model.ErrUserExists)
	}
	if first, _ := users.Cursor().First(); c.Root && first != nil {
		return refuse(model.ErrUserExists)
	}
	return t.putUser(model.Account{
		User:         model.User{Username: c.Username, Grants: c.Grants, Root: c.Root, CreatedAtMS: c.At, UpdatedAtMS: c.At},
		PasswordHash: c.PasswordHash,
	})
}

func (t *txn) putUser(u model.Account) error {
	t.moved[DomainUsers] = true
	return t.put(bucketUsers, []byte(u.Username), u)
}

// editUser changes a record that exists, or refuses with ErrUserNotFound.
func (t *txn) editUser(name string, at int64, edit func(*model.Account)) error {
	u, ok, err := getJSON[model.Account](t.tx, bucketUsers, []byte(name))
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

// SetPassword (type 19) replaces a user's password hash and nothing else.
type SetPassword struct {
	Username     string `json:"username"`
	PasswordHash string `json:"password_hash"`
	At           int64  `json:"at"` // Unix milliseconds
}

// Type implements Command.
func (SetPassword) Type() EntryType { return TypeSetPassword }

func (c SetPassword) apply(t *txn) error {
	return t.editUser(c.Username, c.At, func(u *model.Account) { u.PasswordHash = c.PasswordHash })
}

// SetGrants (type 20) replaces a user's grants and nothing else.
type SetGrants struct {
	Username string        `json:"username"`
	Grants   []model.Grant `json:"grants"`
	At       int64         `json:"at"` // Unix milliseconds
}

// Type implements Command.
func (SetGrants) Type() EntryType { return TypeSetGrants }

func (c SetGrants) apply(t *txn) error {
	return t.editUser(c.Username, c.At, func(u *model.Account) { u.Grants = c.Grants })
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
	t.moved[DomainUsers] = true
	return t.remove(bucketUsers, []byte(c.Username))
}
