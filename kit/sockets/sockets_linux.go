package sockets

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

const established = 1 // TCP_ESTABLISHED of the kernel's tcp_states.h

// Established lists the connections to the given local ports.
func Established(ports ...uint16) ([]Conn, error) {
	var list []Conn
	for _, family := range []uint8{syscall.AF_INET, syscall.AF_INET6} {
		found, err := netlink.SocketDiagTCPInfo(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("the kernel's list of connections: %w", err)
		}
		for _, s := range found {
			if s.InetDiagMsg == nil || s.TCPInfo == nil || s.InetDiagMsg.State != established || !slices.Contains(ports, s.InetDiagMsg.ID.SourcePort) {
				continue
			}
			id := &s.InetDiagMsg.ID
			list = append(list, Conn{Local: addrPort(id.Source, id.SourcePort), Remote: addrPort(id.Destination, id.DestinationPort),
				Sent: millis(s.TCPInfo.Last_data_sent), Received: millis(s.TCPInfo.Last_data_recv),
				Unanswered: s.TCPInfo.Data_segs_in > 0 && s.TCPInfo.Data_segs_out == 0})
		}
	}
	return list, nil
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}

func millis(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }
