package peer

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// message is a message with its bytes: how it is written, and what reading them answers.
type message struct {
	name   string
	encode func(e *noderpc.Encoder) error
	decode func(d *noderpc.Decoder) (any, error)
	want   any    // of decode
	golden string // hex; spaces are for the reader
}

// str is a string on the wire, in hex.
func str(s string) string { return fmt.Sprintf("%08x%x", len(s), s) }

func messages() []message { return append(dataMessages(), controlMessages()...) }

func dataMessages() []message {
	records := []model.Record{
		{Key: []byte("k"), Payload: []byte("one"), AcceptedAt: 1_700_000_000_001, Incarnation: life1},
		{Payload: []byte{}, AcceptedAt: 2, Incarnation: life1},
		{Key: []byte{}, Payload: []byte{0xff}, AcceptedAt: -1, Incarnation: ""},
	}
	byName := []model.Record{{Key: []byte("k"), Payload: []byte("one"), AcceptedAt: 3}}
	commit := func(recs []model.Record) commitRequest {
		return commitRequest{topic: "orders", partition: 7, recs: recs}
	}
	consume := func(r ConsumeRequest, offset int64) consumeMessage { return consumeMessage{r, offset} }
	return []message{
		commitMessage("commit", commit(records),
			str("orders")+"00000007"+"00000003"+
				"01"+str("k")+"0000018bcfe56801"+str("one")+
				"00"+"0000000000000002"+"00000000"+
				"01"+"00000000"+"ffffffffffffffff"+"00000001ff"+
				"00000002"+"00000002"+str(string(life1))+"00000001"+"00000000"),
		commitMessage("commit by name", commit(byName),
			str("orders")+"00000007"+"00000001"+"01"+str("k")+"0000000000000003"+str("one")),
		consumeMessageOf("consume", consume(ConsumeRequest{Topic: "t", Partition: -1, Max: 1, Wait: 1500 * time.Millisecond}, -1),
			str("t")+"ffffffff"+"ffffffffffffffff"+"000005dc"),
		consumeMessageOf("consume of many", consume(ConsumeRequest{Topic: "t", Partition: 2, Max: 100}, -1),
			str("t")+"00000002"+"ffffffffffffffff"+"00000000"+"00"+"00000064"),
		consumeMessageOf("claim", consume(ConsumeRequest{Topic: "t", Partition: -1, Max: 1, Claim: true, Claimer: "narad-1"}, -1),
			str("t")+"ffffffff"+"ffffffffffffffff"+"00000000"+"01"+"00000001"+str("narad-1")),
		consumeMessageOf("replay", consume(ConsumeRequest{Topic: "t", Partition: 2, Max: 1}, 9),
			str("t")+"00000002"+"0000000000000009"+"00000000"),
		{
			name:   "deliveries",
			encode: func(e *noderpc.Encoder) error { appendDeliveries(e, deliveries()); return nil },
			decode: func(d *noderpc.Decoder) (any, error) { return decodeDeliveries(d, "t") },
			want:   deliveries(),
			golden: "00000002" +
				"00000003" + "0000000000000011" + "0000000000000005" + "0000000000000007" + "00000001" + "01" + str("k") + str("v") +
				"00000000" + "0000000000000000" + "0000000000000000" + "0000000000000000" + "00000000" + "00" + "00000000",
		},
		{
			name: "settle",
			encode: func(e *noderpc.Encoder) error {
				s := settlement{model.Extend, "t", model.Handle{Partition: 1, Offset: 2, Nonce: 3}}
				s.appendTarget(e)
				return nil
			},
			decode: func(d *noderpc.Decoder) (any, error) { return decodeSettle(d, model.Extend) },
			want:   settlement{model.Extend, "t", model.Handle{Partition: 1, Offset: 2, Nonce: 3}},
			golden: str("t") + str("1:2:3"),
		},
		{
			name: "ack batch",
			encode: func(e *noderpc.Encoder) error {
				appendSettlements(e, []settlement{
					{model.Ack, "t", model.Handle{Partition: 1, Offset: 2, Nonce: 3}},
					{model.Extend, "u", model.Handle{Nonce: 1}}, {model.Nack, "t", model.Handle{Nonce: 1}},
				})
				return nil
			},
			decode: func(d *noderpc.Decoder) (any, error) { return decodeSettlements(d) },
			want: []entry{
				{settlement{model.Ack, "t", model.Handle{Partition: 1, Offset: 2, Nonce: 3}}, nil},
				{settlement{model.Extend, "u", model.Handle{Nonce: 1}}, nil}, {settlement{model.Nack, "t", model.Handle{Nonce: 1}}, nil},
			},
			golden: "00000003" + "01" + str("t") + str("1:2:3") + "02" + str("u") + str("0:0:1") + "03" + str("t") + str("0:0:1"),
		},
		{
			name:   "results",
			encode: func(e *noderpc.Encoder) error { appendResults(e, []error{nil, model.ErrNoLease}); return nil },
			decode: func(d *noderpc.Decoder) (any, error) {
				errs, err := decodeResults(d, 2)
				if err != nil || errs[0] != nil {
					return errs, err
				}
				return errs[1].Error(), nil
			},
			want:   model.ErrNoLease.Error(),
			golden: "00000002" + "00cc" + "00000000" + "019a" + str(model.ErrNoLease.Error()),
		},
	}
}

