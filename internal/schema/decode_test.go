package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// plainJSON decodes with the standard library, numbers as written.
func plainJSON(b []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err == nil || err.Error() != "EOF" {
		return nil, errors.New("trailing data")
	}
	return v, nil
}

// checkDecode holds the decoder against encoding/json, for any bytes.
func checkDecode(t *testing.T, b []byte) {
	t.Helper()
	doc, err := new(decoder).decode(b, PayloadNestingMax)
	want, wantErr := plainJSON(b)
	switch {
	case errors.Is(err, errDeep) || err != nil && strings.Contains(err.Error(), "exponent"):
		return // ours are stricter
	case err == nil && (wantErr != nil || !utf8.Valid(b)):
		t.Fatalf("%q: accepted, want %v", b, wantErr)
	case err == nil && !reflect.DeepEqual(doc.root().plain(), want):
		t.Fatalf("%q: %v, want %v", b, doc.root().plain(), want)
	case err != nil && wantErr == nil && utf8.Valid(b):
		t.Fatalf("%q: refused: %v", b, err)
	}
}

var decodeSeeds = []string{
	``, ` `, `{}`, `[]`, `null`, `true`, `fals`, `"`, `"a`, `"\u00e9\ud83d\ude00\ud800x\udc00\/\b\f\n\r\t\"\\"`, `"\ud800\ud800\udc00"`,
	`"\u12"`, `"\x"`, `"é\n日本"`, "\"\\\xff\"", `-0.0e+00`, `-`, `1.`, `1e`, `.5`, `00`, `[1,2,[3,{"a":[]}]]`, `[1 2]`, `{"a":1,"a":2,"b":{"a":3}}`,
	`{"a" 1}`, `{"a":}`, `{,}`, `{"a":1,}`, `{"b":1,"c":2,"d":3,"e":4,"f":5,"g":6,"h":7,"i":8,"b":9,"\u0063":10}`, `[[[[[[]]]]]]`, "\xef\xbb\xbf{}",
	` { "x" : [ 1 , "y" ] } `, `1e1000`, `1e1001`, "[1,\x00]", `"\uD83D\uDE00"`, `nul`, `[true,false,null]`, "\"\xed\xa0\x80\"", `{"a":{"a":{"a":1},"a":2}}`,
}

func TestDecodeLikeTheStandardLibrary(t *testing.T) {
	for _, s := range decodeSeeds {
		checkDecode(t, []byte(s))
	}
	checkDecode(t, []byte("["+strings.Repeat(`{"a":[1,"x\n"]},`, 4_000)+"0]"))
	checkDecode(t, []byte("{"+repeat(3_000, ",", func(i int) string { return fmt.Sprintf(`"k%d":%d`, i%1_000, i) })+"}"))
}

// The tape of a text, cell by cell.
func TestGoldenTape(t *testing.T) {
	doc, err := new(decoder).decode([]byte(`{"a":[1,true],"b\n":"x","a":null}`), 2)
	if err != nil {
		t.Fatal(err)
	}
	want := []cell{
		{kind: kindObject, n: 2, end: 9},
		{kind: kindString, shadowed: true, at: 2, n: 1, end: 2},
		{kind: kindArray, n: 2, end: 5},
		{kind: kindNumber, at: 6, n: 1, end: 4},
		{kind: kindTrue, end: 5},
		{kind: kindString, escaped: true, at: 0, n: 2, end: 6},
		{kind: kindString, at: 21, n: 1, end: 7},
		{kind: kindString, at: 25, n: 1, end: 8},
		{kind: kindNull, end: 9},
	}
	if !reflect.DeepEqual(doc.cells, want) || string(doc.text) != "b\n" {
		t.Errorf("text %q, cells\n%+v\nwant\n%+v", doc.text, doc.cells, want)
	}
}

// A decoder forgets what it read before.
func TestDecoderIsReused(t *testing.T) {
	var d decoder
	for range 2 {
		for _, s := range decodeSeeds {
			again, err := d.decode([]byte(s), PayloadNestingMax)
			fresh, freshErr := new(decoder).decode([]byte(s), PayloadNestingMax)
			if (err == nil) != (freshErr == nil) || err == nil && !reflect.DeepEqual(again.cells, fresh.cells) {
				t.Errorf("%q: %v and %v", s, err, freshErr)
			}
		}
	}
}
