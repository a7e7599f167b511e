package httpapi

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// text takes a string and returns its value: a slice of the text where it holds
// no escapes. ok is false for a string that is not valid UTF-8, which no value
// can stand for.
func (s *scanner) text() (v []byte, ok bool, err error) {
	from := s.i
	raw, escaped, err := s.str()
	if err != nil || !utf8.Valid(raw) {
		return raw, false, err
	}
	if !escaped {
		return raw, true, nil
	}
	var out string
	if err := json.Unmarshal(s.b[from:s.i], &out); err != nil {
		return nil, false, invalidJSON(err.Error())
	}
	return []byte(out), true, nil
}

// null takes the literal null if it comes next.
func (s *scanner) null() (bool, error) {
	if s.peek() != 'n' {
		return false, nil
	}
	return true, s.literal("null")
}

// object walks the members of one object. field is called with each name, the
// cursor before the value, and takes the value.
func (s *scanner) object(of string, field func(name []byte) error) error {
	if s.peek() != '{' {
		return s.mistyped(of, "object")
	}
	s.i++
	if s.peek() == '}' {
		s.i++
		return nil
	}
	for {
		if s.peek() != '"' {
			return s.bad("looking for beginning of object key string")
		}
		name, _, err := s.text()
		if err != nil {
			return err
		}
		if err := s.expect(':', "after object key"); err != nil {
			return err
		}
		if err := field(name); err != nil {
			return err
		}
		if s.peek() == '}' {
			s.i++
			return nil
		}
		if err := s.expect(',', "after object key:value pair"); err != nil {
			return err
		}
	}
}

// array walks the elements of one array; elem takes each.
func (s *scanner) array(of string, elem func() error) error {
	if s.peek() != '[' {
		return s.mistyped(of, "array")
	}
	s.i++
	if s.peek() == ']' {
		s.i++
		return nil
	}
	for {
		if err := elem(); err != nil {
			return err
		}
		if s.peek() == ']' {
			s.i++
			return nil
		}
		if err := s.expect(',', "after array element"); err != nil {
			return err
		}
	}
}

// mistyped refuses a value of the wrong JSON type, or says where the text breaks
// if it is no value at all.
func (s *scanner) mistyped(field, want string) error {
	if err := s.value(); err != nil {
		return err
	}
	return invalidJSON(fmt.Sprintf("json: field %s: want %s", field, want))
}

func unknownField(name []byte) error {
	return invalidJSON(fmt.Sprintf("json: unknown field %q", name))
}
