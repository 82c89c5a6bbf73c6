package notify

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// firstSocket is the number of the first socket that a manager passes on (SD_LISTEN_FDS_START), and maxSockets how many
// are taken at most.
const (
	firstSocket = 3
	maxSockets  = 256
)

// Sockets are the listening sockets that the manager holds: from its socket units, or from the process that ran before,
// which had left them there. Clients that come while no process runs wait in the kernel's queue instead of being
// refused. It holds sockets of TCP alone.
type Sockets struct {
	to    *sender // nil where nothing is left with the manager
	store bool

	mu   sync.Mutex // guards held
	held []held
}

// held is a socket that nobody has asked for yet.
type held struct {
	name string
	at   netip.AddrPort
	file *os.File
}

// KeepVariable asks for leaving sockets with a manager that has not said, by FDSTORE, that it takes them.
const KeepVariable = "CORBEL_KEEP_SOCKETS"

// Inherited takes what the manager passed on to the process with that pid.
func Inherited(getenv func(string) string, pid int) (*Sockets, error) {
	to, err := newSender(getenv)
	if err != nil {
		return nil, err
	}
	n, _ := strconv.Atoi(getenv("FDSTORE")) // no number is none
	s := &Sockets{to: to, store: to != nil && (n > 0 || getenv(KeepVariable) == "1")}
	names, err := passed(getenv, pid)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		closeOnExec(firstSocket + i)
		f := os.NewFile(uintptr(firstSocket+i), name)
		at, err := boundTo(f)
		if err != nil { // not for us: it would only be in the way
			_ = f.Close()
			continue
		}
		s.held = append(s.held, held{name, at, f})
	}
	return s, nil
}

// passed are the names of the sockets that were passed on to pid.
func passed(getenv func(string) string, pid int) ([]string, error) {
	if getenv("LISTEN_PID") != strconv.Itoa(pid) {
		return nil, nil
	}
	n, err := strconv.Atoi(getenv("LISTEN_FDS"))
	if err != nil || n < 0 || n > maxSockets {
		return nil, fmt.Errorf("LISTEN_FDS is %q: a number up to %d is expected", getenv("LISTEN_FDS"), maxSockets)
	}
	names := make([]string, n)
	copy(names, strings.Split(getenv("LISTEN_FDNAMES"), ":"))
	return names, nil
}

// boundTo is where a listening socket of TCP is bound.
func boundTo(f *os.File) (netip.AddrPort, error) {
	l, err := net.FileListener(f) // of a copy
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer l.Close()
	tcp, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%s is no socket of TCP", l.Addr())
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

// Listen listens at host:port: with the socket that the manager holds for that address, or a new one, which is left
// with the manager.
func (s *Sockets) Listen(network, address string) (net.Listener, error) {
	if s == nil || !strings.HasPrefix(network, "tcp") {
		return net.Listen(network, address)
	}
	if h, ok := s.take(address); ok {
		l, err := net.FileListener(h.file)
		_ = h.file.Close() // the listener has a copy
		return l, err
	}
	l, err := net.Listen(network, address)
	if err == nil && s.store {
		s.leave(l)
	}
	return l, err
}

// take is the held socket for an address.
func (s *Sockets) take(address string) (h held, ok bool) {
	host, port, err := net.SplitHostPort(address)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || n == 0 {
		return h, false
	}
	ip := netip.IPv6Unspecified()
	if host != "" {
		if ip, err = netip.ParseAddr(host); err != nil {
			return h, false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.held, func(h held) bool {
		bound := h.at.Addr()
		// A socket at all addresses of IPv6 takes those of IPv4, too.
		same := bound == ip.Unmap() || bound.IsUnspecified() && ip.IsUnspecified() && bound.Is6()
		return same && h.at.Port() == uint16(n)
	})
	if i < 0 {
		return h, false
	}
	h = s.held[i]
	s.held = slices.Delete(s.held, i, i+1)
	return h, true
}

// nameOf names a socket in the manager's store.
func nameOf(a net.Addr) string {
	return "tcp-" + strings.NewReplacer(":", "-", "[", "", "]", "", "%", "-").Replace(a.String())
}

// leave leaves a copy with the manager. What fails costs the next start its queue, nothing else.
func (s *Sockets) leave(l net.Listener) {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = s.to.send([]string{"FDSTORE=1", "FDNAME=" + nameOf(l.Addr())}, rights(int(fd)))
	})
}

// Rest gives back what nobody has asked for: the configuration has changed. Call it once everything listens.
func (s *Sockets) Rest() {
	if s == nil {
		return
	}
	s.mu.Lock()
	rest := s.held
	s.held = nil
	s.mu.Unlock()
	for _, h := range rest {
		_ = h.file.Close()
		if s.store && strings.HasPrefix(h.name, "tcp-") { // ours; those of socket units stay with the manager
			_ = s.to.send([]string{"FDSTOREREMOVE=1", "FDNAME=" + h.name}, nil)
		}
	}
}
