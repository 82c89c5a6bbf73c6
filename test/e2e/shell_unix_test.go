//go:build !windows

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// shellMain runs sh with what follows, in a process group that ends with it. What a script began and did not end, since
// a step failed, would else go on, and hold the pipe that the test reads.
func shellMain() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	cmd := exec.Command("sh", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	group := -cmd.Process.Pid
	go func() {
		<-ended
		_ = syscall.Kill(group, syscall.SIGKILL)
	}()
	err := cmd.Wait()
	_ = syscall.Kill(group, syscall.SIGKILL) // nobody is left of it where the script has ended what it began
	var code *exec.ExitError
	switch {
	case errors.As(err, &code):
		os.Exit(max(code.ExitCode(), 1))
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
