//go:build linux

package simhosts

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// pair is a connection of a simulated host and the other end of it.
func pair(t *testing.T, n *network, host int) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	from := &origin{n, host, net.IPv4(127, 64, 3, byte(host)), true}
	if ours, err = from.DialContext(t.Context(), "tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return ours, theirs
}

func TestSimulatedHostsCanBeCut(t *testing.T) {
	n := newNetwork()
	buf := make([]byte, 16)
	var ours, theirs [3]net.Conn
	for i := range ours {
		ours[i], theirs[i] = pair(t, n, i+1)
		if host, _, _ := net.SplitHostPort(theirs[i].RemoteAddr().String()); host != net.IPv4(127, 64, 3,
			byte(i+1)).String() {
			t.Fatalf("host %d comes from %s", i+1, host)
		}
	}
	n.cut(fault{Stall: []int{1}, Reset: []int{2}})
	n.timed.Wait()

	if _, err := theirs[0].Write([]byte("hello")); err != nil {
		t.Fatalf("a stalled connection refused a write: %v", err)
	}
	if err := ours[0].SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if k, err := ours[0].Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a stalled connection brought %q, %v", buf[:k], err)
	}
	for what, c := range map[string]net.Conn{"this": ours[1], "the other": theirs[1]} {
		if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(buf); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
			t.Errorf("%s end of a reset connection: %v", what, err)
		}
	}
	if _, err := theirs[2].Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if k, err := ours[2].Read(buf); err != nil || string(buf[:k]) != "hello" {
		t.Errorf("an untouched connection: %q, %v", buf[:k], err)
	}
	_ = ours[2].Close()
	if len(n.open[3]) != 0 {
		t.Error("a closed connection is remembered")
	}
}
