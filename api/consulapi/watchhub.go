package consulapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/telemetry"
)

// watchHub answers the watches of all streams of this process. Watches that ask the same
// with the same token are one question: one goroutine, one parked query and one encoded
// answer, however many streams wait for it. The goroutine begins with the first watch and
// has ended before the last one's stream forgets it.
type watchHub struct {
	api *API

	mu        sync.Mutex // guards what follows; taken before a stream's own lock
	streams   map[string]*watchStream
	questions map[watchKey]*watched
	watches   int
	alone     uint64 // numbers the questions that are not shared
}

// watchKey is what watches that share a question have in common.
type watchKey struct {
	token, path string
	alone       uint64 // not 0: the question of one watch
}

// watched is one path that somebody watches.
type watched struct {
	hub    *watchHub
	key    watchKey
	base   string // the path, and its query without index, since and wait
	remote string // the address of whoever asked first
	follow bool   // by since: each answer is a change after the one before, so none may be skipped
	from   uint64 // where a followed one begins
	cancel context.CancelFunc
	done   chan struct{}
	taken  chan struct{} // follow: capacity 1, the latest answer has been written

	latest atomic.Pointer[watchAnswer]
	subs   map[*watch]struct{} // guarded by the hub's lock
}

// watchAnswer is an answer as it is sent, but for the watch's ID. It is never changed.
type watchAnswer struct {
	index  uint64
	status int
	body   []byte // JSON of one line, or the text of an error
	json   bool
	final  bool // there is nothing to wait for
	// committed is when the change was committed that the answer tells; zero without one.
	committed time.Time
}

// differs tells whether who has seen one answer is to be told another.
func (w *watchAnswer) differs(from *watchAnswer) bool {
	if from == nil || w.index == 0 || from.index == 0 {
		return from == nil || w.status != from.status || w.index != from.index || !bytes.Equal(w.body, from.body)
	}
	return w.index != from.index || w.status != from.status
}

func (h *watchHub) meter(m *telemetry.Registry) {
	gauge := func(name string, of func() int) {
		m.GaugeFunc(name, func() float64 {
			h.mu.Lock()
			defer h.mu.Unlock()
			return float64(of())
		})
	}
	gauge("watch.streams", func() int { return len(h.streams) })
	gauge("watch.watches", func() int { return h.watches })
	gauge("watch.questions", func() int { return len(h.questions) })
}

// subscribe adds a watch to its question. The caller holds the hub's lock.
func (h *watchHub) subscribe(w *watch, key watchKey, base string, follow bool, from uint64, remote string) {
	if follow {
		h.alone++
		key.alone = h.alone
	}
	q := h.questions[key]
	if q == nil {
		q = &watched{hub: h, key: key, base: base, remote: remote, follow: follow, from: from, done: make(chan struct{}),
			taken: make(chan struct{}, 1), subs: map[*watch]struct{}{}}
		h.questions[key] = q
		ctx, cancel := context.WithCancel(context.Background())
		q.cancel = cancel
		go q.run(ctx) // ended and waited for by the last unsubscribe
	}
	q.subs[w] = struct{}{}
	w.question = q
	h.watches++
	if q.latest.Load() != nil {
		w.stream.mark(w)
	}
}

// unsubscribe takes a watch off its question and returns the question when it was the
// last: the caller ends it, without the hub's lock.
func (h *watchHub) unsubscribe(w *watch) *watched {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := w.question
	delete(q.subs, w)
	h.watches--
	if len(q.subs) > 0 {
		return nil
	}
	delete(h.questions, q.key)
	return q
}

// end stops the question's goroutine and waits for it.
func (q *watched) end() {
	q.cancel()
	<-q.done
}

// watchPause bounds how often a question that fails is asked again.
var watchPause = backoff.Backoff{Min: 500 * time.Millisecond, Max: 30 * time.Second}

