package qdisc

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// The layout of struct tcmsg, of its attributes and of struct gnet_stats_queue (linux/rtnetlink.h, linux/gen_stats.h).
const (
	headBytes    = 16
	messageBytes = 20
	stats2       = 7 // TCA_STATS2
	queueStats   = 3 // TCA_STATS_QUEUE
	root         = 0xFFFFFFFF
	typeMask     = 0x3FFF // without the flags NLA_F_NESTED and NLA_F_NET_BYTEORDER
)

var errShort = errors.New("the kernel's answer about traffic schedulers is cut short")

// Read asks the kernel, by the index of each card.
func Read() (map[int]Counts, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	ask := binary.NativeEndian.AppendUint32(nil, headBytes+messageBytes)
	ask = binary.NativeEndian.AppendUint16(ask, unix.RTM_GETQDISC)
	ask = binary.NativeEndian.AppendUint16(ask, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	ask = append(ask, make([]byte, 8+messageBytes)...)
	if err := unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	out, buf := map[int]Counts{}, make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, os.NewSyscallError("recvfrom", err)
		}
		if end, err := parse(buf[:n], out); end || err != nil {
			return out, err
		}
	}
}

// parse takes in the messages of one packet; end says that there are no more.
func parse(b []byte, out map[int]Counts) (end bool, err error) {
	for len(b) >= headBytes {
		size, kind := int(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint16(b[4:])
		if size < headBytes || size > len(b) {
			return true, errShort
		}
		switch body := b[headBytes:size]; kind {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return true, errShort
			}
			return true, unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		case unix.RTM_NEWQDISC:
			if len(body) >= messageBytes && binary.NativeEndian.Uint32(body[12:]) == root {
				card := int(int32(binary.NativeEndian.Uint32(body[4:])))
				if c, ok := counts(body[messageBytes:]); ok {
					out[card] = c
				}
			}
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return false, nil
}

// counts finds the figures among a discipline's attributes.
func counts(b []byte) (c Counts, ok bool) {
	q := attribute(attribute(b, stats2), queueStats)
	if len(q) < 20 { // qlen, backlog, drops, requeues, overlimits
		return c, false
	}
	return Counts{uint64(binary.NativeEndian.Uint32(q[8:])), uint64(binary.NativeEndian.Uint32(q[12:]))}, true
}

func attribute(b []byte, kind uint16) []byte {
	for len(b) >= 4 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			return nil
		}
		if binary.NativeEndian.Uint16(b[2:])&typeMask == kind {
			return b[4:size]
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return nil
}
