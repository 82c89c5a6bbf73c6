//go:build unix && !linux

package supervisor

import (
	"errors"
	"os"
	"syscall"
)

const (
	isolateCommand = "isolate"
	enterCommand   = "enter"
)

func enter([]string) int { return int(syscall.ENOSYS) }

func adopt() {}

func startOf(int) uint64 { return 0 }

func killOrphans() {}

func isolate(string, *Spec, *os.ProcAttr) (string, []string, error) {
	return "", nil, errors.New("isolation needs Linux")
}

func isolated(string) int { return int(syscall.ENOSYS) }

func openTerminal() (terminal, error) { return terminal{}, errors.New("terminals need Linux") }

func (terminal) resize([2]int) {}

func measure(int, *Times) {}

// join starts a process in the host's network, the only one that there is without Linux.
func join(spec *Spec, start func() error) error {
	if spec.Network != nil {
		return errors.New("networks of allocations need Linux")
	}
	return start()
}
