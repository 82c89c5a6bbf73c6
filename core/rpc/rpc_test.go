package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
)

// serve runs s on a loopback address until the test ends or stop is called.
func serve(tb testing.TB, s *Server, addr string) (at string, stop func()) {
	tb.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				tb.Errorf("Run: %v", err)
			}
		})
	}
	tb.Cleanup(stop)
	return l.Addr().String(), stop
}

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	return conn, errkind.E(errkind.Unavailable, "dial", err)
}

func client(tb testing.TB, cfg ClientConfig) *Client {
	if cfg.Dial == nil {
		cfg.Dial = dialTCP
	}
	c := NewClient(cfg)
	tb.Cleanup(func() { c.Close() })
	return c
}

func echoServer() *Server {
	s := NewServer(ServerConfig{})
	s.Handle(wire.Anyone, "echo", func(_ context.Context, req []byte) ([]byte, error) { return req, nil })
	return s
}

func TestCallCarriesPayloads(t *testing.T) {
	addr, _ := serve(t, echoServer(), "127.0.0.1:0")
	c := client(t, ClientConfig{})
	for _, size := range []int{0, 1, 100, 1 << 16, 8 << 20} {
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(i * 7)
		}
		got, err := c.Call(t.Context(), addr, "echo", want)
		if err != nil || string(got) != string(want) {
			t.Fatalf("echo of %d bytes: %d bytes, %v", size, len(got), err)
		}
	}
}

func TestErrorsKeepKindOpAndText(t *testing.T) {
	s := NewServer(ServerConfig{})
	cases := []error{
		errkind.New(errkind.NotFound, "no such key"),
		errkind.E(errkind.Conflict, "apply", errors.New("index is 7")),
		errkind.E(errkind.NotLeader, "a", errkind.E(errkind.Invalid, "b", errors.New("deep: text"))),
		fmt.Errorf("wrapped: %w", errkind.New(errkind.Overloaded, "full")),
		errors.New("plain"),
		errkind.New(errkind.Invalid, ""),
	}
	for i, err := range cases {
		s.Handle(wire.Anyone, fmt.Sprint("fail", i), func(context.Context, []byte) ([]byte, error) { return nil, err })
		s.HandleStream(wire.Anyone, fmt.Sprint("failstream", i),
			func(context.Context, []byte, func([]byte) error) error { return err })
	}
	addr, _ := serve(t, s, "127.0.0.1:0")
	c := client(t, ClientConfig{})
	same := func(got, want error) {
		t.Helper()
		if got == nil || errkind.Of(got) != errkind.Of(want) || got.Error() != want.Error() {
			t.Errorf("got %v (%v), want %v (%v)", got, errkind.Of(got), want, errkind.Of(want))
		}
		if got != nil && errkind.Text(got) != errkind.Text(want) {
			t.Errorf("text %q, want %q", errkind.Text(got), errkind.Text(want))
		}
	}
	for i, want := range cases {
		_, err := c.Call(t.Context(), addr, fmt.Sprint("fail", i), nil)
		same(err, want)
		stream, err := c.Stream(t.Context(), addr, fmt.Sprint("failstream", i), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		same(err, want)
	}
	if _, err := c.Call(t.Context(), addr, "nobody", nil); !errkind.Is(err, errkind.NotFound) {
		t.Errorf("unknown method: %v", err)
	}
}

func TestRefusedIsUnavailableAtOnceAndRestartIsSeen(t *testing.T) {
	addr, stop := serve(t, echoServer(), "127.0.0.1:0")
	c := client(t, ClientConfig{RetryAfter: time.Millisecond})
	if _, err := c.Call(t.Context(), addr, "echo", nil); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		stop()
		if _, err := c.Call(t.Context(), addr, "echo", nil); !errkind.Is(err, errkind.Unavailable) {
			t.Fatalf("call to a stopped server: %v", err)
		}
		_, stop = serve(t, echoServer(), addr)
		// The first call after the remembered failure succeeds: no back-off of grpc's.
		deadline := time.Now().Add(2 * time.Millisecond)
		for time.Now().Before(deadline) {
		}
		if _, err := c.Call(t.Context(), addr, "echo", nil); err != nil {
			t.Fatalf("first call after the restart: %v", err)
		}
	}
}

