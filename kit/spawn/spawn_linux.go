package spawn

import "syscall"

// DieWithParent ends a process with the thread that starts it, so that none outlives a killed run; Process.Start keeps
// that thread.
func DieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
