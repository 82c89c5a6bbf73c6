package uiapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	maxStreams = 2000 // on a server
	maxTopics  = 64   // of a stream
	// pace is the least time between two lines of one topic: nobody reads faster.
	pace = 250 * time.Millisecond
	// recheck is how long a topic waits before the person's rights are asked for anew.
	recheck = 5 * time.Second
	// beat is the longest silence: a browser whose server froze hears it.
	beat = 10 * time.Second
	// patience is how long a browser may take for what it is sent.
	patience = 10 * time.Second
)

// Line is one line of a stream: a topic as it is now, or why it cannot be told. A line without a topic is a heartbeat.
type Line struct {
	Topic string `json:"topic"`
	Index uint64 `json:"index"`
	Value any    `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
	// Same are, in a heartbeat, the topics that are known to be what was told.
	Same map[string]Same `json:"same,omitempty"`
}

// Same is a topic that has not changed.
type Same struct {
	Index     uint64 `json:"index"`
	AgeMillis int64  `json:"ageMillis"` // how long ago that was looked at
}

// subscription asks for a topic, with its query behind a question mark, and the index that the page has.
type subscription struct {
	Name  string `json:"name"`
	Since uint64 `json:"since"`
}

// lines keeps the newest line of each topic until it is written.
type lines struct {
	mu   sync.Mutex
	next map[string]Line
	same map[string]unchanged // since the last heartbeat
	some chan struct{}        // holds one when there is something
}

// unchanged is what a topic still was at a time.
type unchanged struct {
	index uint64
	at    time.Time
}

func (l *lines) put(line Line) {
	l.mu.Lock()
	l.next[line.Topic] = line
	delete(l.same, line.Topic)
	l.mu.Unlock()
	select {
	case l.some <- struct{}{}:
	default:
	}
}

func (l *lines) take() map[string]Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.next
	l.next = map[string]Line{}
	return out
}

// keep has the next heartbeat say that a topic is what it was.
func (l *lines) keep(topic string, u unchanged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.same[topic] = u
}

// beat is a heartbeat.
func (l *lines) beat() Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := Line{Same: map[string]Same{}}
	for topic, u := range l.same {
		line.Same[topic] = Same{u.index, time.Since(u.at).Milliseconds()}
	}
	clear(l.same)
	return line
}

func (a *API) stream(w http.ResponseWriter, r *http.Request) {
	p, end, ok := a.person(w, r)
	if !ok {
		return
	}
	var in struct {
		Topics []subscription `json:"topics"`
	}
	if !read(w, r, &in) {
		return
	}
	if n := len(in.Topics); n == 0 || n > maxTopics {
		http.Error(w, fmt.Sprintf("topics: %d, want 1 to %d", n, maxTopics), http.StatusBadRequest)
		return
	}
	if a.streams.Add(1) > maxStreams {
		a.streams.Add(-1)
		w.Header().Set("Retry-After", "5")
		http.Error(w, "this server has as many open pages as it can serve", http.StatusServiceUnavailable)
		return
	}
	defer a.streams.Add(-1)
	ctx, cancel := context.WithCancel(r.Context())
	out := &lines{next: map[string]Line{}, same: map[string]unchanged{}, some: make(chan struct{}, 1)}
	var followers sync.WaitGroup
	defer followers.Wait()
	defer cancel()
	for _, s := range in.Topics {
		followers.Go(func() { a.follow(ctx, p, s, out) })
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	send(ctx, w, out, end)
}

// follow tells of one topic until the context ends.
func (a *API) follow(ctx context.Context, p Person, s subscription, out *lines) {
	name, text, _ := strings.Cut(s.Name, "?")
	query, err := url.ParseQuery(text)
	t := a.cfg.Topics[name]
	if t == nil {
		err = a.unknown(name)
	}
	if err != nil {
		out.put(Line{Topic: s.Name, Error: err.Error()})
		return
	}
	said := ""
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, recheck)
		value, index, err := t.Wait(within, p, query, s.Since)
		cancel()
		var same Unchanged
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &same):
			out.keep(s.Name, unchanged{s.Since, same.At})
			continue
		case errors.Is(err, context.DeadlineExceeded):
			continue
		case err != nil:
			if err.Error() != said {
				said = err.Error()
				out.put(Line{Topic: s.Name, Error: said})
			}
			s.Since = 0 // what it shows when it may be told again is all of it
			sleep(ctx, recheck)
			continue
		}
		said, s.Since = "", index
		out.put(Line{Topic: s.Name, Index: index, Value: value})
		sleep(ctx, pace)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// send writes lines until the browser leaves, takes nothing for long, or its session ends.
func send(ctx context.Context, w http.ResponseWriter, out *lines, end <-chan struct{}) {
	control := http.NewResponseController(w)
	silent := time.NewTicker(beat)
	defer silent.Stop()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for {
		_ = control.SetWriteDeadline(time.Now().Add(patience)) // where it cannot be set, the server's own holds
		if _, err := w.Write(text.Bytes()); err != nil || control.Flush() != nil {
			return
		}
		text.Reset()
		select {
		case <-out.some:
			for name, line := range out.take() {
				if encoder.Encode(line) != nil {
					_ = encoder.Encode(Line{Topic: name, Error: "this cannot be shown"})
				}
			}
		case <-silent.C:
			_ = encoder.Encode(out.beat())
		case <-end:
			return
		case <-ctx.Done():
			return
		}
	}
}
