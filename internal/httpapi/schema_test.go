package httpapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

const orderSchema = `{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}`

// createWith makes a topic with a schema.
func (n *node) createWith(t testing.TB, name, schema string) {
	t.Helper()
	n.do(t, "POST", "/v1/topics", fmt.Sprintf(`{"name":%q,"schema":%s}`, name, schema)).expect(t, 201, name)
}

// history reads a topic's schemas.
func (n *node) history(t testing.TB, topic string) (version int, docs []string) {
	t.Helper()
	a := n.do(t, "GET", "/v1/topics/"+topic+"/schema", "")
	a.expect(t, 200, `"versions":[`)
	var out struct {
		Topic    string
		Version  int
		Versions []struct {
			Version int
			Schema  json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || out.Topic != topic {
		t.Fatalf("%s: %v", a.body, err)
	}
	for i, v := range out.Versions {
		if v.Version != i+1 {
			t.Fatalf("version %d at place %d", v.Version, i)
		}
		docs = append(docs, string(v.Schema))
	}
	return out.Version, docs
}

// TestTC4_CreateWithSchema: TC-4, TC-21, 8.7, the fields of 7.2 and BODY-10.
func TestTC4_CreateWithSchema(t *testing.T) {
	n := newNode(t, nil)
	for _, tc := range []struct{ name, schema, text string }{
		{"SR-1 null", `null`, "invalid argument: schema: the document must be a JSON object or true"},
		{"SR-1 false", `false`, "invalid argument: schema: the document must be a JSON object or true"},
		{"SR-1 string", `"x"`, "invalid argument: schema: "},
		{"SR-1 number", `7`, "invalid argument: schema: "},
		{"SR-1 array", `[]`, "invalid argument: schema: "},
		{"SR-2 size", `{"description":"` + strings.Repeat("x", 256<<10) + `"}`, "invalid argument: schema: the document has"},
		{"SR-3", `{"$schema":"http://example.com/"}`, "invalid argument: schema: $schema"},
		{"SR-4", `{"$ref":"http://127.0.0.1/secret"}`, "invalid argument: schema: "},
		{"SR-5", `{"pattern":"(?=x)"}`, "invalid argument: schema: "},
		{"grammar", `{"type":"strung"}`, "invalid argument: schema: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := n.do(t, "POST", "/v1/topics", `{"name":"t","schema":`+tc.schema+`}`)
			a.expect(t, 400, tc.text)
			if strings.Contains(a.body, "secret") {
				t.Error("SR-4: the answer shows the reference")
			}
			n.do(t, "GET", "/v1/topics/t", "").expect(t, 404, "topic not found") // TC-21: neither half is left
		})
	}
	a := n.do(t, "POST", "/v1/topics", `{"name":"t","schema": { "type" : "object" } }`)
	a.expect(t, 201, `"name":"t"`)
	if strings.Contains(a.body, "schema") {
		t.Errorf("the answer to a create has no schema: %s", a.body)
	}
	got := n.do(t, "GET", "/v1/topics/t", "")
	got.expect(t, 200, `"role":"standalone","schema_version":1,"schema":{"type":"object"},"partition_stats":[`)
	if version, docs := n.history(t, "t"); version != 1 || !slices.Equal(docs, []string{`{"type":"object"}`}) {
		t.Errorf("%d %v", version, docs) // SR-10: compacted
	}
	n.do(t, "HEAD", "/v1/topics/t/schema", "").expect(t, 200, "")
	n.do(t, "GET", "/v1/topics/nope/schema", "").expect(t, 404, "topic not found")
	n.create(t, "plain")
	n.do(t, "GET", "/v1/topics/plain/schema", "").expect(t, 200, `{"topic":"plain","version":0,"versions":[]}`+"\n")
	n.do(t, "GET", "/v1/topics/plain", "").expect(t, 200, `"schema_version":0,"partition_stats":[`)
	n.createWith(t, "anything", `true`)
	n.do(t, "GET", "/v1/topics/anything", "").expect(t, 200, `"schema_version":1,"schema":true,`)
}

// TestP5_Produce: SV-1 to SV-3, SV-8, SV-10, SV-11, P-5, PB-5 to PB-7, and the
// counters of spec/metrics sections 3 and 4.
func TestP5_Produce(t *testing.T) {
	n := newNode(t, nil)
	n.createWith(t, "t", orderSchema)
	n.create(t, "plain")
	const report = `{"error":"invalid argument: schema: jsonschema validation failed with 'narad://schema/t/1#'\n- at '/id': got string, want integer","code":"invalid_argument"}` + "\n"
	deep := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	for _, tc := range []struct {
		name, path, body string
		status           int
		text             string
	}{
		{"P-1", "t/produce", `{"id":1}`, 202, ""},
		{"SV-2", "t/produce", `{"id":"x","id":1}`, 202, ""},
		{"P-5 SV-8", "t/produce", `{"id":"x"}`, 400, report},
		{"SV-1 no JSON", "t/produce", `id=1`, 400, "invalid argument: schema: "},
		{"SV-1 trailing data", "t/produce", `{"id":1} 2`, 400, "invalid argument: schema: "},
		{"SV-1 UTF-8", "t/produce", "{\"id\":1,\"x\":\"\xff\"}", 400, "invalid argument: schema: "},
		{"SV-3", "t/produce", `{"id":1,"x":` + deep + `}`, 400, "payload nests deeper than 256 levels"},
		{"P-2 before the schema", "t/produce", ``, 400, "message required"},
		{"P-3 before P-5", "t/produce?partition=9", `{"id":"x"}`, 400, "partition out of range"},
		{"SV-11", "plain/produce", "\xff not JSON", 202, ""},
		{"PB-1", "t/produce/batch", `{"messages":[{"payload":{"id":2}},{"payload":{"id":3}}]}`, 202, `{"accepted":2}`},
		{"PB-5", "t/produce/batch", `{"messages":[{"payload":{"id":2}},{"payload":{"id":"x"}},{"payload":7}]}`, 400, `"message 1: invalid argument: schema: jsonschema validation failed with 'narad://schema/t/1#'`},
		{"PB-5 range first", "t/produce/batch", `{"messages":[{"payload":{"id":2},"partition":9},{"payload":7}]}`, 400, `message 0: invalid argument: partition out of range`},
		{"PB-6", "t/produce/batch", `{"messages":[{"payload":1},{"payload":2},{"payload":3},{"payload":4},{"payload":5},{"payload":""},{"payload_encoding":"base64"}]}`, 400, `message 6: message required`},
		{"PB-5 base64", "t/produce/batch", `{"messages":[{"payload":"eyJpZCI6MX0=","payload_encoding":"base64"},{"payload":"AA==","payload_encoding":"base64"}]}`, 400, `message 1: invalid argument: schema: `},
		{"peers' probe", "t/produce/batch", `{"messages":[]}`, 400, "messages required"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n.do(t, "POST", "/v1/topics/"+tc.path, tc.body).expect(t, tc.status, tc.text)
		})
	}
	for range 4 { // P-1, SV-2 and PB-1's two: PB-7, nothing of what was refused
		m := n.take(t, "t", "")
		n.settle(t, "t", m.Handle, "").expect(t, 204, "")
	}
	n.do(t, "GET", "/v1/topics/t/consume", "").expect(t, 204, "")
	for series, want := range map[string]float64{
		`narad_produce_rejections_total{reason="schema",topic="t"}`: 7,
		`narad_schema_rejections_total{reason="invalid"}`:           2,
		`narad_schema_rejections_total{reason="malformed"}`:         4,
		`narad_schema_rejections_total{reason="depth"}`:             1,
	} {
		if got := n.series(t, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
}

// TestTA5_Versions: TA-5 to TA-8, TA-15, SC-1, SC-3, SC-5 and the rules of the two
// fields.
func TestTA5_Versions(t *testing.T) {
	n := newNode(t, nil)
	n.create(t, "t")
	for _, tc := range []struct {
		name, body string
		status     int
		text       string
	}{
		{"TA-7 base of none", `{"schema":true,"schema_base_version":1}`, 409, `{"error":"schema version conflict: schema_base_version 1 does not match the current version 0 of \"t\"","code":"schema_version_conflict"}`},
		{"first", `{"schema":` + orderSchema + `,"schema_base_version":0}`, 200, `"name":"t"`},
		{"TA-7 there is one", `{"schema":true,"schema_base_version":0}`, 409, `schema_base_version 0 does not match the current version 1 of \"t\"`},
		{"TA-6 same", `{"schema": ` + orderSchema + ` }`, 200, `"name":"t"`},
		{"TA-6 annotations", `{"schema":{"title":"x","type":"object","properties":{"id":{"type":"integer","description":"y"}},"required":["id"]},"schema_base_version":1}`, 200, `"name":"t"`},
		{"TA-7 before TA-6", `{"schema":` + orderSchema + `,"schema_base_version":2}`, 409, "schema version conflict: schema_base_version 2"},
		{"TA-5 incompatible", `{"schema":{"type":"object","properties":{"id":{"type":"integer"}},"required":["id","note"]}}`, 400, `"invalid argument: schema incompatible with previous version: schema root: required property \"note\" added"`},
		{"TA-5 incompatible type", `{"schema":{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}}`, 400, `schema incompatible with previous version: at /properties/id: type \"integer\" no longer allowed`},
		{"TA-5 unregistrable", `{"schema":{"$ref":"x"}}`, 400, "invalid argument: schema: "},
		{"BODY-10", `{"schema":null}`, 400, "invalid argument: schema: the document must be a JSON object or true"},
		{"BODY-10 with another field", `{"retention_ms":0,"schema":null}`, 400, "invalid argument: schema: "},
		{"base without schema", `{"schema_base_version":1}`, 400, "invalid argument: schema_base_version goes with schema"},
		{"base below 0", `{"schema":true,"schema_base_version":-1}`, 400, "invalid argument: schema_base_version"},
		{"base of null", `{"schema":` + orderSchema + `,"schema_base_version":null}`, 200, "t"},
		{"TA-15", `{"retention_ms":7200000,"schema":{"$ref":"x"}}`, 400, "invalid argument: schema: "},
		{"second", `{"schema":{"type":"object","properties":{"id":{"type":"number"}}},"schema_base_version":1,"partitions":4}`, 200, `"partitions":4,"retention_ms":7200000`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n.do(t, "PATCH", "/v1/topics/t", tc.body).expect(t, tc.status, tc.text)
		})
	}
	version, docs := n.history(t, "t")
	if version != 2 || !slices.Equal(docs, []string{orderSchema, `{"type":"object","properties":{"id":{"type":"number"}}}`}) {
		t.Fatalf("%d %v", version, docs)
	}
	n.do(t, "GET", "/v1/topics/t", "").expect(t, 200, `"schema_version":2,"schema":{"type":"object","properties":{"id":{"type":"number"}}},`)
	n.do(t, "POST", "/v1/topics/t/produce", `{"id":1.5}`).expect(t, 202, "") // SC-4: enforced at once
	n.do(t, "PATCH", "/v1/topics/nope", `{"schema":true}`).expect(t, 404, "topic not found")

	log := n.log.String()
	for _, want := range []string{
		`"event":"topic.schema","actor":"","target":"t","status":200,"outcome":"ok"`,
		`"event":"topic.schema","actor":"","target":"t","status":409,"outcome":"rejected"`,
		`"event":"topic.alter","actor":"","target":"t","status":400,"outcome":"ok","fields":"retention"`,
		`"event":"topic.schema","actor":"","target":"t","status":400,"outcome":"rejected"`,
		`"event":"topic.alter","actor":"","target":"t","status":200,"outcome":"ok","fields":"partitions"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s", want)
		}
	}
	// SC-5: the history goes with the topic.
	n.do(t, "DELETE", "/v1/topics/t", "").expect(t, 204, "")
	n.create(t, "t")
	n.do(t, "GET", "/v1/topics/t/schema", "").expect(t, 200, `"version":0`)
	n.do(t, "POST", "/v1/topics/t/produce", `anything`).expect(t, 202, "")
	n.do(t, "DELETE", "/v1/topics/t", "").expect(t, 204, "")
	n.createWith(t, "t", `{"type":"string"}`)
	n.do(t, "POST", "/v1/topics/t/produce", `{"id":1}`).expect(t, 400, "narad://schema/t/1#")
	n.do(t, "POST", "/v1/topics/t/produce", `"a"`).expect(t, 202, "")
}

// TestTA8_Budget: SC-2, TC-11: a history takes 4 MiB, and the refusal names budget
// and stored bytes.
func TestTA8_Budget(t *testing.T) {
	n := newNode(t, nil)
	n.create(t, "t")
	doc := func(version int) string {
		return fmt.Sprintf(`{"description":%q,"maxLength":%d}`, strings.Repeat("x", 250_000), 10+version)
	}
	size := len(doc(1))
	for version := 1; version <= 4<<20/size; version++ {
		n.do(t, "PATCH", "/v1/topics/t", `{"schema":`+doc(version)+`}`).expect(t, 200, "t")
	}
	stored := 4 << 20 / size * size
	a := n.do(t, "PATCH", "/v1/topics/t", `{"schema":`+doc(99)+`}`)
	a.expect(t, 409, `"code":"conflict"`)
	for _, want := range []string{fmt.Sprint(stored), fmt.Sprint(4 << 20), "topic t"} {
		if !strings.Contains(a.body, want) {
			t.Errorf("%s lacks %s", a.body, want)
		}
	}
	if version, _ := n.history(t, "t"); version != 4<<20/size {
		t.Errorf("version %d", version)
	}
}

// TestSC6_ChildOfAParent: an attached child's schema is its parent's; a delayed child
// takes no produce.
func TestSC6_ChildOfAParent(t *testing.T) {
	n := newNode(t, nil)
	n.createWith(t, "parent", orderSchema)
	n.create(t, "child")
	n.propose(t, metastore.AttachChild{Parent: "parent", Child: "child", Epoch: "0011223344556677", Offsets: []int64{0, 0, 0}})
	n.do(t, "PATCH", "/v1/topics/child", `{"schema":true}`).expect(t, 409, `"code":"conflict"`)
	n.do(t, "POST", "/v1/topics/child/produce", `{"id":"x"}`).expect(t, 400, "narad://schema/child/1#")
	n.do(t, "PATCH", "/v1/topics/parent", `{"schema":{"type":"object","properties":{"id":true}}}`).expect(t, 200, "parent")
	if version, _ := n.history(t, "child"); version != 2 {
		t.Errorf("the child has version %d", version)
	}
	n.do(t, "POST", "/v1/topics/child/produce", `{"id":"x"}`).expect(t, 202, "")
}

// TestSchemaRights: AZ-1 of the schema, AZ-2 of its change, and that the first check
// comes before a schema is compiled.
func TestSchemaRights(t *testing.T) {
	n := newSecuredNode(t, nil)
	n.do(t, "POST", "/v1/topics", `{"name":"alice-1","schema":`+orderSchema+`}`, as("alice")).expect(t, 201, "alice-1")
	n.do(t, "GET", "/v1/topics/alice-1/schema", "").expect(t, 401, "authentication required")
	n.do(t, "GET", "/v1/topics/alice-1/schema", "", as("eve")).expect(t, 403, forbidden("no grant on this topic"))
	n.do(t, "GET", "/v1/topics/nope/schema", "", as("eve")).expect(t, 404, "topic not found")
	n.do(t, "GET", "/v1/topics/alice-1/schema", "", as("bob")).expect(t, 200, `{"topic":"alice-1","version":1,"versions":[{"version":1,"schema":`+orderSchema+`}]}`)
	n.do(t, "PATCH", "/v1/topics/alice-1", `{"schema":true}`, as("bob")).expect(t, 403, "only the topic owner")
	n.do(t, "PATCH", "/v1/topics/alice-1", `{"schema":{"type":"object","properties":{"id":{}}}}`, as("alice")).expect(t, 200, "alice-1")
	n.do(t, "POST", "/v1/topics", `{"name":"other","schema":7}`, as("alice")).expect(t, 403, "create not allowed")
	if !strings.Contains(n.log.String(), `"event":"topic.schema","actor":"bob","target":"alice-1","status":403,"outcome":"denied"`) {
		t.Error("no audit line of the refusal")
	}
}

// TestSC4_ChangesUnderProduces: while versions are registered and the topic is
// recreated, no produce fails for a reason that is not its own.
func TestSC4_ChangesUnderProduces(t *testing.T) {
	n := newNode(t, nil)
	n.createWith(t, "t", `{"maxLength":10}`)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if a := n.do(t, "POST", "/v1/topics/t/produce", `"short"`); a.status != 202 {
					t.Errorf("%d %s", a.status, a.body)
					return
				}
			}
		})
	}
	for version := 2; version <= 20; version++ {
		n.do(t, "PATCH", "/v1/topics/t", fmt.Sprintf(`{"schema":{"maxLength":%d}}`, 9+version)).expect(t, 200, "t")
		long := `"` + strings.Repeat("x", 9+version) + `"`
		n.do(t, "POST", "/v1/topics/t/produce", long).expect(t, 202, "")
		n.do(t, "POST", "/v1/topics/t/produce", `"x`+long[1:]).expect(t, 400, fmt.Sprintf("narad://schema/t/%d#", version))
	}
	close(stop)
	wg.Wait()
}

// TestSchemasAfterARestart: the history is loaded again.
func TestSchemasAfterARestart(t *testing.T) {
	dir := t.TempDir()
	n := openNode(t, dir, nil)
	n.createWith(t, "t", orderSchema)
	n.do(t, "PATCH", "/v1/topics/t", `{"schema":{"type":"object","properties":{"id":{"type":"number"}}}}`).expect(t, 200, "t")
	n.close()
	n = openNode(t, dir, nil)
	if version, docs := n.history(t, "t"); version != 2 || docs[0] != orderSchema {
		t.Errorf("%d %v", version, docs)
	}
	n.do(t, "POST", "/v1/topics/t/produce", `[]`).expect(t, 400, "narad://schema/t/2#")
	if v, ok := n.store.Topic("t"); !ok || v.SchemaVersion != 2 {
		t.Errorf("%+v", v)
	}
}

// TestTA12_SchemaRecreated: a change that was checked against another life of the
// topic is made again against the one there is.
func TestTA12_SchemaRecreated(t *testing.T) {
	n := newNode(t, nil)
	n.createWith(t, "t", orderSchema)
	be := *n.api.serving.Load()
	be.Topics = between{be.Topics, func() {
		v, _ := n.store.Topic("t")
		n.propose(t, metastore.DeleteTopic{Name: "t", ID: v.ID})
		n.propose(t, metastore.CreateTopic{Topic: model.Topic{Name: "t", ID: model.NewIncarnation(), Partitions: 3}})
	}}
	n.api.Begin(be)
	n.do(t, "PATCH", "/v1/topics/t", `{"schema":{"type":"string"},"schema_base_version":1}`).expect(t, 409, "current version 0")
	n.do(t, "PATCH", "/v1/topics/t", `{"schema":{"type":"string"}}`).expect(t, 200, "t")
	if version, docs := n.history(t, "t"); version != 1 || docs[0] != `{"type":"string"}` {
		t.Errorf("%d %v", version, docs)
	}
}

// series reads one series of the node's registry, 0 when there is none.
func (n *node) series(t testing.TB, name string) float64 {
	t.Helper()
	body := n.do(t, "GET", "/metrics", "", "Accept-Encoding: identity").body
	for line := range strings.Lines(body) {
		rest, ok := strings.CutPrefix(line, name+" ")
		if !ok {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(rest, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	return 0
}

// TestValidationIsQuick guards the whole path of a produce against a schema that is
// compiled for each message.
func TestValidationIsQuick(t *testing.T) {
	n := newNode(t, nil)
	enum := make([]string, 10_000)
	for i := range enum {
		enum[i] = fmt.Sprintf("%q", fmt.Sprintf("value-%06d", i))
	}
	n.createWith(t, "t", `{"enum":[`+strings.Join(enum, ",")+`]}`)
	start := time.Now()
	for i := range 50 {
		n.do(t, "POST", "/v1/topics/t/produce", enum[i]).expect(t, 202, "")
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("50 produces took %v", took)
	}
}
