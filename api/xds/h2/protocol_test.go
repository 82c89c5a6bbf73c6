package h2

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// What a client may do wrong, in the manner of h2spec, and what gRPC asks for.
func TestWhatTheServerAnswers(t *testing.T) {
	_, address := serve(t, Config{MaxStreamsPerConn: 3, MaxMessage: 100_000})
	frame := func(r *raw, kind http2.FrameType, flags http2.Flags, id uint32, payload ...byte) {
		_ = r.fr.WriteRawFrame(kind, flags, id, payload)
	}
	cases := []struct {
		name string
		say  func(r *raw)
		want string
	}{
		{"a call", func(r *raw) { r.open(1); _ = r.fr.WriteData(1, true, message("hi")) }, `headers, data "hi", status 0`},
		{"two messages in one frame", func(r *raw) {
			r.open(1)
			_ = r.fr.WriteData(1, true, append(message("a"), message("b")...))
		}, `headers, data "a", data "b", status 0`},
		{"a message in bytes", func(r *raw) {
			r.open(1)
			for _, c := range message("abc") {
				_ = r.fr.WriteData(1, false, []byte{c})
			}
			_ = r.fr.WriteData(1, true, nil)
		}, `headers, data "abc", status 0`},
		{"padding", func(r *raw) { r.open(1); _ = r.fr.WriteDataPadded(1, true, message("p"), make([]byte, 9)) },
			`headers, data "p", status 0`},
		{"headers in pieces", func(r *raw) {
			b := request("/test.Echo/Echo")
			_ = r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:7]})
			_ = r.fr.WriteContinuation(1, false, b[7:20])
			_ = r.fr.WriteContinuation(1, true, b[20:])
			_ = r.fr.WriteData(1, true, message("x"))
		}, `headers, data "x", status 0`},
		{"trailers of the client", func(r *raw) {
			r.open(1)
			_ = r.fr.WriteData(1, false, message("x"))
			_ = r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("a", "b"), EndHeaders: true,
				EndStream: true})
		}, `headers, data "x", status 0`},
		{"no messages", func(r *raw) {
			_ = r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: request("/test.Echo/Echo"),
				EndHeaders: true, EndStream: true})
		}, "status 0"},
		{"an unknown method", func(r *raw) {
			_ = r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: request("/x/y"), EndHeaders: true,
				EndStream: true})
		}, "status 12 no method /x/y"},
		{"an error with odd characters", func(r *raw) { r.open(1); _ = r.fr.WriteData(1, false, message("fail")) },
			"status 5 no %E2%80%9Csuch%E2%80%9D thing"},
		{"compressed", func(r *raw) { r.open(1); _ = r.fr.WriteData(1, false, []byte{1, 0, 0, 0, 0}) },
			"status 12 compressed messages are not taken: send them plain (grpc-encoding: identity)"},
		{"too large", func(r *raw) { r.open(1); _ = r.fr.WriteData(1, false, []byte{0, 0, 2, 0, 0}) },
			"status 8 the request is larger than the server takes"},
		{"half a message", func(r *raw) { r.open(1); _ = r.fr.WriteData(1, true, []byte{0, 0, 0, 0, 9, 1}) },
			"status 13 the stream ended within a message"},
		{"another HTTP method", func(r *raw) {
			_ = r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(":method", "GET", ":scheme", "http",
				":path", "/", "content-type", "application/grpc"), EndHeaders: true, EndStream: true})
		}, "http 405"},
		{"another content type", func(r *raw) {
			_ = r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(":method", "POST", ":scheme", "http",
				":path", "/", "content-type", "application/grpc-web"), EndHeaders: true})
		}, "http 415"},
		{"large headers", func(r *raw) {
			b := request("/test.Echo/Echo", "a", strings.Repeat("x", 15<<10), "b", strings.Repeat("x", 15<<10))
			_ = r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:16000]})
			_ = r.fr.WriteContinuation(1, true, b[16000:])
		}, "status 8 the request's headers are larger than 16 kB"},
		{"names in upper case", func(r *raw) { r.open(1, "Upper", "x") }, "rst PROTOCOL_ERROR"},
		{"an unknown pseudo header", func(r *raw) {
			_ = r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(":odd", "1"), EndHeaders: true})
		}, "rst PROTOCOL_ERROR"},
		{"too many streams", func(r *raw) { r.open(1); r.open(3); r.open(5); r.open(7) }, "rst REFUSED_STREAM"},
		{"ping", func(r *raw) {
			_ = r.fr.WritePing(false, [8]byte{1})
			r.open(1)
			_ = r.fr.WriteData(1, true, nil)
		}, "ping, status 0"},
		{"unknown frames and priorities", func(r *raw) {
			frame(r, 77, 0, 0, 1, 2, 3)
			frame(r, http2.FramePriority, 0, 9, 0, 0, 0, 1, 7)
			r.open(1)
			_ = r.fr.WriteData(1, true, nil)
		}, "status 0"},
		{"an even stream", func(r *raw) { r.open(2) }, "goaway PROTOCOL_ERROR"},
		{"a stream number that went by", func(r *raw) { r.open(5); r.open(3) }, "goaway PROTOCOL_ERROR"},
		{"data before headers", func(r *raw) { _ = r.fr.WriteData(1, false, []byte("x")) }, "goaway PROTOCOL_ERROR"},
		{"data on stream 0", func(r *raw) { frame(r, http2.FrameData, 0, 0, 1) }, "goaway PROTOCOL_ERROR"},
		{"data after the end", func(r *raw) {
			r.open(1)
			_ = r.fr.WriteData(1, true, message("a"))
			_ = r.fr.WriteData(1, false, message("b"))
			r.open(3)
		}, ""},
		{"reset of an idle stream", func(r *raw) { _ = r.fr.WriteRSTStream(1, 0) }, "goaway PROTOCOL_ERROR"},
		{"window update of an idle stream", func(r *raw) { _ = r.fr.WriteWindowUpdate(1, 1) }, "goaway PROTOCOL_ERROR"},
		{"a window of nothing", func(r *raw) { frame(r, http2.FrameWindowUpdate, 0, 0, 0, 0, 0, 0) },
			"goaway PROTOCOL_ERROR"},
		{"a stream's window of nothing", func(r *raw) { r.open(1); frame(r, http2.FrameWindowUpdate, 0, 1, 0, 0, 0, 0) },
			"rst PROTOCOL_ERROR"},
		{"too large a window", func(r *raw) { _ = r.fr.WriteWindowUpdate(0, 1<<31-1) }, "goaway FLOW_CONTROL_ERROR"},
		{"too large a window of a stream", func(r *raw) { r.open(1); _ = r.fr.WriteWindowUpdate(1, 1<<31-1) },
			"rst FLOW_CONTROL_ERROR"},
		{"too large an initial window", func(r *raw) { frame(r, http2.FrameSettings, 0, 0, 0, 4, 0x80, 0, 0, 0) },
			"goaway FLOW_CONTROL_ERROR"},
		{"too small a frame size", func(r *raw) { frame(r, http2.FrameSettings, 0, 0, 0, 5, 0, 0, 0, 1) },
			"goaway PROTOCOL_ERROR"},
		{"settings of a wrong length", func(r *raw) { frame(r, http2.FrameSettings, 0, 0, 1, 2, 3) },
			"goaway FRAME_SIZE_ERROR"},
		{"settings on a stream", func(r *raw) { frame(r, http2.FrameSettings, 0, 1) }, "goaway PROTOCOL_ERROR"},
		{"a ping of a wrong length", func(r *raw) { frame(r, http2.FramePing, 0, 0, 1) }, "goaway FRAME_SIZE_ERROR"},
		{"a frame that is too large", func(r *raw) { frame(r, http2.FrameData, 0, 1, make([]byte, 16385)...) },
			"goaway FRAME_SIZE_ERROR"},
		{"a push promise", func(r *raw) { frame(r, http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, 0, 0, 0, 2) },
			"goaway PROTOCOL_ERROR"},
		{"headers that never decode", func(r *raw) {
			frame(r, http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
		}, "goaway COMPRESSION_ERROR"},
		{"a continuation of nothing", func(r *raw) { frame(r, http2.FrameContinuation, 0, 1, 1) }, "goaway PROTOCOL_ERROR"},
		{"a frame between headers", func(r *raw) {
			_ = r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: request("/test.Echo/Echo")[:9]})
			_ = r.fr.WritePing(false, [8]byte{})
		}, "goaway PROTOCOL_ERROR"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := connect(t, address).greet()
			c.say(r)
			got := r.answer()
			switch {
			case c.name == "data after the end":
				// The stream may be gone or half closed by then: either way the code is the same, or it was over.
				if !strings.Contains(got, "STREAM_CLOSED") && !strings.HasSuffix(got, "status 0") {
					t.Errorf("answered %q", got)
				}
			case got != c.want:
				t.Errorf("answered %q, want %q", got, c.want)
			}
		})
	}
}

