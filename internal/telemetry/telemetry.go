// Package telemetry sets up logging, limits repeating log lines, and holds the
// histogram buckets of the house. Metrics live in the packages that feed them; the
// registry is passed in, never global.
package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/clock"
)

// Histogram bounds of spec/metrics section 2: seconds, except records and bytes.
var (
	BucketsHTTP = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
	BucketsWait = []float64{0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60}
	BucketsDisk = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5}
)

// NewLogger returns a logger that writes one line per event to w: level is one of
// debug, info, warn, error; format json or text (spec/operations section 7.1).
// Attribute source is the file relative to the module.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	switch level {
	case "debug":
		l = slog.LevelDebug
	case "info":
		l = slog.LevelInfo
	case "warn":
		l = slog.LevelWarn
	case "error":
		l = slog.LevelError
	default:
		return nil, fmt.Errorf("log.level %q: want debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l, AddSource: true, ReplaceAttr: replaceAttr}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("log.format %q: want json or text", format)
}

const modulePath = "github.com/narad-mq/narad/"

func replaceAttr(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch v := a.Value.Any().(type) {
	case time.Time:
		if a.Key == slog.TimeKey {
			a.Value = slog.TimeValue(v.UTC())
		}
	case *slog.Source:
		v.Function = strings.TrimPrefix(v.Function, modulePath)
		for _, dir := range []string{"/internal/", "/cmd/", "/client/"} {
			if i := strings.LastIndex(v.File, dir); i >= 0 {
				v.File = v.File[i+1:]
			}
		}
	}
	return a
}

// Discard is a logger that drops everything.
func Discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// limitKeysMax bounds how many distinct keys a Limiter remembers. Past it the keys
// whose period is over are forgotten, and of the others any until half of the bound
// is left, which can only let a line through early.
const limitKeysMax = 4096

// Limiter lets one line per key and period through, for conditions that repeat.
type Limiter struct {
	clk    clock.Clock
	period time.Duration

	mu   sync.Mutex // guards last
	last map[string]time.Time
}

// NewLimiter allows one line per key and period.
func NewLimiter(clk clock.Clock, period time.Duration) *Limiter {
	return &Limiter{clk: clk, period: period, last: map[string]time.Time{}}
}

// Allow reports whether a line for key may be written now, and counts it if so.
func (l *Limiter) Allow(key string) bool {
	now := l.clk.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if t, ok := l.last[key]; ok && now.Sub(t) < l.period {
		return false
	}
	if len(l.last) >= limitKeysMax {
		l.forget(now)
	}
	l.last[key] = now
	return true
}

// forget makes room as limitKeysMax says. Caller holds mu.
func (l *Limiter) forget(now time.Time) {
	for k, t := range l.last {
		if now.Sub(t) >= l.period {
			delete(l.last, k)
		}
	}
	for k := range l.last {
		if len(l.last) <= limitKeysMax/2 {
			return
		}
		delete(l.last, k)
	}
}

// Warn writes a warning through log if the limiter allows it for key. The line
// names the caller as its source.
func (l *Limiter) Warn(log *slog.Logger, key, msg string, args ...any) {
	ctx := context.Background()
	if !l.Allow(key) || !log.Enabled(ctx, slog.LevelWarn) {
		return
	}
	var pcs [1]uintptr
	runtime.Callers(2, pcs[:]) // skips Callers and Warn
	r := slog.NewRecord(l.clk.Now(), slog.LevelWarn, msg, pcs[0])
	r.Add(args...)
	// As slog's own methods do: a line that cannot be written has nowhere to go.
	_ = log.Handler().Handle(ctx, r)
}
