package conformance

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// topic is the Topic of section 7.1, and what a describe adds.
type topic struct {
	Name          string  `json:"name"`
	ID            string  `json:"id"`
	Partitions    int     `json:"partitions"`
	RetentionMS   int64   `json:"retention_ms"`
	VisibilityMS  int64   `json:"visibility_timeout_ms"`
	MaxInFlight   int     `json:"max_in_flight_per_partition"`
	MaxAckedAhead int     `json:"max_acked_ahead_per_partition"`
	CreatedAt     int64   `json:"created_at"`
	Owner         string  `json:"owner"`
	Role          string  `json:"role"`
	SchemaVersion int     `json:"schema_version"`
	Schema        any     `json:"schema"`
	Stats         []stats `json:"partition_stats"`
	Partial       bool    `json:"partial"`
}

type stats struct {
	Index           int    `json:"index"`
	OldestOffset    int64  `json:"oldest_offset"`
	NextOffset      int64  `json:"next_offset"`
	HighWatermark   int64  `json:"high_watermark"`
	SizeBytes       int64  `json:"size_bytes"`
	OldestSegmentAt int64  `json:"oldest_segment_at"`
	Owner           string `json:"owner_node"`
	Status          string `json:"status"`
}

// topicFields are those every topic has, in order of emission.
var topicFields = []string{"name", "id", "partitions", "retention_ms", "visibility_timeout_ms",
	"max_in_flight_per_partition", "max_acked_ahead_per_partition", "created_at"}

func (p *probe) describe(s *server, name string) topic {
	p.Helper()
	var d topic
	p.ask(s, "GET /v1/topics/"+name, "").wants(200, &d)
	return d
}

