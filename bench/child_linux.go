package bench

import "syscall"

// childAttr makes children die with the bench, so that none outlives a killed run.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
