package lab

import "syscall"

// dieWithParent ends servers with the lab, so that none outlives a killed run.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
