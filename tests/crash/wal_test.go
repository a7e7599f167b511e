package crash

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/tests/ledger"
)

// F27 with O1 O13: a record in the middle of the ingress WAL is damaged and still to be
// dispatched. The node refuses to start, naming file and position, and touches nothing;
// with the byte put right everything arrives.
func TestF27DamagedWALRefusesToStart(t *testing.T) {
	l := newLoad(t, t.TempDir())
	l.boot()
	l.create(client.CreateTopic{})
	l.mustSend("m", 50, ledger.BodyMin, client.AnyPartition)
	l.crash()
	segment := l.walSegment()
	// Without a checkpoint all of the WAL is dispatched again.
	if err := os.Remove(filepath.Join(l.node.Dir, "ingress", "produce", "dispatch.checkpoint")); err != nil {
		t.Fatal(err)
	}
	b := read(t, segment)
	at := bytes.Index(b, []byte(ledger.Body("m-20", ledger.BodyMin)))
	frame := bytes.LastIndex(b[:at], []byte("NWF1"))
	if at < 0 || frame < 0 {
		t.Fatal("the WAL does not hold the message")
	}
	damage(t, segment, flip(at, 0))
	for range 2 {
		refuses(t, l.node.Dir, []string{"ingress"}, filepath.Base(segment), strconv.Itoa(frame), "corrupt")
	}
	damage(t, segment, flip(at, 0))
	l.boot()
	l.drain()
}
