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
	var out struct {
		Results []struct {
			Status int
			Error  string
			Code   string
		}
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return nil, err
	}
	errs := make([]error, len(out.Results))
	for i, r := range out.Results {
		if r.Status != http.StatusNoContent {
			errs[i] = &Error{Status: r.Status, Code: r.Code, Message: r.Error}
		}
	}
	return errs, nil
}
