package hothttp

import "golang.org/x/sys/unix"

// HungUp tells whether the other end of a stream socket has left, whatever it sent before that is still unread.
func HungUp(fd int) bool {
	const left = unix.POLLRDHUP | unix.POLLHUP | unix.POLLERR
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(fds[:], 0)
	return err == nil && n > 0 && fds[0].Revents&left != 0
}
