package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const (
	textSchema       = "invalid argument: schema: …"
	textIncompatible = "invalid argument: schema incompatible with previous version: …"
)

// history is the answer to GET /v1/topics/{topic}/schema.
type history struct {
	Topic    string `json:"topic"`
	Version  int    `json:"version"`
	Versions []struct {
		Version int             `json:"version"`
		Schema  json.RawMessage `json:"schema"`
	} `json:"versions"`
}

func (p *probe) history(s *server, topic string) history {
	p.Helper()
	var h history
	p.ask(s, "GET /v1/topics/"+topic+"/schema", "").wants(200, &h)
	if h.Topic != topic || h.Version != len(h.Versions) {
		p.Fatalf("schema of %s: %+v", topic, h)
	}
	for i, v := range h.Versions {
		if v.Version != i+1 {
			p.Fatalf("versions of %s: %+v", topic, h)
		}
	}
	return h
}

// registrable makes a check of documents a create accepts and others it refuses.
func registrable(accepted, refused []string) check {
	return func(p *probe) {
		s := p.server()
		for _, doc := range accepted {
			p.newTopic(s, `"schema":`+doc)
		}
		for _, doc := range refused {
			p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"schema":%s}`, p.name(), doc)).is(400, "invalid argument: …")
		}
	}
}

// validates makes a check of payloads that a schema accepts and others it refuses.
func validates(schema string, accepted, refused []string) check {
	return func(p *probe) {
		s := p.server()
		line := "POST /v1/topics/" + p.newTopic(s, `"schema":`+schema) + "/produce"
		for _, payload := range accepted {
			p.ask(s, line, payload).is(202, "")
		}
		for _, payload := range refused {
			p.ask(s, line, payload).is(400, textSchema)
		}
	}
}

// nested is n levels of arrays.
func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// doubling is a schema that reaches one subschema through 2^n paths.
func doubling(n int) string {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
	for i := range n {
		fmt.Fprintf(&b, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `"d%d":{"type":"integer"}}}`, n)
	return b.String()
}

// describedBy is a schema document of exactly n bytes.
func describedBy(n int) string {
	const empty = `{"description":""}`
	return `{"description":"` + long(n-len(empty)) + `"}`
}

// schemaChecks are SR, SV and SC (sections 9.1 to 9.3), and what other sections say about
// schemas.
var schemaChecks = map[string]check{
	"SR-1": registrable(
		[]string{`{}`, `true`, `{"type":"object"}`},
		[]string{`false`, `null`, `"x"`, `1`, `[]`},
	),
	"SR-2": registrable(
		[]string{describedBy(256 << 10), `{"default":` + nested(63) + `}`},
		[]string{describedBy(256<<10 + 1), `{"default":` + nested(64) + `}`},
	),
	"SR-3": registrable(
		[]string{
			`{"$schema":"https://json-schema.org/draft/2020-12/schema"}`, `{"$schema":"https://json-schema.org/draft/2019-09/schema"}`,
			`{"$schema":"http://json-schema.org/draft-07/schema#"}`, `{"$schema":"http://json-schema.org/draft-06/schema#"}`, `{"$schema":"http://json-schema.org/draft-04/schema#"}`,
		},
		[]string{`{"$schema":"http://json-schema.org/draft-03/schema#"}`, `{"$schema":"https://example.org/schema"}`, `{"$schema":7}`},
	),
	"SR-4": localReferences,
	"SR-5": registrable(
		[]string{`{"pattern":"^[a-z]+(-[0-9]{1,3})?$"}`, `{"patternProperties":{"^x-":{}}}`},
		[]string{`{"pattern":"(?=a)b"}`, `{"pattern":"(a)\\1"}`, `{"pattern":"("}`, `{"patternProperties":{"(?!x)":{}}}`, `{"pattern":"` + strings.Repeat(".*a", 40) + `"}`},
	),
	"SR-6": registrable(
		[]string{`{"minimum":1e1000}`, `{"const":[1e-1000]}`},
		[]string{`{"minimum":1e1001}`, `{"const":[1e-1001]}`, `{"enum":[{"a":1e99999}]}`},
	),
	"SR-7": registrable(
		[]string{`{"items":{"$ref":"#"}}`, `{"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}}}`},
		[]string{`{"allOf":[{"items":{"$ref":"#"}},{"items":{"$ref":"#"}}]}`},
	),
	"SR-8": registrable([]string{doubling(5)}, []string{doubling(7)}),
	"SR-9": func(p *probe) {
		registrable(
			[]string{`{"allOf":[{"$ref":"#"}]}`, `{"anyOf":[{"$ref":"#"},{"type":"integer"}]}`, `{"if":{"type":"integer"},"then":{"$ref":"#"}}`, `{"if":{"type":"integer"},"else":{"$ref":"#"}}`},
			[]string{`{"not":{"$ref":"#"}}`, `{"if":{"$ref":"#"},"then":{}}`, `{"oneOf":[{"$ref":"#"},{"type":"integer"}]}`},
		)(p)
		validates(`{"$ref":"#"}`, nil, []string{`1`, `{}`})(p)
		validates(`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`, nil, []string{`1`, `{}`})(p)
	},
	"SR-10": func(p *probe) {
		s := p.server()
		h := p.history(s, p.newTopic(s, "\"schema\": { \"type\" :\n [ \"object\" , \"null\" ],\t\"const\": 1.50 } "))
		if got := string(h.Versions[0].Schema); got != `{"type":["object","null"],"const":1.50}` {
			p.Errorf("stored %s", got)
		}
	},

	"SV-1": func(p *probe) {
		validates(`true`, []string{`1`, ` {"a" : "é"} `, `null`, `""`}, []string{`x`, `{"a":1} {}`, `1,`, "\ufeff1", "\"\x01\"", "\"\xff\"", `{'a':1}`, `01`, `"\u12"`})(p)
		s := p.server()
		p.ask(s, "POST /v1/topics/"+p.newTopic(s, `"schema":true`)+"/produce", "").is(400, "message required")
	},
	"SV-2": validates(`{"properties":{"a":{"type":"integer"}}}`, []string{`{"a":"x","a":1}`, `{"a":"x","\u0061":1}`}, []string{`{"a":1,"a":"x"}`}),
	"SV-3": payloadNesting,
	"SV-4": func(p *probe) {
		validates(`{"type":"integer"}`, []string{`1`, `1.0`, `1e2`, `-0`, `10e-1`, `123456789012345678901234567890`, `1e1000`}, []string{`1.5`, `1e-1`, `1e1001`, `0.1e-1001`})(p)
		validates(`{"const":9007199254740993}`, []string{`9007199254740993`, `9007199254740993.0`}, []string{`9007199254740992`, `9007199254740994`})(p)
		validates(`{"minimum":0.1,"multipleOf":0.1}`, []string{`0.3`, `0.1`, `1e10`}, []string{`0.09999999999999999999999999`, `0.30000000000000000000000001`})(p)
	},
	"SV-5": validates(`{"minLength":2,"maxLength":2}`, []string{`"é👍"`, `"e\u0301"`, `"\ud83d\udc4d\ud83d\udc4d"`}, []string{`"👍"`, `"abc"`}),
	"SV-6": func(p *probe) {
		for _, draft := range []string{"https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema", "http://json-schema.org/draft-07/schema#",
			"http://json-schema.org/draft-06/schema#", "http://json-schema.org/draft-04/schema#"} {
			validates(fmt.Sprintf(`{"$schema":%q,"format":"date-time"}`, draft), []string{`"2026-01-02T03:04:05Z"`, `7`}, []string{`"yesterday"`})(p)
		}
		validates(`{"format":"no such format"}`, []string{`"x"`}, nil)(p)
	},
	"SV-8": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s, `"schema":{"properties":{"id":{"type":"integer"}},"required":["`+strings.Join(manyNames(), `","`)+`"]}`)
		a := p.ask(s, "POST /v1/topics/"+topic+"/produce", `{"id":"x"}`)
		a.is(400, "invalid argument: schema: jsonschema validation failed with 'narad://schema/"+topic+"/1#'\n- at '…")
		if text := a.refusal(); len(text) > 2<<10+len("invalid argument: schema: ")+8 {
			p.Errorf("a report of %d bytes, want it cut at 2 KiB", len(text))
		}
		topic = p.newTopic(s, `"schema":{"properties":{"id":{"type":"integer"}}}`)
		p.ask(s, "POST /v1/topics/"+topic+"/produce", `{"id":"x"}`).is(400,
			"invalid argument: schema: jsonschema validation failed with 'narad://schema/"+topic+"/1#'\n- at '/id': got string, want integer")
	},
	"SV-10": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s, `"schema":{"type":"integer"}`)
		line := "POST /v1/topics/" + topic + "/produce/batch"
		p.ask(s, line, batch(`{"payload":1},{"payload":"a"},{"payload":"b"}`)).is(400, "message 1: invalid argument: schema: …")
		p.ask(s, line, batch(`{"payload":1},{"payload":"eA==","payload_encoding":"base64"}`)).is(400, "message 1: invalid argument: schema: …")
		p.empty(s, topic, "")
		p.ask(s, line, batch(`{"payload":1},{"payload":"MQ==","payload_encoding":"base64"}`)).is(202, "")
	},
	"SV-11": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		for _, payload := range []string{"\xff\x00", `{"a":`, nested(300), "\ufeff"} {
			p.produce(s, topic, "", payload)
			p.take(s, topic, "")
		}
	},

	"SC-1": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		if h := p.history(s, topic); h.Version != 0 || h.Versions == nil {
			p.Errorf("without a schema: %+v", h)
		}
		docs := []string{`{"type":"integer"}`, `{"type":["integer","null"]}`, `{"type":["integer","null","string"]}`}
		for i, doc := range docs {
			p.ask(s, "PATCH /v1/topics/"+topic, `{"schema":`+doc+`}`).is(200, "")
			if h := p.history(s, topic); h.Version != i+1 {
				p.Fatalf("version %d after %d changes", h.Version, i+1)
			}
		}
		for i, v := range p.history(s, topic).Versions {
			if string(v.Schema) != docs[i] {
				p.Errorf("version %d is %s", i+1, v.Schema)
			}
		}
		if d := p.describe(s, topic); d.SchemaVersion != 3 || !equal(d.Schema, json.RawMessage(docs[2])) {
			p.Errorf("described with version %d: %v", d.SchemaVersion, d.Schema)
		}
	},
	"SC-2": topicBudget,
	"SC-3": sameSchema,
	"SC-4": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		line := "POST /v1/topics/" + topic + "/produce"
		p.ask(s, line, `"x"`).is(202, "")
		p.ask(s, "PATCH /v1/topics/"+topic, `{"schema":{"type":"integer"}}`).is(200, "")
		p.ask(s, line, `"x"`).is(400, textSchema)
		p.ask(s, "PATCH /v1/topics/"+topic, `{"schema":{"type":["integer","string"]}}`).is(200, "")
		p.ask(s, line, `"x"`).is(202, "")
	},
	"SC-5": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s, `"schema":{"type":"integer"}`)
		p.ask(s, "PATCH /v1/topics/"+topic, `{"partitions":4}`).is(200, "")
		if h := p.history(s, topic); h.Version != 1 {
			p.Errorf("version %d once partitions were added", h.Version)
		}
		p.ask(s, "DELETE /v1/topics/"+topic, "").is(204, "")
		p.ask(s, "GET /v1/topics/"+topic+"/schema", "").is(404, "topic not found")
		p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q}`, topic)).is(201, "")
		if h := p.history(s, topic); h.Version != 0 {
			p.Errorf("version %d of a new topic", h.Version)
		}
		p.produce(s, topic, "", `"x"`)
	},

	"TC-4": func(p *probe) {
		s := p.server()
		name := p.name()
		p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"schema":{"type":"numeric"}}`, name)).is(400, "invalid argument: …")
		p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"schema":{"$ref":"https://example.org/x"}}`, name)).is(400, "invalid argument: …")
		p.ask(s, "GET /v1/topics/"+name, "").is(404, "topic not found")
	},
	"TA-5": func(p *probe) {
		s := p.server()
		line := "PATCH /v1/topics/" + p.newTopic(s, `"schema":{"properties":{"qty":{"type":["integer","string"]}}}`)
		p.ask(s, line, `{"schema":{"properties":{"qty":{"type":"string"}}}}`).is(400,
			`invalid argument: schema incompatible with previous version: at /properties/qty: type "integer" no longer allowed`)
		p.ask(s, line, `{"schema":{"properties":{"qty":{"type":["integer","string"]}},"required":["note"]}}`).is(400,
			`invalid argument: schema incompatible with previous version: schema root: required property "note" added`)
		p.ask(s, line, `{"schema":{"type":"numeric"}}`).is(400, "invalid argument: …")
		p.ask(s, line, `{"schema":null}`).is(400, "")
	},
	"TA-6": sameSchema,
	"TA-7": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s)
		line := "PATCH /v1/topics/" + topic
		conflict := func(n, m int) string {
			return fmt.Sprintf(`schema version conflict: schema_base_version %d does not match the current version %d of "%s"`, n, m, topic)
		}
		p.ask(s, line, `{"schema":{"type":"integer"},"schema_base_version":1}`).is(409, conflict(1, 0))
		p.ask(s, line, `{"schema":{"type":"integer"},"schema_base_version":0}`).is(200, "")
		p.ask(s, line, `{"schema":{"type":["integer","null"]},"schema_base_version":0}`).is(409, conflict(0, 1))
		p.ask(s, line, `{"schema":{"type":["integer","null"]},"schema_base_version":1}`).is(200, "")
		p.ask(s, line, `{"schema_base_version":2}`).is(400, "invalid argument: …")
		p.ask(s, line, `{"retention_ms":3600000,"schema_base_version":2}`).is(400, "invalid argument: …")
		p.ask(s, line, `{"schema":{},"schema_base_version":-1}`).is(400, "")
	},
	"TA-8": topicBudget,
	"TA-15": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s, `"retention_ms":3600000,"schema":{"type":"integer"}`)
		p.ask(s, "PATCH /v1/topics/"+topic, `{"retention_ms":7200000,"max_in_flight_per_partition":5,"schema":{"type":"string"}}`).is(400, textIncompatible)
		if d := p.describe(s, topic); d.RetentionMS != 7_200_000 || d.MaxInFlight != 5 || d.SchemaVersion != 1 {
			p.Errorf("%+v: want retention and cap applied, the schema not", d)
		}
	},
	"P-5": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s, `"schema":{"type":"integer"}`)
		p.ask(s, "POST /v1/topics/"+topic+"/produce", `"x"`).is(400, textSchema)
		p.ask(s, "POST /v1/topics/"+topic+"/produce?partition=9", `"x"`).is(400, textRange)
		p.empty(s, topic, "")
		p.produce(s, topic, "", `1`)
	},
	"PB-6": func(p *probe) {
		s := p.server()
		topic := p.newTopic(s, `"schema":{"type":"integer"}`)
		p.ask(s, "POST /v1/topics/"+topic+"/produce/batch", batch(`{"payload":1},{"payload":1},{"payload":"x"},{"payload":1},{"payload":1},{}`)).is(400, "message 5: message required")
		p.ask(s, "POST /v1/topics/"+topic+"/produce/batch", batch(`{"payload":1},{"payload":"x"},{"payload":1,"partition":9}`)).is(400, "message 1: invalid argument: schema: …")
		p.empty(s, topic, "")
	},
	"LIM-14": registrable(
		[]string{describedBy(256 << 10), `{"default":` + nested(63) + `}`},
		[]string{describedBy(256<<10 + 1), `{"default":` + nested(64) + `}`},
	),
	"LIM-15": payloadNesting,
	"BODY-10": rows(
		row{"PATCH /v1/topics/{t}", `{"retention_ms":null,"partitions":null}`, 400, "invalid argument: …", nil},
		row{"PATCH /v1/topics/{t}", `{"retention_ms":3600000,"partitions":null,"max_in_flight_per_partition":null,"schema_base_version":null}`, 200, "", nil},
		row{"PATCH /v1/topics/{t}", `{"retention_ms":3600000,"schema":null}`, 400, "", nil},
		row{"POST /v1/topics", `{"name":"{t}-nulls","schema":null}`, 400, "", nil},
		row{"POST /v1/topics", `{"name":"{t}-nulls","partitions":null,"retention_ms":null,"visibility_timeout_ms":null,"max_in_flight_per_partition":null,"max_acked_ahead_per_partition":null,"owner":null}`, 201, "", nil},
		row{"DELETE /v1/topics/{t}-nulls", "", 204, "", nil},
		row{"POST /v1/topics/{t}/produce/batch", batch(`{"payload":1,"payload_encoding":null,"key":null,"key_encoding":null,"partition":null}`), 202, "", nil},
		row{"POST /v1/topics/{t}/ack", `{"receipt_handles":null}`, 400, "receipt_handle required", nil},
	),
}

// localReferences: a document refers to itself only, and the refusal does not repeat what
// it refers to.
func localReferences(p *probe) {
	registrable([]string{
		`{"$ref":"#/$defs/a","$defs":{"a":{}}}`, `{"$ref":"#a","$defs":{"x":{"$anchor":"a"}}}`, `{"$dynamicRef":"#a","$defs":{"x":{"$dynamicAnchor":"a"}}}`,
		`{"$id":"https://example.org/a","properties":{"a":{"$ref":"#"}}}`,
	}, nil)(p)
	s := p.server()
	for _, ref := range []string{"file:///etc/secret", "http://secret.example/x", "https://secret.example/x#", "secret.json", "secret.json#/a", "//secret.example/a", "", "https://example.org/a"} {
		for _, doc := range []string{`{"$ref":%q}`, `{"$id":"https://example.org/a","$defs":{"unused":{"items":{"$ref":%q}}}}`, `{"not":{"$dynamicRef":%q}}`} {
			a := p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"schema":%s}`, p.name(), fmt.Sprintf(doc, ref))).is(400, "invalid argument: …")
			if strings.Contains(a.body, "secret") {
				a.fatalf("the reference is repeated")
			}
		}
	}
}

