package metastore

import (
	"bytes"
	"encoding/json"

	"github.com/narad-mq/narad/internal/model"
)

// schemaVersionsMax bounds a topic's history (spec/http-api LIM-14).
const schemaVersionsMax = 1000

// PutSchema (type 4) appends a schema version to a topic and to each of its
// children. Applied only when Version is exactly the latest plus one, there and on
// every child; refused with ErrConflict otherwise.
type PutSchema struct {
	Topic   string          `json:"topic"`
	Version int             `json:"version"`
	Schema  json.RawMessage `json:"schema"`
}

// Type implements Command.
func (PutSchema) Type() EntryType { return TypePutSchema }

func (c PutSchema) apply(t *txn) error {
	rec, err := t.topic(c.Topic)
	if err != nil {
		return err
	}
	if len(c.Schema) == 0 {
		return refusef(model.ErrInvalid, "schema of %q is empty", c.Topic)
	}
	if c.Version > schemaVersionsMax {
		return refusef(model.ErrConflict, "schema version %d of %q, at most %d", c.Version, c.Topic, schemaVersionsMax)
	}
	names := append([]string{c.Topic}, rec.Children...)
	for _, name := range names {
		latest, err := t.latestSchema(name)
		if err != nil {
			return err
		}
		if c.Version != latest+1 {
			return refusef(model.ErrConflict, "schema version %d of %q does not follow %d", c.Version, name, latest)
		}
	}
	for _, name := range names {
		if err := t.tx.Bucket(bucketSchemas).Put(numbered(name, c.Version), c.Schema); err != nil {
			return err
		}
	}
	return nil
}

// latestSchema is the newest stored version of a topic, 0 without schema.
func (t *txn) latestSchema(topic string) (latest int, err error) {
	err = rows(t.tx, bucketSchemas, topic, func(n int, _, _ []byte) error {
		latest = n
		return nil
	})
	return latest, err
}

// DropSchemas (type 5) deletes a topic's whole schema history.
type DropSchemas struct {
	Topic string `json:"topic"`
}

// Type implements Command.
func (DropSchemas) Type() EntryType { return TypeDropSchemas }

func (c DropSchemas) apply(t *txn) error { return t.dropRows(bucketSchemas, c.Topic) }

// schemas returns a topic's history in order, copied out of the transaction.
func (t *txn) schemas(topic string) (out [][]byte, err error) {
	err = rows(t.tx, bucketSchemas, topic, func(_ int, _, v []byte) error {
		out = append(out, bytes.Clone(v))
		return nil
	})
	return out, err
}

// adoptSchemas makes the child's history the parent's: an empty one adopts it, an
// equal one stays, any other is refused.
func (t *txn) adoptSchemas(parent, child string) (adopt [][]byte, err error) {
	want, err := t.schemas(parent)
	if err != nil {
		return nil, err
	}
	have, err := t.schemas(child)
	if err != nil {
		return nil, err
	}
	if len(have) == 0 {
		return want, nil
	}
	if len(have) != len(want) {
		return nil, refusef(model.ErrConflict, "%q has %d schema versions, its parent %q has %d", child, len(have), parent, len(want))
	}
	for i := range have {
		if !bytes.Equal(have[i], want[i]) {
			return nil, refusef(model.ErrConflict, "schema version %d of %q differs from that of its parent %q", i+1, child, parent)
		}
	}
	return nil, nil
}
