package faultrun

import "syscall"

// dieWithParent ends servers with their driver, so that none outlives a killed run.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
