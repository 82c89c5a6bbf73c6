package vaultapi

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/hothttp"
	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/task"
)

// Hot answers plain reads and writes of records without net/http: GET, PUT and POST
// below mounts and auth methods, with X-Vault-Token as the only header that counts. Each answer is
// the one that API.ServeHTTP gives; what is not plainly such a request is declined, and
// API.ServeHTTP gets it. Serve is safe for concurrent use.
type Hot struct{ api *API }

var _ hothttp.Handler = (*Hot)(nil)

// Hot returns the hot path of a.
func (a *API) Hot() *Hot { return &Hot{a} }

var apiPrefix, sysPrefix = []byte("/v1/"), []byte("sys/")

// Serve implements hothttp.Handler.
func (h *Hot) Serve(c *hothttp.Call, r *hothttp.Request) hothttp.Outcome {
	path, ok := bytes.CutPrefix(r.Path, apiPrefix)
	// The system's paths are rare, may take long, and have answers of their own kinds.
	if !ok || len(path) == 0 || r.Query != nil || bytes.HasPrefix(path, sysPrefix) || path[len(path)-1] == '/' ||
		bytes.Contains(r.Path, []byte("/.")) {
		return hothttp.Decline
	}
	k := h.api.cfg.Keeper
	if !k.Active() || h.api.cfg.ForwardedFor.on() || h.api.cfg.MetricsOnly || h.api.cfg.RequestLog != nil ||
		k.AuditsHeaders() {
		return hothttp.Decline
	}
	q := &secrets.Request{ID: requestID(), Path: string(path), Caller: secrets.Caller{Token: string(r.VaultToken)},
		Origin: secrets.Origin{Remote: c.Remote().Addr(),
			RemotePort: c.Remote().Port()}}
	if r.Method != hothttp.GET {
		if int64(len(r.Body)) > h.api.cfg.MaxBodyBytes {
			return hothttp.Decline
		}
		q.Op = secrets.Update
		if trimmed := bytes.TrimSpace(r.Body); len(trimmed) > 0 && trimmed[0] != '{' {
			return hothttp.Decline // it may be a form
		}
		q.Body = bytes.Clone(r.Body)
	}
	ctx := within{deadline: time.Now().Add(h.api.cfg.MaxRequestTime)}
	defer ctx.release()
	reply, err := k.Handle(&ctx, q)
	if errkind.Is(err, errkind.NotLeader) {
		return hothttp.Decline // nothing was done; who leads is net/http's business
	}
	h.answer(c, q, reply, err)
	return hothttp.Done
}

// Heads of the common answers; hothttp ends them.
const (
	headOK        = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Type: application/json\r\n"
	headNoContent = "HTTP/1.1 204 No Content\r\nCache-Control: no-store\r\n"
)

// answer writes what answer and fail write through net/http.
func (h *Hot) answer(c *hothttp.Call, q *secrets.Request, r *task.Reply, err error) {
	a := made{status: http.StatusOK}
	bp := httpx.GetBuffer()
	defer httpx.PutBuffer(bp)
	if err != nil {
		a.failed(err)
	} else {
		a.of((*bp)[:0], q, r)
		if h.api.standbyReads() {
			a.more = append(a.more, indexHeader, h.api.told())
		}
		if a.contentType != nil && r.Raw == nil {
			*bp = a.body
		}
	}
	for name, value := range h.api.headers.Load().of(a.status) {
		a.more = append(a.more, name, value)
	}
	switch {
	case a.status == http.StatusNoContent && a.more != nil:
		_ = c.ReplyNoContent(a.head())
	case a.status == http.StatusNoContent:
		_ = c.ReplyNoContent([]byte(headNoContent)) // a client that left is noticed by hothttp
	case a.status == http.StatusOK && a.contentType != nil && &a.contentType[0] == &jsonType[0] && a.more == nil:
		_ = c.Reply([]byte(headOK), a.body)
	default:
		_ = c.Reply(a.head(), a.body)
	}
}

// head renders the head of an answer of any kind.
func (a *made) head() []byte {
	head := append([]byte("HTTP/1.1 "), strconv.Itoa(a.status)...)
	head = append(append(append(head, ' '), http.StatusText(a.status)...), "\r\nCache-Control: no-store\r\n"...)
	if a.contentType != nil {
		head = append(append(append(head, "Content-Type: "...), a.contentType[0]...), "\r\n"...)
	}
	for i := 0; i < len(a.more); i += 2 {
		head = append(append(append(append(head, a.more[i]...), ": "...), a.more[i+1]...), "\r\n"...)
	}
	return head
}

// within is a context with a deadline that costs nothing until somebody waits for it.
// It belongs to one request; release ends it.
type within struct {
	deadline time.Time
	mu       sync.Mutex
	inner    atomic.Pointer[waited]
}

type waited struct {
	context.Context
	cancel context.CancelFunc
}

// Deadline implements context.Context.
func (w *within) Deadline() (time.Time, bool) { return w.deadline, true }

// Done implements context.Context.
func (w *within) Done() <-chan struct{} {
	if in := w.inner.Load(); in != nil {
		return in.Done()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	in := w.inner.Load()
	if in == nil {
		in = &waited{}
		in.Context, in.cancel = context.WithDeadline(context.Background(), w.deadline)
		w.inner.Store(in)
	}
	return in.Done()
}

// Err implements context.Context.
func (w *within) Err() error {
	if in := w.inner.Load(); in != nil {
		return in.Err()
	}
	if !time.Now().Before(w.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements context.Context.
func (w *within) Value(any) any { return nil }

func (w *within) release() {
	if in := w.inner.Load(); in != nil {
		in.cancel()
	}
}
