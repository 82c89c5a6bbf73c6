//go:build unix

package postgres

import "syscall"

// as makes a process another user's.
func as(attr *syscall.SysProcAttr, uid, gid int) *syscall.SysProcAttr {
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr
}