// topicChecks are TC, TL, TG, TA and TD (section 8).
var topicChecks = map[string]check{
	"TC-1": createTopic,
	"TC-3": createRefused,
	"TC-8": rows(row{"POST /v1/topics", `{"name":"{t}"}`, 409, "topic already exists", nil}, row{"POST /v1/topics", `{"name":"{t}","partitions":9}`, 409, "topic already exists", nil}),
	"TC-9": func(p *probe) {
		s := p.server()
		name := p.newTopic(s)
		p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q}`, strings.ToUpper(name))).is(409, "…"+name+"…")
		p.ask(s, "GET /v1/topics/"+strings.ToUpper(name), "").is(404, "topic not found")
	},
	"TC-14": func(p *probe) {
		s := p.server()
		body := fmt.Sprintf(`{"name":%q}`, p.name())
		p.ask(s, "POST /v1/topics", padded(body, 1<<20+1)).is(413, "request body too large")
		p.ask(s, "POST /v1/topics", padded(body, 1<<20)).is(201, "")
	},

	"TL-1": listTopics,

	"TG-1": describeTopic,
	"TG-3": rows(
		row{"GET /v1/topics/{t}?partition=3", "", 400, "invalid argument: partition out of range", nil},
		row{"GET /v1/topics/{t}?partition=-1", "", 400, "invalid argument: partition out of range", nil},
		row{"GET /v1/topics/{t}?partition=x", "", 400, "invalid argument: partition out of range", nil},
		row{"GET /v1/topics/{t}?partition=", "", 400, "invalid argument: partition out of range", nil},
		row{"GET /v1/topics/{t}?partition=99999999999999999999", "", 400, "invalid argument: partition out of range", nil},
		row{"GET /v1/topics/{t}?partition=2", "", 200, "", nil},
	),
	"TG-5": rows(row{"GET /v1/topics/missing", "", 404, "topic not found", nil}, row{"GET /v1/topics/{t}x", "", 404, "topic not found", nil}),

	"TA-1": alterTopic,
	"TA-2": rows(
		row{"PATCH /v1/topics/{t}", `{}`, 400, "invalid argument: …", nil},
		row{"PATCH /v1/topics/{t}", `{"partitions":0}`, 400, "invalid argument: …", nil},
		row{"PATCH /v1/topics/{t}", `{"retention_ms":null}`, 400, "invalid argument: …", nil},
		row{"PATCH /v1/topics/{t}", ``, 400, "invalid json: …", nil},
	),
	"TA-3": rows(
		row{"PATCH /v1/topics/{t}", `{"partitions":3}`, 400, "invalid argument: …", nil},
		row{"PATCH /v1/topics/{t}", `{"partitions":1}`, 400, "invalid argument: …", nil},
		row{"PATCH /v1/topics/{t}", `{"partitions":-1}`, 400, "invalid argument: …", nil},
		row{"PATCH /v1/topics/{t}", `{"partitions":109}`, 400, "invalid argument: …", nil},
		row{"PATCH /v1/topics/{t}", `{"retention_ms":3599999}`, 400, "invalid argument: …", nil},
		row{"PATCH /v1/topics/{t}", `{"retention_ms":-1}`, 400, "invalid argument: …", nil},
		row{"PATCH /v1/topics/{t}", `{"retention_ms":9223372036855}`, 400, "invalid argument: …", nil},
		row{"PATCH /v1/topics/{t}", `{"max_in_flight_per_partition":-1}`, 400, "invalid argument: …", nil},
		row{"PATCH /v1/topics/{t}", `{"max_acked_ahead_per_partition":-1}`, 400, "invalid argument: …", nil},
	),
	"TA-4": rows(row{"PATCH /v1/topics/{t}", `{"visibility_timeout_ms":1000}`, 400, `invalid json: json: unknown field "visibility_timeout_ms"`, nil}),
	"TA-13": rows(
		row{"PATCH /v1/topics/missing", `{"retention_ms":3600000}`, 404, "topic not found", nil},
		row{"PATCH /v1/topics/missing", `{"partitions":9,"retention_ms":3600000}`, 404, "topic not found", nil},
	),
	"TA-16": rows(
		row{"PATCH /v1/topics/{t}", padded(`{"retention_ms":3600000}`, 1<<20), 200, "", nil},
		row{"PATCH /v1/topics/{t}", padded(`{"retention_ms":3600000}`, 1<<20+1), 413, "request body too large", nil},
	),

	"TD-1":  deleteTopic,
	"TD-10": rows(row{"DELETE /v1/topics/{t}", "", 204, "", nil}, row{"DELETE /v1/topics/{t}", "", 404, "topic not found", nil}, row{"DELETE /v1/topics/missing", "", 404, "topic not found", nil}),
	"TD-11": rows(row{"DELETE /v1/topics/{t}?force=maybe", "", 400, "invalid argument: …", nil}, row{"GET /v1/topics/{t}", "", 200, "", nil}),
}

// createTopic: what is left out gets the default, what is given is kept, and the answer
// has the fields of a topic in order, without role.
func createTopic(p *probe) {
	s := p.server()
	var got topic
	name := p.name()
	a := p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"partitions":4,"retention_ms":0,"visibility_timeout_ms":1,"max_in_flight_per_partition":2,"max_acked_ahead_per_partition":3}`, name)).wants(201, &got)
	p.dropAtEnd(name)
	want := topicFields
	if s.user != "" {
		want = append(slices.Clone(want), "owner")
	}
	if fields := fieldsOf(a.body); !slices.Equal(fields, want) {
		p.Errorf("fields %v, want %v", fields, want)
	}
	if !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(got.ID) {
		p.Errorf("id %q, want 16 lowercase hex characters", got.ID)
	}
	if age := time.Now().Unix() - got.CreatedAt; age < -3600 || age > 3600 {
		p.Errorf("created_at %d", got.CreatedAt)
	}
	id := got.ID
	got.ID, got.CreatedAt, got.Owner = "", 0, ""
	if w := (topic{Name: name, Partitions: 4, VisibilityMS: 1, MaxInFlight: 2, MaxAckedAhead: 3}); !equal(got, w) {
		p.Errorf("created %+v, want %+v", got, w)
	}
	p.ask(s, "DELETE /v1/topics/"+name, "").is(204, "")
	p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,"partitions":0,"visibility_timeout_ms":0,"max_in_flight_per_partition":0,"max_acked_ahead_per_partition":0,"owner":"mallory"}`, name)).wants(201, &got)
	if got.ID == id {
		p.Error("the id of a deleted topic is used again")
	}
	if got.Owner == "mallory" {
		p.Error("owner is taken from the body")
	}
	p.longestName(s)
	if s.node == nil {
		return // somebody else's defaults
	}
	got.ID, got.CreatedAt, got.Owner = "", 0, ""
	if w := (topic{Name: name, Partitions: 3, RetentionMS: 604_800_000, VisibilityMS: 30_000, MaxInFlight: 1024, MaxAckedAhead: 1024}); !equal(got, w) {
		p.Errorf("created %+v, want the defaults %+v", got, w)
	}
}

func (p *probe) longestName(s *server) {
	p.Helper()
	name := p.name() + "-AZaz09._-"
	name += strings.Repeat("n", 200-len(name))
	p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q}`, name)).is(201, "")
	p.dropAtEnd(name)
	p.produce(s, name, "", "1")
	p.take(s, name, "")
}

