//go:build unix

package fault

import (
	"os"
	"syscall"
)

// linePair makes the two ends of a control line; no child inherits them by chance.
func linePair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	syscall.CloseOnExec(pair[0])
	syscall.CloseOnExec(pair[1])
	return os.NewFile(uintptr(pair[0]), "fault parent"), os.NewFile(uintptr(pair[1]), "fault child"), nil
}

func signalStop(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func signalGoOn(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
