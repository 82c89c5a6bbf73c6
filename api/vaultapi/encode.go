package vaultapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/quota"
	"corbel.dev/corbel/secrets/task"
)

func appendJSON(out []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return append(out, "null"...) // of strings, numbers and lists of them: cannot be
	}
	return append(out, text...)
}

var jsonType = []string{"application/json"}

func write(w http.ResponseWriter, status int, contentType []string, body []byte) {
	h := w.Header()
	h["Cache-Control"] = []string{"no-store"}
	if contentType != nil {
		h["Content-Type"] = contentType
	}
	if len(body) > 0 {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	httpx.WriteBounded(w, body)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	write(w, status, jsonType, append(appendJSON(nil, v), '\n'))
}

func writeError(w http.ResponseWriter, status int, texts ...string) {
	if texts == nil {
		texts = []string{}
	}
	writeJSON(w, status, map[string][]string{"errors": texts})
}

// stream writes a body as it comes to be. Its end is the only thing that can go wrong once it has begun.
func stream(w http.ResponseWriter, raw *secrets.Raw) {
	h := w.Header()
	h["Cache-Control"], h["Content-Type"] = []string{"no-store"}, []string{raw.ContentType}
	w.WriteHeader(http.StatusOK)
	flush := func() {}
	if f, ok := w.(http.Flusher); ok {
		flush = f.Flush
	}
	flush()
	_ = raw.Stream(w, flush) // the client left, or sees that it ends
}

// made is an answer before it is written.
type made struct {
	status      int
	contentType []string // nil: no body
	body        []byte
	more        []string // further headers: name, value, name, ...
}

// of makes the answer of the keeper's reply; the body is appended to buf.
func (a *made) of(buf []byte, q *secrets.Request, r *task.Reply) {
	switch {
	case r.Raw != nil:
		a.status, a.contentType, a.body = cmp.Or(r.Raw.Status, http.StatusOK), []string{r.Raw.ContentType}, r.Raw.Body
		a.more = r.Raw.Headers
	case r.Data == nil && r.Token == nil && len(r.Warnings) == 0 && r.Lease == nil && r.Wrap == nil:
		a.status = cmp.Or(r.Status, http.StatusNoContent)
	default:
		a.status, a.contentType, a.body = http.StatusOK, jsonType, r.Envelope(buf, q, true)
		switch {
		case r.Missing:
			a.status = http.StatusNotFound
		case r.Status != 0:
			a.status = r.Status
		}
	}
}

// failed makes the answer of an error.
func (a *made) failed(err error) {
	status, texts := statusOf(err)
	if texts == nil {
		texts = []string{}
	}
	a.status, a.contentType, a.body = status, jsonType, append(appendJSON(nil, map[string][]string{"errors": texts}), '\n')
	if status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests {
		return
	}
	wait := "1"
	var over *quota.Exceeded
	if errors.As(err, &over) {
		wait = strconv.Itoa(max(int(math.Ceil(over.RetryAfter.Seconds())), 1))
		if over.Headers && over.Limit > 0 {
			a.more = []string{"X-Ratelimit-Limit", strconv.FormatFloat(over.Limit, 'f', -1, 64), "X-Ratelimit-Remaining", "0",
				"X-Ratelimit-Reset", wait}
		}
	}
	a.more = append(a.more, "Retry-After", wait)
}

func (a *made) write(w http.ResponseWriter) {
	for i := 0; i < len(a.more); i += 2 {
		w.Header().Add(a.more[i], a.more[i+1])
	}
	write(w, a.status, a.contentType, a.body)
}

// answer writes the keeper's reply. A large one has its place in the budget of bytes until the client has taken it.
func answer(w http.ResponseWriter, r *http.Request, q *secrets.Request, reply *task.Reply) {
	if reply.Raw != nil && reply.Raw.Stream != nil {
		stream(w, reply.Raw)
		return
	}
	var a made
	a.of(nil, q, reply)
	hold, err := httpx.HoldAnswer(r, len(a.body))
	if err != nil {
		fail(w, err)
		return
	}
	defer hold.End()
	a.write(w)
}
