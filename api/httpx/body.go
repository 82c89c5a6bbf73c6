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
// contentType is shared, not copied.
func Write(w http.ResponseWriter, r *http.Request, status int, contentType []string, body []byte) {
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
	writeBounded(w, body)
}

// Answers above slowBodyBytes do not fit into the socket's buffers: who does not read
// them within slowBodyTime is cut off, so that it holds no memory for ever.
const (
	slowBodyBytes = 64 << 10
	slowBodyTime  = 30 * time.Second
)

func writeBounded(w http.ResponseWriter, body []byte) {
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
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// TooLarge is the error of a body over its limit.
type TooLarge struct{ LimitBytes int64 }

// Error implements error.
func (e *TooLarge) Error() string {
	return fmt.Sprintf("Request body too large, max size: %d bytes", e.LimitBytes)
}

// ReadBody appends the request's body to b and returns it. A body over limit
// bytes gives *TooLarge; its announced length is refused before it is read.
func ReadBody(r *http.Request, b []byte, limit int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return b, nil
	}
	if r.ContentLength > limit {
		return b, &TooLarge{LimitBytes: limit}
	}
	start := len(b)
	if want := int(r.ContentLength); want > 0 && cap(b)-len(b) <= want {
		grown := make([]byte, len(b), len(b)+want+1)
		copy(grown, b)
		b = grown
	}
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if int64(len(b)-start) > limit {
			return b[:start], &TooLarge{LimitBytes: limit}
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