func equal(a, b any) bool {
	x, _ := json.Marshal(a) // of plain structs
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func createRefused(p *probe) {
	s := p.server()
	for _, name := range []string{"", ".", "..", "a b", "a/b", "a*", "ü", "a\x00", long(201)} {
		p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%s}`, quoted(name))).is(400, "invalid argument: …")
	}
	p.ask(s, "POST /v1/topics", `{}`).is(400, "invalid argument: …")
	for _, field := range []string{
		`"partitions":1`, `"partitions":2`, `"partitions":-1`, `"partitions":109`, `"partitions":1000000000`,
		`"retention_ms":1`, `"retention_ms":3599999`, `"retention_ms":-1`, `"retention_ms":9223372036855`,
		`"visibility_timeout_ms":-1`, `"visibility_timeout_ms":31536000001`,
		`"max_in_flight_per_partition":-1`, `"max_acked_ahead_per_partition":-1`,
	} {
		name := p.name()
		p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q,%s}`, name, field)).is(400, "invalid argument: …")
		p.ask(s, "GET /v1/topics/"+name, "").is(404, "topic not found")
	}
	p.newTopic(s, `"retention_ms":3600000`)
	p.newTopic(s, `"retention_ms":9223372036854`)
	p.newTopic(s, `"visibility_timeout_ms":31536000000`)
}

func quoted(s string) string {
	b, _ := json.Marshal(s) // a string
	return string(b)
}

// listTopics: pages by name, a token while there is more, and limits.
func listTopics(p *probe) {
	s := p.server()
	for _, limit := range []string{"0", "-1", "x", "", "1.5"} {
		p.ask(s, "GET /v1/topics?limit="+limit, "").is(400, "invalid argument: …")
	}
	p.ask(s, "GET /v1/topics?limit=1001", "").is(200, "")
	p.ask(s, "GET /v1/topics?limit=99999999999999999999", "").is(200, "")
	mine := []string{p.newTopic(s), p.newTopic(s), p.newTopic(s)}
	prefix := mine[0][:len(mine[0])-10] // what precedes the number and the random part
	var got []string
	for token := prefix; ; {
		var page struct {
			Token  *string `json:"next_page_token"`
			Topics []topic `json:"topics"`
		}
		a := p.ask(s, "GET /v1/topics?limit=2&page_token="+token, "").wants(200, &page)
		if !slices.Equal(fieldsOf(a.body), []string{"next_page_token", "topics"}) || page.Topics == nil || page.Token == nil || len(page.Topics) > 2 {
			a.fatalf("want at most two topics and a token")
		}
		for _, t := range page.Topics {
			got = append(got, t.Name)
			if t.Role == "" || t.ID == "" {
				a.fatalf("%s has no role or id", t.Name)
			}
		}
		if *page.Token != "" && *page.Token != got[len(got)-1] {
			a.fatalf("token, want the last name")
		}
		if token = *page.Token; token == "" || len(got) > 0 && !strings.HasPrefix(got[len(got)-1], prefix) {
			break
		}
	}
	if !slices.IsSorted(got) || len(got) < 3 || !slices.Equal(got[:3], mine) {
		p.Errorf("listed %v, want to begin with %v in order", got, mine)
	}
}

