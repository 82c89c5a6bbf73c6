package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
)

// TestSharedStream: small questions with small and large answers, all at once over one connection; each gets its own.
func TestSharedStream(t *testing.T) {
	s := NewServer(ServerConfig{})
	s.Handle(wire.Anyone, "repeat", func(_ context.Context, req []byte) ([]byte, error) {
		n := binary.LittleEndian.Uint32(req)
		return bytes.Repeat(req[4:], int(n)), nil
	})
	addr, _ := serve(t, s, "127.0.0.1:0")
	c := client(t, ClientConfig{})
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 50 {
				n := uint32(i)
				if i%10 == 9 {
					n = 100_000 // many parts
				}
				word := fmt.Appendf(nil, "%d/%d;", g, i)
				got, err := c.Call(t.Context(), addr, "repeat", append(binary.LittleEndian.AppendUint32(nil, n), word...))
				if err != nil || !bytes.Equal(got, bytes.Repeat(word, int(n))) {
					t.Errorf("%s x %d: %d bytes, %v", word, n, len(got), err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestStopAnswersWhatItTook: calls under way when the server stops are answered; those that come too late are
// refused as not done, and the next server gets them.
func TestStopAnswersWhatItTook(t *testing.T) {
	var done atomic.Int64
	build := func() *Server {
		s := NewServer(ServerConfig{Drain: time.Minute})
		s.Handle(wire.Anyone, "count", func(context.Context, []byte) ([]byte, error) { done.Add(1); return nil, nil })
		return s
	}
	addr, stop := serve(t, build(), "127.0.0.1:0")
	c := client(t, ClientConfig{RetryAfter: time.Millisecond})
	var ok atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				switch _, err := c.Call(context.WithoutCancel(ctx), addr, "count", []byte("x")); {
				case err == nil:
					ok.Add(1)
				case !errkind.Is(err, errkind.Unavailable):
					t.Errorf("a stop in order made an outcome uncertain: %v", err)
				}
			}
		})
	}
	for range 3 {
		before := ok.Load()
		polltest.Until(t, func() bool { return ok.Load() > before+100 }, "calls to be answered")
		stop()
		_, stop = serve(t, build(), addr)
	}
	before := ok.Load()
	polltest.Until(t, func() bool { return ok.Load() > before+100 }, "calls to be answered after the last restart")
	cancel()
	wg.Wait()
	if ok.Load() != done.Load() {
		t.Errorf("%d calls were executed, %d answered", done.Load(), ok.Load())
	}
}

// TestCancelReachesTheHandler over a shared stream that others go on to use.
func TestCancelReachesTheHandler(t *testing.T) {
	s := echoServer()
	entered, left := make(chan struct{}), make(chan struct{})
	s.Handle(wire.Anyone, "hang", func(ctx context.Context, _ []byte) ([]byte, error) {
		close(entered)
		<-ctx.Done()
		close(left)
		return nil, ctx.Err()
	})
	addr, _ := serve(t, s, "127.0.0.1:0")
	c := client(t, ClientConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, addr, "hang", nil)
		got <- err
	}()
	<-entered
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) || !errkind.Is(err, errkind.Unknown) {
		t.Errorf("%v (%v)", err, errkind.Of(err))
	}
	<-left
	if _, err := c.Call(t.Context(), addr, "echo", []byte("x")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestIdleStreamIsGivenUp, so that its connection can be idle and close.
func TestIdleStreamIsGivenUp(t *testing.T) {
	addr, _ := serve(t, echoServer(), "127.0.0.1:0")
	c := client(t, ClientConfig{IdleTimeout: 20 * time.Millisecond})
	for range 2 {
		if _, err := c.Call(t.Context(), addr, "echo", []byte("x")); err != nil {
			t.Fatal(err)
		}
		slot, err := c.target(addr)
		if err != nil {
			t.Fatal(err)
		}
		l := slot.live.Load()
		if l == nil {
			continue
		}
		polltest.Until(t, func() bool {
			l.muxMu.Lock()
			m := l.mux
			l.muxMu.Unlock()
			if m == nil {
				return true
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.ended != nil
		}, "the stream to be given up")
	}
}

func FuzzMuxFrames(f *testing.F) {
	f.Add([]byte{muxCall, 0, 0, 9, 1, 200, 1, 4, 'e', 'c', 'h', 'o', 'x', muxCancel, 0, 0, 1, 1})
	f.Add([]byte{muxPart, 0, 0, 3, 7, 'a', 'b', muxReply, 0, 0, 2, 7, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			frame, rest, err := nextFrame(b)
			if err != nil {
				return
			}
			if len(rest) >= len(b) || len(frame.body)+len(frame.method) > len(b) {
				t.Fatal("a frame longer than what it was cut from")
			}
			b = rest
		}
	})
}
