// Package execdriver starts tasks as isolated processes: in a file system, mounts, processes and IPC of their own,
// within control groups, with few capabilities, and as a user that is not root. Its names in job files are exec and
// java.
//
// A task sees the host's programs and libraries, which it cannot change, its own folder as /, and the shared one as
// /alloc. It is the first process of its world: a signal that it does not handle does nothing to it but SIGKILL.
package execdriver
