package httpapi

import (
	"strings"
	"testing"
)

// TestResolve: only exact, clean paths name something, and the topic is decoded
// after the split (PIPE-5).
func TestResolve(t *testing.T) {
	for _, tc := range []struct {
		path  string
		res   resource
		topic string
	}{
		{"/v1/topics", resTopics, ""},
		{"/v1/topics/", resNone, ""},
		{"/v1//topics", resNone, ""},
		{"//v1/topics", resNone, ""},
		{"/v1/topics/t", resTopic, "t"},
		{"/v1/topics/t/", resNone, ""},
		{"/v1/topics/.", resNone, ""},
		{"/v1/topics/..", resNone, ""},
		{"/v1/topics/../topics", resNone, ""},
		{"/v1/topics/./consume", resNone, ""},
		{"/v1/topics//consume", resNone, ""},
		{"/v1/topics/t/produce", resProduce, "t"},
		{"/v1/topics/t/produce/", resNone, ""},
		{"/v1/topics/t/produce/batch", resProduceBatch, "t"},
		{"/v1/topics/t/produce//batch", resNone, ""},
		{"/v1/topics/t/produce/batch/x", resNone, ""},
		{"/v1/topics/t/consume", resConsume, "t"},
		{"/v1/topics/t/ack", resAck, "t"},
		{"/v1/topics/t/schema", resSchema, "t"},
		{"/v1/topics/t/schema/1", resNone, ""},
		{"/v1/topics/t/grants", resNone, ""},
		{"/v1/users", resUsers, ""},
		{"/v1/users/", resNone, ""},
		{"/v1/users/alice", resUser, "alice"},
		{"/v1/users/al%69ce/grants", resGrants, "alice"},
		{"/v1/users/alice/password", resPassword, "alice"},
		{"/v1/users/alice/password/", resNone, ""},
		{"/v1/users/alice/ack", resNone, ""},
		{"/v1/users/..", resNone, ""},
		{"/v1/users//grants", resNone, ""},
		{"/v1/usersx", resNone, ""},
		{"/v1/topics/a%2Fb/consume", resConsume, "a/b"},
		{"/v1/topics/a%00b", resTopic, "a\x00b"},
		{"/v1/topics/%2e%2e/ack", resAck, ".."},
		{"/v1/topics/a%2", resNone, ""},
		{"/v1/topics/a%zz/consume", resNone, ""},
		{"/healthz", resHealthz, ""},
		{"/readyz", resReadyz, ""},
		{"/metrics", resMetrics, ""},
		{"/v1/openapi.yaml", resOpenAPI, ""},
		{"/healthz/", resNone, ""},
		{"/", resNone, ""},
		{"", resNone, ""},
		{"*", resNone, ""},
	} {
		res, topic := resolve(tc.path)
		if res != tc.res || topic != tc.topic {
			t.Errorf("resolve(%q) = %v, %q; want %v, %q", tc.path, res, topic, tc.res, tc.topic)
		}
	}
}

// TestPIPE5_RouteMatch: unknown paths are a plain 404, wrong methods a plain 405
// with Allow, and nothing is redirected.
func TestPIPE5_RouteMatch(t *testing.T) {
	s := serveFake(t, &fake{}, nil)
	for _, tc := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/", 404, ""},
		{"GET", "/v1/topics/", 404, ""},
		{"GET", "/v1/topics//t", 404, ""},
		{"GET", "/v1/users/", 404, ""},
		{"GET", "/v1/users/alice/ack", 404, ""},
		{"PATCH", "/v1/topics/t/children", 405, "GET, HEAD, POST"},
		{"GET", "/v1/topics/t/children/c", 405, "DELETE"},
		{"DELETE", "/v1/topics/t/children/", 404, ""},
		{"DELETE", "/v1/topics/t/children/..", 404, ""},
		{"DELETE", "/v1/topics/t/children/c/d", 404, ""},
		{"GET", "/v1/cluster", 404, ""},
		{"GET", "/v1/cluster/members/", 404, ""},
		{"GET", "/v1/cluster/members/n1", 404, ""},
		{"POST", "/v1/cluster/members/../forget", 404, ""},
		{"POST", "/v1/cluster/members/n1/forget/", 404, ""},
		{"POST", "/v1/cluster/members", 405, "GET, HEAD"},
		{"GET", "/v1/cluster/members/n1/forget", 405, "POST"},
		{"DELETE", "/v1/cluster/moves", 405, "GET, HEAD"},
		{"PUT", "/v1/topics", 405, "GET, HEAD, POST"},
		{"OPTIONS", "/v1/topics", 405, "GET, HEAD, POST"},
		{"POST", "/v1/topics/t", 405, "DELETE, GET, HEAD, PATCH"},
		{"GET", "/v1/topics/t/produce", 405, "POST"},
		{"GET", "/v1/topics/t/produce/batch", 405, "POST"},
		{"DELETE", "/v1/topics/t/ack", 405, "POST"},
		{"POST", "/v1/topics/t/consume", 405, "GET"},
		{"HEAD", "/v1/topics/t/consume", 405, "GET"},
		{"POST", "/v1/topics/t/schema", 405, "GET, HEAD"},
		{"PUT", "/v1/users", 405, "GET, HEAD, POST"},
		{"PATCH", "/v1/users/alice", 405, "DELETE, GET, HEAD"},
		{"GET", "/v1/users/alice/grants", 405, "PUT"},
		{"POST", "/v1/users/alice/password", 405, "PUT"},
		{"DELETE", "/healthz", 405, "GET, HEAD"},
		{"BREW", "/metrics", 405, "GET, HEAD"},
	} {
		t.Run(tc.method+tc.path, func(t *testing.T) {
			got := s.do(t, tc.method, tc.path, "")
			if got.status != tc.status || got.header.Get("Allow") != tc.allow {
				t.Fatalf("%d, Allow %q; want %d, %q", got.status, got.header.Get("Allow"), tc.status, tc.allow)
			}
			want := "404 page not found\n"
			if tc.status == 405 {
				want = "Method Not Allowed\n"
			}
			if tc.method != "HEAD" && got.body != want {
				t.Fatalf("body %q, want %q", got.body, want)
			}
			if got.header.Get("Content-Type") != typeText || got.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Fatalf("headers %v, want plain text and nosniff", got.header)
			}
		})
	}
}