// payloadNesting: the deepest payload on a topic with a schema.
func payloadNesting(p *probe) {
	s := p.server()
	line := "POST /v1/topics/" + p.newTopic(s, `"schema":true`) + "/produce"
	p.ask(s, line, nested(256)).is(202, "")
	p.ask(s, line, nested(257)).is(400, "…payload nests deeper than 256 levels…")
	p.ask(s, line, nested(100_000)).is(400, "…payload nests deeper than 256 levels…")
}

func manyNames() []string {
	names := make([]string, 500)
	for i := range names {
		names[i] = fmt.Sprint("name-", i)
	}
	return names
}

// topicBudget: 4 MiB of versions fit a topic, one more does not.
func topicBudget(p *probe) {
	s := p.server()
	topic := p.newTopic(s)
	var properties []string
	for i := range 17 {
		properties = append(properties, fmt.Sprintf(`"p%d":{}`, i))
		doc := fmt.Sprintf(`{"properties":{%s},"description":%q}`, strings.Join(properties, ","), long(255<<10))
		a := p.ask(s, "PATCH /v1/topics/"+topic, `{"schema":`+doc+`}`)
		if i < 16 {
			a.is(200, "")
		} else if text := a.is(409, "").refusal(); !strings.Contains(text, "4194304") && !strings.Contains(text, "4 MiB") {
			a.fatalf("want the budget named")
		}
	}
	if h := p.history(s, topic); h.Version != 16 {
		p.Errorf("version %d, want 16", h.Version)
	}
}

