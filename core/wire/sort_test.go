package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// rawDial connects without a header; it is closed with the test.
func rawDial(t testing.TB, w *Wire) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", w.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(polltest.Deadline)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func accept(t testing.TB, l net.Listener) net.Conn {
	t.Helper()
	got := make(chan net.Conn, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			t.Errorf("accept: %v", err)
		}
		got <- conn
	}()
	conn := polltest.Get(t, got, "a connection to accept")
	if conn == nil {
		t.FailNow()
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// closedByPeer fails unless the peer closes conn without a byte.
func closedByPeer(t testing.TB, conn net.Conn) {
	t.Helper()
	n, err := conn.Read(make([]byte, 1))
	if n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v, from a connection that should be closed", n, err)
	}
}

func TestWhatFollowsTheHeaderBelongsToTheOwner(t *testing.T) {
	w, _ := runWire(t, Config{})
	l := w.Listen(ProtoRPC, 7, Anyone)
	raw := rawDial(t, w)
	if _, err := raw.Write([]byte{byte(ProtoRPC), 7, 'a', 'b', 'c'}); err != nil {
		t.Fatal(err)
	}
	far := accept(t, l)
	got := make([]byte, 3)
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "abc" {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestUnknownRoutesAreClosed(t *testing.T) {
	w, _ := runWire(t, Config{})
	l := w.Listen(ProtoRPC, 1, Anyone)
	for _, header := range [][]byte{{byte(ProtoRPC), 2}, {byte(ProtoRaft), 1}, []byte("GET / HTTP/1.1\r\n\r\n"),
		{firstByteOfTLS, 3}} {
		raw := rawDial(t, w)
		if _, err := raw.Write(header); err != nil {
			t.Fatal(err)
		}
		closedByPeer(t, raw)
	}
	l.Close()
	raw := rawDial(t, w)
	raw.Write([]byte{byte(ProtoRPC), 1})
	closedByPeer(t, raw)
	polltest.Until(t, func() bool { s := w.Stats(); return s.Rejected == 5 && s.Accepted == 0 && s.Pending == 0 },
		"five rejections")
	// A closed route may be taken again.
	w.Listen(ProtoRPC, 1, Anyone)
	defer func() {
		if recover() == nil {
			t.Error("listening twice for one route does not panic")
		}
	}()
	w.Listen(ProtoRPC, 1, Anyone)
}

func TestDrippingPeersLoseTheirSlot(t *testing.T) {
	w, _ := runWire(t, Config{HeaderTimeout: 30 * time.Millisecond})
	w.Listen(ProtoRPC, 0, Anyone)
	dripping := rawDial(t, w)
	if _, err := dripping.Write([]byte{byte(ProtoRPC)}); err != nil {
		t.Fatal(err)
	}
	closedByPeer(t, dripping)
	polltest.Until(t, func() bool { s := w.Stats(); return s.Rejected == 1 && s.Pending == 0 }, "the slot to be free")
}

func TestWaitingConnectionsAreBoundedInAll(t *testing.T) {
	m := NewMemory()
	inner, err := m.Host("server").Listen("server:1")
	if err != nil {
		t.Fatal(err)
	}
	w, _ := runWire(t, Config{Listener: inner, Dialer: m.Host("server"), MaxPending: 3, HeaderTimeout: time.Hour})
	dial := func(host string) net.Conn {
		conn, err := m.Host(host).DialContext(t.Context(), "", "server:1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	for _, host := range []string{"a", "b", "c"} {
		dial(host)
	}
	polltest.Until(t, func() bool { return w.Stats().Pending == 3 }, "three connections to wait")
	closedByPeer(t, dial("d"))
	if s := w.Stats(); s.ShedPending != 1 {
		t.Errorf("%+v", s)
	}
}

func TestEndOfRunClosesWhatWaitsAndLeavesWhatWasHandedOver(t *testing.T) {
	w, stop := runWire(t, Config{HeaderTimeout: time.Hour})
	l := w.Listen(ProtoRPC, 0, Anyone)
	near, err := w.Dial(t.Context(), w.Addr().String(), ProtoRPC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far := accept(t, l)
	queued, err := w.Dial(t.Context(), w.Addr().String(), ProtoRPC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer queued.Close()
	polltest.Until(t, func() bool { return w.Stats().Accepted == 2 }, "the second to be queued")
	waiting := rawDial(t, w)
	polltest.Until(t, func() bool { return w.Stats().Pending == 1 }, "a connection to wait")
	stop()
	closedByPeer(t, waiting)
	closedByPeer(t, queued)
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after the end: %v", err)
	}
	if _, err := w.Listen(ProtoRaft, 0, Anyone).Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept on a listener made after the end: %v", err)
	}
	if _, err := far.Write([]byte("still")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(near, got); err != nil || string(got) != "still" {
		t.Errorf("%q, %v", got, err)
	}
}

// FuzzSorting feeds whatever a stranger may send to the sorting of a plain Wire:
// only a header of a known route passes, and nothing behind it is lost.
func FuzzSorting(f *testing.F) {
	f.Add([]byte{byte(ProtoRaft), 0, 1, 2, 3})
	f.Add([]byte{byte(ProtoRPC), 9})
	f.Add([]byte{byte(ProtoRPC)})
	f.Add([]byte{firstByteOfTLS, 3, 1})
	f.Add([]byte{})
	inner, err := NewMemory().Host("server").Listen("")
	if err != nil {
		f.Fatal(err)
	}
	w, err := New(Config{Listener: inner})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { w.Close() })
	known := map[[2]byte]net.Listener{
		{byte(ProtoRaft), 0}: w.Listen(ProtoRaft, 0, Anyone),
		{byte(ProtoRPC), 9}:  w.Listen(ProtoRPC, 9, Anyone),
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		near, far := net.Pipe()
		defer near.Close()
		greeted := make(chan struct{})
		go func() {
			// Fails when the sorting refused and closed; else all is read below.
			_, _ = near.Write(sent)
			if len(sent) >= headerBytes {
				<-greeted // a pipe, unlike a socket, takes no deadline once its other end is closed
			}
			near.Close()
		}()
		conn, l, err := w.greet(t.Context(), far)
		close(greeted)
		if err != nil {
			far.Close()
			if len(sent) >= headerBytes && known[[2]byte(sent)] != nil {
				t.Fatalf("refused %x: %v", sent, err)
			}
			return
		}
		defer conn.Close()
		if len(sent) < headerBytes || known[[2]byte(sent)] != net.Listener(l) {
			t.Fatalf("%x passed to %d/%d", sent, l.proto, l.group)
		}
		rest, err := io.ReadAll(conn)
		if err != nil || !bytes.Equal(rest, sent[headerBytes:]) {
			t.Fatalf("of %x remained %x, %v", sent, rest, err)
		}
	})
}
