package watches

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/bodies"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/standing"
)

const (
	// watchHeartbeat is how often a stream without events says that it lives.
	watchHeartbeat = 15 * time.Second
	// watchWriteTime is how long the client may take for what a stream sends at once;
	// then the connection is cut.
	watchWriteTime = 30 * time.Second
)

// wireWatch is one watch as a client asks for it.
type wireWatch struct {
	ID, Path string
	Index    uint64
}

// watch is one watch of a stream.
type watch struct {
	stream   *watchStream
	id       string
	question *watched
	seen     *watchAnswer // what the client knows; of the writing goroutine
	marked   bool         // in the stream's queue; guarded by its lock
	removed  bool         // guarded by the stream's lock
}

// watchStream is one connection with its watches. Its handler's goroutine writes all.
// What is not written yet is a queue of watches, each at most once, and of each the
// latest answer is sent when its turn comes: a slow reader misses states, not changes.
type watchStream struct {
	id, token string
	events    bool // text/event-stream

	mu      sync.Mutex // guards what follows
	closed  bool
	watches map[string]*watch
	queue   []*watch
	wake    chan struct{} // capacity 1
}

func (s *watchStream) mark(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.marked || w.removed {
		return
	}
	w.marked = true
	s.queue = append(s.queue, w)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// next takes the watch whose turn it is, nil when there is none.
func (s *watchStream) next() *watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 {
		w := s.queue[0]
		s.queue = s.queue[1:]
		if w.marked = false; !w.removed {
			return w
		}
	}
	s.queue = nil
	return nil
}

// add begins watches: all of them, or none with an error.
func (h *Hub) add(s *watchStream, list []wireWatch, remote string) error {
	type ready struct {
		W      *watch
		base   string
		follow bool
		from   uint64
	}
	all := make([]ready, len(list))
	named := make(map[string]bool, len(list))
	for i, in := range list {
		base, follow, from, err := h.watchTarget(in.Path, in.Index)
		if err != nil {
			return err
		}
		if in.ID == "" || named[in.ID] {
			return answer.Invalidf("watch %d: ID %q must be there, and only once", i, in.ID)
		}
		named[in.ID] = true
		w := &watch{stream: s, id: in.ID}
		if from > 0 && !follow {
			w.seen = &watchAnswer{index: from, status: http.StatusOK}
		}
		all[i] = ready{w, base, follow, from}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	limits := &h.Limits
	s.mu.Lock()
	count, closed := len(s.watches)+len(list), s.closed
	for id := range named {
		if s.watches[id] != nil {
			s.mu.Unlock()
			return answer.Invalidf("ID %q is in use on this stream: remove it first", id)
		}
	}
	if closed || count > limits.StreamWatches || h.watches+len(list) > limits.Watches {
		s.mu.Unlock()
		if closed {
			return errStreamGone
		}
		return errkind.Errorf(errkind.Overloaded, "too many watches: a stream may have %d, this agent %d",
			limits.StreamWatches, limits.Watches)
	}
	for _, r := range all {
		s.watches[r.W.id] = r.W
	}
	s.mu.Unlock()
	for _, r := range all {
		h.subscribe(r.W, watchKey{token: s.token, path: r.base}, r.base, r.follow, r.from, remote)
	}
	return nil
}

// remove ends watches by their IDs; those that are not there are no error.
func (h *Hub) remove(s *watchStream, ids []string) {
	var gone []*watch
	s.mu.Lock()
	for _, id := range ids {
		if w := s.watches[id]; w != nil {
			w.removed = true
			delete(s.watches, id)
			gone = append(gone, w)
		}
	}
	s.mu.Unlock()
	var ended []*watched
	for _, w := range gone {
		if q := h.unsubscribe(w); q != nil {
			q.cancel()
			ended = append(ended, q)
		}
	}
	for _, q := range ended {
		q.end()
	}
}

var errStreamGone = errkind.New(errkind.NotFound,
	"there is no such stream here: it ended, another agent holds it, or the token is another; "+
		"open one with POST /v1/watch")

// watchOpen answers with a stream of what its watches see, until the client leaves.
func (h *Hub) watchOpen(q *rows.Request) error {
	var list []wireWatch
	if err := q.Decode(&list); err != nil {
		return err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	s := &watchStream{id: hex.EncodeToString(id[:]), token: q.Token(), watches: map[string]*watch{},
		wake:   make(chan struct{}, 1),
		events: strings.Contains(q.R.Header.Get("Accept"), "text/event-stream")}
	if err := h.open(s); err != nil {
		return err
	}
	defer h.close(s)
	if err := h.add(s, list, q.R.RemoteAddr); err != nil {
		return err
	}
	q.ReleaseBuffer() // the stream may last for days
	header := q.W.Header()
	header["X-Corbel-Stream"] = []string{s.id}
	header["Cache-Control"] = []string{"no-store"}
	header["Content-Type"] = []string{"application/x-ndjson"}
	if s.events {
		header["Content-Type"] = []string{"text/event-stream"}
	}
	q.W.WriteHeader(http.StatusOK)
	_ = streamWatches(q, s) // whoever reads has left, or was too slow
	return rows.ErrAnswered
}

func (h *Hub) open(s *watchStream) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.streams) >= h.Limits.Streams {
		return errkind.Errorf(errkind.Overloaded, "too many streams: this agent holds %d", len(h.streams))
	}
	h.streams[s.id] = s
	return nil
}

