package postgres

import "syscall"

func as(attr *syscall.SysProcAttr, _, _ int) *syscall.SysProcAttr { return attr } // nobody is user 0 here
