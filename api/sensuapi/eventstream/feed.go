// Package eventstream writes one thing after the other to a reader who stays.
package eventstream

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

const (
	// BeatEvery is how often a reader is told that the stream is alive.
	BeatEvery = 15 * time.Second
	// beatTime is how long a follower may take for what it is sent.
	beatTime = 15 * time.Second
)

// Feed writes one thing after the other to a reader who stays: as lines of JSON, or as server-sent events.
type Feed struct {
	W       *bufio.Writer // what is not flushed yet
	control *http.ResponseController
	events  bool // server-sent
}

// New begins the answer of a reader who stays.
func New(w http.ResponseWriter, r *http.Request) *Feed {
	f := &Feed{W: bufio.NewWriterSize(w, 16<<10), control: http.NewResponseController(w)}
	f.events = strings.Contains(r.Header.Get("Accept"), "text/event-stream")
	h := w.Header()
	h["Content-Type"] = []string{"application/x-ndjson"}
	if f.events {
		h["Content-Type"] = []string{"text/event-stream"}
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	return f
}

// Put writes one thing of a kind ("" is an event). It is sent with the next flush.
func (f *Feed) Put(kind string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if f.events {
		if kind != "" {
			_, _ = f.W.WriteString("event: " + kind + "\n")
		}
		_, _ = f.W.WriteString("data: ")
	}
	_, _ = f.W.Write(b)
	if f.events {
		_ = f.W.WriteByte('\n')
	}
	return f.W.WriteByte('\n') // the first error stays
}

// Beat says that the stream is alive: an empty line, or a comment.
func (f *Feed) Beat() error {
	if f.events {
		_ = f.W.WriteByte(':')
	}
	_ = f.W.WriteByte('\n')
	return f.Flush()
}

// Flush sends what was put; a reader that takes nothing is cut.
func (f *Feed) Flush() error {
	_ = f.control.SetWriteDeadline(time.Now().Add(beatTime)) // a reader that takes nothing is cut
	if err := f.W.Flush(); err != nil {
		return err
	}
	return f.control.Flush()
}

// End tells why there is no more.
func (f *Feed) End(err error, code int) {
	_ = f.Put("error", map[string]any{"error": map[string]any{"message": err.Error(), "code": code}})
	_ = f.Flush()
}
