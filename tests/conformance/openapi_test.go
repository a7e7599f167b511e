package conformance

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const httpapiDir = "../../internal/httpapi"

// document is openapi.yaml and what the requests of the suite have shown of it. Every
// answer the suite reads is held to it.
type document struct {
	root map[string]any

	mu       sync.Mutex      // guards the rest
	seen     map[string]bool // routes with status, response and request fields, parameters
	problems map[string]bool
}

var theDocument = sync.OnceValue(func() *document {
	d, err := readDocument()
	if err != nil {
		panic(err)
	}
	return d
})

func readDocument() (*document, error) {
	b, err := os.ReadFile(filepath.Join(httpapiDir, "openapi.yaml"))
	if err != nil {
		return nil, err
	}
	v, err := readYAML(string(b))
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	root, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("openapi.yaml is no mapping")
	}
	return &document{root: root, seen: map[string]bool{}, problems: map[string]bool{}}, nil
}

// at follows keys from a node, through references; nil if there is nothing.
func (d *document) at(node any, keys ...string) any {
	for _, k := range keys {
		m, _ := d.resolve(node).(map[string]any)
		node = m[k]
	}
	return d.resolve(node)
}

func (d *document) resolve(node any) any {
	for {
		m, _ := node.(map[string]any)
		ref, ok := m["$ref"].(string)
		if !ok {
			return node
		}
		node = any(d.root)
		for _, k := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
			m, _ := node.(map[string]any)
			node = m[k]
		}
		if node == nil {
			panic("openapi.yaml: no " + ref)
		}
	}
}

func (d *document) mapAt(node any, keys ...string) map[string]any {
	m, _ := d.at(node, keys...).(map[string]any)
	return m
}

// operations are the documented routes, "METHOD /path", and their nodes.
func (d *document) operations() map[string]any {
	out := map[string]any{}
	for path, item := range d.mapAt(d.root, "paths") {
		for method, op := range item.(map[string]any) {
			if method != "parameters" {
				out[strings.ToUpper(method)+" "+path] = op
			}
		}
	}
	return out
}

// template finds the documented path a request's path is of.
func (d *document) template(path string) string {
	for t := range d.mapAt(d.root, "paths") {
		pattern := "^" + regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(t), `[^/]+`) + "$"
		if ok, _ := regexp.MatchString(pattern, path); ok && !strings.Contains(path, "/./") && !strings.Contains(path, "/../") {
			return t
		}
	}
	return ""
}

func (d *document) problem(format string, args ...any) {
	d.problems[fmt.Sprintf(format, args...)] = true
}

// observe holds one exchange to the document.
func (d *document) observe(s *server, line, body string, a *answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	method, target, _ := strings.Cut(line, " ")
	path, query, _ := strings.Cut(target, "?")
	template := d.template(path)
	plain := strings.HasPrefix(a.header.Get("Content-Type"), "text/plain")
	switch {
	case a.status == 431 || template == "":
		return // of the server, and of no route
	case a.status == 404 && plain && (s.ops || path == "/metrics"):
		return // the two listeners share the routes out
	}
	name := method
	if method == "HEAD" {
		name = "GET"
	}
	op := d.mapAt(d.root, "paths", template, strings.ToLower(name))
	route := name + " " + template
	if op == nil || method == "HEAD" && a.status == 405 {
		if !slices.Contains([]int{401, 405, 415, 429}, a.status) {
			d.problem("%s is served and not documented: %d", route, a.status)
		}
		return
	}
	status := fmt.Sprint(a.status)
	response := d.mapAt(op, "responses", status)
	if response == nil {
		d.problem("%s answers %s, which is not documented: %.200s", route, status, a.body)
		return
	}
	d.seen[route+" "+status] = true
	d.parameters(route, template, op, query)
	if method != "HEAD" {
		d.response(route+" "+status, response, a)
	}
	if a.status < 300 {
		d.request(route, op, body)
	}
}

func (d *document) parameters(route, template string, op map[string]any, query string) {
	values, _ := url.ParseQuery(query) // of what does not decode the rest counts
	for _, p := range d.queryParameters(template, op) {
		if values.Has(p) {
			d.seen[route+" ?"+p] = true
		}
	}
}

