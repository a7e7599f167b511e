package crash

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/narad-mq/narad/internal/testutil"
	"github.com/narad-mq/narad/tests/ledger"
)

// digest is a hash of every file under the directories: names and contents.
func digest(t *testing.T, dirs ...string) string {
	t.Helper()
	h := sha256.New()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			fmt.Fprintf(h, "%s\n", path)
			b, err := os.ReadFile(path)
			h.Write(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// messages are the parts of the data directory that hold messages.
var messages = []string{"topics", "ingress"}

// refuses checks that the node on this directory does not start: exit code 1, a cause,
// and those parts of the data as they were.
func refuses(t *testing.T, dir string, parts []string, causes ...string) {
	t.Helper()
	var data []string
	for _, part := range parts {
		data = append(data, filepath.Join(dir, part))
	}
	before := digest(t, data...)
	n := testutil.NewNode(t, dir)
	if n.Launch() {
		n.Kill()
		t.Fatal("the node started")
	}
	if code := n.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, cause := range causes {
		if !n.Logged(cause) {
			t.Errorf("the node does not say %q; its last words: %q", cause, n.LastWords())
		}
	}
	if n.Logged("goroutine ") {
		t.Error("the node ended with a stack trace")
	}
	if digest(t, data...) != before {
		t.Errorf("O13: the refused start changed something in %v", parts)
	}
}

func zeroed(b []byte) []byte { return make([]byte, len(b)) }

// F27 with O13: the metadata of the only node is damaged. It refuses to start, says
// what is wrong, and touches no topic data; with the file put back everything is there.
func TestF27DamagedMetadataRefusesToStart(t *testing.T) {
	s := newStock(t, 12, func(int64) int { return ledger.BodyMin })
	whole := func(names ...string) func(*testing.T, string) {
		return func(t *testing.T, meta string) {
			for _, name := range names {
				if err := os.RemoveAll(filepath.Join(meta, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	change := func(name string, f func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, meta string) { damage(t, filepath.Join(meta, name), f) }
	}
	for name, c := range map[string]struct {
		do     func(t *testing.T, meta string)
		causes []string
	}{
		"fsm_zeroed":      {change("fsm.db", zeroed), []string{"fsm.db"}},
		"fsm_cut":         {change("fsm.db", cut(3*pageBytes)), []string{"fsm.db"}},
		"raft_zeroed":     {change("raft.db", zeroed), []string{"raft.db"}},
		"raft_cut":        {change("raft.db", cut(3*pageBytes)), []string{"raft.db"}},
		"raft_emptied":    {change("raft.db", cut(0)), []string{"holds metadata, but there is no raft state beside it"}},
		"raft_deleted":    {whole("raft.db"), []string{"holds metadata, but there is no raft state beside it"}},
		"both_deleted":    {whole("raft.db", "fsm.db"), []string{"holds topic data", "restore the metastore directory"}},
		"metastore_wiped": {whole(""), []string{"holds topic data", "restore the metastore directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := s.copy(t)
			meta := filepath.Join(dir, "metastore")
			c.do(t, meta)
			refuses(t, dir, messages, c.causes...)
			refuses(t, dir, messages, c.causes...) // and again: the refusal itself repaired nothing
			if err := os.RemoveAll(meta); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(meta, os.DirFS(filepath.Join(s.dir, "metastore"))); err != nil {
				t.Fatal(err)
			}
			v := s.visit(t, dir, lost{})
			v.consume()
			v.calm()
		})
	}
}

// F27 with O1: the raft log holds every entry since the start, so it rebuilds a lost
// or emptied database.
func TestF27LostDatabaseIsRebuiltFromTheLog(t *testing.T) {
	s := newStock(t, 12, func(int64) int { return ledger.BodyMin })
	for name, lose := range map[string]func(string) error{
		"deleted": os.Remove,
		"emptied": func(name string) error { return os.Truncate(name, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := s.copy(t)
			if err := lose(filepath.Join(dir, "metastore", "fsm.db")); err != nil {
				t.Fatal(err)
			}
			v := s.visit(t, dir, lost{})
			v.consume()
			v.takesMore()
			v.calm()
		})
	}
}

// F27 with O13: one bit of the topic's id in the database. The node does not take the
// topic's data for a deleted topic's, and remove it.
func TestF27FlippedBitInATopicRecord(t *testing.T) {
	s := newStock(t, 12, func(int64) int { return ledger.BodyMin })
	id := bytes.TrimSpace(read(t, filepath.Join(s.dir, "topics", stockTopic, "incarnation")))
	dir := s.copy(t)
	flipped := 0
	damage(t, filepath.Join(dir, "metastore", "fsm.db"), func(b []byte) []byte {
		for at := bytes.Index(b, id); at >= 0; at = bytes.Index(b, id) {
			b[at] ^= 1 // another hexadecimal digit
			flipped++
		}
		return b
	})
	if flipped == 0 {
		t.Fatal("the database does not hold the topic's id")
	}
	refuses(t, dir, messages, "fsm.db", "rows do not add up")
}
