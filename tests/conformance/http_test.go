package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/testutil"
)

// answerTimeout bounds one request; the longest wait a check asks for is below it.
const answerTimeout = 20 * time.Second

// server is a node and whom the check speaks as.
type server struct {
	base           *url.URL
	user, password string           // empty: no credentials are sent
	node           *testutil.Node   // nil: not ours
	mates          []*testutil.Node // all nodes of its cluster; nil: it is alone
	ops            bool             // the separate metrics listener
	exclusive      *sync.Mutex      // held by the check that has the node for itself
}

func reach(node *testutil.Node) *server {
	u, err := url.Parse(node.URL)
	if err != nil {
		panic(err)
	}
	return &server{base: u, node: node, exclusive: new(sync.Mutex)}
}

// as is the same node, asked as somebody else; an empty user sends no credentials.
func (s *server) as(user, password string) *server {
	return &server{base: s.base, user: user, password: password, node: s.node, mates: s.mates, exclusive: s.exclusive}
}

// transport sends requests as they are written: no compression, no redirect.
var transport = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}

func unique() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// bare, given as a header, leaves the X-Narad-Client header out.
const bare = "-"

// request builds what ask sends. line is "METHOD path?query", sent byte for byte;
// headers are "Name: value".
func (s *server) request(ctx context.Context, line string, body io.Reader, headers []string) (*http.Request, error) {
	method, target, _ := strings.Cut(line, " ")
	path, query, _ := strings.Cut(target, "?")
	r, err := http.NewRequestWithContext(ctx, method, s.base.String(), body)
	if err != nil {
		return nil, err
	}
	r.URL = &url.URL{Scheme: s.base.Scheme, Host: s.base.Host, Opaque: s.base.Path + path, RawQuery: query}
	r.Header.Set("X-Narad-Client", "conformance")
	r.Header.Set("User-Agent", "narad-conformance")
	if s.user != "" {
		r.SetBasicAuth(s.user, s.password)
	}
	for _, h := range headers {
		if h == bare {
			r.Header.Del("X-Narad-Client")
			continue
		}
		name, value, _ := strings.Cut(h, ":")
		r.Header[http.CanonicalHeaderKey(name)] = []string{strings.TrimSpace(value)}
	}
	return r, nil
}

// ask sends one request and reads the whole answer.
func (p *probe) ask(s *server, line, body string, headers ...string) *answer {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	a, err := s.send(ctx, line, body, headers)
	for err == nil && s.moved(ctx, a) {
		a, err = s.send(ctx, line, body, headers)
	}
	if err != nil {
		p.Fatalf("%s: %v", line, err)
	}
	a.p = p
	return a
}

// later sends a request in the background.
func (p *probe) later(s *server, line, body string, headers ...string) *pending {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	f := &pending{p: p, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		f.answer, f.err = s.send(ctx, line, body, headers)
	}()
	p.Cleanup(func() { cancel(); <-f.done })
	return f
}

// pending is a request under way.
type pending struct {
	p      *probe
	cancel context.CancelFunc // leaves, as a client does
	done   chan struct{}
	answer *answer
	err    error
}

func (f *pending) wait() *answer {
	f.p.Helper()
	return f.of(f.p)
}

// of is wait for another check.
func (f *pending) of(p *probe) *answer {
	p.Helper()
	<-f.done
	if f.err != nil {
		p.Fatal(f.err)
	}
	f.answer.p = p
	return f.answer
}

func (s *server) send(ctx context.Context, line, body string, headers []string) (*answer, error) {
	r, err := s.request(ctx, line, strings.NewReader(body), headers)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	return s.readAnswer(line, body, resp, began)
}

func (s *server) readAnswer(line, body string, resp *http.Response, began time.Time) (*answer, error) {
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	a := &answer{line: line, status: resp.StatusCode, header: resp.Header, length: resp.ContentLength, body: string(b), took: time.Since(began)}
	theDocument().observe(s, line, body, a)
	return a, nil
}

// answer is what a request got.
type answer struct {
	p      *probe
	line   string
	status int
	header http.Header
	length int64 // as declared
	body   string
	took   time.Duration
}

