package crash

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
	"github.com/narad-mq/narad/tests/ledger"
)

// Layout of a frame (internal/commitlog/DESIGN.md).
const (
	frameHeader = 27
	pageBytes   = 4096
)

// frame is one frame of a segment file.
type frame struct {
	pos, end  int   // bytes of the file
	base, top int64 // offsets
}

// framesOf walks an undamaged segment.
func framesOf(t *testing.T, b []byte) (out []frame) {
	t.Helper()
	for pos := 0; pos < len(b); {
		if b[pos] != 0xCA || b[pos+1] != 0xFE {
			t.Fatalf("no frame at position %d of %d", pos, len(b))
		}
		base := int64(binary.BigEndian.Uint64(b[pos+7:]))
		f := frame{pos: pos, base: base, top: base + int64(binary.BigEndian.Uint32(b[pos+3:]))}
		pos += frameHeader + int(binary.BigEndian.Uint32(b[pos+19:]))
		f.end = pos
		out = append(out, f)
	}
	return out
}

// stock is a node's data directory at rest: partition 0 of its topic holds messages
// whose sizes follow from their offsets, nothing of it was consumed, and the node was
// stopped in good order. Tests damage copies of it.
type stock struct {
	t        *testing.T
	dir      string
	payloads [][]byte // by offset
}

const (
	stockTopic = "stock"
	sealSize   = 64 << 20 // a file longer than this is sealed: nobody writes to it
)

// newStock fills the partition: every record gets a frame of its own, in the segment
// that its offset alone decides.
func newStock(t *testing.T, records int64, size func(offset int64) int) *stock {
	l := newLoad(t, t.TempDir())
	l.topic = stockTopic
	l.boot()
	l.create(client.CreateTopic{VisibilityTimeoutMS: (10 * time.Minute).Milliseconds()})
	s := &stock{t: t, dir: l.node.Dir}
	for o := range records {
		s.payloads = append(s.payloads, ledger.Payload(fmt.Sprintf("m-%d", o), size(o)))
		if err := l.client().Produce(t.Context(), l.topic, client.Message{Payload: s.payloads[o], Pin: client.Partition(0)}); err != nil {
			t.Fatal(err)
		}
		l.waitVisible(0, o+1)
	}
	if code := l.node.Stop(); code != 0 {
		t.Fatalf("stop: exit code %d", code)
	}
	return s
}

func (s *stock) records() int64 { return int64(len(s.payloads)) }

// segment is the path in dir of the partition's i-th segment, counting from the end
// when i is negative.
func (s *stock) segment(dir string, i int) string {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "topics", stockTopic, "p00000", "*.log"))
	if err != nil || len(found) == 0 {
		s.t.Fatalf("no segments: %v", err)
	}
	slices.Sort(found)
	return found[(i+len(found))%len(found)]
}

