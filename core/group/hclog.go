package group

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger writes the Raft library's log to slog. Its Info is our Debug: it tells of every vote and snapshot.
type raftLogger struct {
	log  *slog.Logger
	name string
	args []any
}

var _ hclog.Logger = raftLogger{}

var levels = map[hclog.Level]slog.Level{hclog.Trace: slog.LevelDebug - 4, hclog.Debug: slog.LevelDebug,
	hclog.Info: slog.LevelDebug,
	hclog.Warn: slog.LevelWarn, hclog.Error: slog.LevelWarn}

// Log implements hclog.Logger.
func (l raftLogger) Log(level hclog.Level, msg string, args ...any) {
	to := levels[level]
	if !l.log.Enabled(context.Background(), to) {
		return
	}
	for i, arg := range args {
		if f, ok := arg.(hclog.Format); ok && len(f) > 0 {
			args[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
	}
	l.log.Log(context.Background(), to, "raft: "+msg, append(l.args[:len(l.args):len(l.args)], args...)...)
}

func (l raftLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l raftLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l raftLogger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l raftLogger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }
func (l raftLogger) IsTrace() bool                 { return false }
func (l raftLogger) IsDebug() bool                 { return l.log.Enabled(context.Background(), slog.LevelDebug) }
func (l raftLogger) IsInfo() bool                  { return l.IsDebug() }
func (l raftLogger) IsWarn() bool                  { return true }
func (l raftLogger) IsError() bool                 { return true }
func (l raftLogger) ImpliedArgs() []any            { return l.args }
func (l raftLogger) Name() string                  { return l.name }
func (l raftLogger) SetLevel(hclog.Level)          {}
func (l raftLogger) GetLevel() hclog.Level         { return hclog.Info }

// With implements hclog.Logger.
func (l raftLogger) With(args ...any) hclog.Logger {
	return raftLogger{l.log, l.name, append(l.args[:len(l.args):len(l.args)], args...)}
}

// Named implements hclog.Logger.
func (l raftLogger) Named(name string) hclog.Logger { return raftLogger{l.log, name, l.args} }

// ResetNamed implements hclog.Logger.
func (l raftLogger) ResetNamed(name string) hclog.Logger { return l.Named(name) }

// StandardLogger implements hclog.Logger.
func (l raftLogger) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(o), "", 0)
}

// StandardWriter implements hclog.Logger.
func (l raftLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return io.Discard }
