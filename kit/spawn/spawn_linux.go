package spawn

import "syscall"

// DieWithParent ends a process with the one that starts it, so that none outlives a killed run.
func DieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
