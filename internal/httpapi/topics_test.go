package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

// fields lists the member names of a JSON object in the order they were written.
func fields(t *testing.T, body string) (names []string) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(body))
	depth, key := 0, false
	for {
		tok, err := dec.Token()
		if err != nil {
			return names
		}
		if d, ok := tok.(json.Delim); ok {
			if d == '{' || d == '[' {
				depth++
			} else {
				depth--
			}
			key = depth == 1
			continue
		}
		if depth != 1 {
			continue
		}
		if key {
			names = append(names, tok.(string))
		}
		key = !key
	}
}

// TestTopicsCreate covers TC-1, TC-3, TC-8, TC-9, TC-20 and the strict body.
func TestTopicsCreate(t *testing.T) {
	n := newNode(t, nil)
	got := n.do(t, "POST", "/v1/topics", `{"name":"Orders","owner":"root","partitions":4,"retention_ms":0}`)
	got.expect(t, 201, `"name":"Orders"`)
	want := "name id partitions retention_ms visibility_timeout_ms max_in_flight_per_partition max_acked_ahead_per_partition created_at"
	if names := strings.Join(fields(t, got.body), " "); names != want {
		t.Fatalf("TC-1 fields %s, want %s", names, want)
	}
	var topic model.Topic
	if err := json.Unmarshal([]byte(got.body), &topic); err != nil || topic.Partitions != 4 || topic.RetentionMS != 0 ||
		topic.VisibilityTimeoutMS != 30_000 || topic.MaxInFlight != 1024 || len(topic.ID) != 16 {
		t.Fatalf("TC-1 %+v %v", topic, err)
	}
	if got.header.Get("Content-Type") != "application/json" || got.header.Get("Content-Length") != fmt.Sprint(len(got.body)) {
		t.Fatalf("BODY-2 headers %v for %d bytes", got.header, len(got.body))
	}
	for _, tc := range []struct {
		name, body string
		status     int
		text       string
	}{
		{"TC-1 defaults", `{"name":"plain"}`, 201, `"partitions":3,"retention_ms":604800000`},
		{"BODY-10 null is absent", `{"name":"nulls","retention_ms":null,"partitions":null}`, 201, `"retention_ms":604800000`},
		{"TC-1 zero is the default", `{"name":"zeros","partitions":0,"visibility_timeout_ms":0,"max_in_flight_per_partition":0}`, 201, `"partitions":3`},
		{"TC-3 no name", `{}`, 400, "invalid argument: "},
		{"TC-3 bad name", `{"name":"a/b"}`, 400, "invalid argument: "},
		{"TC-3 dots", `{"name":".."}`, 400, "invalid argument: "},
		{"TC-3 long name", `{"name":"` + strings.Repeat("a", 201) + `"}`, 400, "invalid argument: "},
		{"TC-3 partitions 2", `{"name":"x","partitions":2}`, 400, "invalid argument: "},
		{"TC-3 partitions 109", `{"name":"x","partitions":109}`, 400, "invalid argument: "},
		{"TC-3 retention", `{"name":"x","retention_ms":3599999}`, 400, "invalid argument: "},
		{"TC-3 negative retention", `{"name":"x","retention_ms":-1}`, 400, "invalid argument: "},
		{"TC-3 visibility", `{"name":"x","visibility_timeout_ms":-1}`, 400, "invalid argument: "},
		{"TC-8", `{"name":"Orders"}`, 409, `"topic already exists","code":"topic_exists"`},
		{"TC-9", `{"name":"orders"}`, 409, "Orders"},
		{"BODY-1 unknown field", `{"name":"x","foo":1}`, 400, `invalid json: json: unknown field \"foo\"`},
		{"BODY-1 type", `{"name":1}`, 400, "invalid json: json: "},
		{"BODY-1 second value", `{"name":"x"}{}`, 400, "invalid json: "},
		{"BODY-1 empty", ``, 400, "invalid json: EOF"},
		{"BODY-1 no JSON", `name=x`, 400, "invalid json: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n.do(t, "POST", "/v1/topics", tc.body).expect(t, tc.status, tc.text)
		})
	}
	if log := n.log.String(); !strings.Contains(log, `"msg":"audit","component":"audit","event":"topic.create","actor":"","target":"Orders","status":201,"outcome":"ok"`) ||
		!strings.Contains(log, `"target":"orders","status":409,"outcome":"rejected"`) || strings.Contains(log, `"status":400,"outcome":"ok"`) {
		t.Fatalf("audit lines: %s", log)
	}
}

