package metastore

import (
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/model"
)

// UsersVersion moves after every change of a user is visible: what was read of the
// users after loading a version is at least as new as it. One atomic load.
func (s *Store) UsersVersion() uint64 { return s.Version(DomainUsers) }

// User reads one user's record.
func (s *Store) User(name string) (u model.Account, ok bool, err error) {
	err = s.fsm.view(func(tx *bbolt.Tx) (err error) {
		u, ok, err = getJSON[model.Account](tx, bucketUsers, []byte(name))
		return err
	})
	return u, ok, err
}

// Users reads every user, by name in byte order.
func (s *Store) Users() (users []model.User, err error) {
	err = s.fsm.view(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketUsers).ForEach(func(k, v []byte) error {
			var u model.User
			if err := json.Unmarshal(v, &u); err != nil {
				return fmt.Errorf("fsm.db: user %q: %w: %w", k, model.ErrCorrupt, err)
			}
			users = append(users, u)
			return nil
		})
	})
	return users, err
}

// HasUsers reports whether any user exists.
func (s *Store) HasUsers() (any bool, err error) {
	err = s.fsm.view(func(tx *bbolt.Tx) error {
		k, _ := tx.Bucket(bucketUsers).Cursor().First()
		any = k != nil
		return nil
	})
	return any, err
}
