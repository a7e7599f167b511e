package metastore

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/narad-mq/narad/internal/model"
)

// allCommands holds one command of every type, indexed by its number.
func allCommands() map[EntryType]Command {
	yes, hour, caps, four := "bob", int64(3_600_000), 7, 4
	out := map[EntryType]Command{}
	for _, c := range []Command{
		CreateTopic{Topic: model.Topic{Name: "t", ID: "00112233aabbccdd", Partitions: 3}, Owners: []string{"a", "b", "a"}},
		UpdateTopic{Name: "t", ID: "00112233aabbccdd", RetentionMS: &hour, MaxInFlight: &caps, MaxAckedAhead: &caps, Owner: &yes, Partitions: &four, PartitionsFrom: 3, Owners: []string{"a"}},
		DeleteTopic{Name: "t", ID: "00112233aabbccdd"},
		PutSchema{Topic: "t", Version: 1, Schema: []byte(`{"type":"object"}`)},
		DropSchemas{Topic: "t"},
		AttachChild{Parent: "t", Child: "c", Epoch: "0011223344556677", DelayMS: 5, Offsets: []int64{0, 1, 2}},
		DetachChild{Parent: "t", Child: "c"},
		AssignPartition{Topic: "t", Partition: 1, Owner: "b"},
		SetTarget{Topic: "t", Partition: 1, Target: "c"},
		ClearTarget{Topic: "t", Partition: 1, Target: "c"},
		FlipPartition{Topic: "t", Partition: 1, Target: "c"},
		RegisterMember{ID: "a", Addr: "h:7942", RaftAddr: "h:7943", At: 17, Build: "v1", EntryTypes: 22},
		MarkDead{ID: "a"}, MarkDraining{ID: "a"}, CancelDraining{ID: "a"}, RemoveMember{ID: "a"}, ReadmitMember{ID: "a"},
		CreateUser{Username: "u", PasswordHash: "h", Grants: []model.Grant{{Action: "produce", Patterns: []string{"a-*"}}}, At: 1},
		SetPassword{Username: "u", PasswordHash: "h2", At: 2},
		SetGrants{Username: "u", Grants: []model.Grant{{Action: "admin"}}, At: 3},
		DeleteUser{Username: "u"},
		PlacePartitions{Topic: "t", ID: "00112233aabbccdd", First: 1, Owners: []string{"a", "b"}},
		CreateLinkedTopic{
			Topic: model.Topic{Name: "t", ID: "00112233aabbccdd", Partitions: 3}, Owners: []string{"a"}, Schema: []byte(`{"type":"object"}`),
			Parent: &ParentLink{Name: "p", ID: "00112233aabbccee", Epoch: "0011223344556677", DelayMS: 5, Offsets: []int64{0, 1, 2}},
		},
		AlterTopic{Name: "t", ID: "00112233aabbccdd", RetentionMS: &hour, MaxInFlight: &caps, MaxAckedAhead: &caps, Partitions: &four, PartitionsFrom: 3, Owners: []string{"a"}},
		RemoveTopic{Name: "t", ID: "00112233aabbccdd"},
		PutSchemaVersion{Topic: "t", ID: "00112233aabbccdd", Version: 1, Schema: []byte(`{"type":"object"}`)},
		LinkChild{Parent: "p", ParentID: "00112233aabbccee", Child: "t", ChildID: "00112233aabbccdd", Epoch: "0011223344556677", DelayMS: 5, Offsets: []int64{0, 1, 2}},
		UnlinkChild{Parent: "p", ParentID: "00112233aabbccee", Child: "t", ChildID: "00112233aabbccdd"},
		InsertPlacement{Topic: "t", ID: "00112233aabbccdd", First: 1, Owners: []string{"a", "b"}},
		PrunePlacement{Topic: "t", Partition: 7},
		MarkSilent{ID: "a", HeartbeatAt: 17},
		RemoveUser{Username: "u"},
		AttachRemote{
			Parent: "p", ParentID: "00112233aabbccee", Child: "r", ChildID: "00112233aabbccdd", RemoteID: remoteID, Epoch: "0011223344556677",
			Remote:  model.RemoteChild{Name: "dr", Topic: "t", TargetID: "00112233aabbccff", From: "now", Lanes: 4, CreatedBy: "admin"},
			DelayMS: 5, Offsets: []int64{0, 1, 2}, At: 17,
		},
		ChangeRemoteChild{Parent: "p", Child: "r", Epoch: "0011223344556677", Skip: &SkipMark{Partition: 2, Offset: 9}},
		CreateRemote{Remote: remoteNamed("dr"), Salt: salt(1)},
		ChangeRemote{Name: "dr", ID: remoteID, Revision: 3, URL: &yes, Username: &yes, CAPEM: &yes, Limits: &model.RemoteLimits{MaxInFlight: 3}, Credential: credential("k2")},
		DeleteRemote{Name: "dr", ID: remoteID, Force: true},
	} {
		out[c.Type()] = c
	}
	return out
}

