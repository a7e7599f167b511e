package httpapi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/ingress"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

// errorRows is every row of the error table, seen from outside: what a floor
// below returns, and what the client reads (spec/http-api section 16).
func errorRows() []struct {
	name   string
	err    error
	status int
	body   string
	retry  string
} {
	wrap := func(err error) error { return fmt.Errorf("inner context: %w", err) }
	return []struct {
		name   string
		err    error
		status int
		body   string
		retry  string
	}{
		{"topic_not_found", wrap(model.ErrTopicNotFound), 404, `{"error":"topic not found","code":"topic_not_found"}`, ""},
		{"topic_exists", wrap(model.ErrTopicExists), 409, `{"error":"topic already exists","code":"topic_exists"}`, ""},
		{"topic_name_taken", wrap(fmt.Errorf("%w: %q", model.ErrNameTaken, "Orders")), 409, `{"error":"topic name differs from an existing one only by case: \"Orders\"","code":"topic_name_taken"}`, ""},
		{"topic_changed", model.ErrTopicChanged, 409, `{"error":"topic changed since it was read","code":"topic_changed"}`, ""},
		{"invalid", wrap(fmt.Errorf("%w: partitions 2", model.ErrInvalid)), 400, `{"error":"invalid argument: partitions 2","code":"invalid_argument"}`, ""},
		{"conflict", wrap(fmt.Errorf("%w: no", model.ErrConflict)), 409, `{"error":"conflict: no","code":"conflict"}`, ""},
		{"P-8 delayed_child", model.ErrDelayedChild, 409, `{"error":"direct produce to a delayed child topic is not allowed","code":"delayed_child"}`, ""},
		{"A-4 bad handle", model.ErrBadHandle, 400, `{"error":"invalid receipt handle","code":"invalid_receipt_handle"}`, ""},
		{"A-2 no lease", wrap(model.ErrNoLease), 410, `{"error":"receipt handle no longer matches an active reservation","code":"lease_gone"}`, ""},
		{"R-3 aged out", wrap(&model.AgedOutError{Offset: 3, Oldest: 9}), 410, `{"error":"offset 3 aged out of retention (oldest retained: 9)","code":"offset_aged_out"}`, ""},
		{"R-4 unreadable", wrap(model.ErrUnreadable), 410, `{"error":"record is unreadable","code":"record_unreadable"}`, ""},
		{"E-421", wrap(model.ErrNotOwner), 421, `{"error":"this node does not own the requested partition","code":"not_owner"}`, ""},
		{"E-CP1", wrap(model.ErrUnavailable), 503, `{"error":"control plane temporarily unavailable","code":"control_plane_unavailable"}`, ""},
		{"E-CP2", wrap(fmt.Errorf("%w: leadership lost", model.ErrOutcomeUnknown)), 503, `{"error":"control plane temporarily unavailable: the change may still be applied, read it back before retrying: leadership lost","code":"outcome_unknown"}`, ""},
		{"E-CP2 deadline", context.DeadlineExceeded, 503, `{"error":"control plane temporarily unavailable: the change may still be applied, read it back before retrying: no decision within the time of one request","code":"outcome_unknown"}`, ""},
		{"P-12 WAL", wrap(model.ErrWALFailed), 500, `{"error":"produce failed","code":"internal"}`, ""},
		{"P-14", wrap(model.ErrSchemaBusy), 503, `{"error":"schema: validation capacity busy, retry","code":"schema_busy"}`, ""},
		{"TA-7", fmt.Errorf("%w: x", model.ErrSchemaVersion), 409, `{"error":"schema version conflict: x","code":"schema_version_conflict"}`, ""},
		{"E-DRAIN2", wrap(model.ErrAllDraining), 503, `{"error":"` + model.ErrAllDraining.Error() + `","code":"all_members_draining"}`, ""},
		{"disk reserve", wrap(model.ErrDiskReserve), 503, `{"error":"disk almost full","code":"disk_reserve"}`, "1"},
		{"too large", wrap(model.ErrTooLarge), 413, `{"error":"message too large","code":"message_too_large"}`, ""},
		{"shutting down", model.ErrShuttingDown, 503, `{"error":"shutting down","code":"shutting_down"}`, ""},
		{"anything else", errors.New("disk on fire"), 500, `{"error":"produce failed","code":"internal"}`, ""},
		{"gone", context.Canceled, 499, `{"error":"client closed request","code":"client_closed_request"}`, ""},
	}
}

