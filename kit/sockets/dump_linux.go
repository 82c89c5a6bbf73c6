package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket is a TCP socket as the kernel tells of it.
type Socket struct {
	Local, Remote netip.AddrPort
	Established   bool
	Cookie        uint64 // names the socket as long as the machine runs
	// The figures are zero where they were not asked for, and where the kernel keeps none, as for those that only wait
	// for their end.
	SentMillis, ReceivedMillis uint32 // since data last went out, and came in
	DataIn, DataOut            uint32 // segments with data
	Out, Resent                uint32 // segments that were sent, and that were sent again
}

// The layout of struct inet_diag_msg and inet_diag_req_v2 (linux/inet_diag.h).
const (
	sockDiagByFamily = 20
	diagInfo         = 2 // INET_DIAG_INFO
	diagConditions   = 1 // INET_DIAG_REQ_BYTECODE
	messageBytes     = 72
	requestBytes     = 56
	established      = 1 // TCP_ESTABLISHED
	allStates        = 0xfff
)

// Which says of which sockets to tell. The kernel picks them: asking for the figures of each costs it microseconds,
// for which it locks the socket, and a busy server has a hundred thousand.
type Which struct {
	// From and To bound the local port; zeros are all.
	From, To uint16
	// Ports are local or remote ports; none is all.
	Ports []uint16
	// Figures are wanted, too: those behind Cookie.
	Figures bool
}

// Each calls f with TCP sockets of the network namespace. Nothing is kept of them; the Socket is f's until it returns.
func Each(which Which, f func(*Socket)) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		if err := each(family, which, f); err != nil {
			return fmt.Errorf("the kernel's list of connections: %w", err)
		}
	}
	return nil
}

// The conditions that the kernel knows (linux/inet_diag.h): each is a code, how far it is to what follows when it
// holds, and when it does not, and a port. Who comes to the end is told of, and who gets past it is not.
const (
	condJump, condLocalAtLeast, condLocalAtMost, condRemoteAtLeast, condRemoteAtMost = 1, 2, 3, 4, 5

	condBytes, jumpBytes = 8, 4
)

func condition(b []byte, code uint8, port uint16, no int) []byte {
	b = binary.NativeEndian.AppendUint16(append(b, code, condBytes), uint16(no))
	return binary.NativeEndian.AppendUint16(append(b, 0, 0), port)
}

// conditions returns what which asks for.
func (which *Which) conditions() (b []byte) {
	const alternative = 2*condBytes + jumpBytes
	ports, ranged := 0, 0
	if n := len(which.Ports); n > 0 {
		ports = 2*n*alternative - jumpBytes
	}
	if which.To > 0 {
		ranged = 2 * condBytes
		b = condition(b, condLocalAtLeast, which.From, ranged+ports+jumpBytes)
		b = condition(b, condLocalAtMost, which.To, ranged-condBytes+ports+jumpBytes)
	}
	for i := range 2 * len(which.Ports) {
		port, atLeast, atMost := which.Ports[i/2], uint8(condLocalAtLeast), uint8(condLocalAtMost)
		if i%2 == 1 {
			atLeast, atMost = condRemoteAtLeast, condRemoteAtMost
		}
		last := i == 2*len(which.Ports)-1
		next := alternative
		if last {
			next = 2*condBytes + jumpBytes // past the end
		}
		b = condition(b, atLeast, port, next)
		b = condition(b, atMost, port, next-condBytes)
		if !last {
			b = binary.NativeEndian.AppendUint16(append(b, condJump, jumpBytes), uint16(ranged+ports-len(b)))
		}
	}
	return b
}

func each(family uint8, which Which, f func(*Socket)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	req := make([]byte, unix.SizeofNlMsghdr+requestBytes)
	body := req[unix.SizeofNlMsghdr:]
	body[0], body[1] = family, unix.IPPROTO_TCP
	if which.Figures {
		body[2] = 1 << (diagInfo - 1)
	}
	binary.NativeEndian.PutUint32(body[4:], allStates)
	if c := which.conditions(); len(c) > 0 {
		req = binary.NativeEndian.AppendUint16(req, uint16(unix.SizeofRtAttr+len(c)))
		req = append(binary.NativeEndian.AppendUint16(req, diagConditions), c...)
	}
	binary.NativeEndian.PutUint32(req, uint32(len(req)))
	binary.NativeEndian.PutUint16(req[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		if done, err := messages(buf[:n], f); done || err != nil {
			return err
		}
	}
}

var errMessage = errors.New("a message that cannot be read")

// messages reads what one datagram holds, and says whether it was the last.
func messages(b []byte, f func(*Socket)) (done bool, err error) {
	var s Socket
	for len(b) >= unix.SizeofNlMsghdr {
		size, typ := int(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint16(b[4:])
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return true, errMessage
		}
		body := b[unix.SizeofNlMsghdr:size]
		switch typ {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return true, errMessage
			}
			return true, unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		case sockDiagByFamily:
			if !s.read(body) {
				return true, errMessage
			}
			f(&s)
		}
		b = b[min(len(b), (size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
	}
	return false, nil
}

// read takes a struct inet_diag_msg and the attributes behind it.
func (s *Socket) read(b []byte) bool {
	if len(b) < messageBytes {
		return false
	}
	*s = Socket{Established: b[1] == established}
	addr := func(at int) netip.Addr {
		if b[0] == unix.AF_INET {
			return netip.AddrFrom4([4]byte(b[at : at+4]))
		}
		return netip.AddrFrom16([16]byte(b[at : at+16])).Unmap()
	}
	s.Local = netip.AddrPortFrom(addr(8), binary.BigEndian.Uint16(b[4:]))
	s.Remote = netip.AddrPortFrom(addr(24), binary.BigEndian.Uint16(b[6:]))
	s.Cookie = uint64(binary.NativeEndian.Uint32(b[44:])) | uint64(binary.NativeEndian.Uint32(b[48:]))<<32
	for b = b[messageBytes:]; len(b) >= unix.SizeofRtAttr; {
		size, typ := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if size < unix.SizeofRtAttr || size > len(b) {
			return false
		}
		if typ == diagInfo {
			s.info(b[unix.SizeofRtAttr:size])
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return true
}

// info takes a struct tcp_info, of which older kernels have less.
func (s *Socket) info(b []byte) {
	var i unix.TCPInfo
	at := func(offset uintptr) uint32 {
		if int(offset)+4 > len(b) {
			return 0
		}
		return binary.NativeEndian.Uint32(b[offset:])
	}
	s.SentMillis, s.ReceivedMillis = at(unsafe.Offsetof(i.Last_data_sent)), at(unsafe.Offsetof(i.Last_data_recv))
	s.DataIn, s.DataOut = at(unsafe.Offsetof(i.Data_segs_in)), at(unsafe.Offsetof(i.Data_segs_out))
	s.Out, s.Resent = at(unsafe.Offsetof(i.Segs_out)), at(unsafe.Offsetof(i.Total_retrans))
}
