package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// golden is a batch receive as a server writes it.
const golden = `{"messages":[` +
	`{"topic":"t","partition":2,"offset":17,"key":"k\"1","payload":{"a": 1},"timestamp":1700000000,"receipt_handle":"2:17:99","delivery_count":3},` +
	`{"topic":"t","partition":0,"offset":0,"key":"/w==","key_encoding":"base64","payload":"AP8=","payload_encoding":"base64","timestamp":1},` +
	`{"topic":"other","partition":0,"offset":1,"payload":"te\u0078t","timestamp":1,"receipt_handle":"h","later":[{}]},` +
	`{"topic":"t","partition":0,"offset":2,"key":null,"payload": 1 ,"timestamp":1}` +
	`]}` + "\n"

func TestDecodeGolden(t *testing.T) {
	ds, bad, err := decodeMessages([]byte(golden), "t")
	if bad != nil || err != nil || len(ds) != 4 {
		t.Fatalf("%d messages, %v, %v", len(ds), bad, err)
	}
	for i, want := range []string{
		`t 2 17 "k\"1" "{\"a\": 1}" false 1700000000 "2:17:99" 3`,
		`t 0 0 "\xff" "\x00\xff" true 1 "" 0`,
		`other 0 1 "" "text" false 1 "h" 0`,
		`t 0 2 "" " 1 " false 1 "" 0`, // the white space was stored
	} {
		d := ds[i]
		if got := fmt.Sprintf("%s %d %d %q %q %v %d %q %d", d.Topic, d.Partition, d.Offset, d.Key, d.Payload, d.Binary, d.Timestamp.Unix(), d.Handle, d.DeliveryCount); got != want {
			t.Errorf("message %d: %s, want %s", i, got, want)
		}
	}
	if ds[2].Key != nil {
		t.Error("an absent key is not nil")
	}
	if extra := append(ds[0].Payload, "xxxxx"...); bytes.Contains([]byte(golden), extra) || string(ds[1].Payload) != "\x00\xff" {
		t.Error("growing a payload writes into another")
	}
}

