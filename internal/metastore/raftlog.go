package metastore

import (
	"context"
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger carries Raft's log lines to slog with component=raft. Raft narrates
// its normal life at info; here that is debug, so info stays quiet.
type raftLogger struct {
	log     *slog.Logger
	name    string
	implied []any
}

func newRaftLogger(l *slog.Logger) hclog.Logger {
	return &raftLogger{log: l.With("component", "raft")}
}

// levelTrace is what hclog calls trace, and what Raft's own debug lines become.
const levelTrace = slog.LevelDebug - 4

func slogLevel(l hclog.Level) slog.Level {
	switch l {
	case hclog.Error:
		return slog.LevelError
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Info:
		return slog.LevelDebug
	default:
		return levelTrace
	}
}

func (r *raftLogger) enabled(l hclog.Level) bool {
	return r.log.Enabled(context.Background(), slogLevel(l))
}

// Log implements hclog.Logger, as do all methods below.
func (r *raftLogger) Log(l hclog.Level, msg string, args ...any) {
	if r.enabled(l) {
		r.log.Log(context.Background(), slogLevel(l), msg, args...)
	}
}

func (r *raftLogger) Trace(msg string, args ...any) { r.Log(hclog.Trace, msg, args...) }
func (r *raftLogger) Debug(msg string, args ...any) { r.Log(hclog.Debug, msg, args...) }
func (r *raftLogger) Info(msg string, args ...any)  { r.Log(hclog.Info, msg, args...) }
func (r *raftLogger) Warn(msg string, args ...any)  { r.Log(hclog.Warn, msg, args...) }
func (r *raftLogger) Error(msg string, args ...any) { r.Log(hclog.Error, msg, args...) }

func (r *raftLogger) IsTrace() bool { return r.enabled(hclog.Trace) }
func (r *raftLogger) IsDebug() bool { return r.enabled(hclog.Debug) }
func (r *raftLogger) IsInfo() bool  { return r.enabled(hclog.Info) }
func (r *raftLogger) IsWarn() bool  { return r.enabled(hclog.Warn) }
func (r *raftLogger) IsError() bool { return r.enabled(hclog.Error) }

func (r *raftLogger) ImpliedArgs() []any { return r.implied }

func (r *raftLogger) With(args ...any) hclog.Logger {
	return &raftLogger{log: r.log.With(args...), name: r.name, implied: append(r.implied[:len(r.implied):len(r.implied)], args...)}
}

func (r *raftLogger) Name() string                        { return r.name }
func (r *raftLogger) Named(name string) hclog.Logger      { return r.ResetNamed(name) }
func (r *raftLogger) ResetNamed(name string) hclog.Logger { c := *r; c.name = name; return &c }
func (r *raftLogger) SetLevel(hclog.Level)                {}
func (r *raftLogger) GetLevel() hclog.Level {
	for _, l := range []hclog.Level{hclog.Trace, hclog.Debug, hclog.Info, hclog.Warn} {
		if r.enabled(l) {
			return l
		}
	}
	return hclog.Error
}

func (r *raftLogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(r.log.Handler(), slog.LevelDebug)
}

func (r *raftLogger) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return r.StandardLogger(o).Writer()
}
