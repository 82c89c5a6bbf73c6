package supervisor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal makes a pseudo terminal.
func openTerminal() (t terminal, err error) {
	fd, err := syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return t, fmt.Errorf("open a terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		_ = syscall.Close(fd)
		return t, fmt.Errorf("open a terminal: %w", err)
	}
	t.control = os.NewFile(uintptr(fd), "/dev/ptmx")
	if t.process, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		_ = t.control.Close()
	}
	return t, err
}

func (t terminal) resize(size [2]int) {
	conn, err := t.control.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(size[0]), Col: uint16(size[1])})
	})
}

// tick is the unit of /proc's times on every Linux that there is.
const tick = 10 * time.Millisecond

// measure adds up the processes of a group.
func measure(group int, t *Times) {
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(f) < 22 || string(f[2]) != strconv.Itoa(group) {
			continue
		}
		t.PIDs++
		t.User += ticks(f[11])
		t.System += ticks(f[12])
		pages, _ := strconv.ParseUint(string(f[21]), 10, 64)
		t.MemoryBytes += pages * uint64(os.Getpagesize())
	}
}

func ticks(field []byte) time.Duration {
	n, _ := strconv.ParseInt(string(field), 10, 64)
	return time.Duration(n) * tick
}
