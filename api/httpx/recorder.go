package httpx

import "net/http"

// Recorder keeps an answer of a handler in memory, for a process that asks its own API.
type Recorder struct {
	Head   http.Header
	Status int // 0 until the answer begins
	Body   []byte
}

// NewRecorder makes an empty one.
func NewRecorder() *Recorder { return &Recorder{Head: http.Header{}} }

// Header implements http.ResponseWriter.
func (r *Recorder) Header() http.Header { return r.Head }

// WriteHeader implements http.ResponseWriter.
func (r *Recorder) WriteHeader(status int) {
	if r.Status == 0 {
		r.Status = status
	}
}

// Write implements http.ResponseWriter.
func (r *Recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	r.Body = append(r.Body, p...)
	return len(p), nil
}