func TestLostMidCallIsUnknown(t *testing.T) {
	s := NewServer(ServerConfig{Drain: time.Millisecond})
	entered := make(chan struct{})
	s.Handle(wire.Anyone, "hang", func(ctx context.Context, _ []byte) ([]byte, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	addr, stop := serve(t, s, "127.0.0.1:0")
	c := client(t, ClientConfig{})
	got := make(chan error, 1)
	go func() {
		_, err := c.Call(t.Context(), addr, "hang", nil)
		got <- err
	}()
	<-entered
	stop()
	if err := <-got; !errkind.Is(err, errkind.Unknown) {
		t.Errorf("%v (%v)", err, errkind.Of(err))
	}
}

func TestDeadlinesAndCancel(t *testing.T) {
	s := NewServer(ServerConfig{})
	var ended atomic.Int32
	s.Handle(wire.Anyone, "hang", func(ctx context.Context, _ []byte) ([]byte, error) {
		<-ctx.Done()
		ended.Add(1)
		return nil, ctx.Err()
	})
	addr, stop := serve(t, s, "127.0.0.1:0")
	c := client(t, ClientConfig{Timeout: 30 * time.Millisecond})
	if _, err := c.Call(t.Context(), addr, "hang", nil); !errors.Is(err, context.DeadlineExceeded) ||
		!errkind.Is(err, errkind.Unknown) {
		t.Errorf("default deadline: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Call(ctx, addr, "hang", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("own deadline: %v", err)
	}
	stop()
	if n := ended.Load(); n != 2 {
		t.Errorf("%d handlers ended, want 2", n)
	}
}

func TestSizeLimits(t *testing.T) {
	s := NewServer(ServerConfig{MaxMessageBytes: 1000})
	s.Handle(wire.Anyone, "echo", func(_ context.Context, req []byte) ([]byte, error) { return req, nil })
	s.Handle(wire.Anyone, "big", func(context.Context, []byte) ([]byte, error) { return make([]byte, 5000), nil })
	addr, _ := serve(t, s, "127.0.0.1:0")
	c := client(t, ClientConfig{MaxMessageBytes: 2000})
	if _, err := c.Call(t.Context(), addr, "echo", make([]byte, 1000)); err != nil {
		t.Error(err)
	}
	if _, err := c.Call(t.Context(), addr, "echo", make([]byte, 2000)); !errkind.Is(err, errkind.TooLarge) {
		t.Errorf("request over the limit: %v", err)
	}
	if _, err := c.Call(t.Context(), addr, "big", nil); !errkind.Is(err, errkind.TooLarge) {
		t.Errorf("answer over the limit: %v", err)
	}
}

func TestPanicIsAnError(t *testing.T) {
	s := echoServer()
	s.Handle(wire.Anyone, "panic", func(context.Context, []byte) ([]byte, error) { panic("boom") })
	addr, _ := serve(t, s, "127.0.0.1:0")
	c := client(t, ClientConfig{})
	if _, err := c.Call(t.Context(), addr, "panic", nil); !errkind.Is(err, errkind.Internal) {
		t.Errorf("%v", err)
	}
	if _, err := c.Call(t.Context(), addr, "echo", nil); err != nil {
		t.Errorf("after the panic: %v", err)
	}
}

func TestStreamDeliversInOrderAndEnds(t *testing.T) {
	s := NewServer(ServerConfig{})
	s.HandleStream(wire.Anyone, "count", func(_ context.Context, req []byte, send func([]byte) error) error {
		for i := range 1000 {
			if err := send(fmt.Appendf(nil, "%s%d", req, i)); err != nil {
				return err
			}
		}
		return nil
	})
	addr, _ := serve(t, s, "127.0.0.1:0")
	c := client(t, ClientConfig{})
	stream, err := c.Stream(t.Context(), addr, "count", []byte("n"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for i := range 1000 {
		got, err := stream.Recv()
		if err != nil || string(got) != fmt.Sprint("n", i) {
			t.Fatalf("frame %d: %q, %v", i, got, err)
		}
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("end: %v", err)
	}
}

func TestHeartbeatsKeepAStreamAliveAndSilenceEndsIt(t *testing.T) {
	release := make(chan struct{})
	handler := func(ctx context.Context, _ []byte, send func([]byte) error) error {
		select {
		case <-release:
			return send([]byte("late"))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	beating := NewServer(ServerConfig{Heartbeat: 5 * time.Millisecond})
	beating.HandleStream(wire.Anyone, "wait", handler)
	silent := NewServer(ServerConfig{Heartbeat: time.Hour})
	silent.HandleStream(wire.Anyone, "wait", handler)
	addr, _ := serve(t, beating, "127.0.0.1:0")
	silentAddr, _ := serve(t, silent, "127.0.0.1:0")
	c := client(t, ClientConfig{Lag: 500 * time.Millisecond})
	alive, err := c.Stream(t.Context(), addr, "wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	dead, err := c.Stream(t.Context(), silentAddr, "wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	got := make(chan error, 1)
	go func() {
		_, err := alive.Recv()
		got <- err
	}()
	began := time.Now()
	if _, err := dead.Recv(); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("silent stream: %v", err)
	}
	if time.Since(began) < 400*time.Millisecond {
		t.Error("silence was called too early")
	}
	close(release)
	if err := <-got; err != nil {
		t.Errorf("stream with heartbeats: %v", err)
	}
}

func TestSlowConsumerIsCut(t *testing.T) {
	s := NewServer(ServerConfig{SendTimeout: 50 * time.Millisecond, Heartbeat: 20 * time.Millisecond})
	ended := make(chan error, 1)
	s.HandleStream(wire.Anyone, "flood", func(_ context.Context, _ []byte, send func([]byte) error) error {
		block := make([]byte, 1<<20)
		for {
			if err := send(block); err != nil {
				ended <- err
				return err
			}
		}
	})
	addr, _ := serve(t, s, "127.0.0.1:0")
	c := client(t, ClientConfig{})
	stream, err := c.Stream(t.Context(), addr, "flood", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the handler of a consumer that takes nothing still sends")
	}
	for {
		if _, err = stream.Recv(); err != nil {
			break
		}
	}
	if !errkind.Is(err, errkind.Overloaded) {
		t.Errorf("the consumer is told %v", err)
	}
}

func TestStopEndsStreamsWithReason(t *testing.T) {
	s := NewServer(ServerConfig{})
	s.HandleStream(wire.Anyone, "wait", func(ctx context.Context, _ []byte, send func([]byte) error) error {
		if err := send(nil); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
	addr, stop := serve(t, s, "127.0.0.1:0")
	c := client(t, ClientConfig{})
	stream, err := c.Stream(t.Context(), addr, "wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := stream.Recv(); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("%v", err)
	}
}

func TestListenerThatSaysNothingFailsInDialTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := client(t, ClientConfig{DialTimeout: 50 * time.Millisecond})
	if _, err := c.Call(t.Context(), l.Addr().String(), "echo", nil); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("%v", err)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	addr, _ := serve(t, echoServer(), "127.0.0.1:0")
	c := NewClient(ClientConfig{Dial: dialTCP})
	if _, err := c.Call(t.Context(), addr, "echo", nil); err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Close()
	if _, err := c.Call(t.Context(), addr, "echo", nil); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("%v", err)
	}
}

func BenchmarkCall(b *testing.B)    { benchCall(b, ClientConfig{}) }
func BenchmarkCallOwn(b *testing.B) { benchCall(b, ClientConfig{own: true}) }

func benchCall(b *testing.B, cfg ClientConfig) {
	addr, _ := serve(b, echoServer(), "127.0.0.1:0")
	c := client(b, cfg)
	req := make([]byte, 256)
	b.SetParallelism(32) // times GOMAXPROCS
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Call(context.Background(), addr, "echo", req); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

func BenchmarkCallAlone(b *testing.B) {
	addr, _ := serve(b, echoServer(), "127.0.0.1:0")
	c := client(b, ClientConfig{})
	req := make([]byte, 256)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Call(context.Background(), addr, "echo", req); err != nil {
			b.Fatal(err)
		}
	}
}