// TestErrorTable: each sentinel has its status, text, code and Retry-After, and
// the context an inner floor adds never reaches the client.
func TestErrorTable(t *testing.T) {
	for _, tc := range errorRows() {
		t.Run(tc.name, func(t *testing.T) {
			s := serveFake(t, &fake{err: tc.err}, nil)
			got := s.do(t, "POST", "/v1/topics/t/produce", "x")
			if got.status != tc.status || got.body != tc.body+"\n" || got.header.Get("Retry-After") != tc.retry {
				t.Fatalf("%d %q Retry-After %q\nwant %d %q %q", got.status, got.body, got.header.Get("Retry-After"), tc.status, tc.body, tc.retry)
			}
			if got.header.Get("Content-Type") != "application/json" {
				t.Fatalf("Content-Type %q", got.header.Get("Content-Type"))
			}
		})
	}
}

// TestE500Texts: an unexplained failure is "<operation> failed" on every route.
func TestE500Texts(t *testing.T) {
	s := serveFake(t, &fake{err: errors.New("boom")}, nil)
	for _, tc := range []struct{ method, path, body, want string }{
		{"POST", "/v1/topics/t/produce", "x", "produce failed"},
		{"POST", "/v1/topics/t/produce/batch", `{"messages":[{"payload":1}]}`, "produce failed"},
		{"GET", "/v1/topics/t/consume", "", "consume failed"},
		{"POST", "/v1/topics/t/ack?receipt_handle=0:0:1", "", "ack failed"},
		{"GET", "/v1/topics/t", "", "get topic failed"},
		{"POST", "/v1/topics", `{"name":"t"}`, "create topic failed"},
		{"PATCH", "/v1/topics/t", `{"retention_ms":0}`, "alter topic failed"},
		{"DELETE", "/v1/topics/t", "", "delete topic failed"},
	} {
		s.do(t, tc.method, tc.path, tc.body).expect(t, 500, tc.want)
	}
	if log := s.log.String(); !strings.Contains(log, `"msg":"http server error","op":"produce","err":"boom"`) {
		t.Fatalf("log %s", log)
	}
}

// TestServerErrorLog: every 5xx is counted; repeating ones are logged once a
// second per operation and code, and a probe's "not ready" is neither.
func TestServerErrorLog(t *testing.T) {
	s := serveFake(t, &fake{err: fmt.Errorf("fsync: %w", model.ErrWALFailed)}, nil)
	for range 5 {
		s.do(t, "POST", "/v1/topics/t/produce", "x").expect(t, 500, "produce failed")
	}
	s.do(t, "GET", "/readyz", "").expect(t, 503, "{")
	if n := strings.Count(s.log.String(), "http server error"); n != 1 {
		t.Fatalf("%d lines, want 1: %s", n, s.log.String())
	}
	if !strings.Contains(s.log.String(), "fsync: ") {
		t.Fatalf("the line lacks the cause: %s", s.log.String())
	}
	if got := promtest.ToFloat64(s.api.metrics.serverErrors); got != 5 {
		t.Fatalf("narad_errors_total %v, want 5", got)
	}
}

// TestErrorTextIsJSON (BODY-3): a text that quotes raw bytes of the request is
// still valid JSON.
func TestErrorTextIsJSON(t *testing.T) {
	r := &refusal{status: 400, code: "x", text: "bad \xff\x00\"<name>"}
	if got, want := string(r.body()), "{\"error\":\"bad \ufffd\\u0000\\\"\\u003cname\\u003e\",\"code\":\"x\"}\n"; got != want {
		t.Fatalf("%q, want %q", got, want)
	}
}

// TestDocumentedCodes: docs/errors.md lists every code of the package.
func TestDocumentedCodes(t *testing.T) {
	doc, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	src := ""
	for _, name := range []string{"errors.go", "refusal.go", "limits.go", "batch.go"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		src += string(b)
	}
	n := 0
	for _, part := range strings.Split(src, `code: "`)[1:] {
		code, _, _ := strings.Cut(part, `"`)
		if !strings.Contains(string(doc), "`"+code+"`") {
			t.Errorf("docs/errors.md lacks %s", code)
		}
		n++
	}
	for _, code := range []string{codeInvalid, codeInvalidJSON, codeBodyTooLarge, codeMsgTooLarge, codeMsgRequired, codeHandleNeeded, codeInternal, codeControlPlane, codeOutcomeUnknown, codeNotReady, codeShuttingDown, codeClientGone} {
		if !strings.Contains(string(doc), "`"+code+"`") {
			t.Errorf("docs/errors.md lacks %s", code)
		}
	}
	if n < 15 {
		t.Fatalf("found %d codes in the source: the test reads it wrongly", n)
	}
}

