// Package standing ends what lives long when the right to it is taken: streams of events, logs and metrics, watches,
// sessions.
//
// Such a stream was authorised when it began. It asks its Standing before each item, which costs a look at the clock,
// and what waits without items holds a context that ends with the right. Both judge again by the clock, however much
// or little is going on: a token, user, role, policy, group or certificate that is taken away ends the stream within
// Every.
package standing

import (
	"context"
	"io"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
)

// Every is how old a judgement may be. What is promised of a stream is 5 s.
const Every = time.Second

// Standing is the right to one stream. Its methods may be called from any goroutine.
type Standing struct {
	clock clock.Clock
	judge func() error

	mu   sync.Mutex // guards what follows; held while judging
	next time.Time
	err  error
}

// New returns a right that was judged just now, and that judge judges again. judge is called by one goroutine at a
// time; its error is final. It must not wait for long: the stream waits meanwhile.
func New(clk clock.Clock, judge func() error) *Standing {
	if clk == nil {
		clk = clock.Real{}
	}
	return &Standing{clock: clk, judge: judge, next: clk.Now().Add(Every)}
}

// Err returns why the right has ended; nil while it holds.
func (s *Standing) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if now := s.clock.Now(); !now.Before(s.next) {
		s.err = s.judge()
		s.next = s.clock.Now().Add(Every)
	}
	return s.err
}

// Reader reads r for as long as the right holds: then its error is the reason.
func (s *Standing) Reader(r io.Reader) io.Reader { return &reader{s, r} }

type reader struct {
	*Standing
	r io.Reader
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if err := r.Err(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(p)
	if n > 0 { // it may have waited for long
		if ended := r.Err(); ended != nil {
			return 0, ended
		}
	}
	return n, err
}

// Hold returns a context that ends with the right, whose error is then its cause, and otherwise with ctx or release,
// which must be called.
func (s *Standing) Hold(ctx context.Context) (held context.Context, release func()) {
	held, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := s.clock.NewTimer(Every)
		defer t.Stop()
		for {
			select {
			case <-held.Done():
				return
			case <-t.C:
			}
			if err := s.Err(); err != nil {
				cancel(err)
				return
			}
			t.Reset(Every)
		}
	}()
	return held, func() {
		cancel(nil)
		<-done
	}
}