// run asks until ctx ends or there is nothing to wait for.
func (q *watched) run(ctx context.Context) {
	defer close(q.done)
	pause, index := watchPause, q.from
	for ctx.Err() == nil {
		a := q.ask(ctx, index)
		if ctx.Err() != nil {
			return
		}
		moved := a.differs(q.latest.Load())
		if moved {
			q.publish(a)
		}
		if a.final {
			return
		}
		if a.status != http.StatusOK && a.status != http.StatusNotFound {
			if !q.rest(ctx, pause.Next()) {
				return
			}
			if !q.follow {
				index = 0 // whoever asks again after a failure asks for all
			}
			continue
		}
		pause.Reset()
		index = a.index
		if q.follow && moved {
			select {
			case <-q.taken:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (q *watched) rest(ctx context.Context, d time.Duration) bool {
	t := q.hub.api.cfg.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// publish makes an answer the latest and tells the streams that wait for it.
func (q *watched) publish(a *watchAnswer) {
	q.latest.Store(a)
	q.hub.mu.Lock()
	defer q.hub.mu.Unlock()
	for w := range q.subs {
		w.stream.mark(w)
	}
}

// ask does one blocking query as a client would: the same rights, limits and forwarding.
func (q *watched) ask(ctx context.Context, index uint64) *watchAnswer {
	target, join := q.base, "?"
	if strings.Contains(target, "?") {
		join = "&"
	}
	switch {
	case q.follow:
		target += join + "since=" + strconv.FormatUint(index, 10) + "&wait=5m"
	case index > 0:
		target += join + "index=" + strconv.FormatUint(index, 10) + "&wait=5m"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return &watchAnswer{status: http.StatusBadRequest, body: []byte(err.Error()), final: true}
	}
	r.RequestURI, r.RemoteAddr = target, q.remote
	if q.key.token != "" {
		r.Header.Set("X-Consul-Token", q.key.token)
	}
	w := &watchRecorder{header: http.Header{}}
	q.hub.api.ServeHTTP(w, r)
	a := &watchAnswer{status: max(w.status, http.StatusOK), committed: w.committed}
	a.index, _ = strconv.ParseUint(w.header.Get("X-Consul-Index"), 10, 64) // absent when it does not block
	switch {
	case len(w.body) == 0:
	case strings.HasPrefix(w.header.Get("Content-Type"), "application/json"):
		a.json, a.body = true, onOneLine(w.body)
	case a.status == http.StatusOK: // ?raw
		b, _ := json.Marshal(w.body) // bytes always marshal, to base64
		a.json, a.body = true, b
	default:
		a.body = w.body
	}
	if a.index == 0 && a.status == http.StatusOK {
		return &watchAnswer{status: http.StatusBadRequest, body: []byte("this path does not block: it cannot be watched"), final: true}
	}
	a.final = a.status == http.StatusBadRequest
	return a
}

// onOneLine takes the indentation out of JSON, where there is some.
func onOneLine(b []byte) []byte {
	if bytes.IndexByte(b, '\n') < 0 {
		return b
	}
	var out bytes.Buffer
	if json.Compact(&out, b) != nil {
		return b
	}
	return out.Bytes()
}

// watchRecorder keeps an answer.
type watchRecorder struct {
	header http.Header
	status int
	body   []byte
	// committed is request.committed.
	committed time.Time
}

// Header implements http.ResponseWriter.
func (w *watchRecorder) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *watchRecorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write implements http.ResponseWriter.
func (w *watchRecorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body = append(w.body, p...)
	return len(p), nil
}

// watchTarget checks a path and splits off what the stream itself decides: where to
// begin, and how long to wait.
func (h *watchHub) watchTarget(path string, index uint64) (base string, follow bool, from uint64, err error) {
	u, err := url.ParseRequestURI(path)
	if err != nil || !strings.HasPrefix(path, "/v1/") {
		return "", false, 0, answer.Invalidf("Path %q must be a path of the API, as /v1/health/service/web?passing", path)
	}
	e, _ := h.api.table.find(u.Path)
	if e == nil || e.rows[mGet] == nil || e.rows[mGet].class != read {
		return "", false, 0, answer.Invalidf("Path %q cannot be watched: only reads that block can", path)
	}
	var kept []string
	from = index
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		switch name {
		case "wait", "pretty", "":
		case "token":
			return "", false, 0, answer.Invalidf("Path %q has a token: each watch is read with the stream's own", path)
		case "index", "since":
			follow = follow || name == "since"
			n, err := strconv.ParseUint(value, 10, 64)
			if value != "" && err != nil {
				return "", false, 0, answer.Invalidf("Path %q: invalid %s", path, name)
			}
			from = max(from, n)
		default:
			kept = append(kept, pair)
		}
	}
	base = u.EscapedPath()
	if len(kept) > 0 {
		base += "?" + strings.Join(kept, "&")
	}
	return base, follow, from, nil
}
