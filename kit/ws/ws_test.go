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
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// serve answers every connection with do, which owns it.
func serve(t testing.TB, secure bool, limits *Limits, do func(*Conn)) string {
	t.Helper()
	var running sync.WaitGroup
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Upgrade(w, r, http.Header{"X-Twice": {"one", "two"}}, limits)
		if err != nil {
			return
		}
		running.Go(func() {
			defer c.Close()
			do(c)
		})
	}))
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(func() { s.Close(); running.Wait() })
	return "ws" + strings.TrimPrefix(s.URL, "http")
}

func echo(c *Conn) {
	var buf []byte
	for {
		var err error
		if buf, err = c.Read(buf[:0]); err != nil {
			return
		}
		if c.Send(NewMessage(buf)) != nil {
			return
		}
	}
}

func dial(t testing.TB, url string) *Conn {
	t.Helper()
	c, header, err := Dial(t.Context(), url, nil, &tls.Config{InsecureSkipVerify: true}, nil) // httptest's own certificate
	if err != nil {
		t.Fatal(err)
	}
	if got := header["X-Twice"]; len(got) != 2 {
		t.Fatalf("a header with two lines came as %q", got)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestEcho(t *testing.T) {
	for _, secure := range []bool{false, true} {
		c := dial(t, serve(t, secure, nil, echo))
		for _, n := range []int{0, 1, 125, 126, 127, bufferBytes - 3, 65535, 65536, 1 << 20} {
			want := bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n]
			if err := c.Write(want); err != nil {
				t.Fatal(err)
			}
			if got, err := c.Read(nil); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("TLS %v, %d bytes: %d came back, %v", secure, n, len(got), err)
			}
		}
	}
}

