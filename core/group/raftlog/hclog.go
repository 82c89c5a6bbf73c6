// Package raftlog writes what the Raft library logs through slog.
package raftlog

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// Logger writes the Raft library's log to slog. Its Info is our Debug: it tells of every vote and snapshot.
type Logger struct {
	To   *slog.Logger
	name string
	args []any
}

var _ hclog.Logger = Logger{}

var levels = map[hclog.Level]slog.Level{hclog.Trace: slog.LevelDebug - 4, hclog.Debug: slog.LevelDebug,
	hclog.Info: slog.LevelDebug,
	hclog.Warn: slog.LevelWarn, hclog.Error: slog.LevelWarn}

// firstElection is what raft says, as a warning, whenever no leader was heard in time: also in a group that has never
// had one, which is how each group begins.
const firstElection = "heartbeat timeout reached, starting election"

// unled tells from a line's arguments that there was no leader before.
func unled(args []any) bool {
	for i := 0; i+1 < len(args); i += 2 {
		if args[i] == "last-leader-addr" {
			return fmt.Sprint(args[i+1]) == ""
		}
	}
	return false
}

// Log implements hclog.Logger.
func (l Logger) Log(level hclog.Level, msg string, args ...any) {
	to := levels[level]
	if msg == firstElection && unled(args) {
		to = slog.LevelDebug
	}
	if !l.To.Enabled(context.Background(), to) {
		return
	}
	for i, arg := range args {
		if f, ok := arg.(hclog.Format); ok && len(f) > 0 {
			args[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
	}
	l.To.Log(context.Background(), to, "raft: "+msg, append(l.args[:len(l.args):len(l.args)], args...)...)
}

func (l Logger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l Logger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l Logger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l Logger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l Logger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }
func (l Logger) IsTrace() bool                 { return false }
func (l Logger) IsDebug() bool                 { return l.To.Enabled(context.Background(), slog.LevelDebug) }
func (l Logger) IsInfo() bool                  { return l.IsDebug() }
func (l Logger) IsWarn() bool                  { return true }
func (l Logger) IsError() bool                 { return true }
func (l Logger) ImpliedArgs() []any            { return l.args }
func (l Logger) Name() string                  { return l.name }
func (l Logger) SetLevel(hclog.Level)          {}
func (l Logger) GetLevel() hclog.Level         { return hclog.Info }

// With implements hclog.Logger.
func (l Logger) With(args ...any) hclog.Logger {
	return Logger{l.To, l.name, append(l.args[:len(l.args):len(l.args)], args...)}
}

// Named implements hclog.Logger.
func (l Logger) Named(name string) hclog.Logger { return Logger{l.To, name, l.args} }

// ResetNamed implements hclog.Logger.
func (l Logger) ResetNamed(name string) hclog.Logger { return l.Named(name) }

// StandardLogger implements hclog.Logger.
func (l Logger) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(o), "", 0)
}

// StandardWriter implements hclog.Logger.
func (l Logger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return io.Discard }
