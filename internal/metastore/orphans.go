package metastore

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/model"
)

// OrphanPlacements are up to limit assignment rows that belong to no partition, in the
// order of their keys: the topic is gone, or the partition is past its count. Release
// 3.0 could leave them behind; PrunePlacement deletes them.
func (s *Store) OrphanPlacements(limit int) (rows []model.PartitionKey, err error) {
	err = s.fsm.view(func(tx *bbolt.Tx) (err error) {
		rows, err = orphanRows(tx, limit)
		return err
	})
	return rows, err
}

// orphanRows walks topics and assignments side by side: both sort by name.
func orphanRows(tx *bbolt.Tx, limit int) (rows []model.PartitionKey, err error) {
	topics := tx.Bucket(bucketTopics).Cursor()
	name, record := topics.First()
	partitions := -1 // of the topic at name; -1 = not decoded yet
	c := tx.Bucket(bucketAssignments).Cursor()
	for k, _ := c.First(); k != nil && len(rows) < limit; k, _ = c.Next() {
		topic, p, ok := splitNumbered(k)
		if !ok {
			return nil, fmt.Errorf("fsm.db: assignment %q: %w", k, model.ErrCorrupt)
		}
		for name != nil && bytes.Compare(name, topic) < 0 {
			name, record = topics.Next()
			partitions = -1
		}
		if bytes.Equal(name, topic) {
			if partitions < 0 {
				var rec model.Topic
				if err := json.Unmarshal(record, &rec); err != nil {
					return nil, fmt.Errorf("fsm.db: topic %q: %w: %w", name, model.ErrCorrupt, err)
				}
				partitions = rec.Partitions
			}
			if p < partitions {
				continue
			}
		}
		rows = append(rows, model.PartitionKey{Topic: string(topic), Partition: p})
	}
	return rows, nil
}