func controlMessages() []message {
	return []message{
		{
			name:   "stats",
			encode: func(e *noderpc.Encoder) error { return (&statsRequest{topic: "t", partition: -1}).encode(e) },
			decode: func(d *noderpc.Decoder) (any, error) { return decodeStats(d, model.LevelNewest) },
			want:   statsRequest{topic: "t", partition: -1},
			golden: str("t") + "ffffffff",
		},
		{
			name:   "tail",
			encode: func(e *noderpc.Encoder) error { return (&statsRequest{"t", 4, life1}).encode(e) },
			decode: func(d *noderpc.Decoder) (any, error) { return decodeStats(d, model.LevelNewest) },
			want:   statsRequest{"t", 4, life1},
			golden: str("t") + "00000004" + str(string(life1)),
		},
		{
			name:   "cursors",
			encode: func(e *noderpc.Encoder) error { (&cursorsRequest{"p", "c"}).encode(e); return nil },
			decode: func(d *noderpc.Decoder) (any, error) { return decodeCursors(d) },
			want:   cursorsRequest{"p", "c"},
			golden: str("p") + str("c"),
		},
		{
			name: "tokens",
			encode: func(e *noderpc.Encoder) error {
				m := tokensMessage{"narad-1", "10.0.0.1:7942", []Token{{"t", 250 * time.Millisecond, false}, {"u", 0, true}}}
				m.encode(e)
				return nil
			},
			decode: func(d *noderpc.Decoder) (any, error) { return decodeTokens(d) },
			want:   tokensMessage{"narad-1", "10.0.0.1:7942", []Token{{"t", 250 * time.Millisecond, false}, {"u", 0, true}}},
			golden: str("narad-1") + str("10.0.0.1:7942") + "00000002" + str("t") + "000000fa" + "00" + str("u") + "00000000" + "01",
		},
		{
			name:   "notify",
			encode: func(e *noderpc.Encoder) error { (&notifyMessage{"t", "narad-0"}).encode(e); return nil },
			decode: func(d *noderpc.Decoder) (any, error) { return decodeNotify(d) },
			want:   notifyMessage{"t", "narad-0"},
			golden: str("t") + str("narad-0"),
		},
		{
			name: "heartbeat",
			encode: func(e *noderpc.Encoder) error {
				(&MemberReport{"n", "a:1", "a:2", "3.2.0", 37}).encode(e)
				return nil
			},
			decode: func(d *noderpc.Decoder) (any, error) { return decodeReport(d, model.LevelNewest) },
			want:   MemberReport{"n", "a:1", "a:2", "3.2.0", 37},
			golden: str("n") + str("a:1") + str("a:2") + str("3.2.0") + "00000025",
		},
		{
			name:   "join",
			encode: func(e *noderpc.Encoder) error { (&JoinRequest{"n", "a:2", true, 37}).encode(e); return nil },
			decode: func(d *noderpc.Decoder) (any, error) { return decodeJoin(d, model.LevelNewest) },
			want:   JoinRequest{"n", "a:2", true, 37},
			golden: str("n") + str("a:2") + "01" + "00000025",
		},
		changeMessage("create topic", hasJSON, Change{Caller: "bob", JSON: []byte("{}")}, str("{}")+str("bob")),
		changeMessage("alter topic", hasTopic|hasJSON, Change{Topic: "t", Caller: "bob", JSON: []byte("{}")}, str("t")+str("{}")+str("bob")),
		changeMessage("detach", hasTopic|hasChild, Change{Topic: "p", Child: "c"}, str("p")+str("c")+str("")),
		changeMessage("delete user", hasJSON|hasName, Change{Topic: "eve", Caller: "bob", JSON: []byte{}}, str("")+str("bob")+str("eve")),
		{
			name:   "forget",
			encode: func(e *noderpc.Encoder) error { (&forgetRequest{"n", "bob"}).encode(e); return nil },
			decode: func(d *noderpc.Decoder) (any, error) { return decodeForget(d) },
			want:   forgetRequest{"n", "bob"},
			golden: str("n") + str("bob"),
		},
	}
}