func TestWhatIsNotHTTP2(t *testing.T) {
	s, address := serve(t, Config{})
	for name, text := range map[string]string{"HTTP/1.1": "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"noise": strings.Repeat("\x00\xff", 40)} {
		r := connect(t, address)
		_, _ = io.WriteString(r.nc, text)
		if b, _ := io.ReadAll(r.nc); len(b) != 0 {
			t.Errorf("%s: answered %q", name, b)
		}
	}
	r := connect(t, address)
	_, _ = io.WriteString(r.nc, http2.ClientPreface)
	r.open(1) // no settings
	if got := r.answer(); got != "goaway PROTOCOL_ERROR" {
		t.Errorf("no settings: %s", got)
	}
	if s.Streams() != 0 {
		t.Errorf("%d streams are left", s.Streams())
	}
}

func TestMessagesLargerThanTheWindowsArriveWhole(t *testing.T) {
	_, address := serve(t, Config{})
	r := connect(t, address).greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	text := bytes.Repeat([]byte("0123456789"), 12_000)
	r.open(1)
	write := func(b []byte, end bool) {
		for len(b) > 0 {
			n := min(len(b), 8000)
			_ = r.fr.WriteData(1, end && n == len(b), b[:n])
			b = b[n:]
		}
	}
	whole := message(string(text))
	write(whole[:60_000], false) // what the window allows; the rest when the server gives it back
	var got []byte
	sent := false
	for {
		f, err := r.fr.ReadFrame()
		if err != nil {
			t.Fatalf("after %d bytes: %v", len(got), err)
		}
		switch f := f.(type) {
		case *http2.WindowUpdateFrame:
			if f.StreamID == 1 && !sent {
				sent = true
				write(whole[60_000:], true)
			}
		case *http2.DataFrame:
			if len(f.Data()) > 1000 {
				t.Fatalf("a frame of %d bytes passes the window", len(f.Data()))
			}
			got = append(got, f.Data()...)
			_ = r.fr.WriteWindowUpdate(1, uint32(len(f.Data())))
			_ = r.fr.WriteWindowUpdate(0, uint32(len(f.Data())))
		case *http2.HeadersFrame:
			if !f.StreamEnded() {
				continue
			}
			if !bytes.Equal(got, whole) {
				t.Fatalf("%d bytes came back, and not the same", len(got))
			}
			return
		}
	}
}
