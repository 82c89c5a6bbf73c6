package logs

import (
	"io"
	"log/slog"
	"sync"
)

// KeptBytes is what a process keeps of its newest lines.
const KeptBytes = 4 << 20

// lineCost is what a kept line takes beside its text, about.
const lineCost = 64

// ring keeps the newest lines, in no more than limit bytes. It grows with what is logged.
type ring struct {
	limit int

	mu    sync.Mutex // guards what follows
	lines [][]byte   // the oldest first; no line changes
	size  int
}

// add takes a line and lets go of the oldest for it. A line beyond the limit is left out.
func (r *ring) add(line []byte) {
	cost := len(line) + lineCost
	if cost > r.limit {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
	r.size += cost
	for r.size > r.limit {
		r.size -= len(r.lines[0]) + lineCost
		r.lines[0] = nil
		r.lines = r.lines[1:]
	}
}

// newest are the lines that are kept, the oldest first.
func (r *ring) newest() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([][]byte(nil), r.lines...)
}

// Keep makes l keep its newest lines in memory, up to so many bytes, from debug on or the level that is written if that
// is lower. Call it before anything is logged.
func (l *Logs) Keep(bytes int) {
	l.kept = &ring{limit: bytes}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lowerLocked()
}

// keeps tells whether lines of a level are kept.
func (l *Logs) keeps(level slog.Level) bool {
	return l.kept != nil && level >= min(l.level.Level(), slog.LevelDebug)
}

// Newest writes the lines that are kept, in JSON, the oldest first; nothing where Keep was not called.
func (l *Logs) Newest(w io.Writer) error {
	if l.kept == nil {
		return nil
	}
	for _, line := range l.kept.newest() {
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}
