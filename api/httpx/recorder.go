package httpx

import (
	"net/http"

	"corbel.dev/corbel/kit/errkind"
)

// Answer has a handler answer r in memory, for a process that asks its own API. An answer that the handler gives up in
// the middle is an error of kind Unavailable.
func Answer(h http.Handler, r *http.Request) (*Recorder, error) {
	w := NewRecorder()
	if err := Whole(func() { h.ServeHTTP(w, r) }); err != nil {
		return nil, err
	}
	w.WriteHeader(http.StatusOK)
	return w, nil
}

// Whole runs a handler where no server does. A server recovers from http.ErrAbortHandler, by which a handler ends an
// answer that must not pass for a whole one; anywhere else it would end the process.
func Whole(handle func()) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			err = errkind.New(errkind.Unavailable, "the answer was cut off")
		default:
			panic(p)
		}
	}()
	handle()
	return nil
}

// Recorder keeps an answer of a handler in memory.
type Recorder struct {
	Head   http.Header
	Status int // 0 until the answer begins
	Body   []byte
	Most   int // bytes of body; beyond them Write fails. 0 is no bound
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
	if r.Most > 0 && len(r.Body)+len(p) > r.Most {
		return 0, errkind.New(errkind.TooLarge, "the answer is too large")
	}
	r.Body = append(r.Body, p...)
	return len(p), nil
}
