package h2

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/polltest"
	"golang.org/x/net/http2"
)

// short is a deadline that passes while a test waits; all others stay long, so
// that a slow machine meets none of them.
const short = 100 * time.Millisecond

func TestWhoMakesNoProgressIsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		say  func(r *raw)
		want string
	}{
		"no preface": {Config{HandshakeTimeout: short}, func(*raw) {}, "closed"},
		"half a preface": {Config{HandshakeTimeout: short},
			func(r *raw) { _, _ = io.WriteString(r.nc, http2.ClientPreface[:9]) }, "closed"},
		"no first message": {Config{RequestTimeout: short}, func(r *raw) { r.greet(); r.open(1) },
			"status 4 no whole request came in time"},
		"half a message": {Config{RequestTimeout: short},
			func(r *raw) { r.greet(); r.open(1); _ = r.fr.WriteData(1, false, []byte{0, 0, 0}) },
			"status 4 no whole request came in time"},
		"the client's own timeout": {Config{}, func(r *raw) { r.greet(); r.open(1, "grpc-timeout", "20m") },
			"status 4 the call's deadline is over"},
		"no answer to a ping": {Config{KeepAlive: short, KeepAliveTimeout: short}, func(r *raw) { r.greet() },
			"ping, closed"},
		"no streams": {Config{IdleTimeout: short}, func(r *raw) { r.greet() }, "goaway NO_ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Sweep = short / 10
			_, address := serve(t, c.cfg)
			r := connect(t, address)
			c.say(r)
			if got := r.answer(); got != c.want {
				t.Errorf("answered %q, want %q", got, c.want)
			}
		})
	}
}

func TestAMessageWithoutAWindowEndsItsStream(t *testing.T) {
	s, address := serve(t, Config{StallTimeout: short, Sweep: short / 10})
	r := connect(t, address).greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	r.open(1)
	_ = r.fr.WriteData(1, true, message("x"))
	if got := noWindow(r); got != http2.ErrCodeCancel {
		t.Errorf("reset with %v", got)
	}
	if s.Streams() != 0 {
		t.Errorf("%d streams are left", s.Streams())
	}
}

// noWindow reads to the stream's reset.
func noWindow(r *raw) http2.ErrCode {
	for {
		f, err := r.fr.ReadFrame()
		if err != nil {
			r.t.Fatal(err)
		}
		if reset, ok := f.(*http2.RSTStreamFrame); ok {
			return reset.ErrCode
		}
	}
}

// flood sends what next makes until the server has enough.
func flood(t *testing.T, address string, next func(r *raw, n int) error) string {
	r := connect(t, address).greet()
	go func() {
		for n := 0; next(r, n) == nil; n++ {
		}
	}()
	return r.answer()
}

func TestFloodsEndTheConnection(t *testing.T) {
	s, address := serve(t, Config{MaxStreamsPerConn: 10})
	for name, next := range map[string]func(r *raw, n int) error{
		"settings": func(r *raw, _ int) error { return r.fr.WriteSettings() },
		"empty data": func(r *raw, n int) error {
			if n == 0 {
				r.open(1)
			}
			return r.fr.WriteData(1, false, nil)
		},
		"resets": func(r *raw, n int) error {
			r.open(uint32(2*n + 1))
			return r.fr.WriteRSTStream(uint32(2*n+1), http2.ErrCodeCancel)
		},
	} {
		if got := flood(t, address, next); got != "goaway ENHANCE_YOUR_CALM" && got != "closed" {
			t.Errorf("%s: %s", name, got)
		}
	}
	polltest.Within(t, patience, func() bool { return s.Streams() == 0 && s.conns.Load() == 0 },
		"the connections are gone")
}

func TestWhoNeverReadsHoldsLittleAndIsClosed(t *testing.T) {
	s, address := serve(t, Config{StallTimeout: short, Sweep: short / 10})
	r := connect(t, address).greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	_ = r.fr.WriteWindowUpdate(0, 1<<30)
	r.open(1)
	big := message(string(make([]byte, 8000)))
	for r.fr.WriteData(1, false, big) == nil { // until our own writes fail, since the server reads no more
	}
	_ = r.nc.Close()
	polltest.Within(t, patience, func() bool { return s.conns.Load() == 0 && s.partial.Load() == 0 },
		"the connection is gone")
}

func TestHalfReceivedMessagesAreBounded(t *testing.T) {
	_, address := serve(t, Config{MaxPartial: 50_000})
	r := connect(t, address).greet()
	for id := uint32(1); id < 20; id += 2 {
		r.open(id)
		_ = r.fr.WriteData(id, false, append([]byte{0, 0, 1, 0, 0}, make([]byte, 8000)...))
	}
	if got := r.answer(); got != "status 8 the server holds too many half-received requests: try again later" {
		t.Error(got)
	}
}

// TestStrangersAreBounded: who has not said who it is keeps others of its address out, and who has does not.
func TestStrangersAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := limit.NewConns(0, 1, nil)
	serveOn(t, Config{Start: func(s *Stream, method string, _ Metadata) (Call, *Status) {
		if method == "/test.Echo/Echo" {
			go s.Name("somebody") // whoever judges a token does that beside the connection
		}
		return &sink{stream: s}, nil
	}}, conns.Listener(l))
	here := netip.MustParseAddr("127.0.0.1")
	counted := func(open, strangers int) {
		t.Helper()
		polltest.Within(t, patience, func() bool {
			n, s := conns.Open(here)
			return n == open && s == strangers
		}, "%d connections, %d strangers", open, strangers)
	}
	for n := range 3 {
		connect(t, l.Addr().String()).greet().open(1)
		counted(n+1, 0)
	}
	connect(t, l.Addr().String()).greet()
	counted(4, 1)
	if got := connect(t, l.Addr().String()).greet().answer(); got != "closed" {
		t.Errorf("a second stranger: %s", got)
	}
}

