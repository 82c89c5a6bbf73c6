package sockets

import (
	"net"
	"net/netip"
	"os"
	"testing"
)

// HolderOf names this process for what it listens at, and nobody once that is closed.
func TestHolderOf(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	at := tcp.Addr().(*net.TCPAddr).AddrPort()
	for network, at := range map[string]netip.AddrPort{"tcp": at, "udp": udp.LocalAddr().(*net.UDPAddr).AddrPort(),
		"tcp4": netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())} {
		if h, found := HolderOf(network, at); !found || h.PID != os.Getpid() || h.Name == "" {
			t.Errorf("%s %s: %+v, found %v, want this process %d", network, at, h, found, os.Getpid())
		}
	}
	if err := tcp.Close(); err != nil {
		t.Fatal(err)
	}
	if h, found := HolderOf("tcp", at); found {
		t.Errorf("a closed socket is held by %+v", h)
	}
}