// TestTopicsList covers 8.2 and TL-1.
func TestTopicsList(t *testing.T) {
	n := newNode(t, nil)
	n.do(t, "GET", "/v1/topics", "").expect(t, 200, `{"next_page_token":"","topics":[]}`+"\n")
	for _, name := range []string{"c", "B", "a"} {
		n.create(t, name)
	}
	read := func(query string) (string, string) {
		t.Helper()
		a := n.do(t, "GET", "/v1/topics?"+query, "")
		var out struct {
			NextPageToken string `json:"next_page_token"`
			Topics        []model.Topic
		}
		if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		names := ""
		for _, tp := range out.Topics {
			if tp.Role != model.RoleStandalone {
				t.Fatalf("role %q", tp.Role)
			}
			names += tp.Name
		}
		return names, out.NextPageToken
	}
	for _, tc := range []struct{ query, names, token string }{
		{"", "Bac", ""},
		{"limit=2", "Ba", "a"},
		{"limit=2&page_token=a", "c", ""},
		{"limit=3", "Bac", ""},
		{"limit=1001", "Bac", ""},
		{"limit=99999999999999999999", "Bac", ""},
		{"page_token=%00%ff", "Bac", ""},
		{"page_token=z", "", ""},
		{"limit=1&limit=x", "B", "B"}, // BODY-9: the first counts
	} {
		if names, token := read(tc.query); names != tc.names || token != tc.token {
			t.Errorf("?%s: %q, token %q; want %q, %q", tc.query, names, token, tc.names, tc.token)
		}
	}
	for _, limit := range []string{"0", "-1", "x", "", "-99999999999999999999"} {
		n.do(t, "GET", "/v1/topics?limit="+limit, "").expect(t, 400, "invalid argument: limit")
	}
}

// TestTopicsDescribe covers TG-1, TG-3, TG-5 and the field order of 7.2 and 7.3.
func TestTopicsDescribe(t *testing.T) {
	n := newNode(t, nil)
	n.create(t, "t")
	n.do(t, "POST", "/v1/topics/t/produce?partition=1", "hello").expect(t, 202, "")
	n.take(t, "t", "partition=1")
	got := n.do(t, "GET", "/v1/topics/t", "")
	got.expect(t, 200, `"schema_version":0,"partition_stats":[{"index":0,"segments":0,"oldest_offset":0,"next_offset":0,"high_watermark":0,"size_bytes":0,"owner_node":"n1","status":"ok"}`)
	got.expect(t, 200, `{"index":1,"segments":1,"oldest_offset":0,"next_offset":1,"high_watermark":1,`)
	want := "name id partitions retention_ms visibility_timeout_ms max_in_flight_per_partition max_acked_ahead_per_partition created_at role schema_version partition_stats"
	if names := strings.Join(fields(t, got.body), " "); names != want {
		t.Fatalf("fields %s, want %s", names, want)
	}
	one := n.do(t, "GET", "/v1/topics/t?partition=1", "")
	one.expect(t, 200, `"partition_stats":[{"index":1,`)
	if strings.Count(one.body, `"index"`) != 1 {
		t.Fatalf("%s", one.body)
	}
	for _, p := range []string{"3", "-1", "x", ""} {
		n.do(t, "GET", "/v1/topics/t?partition="+p, "").expect(t, 400, `"invalid argument: partition out of range"`)
	}
	for _, name := range []string{"nope", "T", "a%2Fb", "%00", "..%2ft", "%2e%2e"} {
		n.do(t, "GET", "/v1/topics/"+name, "").expect(t, 404, `{"error":"topic not found","code":"topic_not_found"}`)
	}
}

