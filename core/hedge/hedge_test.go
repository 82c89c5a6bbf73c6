package hedge

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// serve answers "who" on loopback by handle.
func serve(t *testing.T, handle rpc.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := rpc.NewServer(rpc.ServerConfig{Drain: time.Second})
	srv.Handle(wire.Anyone, "who", handle)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Run(ctx, l)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return l.Addr().String()
}

func of(t *testing.T, addrs ...string) *Servers {
	t.Helper()
	client := rpc.NewClient(rpc.ClientConfig{Timeout: time.Minute,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			return conn, errkind.E(errkind.Unavailable, "dial", err)
		}})
	t.Cleanup(func() { _ = client.Close() })
	return New(client, func() []string { return addrs })
}

// TestASilentServerIsPassedBy: a read from a server that says nothing is answered by another one.
func TestASilentServerIsPassedBy(t *testing.T) {
	frozen := serve(t, func(ctx context.Context, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	well := serve(t, func(context.Context, []byte) ([]byte, error) { return []byte("well"), nil })
	s := of(t, frozen, well)
	for range share { // one hedge is earned, and no more
		s.earn()
	}
	if answer, err := s.Read(t.Context(), frozen, "who", nil); err != nil || string(answer) != "well" {
		t.Errorf("%q, %v", answer, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), after+time.Second)
	defer cancel()
	if answer, err := s.Read(ctx, frozen, "who", nil); err == nil {
		t.Errorf("a hedge that was not earned brought %q", answer)
	}
}

// TestAskGoesOn: servers that are gone are passed by; what a server answers is an answer, also when it is a refusal.
func TestAskGoesOn(t *testing.T) {
	well := serve(t, func(context.Context, []byte) ([]byte, error) { return []byte("well"), nil })
	refuses := serve(t, func(context.Context, []byte) ([]byte, error) { return nil, errkind.New(errkind.Denied, "no") })
	for range 8 { // whichever comes first
		if answer, err := of(t, "127.0.0.1:1", well).Ask(t.Context(), "who", nil); err != nil || string(answer) != "well" {
			t.Fatalf("%q, %v", answer, err)
		}
		if _, err := of(t, "127.0.0.1:1", refuses).Ask(t.Context(), "who", nil); !errkind.Is(err, errkind.Denied) {
			t.Fatalf("a refusal: %v", err)
		}
	}
	if _, err := of(t).Ask(t.Context(), "who", nil); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("nobody is there: %v", err)
	}
}

func TestPickRatherAnother(t *testing.T) {
	s := of(t, "a", "b", "c")
	for range 50 {
		if addr, err := s.Pick("a", "c"); err != nil || addr != "b" {
			t.Fatalf("%q, %v", addr, err)
		}
		if addr, err := s.Pick("a", "b", "c"); err != nil || !slices.Contains([]string{"a", "b", "c"}, addr) {
			t.Fatalf("when all were tried: %q, %v", addr, err)
		}
	}
}
