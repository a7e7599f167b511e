package lease

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected outputs of testdata/*.txt")

// TestScripts plays testdata/*.txt. A block is one command line, "----", the
// expected output, and an empty line; lines that start with # are kept. The diff
// of a script is the change of behaviour. Commands, times in seconds:
//
//	new in_flight=N ahead=N v=N [committed=N] [settled=a-b,c-d]
//	time N | hwm N | reserve [N] | ack O#K | extend O#K | nack O#K | release O#K
//	corrupt O#K | jump N | expire | caps in_flight=N ahead=N | freeze N | thaw | state
//
// O#K names the K-th lease of offset O; nonces count up from 1.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := playScript(string(want))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got != string(want) {
				t.Errorf("script differs; -rewrite takes the new one:\n%s", got)
			}
		})
	}
}

// playScript returns the script with every output replaced by the actual one.
func playScript(text string) string {
	var out strings.Builder
	s := &script{nonces: map[string]int64{}, taken: map[int64]int{}}
	for block := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n\n") {
		var cmds []string
		for line := range strings.SplitSeq(block, "\n") {
			if line == "----" {
				break
			}
			out.WriteString(line + "\n")
			if !strings.HasPrefix(line, "#") {
				cmds = append(cmds, line)
			}
		}
		if len(cmds) > 0 {
			out.WriteString("----\n")
		}
		for _, cmd := range cmds {
			out.WriteString(s.do(strings.Fields(cmd)) + "\n")
		}
		out.WriteString("\n")
	}
	return out.String()
}

type script struct {
	t        *Table
	now, hwm int64
	nonces   map[string]int64 // "offset#k" to nonce
	taken    map[int64]int    // leases per offset
	last     int64            // last nonce given out
}

func (s *script) do(f []string) string {
	arg := ""
	if len(f) > 1 {
		arg = f[1]
	}
	n, _ := strconv.ParseInt(arg, 10, 64)
	switch f[0] {
	case "new":
		return s.create(options(f[1:]))
	case "time":
		s.now = n * int64(time.Second)
		return "ok"
	case "hwm":
		s.hwm = n
		return "ok"
	case "reserve":
		return s.reserve(int(max(n, 1)))
	case "ack", "extend", "nack":
		op := map[string]model.SettleOp{"ack": model.Ack, "extend": model.Extend, "nack": model.Nack}[f[0]]
		return outcome(s.t.Settle(s.now, op, offsetOf(arg), s.nonces[arg]))
	case "release":
		return outcome(s.t.Release(offsetOf(arg), s.nonces[arg]))
	case "corrupt":
		return outcome(s.t.Corrupt(offsetOf(arg), s.nonces[arg]))
	case "jump":
		from, moved, ev := s.t.Jump(n)
		return fmt.Sprintf("from %d moved %v%s", from, moved, event(ev))
	case "expire":
		return fmt.Sprintf("%d ended", s.t.Expire(s.now))
	case "caps":
		return "ok" + event(s.t.SetCaps(caps(options(f[1:]))))
	case "freeze":
		s.t.Freeze(s.now, time.Duration(n)*time.Second)
		return "ok"
	case "thaw":
		return "ok" + event(s.t.Thaw())
	case "state":
		return s.state()
	}
	return "unknown command " + f[0]
}

func (s *script) create(o map[string]string) string {
	pos := model.NoPosition()
	if c, ok := o["committed"]; ok {
		pos.Committed, _ = strconv.ParseInt(c, 10, 64)
	}
	for r := range strings.SplitSeq(o["settled"], ",") {
		if a, b, ok := strings.Cut(r, "-"); ok {
			start, _ := strconv.ParseInt(a, 10, 64)
			end, _ := strconv.ParseInt(b, 10, 64)
			pos.Ahead = append(pos.Ahead, model.Run{Start: start, End: end + 1})
		}
	}
	s.t = New(caps(o), pos, func() int64 { s.last++; return s.last })
	return "ok"
}

func (s *script) reserve(limit int) string {
	leases, res := s.t.ReserveRun(nil, s.now, s.hwm, limit)
	var parts []string
	for _, l := range leases {
		s.taken[l.Offset]++
		name := fmt.Sprintf("%d#%d", l.Offset, s.taken[l.Offset])
		s.nonces[name] = l.Nonce
		parts = append(parts, fmt.Sprintf("%s count=%d until=%d", name, l.Count, l.Expires/int64(time.Second)))
	}
	if res != Reserved || len(parts) == 0 {
		parts = append(parts, res.String())
	}
	return strings.Join(parts, ", ")
}

func (s *script) state() string {
	pos := s.t.Position(nil)
	var b strings.Builder
	fmt.Fprintf(&b, "frontier=%d leased=%d settled=[", s.t.Frontier(), s.t.InFlight())
	for i, r := range pos.Ahead {
		if i > 0 {
			b.WriteString(" ")
		}
		fmt.Fprintf(&b, "%d-%d", r.Start, r.End-1)
	}
	fmt.Fprintf(&b, "] available=%d idle=%v", s.t.Available(s.hwm), s.t.Idle())
	if at, ok := s.t.NextExpiry(); ok {
		fmt.Fprintf(&b, " next_expiry=%d", at/int64(time.Second))
	}
	return b.String()
}

func options(f []string) map[string]string {
	o := map[string]string{}
	for _, s := range f {
		k, v, _ := strings.Cut(s, "=")
		o[k] = v
	}
	return o
}

func caps(o map[string]string) Caps {
	in, _ := strconv.Atoi(o["in_flight"])
	ahead, _ := strconv.Atoi(o["ahead"])
	v, _ := strconv.Atoi(o["v"])
	return Caps{MaxInFlight: in, MaxAckedAhead: ahead, Visibility: time.Duration(max(v, 1)) * time.Second}
}

func offsetOf(handle string) int64 {
	o, _, _ := strings.Cut(handle, "#")
	n, _ := strconv.ParseInt(o, 10, 64)
	return n
}

func event(ev Event) string {
	s := ""
	if ev.Dirty {
		s += " dirty"
	}
	if ev.Wake {
		s += " wake"
	}
	return s
}

func outcome(ev Event, ok bool) string {
	if !ok {
		return "no lease" + event(ev)
	}
	return "ok" + event(ev)
}
