package sockets

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// pair connects to l from a socket of the given user and returns both ends' addresses as the accepting side sees them.
func pair(t *testing.T, l net.Listener, uid int) (client net.Conn, local, remote netip.AddrPort) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if uid != os.Getuid() {
		if err := unix.Setfsuid(uid); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Setfsuid(os.Getuid()) }()
	}
	at := l.Addr().(*net.TCPAddr)
	if at.IP.IsUnspecified() { // a connection of IPv4 to a socket of IPv6
		at = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.Port}
	}
	client, err := net.DialTCP("tcp", nil, at) // in this very thread
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	// The client's socket: its remote end is our local one.
	return client, server.RemoteAddr().(*net.TCPAddr).AddrPort(), server.LocalAddr().(*net.TCPAddr).AddrPort()
}

// listenAs listens as a user.
func listenAs(t *testing.T, uid int) net.Listener {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if uid != os.Getuid() {
		if err := unix.Setfsuid(uid); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Setfsuid(os.Getuid()) }()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestOwner(t *testing.T) {
	users := []int{os.Getuid()}
	if os.Getuid() == 0 {
		users = append(users, 65534)
	} else {
		t.Log("NOT RUN: the socket of another user: that needs root")
	}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("NOT RUN: %s: %v", address, err)
			continue
		}
		defer l.Close()
		for _, want := range users {
			client, local, remote := pair(t, l, want)
			if uid, found, err := Owner(local, remote); err != nil || !found || int(uid) != want {
				t.Errorf("%s: uid %d, found %v, %v, want %d", address, uid, found, err, want)
			}
			name := "/proc/net/tcp6"
			if local.Addr().Unmap().Is4() && address != "[::]:0" {
				name = "/proc/net/tcp"
			}
			if address != "[::]:0" {
				if uid, found, err := listedOwner(name, local, remote); err != nil || !found || int(uid) != want {
					t.Errorf("%s: the list: uid %d, found %v, %v, want %d", address, uid, found, err, want)
				}
			}
			// The kernel says that a socket without a process is root's: it must not count.
			client.Close()
			if uid, found, err := Owner(local, remote); err != nil || found {
				t.Errorf("%s: a closed socket: uid %d, found %v, %v", address, uid, found, err)
			}
		}
	}
	l := listenAs(t, users[len(users)-1])
	at := l.Addr().(*net.TCPAddr).AddrPort()
	if uid, found, err := Listener(at); err != nil || !found || int(uid) != users[len(users)-1] {
		t.Errorf("a listener: uid %d, found %v, %v", uid, found, err)
	}
	if uid, found, err := listedOwner("/proc/net/tcp", at, netip.AddrPort{}); err != nil || !found ||
		int(uid) != users[len(users)-1] {
		t.Errorf("a listener in the list: uid %d, found %v, %v", uid, found, err)
	}
	l.Close()
	if _, found, err := Listener(at); found || err != nil {
		t.Errorf("no listener: found %v, %v", found, err)
	}
	nobody := netip.MustParseAddrPort("127.0.0.1:1")
	if _, found, err := Owner(nobody, nobody); found || err != nil {
		t.Errorf("no socket: found %v, %v", found, err)
	}
}