func (d *document) queryParameters(template string, op map[string]any) (names []string) {
	list, _ := op["parameters"].([]any)
	for _, p := range list {
		if d.at(p, "in") == "query" {
			names = append(names, d.at(p, "name").(string))
		}
	}
	return names
}

func (d *document) response(where string, response map[string]any, a *answer) {
	content := d.mapAt(response, "content")
	if content == nil {
		if a.body != "" {
			d.problem("%s has a body, which is not documented: %.200s", where, a.body)
		}
		return
	}
	media, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	schema := d.at(content, media, "schema")
	if schema == nil {
		d.problem("%s has a body of type %q, which is not documented", where, media)
		return
	}
	if media != "application/json" {
		return
	}
	v, err := decodeExact(a.body)
	if err != nil {
		return // nested deeper than encoding/json follows: the checks of payloads see to it
	}
	for _, p := range d.validate(where, schemaOf(content, media), v) {
		d.problem("%s: %s", where, p)
	}
}

func schemaOf(content map[string]any, media string) any {
	m, _ := content[media].(map[string]any)
	return m["schema"]
}

func decodeExact(body string) (v any, err error) {
	dec := json.NewDecoder(strings.NewReader(body))
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}

// request notes the fields of a body that was taken.
func (d *document) request(route string, op map[string]any, body string) {
	content := d.mapAt(op, "requestBody", "content")
	v, err := decodeExact(body)
	if err != nil || content["application/json"] == nil {
		return
	}
	for _, p := range d.validate(route, schemaOf(content, "application/json"), v) {
		if strings.HasSuffix(p, "not documented") {
			d.problem("%s takes %s", route, p)
		}
	}
}

// fields is an object schema, flattened: its properties, and under which name each is
// noted as seen.
type fields struct {
	schemas  map[string]any
	names    map[string]string
	required []string
}

func (d *document) fields(where string, schema any, into *fields) {
	if m, _ := schema.(map[string]any); m != nil {
		if ref, ok := m["$ref"].(string); ok {
			where = ref[strings.LastIndex(ref, "/")+1:]
		}
	}
	m, _ := d.resolve(schema).(map[string]any)
	parts, _ := m["allOf"].([]any)
	for _, part := range parts {
		d.fields(where, part, into)
	}
	for name, property := range d.mapAt(m, "properties") {
		into.schemas[name], into.names[name] = property, where+"."+name
	}
	required, _ := m["required"].([]any)
	for _, name := range required {
		into.required = append(into.required, name.(string))
	}
}

// validate returns what a value has that its schema does not, and the reverse.
func (d *document) validate(where string, schema, v any) (problems []string) {
	m, _ := d.resolve(schema).(map[string]any)
	if branches, ok := m["oneOf"].([]any); ok {
		for _, branch := range branches {
			if problems = d.validate(where, branch, v); len(problems) == 0 {
				return nil
			}
		}
		return problems
	}
	if !typed(m["type"], v) {
		return []string{fmt.Sprintf("%v is no %v", v, m["type"])}
	}
	if list, ok := m["enum"].([]any); ok && !slices.Contains(list, v) {
		return []string{fmt.Sprintf("%v is none of %v", v, list)}
	}
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			problems = append(problems, d.validate(where+"[]", m["items"], e)...)
		}
	case map[string]any:
		f := fields{schemas: map[string]any{}, names: map[string]string{}}
		d.fields(where, schema, &f)
		if len(f.schemas) == 0 {
			return nil // any object
		}
		for _, name := range f.required {
			if _, ok := v[name]; !ok {
				problems = append(problems, fmt.Sprintf("the field %s is missing", name))
			}
		}
		for name, e := range v {
			if f.schemas[name] == nil {
				problems = append(problems, fmt.Sprintf("the field %s, which is not documented", name))
				continue
			}
			d.seen[f.names[name]] = true
			problems = append(problems, d.validate(f.names[name], f.schemas[name], e)...)
		}
	}
	return problems
}

