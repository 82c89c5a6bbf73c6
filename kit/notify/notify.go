// Package notify tells the service manager how a process does, in the words of systemd's sd_notify protocol, and keeps
// listening sockets with it over a restart.
//
// What always holds:
//   - READY is said once the process lacks nothing, never before, and again after each reload.
//   - The watchdog is fed only after the process has answered a probe since it was last fed: a process that hangs is
//     restarted, one that waits for others is not.
//   - A start that takes long is given more time while its probe answers, and while the log that it replays gets
//     shorter or it waits for others.
//   - Without a service manager nothing is sent: all methods of a nil *Service and a nil *Sockets are safe.
//
// Safe for concurrent use. New starts nothing; Run owns the only goroutines. A message is one datagram, which the
// manager takes or which is dropped after a second: no caller waits for the manager for longer.
package notify

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// sendTimeout bounds how long a message may wait for a manager that does not read.
const sendTimeout = time.Second

// errAddress is what NOTIFY_SOCKET may not be.
var errAddress = errors.New("NOTIFY_SOCKET is neither a path nor the name of an abstract socket (@...)")

// sender writes to the manager's socket.
type sender struct{ addr *net.UnixAddr }

// newSender reads the address; nil where no manager listens.
func newSender(getenv func(string) string) (*sender, error) {
	name := getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil, nil
	}
	if name[0] != '/' && name[0] != '@' || len(name) == 1 {
		return nil, fmt.Errorf("%w: %q", errAddress, name)
	}
	return &sender{addr: &net.UnixAddr{Name: name, Net: "unixgram"}}, nil
}

// send sends one message of several lines, with what goes beside it. Each has a socket of its own: the manager may have
// been started anew.
func (s *sender) send(lines []string, beside []byte) error {
	// A name of the kernel's choice: a connected socket cannot pass a descriptor on.
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("service manager: %w", err)
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if _, _, err = c.WriteMsgUnix([]byte(strings.Join(lines, "\n")), beside, s.addr); err != nil {
		return fmt.Errorf("service manager: %w", err)
	}
	return nil
}

// watchdog is after which silence the manager restarts the process with that pid; 0 for never.
func watchdog(getenv func(string) string, pid int) time.Duration {
	if of := getenv("WATCHDOG_PID"); of != "" && of != strconv.Itoa(pid) {
		return 0 // meant for the process that started this one
	}
	n, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || n <= 0 || n > int64(maxWatchdog/time.Microsecond) {
		return 0
	}
	return time.Duration(n) * time.Microsecond
}

// maxWatchdog bounds what is believed.
const maxWatchdog = 24 * time.Hour

// oneLine makes a text fit for a STATUS: a line break would begin another assignment.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	const most = 512
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
