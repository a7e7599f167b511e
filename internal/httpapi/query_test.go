package httpapi

import (
	"net/url"
	"testing"
)

// TestQueryParams: first value, doubles, escapes, unknown names (BODY-9).
func TestQueryParams(t *testing.T) {
	names := []string{"key", "partition"}
	for _, tc := range []struct {
		query string
		key   param
		part  param
		bad   bool
	}{
		{query: ""},
		{query: "key", key: param{set: true}},
		{query: "key=", key: param{set: true}},
		{query: "key=a&partition=1", key: param{value: "a", set: true}, part: param{value: "1", set: true}},
		{query: "key=a&key=b", key: param{value: "a", set: true, twice: true}},
		{query: "key=a%26b+c%00%ff", key: param{value: "a&b c\x00\xff", set: true}},
		{query: "k%65y=x", key: param{value: "x", set: true}},
		{query: "other=%zz&%zz=1&&=&x;y=2&key=1", key: param{value: "1", set: true}},
		{query: "key=%zz", bad: true},
		{query: "key=%a", bad: true},
		{query: "key=a=b", key: param{value: "a=b", set: true}},
		{query: "Key=a"},
	} {
		var out [2]param
		err := queryParams(tc.query, names, out[:])
		if (err != nil) != tc.bad || !tc.bad && (out[0] != tc.key || out[1] != tc.part) {
			t.Errorf("%q: %+v %v", tc.query, out, err)
		}
	}
	var out [2]param
	if err := onceEach("partition=1&partition=1", names, out[:]); err == nil {
		t.Error("a parameter given twice was accepted")
	}
}

// TestPartitionParam: only decimals of a 32-bit index are partitions.
func TestPartitionParam(t *testing.T) {
	for _, v := range []string{"", "-1", "1.0", "x", "2147483648", "99999999999999999999", " 1", "0x1"} {
		if n, err := partitionParam(param{value: v, set: true}); err != errPartitionRange {
			t.Errorf("%q: %d, %v", v, n, err)
		}
	}
	if n, err := partitionParam(param{}); n != anyPartition || err != nil {
		t.Errorf("absent: %d, %v", n, err)
	}
	if n, err := partitionParam(param{value: "2147483647", set: true}); n != 1<<31-1 || err != nil {
		t.Errorf("largest: %d, %v", n, err)
	}
}

// FuzzQuery holds the parser to net/url: a query that net/url takes whole gives
// the same first values.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"", "key=a&partition=1", "key=%41+b&key=c", "k%65y=x", "&&=&a", "key=%zz", "key;=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		names := []string{"key", "partition"}
		var out [2]param
		err := queryParams(query, names, out[:])
		want, werr := url.ParseQuery(query)
		if werr != nil {
			return
		}
		if err != nil {
			t.Fatalf("%q: %v, net/url takes it", query, err)
		}
		for i, name := range names {
			vs := want[name]
			if out[i].set != (len(vs) > 0) || out[i].twice != (len(vs) > 1) || len(vs) > 0 && out[i].value != vs[0] {
				t.Fatalf("%q: %s is %+v, net/url says %q", query, name, out[i], vs)
			}
		}
	})
}
