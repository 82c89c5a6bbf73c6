package agenttemplate

import (
	"context"
	"log/slog"
	"strings"
)

// lines handles what the library logs: "[LEVEL] (part) text", all at one level.
type lines struct{ inner slog.Handler }

// levels are the library's. What it tells of its own doings is for debugging.
var levels = map[string]slog.Level{"TRACE": slog.LevelDebug - 4, "DEBUG": slog.LevelDebug, "INFO": slog.LevelDebug,
	"WARN": slog.LevelWarn, "ERR": slog.LevelError}

// Enabled implements slog.Handler: the level is known once the line is read.
func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l *lines) Handle(ctx context.Context, r slog.Record) error {
	level, text := r.Level, r.Message
	if word, rest, ok := strings.Cut(strings.TrimPrefix(text, "["), "] "); ok {
		if known, ok := levels[word]; ok {
			level, text = known, rest
			if strings.HasPrefix(rest, "(runner) rendered ") {
				level = slog.LevelInfo
			}
		}
	}
	if !l.inner.Enabled(ctx, level) {
		return nil
	}
	return l.inner.Handle(ctx, slog.NewRecord(r.Time, level, "template: "+text, r.PC))
}

// WithAttrs implements slog.Handler.
func (l *lines) WithAttrs(attrs []slog.Attr) slog.Handler { return &lines{l.inner.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (l *lines) WithGroup(name string) slog.Handler { return &lines{l.inner.WithGroup(name)} }