func describeTopic(p *probe) {
	s := p.server()
	name := p.newTopic(s)
	for i := range 3 {
		p.produce(s, name, fmt.Sprint("?partition=", i), "1")
		p.take(s, name, fmt.Sprint("&partition=", i))
	}
	var d topic
	a := p.ask(s, "GET /v1/topics/"+name, "").wants(200, &d)
	fields := slices.DeleteFunc(fieldsOf(a.body), func(f string) bool { return f == "owner" })
	if want := append(slices.Clone(topicFields), "role", "schema_version", "partition_stats"); !slices.Equal(fields, want) {
		p.Errorf("fields %v, want %v", fields, want)
	}
	if d.Role != "standalone" || d.SchemaVersion != 0 || d.Partial || len(d.Stats) != 3 {
		a.fatalf("want a complete standalone topic of three partitions without a schema")
	}
	var raw struct {
		Stats []json.RawMessage `json:"partition_stats"`
	}
	a.decode(&raw)
	want := []string{"index", "segments", "oldest_offset", "next_offset", "high_watermark", "size_bytes", "oldest_segment_at", "owner_node", "status"}
	for i, st := range d.Stats {
		if st.Index != i || st.Status != "ok" || st.OldestOffset != 0 || st.NextOffset != 1 || st.HighWatermark != 1 || st.SizeBytes <= 0 {
			p.Errorf("partition %d: %+v", i, st)
		}
		if fields := fieldsOf(string(raw.Stats[i])); !slices.Equal(fields, want) {
			p.Errorf("stats fields %v, want %v", fields, want)
		}
	}
	p.ask(s, "GET /v1/topics/"+name+"?partition=1", "").wants(200, &d)
	if len(d.Stats) != 1 || d.Stats[0].Index != 1 {
		p.Errorf("partition=1 describes %+v", d.Stats)
	}
}

func alterTopic(p *probe) {
	s := p.server()
	name := p.newTopic(s, `"retention_ms":3600000,"max_in_flight_per_partition":7,"max_acked_ahead_per_partition":8`)
	before := p.describe(s, name)
	line := "PATCH /v1/topics/" + name
	var got topic
	for _, c := range []struct {
		body string
		want func(*topic)
	}{
		{`{"retention_ms":7200000}`, func(t *topic) { t.RetentionMS = 7_200_000 }},
		{`{"retention_ms":0}`, func(t *topic) { t.RetentionMS = 0 }},
		{`{"max_in_flight_per_partition":5}`, func(t *topic) { t.MaxInFlight = 5 }},
		{`{"max_acked_ahead_per_partition":6}`, func(t *topic) { t.MaxAckedAhead = 6 }},
		{`{"partitions":5}`, func(t *topic) { t.Partitions = 5 }},
		{`{"retention_ms":3600000,"partitions":6,"max_in_flight_per_partition":2}`, func(t *topic) { t.RetentionMS, t.Partitions, t.MaxInFlight = 3_600_000, 6, 2 }},
		{`{"retention_ms":3600000}`, func(*topic) {}},
	} {
		c.want(&before)
		before.Stats, before.Partial = nil, false // an owner elsewhere may not know the topic yet
		p.ask(s, line, c.body).wants(200, &got)
		if !equal(got, before) {
			p.Fatalf("%s: %+v, want %+v", c.body, got, before)
		}
	}
	if s.node != nil { // 0 is the server's default
		p.ask(s, line, `{"max_in_flight_per_partition":0,"max_acked_ahead_per_partition":0}`).wants(200, &got)
		if got.MaxInFlight != 1024 || got.MaxAckedAhead != 1024 {
			p.Errorf("caps %d and %d, want the defaults", got.MaxInFlight, got.MaxAckedAhead)
		}
	}
	p.produce(s, name, "?partition=5", "1")
	p.take(s, name, "&partition=5")
}

func deleteTopic(p *probe) {
	s := p.server()
	name := p.newTopic(s)
	p.produce(s, name, "?partition=0", "1")
	p.take(s, name, "")
	p.ask(s, "DELETE /v1/topics/"+name, "").is(204, "")
	for _, line := range []string{"GET /v1/topics/" + name, "GET /v1/topics/" + name + "/consume", "POST /v1/topics/" + name + "/produce"} {
		p.ask(s, line, "x").is(404, "topic not found")
	}
	p.ask(s, "POST /v1/topics", fmt.Sprintf(`{"name":%q}`, name)).is(201, "")
	p.ask(s, "GET /v1/topics/"+name+"/consume?wait=200ms", "").is(204, "")
	p.ask(s, "GET /v1/topics/"+name+"/consume?partition=0&offset=0", "").is(204, "")
}