// sameSchema: an equal value, and a difference in annotations alone, is no new version.
func sameSchema(p *probe) {
	s := p.server()
	topic := p.newTopic(s, `"schema":{"type":"object","properties":{"a":{"minimum":10,"title":"A"}},"title":"T"}`)
	for _, doc := range []string{
		`{"type":"object","properties":{"a":{"minimum":10,"title":"A"}},"title":"T"}`,
		` { "title":"T", "properties" : {"a":{"title":"A","minimum":1e1}},"type":"object"}`,
		`{"type":"object","properties":{"a":{"minimum":10.0}}}`,
		`{"type":"object","properties":{"a":{"minimum":10,"description":"d","examples":[1],"default":1,"deprecated":true,"readOnly":true,"writeOnly":false}},"$comment":"c"}`,
	} {
		p.ask(s, "PATCH /v1/topics/"+topic, `{"schema":`+doc+`}`).is(200, "")
		if h := p.history(s, topic); h.Version != 1 {
			p.Fatalf("%s made version %d", doc, h.Version)
		}
	}
	p.ask(s, "PATCH /v1/topics/"+topic, `{"schema":{"type":"object","properties":{"a":{"minimum":10},"title":{}}}}`).is(200, "")
	if h := p.history(s, topic); h.Version != 2 {
		p.Errorf("a property named title made no version: %d", h.Version)
	}
}

