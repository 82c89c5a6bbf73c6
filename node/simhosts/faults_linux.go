package simhosts

import (
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stallConn makes the kernel drop every packet that comes in on c: nothing
// arrives and nothing is acknowledged, and neither end is told.
func stallConn(c *net.TCPConn) {
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}} // keep 0 bytes of each packet
	onSocket(c, func(fd int) {
		_ = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
	})
}

// resetConn ends c with a reset that both ends see: what connecting a TCP socket to no address does.
func resetConn(c *net.TCPConn) {
	var nowhere [unix.SizeofSockaddrInet4]byte // its family is AF_UNSPEC
	onSocket(c, func(fd int) {
		_, _, _ = unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&nowhere[0])), unsafe.Sizeof(nowhere))
	})
}

func onSocket(c *net.TCPConn, do func(fd int)) {
	var raw syscall.RawConn
	raw, err := c.SyscallConn()
	if err != nil {
		return // it is closed: nothing is left to cut
	}
	_ = raw.Control(func(fd uintptr) { do(int(fd)) })
}
