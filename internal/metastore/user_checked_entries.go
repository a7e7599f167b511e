package metastore

import (
	"encoding/json"
	"fmt"

	"github.com/narad-mq/narad/internal/model"
)

// RemoveUser (type 32) deletes a user and clears the owner of every topic it
// owned, so that the topics fall to admins and never to the next user of the name.
// Refused with ErrUserNotFound.
type RemoveUser struct {
	Username string `json:"username"`
}

// Type implements Command.
func (RemoveUser) Type() EntryType { return TypeRemoveUser }

func (c RemoveUser) apply(t *txn) error {
	if err := DeleteUser(c).apply(t); err != nil {
		return err
	}
	// Collected first: a bbolt cursor does not survive writes under it.
	var owned []model.Topic
	err := t.tx.Bucket(bucketTopics).ForEach(func(k, v []byte) error {
		var rec model.Topic
		if err := json.Unmarshal(v, &rec); err != nil {
			return fmt.Errorf("fsm.db: topic %q: %w: %w", k, model.ErrCorrupt, err)
		}
		if rec.Owner == c.Username {
			owned = append(owned, rec)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, rec := range owned {
		rec.Owner = ""
		if err := t.putTopic(rec); err != nil {
			return err
		}
	}
	return nil
}
