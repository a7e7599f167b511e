package crash

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/narad-mq/narad/tests/ledger"
)

// The stock of three segments: two sealed ones, each with small records before the big
// ones that fill it, and small ones in the newest.
const (
	smallRecords   = 8
	bigRecords     = 65 // of a MiB: one more than a segment holds
	segmentRecords = smallRecords + bigRecords
	bigSize        = 1<<20 - 256
)

func threeSegments(offset int64) int {
	if offset < 2*segmentRecords && offset%segmentRecords >= smallRecords {
		return bigSize
	}
	return ledger.BodyMin
}

// segmentsCase is one kind of damage to a partition of several segments.
type segmentsCase struct {
	name   string
	damage func(t *testing.T, s *stock, dir string) lost
	code   string // of the replay's 410
	judge  func(v *visit)
}

// skipped: the queue met the damage, counted it and said where.
func skipped(v *visit) { v.reported() }

// agedOut: the oldest records are gone as if by retention, and the queue says so.
func agedOut(v *visit) {
	v.t.Helper()
	if !v.node.Logged("consumer frontier fell behind retention", `"partition":0`, fmt.Sprintf(`"to":%d`, v.lost.to)) {
		v.t.Error("no line says that the consumer's frontier jumped")
	}
}

// missing: records that had been visible are gone from the end of the log; the start
// says so, and their offsets are not given out again.
func missing(v *visit) {
	v.t.Helper()
	if !v.node.Logged("records below the high watermark are missing", `"topic":"stock"`, `"partition":0`,
		fmt.Sprintf(`"from":%d,"to":%d`, v.lost.from, v.lost.to)) {
		v.t.Error("no line says which records are missing")
	}
}

// bytesAt replaces the bytes from position at on by those of other.
func bytesAt(at int, other []byte) func([]byte) []byte {
	return func(b []byte) []byte { copy(b[at:], other); return b }
}

func cut(n int) func([]byte) []byte {
	return func(b []byte) []byte { return b[:n] }
}

