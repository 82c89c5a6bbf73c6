package httpx

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"time"

	"corbel.dev/corbel/kit/limit"
)

// minBodyRate is what a client must send, once its grace is over: less is someone who holds a connection.
const minBodyRate = 1 << 10 // bytes per second

// paced gives each request's body BodyGrace, and a second more for each KiB that
// came, to arrive. Only the time that the handler waits for it counts.
func (s *Server) paced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
			b := &heldBody{ReadCloser: r.Body, deadline: http.NewResponseController(w), left: s.cfg.BodyGrace,
				hold: s.cfg.Bytes.Hold(addressOf(r))}
			defer b.hold.End()
			b.extend() // also for handlers that never read it: net/http itself then does
			r.Body = b
		}
		next.ServeHTTP(w, r)
	})
}

// Budgeted has a request hold what is read of it, and what is answered, of a budget, until end; for servers other than
// Server.
func Budgeted(r *http.Request, bytes *limit.Bytes) (held *http.Request, end func()) {
	r = r.WithContext(withBytes(r.Context(), bytes))
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return r, func() {}
	}
	b := &heldBody{ReadCloser: r.Body, hold: bytes.Hold(addressOf(r))}
	r.Body = b
	return r, b.hold.End
}

// addressOf is where a request came from; the zero address for a socket of this host.
func addressOf(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	return from.Addr()
}

type bytesKey struct{}

// withBytes has answers written under ctx count in a budget.
func withBytes(ctx context.Context, bytes *limit.Bytes) context.Context {
	if bytes == nil {
		return ctx
	}
	return context.WithValue(ctx, bytesKey{}, bytes)
}

// heldBody is a request's body, with what the request holds of the budget of bytes, until it is answered.
type heldBody struct {
	io.ReadCloser
	deadline *http.ResponseController // nil: it may take as long as it does
	left     time.Duration
	hold     limit.Hold
}

func (b *heldBody) extend() {
	if b.deadline != nil {
		_ = b.deadline.SetReadDeadline(time.Now().Add(b.left)) // a connection that knows none is not one of ours
	}
}

// Read implements io.Reader.
func (b *heldBody) Read(p []byte) (int, error) {
	if b.deadline == nil {
		return b.ReadCloser.Read(p)
	}
	began := time.Now()
	b.extend()
	n, err := b.ReadCloser.Read(p)
	b.left += time.Duration(n)*time.Second/minBodyRate - time.Since(began)
	if errors.Is(err, io.EOF) {
		_ = b.deadline.SetReadDeadline(time.Time{}) // from here on a read notices only that the client left
	}
	return n, err
}