// talk opens a connection and gives its bytes to the test.
func talk(t *testing.T, limits *Limits, do func(*Conn)) net.Conn {
	t.Helper()
	url := serve(t, false, limits, do)
	nc, err := net.Dial("tcp", strings.TrimPrefix(url, "ws://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(polltest.Deadline))
	fmt.Fprint(nc, "GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: "+
		"WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	head := readUntil(t, nc, "\r\n\r\n")
	if !strings.Contains(head, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n") { // the RFC's example
		t.Fatal(head)
	}
	return nc
}

func readUntil(t *testing.T, r io.Reader, end string) string {
	t.Helper()
	var b []byte
	for !bytes.HasSuffix(b, []byte(end)) {
		var one [1]byte
		if _, err := io.ReadFull(r, one[:]); err != nil {
			t.Fatalf("%v after %q", err, b)
		}
		b = append(b, one[0])
	}
	return string(b)
}

// The examples of RFC 6455, section 5.7, byte for byte.
func TestFramesOfTheRFC(t *testing.T) {
	nc := talk(t, nil, echo)
	hello := []byte{0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58}
	// with a ping between
	parts := []byte{0x01, 0x83, 0, 0, 0, 0, 'H', 'e', 'l', 0x89, 0x82, 0, 0, 0, 0, 'h', 'i', 0x80, 0x82, 0, 0, 0,
		0, 'l', 'o'}
	if _, err := nc.Write(append(hello, parts...)); err != nil {
		t.Fatal(err)
	}
	want := append([]byte{0x82, 5}, "Hello"...)
	want = append(want, 0x8a, 2, 'h', 'i')
	want = append(append(want, 0x82, 5), "Hello"...)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(nc, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("% x, %v", got, err)
	}
}

func TestBrokenProtocolIsRefused(t *testing.T) {
	mask := []byte{0, 0, 0, 0}
	for name, c := range map[string]struct {
		in   []byte
		code int
	}{
		"no mask": {[]byte{0x82, 1, 'x'}, CloseProtocol}, "reserved bits": {append([]byte{0xf2, 0x80}, mask...),
			CloseProtocol},
		"an unknown opcode":     {append([]byte{0x83, 0x80}, mask...), CloseProtocol},
		"nothing to go on with": {append([]byte{0x80, 0x80}, mask...), CloseProtocol},
		"a ping in parts":       {append([]byte{0x09, 0x80}, mask...), CloseProtocol},
		"a long ping":           {append([]byte{0x89, 0xfe, 0, 126}, mask...), CloseProtocol},
		"two beginnings": {append(append([]byte{0x02, 0x80}, mask...), append([]byte{0x82, 0x80}, mask...)...),
			CloseProtocol},
		"a status of a byte": {append(append([]byte{0x88, 0x81}, mask...), 3), CloseProtocol},
		"too big":            {append([]byte{0x82, 0xff, 0, 0, 0, 0, 0, 0, 4, 1}, mask...), CloseTooBig},
		"too big, in parts": {append(append(append([]byte{0x02, 0xfe, 4, 0}, mask...), make([]byte, 1024)...),
			append([]byte{0x80, 0x81}, append(mask, 'x')...)...), CloseTooBig},
		"a length of 64 bits": {append([]byte{0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0}, mask...), CloseProtocol},
	} {
		ends := make(chan error, 1)
		nc := talk(t, &Limits{MessageBytes: 1024}, func(c *Conn) {
			_, err := c.Read(nil)
			ends <- err
		})
		if _, err := nc.Write(c.in); err != nil {
			t.Fatal(err)
		}
		var head [4]byte
		if _, err := io.ReadFull(nc, head[:]); err != nil || head[0] != 0x88 || int(head[2])<<8|int(head[3]) != c.code {
			t.Errorf("%s: % x, %v", name, head, err)
		}
		var closed *CloseError
		if err := polltest.Get(t, ends, "the reader ends"); !errors.As(err, &closed) || closed.Code != c.code ||
			closed.Clean() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClosing(t *testing.T) {
	ends := make(chan error, 1)
	url := serve(t, false, nil, func(c *Conn) {
		_, err := c.Read(nil)
		ends <- err
	})
	c := dial(t, url)
	if err := c.CloseWith(CloseGoingAway, "bye"); err != nil {
		t.Fatal(err)
	}
	var closed *CloseError
	if err := polltest.Get(t, ends, "the server hears of it"); !errors.As(err, &closed) || !closed.Clean() ||
		closed.Text != "bye" {
		t.Fatal(err)
	}
	if err := c.Ping(nil); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	c = dial(t, url)
	_ = c.nc.Close()
	if err := polltest.Get(t, ends, "the server sees the end"); !errors.As(err, &closed) || closed.Clean() {
		t.Fatal(err)
	}
}

func TestSilenceEnds(t *testing.T) {
	ends := make(chan error, 1)
	dial(t, serve(t, false, &Limits{Idle: 50 * time.Millisecond}, func(c *Conn) {
		_, err := c.Read(nil)
		ends <- err
	}))
	if err := polltest.Get(t, ends, "a silent peer is given up"); !errors.Is(err, context.DeadlineExceeded) &&
		!isTimeout(err) {
		t.Fatal(err)
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// Who does not read is closed once its queue is full; sending to it never waits, and pings go before messages.
func TestSlowReader(t *testing.T) {
	sent, read := make(chan error, 1), make(chan error, 1)
	url := serve(t, false, &Limits{Queue: 4}, func(c *Conn) {
		var reader sync.WaitGroup
		defer reader.Wait()
		reader.Go(func() { _, err := c.Read(nil); read <- err })
		big := NewMessage(make([]byte, 1<<20))
		for {
			if err := c.Send(big); err != nil {
				sent <- err
				return
			}
		}
	})
	c := dial(t, url)
	if err := polltest.Get(t, sent, "the sender gives up"); !errors.Is(err, ErrSlow) {
		t.Fatal(err)
	}
	if err := polltest.Get(t, read, "the reader's end"); !errors.Is(err, ErrSlow) {
		t.Fatal(err)
	}
	for { // what was sent before the end comes whole, or not at all
		b, err := c.Read(nil)
		if err != nil {
			return
		}
		if len(b) != 1<<20 {
			t.Fatalf("a message of %d bytes", len(b))
		}
	}
}

func TestManySendersKeepMessagesWhole(t *testing.T) {
	const senders, each = 8, 200
	url := serve(t, false, &Limits{Queue: senders * each}, func(c *Conn) {
		var all sync.WaitGroup
		for s := range senders {
			all.Go(func() {
				m := NewMessage(bytes.Repeat([]byte{byte('a' + s)}, 20_000+s))
				for range each {
					if err := c.Send(m); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		_, _ = c.Read(nil) // until the client goes
	})
	c := dial(t, url)
	for range senders * each {
		b, err := c.Read(nil)
		if err != nil || len(b) != 20_000+int(b[0]-'a') || bytes.Count(b, b[:1]) != len(b) {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
	}
}

func TestHandshakeIsChecked(t *testing.T) {
	url := "http" + strings.TrimPrefix(serve(t, false, nil, echo), "ws")
	good := map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
	for name := range good {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		for k, v := range good {
			if k != name {
				r.Header.Set(k, v)
			}
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusBadRequest {
			t.Errorf("without %s: %s", name, answer.Status)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "who are you?", http.StatusUnauthorized)
	}))
	defer s.Close()
	var refused *Refused
	if _, _, err := Dial(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http"), nil, nil, nil); !errors.As(err, &refused) ||
		refused.Status != 401 || !strings.Contains(refused.Body, "who are you?") {
		t.Error(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func FuzzRead(f *testing.F) {
	f.Add([]byte{0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58})
	f.Fuzz(func(t *testing.T, b []byte) {
		near, far := net.Pipe()
		go func() { // ends with far
			_, _ = io.Copy(io.Discard, far)
		}()
		go func() {
			_, _ = far.Write(b)
			_ = far.Close()
		}()
		l := (&Limits{MessageBytes: 1 << 10}).orDefaults()
		c := newConn(near, &l, false, nil)
		for {
			got, err := c.Read(nil)
			if err != nil {
				break
			}
			if len(got) > 1<<10 {
				t.Fatalf("a message of %d bytes", len(got))
			}
		}
		_ = c.Close()
	})
}

func BenchmarkReadSend(b *testing.B) {
	url := serve(b, false, nil, echo)
	c, _, err := Dial(b.Context(), url, nil, nil, nil)
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

// TestFlushHoldsASenderBack sends far more than the queue holds to a peer that reads when it is told to.
func TestFlushHoldsASenderBack(t *testing.T) {
	const messages, size = 200, 64 << 10
	for _, secure := range []bool{false, true} {
		read := make(chan struct{})
		got := make(chan int, 1)
		url := serve(t, secure, nil, func(c *Conn) {
			<-read
			n := 0
			for n < messages {
				b, err := c.Read(nil)
				if err != nil || len(b) != size {
					break
				}
				n++
			}
			got <- n
			_, _ = c.Read(nil)
		})
		// httptest's own certificate
		c, _, err := Dial(t.Context(), url, nil, &tls.Config{InsecureSkipVerify: true}, &Limits{Queue: 2})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.AfterFunc(50*time.Millisecond, func() { close(read) })
		defer begun.Stop()
		for i := range messages {
			if err := errors.Join(c.Write(make([]byte, size)), c.Flush()); err != nil {
				t.Fatalf("TLS %v, message %d: %v", secure, i, err)
			}
		}
		if n := polltest.Get(t, got, "all messages"); n != messages {
			t.Fatalf("TLS %v: %d messages", secure, n)
		}
		_ = c.Close()
		if err := c.Flush(); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("after the end: %v", err)
		}
	}
}

func TestPongsRepeatWhatThePingHeld(t *testing.T) {
	c := dial(t, serve(t, false, nil, echo))
	pongs := make(chan string, 2)
	c.OnPong(func(b []byte) { pongs <- string(b) })
	if err := errors.Join(c.Write([]byte("before")), c.Ping([]byte("one")), c.Ping(nil),
		c.Write([]byte("after"))); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before", "after"} {
		if b, err := c.Read(nil); err != nil || string(b) != want {
			t.Fatalf("%q, %v", b, err)
		}
	}
	if a, b := polltest.Get(t, pongs, "a pong"), polltest.Get(t, pongs, "a pong"); a != "one" || b != "" {
		t.Fatalf("%q, %q", a, b)
	}
}
