package jobsagentplane

import "corbel.dev/corbel/jobs/client/supervisor"

// SupervisorChild is the first argument of a process that keeps a task for the agent that started it.
const SupervisorChild = supervisor.ChildCommand

// Supervise is such a process; args are what follows. It returns the exit code.
func Supervise(args []string) int { return supervisor.Main(args) }
