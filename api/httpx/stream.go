package httpx

import (
	"compress/gzip"
	"net/http"
)

// Stream is an answer without a known end: logs, metrics. For a client that takes gzip it
// is compressed from its first byte. One goroutine may use it; Close ends it.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	z       *gzip.Writer // nil: sent as it is
}

// NewStream sends the head with status 200, so that the client learns at once that it is
// being served. contentType is shared, not copied.
func NewStream(w http.ResponseWriter, r *http.Request, contentType []string) *Stream {
	s := &Stream{w: w, control: http.NewResponseController(w)}
	h := w.Header()
	h["Content-Type"] = contentType
	h["X-Content-Type-Options"] = noSniff
	h["Vary"] = varyValue
	if AcceptsGzip(r) {
		h["Content-Encoding"] = gzipValue
		s.z = gzipWriter.Get().(*gzip.Writer)
		s.z.Reset(w)
	}
	w.WriteHeader(http.StatusOK)
	s.Flush()
	return s
}

// Write implements io.Writer.
func (s *Stream) Write(p []byte) (int, error) {
	if s.z != nil {
		return s.z.Write(p)
	}
	return s.w.Write(p)
}

// Flush sends what was written so far. A client that left shows at the next Write.
func (s *Stream) Flush() {
	if s.z != nil {
		_ = s.z.Flush()
	}
	_ = s.control.Flush()
}

// Close ends the compressed form; the answer itself ends with its handler.
func (s *Stream) Close() {
	if s.z != nil {
		_ = s.z.Close()
		gzipWriter.Put(s.z)
		s.z = nil
	}
}
