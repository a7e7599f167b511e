package client

import (
	"encoding/json"
	"net/http"
)

// encodeHandles is the body of a batch settlement.
func encodeHandles(handles []string) []byte {
	size := 32
	for _, h := range handles {
		size += len(h) + 3
	}
	b := append(make([]byte, 0, size), `{"receipt_handles":[`...)
	for i, h := range handles {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, h)
	}
	return append(b, "]}"...)
}

// decodeResults reads the answer to a batch settlement: nil per handle that was
// settled, an *Error per one that was not.
func decodeResults(body []byte) ([]error, error) {
	var errs []error
	err := members(body, func(name, value []byte) error {
		if string(name) != "results" {
			return nil
		}
		return elements(trim(value), func(p []byte) error {
			e, err := decodeResult(p)
			errs = append(errs, e)
			return err
		})
	})
	return errs, err
}

// settled is the result of a handle that was settled, as the server writes it.
const settled = `{"status":204}`

func decodeResult(p []byte) (refused, err error) {
	if string(p) == settled {
		return nil, nil
	}
	var r struct {
		Status int
		Error  string
		Code   string
	}
	if err := json.Unmarshal(p, &r); err != nil {
		return nil, err
	}
	if r.Status == http.StatusNoContent {
		return nil, nil
	}
	return &Error{Status: r.Status, Code: r.Code, Message: r.Error}, nil
}
