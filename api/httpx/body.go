package httpx

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
)

// GzipMinBytes is the body size from which an answer is compressed for a client
// that takes gzip: what fits one Ethernet frame gains nothing.
const GzipMinBytes = 1400

// Header values that are shared between all responses: never append to them.
var (
	JSONType   = []string{"application/json"}
	TextType   = []string{"text/plain; charset=utf-8"}
	gzipValue  = []string{"gzip"}
	varyValue  = []string{"Accept-Encoding"}
	noSniff    = []string{"nosniff"}
	buffers    = sync.Pool{New: func() any { return new([]byte) }}
	gzipWriter = sync.Pool{New: func() any {
		w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level is valid
		return w
	}}
)

// maxPooledBytes keeps one huge answer from pinning its buffer for ever.
const maxPooledBytes = 1 << 20

// GetBuffer returns an empty buffer with some capacity; give it back with PutBuffer.
func GetBuffer() *[]byte {
	b := buffers.Get().(*[]byte)
	*b = (*b)[:0]
	return b
}

// PutBuffer gives a buffer back. The caller may not touch its bytes afterwards.
func PutBuffer(b *[]byte) {
	if cap(*b) <= maxPooledBytes {
		buffers.Put(b)
	}
}

// AcceptsGzip reports whether the client takes gzip.
func AcceptsGzip(r *http.Request) bool {
	for _, v := range r.Header["Accept-Encoding"] {
		for part := range strings.SplitSeq(v, ",") {
			name, params, _ := strings.Cut(part, ";")
			if strings.TrimSpace(name) == "gzip" {
				return strings.ReplaceAll(params, " ", "") != "q=0"
			}
		}
	}
	return false
}

// Gzip returns body compressed.
func Gzip(body []byte) []byte {
	out := bytes.NewBuffer(make([]byte, 0, len(body)/4+64))
	z := gzipWriter.Get().(*gzip.Writer)
	z.Reset(out)
	_, _ = z.Write(body) // a bytes.Buffer takes all
	_ = z.Close()
	gzipWriter.Put(z)
	return out.Bytes()
}

// Write answers with body, compressed when the client takes it and it is worth it.
// contentType is shared, not copied. A large body counts in the budget of bytes until the client has taken it;
// where there is no room the answer is 503.
func Write(w http.ResponseWriter, r *http.Request, status int, contentType []string, body []byte) {
	hold, err := HoldAnswer(r, len(body))
	if err != nil {
		w.Header()["Retry-After"] = []string{"1"}
		WriteText(w, http.StatusServiceUnavailable, errkind.Text(err))
		return
	}
	defer hold.End()
	WriteHeld(w, r, status, contentType, body)
}

// WriteHeld is Write for an answer that has its place in the budget already.
func WriteHeld(w http.ResponseWriter, r *http.Request, status int, contentType []string, body []byte) {
	h := w.Header()
	h["Content-Type"] = contentType
	h["Vary"] = varyValue
	if len(body) > GzipMinBytes {
		if AcceptsGzip(r) {
			h["Content-Encoding"] = gzipValue
			body = Gzip(body)
		}
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	if status != http.StatusOK {
		w.WriteHeader(status)
	}
	WriteBounded(w, body)
}

// HoldAnswer finds room in the budget for an answer of n bytes, or fails with limit.ErrBytes. Small ones need none.
func HoldAnswer(r *http.Request, n int) (limit.Hold, error) {
	if n <= limit.FreeBytes {
		return limit.Hold{}, nil
	}
	bytes, _ := r.Context().Value(bytesKey{}).(*limit.Bytes)
	hold := bytes.Hold(addressOf(r))
	return hold, hold.Add(int64(n))
}

// Answers above slowBodyBytes do not fit into the socket's buffers: who does not read
// them within slowBodyTime is cut off, so that it holds no memory for ever.
const (
	slowBodyBytes = 64 << 10
	slowBodyTime  = 30 * time.Second
)

// WriteBounded writes a body to a client that takes it in time.
func WriteBounded(w http.ResponseWriter, body []byte) {
	if len(body) > slowBodyBytes {
		control := http.NewResponseController(w)
		if control.SetWriteDeadline(time.Now().Add(slowBodyTime+time.Duration(len(body)>>20)*time.Second)) == nil {
			defer func() { _ = control.SetWriteDeadline(time.Time{}) }() // the connection goes on
		}
	}
	_, _ = w.Write(body) // a client that left is noticed by the server
}

// WriteText answers with an error text as the contracts want it.
func WriteText(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h["Content-Type"] = TextType
	h["X-Content-Type-Options"] = noSniff
	delete(h, "Content-Encoding")
	delete(h, "Content-Length")
	if len(text) > GzipMinBytes {
		h["Content-Length"] = []string{strconv.Itoa(len(text))} // net/http sends a long one in pieces otherwise
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// TooLarge is the error of a body over its limit.
type TooLarge struct{ LimitBytes int64 }

// Error implements error.
func (e *TooLarge) Error() string {
	return fmt.Sprintf("Request body too large, max size: %d bytes", e.LimitBytes)
}

// heldTimes is how many bytes of the budget one of a large body takes: its buffer grows by doubling, which leaves the
// smaller one to the collector, and what is made of it is as large again.
const heldTimes = 3

// MayBeLarge tells whether a request's body may need room in the budget. Who may not send one is to be told before it
// is read.
func MayBeLarge(r *http.Request) bool {
	return r.ContentLength < 0 || r.ContentLength > limit.FreeBytes
}

// ReadBody appends the request's body to b and returns it. A body over most
// bytes gives *TooLarge; its announced length is refused before it is read. One
// above limit.FreeBytes takes its place in the budget as it comes: limit.ErrBytes
// where there is none.
func ReadBody(r *http.Request, b []byte, most int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return b, nil
	}
	if r.ContentLength > most {
		return b, &TooLarge{LimitBytes: most}
	}
	held, _ := r.Body.(*heldBody)
	start := len(b)
	if held != nil && cap(b) > limit.FreeBytes+1 && MayBeLarge(r) { // a buffer that grew for somebody else
		room := cap(b)
		if r.ContentLength > 0 {
			room = min(room, int(r.ContentLength)+1)
		}
		if err := held.hold.Grow(heldTimes * int64(room)); err != nil {
			return b, err
		}
	}
	for {
		if want := start + int(max(r.ContentLength, 0)) + 1; len(b) == cap(b) || cap(b) < min(want, limit.FreeBytes) {
			next := max(2*cap(b), 512)
			if r.ContentLength > 0 && (next > want || want <= limit.FreeBytes) {
				next = want
			} else if r.ContentLength > limit.FreeBytes {
				next = max(next, limit.FreeBytes) // what is announced is believed only so far
			}
			if next > limit.FreeBytes+1 && held != nil {
				if err := held.hold.Grow(heldTimes * int64(next)); err != nil {
					return b[:start], err
				}
			}
			grown := make([]byte, len(b), next)
			copy(grown, b)
			b = grown
		}
		n, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if int64(len(b)-start) > most {
			return b[:start], &TooLarge{LimitBytes: most}
		}
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return b[:start], err
		}
		if r.ContentLength > 0 && int64(len(b)-start) == r.ContentLength {
			return b, nil // spares the read that would only say EOF
		}
	}
}