// typed reports whether a JSON value is of a schema's type.
func typed(want, v any) bool {
	switch want := want.(type) {
	case []any:
		return slices.ContainsFunc(want, func(w any) bool { return typed(w, v) })
	case string:
		switch v := v.(type) {
		case nil:
			return true // null counts as absent in requests; no answer holds one
		case string:
			return want == "string"
		case bool:
			return want == "boolean"
		case json.Number:
			return want == "number" || want == "integer" && !strings.ContainsAny(v.String(), ".eE")
		case []any:
			return want == "array"
		case map[string]any:
			return want == "object"
		}
	}
	return true
}

// unseen is what the document has and a complete run has not shown.
func (d *document) unseen() (out []string) {
	for route, op := range d.operations() {
		template := route[strings.Index(route, " ")+1:]
		for status := range d.mapAt(op, "responses") {
			if !d.seen[route+" "+status] {
				out = append(out, route+" "+status)
			}
		}
		for _, p := range d.queryParameters(template, op.(map[string]any)) {
			if !d.seen[route+" ?"+p] {
				out = append(out, route+" ?"+p)
			}
		}
	}
	for name, schema := range d.mapAt(d.root, "components", "schemas") {
		out = append(out, d.unseenFields(name, schema)...)
	}
	slices.Sort(out)
	return out
}

func (d *document) unseenFields(where string, schema any) (out []string) {
	m, _ := schema.(map[string]any)
	parts, _ := m["allOf"].([]any)
	for _, part := range parts {
		out = append(out, d.unseenFields(where, part)...)
	}
	properties, _ := m["properties"].(map[string]any)
	for name, property := range properties {
		if !d.seen[where+"."+name] {
			out = append(out, where+"."+name)
		}
		out = append(out, d.unseenFields(where+"."+name, property)...)
	}
	if items, ok := m["items"]; ok {
		out = append(out, d.unseenFields(where+"[]", items)...)
	}
	return out
}

// notHere are the documented things that healthy nodes do not show, and why.
var notHere = []unshown{
	{` 500$`, "needs a fault"},
	{` 503$`, "needs a stop, a full budget or a node that is not ready"},
	{` 421$|^Move\.`, "needs partitions that move"},
	{`/forget 501$`, "needs a leader of an older release"},
	{`^DELETE /v1/topics/\{topic\} 409$`, "needs remote children"},
	{`^DELETE \S+/children/\{child\} 409$`, "needs a change under the request"},
	{`^Status\.degraded`, "needs expired Raft TLS"},
}

// notAlone are those that a cluster shows, and one node does not.
var notAlone = []unshown{
	{` 502$`, "needs another node"},
	{`/forget (200|409)$|^Forgotten\.`, "needs several nodes"},
	{`^Member\.status_error$`, "needs a node that does not answer"},
	{`^TopicDetails\.partial$|^PartitionStats\.owner_liveness$`, "needs a node that does not answer"},
}

// unshown is documented and not seen, by the names that unseen gives.
type unshown struct{ pattern, reason string }

// conclude reports what the answers of a run have shown. whole says that every check ran
// on one node, cluster that every check of a cluster did.
func (d *document) conclude(t *testing.T, whole, cluster bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p := range d.problems {
		t.Errorf("openapi.yaml: %s", p)
	}
	if !whole {
		return
	}
	known := notHere
	if !cluster {
		known = slices.Concat(known, notAlone)
	}
	used := map[string]bool{}
	for _, what := range d.unseen() {
		i := slices.IndexFunc(known, func(n unshown) bool {
			return regexp.MustCompile(n.pattern).MatchString(what)
		})
		if i < 0 {
			t.Errorf("openapi.yaml documents %s, which no request of the suite has shown", what)
		} else {
			used[known[i].pattern] = true
		}
	}
	for _, n := range notHere {
		if !used[n.pattern] {
			t.Errorf("notHere lists %s (%s), and everything of it was seen: remove it", n.pattern, n.reason)
		}
	}
}