// TestBatchMessageErrors (PB-5, PB-15): the next floor's refusal of one message
// names it and keeps the single produce's status; what is not about a message is
// left alone.
func TestBatchMessageErrors(t *testing.T) {
	for _, tc := range []struct {
		err    error
		status int
		text   string
	}{
		{&ingress.MessageError{Index: 4, Err: fmt.Errorf("%w: partition out of range", model.ErrInvalid)}, 400, `"message 4: invalid argument: partition out of range"`},
		{&ingress.MessageError{Index: 0, Err: model.ErrTooLarge}, 413, `"message 0: message too large"`},
		{model.ErrTopicNotFound, 404, `"topic not found"`},
		{fmt.Errorf("x: %w", model.ErrDiskReserve), 503, `"disk almost full"`},
		{&ingress.MessageError{Index: 3, Err: model.ErrSchemaBusy}, 503, `{"error":"schema: validation capacity busy, retry"`},
	} {
		s := serveFake(t, &fake{err: tc.err}, nil)
		s.do(t, "POST", "/v1/topics/t/produce/batch", `{"messages":[{"payload":1}]}`).expect(t, tc.status, tc.text)
	}
}

// TestPIPE2_PanicContainment: one 500, logged, and everything the request held
// is given back: the next request has the whole cap again.
func TestPIPE2_PanicContainment(t *testing.T) {
	f := &fake{accept: func(context.Context) error { panic("kaboom") }}
	s := serveFake(t, f, func(c *config.HTTP) { c.MaxProduceInFlightPerID = 1; c.MaxBatchBodyBytesInFlight = 4 << 20 })
	body := list(3, `{"payload":"`+strings.Repeat("x", 700_000)+`"}`)
	for range 3 {
		s.do(t, "POST", "/v1/topics/t/produce", "x").expect(t, 500, `{"error":"internal server panic","code":"internal"}`)
		s.do(t, "POST", "/v1/topics/t/produce/batch", body).expect(t, 500, "internal server panic")
	}
	if !strings.Contains(s.log.String(), "kaboom") || !strings.Contains(s.log.String(), "pipeline_test.go") {
		t.Fatalf("the log lacks the panic or its stack: %.500s", s.log.String())
	}
	if n := s.api.batchBudget.used.Load(); n != 0 {
		t.Fatalf("%d bytes of the budget are held", n)
	}
	f.accept = nil
	s.do(t, "POST", "/v1/topics/t/produce", "x").expect(t, 202, "")
}

// TestPhases: H-1, H-2, H-3, H-5 and what the other routes say meanwhile.
func TestPhases(t *testing.T) {
	s := serve(t, nil)
	f := &fake{}
	s.do(t, "GET", "/healthz", "").expect(t, 200, `{"status":"ok"}`)
	s.do(t, "GET", "/readyz", "").expect(t, 503, `{"error":"not ready","code":"not_ready"}`)
	s.do(t, "GET", "/metrics", "").expect(t, 200, "narad_http_requests_in_flight ")
	s.do(t, "POST", "/v1/topics/t/produce", "x").expect(t, 503, "not ready")
	s.do(t, "GET", "/v1/topics", "").expect(t, 503, "not ready")
	s.do(t, "GET", "/v1/nowhere", "").expect(t, 404, "404 page not found")

	s.api.Begin(f.backends())
	s.do(t, "GET", "/readyz", "").expect(t, 200, "{\"status\":\"ready\"}\n")
	s.do(t, "POST", "/v1/topics/t/produce", "x").expect(t, 202, "")
	f.err = errors.New("metastore: node is not ready: no raft leader known")
	s.do(t, "GET", "/readyz", "").expect(t, 503, `{"error":"metastore: node is not ready: no raft leader known","code":"not_ready"}`)
	s.do(t, "GET", "/healthz", "").expect(t, 200, "ok")
	f.err = nil

	s.api.Stop()
	s.do(t, "GET", "/healthz", "").expect(t, 503, `{"error":"shutting down","code":"shutting_down"}`)
	s.do(t, "GET", "/readyz", "").expect(t, 503, "shutting down")
	got := s.do(t, "GET", "/v1/topics/t/consume", "")
	got.expect(t, 204, "")
	if raw := s.raw(t, 5*time.Second, "GET /v1/topics/t/consume HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.Contains(raw, "Connection: close") {
		t.Fatalf("a stopping node keeps the connection: %q", raw)
	}
}

