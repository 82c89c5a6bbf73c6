// Package guard keeps what a process has in memory from core dumps, from other
// processes of its user, and from swap.
//
// Both functions act on the whole process, since keys are wherever Go's heap has
// them: a cipher's expanded key cannot be put elsewhere. They hold until the
// process ends; children keep the limit of Dumps and nothing else. They start nothing.
//
// What they do not keep out: the superuser and whoever has CAP_SYS_PTRACE, a
// hypervisor, and hibernation, which writes locked memory too.
package guard
