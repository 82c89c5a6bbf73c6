package h2

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const patience = time.Minute

// echo answers each message with itself.
type echo struct {
	stream *Stream
	queue  [][]byte
	ended  bool
}

func (e *echo) Message(b []byte, _ time.Time) *Status {
	if string(b) == "fail" {
		return &Status{NotFound, "no “such” thing"}
	}
	e.queue = append(e.queue, bytes.Clone(b))
	e.stream.Ready()
	return nil
}

func (e *echo) HalfClose() {
	e.ended = true
	if len(e.queue) == 0 {
		e.stream.Finish(OK, "")
	}
}

func (e *echo) Fill(m *Message, _ time.Time) bool {
	if len(e.queue) == 0 {
		return false
	}
	b := e.queue[0]
	e.queue = e.queue[1:]
	m.Append(b[:len(b)/2])
	m.Shared(b[len(b)/2:])
	if e.ended && len(e.queue) == 0 {
		e.stream.Finish(OK, "")
	}
	return true
}

func (e *echo) Closed() {}

func startEcho(s *Stream, method string, _ Metadata) (Call, *Status) {
	if method != "/test.Echo/Echo" {
		return nil, &Status{Unimplemented, "no method " + method}
	}
	return &echo{stream: s}, nil
}

// serve runs a server on a port of the kernel's choice until the test ends.
func serve(t testing.TB, cfg Config) (*Server, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, cfg, listener), listener.Addr().String()
}

// serveOn is serve on a listener of the test's.
func serveOn(t testing.TB, cfg Config, listener net.Listener) *Server {
	t.Helper()
	if cfg.Start == nil {
		cfg.Start = startEcho
	}
	s := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error("Run:", err)
			}
		case <-time.After(patience):
			t.Error("Run did not return")
		}
	})
	return s
}

// raw is a client that says what the test wants it to.
type raw struct {
	t   testing.TB
	nc  net.Conn
	fr  *http2.Framer
	dec *hpack.Decoder
}

func connect(t testing.TB, address string) *raw {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return connectOn(t, nc)
}

func connectOn(t testing.TB, nc net.Conn) *raw {
	r := &raw{t: t, nc: nc, fr: http2.NewFramer(nc, nc), dec: hpack.NewDecoder(4096, nil)}
	r.fr.AllowIllegalWrites = true
	return r
}

// greet sends the preface and settings.
func (r *raw) greet(settings ...http2.Setting) *raw {
	_, _ = io.WriteString(r.nc, http2.ClientPreface)
	_ = r.fr.WriteSettings(settings...)
	return r
}

func block(pairs ...string) []byte {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for i := 0; i < len(pairs); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1], Sensitive: true})
	}
	return b.Bytes()
}

func request(path string, more ...string) []byte {
	return block(append([]string{":method", "POST", ":scheme", "http", ":path", path, ":authority", "x", "content-type",
		"application/grpc"}, more...)...)
}

func (r *raw) open(id uint32, more ...string) {
	_ = r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: request("/test.Echo/Echo", more...),
		EndHeaders: true})
}

func message(text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

// answer is what the server said, up to the stream's or the connection's end:
// "headers", "data ...", "status N text", "rst CODE", "goaway CODE", "http N", "closed".
func (r *raw) answer() string {
	r.t.Helper()
	var said []string
	for {
		f, err := r.fr.ReadFrame()
		if err != nil {
			if errors.Is(err, io.EOF) || strings.Contains(err.Error(), "reset by peer") {
				return strings.Join(append(said, "closed"), ", ")
			}
			r.t.Fatalf("after %q: %v", said, err)
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			got := r.fields(f)
			switch code, ok := got["grpc-status"]; {
			case ok:
				return strings.Join(append(said, strings.TrimSpace("status "+code+" "+got["grpc-message"])), ", ")
			case got[":status"] != "200":
				return strings.Join(append(said, "http "+got[":status"]), ", ")
			}
			said = append(said, "headers")
		case *http2.DataFrame:
			if n := len(f.Data()); n > 40 {
				said = append(said, fmt.Sprint("data of ", n))
			} else {
				said = append(said, fmt.Sprintf("data %q", f.Data()[5:]))
			}
		case *http2.RSTStreamFrame:
			return strings.Join(append(said, "rst "+f.ErrCode.String()), ", ")
		case *http2.GoAwayFrame:
			return strings.Join(append(said, "goaway "+f.ErrCode.String()), ", ")
		case *http2.PingFrame:
			said = append(said, "ping")
		}
	}
}

func (r *raw) fields(f *http2.HeadersFrame) map[string]string {
	r.t.Helper()
	fields, err := r.dec.DecodeFull(f.HeaderBlockFragment())
	if err != nil {
		r.t.Fatal(err)
	}
	got := map[string]string{}
	for _, h := range fields {
		got[h.Name] = h.Value
	}
	return got
}

// send sends a message of n zeros on stream 1 as fast as the server's windows let it, and ends the client's side. The
// server's status, where it ends the stream before, else "".
func (r *raw) send(n int) string {
	r.t.Helper()
	left := streamWindow
	for b := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(n)), make([]byte, n)...); len(b) > 0; {
		piece := b[:min(len(b), 8000)]
		for left < len(piece) {
			f, err := r.fr.ReadFrame()
			if err != nil {
				r.t.Fatal(err)
			}
			switch f := f.(type) {
			case *http2.WindowUpdateFrame:
				if f.StreamID == 1 {
					left += int(f.Increment)
				}
			case *http2.HeadersFrame:
				if got := r.fields(f); got["grpc-status"] != "" {
					return "status " + got["grpc-status"] + " " + got["grpc-message"]
				}
			}
		}
		b, left = b[len(piece):], left-len(piece)
		if err := r.fr.WriteData(1, len(b) == 0, piece); err != nil {
			r.t.Fatal(err)
		}
	}
	return ""
}