// openAPI asks for the document, and every documented route for the refusals that all
// routes share.
func openAPI(p *probe) {
	s := p.server()
	d := theDocument()
	want, err := os.ReadFile(filepath.Join(httpapiDir, "openapi.yaml"))
	if err != nil {
		p.Fatal(err)
	}
	if a := p.ask(s, "GET /v1/openapi.yaml", "").has("Content-Type", "application/yaml"); a.body != string(want) {
		a.fatalf("want the file")
	}
	p.ask(s, "HEAD /v1/openapi.yaml", "").is(200, "").has("Content-Length", fmt.Sprint(len(want)))
	s = p.secured()
	topic, child, nobody := p.newTopic(s), p.newTopic(s), p.newUser(s)
	locked := p.newUser(s)
	p.lockOut(locked)
	bodies := map[string]string{ // that pass, up to the rights and the name
		"POST /v1/topics": `{"name":"conformance-refused"}`, "PATCH /v1/topics/{topic}": `{"retention_ms":3600000}`,
		"POST /v1/topics/{topic}/produce": "x", "POST /v1/topics/{topic}/produce/batch": batch(`{"payload":1}`), "POST /v1/topics/{topic}/ack": handles(`"0:0:1"`, 1),
		"PUT /v1/users/{username}/grants": `{"grants":[]}`, "PUT /v1/users/{username}/password": `{"new_password":"x"}`,
		"POST /v1/topics/{parent}/children": fmt.Sprintf(`{"child":%q}`, child),
	}
	for route, op := range d.operations() {
		responses := d.mapAt(op, "responses")
		here := strings.NewReplacer("{topic}", topic, "{parent}", topic, "{child}", child, "{username}", s.user).Replace(route)
		if responses["401"] != nil {
			p.ask(s.anonymous(), here, "").is(401, textAuthRequired)
			p.ask(locked, here, "").is(429, textThrottled)
		}
		if responses["415"] != nil {
			p.ask(s, here, "", bare).is(415, textCrossSite)
		}
		if responses["403"] != nil {
			p.ask(nobody, here, bodies[route]).is(403, "")
		}
		if missing := strings.NewReplacer("{topic}", "missing", "{parent}", "missing", "{child}", "missing", "{username}", "missing").Replace(route); missing != route {
			p.ask(s, missing, bodies[route]).is(404, "")
		}
	}
}

// sources is the product code of the package that serves the document.
func sources(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(httpapiDir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

// The document has the routes, the query parameters, the request fields and the error
// codes that the code has, and no others.
func TestOpenAPIAgainstTheCode(t *testing.T) {
	d, err := readDocument()
	if err != nil {
		t.Fatal(err)
	}
	code := sources(t)
	routes, params, codes, requested := []string{}, []string{}, []string{}, []string{}
	for route, op := range d.operations() {
		routes = append(routes, route)
		params = append(params, d.queryParameters("", op.(map[string]any))...)
		if body := d.mapAt(op, "requestBody", "content", "application/json", "schema"); body != nil {
			for name := range d.mapAt(body, "properties") {
				requested = append(requested, name)
			}
		}
	}
	list, _ := d.at(d.root, "components", "schemas", "Error", "properties", "code", "enum").([]any)
	for _, c := range list {
		codes = append(codes, c.(string))
	}
	var inRoutes, inParams, inBodies []string
	for _, m := range regexp.MustCompile(`return "((?:GET|POST|PUT|PATCH|DELETE) /\S+)"`).FindAllStringSubmatch(code, -1) {
		inRoutes = append(inRoutes, m[1])
	}
	for _, m := range regexp.MustCompile(`(?:\w+Params|names) :?= \[\.\.\.\]string\{([^}]+)\}`).FindAllStringSubmatch(code, -1) {
		for _, name := range strings.Split(m[1], ", ") {
			inParams = append(inParams, strings.Trim(name, `"`))
		}
	}
	for _, m := range regexp.MustCompile(`(?s)(?:type \w+Body|var b) struct \{(.*?)\n\t*\}`).FindAllStringSubmatch(code, -1) {
		for _, tag := range regexp.MustCompile(`json:"(\w+)`).FindAllStringSubmatch(m[1], -1) {
			inBodies = append(inBodies, tag[1])
		}
	}
	inBodies = append(inBodies, "messages", "receipt_handles") // read by a scanner of their own
	for what, sets := range map[string][2][]string{
		"routes": {routes, inRoutes}, "query parameters": {params, inParams}, "request fields": {requested, inBodies}, "error codes": {codes, errorCodes()},
	} {
		documented, coded := set(sets[0]), set(sets[1])
		if !slices.Equal(documented, coded) {
			t.Errorf("%s: documented and in the code differ:\n%v\n%v", what, documented, coded)
		}
	}
}

func set(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}
