package metastore

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/model"
)

// Remote reads one remote.
func (s *Store) Remote(name string) (r model.Remote, ok bool, err error) {
	err = s.fsm.view(func(tx *bbolt.Tx) (err error) {
		r, ok, err = getJSON[model.Remote](tx, bucketRemotes, remoteKey(name))
		return err
	})
	return r, ok, err
}

// Remotes reads every remote, by name in byte order.
func (s *Store) Remotes() (remotes []model.Remote, err error) {
	err = s.fsm.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketRemotes).Cursor()
		for k, v := c.Seek([]byte(remotePrefix)); bytes.HasPrefix(k, []byte(remotePrefix)); k, v = c.Next() {
			var r model.Remote
			if err := json.Unmarshal(v, &r); err != nil {
				return fmt.Errorf("fsm.db: %q: %w: %w", k, model.ErrCorrupt, err)
			}
			remotes = append(remotes, r)
		}
		return nil
	})
	return remotes, err
}

// RemoteKeys reads the cluster's salt and what each key has sealed; without salt no
// remote was ever created.
func (s *Store) RemoteKeys() (keys model.RemoteKeys, err error) {
	err = s.fsm.view(func(tx *bbolt.Tx) (err error) {
		keys, _, err = getJSON[model.RemoteKeys](tx, bucketRemotes, keyRemoteKeys)
		return err
	})
	return keys, err
}
