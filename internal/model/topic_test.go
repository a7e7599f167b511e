package model

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// spec/http-api section 8: 1 to 200 bytes of A-Z a-z 0-9 . _ -, not "." or "..".
func TestValidateTopicName(t *testing.T) {
	for _, name := range []string{
		"a", "Z", "0", "orders", "A.b_c-9", "...", ".hidden", "-", "_", "a.", "..a", "con", "orders.stale-0123456789abcdef",
		strings.Repeat("x", TopicNameMax),
	} {
		if err := ValidateTopicName(name); err != nil {
			t.Errorf("%.40q refused: %v", name, err)
		}
		if err := PathElement(name); err != nil {
			t.Errorf("%.40q is a topic name and not a path element: %v", name, err)
		}
	}
	for _, name := range []string{
		"", ".", "..", "a/b", "a\\b", "a b", "a\x00", "ä", "a:b", "a*", "a\n", "../x", "a%2f", "\x7f", "\xff",
		strings.Repeat("x", TopicNameMax+1),
	} {
		if err := ValidateTopicName(name); err == nil {
			t.Errorf("%.40q accepted", name)
		}
	}
}

func TestTopicNameBytes(t *testing.T) {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	for c := range 256 {
		name := "x" + string([]byte{byte(c)})
		if got, want := ValidateTopicName(name) == nil, strings.IndexByte(allowed, byte(c)) >= 0; got != want {
			t.Errorf("byte %#x allowed: %v, want %v", c, got, want)
		}
	}
}

// Names that exist already may be longer and odder, but are one path element.
func TestPathElement(t *testing.T) {
	for _, name := range []string{"a", "old name", "ä", "a:b", strings.Repeat("x", TopicNameStoredMax)} {
		if err := PathElement(name); err != nil {
			t.Errorf("%.40q refused: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", "/", "a\\b", "a\x00b", strings.Repeat("x", TopicNameStoredMax+1)} {
		if err := PathElement(name); err == nil {
			t.Errorf("%.40q accepted", name)
		}
	}
}

func TestIncarnations(t *testing.T) {
	seen := map[Incarnation]bool{}
	for range 1000 {
		id := NewIncarnation()
		if parsed, err := ParseIncarnation(string(id)); err != nil || parsed != id {
			t.Fatalf("%q: %q, %v", id, parsed, err)
		}
		if seen[id] {
			t.Fatalf("%q drawn twice", id)
		}
		seen[id] = true
		if back := IncarnationFromBytes(id.Bytes()); back != id {
			t.Fatalf("%q became %q through its bytes", id, back)
		}
	}
	for _, s := range []string{"", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF", "0123456789abcdeg", "0123456789abcde ", "0123456789abcde\n"} {
		if id, err := ParseIncarnation(s); err == nil || id != "" {
			t.Errorf("ParseIncarnation(%q) = %q, %v", s, id, err)
		}
	}
}

func TestIncarnationBytes(t *testing.T) {
	if b := Incarnation("0123456789abcdef").Bytes(); b != [8]byte{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef} {
		t.Errorf("bytes %x", b)
	}
	for _, id := range []Incarnation{"", "short", "0123456789abcdeX", "not hex, 16 long"} {
		if b := id.Bytes(); b != [8]byte{} {
			t.Errorf("%q has bytes %x, want unknown", id, b)
		}
	}
	if id := IncarnationFromBytes([8]byte{}); id != "" {
		t.Errorf("zero bytes read as %q, want unknown", id)
	}
}

// Data is refused only when both ids are known and differ.
func TestIncarnationDiffers(t *testing.T) {
	const a, b = Incarnation("0000000000000001"), Incarnation("0000000000000002")
	for _, c := range []struct {
		i, j Incarnation
		want bool
	}{{a, b, true}, {b, a, true}, {a, a, false}, {a, "", false}, {"", a, false}, {"", "", false}} {
		if got := c.i.Differs(c.j); got != c.want {
			t.Errorf("%q differs from %q: %v", c.i, c.j, got)
		}
	}
}

func TestLinkRole(t *testing.T) {
	for _, c := range []struct {
		topic Topic
		want  Role
	}{
		{Topic{}, RoleStandalone},
		{Topic{Parent: "p"}, RoleChild},
		{Topic{Children: []string{"c"}}, RoleParent},
		{Topic{Parent: "p", Children: []string{"c"}}, RoleChild},
	} {
		if got := c.topic.LinkRole(); got != c.want {
			t.Errorf("%+v is %s, want %s", c.topic, got, c.want)
		}
	}
}

// spec/http-api section 7.1: field order, and what is left out when empty.
func TestTopicJSON(t *testing.T) {
	b, err := json.Marshal(Topic{Name: "orders", ID: "0123456789abcdef", Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"orders","id":"0123456789abcdef","partitions":3,"retention_ms":0,"visibility_timeout_ms":0,` +
		`"max_in_flight_per_partition":0,"max_acked_ahead_per_partition":0,"created_at":0}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
}

// spec/http-api section 7.3.
func TestPartitionStatsJSON(t *testing.T) {
	b, err := json.Marshal(PartitionStats{Index: 1, OwnerNode: "n1", Status: "ok"})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"index":1,"segments":0,"oldest_offset":0,"next_offset":0,"high_watermark":0,"size_bytes":0,` +
		`"owner_node":"n1","status":"ok"}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
}

func TestOwnerOf(t *testing.T) {
	v := &TopicView{Owners: []string{"a", "", "c"}}
	for p, want := range map[int]string{-1: "", 0: "a", 1: "", 2: "c", 3: ""} {
		if got := v.OwnerOf(p); got != want {
			t.Errorf("owner of %d is %q, want %q", p, got, want)
		}
	}
	if got := (PartitionKey{"orders", 7}).String(); got != "orders/7" {
		t.Errorf("key reads %q", got)
	}
}

// The largest retention is the largest that does not overflow a time.Duration.
func TestRetentionFitsADuration(t *testing.T) {
	if d := time.Duration(RetentionMSMax) * time.Millisecond; d <= 0 || d.Milliseconds() != RetentionMSMax {
		t.Errorf("%d ms is %s", RetentionMSMax, d)
	}
	if past := RetentionMSMax + 1; time.Duration(past)*time.Millisecond > 0 {
		t.Error("the bound is not tight")
	}
}
