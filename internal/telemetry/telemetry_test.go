package telemetry

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
)

func logger(t *testing.T, level, format string) (*slog.Logger, *bytes.Buffer) {
	t.Helper()
	var b bytes.Buffer
	l, err := NewLogger(&b, level, format)
	if err != nil {
		t.Fatal(err)
	}
	return l, &b
}

// spec/operations section 7.1: one object per line with time (UTC, RFC 3339),
// level, source relative to the module, msg, then attributes.
func TestJSONLine(t *testing.T) {
	l, b := logger(t, "info", "json")
	l.Warn("disk almost full", "topic", "orders", "partition", 3, slog.Group("g", "time", "kept", "source", "kept"))
	if bytes.Count(b.Bytes(), []byte("\n")) != 1 {
		t.Fatalf("not one line: %q", b)
	}
	var line struct {
		Time   string
		Level  string
		Msg    string
		Source struct {
			Function, File string
			Line           int
		}
		Topic     string
		Partition int
		G         map[string]string
	}
	if err := json.Unmarshal(b.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339Nano, line.Time)
	if err != nil || !strings.HasSuffix(line.Time, "Z") || at.IsZero() {
		t.Errorf("time %q: %v", line.Time, err)
	}
	if line.Level != "WARN" || line.Msg != "disk almost full" || line.Topic != "orders" || line.Partition != 3 {
		t.Errorf("line %+v", line)
	}
	if line.Source.File != "internal/telemetry/telemetry_test.go" || line.Source.Line == 0 ||
		line.Source.Function != "internal/telemetry.TestJSONLine" {
		t.Errorf("source %+v", line.Source)
	}
	if line.G["time"] != "kept" || line.G["source"] != "kept" {
		t.Errorf("attributes of a group were rewritten: %v", line.G)
	}
}

func TestTextLine(t *testing.T) {
	l, b := logger(t, "debug", "text")
	l.Debug("ready", "node", "n 1")
	got := b.String()
	for _, part := range []string{"time=", "level=DEBUG", "source=internal/telemetry/telemetry_test.go:", "msg=ready", `node="n 1"`} {
		if !strings.Contains(got, part) {
			t.Errorf("%q lacks %q", got, part)
		}
	}
	if strings.Count(got, "\n") != 1 {
		t.Errorf("not one line: %q", got)
	}
}

func TestLevels(t *testing.T) {
	order := []string{"debug", "info", "warn", "error"}
	for i, level := range order {
		l, b := logger(t, level, "json")
		l.Debug("m")
		l.Info("m")
		l.Warn("m")
		l.Error("m")
		if got := strings.Count(b.String(), "\n"); got != len(order)-i {
			t.Errorf("level %s lets %d of 4 lines through", level, got)
		}
	}
}

func TestLoggerRefuses(t *testing.T) {
	for _, c := range []struct{ level, format, text string }{
		{"", "json", `log.level ""`}, {"INFO", "json", `log.level "INFO"`}, {"trace", "text", `log.level "trace"`},
		{"info", "", `log.format ""`}, {"info", "logfmt", `log.format "logfmt"`},
	} {
		l, err := NewLogger(&bytes.Buffer{}, c.level, c.format)
		if err == nil || l != nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("level %q, format %q: %v", c.level, c.format, err)
		}
	}
}

func TestSourceOfEveryRoot(t *testing.T) {
	for file, want := range map[string]string{
		"/home/x/narad/internal/wal/log.go":             "internal/wal/log.go",
		"/home/x/narad/cmd/narad/main.go":               "cmd/narad/main.go",
		"/home/x/narad/client/client.go":                "client/client.go",
		"/srv/internal/cmd/narad/client/client.go":      "client/client.go",
		"github.com/narad-mq/narad/internal/wal/log.go": "internal/wal/log.go",
		"/elsewhere/main.go":                            "/elsewhere/main.go",
	} {
		a := replaceAttr(nil, slog.Any(slog.SourceKey, &slog.Source{File: file}))
		if got := a.Value.Any().(*slog.Source).File; got != want {
			t.Errorf("%s is shown as %s, want %s", file, got, want)
		}
	}
}

func TestDiscard(t *testing.T) {
	if Discard().Enabled(t.Context(), slog.LevelError) {
		t.Error("does work for lines it drops")
	}
}

// spec/metrics section 2.
func TestBuckets(t *testing.T) {
	for name, b := range map[string][]float64{"H": BucketsHTTP, "W": BucketsWait, "D": BucketsDisk} {
		if !slices.IsSorted(b) || len(slices.Compact(slices.Clone(b))) != len(b) || b[0] <= 0 {
			t.Errorf("set %s is not strictly ascending: %v", name, b)
		}
	}
	for _, c := range []struct {
		set         []float64
		n           int
		first, last float64
	}{{BucketsHTTP, 15, 0.0005, 30}, {BucketsWait, 12, 0.001, 60}, {BucketsDisk, 14, 0.0001, 5}} {
		if len(c.set) != c.n || c.set[0] != c.first || c.set[c.n-1] != c.last {
			t.Errorf("%d bounds from %v to %v, want %d from %v to %v", len(c.set), c.set[0], c.set[len(c.set)-1], c.n, c.first, c.last)
		}
	}
}

func TestLimiter(t *testing.T) {
	clk := clock.NewFake(time.Unix(1000, 0))
	l := NewLimiter(clk, time.Minute)
	if !l.Allow("a") || l.Allow("a") || !l.Allow("b") {
		t.Error("not one line per key")
	}
	clk.Advance(time.Minute - 1)
	if l.Allow("a") {
		t.Error("a second line within the period")
	}
	clk.Advance(1)
	if !l.Allow("a") || l.Allow("a") {
		t.Error("not one line in the next period")
	}
}

// The bound: past it keys are forgotten, the ones whose period is over first.
func TestLimiterForgets(t *testing.T) {
	clk := clock.NewFake(time.Unix(1000, 0))
	l := NewLimiter(clk, time.Minute)
	for i := range limitKeysMax / 2 {
		l.Allow("old" + strconv.Itoa(i))
	}
	clk.Advance(time.Minute)
	for i := range limitKeysMax / 2 {
		l.Allow("new" + strconv.Itoa(i))
	}
	if len(l.last) != limitKeysMax {
		t.Fatalf("%d keys, want %d", len(l.last), limitKeysMax)
	}
	if !l.Allow("one more") {
		t.Error("refused at the bound")
	}
	if len(l.last) != limitKeysMax/2+1 {
		t.Errorf("%d keys remembered, want %d", len(l.last), limitKeysMax/2+1)
	}
	for i := range limitKeysMax / 2 {
		if l.Allow("new" + strconv.Itoa(i)) {
			t.Fatal("a live key was forgotten while expired ones were there")
		}
	}
	for i := range 3 * limitKeysMax {
		l.Allow("flood" + strconv.Itoa(i))
		if len(l.last) > limitKeysMax {
			t.Fatalf("%d keys, bound %d", len(l.last), limitKeysMax)
		}
	}
}

func TestLimiterWarn(t *testing.T) {
	log, b := logger(t, "info", "json")
	l := NewLimiter(clock.NewFake(time.Unix(1000, 0)), time.Minute)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { l.Warn(log, "key", "it happens", "topic", "orders") })
	}
	wg.Wait()
	if got := b.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"level":"WARN"`) || !strings.Contains(got, `"topic":"orders"`) {
		t.Errorf("logged %q", got)
	}
	if !strings.Contains(b.String(), "telemetry_test.go") {
		t.Errorf("the source is not the caller: %s", b)
	}
}
