package httpapi

import (
	"encoding/json"
)

// Schemas reads the schema histories of the local replica.
type Schemas interface {
	// LatestSchema is the newest version of a topic's schema; version 0 = none.
	LatestSchema(topic string) (doc []byte, version int, err error)
	// Schemas is the whole history; version n is at index n-1.
	Schemas(topic string) (history [][]byte, err error)
}

// schemaVersion is one version of a history.
type schemaVersion struct {
	Version int             `json:"version"`
	Schema  json.RawMessage `json:"schema"`
}

// getSchema serves GET /v1/topics/{topic}/schema (spec/http-api section 8.7).
func (a *API) getSchema(c *call, be *Backends) error {
	if _, err := readable(c, be); err != nil {
		return err
	}
	history, err := be.Schemas.Schemas(c.topic)
	if err != nil {
		return err
	}
	answer := struct {
		Topic    string          `json:"topic"`
		Version  int             `json:"version"`
		Versions []schemaVersion `json:"versions"`
	}{Topic: c.topic, Version: len(history), Versions: make([]schemaVersion, len(history))}
	for i, doc := range history {
		answer.Versions[i] = schemaVersion{Version: i + 1, Schema: doc}
	}
	return a.sendJSON(c, 200, answer)
}

// checkSchemaFields applies the rules of a schema change that need no schema to be
// read (spec/http-api section 8.4): null is no document (BODY-10), and a base version
// goes with one.
func (b *alterBody) checkSchemaFields() error {
	switch {
	case string(b.Schema) == "null":
		return errSchemaNull
	case b.SchemaBase == nil:
		return nil
	case b.Schema == nil:
		return invalid("schema_base_version goes with schema")
	case *b.SchemaBase < 0:
		return invalid("schema_base_version must be an integer of at least 0")
	}
	return nil
}
