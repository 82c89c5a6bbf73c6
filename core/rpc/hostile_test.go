package rpc

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// hostilePeers are what a peer may do that wants to cost more than it is. Each must be cut by the server.
var hostilePeers = map[string]func(conn net.Conn, f *http2.Framer) error{
	"no preface": func(conn net.Conn, _ *http2.Framer) error {
		_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		return err
	},
	"half a preface": func(conn net.Conn, _ *http2.Framer) error { // and then silence
		_, err := io.WriteString(conn, preface[:7])
		return err
	},
	"a preface alone": func(conn net.Conn, _ *http2.Framer) error {
		_, err := io.WriteString(conn, preface)
		return err
	},
	"a frame of 16 MiB": func(conn net.Conn, f *http2.Framer) error {
		if err := greet(conn, f); err != nil {
			return err
		}
		_, err := conn.Write([]byte{0xff, 0xff, 0xff, byte(http2.FrameData), 0, 0, 0, 0, 1})
		return err
	},
	"headers without end": func(conn net.Conn, f *http2.Framer) error {
		if err := greet(conn, f); err != nil {
			return err
		}
		block := headers("x-a", strings.Repeat("a", 12<<10))
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block}); err != nil {
			return err
		}
		for range 10_000 { // 120 MB of headers, if somebody takes them
			if err := f.WriteContinuation(1, false, headers("x-b", strings.Repeat("b", 12<<10))); err != nil {
				return nil // cut: as it should be
			}
		}
		return nil
	},
	"a hundred thousand headers": func(conn net.Conn, f *http2.Framer) error {
		if err := greet(conn, f); err != nil {
			return err
		}
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1,
			BlockFragment: headers(":method", "POST")}); err != nil {
			return err
		}
		one := bytes.Repeat(headers("x", "y"), 2000)
		for range 50 {
			if err := f.WriteContinuation(1, false, one); err != nil {
				return nil
			}
		}
		return nil
	},
}

func greet(conn net.Conn, f *http2.Framer) error {
	if _, err := io.WriteString(conn, preface); err != nil {
		return err
	}
	return f.WriteSettings()
}

// headers encodes one header without an entry in the table, so that blocks can be repeated.
func headers(name, value string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	_ = e.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true}) // a buffer takes all
	return b.Bytes()
}

// TestHostilePeers: what a peer sends before it makes a call is bounded in time and memory, and others are served
// meanwhile.
func TestHostilePeers(t *testing.T) {
	addr, _ := serve(t, echoServer(), "127.0.0.1:0")
	c := client(t, ClientConfig{})
	for name, attack := range hostilePeers {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if err := attack(conn, http2.NewFramer(conn, nil)); err != nil {
				t.Fatal(err)
			}
			if got, err := c.Call(t.Context(), addr, "echo", []byte("hello")); err != nil || string(got) != "hello" {
				t.Errorf("others are not served: %q %v", got, err)
			}
			_, err = io.Copy(io.Discard, conn) // until it is cut
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Error("the connection is still there after a minute")
			}
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
				t.Errorf("%d MB were allocated", n>>20)
			}
		})
	}
}