func (h *Hub) close(s *watchStream) {
	h.mu.Lock()
	delete(h.streams, s.id)
	h.mu.Unlock()
	s.mu.Lock()
	s.closed = true
	ids := make([]string, 0, len(s.watches))
	for id := range s.watches {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	h.remove(s, ids)
}

// streamWatches writes until the request ends, its token is taken or a write fails.
func streamWatches(q *rows.Request, s *watchStream) error {
	control, clk := http.NewResponseController(q.W), q.Clock
	right := q.Standing() // the watches' questions are judged one by one when they are asked, each time anew
	ctx := q.R.Context()
	look := clk.NewTimer(standing.Every)
	defer look.Stop()
	// One deadline for all that is sent at once, so that a client that reads nothing is
	// cut however small the pieces are.
	arm := func() error {
		err := control.SetWriteDeadline(time.Now().Add(watchWriteTime))
		if errors.Is(err, http.ErrNotSupported) { // no socket: a test
			return nil
		}
		return err
	}
	beat := clk.NewTimer(watchHeartbeat)
	defer beat.Stop()
	line := append([]byte(nil), `{"Stream":"`+s.id+`"}`...)
	for {
		if err := errors.Join(arm(), writeWatchLine(q, s, line)); err != nil {
			return err
		}
		for w := s.next(); w != nil && ctx.Err() == nil && right.Err() == nil; w = s.next() {
			if err := writeWatch(q, s, w); err != nil {
				return err
			}
		}
		if err := errors.Join(control.Flush(), right.Err()); err != nil {
			return err
		}
		line = line[:0]
		beat.Reset(watchHeartbeat)
		for waits := true; waits; {
			select {
			case <-ctx.Done():
				return nil
			case <-look.C:
				if err := right.Err(); err != nil {
					return err
				}
				look.Reset(standing.Every)
				continue
			case <-s.wake:
			case <-beat.C:
				line = append(line, `{"Heartbeat":true}`...)
			}
			waits = false
		}
	}
}

// writeWatch sends the latest answer of a watch, unless the client knows it.
func writeWatch(q *rows.Request, s *watchStream, w *watch) error {
	a := w.question.latest.Load()
	if a == nil || !a.differs(w.seen) {
		return nil
	}
	b := answer.StringField(q.Buffer(), `{"ID":`, w.id)
	b = answer.UintField(b, `,"Index":`, a.index)
	b = append(b, `,"Status":`...)
	b = strconv.AppendInt(b, int64(a.status), 10)
	switch {
	case a.json:
		b = append(append(b, `,"Body":`...), a.body...)
	case len(a.body) > 0:
		b = answer.StringField(b, `,"Error":`, string(a.body))
	default:
		b = append(b, `,"Body":null`...)
	}
	b = append(b, '}')
	q.Keep(b)
	err := writeWatchLine(q, s, b)
	q.ReleaseBuffer()
	if err != nil {
		return err
	}
	w.seen = a
	if !a.committed.IsZero() {
		q.Notified.Watch.Written.Observe(q.Clock.Since(a.committed))
	}
	if w.question.follow {
		select {
		case w.question.taken <- struct{}{}:
		default:
		}
	}
	return nil
}

func writeWatchLine(q *rows.Request, s *watchStream, line []byte) error {
	if len(line) == 0 {
		return nil
	}
	if s.events {
		_, err := q.W.Write([]byte("data: "))
		if err != nil {
			return err
		}
	}
	if _, err := q.W.Write(line); err != nil {
		return err
	}
	end := "\n"
	if s.events {
		end = "\n\n"
	}
	_, err := q.W.Write([]byte(end))
	return err
}

// watchChange adds watches to a stream that is open, and removes others.
func (h *Hub) watchChange(q *rows.Request) error {
	var in struct {
		Add    []wireWatch
		Remove []string
	}
	b, err := q.Body(q.Limits.BodyBytes)
	if err != nil {
		return err
	}
	if err := bodies.Decode(b, &in); err != nil {
		return err
	}
	h.mu.Lock()
	s := h.streams[q.Rest]
	h.mu.Unlock()
	if s == nil || s.token != q.Token() {
		return errStreamGone
	}
	h.remove(s, in.Remove)
	if err := h.add(s, in.Add, q.R.RemoteAddr); err != nil {
		return err
	}
	s.mu.Lock()
	n := len(s.watches)
	s.mu.Unlock()
	out, err := json.Marshal(struct {
		Stream  string
		Watches int
	}{s.id, n})
	if err != nil {
		return err
	}
	return q.Reply(out)
}
