package ws

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/kit/polltest"
)

// taker is a Handler made of functions.
type taker struct {
	link  Link
	begin func(Link) error
	take  func(ctx context.Context, l Link, b []byte) error
	ended chan error
}

func (h *taker) Begin(l Link) error {
	h.link = l
	if h.begin != nil {
		return h.begin(l)
	}
	return nil
}

func (h *taker) Message(ctx context.Context, b []byte) error { return h.take(ctx, h.link, b) }

func (h *taker) Ended(err error) {
	if h.ended != nil {
		h.ended <- err
	}
}

// loop serves every connection with what of makes.
func loop(t testing.TB, secure bool, cfg LoopConfig, of func() *taker) string {
	t.Helper()
	l, err := NewLoop(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Upgrade(w, r, http.Header{"X-Twice": {"one", "two"}}, nil)
		if err == nil {
			l.Serve(c, of())
		}
	}))
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return "ws" + strings.TrimPrefix(s.URL, "http")
}

func echoing() *taker {
	return &taker{take: func(_ context.Context, l Link, b []byte) error { return l.Send(NewMessage(b)) }}
}

func TestLoopEchoes(t *testing.T) {
	for _, secure := range []bool{false, true} {
		c := dial(t, loop(t, secure, LoopConfig{}, echoing))
		for _, n := range []int{0, 1, 125, 126, 127, 32<<10 - 8, 32 << 10, 65535, 65536, 1 << 20} {
			want := bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n]
			if err := c.Write(want); err != nil {
				t.Fatal(err)
			}
			if got, err := c.Read(nil); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("TLS %v, %d bytes: %d came back, %v", secure, n, len(got), err)
			}
		}
		for range 100 { // many at once
			if err := errors.Join(c.Write([]byte("x")), c.Flush()); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			if got, err := c.Read(nil); err != nil || string(got) != "x" {
				t.Fatal(got, err)
			}
		}
	}
}

