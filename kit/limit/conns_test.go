package limit

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// TestConnsAreCountedByAddress takes, knows and releases places of two addresses.
func TestConnsAreCountedByAddress(t *testing.T) {
	refused := 0
	c := NewConns(3, 2, func() { refused++ })
	one, two := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::ffff:10.0.0.2")
	take := func(who netip.Addr, stranger, want bool) Place {
		t.Helper()
		p, ok := c.Take(who, stranger)
		if ok != want {
			t.Fatalf("%s, a stranger: %v: got a place: %v", who, stranger, ok)
		}
		return p
	}
	first, second := take(one, true, true), take(one, true, true)
	take(one, true, false)
	other := take(two, true, true)
	first.Know()
	first.Know()
	third := take(one, true, true)
	take(one, false, false) // three are open
	third.Release()
	third.Release()
	take(one, false, true)
	if open, strangers := c.Open(one); open != 3 || strangers != 1 || refused != 2 {
		t.Errorf("%d open, %d strangers, %d refused", open, strangers, refused)
	}
	c.Set(0, 0)
	for range 10 {
		take(one, true, true)
	}
	for _, p := range []*Place{&first, &second, &other} {
		p.Release()
	}
	if open, _ := c.Open(two.Unmap()); open != 0 {
		t.Errorf("%d of the other are open", open)
	}
	var none *Conns
	if p, ok := none.Take(one, true); !ok || p != (Place{}) {
		t.Error("what counts nothing refused")
	}
}

// TestListenerClosesStrangers: a connection beyond the bound is closed, one that is known makes room, below TLS too,
// and a place that was claimed outlives its connection.
func TestListenerClosesStrangers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := NewConns(10, 1, nil)
	counting := c.Listener(l)
	defer counting.Close()
	accepted := make(chan net.Conn, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := counting.Accept()
			if err != nil {
				return
			}
			accepted <- nc
		}
	}()
	dial := func() net.Conn {
		nc, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(polltest.Deadline))
		return nc
	}
	dial()
	first := polltest.Get(t, accepted, "the first connection")
	if _, err := dial().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a second stranger: %v", err)
	}
	Known(tls.Server(first, &tls.Config{}))
	dial()
	second := polltest.Get(t, accepted, "another one")
	place := Claim(second)
	_ = second.Close()
	here := netip.MustParseAddr("127.0.0.1")
	if open, strangers := c.Open(here); open != 2 || strangers != 0 {
		t.Errorf("%d open, %d strangers", open, strangers)
	}
	place.Release()
	_ = first.Close()
	_ = first.Close()
	if open, strangers := c.Open(here); open != 0 || strangers != 0 {
		t.Errorf("afterwards %d open, %d strangers", open, strangers)
	}
	_ = counting.Close()
	<-done
}
