//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Freeze stops the server and all that serve its connections in their tracks; Thaw lets them go on. Linux alone.
func (s *Server) Freeze() error { return s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(how syscall.Signal) error {
	pid := s.proc.PID()
	if err := s.proc.Signal(how); err != nil { // first: it starts no more of them
		return err
	}
	all, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil || len(all) == 0 {
		return errors.Join(errors.New("pgtest: no /proc to find the server's children in"), err)
	}
	for _, name := range all {
		text, _ := os.ReadFile(name) // it may have ended
		if !strings.Contains(string(text), fmt.Sprintf("\nPPid:\t%d\n", pid)) {
			continue
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(child, how); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}