func TestEveryTypeIsRegisteredAndSurvivesTheWire(t *testing.T) {
	commands := allCommands()
	if len(commands) != int(NewestType) {
		t.Fatalf("%d commands for %d types", len(commands), NewestType)
	}
	names := map[string]bool{}
	for n := EntryType(1); n <= NewestType; n++ {
		c := commands[n]
		b, err := encodeEntry(c)
		must(t, err)
		if b[0] != byte(n) {
			t.Errorf("%s is logged as %d", n, b[0])
		}
		got, err := decodeEntry(b, NewestType)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s came back as %+v, %v; want %+v", n, got, err, c)
		}
		if names[n.String()] {
			t.Errorf("two types are named %q", n)
		}
		names[n.String()] = true
	}
	if EntryType(0).Known() || (NewestType + 1).Known() || EntryType(200).String() != "entry type 200" {
		t.Error("unknown types pass for known")
	}
}

// The bytes in old logs: they must decode for ever.
func TestEntryGoldenVectors(t *testing.T) {
	for _, c := range []struct{ wire, typ string }{
		{"\x03" + `{"name":"t","id":"00112233aabbccdd"}`, "delete topic"},
		{"\x0c" + `{"id":"a","addr":"h:7942","raft_addr":"h:7943","at":17,"build":"v1","entry_types":22}`, "register member"},
		{"\x16" + `{"topic":"t","id":"00112233aabbccdd","first":1,"owners":["a","b"]}`, "place partitions"},
		{"\x17" + `{"topic":{"name":"t","id":"00112233aabbccdd","partitions":3,"retention_ms":0,"visibility_timeout_ms":0,"max_in_flight_per_partition":0,"max_acked_ahead_per_partition":0,"created_at":0},"owners":["a"],"schema":{"type":"object"},"parent":{"name":"p","id":"00112233aabbccee","epoch":"0011223344556677","delay_ms":5,"offsets":[0,1,2]}}`, "create topic with schema and link"},
		{"\x1a" + `{"topic":"t","id":"00112233aabbccdd","version":1,"schema":{"type":"object"}}`, "compare-and-set schema version"},
		{"\x1f" + `{"id":"a","heartbeat_at":17}`, "dead mark from an observed heartbeat"},
		{"\x22" + `{"parent":"p","child":"r","epoch":"0011223344556677","skip":{"partition":2,"offset":9}}`, "remote child state change"},
		{"\x25" + `{"name":"dr","id":"00000000000000ee","force":true}`, "remote delete"},
		{"\x20" + `{"username":"u"}`, "user delete that releases its topics"},
		{"\x04" + `{"topic":"t","version":1,"schema":{"type":"object"}}`, "put schema version"},
	} {
		got, err := decodeEntry([]byte(c.wire), NewestType)
		if err != nil || got.Type().String() != c.typ {
			t.Errorf("%q: %v, %v", c.wire, got, err)
			continue
		}
		if !reflect.DeepEqual(got, allCommands()[got.Type()]) {
			t.Errorf("%q decoded to %+v", c.wire, got)
		}
		b, err := encodeEntry(got)
		if err != nil || string(b) != c.wire {
			t.Errorf("encodes as %q, want %q", b, c.wire)
		}
	}
}

func TestDecodeEntryRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, errUndecodable},
		{"type zero", []byte{0, '{', '}'}, errUndecodable},
		{"no payload", []byte{1}, errUndecodable},
		{"not JSON", []byte("\x01{"), errUndecodable},
		{"wrong kind", []byte("\x03[1]"), errUndecodable},
		{"too large", append([]byte{3}, bytes.Repeat([]byte(" "), EntryBytesMax)...), errUndecodable},
		{"newer type", []byte{byte(NewestType) + 1, '{', '}'}, errUnknownType},
	} {
		if _, err := decodeEntry(c.b, NewestType); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestEntryAtTheBound(t *testing.T) {
	doc := func(n int) PutSchema {
		return PutSchema{Topic: "t", Version: 1, Schema: []byte(`"` + strings.Repeat("x", n) + `"`)}
	}
	b, err := encodeEntry(doc(0))
	must(t, err)
	room := EntryBytesMax - len(b)
	b, err = encodeEntry(doc(room))
	must(t, err)
	if len(b) != EntryBytesMax {
		t.Fatalf("%d bytes at the bound", len(b))
	}
	if _, err := decodeEntry(b, NewestType); err != nil {
		t.Error(err)
	}
	if _, err := encodeEntry(doc(room + 1)); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("past the bound: %v", err)
	}
}

func TestFSMMetaGoldenVector(t *testing.T) {
	m := fsmMeta{newest: 22, index: 0x0102030405060708, txid: 42, rows: 0x3_89abcdef}
	const want = "02160102030405060708000000000000002a0000000389abcdef"
	b := m.encode()
	if got := hex.EncodeToString(b[:26]); got != want || len(b) != fsmMetaSize {
		t.Fatalf("encodes as %s (%d bytes), want %s", got, len(b), want)
	}
	if got := hex.EncodeToString(b[26:]); got != "e3a89c4d" {
		t.Errorf("checksum %s", got)
	}
	if got, err := decodeFSMMeta(b); err != nil || got != m {
		t.Errorf("came back as %+v, %v", got, err)
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 0x10
		if _, err := decodeFSMMeta(bad); !errors.Is(err, model.ErrCorrupt) {
			t.Errorf("byte %d flipped: %v", i, err)
		}
	}
	for _, n := range []int{0, fsmMetaSize - 1, fsmMetaSize + 1} {
		if _, err := decodeFSMMeta(make([]byte, n)); !errors.Is(err, model.ErrCorrupt) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestNumberedKeys(t *testing.T) {
	if !bytes.Equal(numbered("ab", 258), []byte("ab\x00\x00\x00\x01\x02")) {
		t.Errorf("%q", numbered("ab", 258))
	}
	topic, n, ok := splitNumbered(numbered("ab", 258))
	if !ok || string(topic) != "ab" || n != 258 {
		t.Errorf("%q %d %t", topic, n, ok)
	}
	for _, bad := range []string{"", "ab", "\x00\x00\x00\x00\x01", "abcdefg"} {
		if _, _, ok := splitNumbered([]byte(bad)); ok {
			t.Errorf("%q passes for a numbered key", bad)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	for _, c := range allCommands() {
		b, err := encodeEntry(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0xff, '{', '}'})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeEntry(b, NewestType)
		if err != nil {
			if !errors.Is(err, errUndecodable) && !errors.Is(err, errUnknownType) {
				t.Fatalf("%q: %v", b, err)
			}
			return
		}
		if byte(c.Type()) != b[0] {
			t.Fatalf("type %d decoded as %s", b[0], c.Type())
		}
	})
}

// Whatever decodes also applies or is refused: no bytes of a log stop the node or
// take it down.
func FuzzApply(f *testing.F) {
	for _, c := range allCommands() {
		b, err := encodeEntry(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("\x01" + `{"topic":{"name":"a\u0000b","id":"00112233aabbccdd","partitions":3}}`))
	f.Add([]byte("\x0c" + `{"id":""}`))
	m := newMachine(f, f.TempDir())
	m.ok(create("t"), create("c"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeEntry(b, NewestType)
		if err != nil {
			return
		}
		l := &raft.Log{Index: m.next, Type: raft.LogCommand, Data: b}
		m.next++
		if err := m.Apply(l).(outcome).err; errors.Is(err, ErrStopped) {
			t.Fatalf("%q (%s) stopped the node: %v", b, c.Type(), m.stopErr())
		}
	})
}

func FuzzFSMMeta(f *testing.F) {
	f.Add(fsmMeta{newest: 22, index: 1, txid: 2}.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeFSMMeta(b)
		if err == nil && !bytes.Equal(m.encode(), b) {
			t.Fatalf("%x decodes to %+v, which encodes as %x", b, m, m.encode())
		}
	})
}
