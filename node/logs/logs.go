// Package logs is where the log lines of a process go: to stderr, files that make room, syslog, and those who follow.
// Logging never waits.
package logs

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// LevelTrace is below Debug, for operators who ask for TRACE.
const LevelTrace = slog.LevelDebug - 4

// Bounds of the log: lines that wait for the writer, and for each follower.
const (
	logQueueLines    = 4096
	followQueueLines = 512
)

// Logs is where all log lines of a process go. Logging never waits: a line is
// rendered, put on a bounded queue, and written by Run's goroutine; when the
// queue is full the line is dropped and counted, and the next line written says
// how many were. Followers (GET /v1/agent/monitor) have bounded queues of their own.
type Logs struct {
	level slog.LevelVar
	json  bool
	out   io.Writer

	queue   chan []byte
	dropped atomic.Uint64
	kept    *ring // nil: nothing is kept; set before the first line

	mu        sync.Mutex // guards followers
	followers map[*follower]struct{}
	// lowest is the lowest level that anybody wants; read on every log call.
	lowest atomic.Int64
}

type follower struct {
	level slog.Level
	json  bool
	lines chan []byte
}

// New makes Logs that write lines of level and above to out.
func New(out io.Writer, level slog.Level, json bool) *Logs {
	l := &Logs{json: json, out: out, queue: make(chan []byte, logQueueLines), followers: map[*follower]struct{}{}}
	l.SetLevel(level)
	return l
}

// ParseLevel reads a level name as the configuration spells it; ok is false for any other word.
func ParseLevel(name string) (level slog.Level, ok bool) {
	switch {
	case equalWord(name, "TRACE"):
		return LevelTrace, true
	case equalWord(name, "DEBUG"):
		return slog.LevelDebug, true
	case equalWord(name, "INFO"):
		return slog.LevelInfo, true
	case equalWord(name, "WARN"), equalWord(name, "WARNING"):
		return slog.LevelWarn, true
	case equalWord(name, "ERR"), equalWord(name, "ERROR"):
		return slog.LevelError, true
	}
	return 0, false
}

func equalWord(a, b string) bool { return bytes.EqualFold([]byte(a), []byte(b)) }

// Level is that of what is written.
func (l *Logs) Level() slog.Level { return l.level.Level() }

// SetLevel changes what is written from now on.
func (l *Logs) SetLevel(level slog.Level) {
	l.level.Set(level)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lowerLocked()
}

func (l *Logs) lowerLocked() {
	lowest := l.level.Level()
	if l.kept != nil {
		lowest = min(lowest, slog.LevelDebug)
	}
	for f := range l.followers {
		lowest = min(lowest, f.level)
	}
	l.lowest.Store(int64(lowest))
}

// Logger returns a logger into l.
func (l *Logs) Logger() *slog.Logger {
	opts := &slog.HandlerOptions{Level: slog.Level(-128), ReplaceAttr: nameTrace}
	buf := &bytes.Buffer{}
	mu := &sync.Mutex{}
	return slog.New(&logHandler{logs: l, mu: mu, buf: buf,
		forms: [...]slog.Handler{asText: slog.NewTextHandler(buf, opts), asJSON: slog.NewJSONHandler(buf, opts),
			asLine: &lineHandler{buf: buf}}})
}

func nameTrace(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.LevelKey {
		if level, ok := a.Value.Any().(slog.Level); ok && level < slog.LevelDebug {
			a.Value = slog.StringValue("TRACE")
		}
	}
	return a
}

// The forms of a line.
const (
	asText = iota // the log's own
	asJSON        // both
	asLine        // for who follows
	formCount
)

func logForm(json bool, plain int) int {
	if json {
		return asJSON
	}
	return plain
}

// logHandler renders records into one buffer.
type logHandler struct {
	logs  *Logs
	mu    *sync.Mutex // guards buf; shared by all handlers made from one Logger
	buf   *bytes.Buffer
	forms [formCount]slog.Handler
}

// each is the handler with another for each form.
func (h *logHandler) each(next func(slog.Handler) slog.Handler) slog.Handler {
	copied := *h
	for i, f := range h.forms {
		copied.forms[i] = next(f)
	}
	return &copied
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return int64(level) >= h.logs.lowest.Load()
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.each(func(f slog.Handler) slog.Handler { return f.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	return h.each(func(f slog.Handler) slog.Handler { return f.WithGroup(name) })
}

func (h *logHandler) render(ctx context.Context, r slog.Record, form int) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buf.Reset()
	if err := h.forms[form].Handle(ctx, r); err != nil {
		return nil
	}
	return bytes.Clone(h.buf.Bytes())
}

// Handle implements slog.Handler; it never waits and never fails.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	l := h.logs
	var lines [formCount][]byte
	line := func(form int) []byte {
		if lines[form] == nil {
			lines[form] = h.render(ctx, r, form)
		}
		return lines[form]
	}
	if r.Level >= l.level.Level() {
		select {
		case l.queue <- line(logForm(l.json, asText)):
		default:
			l.dropped.Add(1)
		}
	}
	if l.keeps(r.Level) {
		l.kept.add(line(asJSON))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for f := range l.followers {
		if r.Level >= f.level {
			select {
			case f.lines <- line(logForm(f.json, asLine)):
			default: // a slow follower loses lines, never the log its pace
			}
		}
	}
	return nil
}

// Run writes lines until ctx ends, then those that are queued.
func (l *Logs) Run(ctx context.Context) error {
	for {
		select {
		case line := <-l.queue:
			l.write(line)
		case <-ctx.Done():
			l.Flush()
			return nil
		}
	}
}

// Flush writes what is queued; for the end of a process, after Run.
func (l *Logs) Flush() {
	for {
		select {
		case line := <-l.queue:
			l.write(line)
		default:
			return
		}
	}
}

func (l *Logs) write(line []byte) {
	if n := l.dropped.Swap(0); n > 0 {
		r := slog.NewRecord(time.Now(), slog.LevelWarn,
			"log lines were dropped because the log could not be written fast enough", 0)
		r.AddAttrs(slog.Uint64("lines", n))
		h, _ := l.Logger().Handler().(*logHandler)
		_, _ = l.out.Write(h.render(context.Background(), r, logForm(l.json, asText)))
	}
	_, _ = l.out.Write(line)
}

// Dropped returns how many lines wait to be reported as dropped.
func (l *Logs) Dropped() uint64 { return l.dropped.Load() }

// Follow writes lines of level and above to w until ctx ends or a write fails.
// flush is called after each batch of lines. A follower that is too slow loses lines.
func (l *Logs) Follow(ctx context.Context, level slog.Level, json bool, w io.Writer, flush func()) error {
	f := &follower{level: level, json: json, lines: make(chan []byte, followQueueLines)}
	l.mu.Lock()
	l.followers[f] = struct{}{}
	l.lowerLocked()
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.followers, f)
		l.lowerLocked()
		l.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case line := <-f.lines:
			if _, err := w.Write(line); err != nil {
				return err
			}
			for range len(f.lines) {
				if _, err := w.Write(<-f.lines); err != nil {
					return err
				}
			}
			flush()
		}
	}
}
