package rows

import (
	"net/http"
	"time"
)

// Recorder is an http.ResponseWriter that keeps an answer. Its zero value is ready.
type Recorder struct {
	header http.Header
	Status int
	Body   []byte
	// committed is when the change was committed that the answer of a blocking query tells; zero without one.
	Committed time.Time
}

// Header implements http.ResponseWriter.
func (w *Recorder) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter.
func (w *Recorder) WriteHeader(status int) {
	if w.Status == 0 {
		w.Status = status
	}
}

// Write implements http.ResponseWriter.
func (w *Recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.Body = append(w.Body, p...)
	return len(p), nil
}
