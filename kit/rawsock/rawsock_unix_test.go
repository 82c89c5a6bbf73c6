//go:build unix

package rawsock

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// A socket without bytes says EAGAIN instead of waiting, and then has what the other end sent, in order.
func TestNeverWaits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	there, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	here, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	raw := Of(here)
	if raw == nil {
		t.Fatal("a TCP connection has no descriptor")
	}
	buf := make([]byte, 8)
	var first error
	n := 0
	err = raw.Read(func(fd uintptr) bool {
		k, err := Read(fd, buf[n:])
		if first == nil { // nothing was sent yet
			first = err
			wrote := Of(there).Write(func(fd uintptr) bool {
				_, err = Writev(fd, [][]byte{[]byte("ab"), []byte("cd")})
				return true
			})
			if err := errors.Join(wrote, err); err != nil {
				t.Error(err)
			}
			return false
		}
		if err == nil {
			n += k
		}
		return n == 4
	})
	if !errors.Is(first, syscall.EAGAIN) || err != nil || string(buf[:n]) != "abcd" {
		t.Errorf("an empty socket says %v; then came %q, %v", first, buf[:n], err)
	}
	if one, two := net.Pipe(); Of(one) != nil || Of(two) != nil {
		t.Error("a pipe has a descriptor")
	}
}