// TestTopicsAlter covers TA-1 to TA-4, TA-13, TA-15's rule of groups, and the
// audit lines of a partial change.
func TestTopicsAlter(t *testing.T) {
	n := newNode(t, nil)
	n.create(t, "t")
	for _, tc := range []struct {
		name, path, body string
		status           int
		text             string
	}{
		{"TA-1 retention", "t", `{"retention_ms":7200000}`, 200, `"retention_ms":7200000`},
		{"TA-1 forever", "t", `{"retention_ms":0}`, 200, `"retention_ms":0`},
		{"TA-1 caps", "t", `{"max_in_flight_per_partition":7}`, 200, `"max_in_flight_per_partition":7,"max_acked_ahead_per_partition":1024`},
		{"TA-1 cap of 0", "t", `{"max_in_flight_per_partition":0}`, 200, `"max_in_flight_per_partition":1024`},
		{"TA-1 partitions", "t", `{"partitions":5}`, 200, `"partitions":5`},
		{"TA-2 empty", "t", `{}`, 400, "invalid argument: "},
		{"TA-2 zero partitions", "t", `{"partitions":0}`, 400, "invalid argument: "},
		{"TA-2 null", "t", `{"retention_ms":null}`, 400, "invalid argument: "},
		{"TA-3 same", "t", `{"partitions":5}`, 400, "invalid argument: "},
		{"TA-3 fewer", "t", `{"partitions":4}`, 400, "invalid argument: "},
		{"TA-3 too many", "t", `{"partitions":109}`, 400, "invalid argument: "},
		{"TA-4", "t", `{"visibility_timeout_ms":1}`, 400, `{"error":"invalid json: json: unknown field \"visibility_timeout_ms\"","code":"invalid_json"}`},
		{"TA-13", "nope", `{"retention_ms":0}`, 404, "topic not found"},
		{"TA-15 groups", "t", `{"retention_ms":7200000,"max_in_flight_per_partition":9,"partitions":2}`, 400, "invalid argument: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n.do(t, "PATCH", "/v1/topics/"+tc.path, tc.body).expect(t, tc.status, tc.text)
		})
	}
	n.do(t, "GET", "/v1/topics/t", "").expect(t, 200, `"partitions":5,"retention_ms":7200000,"visibility_timeout_ms":30000,"max_in_flight_per_partition":9`)
	log := n.log.String()
	for _, want := range []string{
		`"event":"topic.alter","actor":"","target":"t","status":400,"outcome":"ok","fields":"retention,caps"`,
		`"event":"topic.alter","actor":"","target":"t","status":400,"outcome":"rejected","fields":"partitions"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s", want)
		}
	}
}

// TestTopicsDelete covers TD-1, TD-10, TD-11, C-20 and RT-9.
func TestTopicsDelete(t *testing.T) {
	n := newNode(t, nil)
	n.create(t, "t")
	n.do(t, "DELETE", "/v1/topics/t?force=maybe", "").expect(t, 400, "force must be true or false")
	parked := make(chan answer, 1)
	go func() { parked <- n.do(t, "GET", "/v1/topics/t/consume?wait=10s", "") }()
	testutil.Eventually(t, 5*time.Second, func() bool { return promtest.ToFloat64(n.api.metrics.inFlight) == 1 }, "the consume to park")
	start := time.Now()
	n.do(t, "DELETE", "/v1/topics/t", "", "-"+clientHeader).expect(t, 204, "")
	if a := <-parked; a.status != 204 && a.status != 404 || time.Since(start) > 5*time.Second {
		t.Fatalf("C-20: the long poll answered %d after %v", a.status, time.Since(start))
	}
	n.do(t, "DELETE", "/v1/topics/t", "").expect(t, 404, "topic not found")
	n.do(t, "POST", "/v1/topics/t/produce", "x").expect(t, 404, "topic not found")
	if !strings.Contains(n.log.String(), `"event":"topic.delete","actor":"","target":"t","status":204,"outcome":"ok","incarnation":"`) {
		t.Fatalf("audit: %s", n.log.String())
	}
	n.create(t, "t")
	n.do(t, "GET", "/v1/topics/t/consume", "").expect(t, 204, "")
}

// TestAuditOutcome: section 18's outcomes.
func TestAuditOutcome(t *testing.T) {
	for _, tc := range []struct {
		status int
		err    error
		want   string
	}{
		{200, nil, "ok"}, {400, nil, "ok"}, {403, errors.New("x"), "denied"}, {409, errors.New("x"), "rejected"},
		{500, errors.New("x"), "failed"}, {503, model.ErrUnavailable, "failed"}, {503, fmt.Errorf("x: %w", model.ErrOutcomeUnknown), "unknown"},
		{499, context.Canceled, "unknown"}, {503, context.DeadlineExceeded, "unknown"},
	} {
		if got, _ := auditOutcome(tc.status, tc.err); got != tc.want {
			t.Errorf("%d %v: %s, want %s", tc.status, tc.err, got, tc.want)
		}
	}
}
