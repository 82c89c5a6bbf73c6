package logs

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
)

// lineHandler renders records as the contract's monitor shows them, which tools match on:
//
//	2026-01-02T15:04:05.000Z [INFO]  agent: synced a service: service=web
//
// Like slog's own handlers here, it writes to a buffer that its user guards.
type lineHandler struct {
	buf   *bytes.Buffer
	attrs string // rendered before, each with a leading space
	group string // prefix of the keys to come
}

var _ slog.Handler = (*lineHandler)(nil)

// Enabled implements slog.Handler: levels are sorted out before.
func (h *lineHandler) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	for _, a := range attrs {
		next.attrs = appendAttr(next.attrs, h.group, a)
	}
	return &next
}

// WithGroup implements slog.Handler.
func (h *lineHandler) WithGroup(name string) slog.Handler {
	next := *h
	if name != "" {
		next.group += name + "."
	}
	return &next
}

// Handle implements slog.Handler.
func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	attrs := h.attrs
	r.Attrs(func(a slog.Attr) bool {
		attrs = appendAttr(attrs, h.group, a)
		return true
	})
	h.buf.WriteString(r.Time.UTC().Format("2006-01-02T15:04:05.000Z "))
	h.buf.WriteString(bracketed(r.Level))
	h.buf.WriteString(" agent: ")
	h.buf.WriteString(r.Message)
	if attrs != "" {
		h.buf.WriteByte(':')
		h.buf.WriteString(attrs)
	}
	h.buf.WriteByte('\n')
	return nil
}

// bracketed is the level in a column of its own.
func bracketed(l slog.Level) string {
	switch {
	case l < slog.LevelDebug:
		return "[TRACE]"
	case l < slog.LevelInfo:
		return "[DEBUG]"
	case l < slog.LevelWarn:
		return "[INFO] "
	case l < slog.LevelError:
		return "[WARN] "
	}
	return "[ERROR]"
}

func appendAttr(to, group string, a slog.Attr) string {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, in := range v.Group() {
			to = appendAttr(to, group, in)
		}
		return to
	}
	if a.Equal(slog.Attr{}) {
		return to
	}
	text := v.String()
	if text == "" || strings.ContainsAny(text, " \t\r\n\"=") {
		text = strconv.Quote(text)
	}
	return to + " " + group + a.Key + "=" + text
}