// copy makes a copy to damage. Sealed segments are shared with the original: damage
// puts a new file in their place.
func (s *stock) copy(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(s.dir, path)
		if err != nil || rel == "." {
			return err
		}
		name := filepath.Join(to, rel)
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.Mkdir(name, 0o700)
		case strings.HasSuffix(name, ".log") && info.Size() > sealSize:
			return os.Link(path, name)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(name, b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// damage changes a file's bytes. The file is replaced, for it may be shared.
func damage(t *testing.T, name string, change func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err == nil {
		err = errors.Join(os.WriteFile(name+".damaged", change(b), 0o600), os.Rename(name+".damaged", name))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lost is a range of offsets.
type lost struct{ from, to int64 }

func (l lost) has(o int64) bool { return o >= l.from && o < l.to }

// visit runs a node on a damaged copy and judges it.
type visit struct {
	*stock
	t    *testing.T
	node *testutil.Node
	lost lost
	body []byte // of the last answer
}

func (s *stock) visit(t *testing.T, dir string, gone lost) *visit {
	t.Helper()
	v := &visit{stock: s, t: t, node: testutil.NewNode(t, dir), lost: gone}
	v.node.Start()
	return v
}

// get asks the consume route and returns the answer as it is, until the next one: at a
// MiB a message decoding and copying would be most of the test.
func (v *visit) get(query string) (status int, body []byte) {
	v.t.Helper()
	resp, err := http.Get(v.node.URL + "/v1/topics/" + stockTopic + "/consume?partition=0" + query)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	n := max(0, int(resp.ContentLength))
	v.body = slices.Grow(v.body[:0], n)[:n]
	if _, err := io.ReadFull(resp.Body, v.body); err != nil {
		v.t.Fatal(err)
	}
	return resp.StatusCode, v.body
}

// holds reports whether the answer is the message of that offset, whole.
func (v *visit) holds(body []byte, o int64) bool {
	at := fmt.Appendf(nil, `"partition":0,"offset":%d,"payload":`, o)
	i := bytes.Index(body[:min(len(body), 200)], at)
	return i >= 0 && bytes.HasPrefix(body[i+len(at):], v.payloads[o])
}

// bigShare: of the big records away from the damage replay reads one in so many; the
// queue delivers them all.
const bigShare = 8

// replay checks offsets: what is lost answers 410 with the code, all else its own
// message (O2).
func (v *visit) replay(code string) {
	v.t.Helper()
	for o := range v.records() {
		edge := v.lost.has(o-1) || v.lost.has(o) || v.lost.has(o+1)
		if len(v.payloads[o]) > pageBytes && !edge && o%bigShare != 0 {
			continue
		}
		status, body := v.get(fmt.Sprintf("&offset=%d", o))
		switch {
		case v.lost.has(o) && (status != http.StatusGone || !bytes.Contains(body, []byte(code))):
			v.t.Errorf("replay of the damaged offset %d: %d %.100s, want 410 %s", o, status, body, code)
		case !v.lost.has(o) && (status != http.StatusOK || !v.holds(body, o)):
			v.t.Errorf("O2: replay of offset %d: %d %.100s, want its own message", o, status, body)
		}
	}
}

// consume takes everything: each offset that is not lost must come once, in order, as
// itself, and nothing else (O1 O2).
func (v *visit) consume() {
	v.t.Helper()
	for o := range v.records() {
		if v.lost.has(o) {
			continue
		}
		if status, body := v.get(""); status != http.StatusOK || !v.holds(body, o) {
			v.t.Fatalf("O1: consume: %d %.100s, want offset %d", status, body, o)
		}
	}
	if status, body := v.get(""); status != http.StatusNoContent {
		v.t.Errorf("O2: consume after the last message: %d %.100s, want 204", status, body)
	}
}

// reported checks that the consumers' skips were counted and logged by place.
func (v *visit) reported() {
	v.t.Helper()
	got, _ := v.node.Metric(fmt.Sprintf(`narad_consumer_corrupt_skipped_total{partition="0",topic=%q}`, stockTopic))
	if want := float64(v.lost.to - v.lost.from); got != want {
		v.t.Errorf("narad_consumer_corrupt_skipped_total is %v, want %v", got, want)
	}
	where := fmt.Sprintf(`"offset":%d,`, v.lost.from)
	if !v.node.Logged("skipped permanently-unreadable record", `"topic":"stock"`, `"partition":0`, where) {
		v.t.Errorf("no line names the damaged offset %d", v.lost.from)
	}
}

// takesMore checks that the partition goes on behind everything it ever showed (O5).
func (v *visit) takesMore() {
	v.t.Helper()
	c := v.node.Client()
	want := []byte(`"another one"`)
	if err := c.Produce(v.t.Context(), stockTopic, client.Message{Payload: want, Pin: client.Partition(0)}); err != nil {
		v.t.Fatal(err)
	}
	testutil.Eventually(v.t, patience, func() bool {
		status, body := v.get(fmt.Sprintf("&offset=%d", v.records()))
		return status == http.StatusOK && bytes.Contains(body, want)
	}, fmt.Sprintf("the next message to be stored at offset %d", v.records()))
}

// calm checks what no damage may cause, and ends the node.
func (v *visit) calm() {
	v.t.Helper()
	if v.node.Logged("panic") {
		v.t.Error("the log holds a panic")
	}
	if code := v.node.Stop(); code != 0 {
		v.t.Errorf("stop: exit code %d", code)
	}
}

// flip returns a change of one bit.
func flip(pos, bit int) func([]byte) []byte {
	return func(b []byte) []byte { b[pos] ^= 1 << bit; return b }
}

// regions are the parts of a frame, relative to its start; the record's own begin
// behind the header and its length.
var regions = map[string]struct{ pos, bit int }{
	"magic":                {0, 0},
	"codec":                {2, 0},
	"reserved_flags":       {2, 7},
	"record_count":         {6, 1},
	"record_count_huge":    {3, 6},
	"record_count_minus":   {3, 7},
	"base_offset":          {14, 0},
	"base_offset_huge":     {7, 6},
	"uncompressed":         {18, 2},
	"uncompressed_huge":    {15, 7},
	"compressed":           {22, 1},
	"compressed_huge":      {19, 6},
	"checksum":             {24, 3},
	"record_length":        {30, 0},
	"record_length_huge":   {27, 7},
	"envelope_version":     {31, 1},
	"key_length":           {32, 0},
	"commit_time":          {40, 5},
	"payload":              {60, 0},
	"last_byte_of_payload": {-1, 0},
}

// F20 F22 with O1 O2 O5 O9 O12: one bit flipped in each region of a frame in the middle
// of the newest segment. The record is never served, its offset is reported, its
// neighbours and the offsets to come are as they were.
func TestF20F22FlippedBitInEachRegion(t *testing.T) {
	s := newStock(t, 12, func(int64) int { return ledger.BodyMin })
	b, err := os.ReadFile(s.segment(s.dir, -1))
	if err != nil {
		t.Fatal(err)
	}
	hit := framesOf(t, b)[5]
	for name, r := range regions {
		t.Run(name, func(t *testing.T) {
			pos := hit.pos + r.pos
			if r.pos < 0 {
				pos = hit.end + r.pos
			}
			dir := s.copy(t)
			damage(t, s.segment(dir, -1), flip(pos, r.bit))
			v := s.visit(t, dir, lost{hit.base, hit.top})
			v.replay("record_unreadable")
			v.consume()
			v.reported()
			v.takesMore()
			v.calm()
		})
	}
}
