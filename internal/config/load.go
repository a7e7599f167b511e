package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// fileBytesMax bounds a configuration file.
const fileBytesMax = 1 << 20

// internalStorage are storage keys that exist inside the node and cannot be set:
// the loader knows them so that the message differs from a typo's.
func internalStorage(name string) bool {
	switch name {
	case "fsync", "segment_bytes", "flush_interval_ms", "sync_interval_ms",
		"ingress_wal_sync_interval_ms", "high_watermark_sync_interval_ms":
		return true
	}
	return false
}

// Load merges the layers: defaults, then the file's content (nil = no file), then
// the environment. Flags are applied by the caller with Set, then Validate is
// called once. An unset or empty variable leaves the key alone.
func Load(file []byte, getenv func(string) string) (Config, error) {
	c := Default()
	if file != nil {
		if err := c.applyFile(file); err != nil {
			return Config{}, fmt.Errorf("config: load file: %w", err)
		}
	}
	var errs []error
	for _, k := range c.keys() {
		if k.env == "" {
			continue
		}
		if v := getenv(k.env); v != "" {
			if err := setText(k.field, v); err != nil {
				errs = append(errs, fmt.Errorf("config: %s (%s): %w", k.name, k.env, err))
			}
		}
	}
	return c, errors.Join(errs...)
}

// Set overrides one key with a flag's text.
func (c *Config) Set(name, value string) error {
	for _, k := range c.keys() {
		if k.name == name {
			if err := setText(k.field, value); err != nil {
				return fmt.Errorf("config: %s: %w", name, err)
			}
			return nil
		}
	}
	return fmt.Errorf("config: no such key %q", name)
}

func (c *Config) applyFile(file []byte) error {
	if len(file) > fileBytesMax {
		return fmt.Errorf("%d bytes, at most %d", len(file), fileBytesMax)
	}
	byName := map[string]any{}
	for _, k := range c.keys() {
		byName[k.name] = k.field
	}
	dec := json.NewDecoder(bytes.NewReader(file))
	err := eachField(dec, func(block string) error {
		return eachField(dec, func(name string) error {
			field, ok := byName[block+"."+name]
			switch {
			case !ok && block == "storage" && internalStorage(name):
				return fmt.Errorf("storage.%s is an internal setting and cannot be configured", name)
			case !ok:
				return fmt.Errorf("json: unknown field %q", unknownName(byName, block, name))
			}
			var raw json.RawMessage
			if err := dec.Decode(&raw); err != nil {
				return err
			}
			if err := setJSON(field, raw); err != nil {
				return fmt.Errorf("%s.%s: %w", block, name, err)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after the configuration object")
	}
	return nil
}

// unknownName is the part of block.name that is not known.
func unknownName(known map[string]any, block, name string) string {
	for k := range known {
		if strings.HasPrefix(k, block+".") {
			return name
		}
	}
	return block
}

// eachField reads one JSON object and calls f at each value; a name given twice is
// an error.
func eachField(dec *json.Decoder, f func(name string) error) error {
	t, err := dec.Token()
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return fmt.Errorf("got %v, want an object", t)
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		if seen[name] {
			return fmt.Errorf("duplicate key %q", name)
		}
		seen[name] = true
		if err := f(name); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

func setJSON(field any, raw json.RawMessage) error {
	if string(raw) == "null" {
		return errors.New("null is not a value")
	}
	switch f := field.(type) {
	case *time.Duration:
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return fmt.Errorf("%s is not a duration with a unit, such as \"10s\"", raw)
		}
		return setText(f, s)
	case *[]Peer:
		peers, err := peersFromJSON(raw)
		*f = peers
		return err
	}
	return json.Unmarshal(raw, field)
}

func setText(field any, v string) error {
	switch f := field.(type) {
	case *string:
		*f = v
	case *bool:
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("%q is not a boolean", v)
		}
		*f = b
	case *int:
		n, err := strconv.Atoi(v)
		if err != nil {
			return fmt.Errorf("%q is not an integer", v)
		}
		*f = n
	case *int64:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not an integer", v)
		}
		*f = n
	case *time.Duration:
		d, err := time.ParseDuration(v)
		if err != nil || strings.Trim(v, "+-0123456789.") == "" {
			return fmt.Errorf("%q is not a duration with a unit, such as \"10s\"", v)
		}
		*f = d
	case *[]string:
		items, err := splitList(v)
		*f = items
		return err
	case *[]Peer:
		items, err := splitList(v)
		peers := make([]Peer, len(items))
		for i := 0; i < len(items) && err == nil; i++ {
			peers[i], err = parsePeer(items[i])
		}
		*f = peers
		return err
	default:
		return fmt.Errorf("no way to set a %T", field)
	}
	return nil
}
