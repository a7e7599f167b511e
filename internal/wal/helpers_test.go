package wal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const waitMax = 10 * time.Second

// blob is an entry whose body is itself.
type blob []byte

func (b blob) Size() int                  { return len(b) }
func (b blob) AppendTo(dst []byte) []byte { return append(dst, b...) }

// rec is a body that starts with its id, so that a read one says which it is, and
// whose every other byte follows from it.
func rec(id, size int) blob {
	b := make(blob, max(size, 8))
	binary.BigEndian.PutUint64(b, uint64(id))
	for i := 8; i < len(b); i++ {
		b[i] = byte(id*31 + i)
	}
	return b
}

// recID checks a body made by rec and returns its id.
func recID(body []byte) (int, error) {
	if len(body) < 8 {
		return 0, fmt.Errorf("body of %d bytes", len(body))
	}
	id := int(binary.BigEndian.Uint64(body))
	if want := rec(id, len(body)); string(want) != string(body) {
		return 0, fmt.Errorf("body claims id %d and is not its record", id)
	}
	return id, nil
}

const testDir = "data/ingress/produce"

func options(fsys disk.FS, dir string) Options {
	return Options{FS: fsys, Dir: dir, Clock: clock.Real(), Logger: telemetry.Discard()}
}

func mustOpen(t testing.TB, o Options) *Log {
	t.Helper()
	l, err := Open(o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func mustAppend(t testing.TB, l *Log, es ...Entry) {
	t.Helper()
	if err := l.AppendMany(context.Background(), es); err != nil {
		t.Fatalf("append: %v", err)
	}
}

// appendRecs appends the records from to to-1, each as a group of its own.
func appendRecs(t testing.TB, l *Log, from, to, size int) {
	t.Helper()
	for id := from; id < to; id++ {
		mustAppend(t, l, rec(id, size))
	}
}

// got is one record read back.
type got struct {
	seq uint64
	id  int
}

// readAll reads everything durable from seq from on.
func readAll(l *Log, from uint64) (out []got, err error) {
	r := l.NewReader(from)
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		seq, body, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		id, err := recID(body)
		if err != nil {
			return out, fmt.Errorf("seq %d: %w", seq, err)
		}
		out = append(out, got{seq, id})
	}
}

// wantRecs checks that the log holds, from seq from on, the records whose id equals
// their seq, up to next-1.
func wantRecs(t testing.TB, l *Log, from, next uint64) {
	t.Helper()
	if l.Next() != next {
		t.Fatalf("next seq %d, want %d", l.Next(), next)
	}
	recs, err := readAll(l, from)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	if len(recs) != int(next-from) {
		t.Fatalf("%d records from seq %d, want %d", len(recs), from, next-from)
	}
	for i, r := range recs {
		if r.seq != from+uint64(i) || r.id != int(r.seq) {
			t.Fatalf("record %d: seq %d id %d, want both %d", i, r.seq, r.id, from+uint64(i))
		}
	}
}

var discard = telemetry.Discard()

// logLines collects what a logger was told.
type logLines struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (w *logLines) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

func (w *logLines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func (w *logLines) has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.buf.String(), text)
}

// newVolume makes empty volumes.
func newVolume(seed int64) func() *disk.Sim {
	return func() *disk.Sim { return disk.NewSim(seed) }
}