// One message that cannot be decoded costs only itself.
func TestDecodeSparesTheOthers(t *testing.T) {
	for _, spoiled := range []string{`"payload":1,"payload_encoding":"zip"`, `"payload":"x","payload_encoding":"zip"`, `"payload":"!","payload_encoding":"base64"`,
		`"key":"x","key_encoding":"zip"`, `"offset":"x"`, `"offset":1.5`, `"topic":7`, `"partition":99999999999999999999`} {
		body := `{"messages":[{"offset":1,"payload":1},{` + spoiled + `},{"offset":3,"payload":3}]}`
		ds, bad, err := decodeMessages([]byte(body), "t")
		if err != nil || bad == nil || len(ds) != 2 || ds[1].Offset != 3 {
			t.Errorf("%s: %d messages, %v, %v", spoiled, len(ds), bad, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, body := range []string{``, `{`, `[]`, `null`, `{"messages"`, `{"messages":[`, `{"messages":[{}`, `{"messages":{}}`, `{"messages":[]}x`, `{"messages":[{}{}]}`,
		`{"messages":[1,]}`, `{messages:[]}`, `{"messages":[{"a":tru}]}`, `{"a":` + strings.Repeat("[", answerDepthMax+1) + strings.Repeat("]", answerDepthMax+1) + `}`} {
		if ds, _, err := decodeMessages([]byte(body), "t"); err == nil {
			t.Errorf("%.60q: %d messages and no error", body, len(ds))
		}
	}
	deep := `{"messages":[{"payload":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}]}`
	if ds, bad, err := decodeMessages([]byte(deep), "t"); err != nil || bad != nil || len(ds) != 1 {
		t.Errorf("a payload of 10,000 levels: %v, %v", bad, err)
	}
}

func FuzzDecodeMessages(f *testing.F) {
	f.Add([]byte(golden))
	f.Add([]byte(`{"messages":[{"payload":"x","payload_encoding":"zip"}]}`))
	f.Add([]byte(`{"messages":[{"key":"\ud800","payload":{"a":[]}}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		ds, bad, err := decodeMessages(body, "t")
		if (err == nil && bad == nil) && !json.Valid(body) {
			t.Errorf("%q is no JSON and gives %d messages without an error", body, len(ds))
		}
		for _, d := range ds {
			if !d.Binary && len(d.Raw) > 0 && !json.Valid(d.Raw) {
				t.Errorf("%q: Raw %q is no JSON", body, d.Raw)
			}
		}
	})
}

func FuzzDecodeResults(f *testing.F) {
	f.Add([]byte(`{"results":[{"status":204},{"status":410,"error":"gone","code":"lease_gone"}]}`))
	f.Add([]byte(`{"results":[{"status":"x"}]}`))
	f.Add([]byte(`{"results":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		results, err := decodeResults(body)
		if err == nil && !json.Valid(body) {
			t.Errorf("%q is no JSON and gives %d results", body, len(results))
		}
	})
}

func TestHandlesOfABatch(t *testing.T) {
	handles := []string{"0:1:2", "with \"quotes\" \\ and \n"}
	var got struct {
		Handles []string `json:"receipt_handles"`
	}
	if err := json.Unmarshal(encodeHandles(handles), &got); err != nil || fmt.Sprint(got.Handles) != fmt.Sprint(handles) {
		t.Errorf("%q, %v", got.Handles, err)
	}
}

func TestSentinels(t *testing.T) {
	every := []error{ErrBadRequest, ErrUnauthenticated, ErrForbidden, ErrNotFound, ErrConflict, ErrExists, ErrNameTaken, ErrTopicChanged,
		ErrLeaseLost, ErrOffsetGone, ErrUnreadable, ErrTooLarge, ErrThrottled, ErrUnavailable, ErrServer}
	for _, tc := range []struct {
		e    Error
		want []error
	}{
		{Error{Status: 400}, []error{ErrBadRequest}},
		{Error{Status: 401}, []error{ErrUnauthenticated}},
		{Error{Status: 403}, []error{ErrForbidden}},
		{Error{Status: 404}, []error{ErrNotFound}},
		{Error{Status: 405}, []error{ErrBadRequest}},
		{Error{Status: 409}, []error{ErrConflict}},
		{Error{Status: 409, Code: "topic_exists"}, []error{ErrConflict, ErrExists}},
		{Error{Status: 409, Code: "user_exists"}, []error{ErrConflict, ErrExists}},
		{Error{Status: 409, Code: "topic_name_taken"}, []error{ErrConflict, ErrExists, ErrNameTaken}},
		{Error{Status: 409, Code: "topic_changed"}, []error{ErrConflict, ErrTopicChanged}},
		{Error{Status: 410}, []error{ErrLeaseLost}},
		{Error{Status: 410, Code: "lease_gone"}, []error{ErrLeaseLost}},
		{Error{Status: 410, Code: "offset_aged_out"}, []error{ErrOffsetGone}},
		{Error{Status: 410, Code: "record_unreadable"}, []error{ErrOffsetGone, ErrUnreadable}},
		{Error{Status: 413}, []error{ErrTooLarge}},
		{Error{Status: 415}, []error{ErrBadRequest}},
		{Error{Status: 421}, []error{ErrUnavailable}},
		{Error{Status: 429}, []error{ErrThrottled}},
		{Error{Status: 431}, []error{ErrBadRequest}},
		{Error{Status: 500}, []error{ErrServer}},
		{Error{Status: 502}, []error{ErrServer}},
		{Error{Status: 503}, []error{ErrUnavailable}},
		{Error{Status: 302}, nil},
	} {
		err := fmt.Errorf("in context: %w", wrap(&tc.e, opRead, 2, false))
		var got []error
		for _, s := range every {
			if errors.Is(err, s) {
				got = append(got, s)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%d %s matches %v, want %v", tc.e.Status, tc.e.Code, got, tc.want)
		}
	}
	if Retryable(nil) || Uncertain(nil) || Retryable(errTest) || Uncertain(errTest) {
		t.Error("errors of others are judged")
	}
}