func commitMessage(name string, r commitRequest, golden string) message {
	return message{
		name: name, golden: golden, want: r,
		encode: func(e *noderpc.Encoder) error { _, err := r.encode(e); return err },
		decode: func(d *noderpc.Decoder) (any, error) { return decodeCommit(d, model.LevelNewest) },
	}
}

func consumeMessageOf(name string, m consumeMessage, golden string) message {
	return message{
		name: name, golden: golden, want: m,
		encode: func(e *noderpc.Encoder) error { _, err := m.encode(e); return err },
		decode: func(d *noderpc.Decoder) (any, error) { return decodeConsume(d, model.LevelNewest) },
	}
}

func changeMessage(name string, has fields, ch Change, golden string) message {
	return message{
		name: name, golden: golden, want: ch,
		encode: func(e *noderpc.Encoder) error { return ch.encode(e, has) },
		decode: func(d *noderpc.Decoder) (any, error) { return decodeChange(d, has) },
	}
}

func deliveries() []model.Delivery {
	return []model.Delivery{
		{Message: model.Message{Topic: "t", Partition: 3, Offset: 17, Key: []byte("k"), Payload: []byte("v"), CommittedAt: 5},
			Handle: model.Handle{Partition: 3, Offset: 17, Nonce: 7}, Count: 1},
		{Message: model.Message{Topic: "t", Payload: []byte{}}},
	}
}

// The bytes of every message are fixed, and say what was written.
func TestGoldenMessages(t *testing.T) {
	for _, m := range messages() {
		t.Run(m.name, func(t *testing.T) {
			var e noderpc.Encoder
			if err := m.encode(&e); err != nil {
				t.Fatal(err)
			}
			if hexOf(e) != m.golden {
				t.Errorf("written as\n%x, want\n%s", []byte(e), m.golden)
			}
			raw, err := hex.DecodeString(m.golden)
			if err != nil {
				t.Fatal(err)
			}
			got, err := m.decode(noderpc.NewDecoder(raw))
			if err != nil || !reflect.DeepEqual(got, m.want) {
				t.Errorf("read as %+v, %v, want %+v", got, err, m.want)
			}
		})
	}
}

// answers are read past what they know; requests are not.
func isAnswer(name string) bool { return name == "deliveries" || name == "results" }

// Every proper beginning of a message is refused or is an older shape of it, and bytes
// behind a request are trailing data, whatever stands before them.
func TestCutAndTrailingMessages(t *testing.T) {
	for _, m := range messages() {
		t.Run(m.name, func(t *testing.T) {
			raw, _ := hex.DecodeString(m.golden)
			cuts := 0
			for n := range raw {
				got, err := m.decode(noderpc.NewDecoder(raw[:n]))
				switch {
				case err == nil && reflect.DeepEqual(got, m.want):
					t.Errorf("%d of %d bytes read as the whole", n, len(raw))
				case err == nil:
					cuts++
				case !errors.Is(err, noderpc.ErrTruncated) && !errors.Is(err, model.ErrInvalid):
					t.Errorf("%d of %d bytes: %v", n, len(raw), err)
				}
			}
			if cuts > 3 {
				t.Errorf("%d beginnings are read as older shapes", cuts)
			}
			if isAnswer(m.name) {
				if got, err := m.decode(noderpc.NewDecoder(append(raw, 1, 2, 3))); err != nil || !reflect.DeepEqual(got, m.want) {
					t.Errorf("with more behind: %+v, %v", got, err)
				}
			}
		})
	}
}

