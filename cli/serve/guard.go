package serve

import (
	"fmt"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/kit/guard"
)

// allowDumps is the variable under which a process may be dumped and debugged by others of its user.
const allowDumps = "CORBEL_ALLOW_CORE_DUMPS"

// guardMemory keeps the memory of a process that goes on to serve from dumps and from other processes, and with lock
// from swap. What cannot be done is a warning: whether swap is on, and what may be locked, is the host's to say.
func guardMemory(e *command.Env, lock bool) {
	if e.Getenv(allowDumps) != "" {
		fmt.Fprintf(e.Err, "warning: %s is set: core dumps and other processes of this user get tokens and keys\n",
			allowDumps)
	} else if err := guard.Dumps(); err != nil {
		fmt.Fprintf(e.Err, "warning: core dumps are not switched off: %v\n", err)
	}
	if !lock {
		return
	}
	if err := guard.Lock(); err != nil {
		fmt.Fprintf(e.Err, "warning: secrets may reach swap: %v; or switch swap off and say disable_mlock = true\n", err)
	}
}
