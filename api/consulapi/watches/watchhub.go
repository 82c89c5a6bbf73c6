// Package watches answers /v1/watch: one connection with any number of watches, each a path that blocks. Watches that
// ask the same with the same token share one question. A slow reader misses states and never changes; who reads
// nothing for 30 s is cut.
package watches

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
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/telemetry"
)

// Hub answers the watches of all streams of this process. Watches that ask the same
// with the same token are one question: one goroutine, one parked query and one encoded
// answer, however many streams wait for it. The goroutine begins with the first watch and
// has ended before the last one's stream forgets it.
type Hub struct {
	*rows.Core
	Table *rows.Table

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
	hub    *Hub
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

// New makes the hub; it starts nothing.
func New(c *rows.Core) *Hub {
	h := &Hub{Core: c, streams: map[string]*watchStream{}, questions: map[watchKey]*watched{}}
	h.meter(c.Metrics)
	return h
}

func (h *Hub) meter(m *telemetry.Registry) {
	for i, name := range []string{"watch.streams", "watch.watches", "watch.questions"} {
		m.GaugeFunc(name, func() float64 {
			streams, watches, questions := h.Counts()
			return float64([]int{streams, watches, questions}[i])
		})
	}
}

// Counts are the streams, their watches, and the questions that these ask.
func (h *Hub) Counts() (streams, watches, questions int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.streams), h.watches, len(h.questions)
}

// Seen is the newest index that is known of a path which watches share; 0 where nobody watches it.
func (h *Hub) Seen(path string) (index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, q := range h.questions {
		if a := q.latest.Load(); key.path == path && !q.follow && a != nil {
			index = max(index, a.index)
		}
	}
	return index
}

// subscribe adds a watch to its question. The caller holds the hub's lock.
func (h *Hub) subscribe(w *watch, key watchKey, base string, follow bool, from uint64, remote string) {
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
func (h *Hub) unsubscribe(w *watch) *watched {
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
	t := q.hub.Clock.NewTimer(d)
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
	w := &rows.Recorder{}
	q.hub.Self(w, r)
	a := &watchAnswer{status: max(w.Status, http.StatusOK), committed: w.Committed}
	a.index, _ = strconv.ParseUint(w.Header().Get("X-Consul-Index"), 10, 64) // absent when it does not block
	switch {
	case len(w.Body) == 0:
	case strings.HasPrefix(w.Header().Get("Content-Type"), "application/json"):
		a.json, a.body = true, onOneLine(w.Body)
	case a.status == http.StatusOK: // ?raw
		b, _ := json.Marshal(w.Body) // bytes always marshal, to base64
		a.json, a.body = true, b
	default:
		a.body = w.Body
	}
	if a.index == 0 && a.status == http.StatusOK {
		return &watchAnswer{status: http.StatusBadRequest, body: []byte("this path does not block: it cannot be watched"),
			final: true}
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

// watchTarget checks a path and splits off what the stream itself decides: where to
// begin, and how long to wait.
func (h *Hub) watchTarget(path string, index uint64) (base string, follow bool, from uint64, err error) {
	u, err := url.ParseRequestURI(path)
	if err != nil || !strings.HasPrefix(path, "/v1/") {
		return "", false, 0, answer.Invalidf("Path %q must be a path of the API, as /v1/health/service/web?passing", path)
	}
	e, _ := h.Table.Find(u.Path)
	if e == nil || e.Rows[rows.GET] == nil || e.Rows[rows.GET].Class != rows.ClassRead {
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

// Routes are the rows of this part of the contract.
func (h *Hub) Routes() []rows.Row {
	return []rows.Row{
		rows.Own("POST", "/v1/watch", acl.NoResource, h.watchOpen),
		rows.Own("POST", "/v1/watch/", acl.NoResource, h.watchChange),
	}
}