// TestHEAD: served on GET routes with the same status and headers, no body; on
// consume only after the batch-header check (CSRF-6, C-7a).
func TestHEAD(t *testing.T) {
	s := serveFake(t, &fake{}, nil)
	for _, path := range []string{"/v1/topics", "/v1/topics/t", "/healthz", "/readyz"} {
		get, head := s.do(t, "GET", path, ""), s.do(t, "HEAD", path, "")
		if head.status != get.status || head.body != "" ||
			head.header.Get("Content-Length") != get.header.Get("Content-Length") ||
			head.header.Get("Content-Type") != get.header.Get("Content-Type") {
			t.Errorf("HEAD %s: %+v, GET %+v", path, head, get)
		}
	}
	s.do(t, "HEAD", "/v1/topics/t/consume?max=5", "", "-"+clientHeader).expect(t, 400, "")
	s.do(t, "HEAD", "/v1/topics/t/consume?max=5", "").expect(t, 405, "")
	s.do(t, "HEAD", "/v1/topics/t/consume?wait=bad", "", "-"+clientHeader).expect(t, 405, "")
}

// TestCSRF covers the cross-site guard, CSRF-1 to CSRF-7 (CSRF-3: TestPIPE3_Authentication).
func TestCSRF(t *testing.T) {
	s := serveFake(t, &fake{}, nil)
	for _, tc := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
	}{
		{"CSRF-1 form", "POST", "/v1/topics/t/produce", "x", []string{"Content-Type: application/x-www-form-urlencoded"}, 415},
		{"CSRF-2 bare ack", "POST", "/v1/topics/t/ack?receipt_handle=0:0:1", "", nil, 415},
		{"CSRF-4 unknown method", "PUT", "/v1/topics", "", nil, 415},
		{"CSRF-4 with header", "PUT", "/v1/topics", "", []string{clientHeader + ": x"}, 405},
		{"CSRF-4 unknown route", "POST", "/nowhere", "", nil, 415},
		{"CSRF-5 delete", "DELETE", "/v1/topics/t", "", nil, 204},
		{"CSRF-5 get", "GET", "/v1/topics/t/consume", "", nil, 204},
		{"CSRF-6 batch consume", "GET", "/v1/topics/t/consume?max=3", "", nil, 400},
		{"CSRF-7 empty header", "POST", "/v1/topics/t/produce", "x", []string{clientHeader + ": "}, 415},
		{"json", "POST", "/v1/topics/t/produce", "x", []string{"Content-Type: application/json"}, 202},
		{"json with charset", "POST", "/v1/topics/t/produce", "x", []string{"Content-Type: Application/JSON ; charset=utf-8"}, 202},
		{"octets", "POST", "/v1/topics/t/produce", "x", []string{"Content-Type: application/octet-stream"}, 202},
		{"prefix of json", "POST", "/v1/topics/t/produce", "x", []string{"Content-Type: application/jsonp"}, 415},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := s.do(t, tc.method, tc.path, tc.body, append([]string{"-" + clientHeader}, tc.header...)...)
			if got.status != tc.status {
				t.Fatalf("status %d %s, want %d", got.status, got.body, tc.status)
			}
			if tc.status == 415 && !strings.Contains(got.body, errCrossSite.Error()) {
				t.Fatalf("body %s", got.body)
			}
		})
	}
}