func (a *answer) fatalf(format string, args ...any) {
	a.p.Helper()
	body := a.body
	if len(body) > 500 {
		body = body[:500] + "..."
	}
	a.p.Fatalf("%s: answered %d %q: "+format, slices.Concat([]any{a.line, a.status, body}, args)...)
}

// is wants a status and, for a refusal, its text: "x…" is a prefix, "…x" a suffix, ""
// anything. The form of the answer is checked as well (BODY-2, BODY-3, BODY-4).
func (a *answer) is(status int, text string) *answer {
	a.p.Helper()
	if a.status != status {
		a.fatalf("want status %d %s", status, text)
	}
	if len(a.header["Access-Control-Allow-Origin"])+len(a.header["Location"]) > 0 {
		a.fatalf("has a CORS or redirect header: %v", a.header)
	}
	switch {
	case strings.HasPrefix(a.line, "HEAD "):
		if a.body != "" {
			a.fatalf("HEAD has a body")
		}
	case status >= 400:
		if got := a.refusal(); !matches(got, text) {
			a.fatalf("text %q, want %q", got, text)
		}
	case status == 202 || status == 204:
		if a.body == "" && (a.length > 0 || status == 202 && a.header.Get("Content-Length") != "0") {
			a.fatalf("empty, Content-Length %q", a.header.Get("Content-Length"))
		}
		if a.body != "" {
			a.line1()
		}
	default:
		a.line1()
	}
	return a
}

// matches compares with a pattern of is.
func matches(got, pattern string) bool {
	front, tail := strings.HasSuffix(pattern, "…"), strings.HasPrefix(pattern, "…")
	pattern = strings.TrimSuffix(strings.TrimPrefix(pattern, "…"), "…")
	switch {
	case front && tail:
		return strings.Contains(got, pattern)
	case front:
		return strings.HasPrefix(got, pattern)
	case tail:
		return strings.HasSuffix(got, pattern)
	}
	return pattern == "" || got == pattern
}

// line1 wants one line of JSON with the headers that go with it.
func (a *answer) line1() {
	a.p.Helper()
	if ct := a.header.Get("Content-Type"); ct != "application/json" {
		a.fatalf("Content-Type %q", ct)
	}
	if a.header.Get("Content-Length") != strconv.Itoa(len(a.body)) {
		a.fatalf("Content-Length %q for %d bytes", a.header.Get("Content-Length"), len(a.body))
	}
	if !json.Valid([]byte(a.body)) || strings.Index(a.body, "\n") != len(a.body)-1 {
		a.fatalf("is not one line of JSON and a newline")
	}
}

// refusal is the text of an error, whose form is checked: JSON with a documented code,
// or plain text where that is the rule.
func (a *answer) refusal() string {
	a.p.Helper()
	if ct := a.header.Get("Content-Type"); strings.HasPrefix(ct, "text/plain") {
		if a.status != 404 && a.status != 405 && a.status != 431 && !slices.Contains(plainTexts, strings.TrimSuffix(a.body, "\n")) {
			a.fatalf("plain text, want JSON")
		}
		if ct != "text/plain; charset=utf-8" || a.header.Get("X-Content-Type-Options") != "nosniff" && a.status != 431 {
			a.fatalf("plain-text headers: %v", a.header)
		}
		text, ok := strings.CutSuffix(a.body, "\n")
		if !ok && a.status != 431 {
			a.fatalf("no newline at the end")
		}
		return text
	}
	a.line1()
	var e struct{ Error, Code string }
	a.decode(&e)
	if slices.Contains(plainTexts, e.Error) {
		a.fatalf("JSON, want plain text")
	}
	if keys := fieldsOf(a.body); len(keys) != 2 || keys[0] != "error" || keys[1] != "code" {
		a.fatalf("fields %v, want error and code", keys)
	}
	if !slices.Contains(errorCodes(), e.Code) {
		a.fatalf("code %q is not in docs/errors.md", e.Code)
	}
	return e.Error
}

