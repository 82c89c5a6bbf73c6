package sockets

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Owner tells which user holds the open TCP socket of this machine (of its network namespace) that has these addresses;
// found is false where there is none, or none that a process still holds. The kernel calls a socket that was closed
// root's, so one that is not established any more does not count.
func Owner(local, remote netip.AddrPort) (uid uint32, found bool, err error) {
	return owner(plain(local), plain(remote))
}

// Listener tells which user holds the socket that takes connections to an address of this machine.
func Listener(at netip.AddrPort) (uid uint32, found bool, err error) {
	at = plain(at)
	none := netip.IPv4Unspecified()
	if at.Addr().Is6() {
		none = netip.IPv6Unspecified()
	}
	return owner(at, netip.AddrPortFrom(none, 0))
}

func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// owner looks for a connection; with port 0 at the other end, for a listener.
func owner(local, remote netip.AddrPort) (uid uint32, found bool, err error) {
	uid, found, err = askOwner(local, remote)
	if err == nil {
		return uid, found, nil
	}
	// A kernel or a sandbox without the question by socket has the list.
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		uid, found, listErr := listedOwner(name, local, remote)
		if listErr != nil && !errors.Is(listErr, os.ErrNotExist) {
			return 0, false, errors.Join(err, listErr)
		}
		if listErr == nil {
			err = nil
		}
		if found {
			return uid, true, nil
		}
	}
	return 0, false, err
}

func askOwner(local, remote netip.AddrPort) (uid uint32, found bool, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return 0, false, os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return 0, false, os.NewSyscallError("setsockopt", err)
	}
	req := make([]byte, unix.SizeofNlMsghdr+requestBytes)
	binary.NativeEndian.PutUint32(req, uint32(len(req)))
	binary.NativeEndian.PutUint16(req[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST)
	body := req[unix.SizeofNlMsghdr:]
	body[0], body[1] = unix.AF_INET6, unix.IPPROTO_TCP
	if local.Addr().Is4() {
		body[0] = unix.AF_INET
	}
	binary.NativeEndian.PutUint32(body[4:], allStates)
	binary.BigEndian.PutUint16(body[8:], local.Port())
	binary.BigEndian.PutUint16(body[10:], remote.Port())
	copy(body[12:], local.Addr().AsSlice())
	copy(body[28:], remote.Addr().AsSlice())
	for i := 48; i < requestBytes; i++ { // any cookie
		body[i] = 0xff
	}
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, false, os.NewSyscallError("sendto", err)
	}
	buf := make([]byte, 8<<10)
	n, _, err := unix.Recvfrom(fd, buf, 0)
	for err == unix.EINTR {
		n, _, err = unix.Recvfrom(fd, buf, 0)
	}
	if err != nil {
		return 0, false, os.NewSyscallError("recvfrom", err)
	}
	return readOwner(buf[:n], local, remote)
}

// The places of owner and inode in struct inet_diag_msg.
const (
	ownerAt   = 64
	inodeAt   = 68
	listening = 10 // TCP_LISTEN
)

// readOwner reads the answer, which is one message.
func readOwner(b []byte, local, remote netip.AddrPort) (uid uint32, found bool, err error) {
	if len(b) < unix.SizeofNlMsghdr {
		return 0, false, errMessage
	}
	size, typ := int(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint16(b[4:])
	if size < unix.SizeofNlMsghdr || size > len(b) {
		return 0, false, errMessage
	}
	body := b[unix.SizeofNlMsghdr:size]
	switch {
	case typ == unix.NLMSG_ERROR && len(body) >= 4:
		if e := unix.Errno(-int32(binary.NativeEndian.Uint32(body))); e != unix.ENOENT {
			return 0, false, e
		}
		return 0, false, nil
	case typ != sockDiagByFamily:
		return 0, false, errMessage
	}
	var s Socket
	if !s.read(body) {
		return 0, false, errMessage
	}
	inode := binary.NativeEndian.Uint32(body[inodeAt:])
	// the kernel tells of a listener when no connection fits
	fits := s.Established && s.Local == local && s.Remote == remote
	if remote.Port() == 0 {
		fits = body[1] == listening && s.Local.Port() == local.Port()
	}
	if !fits || inode == 0 {
		return 0, false, nil
	}
	return binary.NativeEndian.Uint32(body[ownerAt:]), true, nil
}

// listedOwner looks the socket up in one of the kernel's lists.
func listedOwner(name string, local, remote netip.AddrPort) (uid uint32, found bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// sl local remote st queues timer retransmits uid timeout inode
		w := strings.Fields(lines.Text())
		if len(w) < 10 || w[9] == "0" {
			continue
		}
		l, ok := listedAddr(w[1])
		r, ok2 := listedAddr(w[2])
		fits := ok && ok2 && w[3] == "01" && l == local && r == remote
		if remote.Port() == 0 {
			fits = ok && w[3] == "0A" && l.Port() == local.Port() && (l.Addr() == local.Addr() || l.Addr().IsUnspecified())
		}
		if !fits {
			continue
		}
		n, err := strconv.ParseUint(w[7], 10, 32)
		return uint32(n), err == nil, err
	}
	return 0, false, lines.Err()
}

// listedAddr reads an address as the lists have it: words of the machine's byte order, in hex.
func listedAddr(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	n, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), ok
}