// upgraded opens a connection and gives its bytes to the test.
func upgraded(t *testing.T, url string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(url, "ws://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(polltest.Deadline))
	fmt.Fprint(nc, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: "+
		"13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	readUntil(t, nc, "\r\n\r\n")
	return nc
}

// The frames of RFC 6455, section 5.7, in parts as small as they get.
func TestLoopTakesFramesInPieces(t *testing.T) {
	nc := upgraded(t, loop(t, false, LoopConfig{}, echoing))
	in := append([]byte{0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58},
		0x01, 0x83, 0, 0, 0, 0, 'H', 'e', 'l', 0x89, 0x82, 0, 0, 0, 0, 'h', 'i', 0x80, 0x82, 0, 0, 0, 0, 'l', 'o')
	for i := range in {
		if _, err := nc.Write(in[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	want := append([]byte{0x82, 5}, "Hello"...)
	want = append(append(append(want, 0x8a, 2, 'h', 'i'), 0x82, 5), "Hello"...)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(nc, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("% x, %v", got, err)
	}
}

func TestLoopRefusesWhatConnRefuses(t *testing.T) {
	mask := []byte{0, 0, 0, 0}
	for name, c := range map[string]struct {
		in   []byte
		code int
	}{
		"no mask": {[]byte{0x82, 1, 'x'}, CloseProtocol}, "reserved bits": {append([]byte{0xf2, 0x80}, mask...),
			CloseProtocol},
		"goes on": {append([]byte{0x80, 0x80}, mask...), CloseProtocol},
		"begins twice": {append(append([]byte{0x02, 0x80}, mask...), append([]byte{0x82, 0x80}, mask...)...),
			CloseProtocol},
		"opcode":        {append([]byte{0x83, 0x80}, mask...), CloseProtocol},
		"ping in parts": {append([]byte{0x09, 0x80}, mask...), CloseProtocol},
		"too big":       {append([]byte{0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0}, mask...), CloseTooBig},
		"too big in parts": {append(append([]byte{0x02, 0x81}, append(mask, 'x')...),
			append([]byte{0x80, 0xfe, 4, 0}, mask...)...), CloseTooBig},
		"a status of one byte": {append(append([]byte{0x88, 0x81}, mask...), 3), CloseProtocol},
	} {
		ended := make(chan error, 1)
		url := loop(t, false, LoopConfig{Limits: Limits{MessageBytes: 1 << 10}},
			func() *taker { h := echoing(); h.ended = ended; return h })
		nc := upgraded(t, url)
		if _, err := nc.Write(c.in); err != nil {
			t.Fatal(name, err)
		}
		answer, _ := io.ReadAll(nc) // a reset may follow what it told
		var closed *CloseError
		if err := polltest.Get(t, ended, "the end: %s", name); !errors.As(err, &closed) || closed.Code != c.code {
			t.Errorf("%s: %v", name, err)
		}
		if len(answer) < 4 || answer[0] != 0x88 || int(answer[2])<<8|int(answer[3]) != c.code {
			t.Errorf("%s: the peer was told % x", name, answer)
		}
	}
}

// Nothing holds a goroutine for a connection that waits, and a message that waits holds up its own connection alone.
func TestLoopHoldsNobodyUp(t *testing.T) {
	if runtime.GOOS != "linux" {
		loud.Skip(t, "connections have goroutines of their own where there is no epoll")
	}
	const quiet, stuck = 400, 50
	release := make(chan struct{})
	var waiting atomic.Int32
	url := loop(t, false, LoopConfig{Workers: 2}, func() *taker {
		return &taker{take: func(ctx context.Context, l Link, b []byte) error {
			if string(b) == "wait" {
				waiting.Add(1)
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			return l.Send(NewMessage(b))
		}}
	})
	var all []*Conn
	for range quiet {
		all = append(all, dial(t, url))
	}
	before := runtime.NumGoroutine()
	if before > quiet { // none of the client's own reads
		t.Fatalf("%d goroutines for %d connections", before, quiet)
	}
	for _, c := range all[:stuck] {
		if err := errors.Join(c.Write([]byte("wait")), c.Write([]byte("after"))); err != nil {
			t.Fatal(err)
		}
	}
	polltest.Until(t, func() bool { return waiting.Load() == stuck }, "all that are to wait")
	for _, c := range all[stuck:] {
		if err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if b, err := c.Read(nil); err != nil || string(b) != "hello" {
			t.Fatalf("%q, %v", b, err)
		}
	}
	close(release)
	for _, c := range all[:stuck] {
		for _, want := range []string{"wait", "after"} {
			if b, err := c.Read(nil); err != nil || string(b) != want {
				t.Fatalf("%q, %v", b, err)
			}
		}
	}
}

// A worker that waits for something else than its context is replaced, too.
func TestLoopGetsOverStuckWorkers(t *testing.T) {
	release := make(chan struct{})
	url := loop(t, false, LoopConfig{Workers: 1}, func() *taker {
		return &taker{take: func(_ context.Context, l Link, b []byte) error {
			if string(b) == "stick" {
				<-release
			}
			return l.Send(NewMessage(b))
		}}
	})
	a, b := dial(t, url), dial(t, url)
	defer close(release)
	if err := errors.Join(a.Write([]byte("stick")), b.Write([]byte("hello"))); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Read(nil); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
}

// A message's wait ends by itself, and what its context was used for afterwards does no harm to the next message.
func TestLoopBoundsAMessagesWait(t *testing.T) {
	for _, secure := range []bool{false, true} {
		c := dial(t, loop(t, secure, LoopConfig{Take: time.Millisecond}, func() *taker {
			return &taker{take: func(ctx context.Context, l Link, b []byte) error {
				if string(b) == "fine" {
					return l.Send(NewMessage([]byte(fmt.Sprint(ctx.Err()))))
				}
				within, cancel := context.WithCancel(ctx)
				defer cancel()
				<-within.Done()
				return l.Send(NewMessage([]byte(within.Err().Error())))
			}}
		}))
		for range 3 {
			for in, want := range map[string]string{"wait": "context deadline exceeded", "fine": "<nil>"} {
				if err := c.Write([]byte(in)); err != nil {
					t.Fatal(err)
				}
				if b, err := c.Read(nil); err != nil || string(b) != want {
					t.Fatalf("TLS %v: %q, %v", secure, b, err)
				}
			}
		}
	}
}

// Who does not read is cut once its queue is full or its time is over; who reads again gets all, whole and in order.
func TestLoopSlowReaders(t *testing.T) {
	if runtime.GOOS != "linux" {
		loud.Skip(t, "of the poller")
	}
	links := make(chan Link, 3)
	ended := make(chan error, 3)
	const size = 1 << 20
	url := loop(t, false, LoopConfig{Limits: Limits{Queue: 40, Write: 2 * time.Second}}, func() *taker {
		return &taker{begin: func(l Link) error { links <- l; return nil },
			take: func(context.Context, Link, []byte) error { return nil }, ended: ended}
	})
	flooded := upgraded(t, url)
	l := polltest.Get(t, links, "a link")
	var err error
	for range 100 {
		if err = l.Send(NewMessage(make([]byte, size))); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrSlow) {
		t.Fatal(err)
	}
	if err := polltest.Get(t, ended, "the end of who does not read"); !errors.Is(err, ErrSlow) {
		t.Fatal(err)
	}
	_ = flooded.Close()

	upgraded(t, url) // never reads
	l = polltest.Get(t, links, "a link")
	for range 30 {
		if err := l.Send(NewMessage(make([]byte, size))); err != nil {
			t.Fatal(err)
		}
	}
	if err := polltest.Get(t, ended, "the end of a write that takes too long"); !errors.Is(err, ErrSlow) {
		t.Fatal(err)
	}

	c := dial(t, url)
	l = polltest.Get(t, links, "a link")
	for i := range 30 {
		if err := l.Send(NewMessage(bytes.Repeat([]byte{byte(i)}, size))); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.CloseWith(CloseGoingAway, "enough"); err != nil {
		t.Fatal(err)
	}
	if err := l.Send(NewMessage(nil)); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		b, err := c.Read(nil)
		if err != nil {
			var closed *CloseError
			if !errors.As(err, &closed) || closed.Code != CloseGoingAway {
				t.Fatalf("message %d: %v", i, err)
			}
			break
		}
		if len(b) != size || bytes.Count(b, []byte{byte(i)}) != size {
			t.Fatalf("message %d has %d bytes, and begins with %d", i, len(b), b[0])
		}
	}
	var closed *CloseError
	if err := polltest.Get(t, ended, "the end in order"); !errors.As(err, &closed) || !closed.Clean() {
		t.Fatal(err)
	}
}

func TestLoopEndsTheSilent(t *testing.T) {
	for _, secure := range []bool{false, true} {
		ended := make(chan error, 1)
		url := loop(t, secure, LoopConfig{Limits: Limits{Idle: time.Second}},
			func() *taker { h := echoing(); h.ended = ended; return h })
		c := dial(t, url)
		if err := polltest.Get(t, ended, "a silent peer is given up"); !isTimeout(err) {
			t.Fatal(err)
		}
		if _, err := c.Read(nil); err == nil {
			t.Fatal("the connection goes on")
		}
	}
}

// The end of a loop ends its connections, and tells all handlers once.
func TestLoopEnds(t *testing.T) {
	for _, secure := range []bool{false, true} {
		l, err := NewLoop(LoopConfig{})
		if err != nil {
			t.Fatal(err)
		}
		var ended atomic.Int32
		var served sync.WaitGroup
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c, err := Upgrade(w, r, http.Header{"X-Twice": {"one", "two"}}, nil); err == nil {
				h := echoing()
				h.ended = make(chan error, 1)
				l.Serve(c, h)
				served.Go(func() { <-h.ended; ended.Add(1) })
			}
		}))
		if secure {
			s.StartTLS()
		} else {
			s.Start()
		}
		defer s.Close()
		url := "ws" + strings.TrimPrefix(s.URL, "http")
		early := dial(t, url) // before Run
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		if err := early.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if b, err := early.Read(nil); err != nil || string(b) != "hello" {
			t.Fatalf("%q, %v", b, err)
		}
		for range 20 {
			dial(t, url)
		}
		cancel()
		if err := polltest.Get(t, done, "Run returns"); err != nil {
			t.Fatal(err)
		}
		late, _, err := Dial(t.Context(), url, nil, &tls.Config{InsecureSkipVerify: true}, nil) // httptest's own certificate
		if err != nil {
			t.Fatal(err)
		}
		if _, err := late.Read(nil); err == nil {
			t.Fatal("a loop that ended goes on")
		}
		_ = late.Close()
		polltest.Until(t, func() bool { return ended.Load() == 22 }, "all handlers to be told")
		served.Wait()
	}
}

// Frames in any pieces mean what Conn reads of them.
func FuzzLoopFrames(f *testing.F) {
	f.Add([]byte{0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58}, uint8(3))
	f.Add([]byte{0x01, 0x81, 0, 0, 0, 0, 'H', 0x80, 0x81, 0, 0, 0, 0, 'i', 0x88, 0x80, 0, 0, 0, 0}, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		compareFrames(t, b, int(piece)+1)
	})
}

func BenchmarkLoopMessage(b *testing.B) {
	c, _, err := Dial(b.Context(), loop(b, false, LoopConfig{}, echoing), nil, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	payload := make([]byte, 600)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Write(payload); err != nil {
			b.Fatal(err)
		}
		if buf, err = c.Read(buf[:0]); err != nil {
			b.Fatal(err)
		}
	}
}