// wants reads a success into v and checks its form.
func (a *answer) wants(status int, v any) *answer {
	a.p.Helper()
	a.is(status, "")
	a.decode(v)
	return a
}

func (a *answer) decode(v any) {
	a.p.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		a.fatalf("%v", err)
	}
}

// has wants a header.
func (a *answer) has(name, value string) *answer {
	a.p.Helper()
	if got := a.header.Get(name); got != value {
		a.fatalf("%s: %q, want %q", name, got, value)
	}
	return a
}

// within wants the answer no later than d after the request.
func (a *answer) within(d time.Duration) *answer {
	a.p.Helper()
	if a.took > d {
		a.fatalf("took %v, want at most %v", a.took, d)
	}
	return a
}

// fieldsOf is the names of an object's fields in order of emission.
func fieldsOf(object string) []string {
	var names []string
	dec := json.NewDecoder(strings.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		var value json.RawMessage
		if err != nil || !ok || dec.Decode(&value) != nil {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// errorCodes are the codes docs/errors.md lists.
var errorCodes = sync.OnceValue(func() []string {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "errors.md"))
	if err != nil {
		panic(err)
	}
	var codes []string
	for _, m := range regexp.MustCompile("(?m)^\\| `\\d+` \\| `([a-z0-9_]+)`").FindAllSubmatch(doc, -1) {
		codes = append(codes, string(m[1]))
	}
	return codes
})

// conn is a connection on which a check writes the bytes of requests itself.
type conn struct {
	net.Conn
	p *probe
	s *server
	r *bufio.Reader
}

// dial opens a connection; it is closed with the test.
func (p *probe) dial(s *server) *conn {
	p.Helper()
	if s.base.Scheme != "http" {
		p.skip("writes raw HTTP, which needs a plain http:// target")
	}
	addr := s.base.Host
	if s.base.Port() == "" {
		addr = net.JoinHostPort(s.base.Hostname(), "80")
	}
	c, err := net.DialTimeout("tcp", addr, answerTimeout)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(answerTimeout))
	return &conn{Conn: c, p: p, s: s, r: bufio.NewReader(c)}
}

// write sends a request head and what there is of its body.
func (c *conn) write(line, body string, headers ...string) {
	c.p.Helper()
	s := c.s
	method, target, _ := strings.Cut(line, " ")
	var b bytes.Buffer
	b.WriteString(method + " " + s.base.Path + target + " HTTP/1.1\r\nHost: " + s.base.Host + "\r\n")
	if s.user != "" {
		b.WriteString("Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(s.user+":"+s.password)) + "\r\n")
	}
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n" + body)
	if _, err := c.Write(b.Bytes()); err != nil {
		c.p.Fatalf("%s: %v", line, err)
	}
}

// read reads the answer to line.
func (c *conn) read(line string) *answer {
	c.p.Helper()
	method, _, _ := strings.Cut(line, " ")
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.p.Fatalf("%s: %v", line, err)
	}
	a, err := c.s.readAnswer(line, "", resp, time.Now())
	if err != nil {
		c.p.Fatalf("%s: %v", line, err)
	}
	a.p = c.p
	return a
}

// row is a request and the refusal or the status it must get. {t} in it stands for a
// topic of three partitions made for the check.
type row struct {
	line, body string
	status     int
	text       string
	headers    []string
}

// rows makes a check of a table.
func rows(table ...row) check {
	return func(p *probe) { p.run(p.server(), table...) }
}

// run sends every row of a table.
func (p *probe) run(s *server, table ...row) {
	p.Helper()
	topic := ""
	for _, r := range table {
		if topic == "" && strings.Contains(r.line+r.body, "{t}") {
			topic = p.newTopic(s)
		}
		line, body := strings.ReplaceAll(r.line, "{t}", topic), strings.ReplaceAll(r.body, "{t}", topic)
		p.ask(s, line, body, r.headers...).is(r.status, r.text)
	}
}

// eventually waits for a condition of the server.
func (p *probe) eventually(cond func() bool, what string) {
	p.Helper()
	testutil.Eventually(testing.TB(p), answerTimeout, cond, what)
}
