// Package procgroup starts commands apart from this process, so that they can be ended with all that they started.
//
// On Unix that is a process group, which a terminal's Ctrl-C does not reach; elsewhere the processes that descend from
// the command, as far as they still have their parents. What left the group on purpose lives on. Safe for concurrent
// use: it keeps nothing.
package procgroup

import "os/exec"

// Apart makes cmd, which must not run yet, the first of a group, and has the end of its context kill the group.
func Apart(cmd *exec.Cmd) {
	Alone(cmd)
	cmd.Cancel = func() error { return Kill(cmd.Process.Pid) }
}
