package nomadapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/hothttp"
)

// Short answers what clients ask for all day without net/http's server: lists, single objects and dispatches. Each
// answer is the one that API.ServeHTTP gives, made by it; what is not plainly such a request is declined, blocking
// queries too, and everything where another server leads. Serve is safe for concurrent use.
type Short struct {
	api   *API
	leads func() bool
}

var _ hothttp.Handler = (*Short)(nil)

// NewShort makes the short path of an API. leads tells whether this server may answer by itself.
func NewShort(a *API, leads func() bool) *Short { return &Short{a, leads} }

// shortLimit bounds one request: what waits for the leader's word waits less.
const shortLimit = time.Minute

// The heads of paths that are served here. An id has no further slash here; ids of jobs that do are net/http's.
var (
	shortLists = words("allocations", "jobs", "nodes", "evaluations", "deployments")
	shortOnes  = words("allocation", "node", "evaluation", "deployment", "job")
	shortOfJob = words("allocations", "summary", "evaluations", "deployments", "deployment", "versions")
)

func words(list ...string) map[string]bool {
	m := map[string]bool{}
	for _, w := range list {
		m[w] = true
	}
	return m
}

// taken reports whether the short path serves a request.
func taken(r *hothttp.Request) bool {
	rest, ok := bytes.CutPrefix(r.Path, []byte("/v1/"))
	if !ok {
		return false
	}
	head, rest, one := bytes.Cut(rest, []byte{'/'})
	id, of, below := bytes.Cut(rest, []byte{'/'})
	if r.Method != hothttp.GET {
		return string(head) == "job" && len(id) > 0 && string(of) == "dispatch"
	}
	switch {
	case bytes.Contains(r.Query, []byte("index")) || bytes.Contains(r.Query, []byte("%")):
		return false // it may be a blocking query
	case !one:
		return shortLists[string(head)]
	case len(id) == 0 || !shortOnes[string(head)]:
		return false
	case !below:
		return true
	}
	return string(head) == "job" && shortOfJob[string(of)]
}

// Serve implements hothttp.Handler.
func (s *Short) Serve(c *hothttp.Call, r *hothttp.Request) hothttp.Outcome {
	if !taken(r) || !s.leads() {
		return hothttp.Decline
	}
	target := string(r.Path)
	if r.Query != nil {
		target += "?" + string(r.Query)
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return hothttp.Decline
	}
	method, body := http.MethodGet, io.ReadCloser(http.NoBody)
	if r.Method != hothttp.GET {
		method = http.MethodPut
		if len(r.Body) > 0 {
			body = io.NopCloser(bytes.NewReader(bytes.Clone(r.Body)))
		}
	}
	w := writers.Get().(*shortWriter)
	w.call = c
	request := &http.Request{Method: method, URL: u, RequestURI: target, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: headerOf(r), Body: body, ContentLength: int64(len(r.Body)), RemoteAddr: c.Remote().String()}
	base := s.api.core.Ending
	if base == nil {
		base = context.Background()
	}
	ctx, cancel := context.WithTimeout(base, shortLimit)
	defer cancel()
	s.serve(w, request.WithContext(ctx))
	w.end()
	w.reset()
	writers.Put(w)
	return hothttp.Done
}

// serve has the API answer. A request that makes it panic ends alone, as net/http's do.
func (s *Short) serve(w *shortWriter, r *http.Request) {
	defer func() {
		if trouble := recover(); trouble != nil {
			s.api.core.Log.Error("a request broke its handler", "method", r.Method, "path", r.URL.Path, "trouble", trouble,
				"stack", string(debug.Stack()))
			clear(w.header)
			w.status, w.body = http.StatusInternalServerError, w.body[:0]
		}
	}()
	s.api.ServeHTTP(w, r)
}

// headerOf are the headers that mean something to the API.
func headerOf(r *hothttp.Request) http.Header {
	h := make(http.Header, 3)
	if r.NomadToken != nil {
		h["X-Nomad-Token"] = []string{string(r.NomadToken)}
	}
	if r.Token != nil {
		h["X-Consul-Token"] = []string{string(r.Token)}
	}
	if r.Gzip {
		h["Accept-Encoding"] = []string{"gzip"}
	}
	return h
}

var writers = sync.Pool{New: func() any { return &shortWriter{header: http.Header{}} }}

// shortWriter is the http.ResponseWriter of one request. An answer that comes in one piece is not copied.
type shortWriter struct {
	call   *hothttp.Call
	header http.Header
	status int
	head   []byte
	body   []byte // what was written in pieces
	sent   bool
}

// keepBytes bounds the buffer that a writer keeps for its next request.
const keepBytes = 64 << 10

func (w *shortWriter) reset() {
	w.call, w.status, w.sent = nil, 0, false
	clear(w.header)
	if w.body = w.body[:0]; cap(w.body) > keepBytes {
		w.body = nil
	}
}

// Header implements http.ResponseWriter.
func (w *shortWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *shortWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write implements http.ResponseWriter.
func (w *shortWriter) Write(p []byte) (int, error) {
	if length := w.header["Content-Length"]; len(length) == 1 && len(w.body) == 0 && !w.sent &&
		length[0] == strconv.Itoa(len(p)) {
		w.send(p)
	} else {
		w.body = append(w.body, p...)
	}
	return len(p), nil
}

// end sends what was written in pieces, or nothing.
func (w *shortWriter) end() {
	if !w.sent {
		w.send(w.body)
	}
}

var newlines = strings.NewReplacer("\n", " ", "\r", " ")

func (w *shortWriter) send(body []byte) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	b := append(w.head[:0], "HTTP/1.1 "...)
	b = append(strconv.AppendInt(b, int64(w.status), 10), ' ')
	b = append(append(b, http.StatusText(w.status)...), "\r\n"...)
	for name, values := range w.header {
		if name == "Content-Length" {
			continue // it is added
		}
		for _, value := range values {
			if strings.ContainsAny(value, "\r\n") {
				value = newlines.Replace(value)
			}
			b = append(append(append(append(b, name...), ": "...), strings.Trim(value, " \t")...), "\r\n"...)
		}
	}
	w.head, w.sent = b, true
	_ = w.call.Reply(b, body) // a client that left is noticed by hothttp
}
