package httpapi

import (
	"net/url"
	"strconv"
	"strings"
)

// param is one documented query parameter as it was sent.
type param struct {
	value string // decoded
	set   bool
	twice bool
}

// queryParams collects the parameters of names from a raw query into out, which
// is parallel to names; the first value of each is kept. Unknown parameters are
// ignored, whatever they hold; a documented one that does not decode is refused.
// Nothing is allocated unless a value needs decoding.
func queryParams(query string, names []string, out []param) error {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err := unescapeQuery(rawName)
		if err != nil {
			continue // no documented name needs escapes
		}
		for i, want := range names {
			if name != want {
				continue
			}
			if out[i].set {
				out[i].twice = true
				break
			}
			value, err := unescapeQuery(rawValue)
			if err != nil {
				return invalid("query parameter " + want + " is not percent-encoded properly")
			}
			out[i] = param{value: value, set: true}
			break
		}
	}
	return nil
}

func unescapeQuery(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s, nil
	}
	return url.QueryUnescape(s)
}

// onceEach is queryParams for the routes where a documented parameter given
// twice is refused (spec/http-api section 5.1, BODY-9).
func onceEach(query string, names []string, out []param) error {
	if query == "" {
		return nil
	}
	if err := queryParams(query, names, out); err != nil {
		return err
	}
	for i := range out {
		if out[i].twice {
			return invalid("query parameter " + names[i] + " is given more than once")
		}
	}
	return nil
}

// anyPartition stands for a partition that was not pinned.
const anyPartition = -1

// partitionParam reads an optional partition index; whatever is not one is out
// of range (spec/http-api P-3, TG-3).
func partitionParam(p param) (int, error) {
	if !p.set {
		return anyPartition, nil
	}
	n, err := strconv.ParseInt(p.value, 10, 32)
	if err != nil || n < 0 {
		return 0, errPartitionRange
	}
	return int(n), nil
}

// boolParam reads an optional boolean: exactly true or false (BODY-8).
func boolParam(name string, p param) (bool, error) {
	switch {
	case !p.set || p.value == "false":
		return false, nil
	case p.value == "true":
		return true, nil
	}
	return false, invalid(name + " must be true or false")
}