// change is a schema and what may follow it.
type change struct {
	old              string
	allowed, refused []string
}

// compatible makes a check of changes.
func compatible(table ...change) check {
	return func(p *probe) {
		s := p.server()
		for _, c := range table {
			for _, next := range slices.Concat(c.allowed, c.refused) {
				topic := p.newTopic(s, `"schema":`+c.old)
				a := p.ask(s, "PATCH /v1/topics/"+topic, `{"schema":`+next+`}`)
				switch may := slices.Contains(c.allowed, next); {
				case may && a.status != 200:
					p.Errorf("%s to %s: %d %s", c.old, next, a.status, a.body)
				case !may && a.status == 200:
					p.Errorf("%s to %s: accepted", c.old, next)
				case !may:
					a.is(400, textIncompatible)
				}
			}
		}
	}
}

// compatibilityChecks are CMP (section 9.4).
var compatibilityChecks = map[string]check{
	"CMP-1": compatible(
		change{`{"type":"integer"}`, []string{`{"type":["integer","null"]}`, `{"type":"number"}`, `{}`}, []string{`{"type":"string"}`}},
		change{`{"type":["string","null"]}`, nil, []string{`{"type":"string"}`, `{"type":"null"}`}},
		change{`{"type":"number"}`, nil, []string{`{"type":"integer"}`}},
	),
	"CMP-2": compatible(
		change{`{"enum":[1,2]}`, []string{`{"enum":[1,2,3]}`, `{"enum":[2.0,1]}`, `{}`}, []string{`{"enum":[1]}`, `{"const":1}`}},
		change{`{"const":1}`, []string{`{"enum":[1,2]}`, `{}`}, []string{`{"const":2}`, `{"enum":[2]}`}},
		change{`{}`, nil, []string{`{"enum":[1]}`, `{"const":1}`}},
		change{`{"enum":[1,2],"const":1}`, []string{`{"const":1}`, `{"enum":[1]}`}, []string{`{"enum":[2]}`}},
	),
	"CMP-3": compatible(
		change{`{"minimum":5,"maximum":9}`, []string{`{"minimum":4,"maximum":9}`, `{"minimum":5,"maximum":10}`, `{"minimum":5}`, `{}`}, []string{`{"minimum":6,"maximum":9}`, `{"minimum":5,"maximum":8}`}},
		change{`{"exclusiveMinimum":5,"exclusiveMaximum":9}`, []string{`{"exclusiveMinimum":4,"exclusiveMaximum":9}`}, []string{`{"exclusiveMinimum":6,"exclusiveMaximum":9}`, `{"exclusiveMinimum":5,"exclusiveMaximum":8}`}},
		change{`{}`, nil, []string{`{"minimum":0}`, `{"maximum":0}`, `{"exclusiveMinimum":0}`, `{"exclusiveMaximum":0}`}},
	),
	"CMP-4": compatible(
		change{`{"multipleOf":6}`, []string{`{"multipleOf":3}`, `{"multipleOf":0.5}`, `{}`}, []string{`{"multipleOf":12}`, `{"multipleOf":4}`}},
		change{`{}`, nil, []string{`{"multipleOf":1}`}},
	),
	"CMP-5": compatible(
		change{`{"minLength":2,"minItems":2,"minProperties":2}`, []string{`{"minLength":1,"minItems":1,"minProperties":1}`, `{}`}, []string{`{"minLength":3,"minItems":2,"minProperties":2}`, `{"minItems":3}`, `{"minProperties":3}`}},
		change{`{}`, []string{`{"minLength":0,"minItems":0,"minProperties":0}`}, []string{`{"minLength":1}`, `{"minItems":1}`, `{"minProperties":1}`}},
	),
	"CMP-6": compatible(
		change{`{"maxLength":2,"maxItems":2,"maxProperties":2}`, []string{`{"maxLength":3,"maxItems":3,"maxProperties":3}`, `{}`}, []string{`{"maxLength":1}`, `{"maxItems":1}`, `{"maxProperties":1}`}},
		change{`{}`, nil, []string{`{"maxLength":9}`, `{"maxItems":9}`, `{"maxProperties":9}`}},
	),
	"CMP-7": compatible(
		change{`{"pattern":"^a","format":"date"}`, []string{`{"pattern":"^a"}`, `{"format":"date"}`, `{}`}, []string{`{"pattern":"^b","format":"date"}`, `{"pattern":"^a","format":"time"}`}},
		change{`{}`, nil, []string{`{"pattern":""}`, `{"format":"date"}`}},
	),
	"CMP-8": compatible(
		change{`{"uniqueItems":true}`, []string{`{"uniqueItems":false}`, `{}`}, nil},
		change{`{}`, []string{`{"uniqueItems":false}`}, []string{`{"uniqueItems":true}`}},
	),
	"CMP-9": compatible(
		change{`{"required":["a","b"]}`, []string{`{"required":["a"]}`, `{"required":[]}`, `{}`}, []string{`{"required":["a","b","c"]}`, `{"required":["c"]}`}},
	),
	"CMP-10": compatible(
		change{`{"properties":{"a":{"type":"integer"}}}`,
			[]string{`{"properties":{"a":{"type":"integer"},"b":{"type":"string"}}}`, `{"properties":{"a":{"type":"number"}}}`},
			[]string{`{"properties":{}}`, `{}`, `{"properties":{"a":{"type":"string"}}}`}},
		change{`{"patternProperties":{"^x":{"type":"integer"}}}`,
			[]string{`{"patternProperties":{"^x":{"type":"integer"}},"properties":{"x1":{"type":"number"}}}`},
			[]string{`{"patternProperties":{"^x":{"type":"integer"}},"properties":{"x1":{"type":"string"}}}`}},
	),
	"CMP-11": compatible(
		change{`{"properties":{"a":{}},"additionalProperties":false}`, []string{`{"properties":{"a":{}}}`, `{"properties":{"a":{}},"additionalProperties":{"type":"string"}}`, `{"properties":{"a":{}},"additionalProperties":true}`}, nil},
		change{`{"additionalProperties":{"type":"integer"}}`, []string{`{"additionalProperties":{"type":"number"}}`}, []string{`{"additionalProperties":{"type":"string"}}`, `{"additionalProperties":false}`}},
		change{`{"properties":{"a":{}}}`, nil, []string{`{"properties":{"a":{}},"additionalProperties":false}`, `{"properties":{"a":{}},"additionalProperties":{"type":"string"}}`}},
	),
	"CMP-12": compatible(
		change{`{"items":{"type":"integer"}}`, []string{`{"items":{"type":"number"}}`, `{}`}, []string{`{"items":{"type":"string"}}`}},
		change{`{}`, nil, []string{`{"items":{"type":"integer"}}`}},
		change{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"integer"}]}`, nil,
			[]string{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"number"}]}`}},
	),
	"CMP-13": compatible(
		change{`{"anyOf":[{"type":"integer"},{"type":"string"}]}`,
			[]string{`{"anyOf":[{"type":"string"},{"type":"number"}]}`, `{"anyOf":[{"type":"integer"},{"type":"string"},{"type":"null"}]}`}, []string{`{"anyOf":[{"type":"integer"}]}`}},
	),
	"CMP-14": compatible(
		change{`{"allOf":[{"minimum":5},{"maximum":9}]}`, []string{`{"allOf":[{"minimum":4}]}`, `{"allOf":[{"maximum":9},{"minimum":5}]}`}, []string{`{"allOf":[{"minimum":6}]}`, `{"allOf":[{"minimum":5},{"maximum":9},{"multipleOf":2}]}`}},
	),
	"CMP-15": compatible(
		change{`{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"integer"}}}`,
			[]string{
				`{"properties":{"a":{"type":"integer"}}}`, `{"properties":{"a":{"$ref":"#/$defs/y"}},"$defs":{"y":{"type":"number"}}}`,
				`{"properties":{"a":{"$ref":"#/$defs/x","title":"t"}},"$defs":{"x":{"type":"integer"}}}`,
			},
			[]string{`{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"string"}}}`}},
		change{`{"properties":{"next":{"$ref":"#"},"v":{"type":"integer"}}}`, []string{`{"properties":{"next":{"$ref":"#"},"v":{"type":"number"}}}`}, []string{`{"properties":{"next":{"$ref":"#"},"v":{"type":"string"}}}`}},
		change{`{"properties":{"a":{"$ref":"#/properties/a"}}}`, []string{`{"properties":{"a":{"type":"string"}}}`}, nil},
		change{`{"properties":{"a":{"type":"string"}}}`, nil, []string{`{"properties":{"a":{"$ref":"#/properties/a"}}}`}},
	),
	"CMP-16": compatible(
		change{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"integer"}`,
			[]string{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"number"}`},
			[]string{`{"type":"number"}`, `{"$schema":"http://json-schema.org/draft-06/schema#","type":"number"}`}},
		change{`{"type":"integer"}`, nil, []string{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"number"}`}},
	),
	"CMP-17": compatible(
		change{`{"oneOf":[{"type":"integer"},{"type":"string"}],"maxLength":5}`, []string{`{"oneOf":[{"type":"integer"},{"type":"string"}],"maxLength":6}`, `{"maxLength":5}`}, []string{`{"oneOf":[{"type":"integer"},{"type":"string"},{"type":"null"}],"maxLength":5}`}},
		change{`{"not":{"type":"null"},"maxLength":5}`, []string{`{"maxLength":5}`}, []string{`{"not":{"type":"string"},"maxLength":5}`}},
		change{`{"if":{"type":"integer"},"then":{"minimum":1},"maxLength":5}`, []string{`{"maxLength":5}`}, []string{`{"if":{"type":"integer"},"then":{"minimum":0},"maxLength":5}`}},
		change{`{"contains":{"type":"integer"},"maxLength":5}`, []string{`{"maxLength":5}`}, []string{`{"contains":{"type":"number"},"maxLength":5}`}},
		change{`{"propertyNames":{"maxLength":3},"dependentRequired":{"a":["b"]},"dependentSchemas":{"a":{"minProperties":2}},"maxLength":5}`, []string{`{"maxLength":5}`}, []string{`{"propertyNames":{"maxLength":4},"maxLength":5}`, `{"dependentRequired":{"a":["c"]},"maxLength":5}`}},
		change{`{"patternProperties":{"^x":{"type":"integer"}}}`, []string{`{}`}, []string{`{"patternProperties":{"^x":{"type":"number"}}}`, `{"patternProperties":{"^x":{"type":"integer"},"^y":{}}}`}},
		change{`{"patternProperties":{"^x":{}},"additionalProperties":false}`, nil, []string{`{"additionalProperties":false}`}},
		change{`{"prefixItems":[{"type":"integer"}],"items":{"type":"string"}}`, []string{`{}`}, []string{`{"items":{"type":"string"}}`, `{"prefixItems":[{"type":"number"}],"items":{"type":"string"}}`}},
		change{`{}`, nil, []string{`{"not":{"type":"null"}}`, `{"contains":{}}`, `{"propertyNames":{}}`}},
	),
	"CMP-18": compatible(
		change{`{"properties":{"a":{"unevaluatedProperties":false,"properties":{"b":{}}},"n":{"type":"integer"}}}`,
			[]string{`{"properties":{"a":{"unevaluatedProperties":false,"properties":{"b":{}}},"n":{"type":"number"}}}`},
			[]string{`{"properties":{"a":{"unevaluatedProperties":false,"properties":{"b":{},"c":{}}},"n":{"type":"integer"}}}`}},
		change{`{"properties":{"a":{"unevaluatedItems":false},"n":{"type":"integer"}}}`, []string{`{"properties":{"a":{"unevaluatedItems":false},"n":{"type":"number"}}}`}, []string{`{"properties":{"a":{"unevaluatedItems":{"type":"string"}},"n":{"type":"integer"}}}`}},
	),
	"CMP-19": compatible(
		change{`{"type":"integer","title":"a","$defs":{"x":{"type":"integer"}}}`, []string{`{"type":"number","title":"b","description":"c","$defs":{"y":{"type":"string"}}}`}, nil},
	),
	"CMP-20": compatible(
		change{`{"properties":{"a":{"type":"integer","minimum":3},"b":{"not":{}}}}`, []string{`{"properties":{"a":true,"b":{}}}`}, nil},
	),
	"CMP-21": compatible(
		change{`{"$schema":"http://json-schema.org/draft-04/schema#","type":"integer"}`, []string{`{"$schema":"http://json-schema.org/draft-04/schema#","type":"number","const":5,"propertyNames":{"maxLength":1}}`}, nil},
		change{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"integer"}`, []string{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"number","dependentRequired":{"a":["b"]}}`}, nil},
	),
	"CMP-22": compatible(
		change{`{"type":"object"}`, []string{`{"type":"object","properties":{"a":{"type":"integer"}}}`}, nil},
		change{`{"type":"object","additionalProperties":{"type":"string"}}`, nil, []string{`{"type":"object","additionalProperties":{"type":"string"},"properties":{"a":{"type":"integer"}}}`}},
	),
	"CMP-23": compatible(
		change{`{"enum":["a","b"]}`, nil, []string{`{"type":"string"}`, `{"maxLength":9}`}},
		change{`{"const":5}`, nil, []string{`{"minimum":1}`}},
	),
}