// covered is the lost range of the frames that [from, to) of the file touches.
func covered(frames []frame, from, to int) (l lost) {
	l.from = -1
	for _, f := range frames {
		if f.end > from && f.pos < to {
			if l.from < 0 {
				l.from = f.base
			}
			l.to = f.top
		}
	}
	return l
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// segmentsCases is the table of F20 to F25 on a partition of three segments.
func segmentsCases() []segmentsCase {
	// inSealed damages one small frame of the oldest segment.
	inSealed := func(pos, bit int) func(*testing.T, *stock, string) lost {
		return func(t *testing.T, s *stock, dir string) lost {
			name := s.segment(dir, 0)
			f := framesOf(t, read(t, name))[3]
			damage(t, name, flip(f.pos+pos, bit))
			return lost{f.base, f.top}
		}
	}
	// page changes one page amid the second segment.
	page := func(with func(b []byte, at int) []byte) func(*testing.T, *stock, string) lost {
		return func(t *testing.T, s *stock, dir string) lost {
			name := s.segment(dir, 1)
			b := read(t, name)
			at := 32 << 20
			l := covered(framesOf(t, b), at, at+pageBytes)
			damage(t, name, bytesAt(at, with(b, at)))
			return l
		}
	}
	remove := func(i int, l lost) func(*testing.T, *stock, string) lost {
		return func(t *testing.T, s *stock, dir string) lost {
			if err := os.Remove(s.segment(dir, i)); err != nil {
				t.Fatal(err)
			}
			return l
		}
	}
	// truncate cuts a segment in the middle of its j-th frame.
	truncate := func(i, j int) func(*testing.T, *stock, string) lost {
		return func(t *testing.T, s *stock, dir string) lost {
			name := s.segment(dir, i)
			fs := framesOf(t, read(t, name))
			damage(t, name, cut((fs[j].pos+fs[j].end)/2))
			return lost{fs[j].base, fs[len(fs)-1].top}
		}
	}
	swap := func(t *testing.T, s *stock, dir string) lost {
		a, b := s.segment(dir, 0), s.segment(dir, 1)
		for _, r := range [][2]string{{a, a + ".swap"}, {b, a}, {a + ".swap", b}} {
			if err := os.Rename(r[0], r[1]); err != nil {
				t.Fatal(err)
			}
		}
		return lost{0, 2 * segmentRecords}
	}
	const second, third = segmentRecords, 2 * segmentRecords
	return []segmentsCase{
		{"F20_sealed_header", inSealed(10, 3), "record_unreadable", skipped},
		{"F22_sealed_length", inSealed(20, 4), "record_unreadable", skipped},
		{"F20_sealed_checksum", inSealed(25, 0), "record_unreadable", skipped},
		{"F20_sealed_payload", inSealed(70, 6), "record_unreadable", skipped},
		{"F23_page_zeroed", page(func([]byte, int) []byte { return make([]byte, pageBytes) }), "record_unreadable", skipped},
		{"F23_page_duplicated", page(func(b []byte, at int) []byte { return slices.Clone(b[at+pageBytes : at+2*pageBytes]) }), "record_unreadable", skipped},
		{"F23_page_of_another_place", page(func(b []byte, _ int) []byte { return slices.Clone(b[:pageBytes]) }), "record_unreadable", skipped},
		{"F24_oldest_deleted", remove(0, lost{0, second}), "offset_aged_out", agedOut},
		{"F24_middle_deleted", remove(1, lost{second, third}), "record_unreadable", skipped},
		{"F24_oldest_truncated", truncate(0, 20), "record_unreadable", skipped},
		{"F25_two_swapped", swap, "record_unreadable", skipped},
		{"F24_middle_truncated", truncate(1, 2), "record_unreadable", skipped},
	}
}

// F20 F22 F23 F24 F25 with O1 O2 O5 O9 O13: damage at rest to sealed segments is never
// served, is reported by place, and costs nothing around it: no other record, no other
// file.
func TestF20F25DamagedSegments(t *testing.T) {
	s := newStock(t, 2*segmentRecords+smallRecords, threeSegments)
	for _, c := range segmentsCases() {
		t.Run(c.name, func(t *testing.T) {
			dir := s.copy(t)
			gone := c.damage(t, s, dir)
			before := names(t, dir)
			v := s.visit(t, dir, gone)
			v.replay(c.code)
			v.consume()
			c.judge(v)
			v.takesMore()
			v.calm()
			after := names(t, dir)
			for _, name := range before {
				if !slices.Contains(after, name) {
					t.Errorf("O13: %s was deleted", name)
				}
			}
		})
	}
}

// names are the files of the topic.
func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	out, err := filepath.Glob(filepath.Join(dir, "topics", stockTopic, "*", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// F13 F24 with O5 O9: what is missing at the end of a log that was closed in good order
// is reported by range, answers 410 once there are records behind it, and its offsets are
// never given out again.
func TestF24MissingEndIsReportedAndNotReused(t *testing.T) {
	s := newStock(t, 12, func(int64) int { return ledger.BodyMin })
	for name, change := range map[string]struct {
		do   func(t *testing.T, name string, fs []frame)
		from int64
	}{
		"truncated":    {func(t *testing.T, name string, fs []frame) { damage(t, name, cut(fs[9].pos+5)) }, 9},
		"cut_to_zero":  {func(t *testing.T, name string, _ []frame) { damage(t, name, cut(0)) }, 0},
		"last_flipped": {func(t *testing.T, name string, fs []frame) { damage(t, name, flip(fs[11].end-9, 2)) }, 11},
		"deleted": {func(t *testing.T, name string, _ []frame) {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := s.copy(t)
			name := s.segment(dir, -1)
			change.do(t, name, framesOf(t, read(t, name)))
			v := s.visit(t, dir, lost{change.from, s.records()})
			v.takesMore()
			missing(v)
			v.replay("record_unreadable")
			for o := range change.from {
				if status, body := v.get(""); status != http.StatusOK || !v.holds(body, o) {
					t.Fatalf("consume: %d %.100s, want offset %d", status, body, o)
				}
			}
			if status, body := v.get(""); status != http.StatusOK || !bytes.Contains(body, []byte("another one")) {
				t.Errorf("consume behind the gap: %d %.100s", status, body)
			}
			v.reported()
			v.calm()
		})
	}
}

// F24 with O1: zeros behind the last record are no damage; they are cut.
func TestF24ExtendedWithZeros(t *testing.T) {
	s := newStock(t, 6, func(int64) int { return ledger.BodyMin })
	dir := s.copy(t)
	damage(t, s.segment(dir, -1), func(b []byte) []byte { return append(b, make([]byte, 3*pageBytes)...) })
	v := s.visit(t, dir, lost{})
	v.replay("")
	v.consume()
	v.takesMore()
	if !v.node.Logged("torn tail cut") {
		t.Error("no line says that bytes were cut")
	}
	v.calm()
}
