package httpx

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// minBodyRate is what a client must send, once its grace is over: less is someone who holds a connection.
const minBodyRate = 1 << 10 // bytes per second

// paced gives each request's body BodyGrace, and a second more for each KiB that
// came, to arrive. Only the time that the handler waits for it counts.
func (s *Server) paced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
			b := &pacedBody{ReadCloser: r.Body, deadline: http.NewResponseController(w), left: s.cfg.BodyGrace}
			b.extend() // also for handlers that never read it: net/http itself then does
			r.Body = b
		}
		next.ServeHTTP(w, r)
	})
}

type pacedBody struct {
	io.ReadCloser
	deadline *http.ResponseController
	left     time.Duration
}

func (b *pacedBody) extend() {
	_ = b.deadline.SetReadDeadline(time.Now().Add(b.left)) // a connection that knows none is not one of ours
}

// Read implements io.Reader.
func (b *pacedBody) Read(p []byte) (int, error) {
	began := time.Now()
	b.extend()
	n, err := b.ReadCloser.Read(p)
	b.left += time.Duration(n)*time.Second/minBodyRate - time.Since(began)
	if errors.Is(err, io.EOF) {
		_ = b.deadline.SetReadDeadline(time.Time{}) // from here on a read notices only that the client left
	}
	return n, err
}
