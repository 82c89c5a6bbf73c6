package rpc

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
)

// TestLargeRequestsTakeRoomAsTheyCome: a server holds no more of large requests than its budget has, whoever sends
// them; those that find no room are told so, small ones pass, and at the end nothing is held.
func TestLargeRequestsTakeRoomAsTheyCome(t *testing.T) {
	budget := limit.NewBytes(16<<20, nil)
	s := NewServer(ServerConfig{Bytes: budget})
	var held atomic.Int64
	s.Handle(wire.Anyone, "size", func(_ context.Context, req []byte) ([]byte, error) {
		held.Store(budget.Stats().Used)
		return bytes.Clone(req[:1]), nil
	})
	s.Handle(wire.Servers, "servers", func(context.Context, []byte) ([]byte, error) { return nil, nil })
	s.HandleStream(wire.Anyone, "stream", func(_ context.Context, req []byte, send func([]byte) error) error {
		return send(req)
	})
	addr, _ := serve(t, s, "127.0.0.1:0")
	c := client(t, ClientConfig{})
	large := bytes.Repeat([]byte("x"), 4<<20)
	if _, err := c.Call(t.Context(), addr, "size", large); err != nil || held.Load() < int64(len(large)) {
		t.Errorf("with room: %v, and %d held", err, held.Load())
	}
	full := budget.Hold(netip.Addr{})
	if err := full.Add(15 << 20); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(t.Context(), addr, "size", large); !errors.Is(err, limit.ErrBytes) {
		t.Errorf("without room: %v", err)
	}
	if _, err := c.Call(t.Context(), addr, "size", large[:pieceBytes]); err != nil {
		t.Errorf("a small one without room: %v", err)
	}
	first := func() ([]byte, error) {
		stream, err := c.Stream(t.Context(), addr, "stream", large[:1<<20])
		if err != nil {
			return nil, err
		}
		defer stream.Close()
		return stream.Recv()
	}
	if _, err := first(); !errors.Is(err, limit.ErrBytes) {
		t.Errorf("a stream without room: %v", err)
	}
	full.End()
	if got, err := first(); err != nil || len(got) != 1<<20 {
		t.Errorf("a stream with room: %d bytes, %v", len(got), err)
	}
	refused := budget.Stats().Refused
	if _, err := c.Call(t.Context(), addr, "servers", make([]byte, 60<<20)); !errkind.Is(err, errkind.Denied) {
		t.Errorf("a method that is not for the caller: %v", err)
	}
	if got := budget.Stats(); got.Refused != refused {
		t.Error("room was asked for a request that is refused for who asks")
	}
}

// TestNoMessageIsLargerThanAPiece: who does not send in pieces is refused, and nothing of it is kept.
func TestNoMessageIsLargerThanAPiece(t *testing.T) {
	addr, _ := serve(t, echoServer(), "127.0.0.1:0")
	c := client(t, ClientConfig{})
	at, err := c.target(addr)
	if err != nil {
		t.Fatal(err)
	}
	l, err := at.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.release()
	var out reply
	in := request{method: "echo", payload: make([]byte, 1<<20)}
	err = l.cc.Invoke(t.Context(), pathCall, &in, &out, c.options...)
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a call of a megabyte in one message: %v", err)
	}
}