// TestH13_MetricsElsewhere: with a separate listener, /metrics is there alone and
// that listener has nothing else.
func TestH13_MetricsElsewhere(t *testing.T) {
	s := serveFake(t, &fake{}, func(c *config.HTTP) { c.MetricsAddr = "127.0.0.1:0" })
	s.do(t, "GET", "/metrics", "").expect(t, 404, "404 page not found")
	ops := recordOps(s.api, "/metrics")
	if ops.status != 200 || !strings.Contains(ops.body, "narad_http_requests_in_flight") {
		t.Fatalf("%d %.200s", ops.status, ops.body)
	}
	if got := recordOps(s.api, "/v1/topics"); got.status != 404 {
		t.Fatalf("the metrics listener serves topics: %d", got.status)
	}
	if got := recordOps(s.api, "/healthz"); got.status != 200 {
		t.Fatalf("healthz %d", got.status)
	}
}

// TestRequestMetrics: labels are closed lists, and the series are the ones of
// spec/metrics section 3.
func TestRequestMetrics(t *testing.T) {
	s := serveFake(t, &fake{}, nil)
	s.do(t, "POST", "/v1/topics/t/produce", "hello").expect(t, 202, "")
	s.do(t, "POST", "/v1/topics/t/produce", "hello").expect(t, 202, "")
	s.do(t, "BREW", "/v1/topics/t", "").expect(t, 405, "Method")
	s.do(t, "GET", "/nowhere", "").expect(t, 404, "404")
	s.do(t, "GET", "/v1/topics/t", "").expect(t, 200, "{")
	s.do(t, "POST", "/v1/topics/t/ack?receipt_handle=0:0:1", "").expect(t, 204, "")
	s.idle(t)
	body := s.do(t, "GET", "/metrics", "", "Accept-Encoding: identity").body
	for _, want := range []string{
		`narad_http_requests_total{method="POST",route="POST /v1/topics/{topic}/produce",status="202"} 2`,
		`narad_http_requests_total{method="OTHER",route="unmatched",status="405"} 1`,
		`narad_http_requests_total{method="GET",route="unmatched",status="404"} 1`,
		`narad_http_requests_total{method="GET",route="GET /v1/topics/{topic}",status="200"} 1`,
		`narad_http_request_duration_seconds_count{method="POST",route="POST /v1/topics/{topic}/ack",status="204"} 1`,
		`narad_http_request_bytes_in_total{route="POST /v1/topics/{topic}/produce"} 10`,
		`narad_http_response_bytes_out_total{route="unmatched"}`,
		`narad_http_batch_body_budget_rejections_total 0`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	gz := s.do(t, "GET", "/metrics", "", "Accept-Encoding: gzip")
	if gz.header.Get("Content-Encoding") != "gzip" || !strings.HasPrefix(gz.body, "\x1f\x8b") {
		t.Errorf("no gzip: %v", gz.header)
	}
}

// TestC21_ClientLeaves: a consume whose client left is recorded as 499, and what
// it had been given is released.
func TestC21_ClientLeaves(t *testing.T) {
	entered := make(chan struct{})
	f := &fake{}
	f.consume = func(ctx context.Context) ([]model.Delivery, error) {
		close(entered)
		<-ctx.Done()
		return []model.Delivery{{Message: model.Message{Topic: "t", Payload: []byte("1")}, Handle: model.Handle{Offset: 1, Nonce: 1}}}, nil
	}
	s := serveFake(t, f, nil)
	conn := s.dial(t)
	fmt.Fprintf(conn, "GET /v1/topics/t/consume?wait=10s HTTP/1.1\r\nHost: x\r\n\r\n")
	<-entered
	conn.Close()
	testutil.Eventually(t, 5*time.Second, func() bool { return f.releases() == 1 }, "release of the delivery")
	testutil.Eventually(t, 5*time.Second, func() bool {
		return promtest.ToFloat64(s.api.metrics.requests.WithLabelValues(routeConsume.label(), "GET", "499")) == 1
	}, "a 499 in the metrics")
}