// sink is a call that ends once it has a message.
type sink struct {
	refused
	stream *Stream
}

func (c *sink) Message([]byte, time.Time) *Status {
	c.stream.Finish(OK, "")
	return nil
}

// TestLargeRequestsTakeRoom: a request beyond limit.FreeBytes is gathered where the budget has room, and gives it
// back; small ones pass whatever is held.
func TestLargeRequestsTakeRoom(t *testing.T) {
	budget := limit.NewBytes(4<<20, nil)
	s, address := serve(t, Config{Bytes: budget, Start: func(s *Stream, _ string, _ Metadata) (Call, *Status) {
		return &sink{stream: s}, nil
	}})
	ask := func(n int) string {
		r := connect(t, address).greet()
		r.open(1)
		if refused := r.send(n); refused != "" {
			return refused
		}
		return r.answer()
	}
	if got := ask(60_000); got != "status 0" || budget.Stats().High != 0 {
		t.Errorf("a small request: %s, %+v", got, budget.Stats())
	}
	if got := ask(200_000); got != "status 0" || budget.Stats().High < 600_000 {
		t.Errorf("a large request: %s, %+v", got, budget.Stats())
	}
	polltest.Within(t, patience, func() bool { return budget.Stats().Used == 0 }, "what was held is given back")
	rest := budget.Hold(netip.Addr{})
	if err := rest.Add(4 << 20); err != nil {
		t.Fatal(err)
	}
	if got := ask(200_000); got != "status 8 "+errkind.Text(limit.ErrBytes) {
		t.Errorf("without room: %s", got)
	}
	if got := ask(60_000); got != "status 0" {
		t.Errorf("a small request without room: %s", got)
	}
	polltest.Within(t, patience, func() bool { return s.partial.Load() == 0 }, "nothing is left")
}

func TestConnectionsAreBounded(t *testing.T) {
	s, address := serve(t, Config{MaxConns: 2})
	for range 2 {
		r := connect(t, address).greet()
		r.open(1)
		_ = r.fr.WriteData(1, true, nil)
		if got := r.answer(); got != "status 0" {
			t.Fatal(got)
		}
	}
	if got := connect(t, address).greet().answer(); got != "closed" {
		t.Errorf("a connection too many: %s", got)
	}
	if got := s.conns.Load(); got != 2 {
		t.Errorf("%d connections", got)
	}
}

func TestTheEndIsToldToClients(t *testing.T) {
	listener, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Start: startEcho})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, listener) }()
	nc, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	r := connectOn(t, nc).greet()
	r.open(1)
	polltest.Within(t, patience, func() bool { return s.Streams() == 1 }, "the stream is open")
	cancel()
	got := r.answer()
	if got == "goaway NO_ERROR" {
		got = r.answer()
	}
	if got != "status 14 the server is shutting down" {
		t.Errorf("at the end: %s", got)
	}
	_ = nc.Close()
	if err := polltest.Get(t, done, "Run"); err != nil {
		t.Error(err)
	}
}

func TestOtherProtocolsOverTLSAreRefused(t *testing.T) {
	nc, far := net.Pipe()
	defer nc.Close()
	go func() { _ = tls.Client(far, &tls.Config{InsecureSkipVerify: true}).Handshake(); _ = far.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := handshake(ctx, tls.Server(nc, &tls.Config{})); err == nil {
		t.Error("a server without a certificate completed a handshake")
	}
}

func FuzzConnection(f *testing.F) {
	add := func(say func(r *raw)) {
		var b bytes.Buffer
		r := &raw{fr: http2.NewFramer(&b, nil)}
		say(r)
		f.Add(b.Bytes())
	}
	add(func(r *raw) { _ = r.fr.WriteSettings(); r.open(1); _ = r.fr.WriteData(1, true, message("hi")) })
	add(func(r *raw) {
		_ = r.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3})
		r.open(1)
		_ = r.fr.WriteData(1, false, append(message("abc"), message("defgh")...))
		_ = r.fr.WriteWindowUpdate(1, 4)
		_ = r.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		_ = r.fr.WriteRSTStream(1, http2.ErrCodeCancel)
		_ = r.fr.WritePing(false, [8]byte{})
		_ = r.fr.WriteGoAway(0, 0, nil)
	})
	s := New(Config{Start: startEcho, StallTimeout: time.Second})
	f.Fuzz(func(t *testing.T, b []byte) {
		nc := &script{in: bytes.NewReader(append([]byte(http2.ClientPreface), b...))}
		c := newConn(s, nc)
		c.run(context.Background())
		if s.Streams() != 0 || s.partial.Load() != 0 {
			t.Fatalf("%d streams and %d bytes are left", s.Streams(), s.partial.Load())
		}
		out := nc.out.Bytes()
		for len(out) >= 9 { // what we say is whole frames
			size := int(out[0])<<16 | int(out[1])<<8 | int(out[2])
			if len(out) < 9+size || binary.BigEndian.Uint32(out[5:])&^maxWindow != 0 {
				t.Fatal("half a frame was written")
			}
			out = out[9+size:]
		}
	})
}

// script is a connection that says in and keeps what it is told.
type script struct {
	net.Conn
	in     *bytes.Reader
	out    bytes.Buffer
	closed atomic.Bool
}

func (s *script) Read(b []byte) (int, error)       { return s.in.Read(b) }
func (s *script) Write(b []byte) (int, error)      { return s.out.Write(b) }
func (s *script) Close() error                     { s.closed.Store(true); return nil }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