// Trailing data is told before anything else is looked at: the sender then sends less.
func TestTrailingDataComesFirst(t *testing.T) {
	var e noderpc.Encoder
	e.AppendStr("")    // no topic
	e.AppendI32(-7)    // no partition
	e.AppendU32(0)     // no records
	e.AppendU32(0)     // no runs
	e.AppendStr("new") // field
	if _, err := decodeCommit(noderpc.NewDecoder(e), model.LevelNewest); !errors.Is(err, noderpc.ErrTrailing) {
		t.Errorf("commit: %v", err)
	}
	if r := refuse(noderpc.OpCommitProduceBatch, fmt.Errorf("x: %w", noderpc.ErrTrailing)); r.Status != 400 || !strings.Contains(r.Text, "trailing data") {
		t.Errorf("refused with %d %s", r.Status, r.Text)
	}
	for name, m := range map[string]string{"settle": "\x00\x00\x00\x00\x00\x00\x00\x00!", "join": "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00!"} {
		d := noderpc.NewDecoder([]byte(m))
		var err error
		if name == "settle" {
			_, err = decodeSettle(d, model.Ack)
		} else {
			_, err = decodeJoin(d, model.LevelNewest)
		}
		if !errors.Is(err, noderpc.ErrTrailing) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Values past a bound are refused, those at it are not.
func TestBounds(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	rec := []model.Record{{Payload: []byte("p")}}
	type bound struct {
		name    string
		m       message
		refused bool
	}
	batch := func(n int) message {
		return message{
			encode: func(e *noderpc.Encoder) error {
				appendSettlements(e, make([]settlement, n))
				return nil
			},
			decode: func(d *noderpc.Decoder) (any, error) { return decodeSettlements(d) },
		}
	}
	tokens := func(n int) message {
		return message{
			encode: func(e *noderpc.Encoder) error {
				m := tokensMessage{"n", "a:1", make([]Token, n)}
				for i := range m.tokens {
					m.tokens[i].Topic = "t"
				}
				m.encode(e)
				return nil
			},
			decode: func(d *noderpc.Decoder) (any, error) { return decodeTokens(d) },
		}
	}
	answer := func(n int) message {
		return message{
			encode: func(e *noderpc.Encoder) error {
				e.AppendU32(uint32(n))
				*e = append(*e, make([]byte, n*deliveryBytesMin)...)
				return nil
			},
			decode: func(d *noderpc.Decoder) (any, error) { return decodeDeliveries(d, "t") },
		}
	}
	join := func(j JoinRequest) message {
		return message{
			encode: func(e *noderpc.Encoder) error { j.encode(e); return nil },
			decode: func(d *noderpc.Decoder) (any, error) { return decodeJoin(d, model.LevelNewest) },
		}
	}
	for _, b := range []bound{
		{"topic of 255 bytes", commitMessage("", commitRequest{long(255), 0, rec}, ""), false},
		{"topic of 256 bytes", commitMessage("", commitRequest{long(256), 0, rec}, ""), true},
		{"no topic", commitMessage("", commitRequest{"", 0, rec}, ""), true},
		{"no records", commitMessage("", commitRequest{"t", 0, nil}, ""), true},
		{"any partition", commitMessage("", commitRequest{"t", -1, rec}, ""), true},
		{"65536 records", commitMessage("", commitRequest{"t", 0, make([]model.Record, commitRecordsMax)}, ""), false},
		{"65537 records", commitMessage("", commitRequest{"t", 0, make([]model.Record, commitRecordsMax+1)}, ""), true},
		{"100 messages", consumeMessageOf("", consumeMessage{ConsumeRequest{Topic: "t", Max: 100}, -1}, ""), false},
		{"101 messages", consumeMessageOf("", consumeMessage{ConsumeRequest{Topic: "t", Max: 101}, -1}, ""), true},
		{"longest wait", consumeMessageOf("", consumeMessage{ConsumeRequest{Topic: "t", Max: 1, Wait: MaxWait}, -1}, ""), false},
		{"replay of no partition", consumeMessageOf("", consumeMessage{ConsumeRequest{Topic: "t", Partition: -1, Max: 1}, 0}, ""), true},
		{"partition -2", message{
			encode: func(e *noderpc.Encoder) error {
				e.AppendStr("t")
				e.AppendI32(-2)
				e.AppendI64(-1)
				e.AppendU32(0)
				return nil
			},
			decode: func(d *noderpc.Decoder) (any, error) { return decodeConsume(d, model.LevelNewest) },
		}, true},
		{"100 settlements", batch(100), false},
		{"101 settlements", batch(101), true},
		{"1024 tokens", tokens(tokensMax), false},
		{"1025 tokens", tokens(tokensMax + 1), true},
		{"100 deliveries", answer(100), false},
		{"101 deliveries", answer(101), true},
		{"entry type 255", join(JoinRequest{"n", "a:1", false, 255}), false},
		{"entry type 256", join(JoinRequest{"n", "a:1", false, 256}), true},
		{"no id", join(JoinRequest{"", "a:1", false, 0}), true},
		{"no port", join(JoinRequest{"n", "a", false, 0}), true},
		{"port 0", join(JoinRequest{"n", "a:0", false, 0}), true},
		{"address of 261 bytes", join(JoinRequest{"n", long(259) + ":1", false, 0}), false},
		{"address of 262 bytes", join(JoinRequest{"n", long(260) + ":1", false, 0}), true},
		{"change of 2 MiB", changeMessage("", hasJSON, Change{JSON: make([]byte, changeBytesMax)}, ""), false},
		{"larger change", changeMessage("", hasJSON, Change{JSON: make([]byte, changeBytesMax+1)}, ""), true},
		{"caller of 1 KiB", changeMessage("", hasJSON, Change{Caller: long(callerBytesMax)}, ""), false},
		{"longer caller", changeMessage("", hasJSON, Change{Caller: long(callerBytesMax + 1)}, ""), true},
	} {
		t.Run(b.name, func(t *testing.T) {
			var e noderpc.Encoder
			if err := b.m.encode(&e); err != nil {
				t.Fatal(err)
			}
			if _, err := b.m.decode(noderpc.NewDecoder(e)); (err != nil) != b.refused {
				t.Errorf("decoded with %v", err)
			}
		})
	}
}

// Runs must name every record once.
func TestRunsOfIncarnations(t *testing.T) {
	for name, runs := range map[string][]uint32{"too few": {1}, "too many": {2, 2}, "empty": {0, 3}, "huge": {1 << 31, 3}, "none": {}} {
		r := commitRequest{"t", 0, make([]model.Record, 3)}
		var e noderpc.Encoder
		if _, err := r.encode(&e); err != nil {
			t.Fatal(err)
		}
		e.AppendU32(uint32(len(runs)))
		for _, n := range runs {
			e.AppendU32(n)
			e.AppendStr(string(life1))
		}
		if _, err := decodeCommit(noderpc.NewDecoder(e), model.LevelNewest); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var e noderpc.Encoder
	r := commitRequest{"t", 0, make([]model.Record, 1)}
	_, _ = r.encode(&e)
	e.AppendU32(1)
	e.AppendU32(1)
	e.AppendStr("0123456789ABCDEF")
	if _, err := decodeCommit(noderpc.NewDecoder(e), model.LevelNewest); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("an id that is none: %v", err)
	}
}

// A reply carries what fits 8 MiB, and one record whatever its size.
func TestReplyBytesMax(t *testing.T) {
	of := func(sizes ...int) (ds []model.Delivery) {
		for _, n := range sizes {
			ds = append(ds, model.Delivery{Message: model.Message{Payload: make([]byte, n)}})
		}
		return ds
	}
	over := deliveryBytesMin + lengthBytes
	half := replyBytesMax/2 - over
	for _, c := range []struct {
		sizes []int
		want  int
	}{{[]int{half, half}, 2}, {[]int{half, half + 1}, 1}, {[]int{replyBytesMax + 1, 1}, 1}, {[]int{1, replyBytesMax}, 1}} {
		res, n := deliver(of(c.sizes...))
		if n != c.want {
			t.Errorf("%v: %d carried, want %d", c.sizes, n, c.want)
		}
		if c.want > 1 && len(res.Body) > replyBytesMax+lengthBytes {
			t.Errorf("%v: %d bytes", c.sizes, len(res.Body))
		}
		if got, err := decodeDeliveries(noderpc.NewDecoder(res.Body), "t"); err != nil || len(got) != n {
			t.Errorf("%v: read as %d, %v", c.sizes, len(got), err)
		}
	}
}

// CommitSize is what a record takes at most.
func TestCommitSizeIsAnUpperBound(t *testing.T) {
	recs := []model.Record{
		{Key: []byte("key"), Payload: []byte("payload"), Incarnation: life1},
		{Key: []byte{}, Payload: bytes.Repeat([]byte("x"), 1000), Incarnation: life2},
		{Payload: nil},
	}
	for n := 1; n <= len(recs); n++ {
		r := commitRequest{"", 0, recs[:n]}
		var e noderpc.Encoder
		if _, err := r.encode(&e); err != nil {
			t.Fatal(err)
		}
		fixed := 4 + 4 + 4 + 4 // topic, partition, two counts
		if size := commitSize(recs[:n]); len(e) > size+fixed {
			t.Errorf("%d records: %d bytes, CommitSize says %d", n, len(e), size)
		}
	}
}
